"""A path through the world, told as people tell it: what happened, and what it added to the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sagactl.core.records import Direction, Operation, Record
from tests.core.builders import spell
from tests.core.exploration.cores import ASK_DO, UNDO, Core, Event
from tests.core.exploration.search import Path
from tests.core.exploration.shapes import Shape
from tests.core.exploration.telling import TYPE_NAMES

_WORDS: Final = {
    "look": "the driver looks at the log",
    "time": "time passes, to what is waited for",
    "expire": "time passes, to the run's deadline",
    "die": "the driver dies",
    "lose the lease": "the driver loses its lease and lives on",
}
_CLAIMS: Final = {
    "ended": "another driver takes over, and knows that the calls of the last one have ended",
    "alive": "another driver takes over, and calls of the last one may still land",
    "late": "another driver takes over, long after",
}
_FIELDS: Final = ("step", "operation", "attempt", "kind", "answer", "cause", "runs", "due_ms", "fence", "status")


def retell(path: Path) -> str:
    """Return the path as lines: each event, and under it the records that it added to the log."""
    lines = []
    for number, (core, event) in enumerate(path.events, start=1):
        lines.append(f"{number:3}. {_say(path.worlds.shape, event)}")
        lines += [f"       + {each}" for each in _new_records(path, core, event)]
    return "\n".join([*lines, f"     = {path.what}"])


def _say(shape: Shape, event: Event) -> str:
    match event:
        case ("act" | "land" | "end" | "answer" | "probe" as what, place, kind, *rest):
            name = _name(shape, place, kind)
            told = {
                "act": f"{name} acts",
                "land": f"{name}, called by a driver without a lease, acts",
                "end": f"{name}, called by a driver without a lease, has ended",
            }
            return told.get(what) or f"{name} answers: {rest[0]}"
        case ("claim", how):
            return _CLAIMS[how]
        case ("ask", command, operation):
            return f"an operator asks: {command}" + ("" if operation is None else f" {spell(operation)}")
        case _:
            return _WORDS[event[0]]


def _name(shape: Shape, place: int, kind: int) -> str:
    step_id, item = shape.places[place]
    name = spell(Operation(step_id, item, Direction.COMPENSATION if kind & UNDO else Direction.ACTION))
    return f"the probe of {name}" if kind >= ASK_DO else name


def _new_records(path: Path, core: Core, event: Event) -> Iterator[str]:
    """Yield what an event adds to the log, made anew from the state that it happens to."""
    if event[0] in {"act", "land", "end", "die", "lose the lease"}:
        return
    for record in path.worlds.cores.records_after(core, event):
        yield _tell_record(record)


def _tell_record(record: Record) -> str:
    shown: list[str] = []
    for name in _FIELDS:
        value: Any = getattr(record, name, None)
        if value is not None:
            shown.append(f"{name}={spell(value) if isinstance(value, Operation) else value}")
    return f"{TYPE_NAMES[type(record)]} at {record.at_ms}: {', '.join(shown)}"
