"""What became of each step of a run, with how long it took: what summaries and test reports for CI are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from sagactl.cli.views.style import Mark
from sagactl.cli.views.words import name_failure, name_place
from sagactl.core.records import Direction, Intent, Operation, Outcome, Probe, Record
from sagactl.core.summary import StepRow, StepStatus, step_rows

if TYPE_CHECKING:
    from sagactl.core.saga import Saga
    from sagactl.core.state import RunState


class Result(NamedTuple):
    """A step or an item, what became of it in words that are unsafe as yet, and how long its action took."""

    row: StepRow
    mark: Mark
    words: str
    took_ms: int | None

    @property
    def place(self) -> str:
        """Return the step, with its item."""
        return name_place(self.row.id, self.row.item)

    @property
    def failed(self) -> bool:
        """Tell whether the step is why the run is not what it was to be."""
        return self.mark in {Mark.FAILED, Mark.STUCK}


_WORDS: Final = {
    StepStatus.PENDING: (Mark.NOT_RUN, "not run"),
    StepStatus.RUNNING: (Mark.RUNNING, "under way"),
    StepStatus.RETRYING: (Mark.WAITING, "to be tried again"),
    StepStatus.SUCCEEDED: (Mark.DONE, "done"),
    StepStatus.FAILED: (Mark.FAILED, "failed"),
    StepStatus.SKIPPED: (Mark.NOT_RUN, "skipped"),
    StepStatus.COMPENSATING: (Mark.UNDONE, "its undo is under way"),
    StepStatus.COMPENSATED: (Mark.UNDONE, "undone"),
    StepStatus.IN_DOUBT: (Mark.STUCK, "in doubt"),
    StepStatus.STUCK: (Mark.STUCK, "a person must decide"),
}
_AWAITED: Final = (Mark.WAITING, "waits for an approval")
_WITH_REASON: Final = frozenset({StepStatus.RETRYING, StepStatus.IN_DOUBT, StepStatus.STUCK})


def list_results(saga: Saga, state: RunState, records: Iterable[Record]) -> list[Result]:
    """Return a result for each step in file order, and one for each touched item of a step with `foreach`."""
    took = measure(records)
    return [
        Result(
            row,
            *(_AWAITED if row.id in state.awaiting else _say(row)),
            took.get(Operation(row.id, row.item, Direction.ACTION)),
        )
        for row in step_rows(saga, state)
    ]


def measure(records: Iterable[Record]) -> dict[Operation, int]:
    """Return for each operation the milliseconds from its first intent to its last answer."""
    began: dict[Operation, int] = {}
    took: dict[Operation, int] = {}
    for record in records:
        if isinstance(record, Intent):
            began.setdefault(record.operation, record.at_ms)
        elif isinstance(record, Outcome | Probe) and record.operation in began:
            took[record.operation] = record.at_ms - began[record.operation]
    return took


def _say(row: StepRow) -> tuple[Mark, str]:
    mark, words = _WORDS[row.status]
    if row.status is StepStatus.FAILED:
        return mark, name_failure(row.failure) or words
    if row.status is StepStatus.COMPENSATED and row.failure is not None:
        return Mark.FAILED, f"{name_failure(row.failure)}; undone"
    if row.status is StepStatus.STUCK and row.undo_failure is not None:
        return mark, f"its undo failed: {name_failure(row.undo_failure)}"
    why = name_failure(row.failure) if row.status in _WITH_REASON else ""
    return mark, f"{words}: {why}" if why else words
