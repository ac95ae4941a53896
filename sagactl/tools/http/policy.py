"""Which hosts a request may go to, and which addresses a host may lead to (H17, H45).

A host is judged by its name before anything else, and then every address that the name leads to, just before it is
connected to. So it doesn't matter how an address is spelt, nor what the name leads to the next time somebody asks.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from sagactl.dataclass import dataclass
from sagactl.tools.http.settings import Address, HttpSettings

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_TRANSLATED: Final = ipaddress.ip_network("::ffff:0:0:0/96")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where one request goes; *is_declared* where the operator wrote the host, not an argument."""

    host: str
    port: int
    is_declared: bool


def object_to_host(destination: Destination, settings: HttpSettings) -> str | None:
    """Return why a request may not go to a host, or None; only hosts from arguments must be listed."""
    host = destination.host.lower().rstrip(".")
    if destination.is_declared or any(rule.fits(host, destination.port) for rule in settings.hosts):
        return None
    address = read_address(host)
    if address is not None and _is_listed(address, settings):
        return None
    return f'the host {host} is not in `allow`: write allow = ["{host}"] below [http] in sagactl.toml if it may be'


def object_to_address(address: Address, destination: Destination, settings: HttpSettings) -> str | None:
    """Return why an address may not be connected to, or None."""
    inner = _unwrap(address)
    if (inner.is_global and not inner.is_multicast) or _is_listed(inner, settings):
        return None
    if destination.is_declared and _is_written(inner, destination.host):
        return None
    what = _name_kind(inner)
    advice = f'write allow = ["{inner}"] below [http] in sagactl.toml if it may be'
    return f"{destination.host} leads to {inner}, {what}: {advice}"


def read_address(host: str) -> Address | None:
    """Return the address that *host* is, or None where it is a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return address if getattr(address, "scope_id", None) is None else None


def _unwrap(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one carries packets to, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    last = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    is_carried = address in _NAT64 or address in _TRANSLATED or (address in _COMPATIBLE and int(address) > 0xFFFF)
    return last if is_carried else address


def _is_listed(address: Address, settings: HttpSettings) -> bool:
    return any(address in network for network in settings.networks if network.version == address.version)


def _is_written(address: Address, host: str) -> bool:
    """Tell whether the operator wrote the address itself into the declaration; `localhost` is one by its definition."""
    if host.lower().rstrip(".") == "localhost":
        return address.is_loopback
    written = read_address(host)
    return written is not None and _unwrap(written) == address and not _is_special(address)


def _is_special(address: Address) -> bool:
    return address.is_link_local or address.is_multicast or address.is_unspecified


def _name_kind(address: Address) -> str:
    kinds = {
        "this machine": address.is_loopback,
        "no address of a machine": address.is_unspecified,
        "a link-local address, where clouds keep credentials": address.is_link_local,
        "a multicast address": address.is_multicast,
        "a private address": address.is_private,
    }
    return next((name for name, holds in kinds.items() if holds), "an address outside the public internet")
