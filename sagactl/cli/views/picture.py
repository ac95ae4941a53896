"""The runs that a live display shows, and which of the two pictures it draws of them."""

from __future__ import annotations

from sagactl.cli.views.ids import PREFIX_LENGTH_MIN
from sagactl.cli.views.live import View, render_live
from sagactl.cli.views.live_runs import render_live_runs
from sagactl.cli.views.timeline import Watched
from sagactl.core.summary import summarize
from sagactl.engine.settings import Committed


class Picture:
    """All runs that were seen so far, in the order in which they came."""

    def __init__(self) -> None:
        self._runs: dict[str, Watched] = {}

    def feed(self, committed: Committed) -> None:
        """Take a batch in; its state belongs to the driver and is not looked at."""
        found = self._runs.get(committed.run_id)
        if found is None:
            short_id = committed.run_id[:PREFIX_LENGTH_MIN]
            found = self._runs[committed.run_id] = Watched(committed.run_id, short_id, committed.saga)
        found.feed(committed.first_seq, committed.records)

    def render(self, view: View, began_ms: int, *, is_let_go: bool = False) -> list[str]:
        """Return the picture: of one run its steps, of several a line each; *is_let_go*: nobody drives them now."""
        runs = list(self._runs.values())
        if not runs:
            return []
        if is_let_go:
            for each in runs:
                each.is_let_go = not summarize(each.saga, each.state).is_at_rest
        if len(runs) == 1:
            return render_live(runs[0], view)
        return render_live_runs(runs, view, began_ms=began_ms)
