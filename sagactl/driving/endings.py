"""What became of the runs of one driver: their endings, and the refusals that belong to them.

Nothing here locks: the driver does, around all but `watch`, which its engine calls between two turns of the loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sagactl.core.records import Disposition, Operator, Request
from sagactl.engine.ending import Ending, make_refusal

if TYPE_CHECKING:
    from sagactl.engine.settings import Committed
    from sagactl.errors import RefusedError

ENDINGS_MAX: Final = 10_000
"""How many endings `wait` still knows after the runs have gone; the oldest are forgotten first."""


class Endings:
    """The endings of one driver's runs: all of late, and those of the round that is driven now."""

    def __init__(self) -> None:
        self._asked: dict[str, Request] = {}
        self._refused: dict[str, RefusedError] = {}
        self._round: dict[str, Ending] = {}
        self._latest: dict[str, Ending] = {}

    def expect(self, run_id: str, request: Request) -> None:
        """Look out for the answer to what was asked of a run."""
        self._asked[run_id] = request

    def watch(self, committed: Committed) -> None:
        """Find the answers to what was asked."""
        request = self._asked.get(committed.run_id)
        if request is None:
            return
        for record in committed.records:
            if isinstance(record, Operator) and record.request.id == request.id:
                if record.disposition is Disposition.REFUSED:
                    self._refused[committed.run_id] = make_refusal(committed.run_id, record.detail)
                self._asked.pop(committed.run_id, None)

    def note(self, ending: Ending, *, is_of_round: bool) -> None:
        """Keep an ending, with the refusal that came before it."""
        run_id = ending.run_id
        self._asked.pop(run_id, None)
        refused = self._refused.pop(run_id, None)
        ending = ending if refused is None or ending.error else replace(ending, error=refused)
        if is_of_round:
            self._round[run_id] = ending
        self._latest.pop(run_id, None)
        self._latest[run_id] = ending
        if len(self._latest) > ENDINGS_MAX:
            del self._latest[next(iter(self._latest))]

    def take_round(self) -> dict[str, Ending]:
        """Return how the runs of the round ended; the next round begins."""
        endings, self._round = self._round, {}
        return endings

    def find(self, run_id: str) -> Ending | None:
        """Return how a run ended last, if that is still known."""
        return self._latest.get(run_id)
