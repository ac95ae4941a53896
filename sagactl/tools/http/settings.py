"""`[http]` in `sagactl.toml`: which hosts and addresses may be reached, and how (H17).

A name in `allow` lets a URL that comes as an argument name this host. An address or a network in it lets any host lead
there, though it is private: names are nobody's promise, and whoever answers for one may let it lead anywhere.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final, TypeAlias

from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError
from sagactl.tools.http.declared import Server
from sagactl.tools.http.urls import BadUrlError, read_server

ALLOWED_MAX: Final = 1_000
ANSWER_BYTES_MAX: Final = 4_194_304
"""How much of an answer is read by default; what a step keeps of it is bounded anyhow."""

ANSWER_BYTES_LIMIT: Final = 67_108_864

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"

CA_BYTES_MAX: Final = 16_777_216
_KEYS: Final = ("allow", "answer_bytes_max", "ca", "proxy", "servers")
_NAME: Final = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class HostRule:
    """A host that URLs in arguments may name; `*.` stands for any names below; without a port any port."""

    host: str
    port: int | None

    def fits(self, host: str, port: int) -> bool:
        """Tell whether the rule allows a host."""
        if self.port not in {None, port}:
            return False
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """What the operator says of HTTP tools."""

    hosts: tuple[HostRule, ...] = ()
    networks: tuple[Network, ...] = ()
    servers: Mapping[str, str] = field(default_factory=dict)
    """Where the tools of `plugins/NAME.yaml` send their requests instead, by NAME."""
    ca: Path | None = None
    """A file of certificates that are trusted besides those of the system."""
    proxy: Server | None = None
    answer_bytes_max: int = ANSWER_BYTES_MAX


def read_settings(table: Mapping[str, Any] | None, folder: Path) -> HttpSettings:
    """Return the settings; raises InvalidError."""
    table = {} if table is None else table
    for key in table:
        if key not in _KEYS:
            raise _invalid(f"unknown setting {key}", hint=f"known are {', '.join(_KEYS)}")
    hosts, networks = _read_allowed(table.get("allow", []))
    return HttpSettings(
        hosts=hosts,
        networks=networks,
        servers=_read_servers(table.get("servers", {})),
        ca=_read_ca(table.get("ca"), folder),
        proxy=_read_proxy(table.get("proxy")),
        answer_bytes_max=_read_size(table.get("answer_bytes_max", ANSWER_BYTES_MAX)),
    )


def _invalid(message: str, *, hint: str | None = None) -> InvalidError:
    return InvalidError(f"[http]: {message}", code="invalid-config", hint=hint or "sagactl help http")


def _read_allowed(given: object) -> tuple[tuple[HostRule, ...], tuple[Network, ...]]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given) or len(given) > ALLOWED_MAX:
        raise _invalid(f"allow must be a list of at most {ALLOWED_MAX} hosts, addresses and networks")
    hosts: list[HostRule] = []
    networks: list[Network] = []
    for each in given:
        try:
            network = ipaddress.ip_network(each.strip("[]"))
        except ValueError:
            hosts.append(_read_host(each))
            continue
        networks.append(network)
        if network.num_addresses == 1:
            hosts.append(HostRule(str(network.network_address), None))
    return tuple(hosts), tuple(networks)


def _read_host(text: str) -> HostRule:
    host, _, port = text.lower().partition(":")
    if not _NAME.fullmatch(host) or (port and not (port.isdigit() and port.isascii() and 0 < int(port) < 65_536)):
        hint = 'write "api.example.com", "*.example.com:8443", "10.1.2.3" or "10.0.0.0/8"'
        raise _invalid(f"allow: {text!r} is no host, address or network", hint=hint)
    return HostRule(host, int(port) if port else None)


def _read_servers(given: object) -> dict[str, str]:
    if not isinstance(given, dict):
        raise _invalid("servers must be a table of URLs")
    for name, url in given.items():
        try:
            read_server(str(url))
        except BadUrlError as error:
            raise _invalid(f"servers: {name}: {error}") from None
    return {str(name): str(url) for name, url in given.items()}


def _read_ca(given: object, folder: Path) -> Path | None:
    if given is None:
        return None
    if not isinstance(given, str) or not (folder / Path(given).expanduser()).is_file():
        raise _invalid(f"ca: there is no file {given!r}")
    file = folder / Path(given).expanduser()
    if file.stat().st_size > CA_BYTES_MAX:
        raise _invalid(f"ca: {given!r} has more than {CA_BYTES_MAX:,} bytes")
    return file


def _read_proxy(given: object) -> Server | None:
    if given is None:
        return None
    try:
        proxy = read_server(str(given))
    except BadUrlError as error:
        raise _invalid(f"proxy: {error}") from None
    if proxy.base:
        raise _invalid("proxy: a proxy has no path")
    return proxy


def _read_size(given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= ANSWER_BYTES_LIMIT:
        raise _invalid(f"answer_bytes_max must be a number from 1 to {ANSWER_BYTES_LIMIT}")
    return given
