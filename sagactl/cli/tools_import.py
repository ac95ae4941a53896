"""`sagactl tools import openapi FILE`: declarations of tools, made of a description."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.tools_import import LeftRow, render_import, write_import
from sagactl.errors import ExitCode, RefusedError

app = make_app()


class Format(StrEnum):
    """What is read."""

    OPENAPI = "openapi"


@app.command("import")
def import_tools(
    context: typer.Context,
    form: Annotated[Format, typer.Argument(metavar="FORMAT", help="openapi: OpenAPI 3.0 or 3.1, YAML or JSON.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The description; - is stdin.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write here, not on the screen.")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="OP", help="An operation, by its id; may be repeated.")
    ] = None,
    server: Annotated[str | None, typer.Option("--server", metavar="URL", help="Where requests go.")] = None,
) -> int:
    """Make HTTP tools of a description in OpenAPI; nothing is called or fetched.

    Each operation becomes a tool. What undoes it no description says: fill it in where a comment asks for it. What
    can't be taken over is listed.

    Examples:
      sagactl tools import openapi shop.json

      sagactl tools import openapi shop.json --only createOrder --out plugins/shop.yaml

      curl -fsS https://shop.example.com/openapi.json | sagactl tools import openapi -
    """
    guard_stdout()
    del form  # there is one
    with open_session(context) as session:
        made = session.app.toolset.http.import_openapi(file, only=tuple(only or ()), server=server)
        left = [LeftRow(each.where, each.why) for each in made.left_out]
        if out is not None:
            _write(out, made.text)
        if session.output is not Output.TEXT:
            write_document(write_import(made.tools, left, made.notes, text=made.text, out=out))
        elif out is not None:
            write_line(answer_stream(), render_import(made.tools, left, made.notes, out=out, style=session.style))
        else:
            write_line(answer_stream(), made.text.rstrip())
            if session.settings.quiet == 0:
                told = render_import(made.tools, left, made.notes, out=None, style=session.progress_style)
                write_line(sys.stderr, told)
        return ExitCode.OK


def _write(out: Path, text: str) -> None:
    """Write the file; raises RefusedError where there is one: what was filled in by hand can't be made again."""
    try:
        with out.open("x", encoding="utf-8") as made:
            made.write(text)
    except FileExistsError:
        raise RefusedError(f"{out} is there already", code="file-exists", hint="give --out another name") from None
    except OSError as error:
        raise RefusedError(f"{out} can't be written: {error.strerror}", code="not-written") from None
