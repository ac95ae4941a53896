"""`sagactl tools`: what steps can call."""

from __future__ import annotations

from typing import Annotated

import typer

from sagactl.app import Project, guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.tools import BrokenRow, RefusedRow, ToolRow, render_tool, render_tools, write_tool, write_tools
from sagactl.errors import ExitCode

app = make_app()


@app.command()
def tools(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="TOOL", help="One tool, in full.")] = None,
) -> int:
    """List what steps can call, or show one tool with its arguments.

    Examples:
      sagactl tools

      sagactl tools billing.charge
    """
    guard_stdout()
    with open_session(context) as session:
        rows, broken = _collect(session.app)
        if name is not None:
            session.app.registry.tool(name)
            row = next(each for each in rows if each.facts.name == name)
            text, document = render_tool(row, rows, style=session.style), write_tool(row)
        else:
            plugins = session.app.registry.plugins
            refused = [RefusedRow(each.name, each.origin, each.version) for each in plugins if not each.loaded]
            text = render_tools(rows, broken, refused, style=session.style)
            document = write_tools(rows, broken, refused)
        if session.output is Output.TEXT:
            write_line(answer_stream(), text)
        else:
            write_document(document)
        return ExitCode.OK


def _collect(app: Project) -> tuple[list[ToolRow], list[BrokenRow]]:
    registry = app.registry
    found = [registry.tool(name) for name in registry.names()]
    rows = [
        ToolRow(
            each.facts,
            each.description,
            each.place.file,
            each.place.line,
            isolated_by=None if each.isolation is None else each.isolation.by,
        )
        for each in found
    ]
    broken = [
        BrokenRow(each.name, each.file, each.line, each.message, tuple(each.tools), each.excerpt)
        for each in registry.broken
    ]
    return rows, broken
