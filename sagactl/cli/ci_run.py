"""What a runner of GitHub Actions is told of a run: why it failed, a table of its steps, its id and status.

Nothing here is a reason for a command to fail: what can't be told is said on stderr.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from sagactl import workflow
from sagactl.cli.ci import append, spell_output, write_annotations
from sagactl.cli.session import Session, local_zone, now_ms
from sagactl.cli.views.style import WIDTH_UNLIMITED, Style
from sagactl.errors import SagactlError
from sagactl.secrets.masking import KNOWN

if TYPE_CHECKING:
    from sagactl.cli.views.scene import Scene
    from sagactl.engine.ending import Ending
    from sagactl.engine.settings import Committed

SUMMARY_BYTES_MAX: Final = 262_144
"""What one run adds to the summary of a job at most: a runner takes 1 MiB of a step."""


def tell_run(session: Session, ending: Ending, last: Committed) -> None:
    """Tell the runner, where there is one, what became of a run."""
    if not workflow.is_listening():
        return
    try:
        _tell_run(session, ending, last)
    except (OSError, SagactlError) as error:
        session.say(f"warning: not told to the runner of CI: {session.progress_style.show(str(error))}")


def _tell_run(session: Session, ending: Ending, last: Committed) -> None:
    from sagactl.cli.views.annotations import annotate_run
    from sagactl.cli.views.markdown import render_summary
    from sagactl.cli.views.results import list_results

    scene = make_wide_scene(session, last)
    write_annotations(session.settings, annotate_run(scene, ending), session.app.config.project)
    outputs = {"run_id": last.run_id, "status": scene.summary.status.value}
    append("GITHUB_OUTPUT", "".join(spell_output(name, value) for name, value in outputs.items()))
    if os.environ.get("GITHUB_STEP_SUMMARY"):
        records = (stored.record for stored in session.app.log(read_only=True).read(last.run_id))
        text = render_summary(scene, ending, list_results(last.saga, last.state, records))
        append("GITHUB_STEP_SUMMARY", _cut(text))


def make_wide_scene(session: Session, last: Committed) -> Scene:
    """Return a run to be written outside a terminal."""
    from sagactl.cli.views.scene import Scene
    from sagactl.usecases.select import short_id

    shown = short_id(session.app.log(read_only=True), last.run_id)
    style = Style(width=WIDTH_UNLIMITED, place=session.style.place)
    return Scene(last.saga, last.state, shown, now_ms(), local_zone(), style, is_kept=True)


def _cut(text: str) -> str:
    text = KNOWN.mask(text)
    data = text.encode()
    return text if len(data) <= SUMMARY_BYTES_MAX else data[:SUMMARY_BYTES_MAX].decode(errors="ignore") + "…\n\n"
