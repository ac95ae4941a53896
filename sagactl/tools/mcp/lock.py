"""What servers said of their tools when an operator looked at it: a file that a team keeps under version control.

Loading a project reads this file and starts no server. Before a run relies on a tool, what the server says then is
compared with it: whoever can change a server's description or schemas can't change what a saga does unnoticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

from sagactl.core.canonical import Json, NotJsonError, canonical, digest, parse
from sagactl.core.records import ToolChange
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError
from sagactl.regular_file import read_regular
from sagactl.tools.explain import join_path

LOCK_FILE: Final = "mcp.lock.json"
"""In the folder `plugins/` of the project."""

LOCK_SCHEMA: Final = "sagactl.mcp_lock/1"
LOCK_BYTES_MAX: Final = 16_777_216
CHANGES_MAX: Final = 20
"""Differences of one tool that are told; then it is said that there are more."""

SHOWN_LENGTH_MAX: Final = 100
BEFORE_LENGTH: Final = 30
"""Characters shown before the place where two texts part."""


@dataclass(frozen=True, slots=True)
class Pin:
    """What a server says of one tool."""

    tool: str
    description: str = ""
    input: Mapping[str, Json] = field(default_factory=dict)
    output: Mapping[str, Json] | None = None
    annotations: Mapping[str, Json] = field(default_factory=dict)

    def write(self) -> dict[str, Json]:
        """Return all of it but the name, as it stands in the file."""
        more: dict[str, Json] = {} if self.output is None else {"output": dict(self.output)}
        return {
            "description": self.description,
            "input": dict(self.input),
            **more,
            "annotations": dict(self.annotations),
        }

    @property
    def hash(self) -> str:
        """Return the hash of all of it."""
        return f"sha256:{digest([self.tool, self.write()])}"


@dataclass(frozen=True, slots=True)
class PinnedServer:
    """The tools of one server, by the server's own names; `version` is only for people."""

    version: str = ""
    tools: Mapping[str, Pin] = field(default_factory=dict)


Lock = Mapping[str, PinnedServer]
"""What is pinned, by the names of the servers."""


def read_lock(file: Path) -> Lock:
    """Return what is pinned, nothing where there is no file; raises InvalidError for one that isn't ours."""
    try:
        data = read_regular(file, LOCK_BYTES_MAX)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _refuse(file, f"can't be read: {error.strerror}") from None
    try:
        content = parse(data)
    except (NotJsonError, UnicodeDecodeError) as error:
        raise _refuse(file, f"is no JSON: {error}") from None
    if not isinstance(content, dict) or content.get("schema") != LOCK_SCHEMA:
        raise _refuse(file, f"isn't of the form {LOCK_SCHEMA}")
    try:
        servers = cast("dict[str, Any]", content["servers"])
        return {name: _read_server(each) for name, each in servers.items()}
    except (KeyError, TypeError, AttributeError, _EditedError) as error:
        what = str(error) if isinstance(error, _EditedError) else "isn't as sagactl writes it"
        raise _refuse(file, what) from None


class _EditedError(ValueError):
    """A hash isn't that of what it stands with."""


def _refuse(file: Path, message: str) -> InvalidError:
    return InvalidError(f"{file}: {message}", code="bad-lock", hint="sagactl tools pin")


def _read_server(content: dict[str, Any]) -> PinnedServer:
    tools = {}
    for name, each in content["tools"].items():
        output = each.get("output")
        pin = Pin(name, str(each["description"]), dict(each["input"]), output, dict(each["annotations"]))
        if each["hash"] != pin.hash:
            raise _EditedError(f"tool {name!r} was changed by hand: its hash is another")
        tools[name] = pin
    return PinnedServer(str(content.get("version", "")), tools)


def write_lock(lock: Lock) -> str:
    """Return the text of the file: sorted, so that a change of a server is what a review shows."""
    servers = {
        name: {
            "version": server.version,
            "tools": {tool: {**pin.write(), "hash": pin.hash} for tool, pin in sorted(server.tools.items())},
        }
        for name, server in sorted(lock.items())
    }
    document = {"schema": LOCK_SCHEMA, "servers": servers}
    return json.dumps(_write_floats(document), ensure_ascii=False, indent=2) + "\n"


def _write_floats(part: object) -> object:
    """Return *part* as the library writes it: it has no decimals, and a schema's are what Python prints of a float."""
    if isinstance(part, Decimal):
        return float(part)
    if isinstance(part, dict):
        return {key: _write_floats(member) for key, member in part.items()}
    return [_write_floats(item) for item in part] if isinstance(part, list) else part


def compare_pins(pinned: Pin, present: Pin | None) -> tuple[ToolChange, ...]:
    """Return what differs between what was pinned of a tool and what its server says now; None: it is gone."""
    if present is None:
        return (ToolChange("tool", "", pinned.tool, None),)
    if pinned.hash == present.hash:
        return ()
    before, after = pinned.write(), present.write()
    found = [change for name in {**before, **after} for change in _compare(before.get(name), after.get(name), name, "")]
    # What is null and what is missing look the same above; no difference goes unnoticed for that.
    return tuple(found[:CHANGES_MAX]) or (ToolChange("hash", "", pinned.hash, present.hash),)


def compare_servers(pinned: PinnedServer, present: PinnedServer) -> dict[str, tuple[ToolChange, ...]]:
    """Return what differs, by the server's names of the tools; new tools count as well."""
    found = {name: compare_pins(pin, present.tools.get(name)) for name, pin in pinned.tools.items()}
    new = {name: (ToolChange("tool", "", None, name),) for name in present.tools if name not in pinned.tools}
    return {name: changes for name, changes in sorted({**found, **new}.items()) if changes}


def _compare(old: Json, new: Json, fact: str, path: str) -> Iterator[ToolChange]:
    """Yield each difference: every word counts, also one that explains only, for models read those."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            yield from _compare(old.get(name), new.get(name), fact, join_path(path, name))
    elif isinstance(old, str) and isinstance(new, str):
        if old != new:
            yield ToolChange(fact, path, *_cut_texts(old, new))
    elif digest(old) != digest(new):  # `1` and `true` are equal in Python
        yield ToolChange(fact, path, _cut(old), _cut(new))


def _cut_texts(old: str, new: str) -> tuple[str, str]:
    """Return two texts from shortly before the place where they part."""
    part = next(
        (at for at, (one, two) in enumerate(zip(old, new, strict=False)) if one != two), min(len(old), len(new))
    )
    start = max(0, part - BEFORE_LENGTH)
    old, new = (("..." if start else "") + _cut_text(text[start:]) for text in (old, new))
    return old, new


def _cut_text(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}..."


def _cut(value: Json) -> Json:
    text = canonical(value)
    return value if len(text) <= SHOWN_LENGTH_MAX else _cut_text(text)
