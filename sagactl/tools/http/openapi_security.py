"""How a description wants requests to be allowed, as headers and parameters that hold a secret of the tool's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagactl.core.canonical import Json
from sagactl.dataclass import dataclass
from sagactl.tools.http.openapi_reading import follow


@dataclass(frozen=True, slots=True)
class Access:
    """What stands in a request so that it is allowed: headers, parameters, and what else is wanted."""

    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def write(self) -> dict[str, Json]:
        """Return it as keys of a declaration."""
        given: dict[str, dict[str, Json]] = {"headers": dict(self.headers), "query": dict(self.query)}
        return {place: entries for place, entries in given.items() if entries}


def find_access(root: Mapping[str, Any], described: Mapping[str, Any]) -> Access:
    """Return what the first of the ways to be allowed wants of an operation."""
    ways = described.get("security", root.get("security"))
    if not isinstance(ways, list) or not ways or not isinstance(ways[0], dict):
        return Access()
    headers: list[tuple[str, str]] = []
    query: list[tuple[str, str]] = []
    notes: list[str] = []
    components = root.get("components")
    schemes = components.get("securitySchemes") if isinstance(components, dict) else None
    for name in ways[0]:
        scheme = follow(schemes.get(name), root) if isinstance(schemes, dict) else None
        _add(scheme if isinstance(scheme, dict) else {}, _spell(str(name)), headers, query, notes)
    return Access(tuple(headers), tuple(query), tuple(notes))


def _spell(name: str) -> str:
    spelt = "".join(each if each.isascii() and each.isalnum() else "_" for each in name).upper().strip("_")
    return spelt if spelt[:1].isalpha() else f"API_{spelt}"


def _add(
    scheme: Mapping[str, Any], name: str, headers: list[tuple[str, str]], query: list[tuple[str, str]], notes: list[str]
) -> None:
    secret = f"${{{{ secrets.{name} }}}}"
    kind, place = scheme.get("type"), scheme.get("in")
    is_basic = kind == "http" and str(scheme.get("scheme", "")).lower() == "basic"
    if kind == "apiKey" and place == "header":
        headers.append((str(scheme.get("name")), secret))
    elif kind == "apiKey" and place == "query":
        query.append((str(scheme.get("name")), secret))
    elif is_basic:
        headers.append(("Authorization", f"Basic {secret}"))
        notes.append(f"the secret {name} is the base64 of name:password")
    elif kind in {"http", "oauth2", "openIdConnect"}:
        headers.append(("Authorization", f"Bearer {secret}"))
        if kind != "http":
            notes.append(f"the secret {name} is an access token; nothing here asks for one")
    else:
        notes.append(f"the way to be allowed {name} ({kind or 'not described'}) isn't taken over")
