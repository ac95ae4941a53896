"""`sagactl tools pin`: write down what servers say of their tools."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.tools_pin import PinRow, render_pins, write_pins
from sagactl.errors import ExitCode, NotFoundError, UsageError

app = make_app()


@app.command()
def pin(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="Servers; all in [mcp].")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only compare; exit 1 where something differs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> int:
    """Write down what MCP servers say of their tools, into plugins/mcp.lock.json.

    Sagas can call a server's tools once they are pinned. A run waits where a server says something else by then:
    look at the difference, and pin anew where it is right. The file belongs under version control.

    Examples:
      sagactl tools pin

      sagactl tools pin --check -o json

      sagactl tools pin --yes
    """
    guard_stdout()
    with open_session(context) as session:
        rows, write = _look(session, names or [])
        differing = [row for row in rows if row.status not in {"same", "unreachable"}]
        unreached = any(row.status == "unreachable" for row in rows)
        if check or not differing:
            _show(session, rows, written=None)
            return ExitCode.ERROR if unreached or differing else ExitCode.OK
        if any(row.status != "new" for row in differing) and not yes:
            _confirm(session, rows, names or [])
        _show(session, rows, written=write())
        return ExitCode.ERROR if unreached else ExitCode.OK


def _look(session: Session, names: list[str]) -> tuple[list[PinRow], Callable[[], str]]:
    """Return what the servers say now beside what is pinned, and what writes it down and says where."""
    servers = session.app.toolset.servers
    if servers is None:
        if names:
            raise NotFoundError(f"no server {names[0]} in [mcp]", code="no-such-server", hint="sagactl help mcp")
        return [], str
    looks = servers.look(names)
    rows = [
        PinRow(
            name=look.name,
            status=look.status,
            version="" if look.present is None else look.present.version,
            tools=0 if look.present is None else len(look.present.tools),
            changes=tuple((tool, change) for tool, changes in look.changes.items() for change in changes),
            error=look.error,
            needs_secret=look.needs_secret,
        )
        for look in looks
    ]
    return rows, lambda: str(servers.pin(looks))


def _show(session: Session, rows: list[PinRow], *, written: str | None) -> None:
    if session.output is Output.TEXT:
        write_line(answer_stream(), render_pins(rows, written=written, style=session.style))
    else:
        write_document(write_pins(rows, written=written))


def _confirm(session: Session, rows: list[PinRow], names: list[str]) -> None:
    """Ask before a pin is replaced, with the difference on the screen."""
    command = shlex.join(["sagactl", "tools", "pin", *names, "--yes"])
    if session.settings.no_input or not (sys.stdin.isatty() and sys.stderr.isatty()):
        message = "what servers say of their tools isn't what is pinned, and nobody can be asked; --check shows it"
        raise UsageError(message, code="confirmation-needed", hint=command)
    write_line(sys.stderr, render_pins(rows, written=None, style=session.progress_style))
    sys.stderr.write("pin what is there now? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("not confirmed: nothing was written", code="confirmation-needed", hint=command)
