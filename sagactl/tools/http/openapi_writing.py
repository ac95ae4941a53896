"""Declarations as the text of a file, with comments: what `sagactl tools import openapi` gives."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sagactl.core.canonical import Json, canonical
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError, NotFoundError
from sagactl.tools.http.openapi import LeftOut, NoOperationError, Operation, find_operations, make_system
from sagactl.tools.http.openapi_reading import read_description
from sagactl.tools.http.openapi_security import Access
from sagactl.tools.http.reading import Declared, read_file
from sagactl.tools.http.urls import BadUrlError, read_server

NO_SERVER: Final = "https://api.example.com"
COMMENT_MAX: Final = 300

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*", re.ASCII)
_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_LINE_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Imported:
    """A file of declarations made of a description; `notes` are for whoever uses it."""

    system: str
    text: str
    tools: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]


def import_openapi(
    raw: bytes, *, file: str, stem: str, only: Collection[str] = (), server: str | None = None
) -> Imported:
    """Return declarations for the operations of a description, and what isn't taken over; raises InvalidError.

    Raises NotFoundError where none of the operations in *only* is there.
    """
    root = read_description(raw, file)
    system = make_system(root, stem)
    try:
        operations, left = find_operations(root, system, only)
    except NoOperationError as error:
        raise NotFoundError(f"{file} has no operation {error}", code="no-such-operation") from None
    if not operations:
        why = f": {left[0].where}: {left[0].why}" if left else ""
        raise NotFoundError(f"{file} has no operation that can be a tool{why}", code="no-such-operation")
    notes: list[str] = []
    place = _find_server(root, server, notes)
    while True:
        text = _write_file(file, place, operations, notes)
        declared = read_file(text.encode(), file=f"{system}.yaml")
        broken = _list_broken(declared)
        if not broken:
            break
        if None in broken or not set(broken) & {each.name for each in operations}:
            raise InvalidError(f"{file}: {next(iter(broken.values()))}", code="bad-description")
        left += [
            LeftOut(f"{each.method.upper()} {each.path}", broken[each.name])
            for each in operations
            if each.name in broken
        ]
        operations = [each for each in operations if each.name not in broken]
        if not operations:
            raise InvalidError(f"{file}: {left[-1].where}: {left[-1].why}", code="bad-description")
    return Imported(system, text, tuple(each.name for each in operations), tuple(left), tuple(dict.fromkeys(notes)))


def _list_broken(declared: Declared) -> dict[str | None, str]:
    """Return why tools of the text can't be used; under None what is wrong with all of it."""
    if not declared.tools and declared.broken and len(declared.broken) == 1 and len(declared.broken[0].names) != 1:
        return {None: declared.broken[0].problems[0].message}
    return {name: each.problems[0].message for each in declared.broken for name in each.names or (None,)}


def _find_server(root: Mapping[str, Any], given: str | None, notes: list[str]) -> str:
    servers = root.get("servers")
    first = servers[0] if isinstance(servers, list) and servers and isinstance(servers[0], dict) else {}
    if given is None and isinstance(servers, list) and len(servers) > 1:
        notes.append(f"the description names {len(servers)} servers, and this is the first: --server takes another")
    url = str(first.get("url", "")) if given is None else given
    variables = first.get("variables")
    for name, variable in variables.items() if isinstance(variables, dict) else ():
        default = variable.get("default", "") if isinstance(variable, dict) else ""
        url = url.replace(f"{{{name}}}", str(default))
    try:
        found = read_server(url)
    except BadUrlError as error:
        if given is not None:
            raise InvalidError(f"--server: {error}", code="bad-url") from None
        notes.append("the description names no server with its host: write it into `server`, or give --server")
        return NO_SERVER + (url.rstrip("/") if url.startswith("/") else "")
    return found.origin + found.base


def _write_file(file: str, server: str, operations: Sequence[Operation], notes: list[str]) -> str:
    name = file.replace("\\", "/").rpartition("/")[2]
    common = operations[0].access if len({each.access for each in operations}) == 1 else Access()
    for each in operations:
        notes += [note for note in each.access.notes if note not in notes]
    lines = [
        _comment(f"Made of {name} by `sagactl tools import openapi`; `sagactl help http` says what may stand here."),
        _comment("Fill in what undoes each tool, and whether the server heeds keys: no description says so."),
        *(_comment(note) for note in notes),
        f"server: {_write_text(server)}",
        *_write_map(common.write(), 0),
        "tools:",
    ]
    for each in operations:
        own = {} if each.access == common else each.access.write()
        keys = {**each.keys}
        for place, entries in own.items():
            keys[place] = {**_as_map(keys.get(place)), **_as_map(entries)}
        lines += [f"  {each.name}:", *_write_map(keys, 4), *(f"    {_comment(line)}" for line in each.comments), ""]
    return "\n".join(lines).rstrip() + "\n"


def _as_map(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _comment(text: str) -> str:
    line = "".join(each if each.isprintable() else " " for each in text)[:COMMENT_MAX]
    return f"# {line}".rstrip()


def _write_map(value: Mapping[str, Json], indent: int) -> list[str]:
    lines = []
    for key, member in value.items():
        head = f"{'':{indent}}{_write_text(key)}:"
        flow = _write_flow(member)
        if not isinstance(member, dict | list) or not member or indent + len(head) + len(flow) < _LINE_MAX:
            lines.append(f"{head} {flow}")
        elif isinstance(member, dict):
            lines += [head, *_write_map(member, indent + 2)]
        else:
            lines += [head, *(f"{'':{indent}}- {_write_flow(item)}" for item in member)]
    return lines


def _write_flow(value: Json) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_write_text(key)}: {_write_flow(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write_flow, value)) + "]"
    return _write_text(value) if isinstance(value, str) else canonical(value)


def _write_text(text: str) -> str:
    """Return a text as YAML: as it is where nothing can mistake it, else in the quotes of JSON."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    quoted = canonical(text)
    # What JSON leaves as it is and YAML doesn't allow.
    return re.sub(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda found: f"\\u{ord(found.group()):04x}", quoted)
