"""`sagactl doctor`: a line for each check, and the report for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sagactl.cli.views.layout import INDENT, headline, join_blocks, list_hints
from sagactl.cli.views.style import Hue, Mark, Style
from sagactl.cli.views.text import pad, plural, width_of, wrap
from sagactl.core.canonical import Json
from sagactl.doctor.check import Check, Level
from sagactl.secrets.masking import KNOWN
from sagactl.usecases.documents import Document

DOCTOR_SCHEMA: Final = "sagactl.doctor/1"

_HUES: Final = {Level.OK: Hue.GOOD, Level.WARN: Hue.ODD, Level.FAIL: Hue.BAD}
_LEVEL_COLUMNS: Final = 4


def render_checks(checks: Sequence[Check], versions: Mapping[str, str], style: Style) -> str:
    """Return a line for each check, what it comes to, and the hints of those that found something."""
    columns = max((len(check.name) for check in checks), default=0)
    lines = [line for check in checks for line in _lay(check, columns, style)]
    found = [check for check in checks if check.level is not Level.OK]
    failed = sum(check.level is Level.FAIL for check in checks)
    if not found:
        verdict = headline(Mark.DONE, f"{plural(len(checks), 'check')}, nothing to mend", style)
    else:
        mark = Mark.FAILED if failed else Mark.STUCK
        verdict = headline(mark, f"{plural(failed, 'failure')}, {plural(len(found) - failed, 'warning')}", style)
    top = f"sagactl {versions['sagactl']} on {style.show(versions['system'])}"
    hints = [style.show(check.hint) for check in found if check.hint]
    return join_blocks(wrap(top, style.columns), lines, verdict, list_hints(hints, style))


def _lay(check: Check, columns: int, style: Style) -> list[str]:
    head = f"{pad(check.level.value, _LEVEL_COLUMNS)}  {pad(check.name, columns)}  "
    margin = " " * (len(INDENT) + width_of(head))
    first, *others = wrap(style.show(check.text), style.columns - len(margin))
    level = style.paint(pad(check.level.value, _LEVEL_COLUMNS), _HUES[check.level])
    return [f"{INDENT}{level}{head[_LEVEL_COLUMNS:]}{first}", *(margin + other for other in others)]


def write_checks(checks: Sequence[Check], versions: Mapping[str, str]) -> Document:
    """Return the document of the checks."""
    return {
        "schema": DOCTOR_SCHEMA,
        "ok": all(check.level is not Level.FAIL for check in checks),
        "versions": dict(versions),
        "items": [
            {"name": each.name, "level": each.level.value, "text": each.text, "hint": each.hint} for each in checks
        ],
        "total": len(checks),
        "error": None,
    }


def mask_paths(value: Json, project: Path) -> Json:
    """Return a document for others: the project's folder and the home folder have no names in it, secrets neither."""
    match value:
        case str():
            text = KNOWN.mask(value)
            for path, name in ((project.resolve(), "PROJECT"), (Path.home(), "~")):
                text = text.replace(str(path), name) if str(path) != "/" else text
            return text
        case dict():
            return {key: mask_paths(member, project) for key, member in value.items()}
        case list():
            return [mask_paths(member, project) for member in value]
        case _:
            return value
