"""URLs: those that are declared, taken apart, and those that come as arguments, looked at before anything is sent."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from sagactl.tools.http.declared import Server

URL_LENGTH_MAX: Final = 8_192
_PATH: Final = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*", re.ASCII)
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?\.?", re.ASCII)
_ADDRESS: Final = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", re.ASCII)
_PORTS: Final = {"http": 80, "https": 443}


class BadUrlError(ValueError):
    """The text is no URL that a request could go to."""


def read_server(text: str) -> Server:
    """Return the server that *text* names, with the path that all requests begin with; raises BadUrlError."""
    parts = split_url(text)
    if parts.query or "?" in text:
        raise BadUrlError("a server has no query")
    return Server(parts.scheme, str(parts.hostname).rstrip("."), find_port(parts), parts.path.rstrip("/"))


def split_url(text: str) -> SplitResult:
    """Take a whole URL apart; raises BadUrlError for all that a request can't go to, or that hides where it goes."""
    if len(text) > URL_LENGTH_MAX:
        raise BadUrlError(f"a URL of {len(text)} characters; at most {URL_LENGTH_MAX} are allowed")
    if not text.isascii() or not text.isprintable() or any(each in text for each in ' "<>\\^`{|}'):
        raise BadUrlError(
            "a character stands in it that must be percent-encoded; a host outside ASCII is written xn--…"
        )
    try:
        parts = urlsplit(text)
        host = parts.hostname
        find_port(parts)
    except ValueError as error:
        raise BadUrlError(str(error)) from None
    if parts.scheme not in _PORTS:
        raise BadUrlError("a URL begins with https:// or http://")
    if "@" in parts.netloc:
        raise BadUrlError("name and password don't stand in a URL; use headers and ${{ secrets.NAME }}")
    if not host or not (_HOST.fullmatch(host) or _ADDRESS.fullmatch(host)):
        raise BadUrlError("it names no host")
    if "#" in text:
        raise BadUrlError("a fragment (#…) is never sent")
    check_path(parts.path)
    return parts


def find_port(parts: SplitResult) -> int:
    """Return the port of a URL; raises ValueError."""
    return parts.port if parts.port is not None else _PORTS.get(parts.scheme, 0)


def check_path(path: str) -> None:
    """Refuse a path that isn't written as it is sent, or in which a part isn't what it seems; raises BadUrlError."""
    if not _PATH.fullmatch(path):
        raise BadUrlError("the path holds a character that must be percent-encoded")
    if any(is_dots(segment) for segment in path.split("/")):
        raise BadUrlError("`.` and `..` in a path lead elsewhere")


def is_dots(segment: str) -> bool:
    """Tell whether a segment of a path means this folder or the one above, however it is encoded."""
    return unquote(unquote(segment)) in {".", ".."}
