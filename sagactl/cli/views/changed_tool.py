"""In what a tool that a run waits for is another than the one that the run has pinned (E16)."""

from __future__ import annotations

from typing import Final

from sagactl.cli.views.layout import Fact
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.text import plural
from sagactl.core.pinned import describe_change
from sagactl.core.summary import Summary

SHOWN_MAX: Final = 8
"""Changes on a screen; the JSON has all that are kept."""


def list_changes(scene: Scene, summary: Summary) -> list[Fact]:
    """Return every change on a line; nothing where the run waits for something else, or for a tool that is gone."""
    changes = () if summary.waiting_for is None else summary.waiting_for.changes
    lines = [describe_change(change) for change in changes[:SHOWN_MAX]]
    if len(changes) > SHOWN_MAX:
        lines.append(f"and {plural(len(changes) - SHOWN_MAX, 'change')} more")
    return [("changed", [scene.style.show(line) for line in lines])] if lines else []
