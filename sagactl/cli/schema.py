"""`sagactl schema`: the JSON Schema of saga files, and of declarations of tools, for editors."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Final

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.spelling import spell
from sagactl.core.canonical import Json
from sagactl.errors import ExitCode, UsageError

SCHEMA_SCHEMA: Final = "sagactl.schema/1"

app = make_app()


@app.command()
def schema(
    context: typer.Context,
    tools: Annotated[bool, typer.Option("--tools", help="With the tools that are there, and their arguments.")] = False,
    write: Annotated[
        bool, typer.Option("--write", help="With tools, into .sagactl/schema.json of the project.")
    ] = False,
    declarations: Annotated[
        bool, typer.Option("--declarations", help="Of files that declare HTTP tools, instead.")
    ] = False,
) -> int:
    """Print the JSON Schema of saga files, or write it where editors find it.

    A saga file names it in its first line: # yaml-language-server: $schema=../.sagactl/schema.json

    Examples:
      sagactl schema > saga.schema.json

      sagactl schema --tools > saga.schema.json

      sagactl schema --write

      sagactl schema --declarations > tools.schema.json
    """
    guard_stdout()
    if declarations and (tools or write):
        raise UsageError("--declarations is another schema than that of sagas with tools", hint="sagactl schema --help")
    if not (tools or write):
        place = ("tools", "http") if declarations else ("spec",)
        text = files("sagactl").joinpath(*place, "schema.json").read_text(encoding="utf-8")
        write_line(answer_stream(), text.rstrip())
        return ExitCode.OK
    with open_session(context) as session:
        if write:
            return _write(session)
        write_line(answer_stream(), spell(_make(session), indent=2))
        return ExitCode.OK


def _make(session: Session) -> dict[str, Json]:
    from sagactl.spec.file_schema import read_file_schema
    from sagactl.spec.tool_schema import add_tools

    return add_tools(read_file_schema(), session.app.tool_facts)


def _write(session: Session) -> int:
    path = session.app.write_state("schema.json", spell(_make(session)) + "\n")
    count = len(session.app.tool_facts)
    if session.output is Output.TEXT:
        write_line(answer_stream(), f"{path} has the {count:,} tools that are there")
    else:
        write_document({"schema": SCHEMA_SCHEMA, "path": str(path), "tools": count, "error": None})
    return ExitCode.OK
