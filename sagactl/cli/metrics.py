"""`sagactl metrics`: what there is in the log, for Prometheus."""

from __future__ import annotations

import typer

from sagactl import __version__
from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import now_ms, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.metrics import list_metrics, render_metrics, write_metric, write_metrics
from sagactl.errors import ExitCode

app = make_app()


@app.command()
def metrics(context: typer.Context) -> int:
    """Print what there is in the log in the text format of Prometheus: runs, dead letters, approvals, recent calls.

    It only reads, and costs the same however long the log is; see `sagactl help telemetry`.

    Examples:
      sagactl metrics

      sagactl metrics -o json
    """
    with open_session(context) as session:
        at_ms = now_ms()
        found = list_metrics(session.app.count(at_ms), now_ms=at_ms, version=__version__)
        if session.output is Output.TEXT:
            write_line(answer_stream(), render_metrics(found))
        elif session.output is Output.JSON:
            write_document(write_metrics(found))
        else:
            for metric in found:
                write_document(write_metric(metric))
        return ExitCode.OK
