"""What came about in a simulation, counted by name: a storm in which nothing happened proves nothing (V0)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sagactl.core.evolve import replay
from sagactl.core.records import (
    Decision,
    DecisionKind,
    Direction,
    Disposition,
    Ended,
    Operator,
    Record,
    StepDecided,
    Verb,
)
from tests.core.simulation.drive import Simulation

HAPPENINGS = {
    "faults of a driver": (
        "died before a commit",
        "died after a commit",
        "died before a call",
        "died between effect and record",
        "died between events",
        "lost its lease",
        "refused by the fence",
        "late call landed",
        "claimed, calls ended",
        "claimed, calls may land",
        "answer ignored",
        "missing tool",
    ),
    "answers of a tool": (
        *(
            f"{direction} {word}"
            for direction in ("action", "compensation")
            for word in ("ok", "retry", "retry_after", "reject", "fatal", "lost", "lost_clean", "misfit", "hang")
        ),
        "action pending",
        "compensation pending",
        "timed out",
        "ended a call",
    ),
    "answers of a probe": tuple(
        f"probe {direction} {answer}"
        for direction in ("action", "compensation")
        for answer in ("done", "not_done", "cannot_tell")
    ),
    "ends": ("rest succeeded", "rest rolled_back", "rest stuck", "rest terminated"),
    "requests": tuple(f"asked {verb}" for verb in Verb if verb is not Verb.REBIND),
    "dispositions": tuple(f"said {disposition}" for disposition in Disposition),
    "resolutions": tuple(f"resolved {how}" for how in ("done", "not_done", "skip", "abandon")),
    "decisions": tuple(f"decided {kind}" for kind in DecisionKind if kind is not DecisionKind.WAITING),
    "causes": tuple(f"turned by {cause}" for cause in ("step_failed", "cancelled", "requested", "timeout", "denied")),
    "treatments": (
        "left not undone",
        "undone without output",
        "undone before a late call",
        "undone past the pivot",
        "skipped",
    ),
    "people": ("asked to approve", "approved", "denied in time", "denied by silence", "paused", "went on"),
}
"""All that two thousand storms must have brought about; `waiting` is a word of the engine, `rebind` has its own."""


_ANSWERS = {
    Verb.APPROVE: ("approved",),
    Verb.DENY: ("denied in time",),
    Verb.PAUSE: ("paused",),
    Verb.UNPAUSE: ("went on",),
}


def count_happenings(simulation: Simulation) -> Counter[str]:
    """Count what came about, in the world, to the drivers, and in the words of the log."""
    found = Counter(simulation.happened)
    for record in simulation.log.records:
        found.update(_name_record(record))
    found.update(_name_undos(simulation))
    return found


def _name_record(record: Record) -> Iterator[str]:
    match record:
        case Decision(kind=kind, cause=cause):
            yield f"decided {kind}"
            if kind is DecisionKind.ROLLBACK:
                yield f"turned by {cause}"
            if kind is DecisionKind.EXPIRED and record.step is not None:
                yield "denied by silence"
        case Operator(request=request, disposition=disposition):
            yield f"said {disposition}"
            if disposition is Disposition.ACCEPTED:
                yield from _ANSWERS.get(request.verb, ())
            if disposition is Disposition.ACCEPTED and request.resolution is not None:
                yield f"resolved {request.resolution}"
        case StepDecided(runs=False):
            yield "skipped"
        case StepDecided(approval=str()):
            yield "asked to approve"
        case Ended(not_undone=left) if left:
            yield "left not undone"
        case _:
            pass


def _name_undos(simulation: Simulation) -> Iterator[str]:
    state = replay(simulation.saga, simulation.log.records)
    for operation, undo in state.operations.items():
        if operation.direction is Direction.ACTION or undo.attempts == 0:
            continue
        action = state.operations[operation.other]
        if action.output is None:
            yield "undone without output"
        if undo.first_intent_ms < action.late_until_ms:
            yield "undone before a late call"
        if state.pivot_passed:
            yield "undone past the pivot"
