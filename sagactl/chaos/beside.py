"""What an earlier run has made: experiments begin beside it, so that an undo that takes too much has something to take.

A second run with the same input needn't do what the first did: it may find everything done already, or take the same
name. Then an undo that takes that away does what it is for, and nothing could be said of it. So experiments are made
beside an earlier run only where the actions of both have changed the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sagactl.chaos.observed import Close, Observed, Sight
from sagactl.chaos.traits import Growth, is_name
from sagactl.core.records import Direction, Operation, RunStatus
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Earlier:
    """A run that succeeded: the folder that it has left to its tools, and its id, which names of things may bear."""

    world: Path
    run_id: str


def act_alike(first: Observed, second: Observed) -> bool:
    """Tell whether each action has added as much in both runs, and changed the same things in place."""
    has_succeeded = second.close is Close.REST and second.status is RunStatus.SUCCEEDED
    return has_succeeded and _list_deeds(first) == _list_deeds(second)


def _list_deeds(observed: Observed) -> Mapping[Operation | None, tuple[Growth, str]]:
    """Return what each action has done; names of files say nothing, as they may be drawn."""
    return {
        seen.operation: ({trait: much for trait, much in seen.growth.items() if not is_name(trait)}, seen.digest)
        for seen in observed.trail
        if seen.sight is Sight.GROWTH and seen.operation and seen.operation.direction is Direction.ACTION
    }
