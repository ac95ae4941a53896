"""The shapes that are explored: small sagas with every kind of structure, and how much trouble each gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sagactl.core.records import Direction, Operation
from sagactl.core.saga import Approval, Saga
from tests.core.builders import saga
from tests.core.simulation.generate import read_traits
from tests.core.simulation.world import Traits

Place = tuple[str, int | None]
"""A step, or an item of one: what an action and its compensation have in common."""

DO_WORDS = ("ok", "reject", "retry", "lost", "gone")
"""What a call can come to: done, no and never, no and perhaps later, done but unheard of, not done and unheard of."""
UNDO_WORDS = ("ok", "retry", "lost", "gone")


@dataclass(frozen=True)
class Shape:
    """One saga, its input, and the trouble that awaits it."""

    name: str
    saga: Saga
    data: Mapping[str, Any] = field(default_factory=dict)
    crashes: int = 2
    losses: int = 0
    """How often a driver loses its lease and lives on: with any, two drivers are at work."""
    commands: tuple[str, ...] = ()
    """What an operator may ask, one thing in all."""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What calls can come to, by the name of the operation (`a`, `a'`), where it isn't the default."""
    deadline_ms: int | None = None
    lies: frozenset[str] = frozenset()
    """What is promised and not kept, to check the checker: the targets' `keys` and `tombstones`, the log's `fence`, the
    `order` of commit and call, and that the calls of a driver which is `dead` have ended."""

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """List the steps, and the items of those with `foreach`."""
        found: list[Place] = []
        for step in self.saga.steps:
            items = self.data.get(f"xs_{step.id}")
            found += [(step.id, None)] if items is None else [(step.id, item) for item in range(len(items))]
        return tuple(found)

    @cached_property
    def traits(self) -> tuple[Traits, ...]:
        """Tell what the target of each place is like."""
        by_step = {step.id: read_traits(step, self.saga.tools) for step in self.saga.steps}
        found = [by_step[step_id] for step_id, _ in self.places]
        if "keys" in self.lies:
            found = [replace(each, honours_keys=False) for each in found]
        if "tombstones" in self.lies:
            found = [replace(each, keeps_tombstones=False) for each in found]
        return tuple(found)

    def words_of(self, operation: Operation) -> tuple[str, ...]:
        """Return what a call of *operation* can come to."""
        is_undo = operation.direction is Direction.COMPENSATION
        name = operation.step + ("'" if is_undo else "")
        return self.words.get(name, UNDO_WORDS if is_undo else DO_WORDS)


TWICE: Mapping[str, Any] = {"attempts": 2, "undo_attempts": 2, "interval": 1}
ONCE: Mapping[str, Any] = {"attempts": 1, "undo_attempts": 2, "interval": 1}
PROBED: Mapping[str, Any] = {**TWICE, "probe": True, "idempotent": False, "null_safe": False}
"""Neither repeatable nor undone blindly: only its probe can tell."""
UNDO_PROBED: Mapping[str, Any] = {**TWICE, "undo_probe": True}
LATE_SAFE: Mapping[str, Any] = {**TWICE, "late_safe": True}
FORGETFUL: Mapping[str, Any] = {**TWICE, "key_retention": 45_000}
"""Its target forgets a key within the time that a driver may be down."""
ASKING: Mapping[str, Any] = {**ONCE, "idempotent": False, "null_safe": False}
"""In doubt only a person knows: neither repeatable, nor probed, nor undone blindly."""
GIVING_UP: Mapping[str, Any] = {**TWICE, "on_unknown": "compensate"}
REFUSABLE = ("ok", "reject", "retry", "lost", "gone")
FEW = ("ok", "reject", "lost")
CALM = ("ok", "lost")
SURE = ("ok",)
"""For undos that only a crash makes doubtful."""
TRUTH = ("truth",)
"""For probes that always can tell."""

ANY_TIME = ("cancel", "roll back", "terminate", "pause")
LETTERS = ("retry", "resolve done", "resolve not done", "skip", "abandon")

SHAPES = (
    Shape("chain", saga("a -> b -> c -> d", a=TWICE, b=PROBED, c=LATE_SAFE, d=TWICE)),
    Shape("diamond", saga("a -> [b | c] -> d", a=ONCE, b=TWICE, c=PROBED, d=ONCE)),
    Shape(
        "parallel",
        saga("[a | b | c]", a=ONCE, b={**LATE_SAFE, "attempts": 1}, c={**PROBED, "attempts": 1}),
        words={"a": CALM, "b": CALM, "c": FEW, "a'": CALM, "b'": SURE, "c'": SURE, "?": TRUTH},
    ),
    Shape("pivot_early", saga("p* -> a -> b", p=PROBED, a=TWICE, b=PROBED), commands=("cancel", *LETTERS)),
    Shape("pivot_middle", saga("[a | b] -> p* -> c", a=TWICE, b=ONCE, p=TWICE, c=TWICE), commands=("cancel",)),
    Shape("pivot_last", saga("a -> b -> p*", a=TWICE, b=UNDO_PROBED, p=PROBED), commands=("roll back", "terminate")),
    Shape(
        "foreach",
        saga("a -> f -> c", a=ONCE, f={**TWICE, "foreach": "${{ input.xs_f }}", "concurrency": 2}, c=ONCE),
        data={"xs_f": [1, 2]},
    ),
    Shape(
        "skip",
        saga("a -> [b | c] -> d", a=ONCE, b={**TWICE, "when": "${{ input.no }}"}, c=TWICE, d=TWICE),
        data={"no": False},
    ),
    Shape(
        "failing_undo",
        saga("a -> [b | c]", a=ONCE, b=ONCE, c=ASKING),
        words={"a'": REFUSABLE, "b'": REFUSABLE, "c'": REFUSABLE},
        commands=LETTERS,
    ),
    Shape(
        "operator",
        saga("a -> [b | c]", a=ONCE, b={**GIVING_UP, "attempts": 1}, c=ONCE),
        words={"a": FEW, "b": FEW, "c": FEW, "a'": CALM, "b'": CALM, "c'": CALM},
        commands=ANY_TIME,
    ),
    Shape(
        "pivot_and_people",
        saga("a -> p* -> c", a=TWICE, p=ASKING, c=TWICE),
        commands=(*ANY_TIME, "roll far back", *LETTERS),
    ),
    Shape(
        "approval",
        saga("a -> b -> c", a=ONCE, b={**TWICE, "approval": Approval()}, c=TWICE),
        commands=ANY_TIME,
    ),
    Shape(
        "forgetful",
        saga("a -> b", a=FORGETFUL, b={**FORGETFUL, "on_unknown": "compensate"}),
        commands=("retry", "resolve done", "resolve not done"),
    ),
    Shape("deadline", saga("a -> b -> c", a=TWICE, b=TWICE, c=TWICE), deadline_ms=100_000),
)
"""With one driver each."""


def with_two_drivers(shape: Shape) -> Shape:
    """Let a driver lose its lease and live on, with its calls, beside the one that takes over."""
    return replace(shape, name=f"{shape.name}-two_drivers", losses=1)


EVERY_SHAPE = (*SHAPES, *map(with_two_drivers, SHAPES))
