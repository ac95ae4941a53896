"""What is said when Ctrl-C comes: what is waited for, how long at most, and what a second one would do (E17)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sagactl.cli.views.style import Hue, Style
from sagactl.cli.views.text import plural, wrap
from sagactl.cli.views.times import show_rough
from sagactl.cli.views.words import name_operation
from sagactl.core.records import Operation

NAMED_MAX: Final = 4
"""Calls that are named one by one."""


def say_stopping(calls: Sequence[tuple[Operation, int]], style: Style) -> list[str]:
    """Return the lines; each call comes with the milliseconds for which it is waited for at most."""
    if not calls:
        return [style.paint("  stopping: no call is in flight", Hue.ODD)]
    named = [f"{name_operation(operation)} up to {show_rough(_round_up(left_ms))}" for operation, left_ms in calls]
    more = f", and {len(calls) - NAMED_MAX:,} more" if len(calls) > NAMED_MAX else ""
    listed = ", ".join(named[:NAMED_MAX]) + more
    text = style.show(f"stopping: {plural(len(calls), 'call')} in flight ({listed})")
    their = "its outcome" if len(calls) == 1 else "their outcome"
    again = f"press Ctrl-C again to leave now; {their} will then be in doubt"
    return [
        *(style.paint(f"  {line}", Hue.ODD) for line in wrap(text, style.columns - 2)),
        *(f"  {line}" for line in wrap(again, style.columns - 2)),
    ]


def _round_up(duration_ms: int) -> int:
    return -(-duration_ms // 1000) * 1000
