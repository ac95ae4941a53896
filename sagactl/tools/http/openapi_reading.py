"""Descriptions in OpenAPI as data: JSON or YAML of others, read with patience and within bounds.

People write `200:` without quotes and use aliases; both are fine here. What a reference within the file leads to is
looked up; one that leads elsewhere is never followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sagactl.core.canonical import Json, NotJsonError, parse
from sagactl.errors import InvalidError
from sagactl.written.scalars import BadNumberError, read_plain

DESCRIPTION_BYTES_MAX: Final = 16_777_216
DESCRIPTION_SECONDS_MAX: Final = 60.0
"""How long one may take to come by a pipe."""

NODES_MAX: Final = 1_000_000
DEPTH_MAX: Final = 64
REFERENCES_MAX: Final = 32
"""How many references may lead to one another."""


def read_description(raw: bytes, file: str) -> Mapping[str, Any]:
    """Return the description in *raw*; raises InvalidError."""
    if len(raw) > DESCRIPTION_BYTES_MAX:
        raise _invalid(file, f"it has more than {DESCRIPTION_BYTES_MAX:,} bytes")
    if not raw.strip():
        raise _invalid(file, "it is empty")
    try:
        found = parse(raw) if raw.lstrip()[:1] in {b"{", b"["} else _read_yaml(raw.decode("utf-8-sig"), file)
    except (NotJsonError, UnicodeDecodeError) as error:
        raise _invalid(file, str(error)) from None
    version = found.get("openapi") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not str(version).startswith(("3.0", "3.1")):
        what = "Swagger 2.0" if isinstance(found, dict) and "swagger" in found else "no OpenAPI 3.0 or 3.1"
        raise _invalid(file, f"it is {what}")
    return found


def _invalid(file: str, message: str) -> InvalidError:
    return InvalidError(f"{file}: {message}", code="bad-description", hint="sagactl help http")


def _read_yaml(text: str, file: str) -> Json:
    import yaml

    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        _check_depth(yaml.parse(text, Loader=loader), file)
        node = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        raise _invalid(file, f"{getattr(error, 'problem', None) or 'no YAML'}{where}") from None
    return _Plain(file).value_of(node, 0)


def _check_depth(events: Any, file: str) -> None:
    depth = 0
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") and not name.startswith(("Stream", "Document"))
        depth -= name.endswith("EndEvent") and not name.startswith(("Stream", "Document"))
        if depth > DEPTH_MAX:
            raise _invalid(file, f"lists and maps lie more than {DEPTH_MAX} levels deep in one another")


class _Plain:
    """Nodes of YAML as plain data; what an alias repeats is counted each time."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._left = NODES_MAX

    def value_of(self, node: Any, depth: int) -> Json:
        self._left -= 1
        if self._left < 0 or depth > DEPTH_MAX:
            raise _invalid(self._file, f"it has more than {NODES_MAX} values, or lies too deep")
        if node is None:
            return None
        if node.id == "sequence":
            return [self.value_of(each, depth + 1) for each in node.value]
        if node.id == "mapping":
            return {str(key.value): self.value_of(value, depth + 1) for key, value in node.value}
        if node.style in {None, ""}:
            try:
                return read_plain(node.value)
            except BadNumberError:
                return str(node.value)
        return str(node.value)


def follow(value: Any, root: Mapping[str, Any]) -> Any:
    """Return what a chain of `$ref`s leads to within *root*; None where it leads elsewhere or nowhere."""
    for _ in range(REFERENCES_MAX):
        if not isinstance(value, dict) or "$ref" not in value:
            return value
        value = _point(str(value["$ref"]), root)
    return None


def _point(target: str, root: Mapping[str, Any]) -> Any:
    if not target.startswith("#/"):
        return None
    found: Any = root
    for step in target[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~").replace("%7B", "{").replace("%7D", "}")
        found = found.get(name) if isinstance(found, dict) else None
    return found
