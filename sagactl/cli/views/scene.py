"""One run, and how it is looked at: what the views of a run are given."""

from __future__ import annotations

from datetime import tzinfo

from sagactl.cli.views.style import Style
from sagactl.core.records import RunCreated
from sagactl.core.saga import Saga
from sagactl.core.state import RunState
from sagactl.core.summary import Summary, summarize
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Scene:
    """A run and its viewer; `short_id` is what is shown and typed instead of the whole id."""

    saga: Saga
    state: RunState
    short_id: str
    now_ms: int
    tz: tzinfo
    style: Style

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
    def title(self) -> str:
        """Return saga and run, as headlines begin."""
        return f"{self.style.show(self.saga.name)} {self.short_id}"
