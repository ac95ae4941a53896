"""`sagactl sandbox`: see what the sandbox plugins have done, or begin anew."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import typer

from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.sandbox import render_sandbox, write_sandbox
from sagactl.errors import ExitCode

SANDBOX_RESET_SCHEMA: Final = "sagactl.sandbox-reset/1"

app = make_app("The sandbox: the pretended vendors behind the plugins that ship.")


@app.command()
def show(context: typer.Context) -> int:
    """Show what the pretended vendors hold, and every effect in order.

    Examples:
      sagactl sandbox show
    """
    from sagactl.sandbox.database import sandbox_path
    from sagactl.sandbox.show import read_sandbox

    with open_session(context) as session:
        state = read_sandbox(sandbox_path(session.app.config.project))
        systems = {name: [asdict(each) for each in objects] for name, objects in state.systems.items()}
        ledger = [asdict(entry) for entry in state.ledger]
        if session.output is Output.TEXT:
            write_line(answer_stream(), render_sandbox(systems, ledger, style=session.style))
        else:
            write_document(write_sandbox(systems, ledger))
        return ExitCode.OK


@app.command()
def reset(context: typer.Context) -> int:
    """Forget all that the pretended vendors hold.

    Examples:
      sagactl sandbox reset
    """
    from sagactl.sandbox.database import sandbox_path
    from sagactl.sandbox.show import reset_sandbox

    with open_session(context) as session:
        path = sandbox_path(session.app.config.project)
        reset_sandbox(path)
        if session.output is Output.TEXT:
            write_line(answer_stream(), f"the sandbox {path} is empty")
        else:
            write_document({"schema": SANDBOX_RESET_SCHEMA, "path": str(path), "error": None})
        return ExitCode.OK
