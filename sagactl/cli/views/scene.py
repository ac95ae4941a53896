"""One run, and how it is looked at: what the views of a run are given."""

from __future__ import annotations

from datetime import tzinfo

from sagactl.cli.views.style import Style
from sagactl.cli.views.times import show_due, show_moment
from sagactl.core.records import Cause, Holder, RunCreated
from sagactl.core.saga import Saga
from sagactl.core.state import RunState
from sagactl.core.summary import Summary, summarize
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Scene:
    """A run and its viewer; `short_id` is what is shown and typed instead of the whole id.

    What `is_kept` is read later and elsewhere, on a page of CI, so its times say their date and zone.
    `holder` has the run; unless `is_driven`, that process is gone. `is_here` says that its pid means it here as well.
    """

    saga: Saga
    state: RunState
    short_id: str
    now_ms: int
    tz: tzinfo
    style: Style
    holder: Holder | None = None
    is_driven: bool = True
    is_here: bool = False
    is_kept: bool = False

    @property
    def created(self) -> RunCreated:
        """Return the first record of the run."""
        assert self.state.created is not None, "a run begins with its first record"
        return self.state.created

    @property
    def summary(self) -> Summary:
        """Return where the run stands."""
        return summarize(self.saga, self.state)

    @property
    def is_left(self) -> bool:
        """Tell whether nobody drives the run."""
        return self.holder is None or not self.is_driven

    @property
    def is_hanging(self) -> bool:
        """Tell whether somebody drives the run who can't end a call of it: only the end of that process helps."""
        return self.summary.cause is Cause.CANNOT_END and not self.is_left

    def show_due(self, at_ms: int) -> str:
        """Return when something is due, for whoever reads it."""
        return show_moment(at_ms, self.tz) if self.is_kept else show_due(at_ms, self.now_ms, self.tz)

    @property
    def title(self) -> str:
        """Return saga and run, as headlines begin."""
        return f"{self.style.show(self.saga.name)} {self.short_id}"
