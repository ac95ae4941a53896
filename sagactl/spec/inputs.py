"""The input of a run against the schema of its saga: defaults filled in, everything that is wrong told at once.

Checked strictly: `true` is no number, `"5"` is no number, and `1.0` is no integer, though JSON Schema would let it
pass: an amount that somebody wrote with a point is worth a second look. The formats email, date, date-time, uri, uuid,
ipv4 and ipv6 are checked; others are notes. No message quotes what a `writeOnly` property holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sagactl.core.canonical import Json, NotJsonError, canonical, check_nesting
from sagactl.core.keys import SECRET_MARK
from sagactl.core.saga import PAYLOAD_BYTES_MAX
from sagactl.core.template import Path
from sagactl.spec.fit import Misfit, TooComplexError, find_misfits
from sagactl.spec.schema_types import Typed
from sagactl.written.findings import SUGGESTED_MAX
from sagactl.written.problem import Problem
from sagactl.written.suggest import NAMES_SHOWN_MAX, suggestion_hint
from sagactl.written.visible import quote

FILE: Final = "input"
"""What stands for the name of a file in these problems."""


def check_input(schema: Mapping[str, Json], value: Json) -> tuple[Json, tuple[Problem, ...]]:
    """Return *value* with the defaults of *schema*, and all that is wrong with it."""
    broken = _check_form(value)
    if broken is not None:
        return value, (_problem(broken),)
    filled = _fill(value, Typed.of(schema))
    try:
        misfits = find_misfits(filled, schema)
    except TooComplexError as error:
        return filled, (_problem(str(error)),)
    return filled, tuple(_explain(misfit, suggests=place < SUGGESTED_MAX) for place, misfit in enumerate(misfits))


def _check_form(value: Json) -> str | None:
    """Say what no input may be, whatever its schema."""
    if not isinstance(value, dict):
        return "the input must be a map of names and values"
    try:
        check_nesting(value)
        size = len(canonical(value).encode("utf-8"))
    except (NotJsonError, UnicodeEncodeError) as error:
        return f"the input can't be stored: {quote(str(error), 120)}"
    if size > PAYLOAD_BYTES_MAX:
        return f"the input has {size} bytes; at most {PAYLOAD_BYTES_MAX} are kept"
    marked = next(_find_marks(value, ()), None)
    if marked is not None:
        return f"{_spell(marked)} has the key {SECRET_MARK}, by which the log notes secrets; no input may have it"
    return None


def _find_marks(value: Json, path: Path) -> Iterator[Path]:
    if isinstance(value, dict):
        if SECRET_MARK in value:
            yield path
        for name, item in value.items():
            yield from _find_marks(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_marks(item, (*path, index))


def _fill(value: Json, typed: Typed) -> Json:
    """Return *value* with the default of each property that isn't there, also within maps and lists that are."""
    schema = typed.resolve().schema
    if not isinstance(schema, dict):
        return value
    properties, items = schema.get("properties"), schema.get("items")
    if isinstance(value, dict) and isinstance(properties, dict):
        filled = {name: _fill(item, Typed(properties.get(name, True), typed.root)) for name, item in value.items()}
        for name, part in properties.items():
            if name not in filled and isinstance(part, dict) and "default" in part:
                filled[name] = part["default"]
        return filled
    if isinstance(value, list) and isinstance(items, dict) and "prefixItems" not in schema:
        return [_fill(item, Typed(items, typed.root)) for item in value]
    return value


def _explain(misfit: Misfit, *, suggests: bool) -> Problem:
    name = _spell(misfit.path)
    if misfit.keyword == "additionalProperties":
        near = suggestion_hint(str(misfit.path[-1]), misfit.known) if suggests else None
        hint = near or f"it takes {', '.join(misfit.known[:NAMES_SHOWN_MAX]) or 'nothing'}"
        return _problem(f"the saga takes no {name}", hint)
    return _problem(f"{name} {misfit.message}")


def _problem(message: str, hint: str | None = None) -> Problem:
    return Problem("bad-input", message, FILE, 0, 0, 0, hint)


def _spell(path: Path) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{quote(step)}" for step in path]
    return f"input{''.join(steps)}"
