"""The values of `format` that are checked, not only shown: email, date, date-time, uri, uuid, ipv4 and ipv6."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Final

EMAIL_LENGTH_MAX: Final = 254

_EMAIL: Final = re.compile(r"[^@\s\x00-\x1f]{1,64}@[^@\s\x00-\x1f]+")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DATE_TIME: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})", re.ASCII
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*:(?:[!$&-;=?-Z_a-z~#@\[\]]|%[0-9a-f]{2})+", re.ASCII | re.IGNORECASE)


def is_email(text: str) -> bool:
    """Tell whether *text* has the shape of an address; whether mail arrives there is another matter."""
    return len(text) <= EMAIL_LENGTH_MAX and _EMAIL.fullmatch(text) is not None


def is_date(text: str) -> bool:
    """Tell whether *text* is a day of the calendar, `2026-01-31`."""
    return _DATE.fullmatch(text) is not None and _is_read(date.fromisoformat, text)


def is_date_time(text: str) -> bool:
    """Tell whether *text* is a moment as RFC 3339 writes it, offset included."""
    return _DATE_TIME.fullmatch(text) is not None and _is_read(datetime.fromisoformat, text.upper())


def is_uri(text: str) -> bool:
    """Tell whether *text* is a URI with a scheme, in its ASCII form."""
    return _URI.fullmatch(text) is not None


def is_uuid(text: str) -> bool:
    """Tell whether *text* is a UUID with hyphens."""
    return _UUID.fullmatch(text) is not None


def is_ipv4(text: str) -> bool:
    """Tell whether *text* is an IPv4 address in its usual spelling."""
    import ipaddress

    return _is_read(ipaddress.IPv4Address, text)


def is_ipv6(text: str) -> bool:
    """Tell whether *text* is an IPv6 address."""
    import ipaddress

    return _is_read(ipaddress.IPv6Address, text)


def _is_read(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "email": is_email,
    "date": is_date,
    "date-time": is_date_time,
    "uri": is_uri,
    "uuid": is_uuid,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
}
