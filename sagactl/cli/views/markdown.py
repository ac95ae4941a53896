r"""A run as a piece of Markdown, for the page that a runner of CI makes of a job.

All that is foreign is written so that no Markdown, no HTML, no mention and no link comes out of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sagactl.cli.views.annotations import say_headline
from sagactl.cli.views.approvals import list_approval
from sagactl.cli.views.report import render_report
from sagactl.cli.views.text import safe
from sagactl.cli.views.times import show_duration
from sagactl.core.left import find_left
from sagactl.core.records import Direction, RunStatus
from sagactl.secrets.masking import KNOWN

if TYPE_CHECKING:
    from sagactl.cli.views.results import Result
    from sagactl.cli.views.scene import Scene
    from sagactl.engine.ending import Ending

ROWS_MAX: Final = 200
"""Steps and items in the table: those that failed are all among them first."""

CELL_LENGTH_MAX: Final = 300
LEFT_MAX: Final = 20
HINTS_MAX: Final = 4

_SIGNS: Final = re.compile(r"^[-+=]|[\\`*{}\[\]<>#|~&@$]|:(?=\S)|(?<!\w)_|_(?!\w)")
"""What means something to Markdown where it stands; a colon does in links and in emoji."""


def render_summary(scene: Scene, ending: Ending | None, results: Sequence[Result]) -> str:
    """Return the headline, a table of the steps, what is left behind, and what to type next."""
    lines = [f"### {quote(say_headline(scene, ending))}", "", *_lay_table(results, scene), ""]
    lines += [*_list_approvals(scene), *_list_left(scene), *_list_hints(scene, ending)]
    return "\n".join(lines).rstrip() + "\n\n"


def quote(text: str) -> str:
    """Return foreign text, safe, bounded, and as Markdown that shows it as it is."""
    shown = KNOWN.shorten(safe(KNOWN.mask(text)), CELL_LENGTH_MAX, dots="…")
    return _SIGNS.sub(lambda found: f"&#{ord(found[0])};", shown)


def _lay_table(results: Sequence[Result], scene: Scene) -> list[str]:
    shown = _choose(results)
    lines = ["| step | result | time | attempts |", "| --- | --- | ---: | ---: |"]
    for each in shown:
        took = "" if each.took_ms is None else show_duration(each.took_ms)
        attempts = str(each.row.attempts or "")
        symbol = scene.style.symbol(each.mark)
        lines.append(f"| {quote(each.place)} | {symbol} {quote(each.words)} | {took} | {attempts} |")
    more = len(results) - len(shown)
    return [*lines, f"| and {more:,} more | | | |"] if more > 0 else lines


def _choose(results: Sequence[Result]) -> list[Result]:
    """Return the rows that are shown, in their order: if not all can be, then first of all what failed."""
    if len(results) <= ROWS_MAX:
        return list(results)
    ranked = sorted(range(len(results)), key=lambda index: (not results[index].failed, index))
    return [results[index] for index in sorted(ranked[:ROWS_MAX])]


def _list_approvals(scene: Scene) -> list[str]:
    """Return what there is to know before one answers, for each step that waits for a person."""
    lines: list[str] = []
    for (_, step), *facts in (list_approval(scene, step_id) for step_id in scene.state.awaiting):
        told = [(name, [value] if isinstance(value, str) else value) for name, value in facts]
        listed = [f"- {name}: {quote(line)}" for name, values in told for line in values if line]
        lines += [f"To approve: {quote(str(step))}", "", *listed, ""]
    return lines


def _list_left(scene: Scene) -> list[str]:
    left = find_left(scene.saga, scene.state)
    if not left:
        is_back = scene.summary.direction is Direction.COMPENSATION or scene.summary.status is RunStatus.ROLLED_BACK
        return ["Left behind: nothing.", ""] if is_back else []
    lines = ["Left behind:", "", *(f"- {quote(each.place)}: {quote(each.reason)}" for each in left[:LEFT_MAX])]
    more = len(left) - LEFT_MAX
    return [*lines, f"- and {more:,} more", ""] if more > 0 else [*lines, ""]


def _list_hints(scene: Scene, ending: Ending | None) -> list[str]:
    """Return the commands of the report; they hold nothing foreign but names that the loader has checked."""
    lines = render_report(scene, ending).splitlines()
    hints = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")][:HINTS_MAX]
    return ["```sh", *hints, "```", ""] if hints else []
