"""How driving a run came to its end, for whoever asked for it."""

from __future__ import annotations

from enum import StrEnum

from sagactl.core.canonical import Json
from sagactl.core.operators import A_RESUME_DOES, AN_UNPAUSE_DOES
from sagactl.core.records import Failure, NotUndone, RunStatus
from sagactl.core.summary import Summary
from sagactl.dataclass import dataclass
from sagactl.errors import RefusedError, SagactlError


class Why(StrEnum):
    """Why a driver let go of a run."""

    AT_REST = "at_rest"
    WAITING = "waiting"
    MISSING_TOOL = "missing_tool"
    MISSING_SECRET = "missing_secret"  # noqa: S105 - a word, no secret
    INTERRUPTED = "interrupted"
    LEASE_LOST = "lease_lost"
    BROKEN = "broken"
    EXISTING = "existing"
    """The run was there already, under the same key: this is what its log says, and nothing was called."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of a run while it was driven here."""

    run_id: str
    summary: Summary
    why: Why
    detail: str | None = None
    left_in_doubt: tuple[str, ...] = ()
    error: SagactlError | None = None
    """What was refused, or, where `why` is `BROKEN`, what a bug of ours made impossible; the run is as its log says."""

    @property
    def status(self) -> RunStatus:
        """Return where the run stands."""
        return self.summary.status

    @property
    def output(self) -> Json:
        """Return the saga's output; None until the run has succeeded."""
        return self.summary.output

    @property
    def failure(self) -> Failure | None:
        """Return the first error of the run, which no later one overwrites."""
        return self.summary.failure

    @property
    def not_undone(self) -> tuple[NotUndone, ...]:
        """Return what a run that was ended has left behind, each with its reason."""
        return self.summary.not_undone


def make_refusal(run_id: str, detail: str | None) -> RefusedError:
    """Return the error of a request that the run's state doesn't allow, with what helps: a look, or what goes on."""
    goes_on = {A_RESUME_DOES: "resume", AN_UNPAUSE_DOES: "unpause"}
    verb = next((each for words, each in goes_on.items() if (detail or "").endswith(words)), "show")
    return RefusedError(f"run {run_id}: {detail}", hint=f"sagactl {verb} {run_id}")
