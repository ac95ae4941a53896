"""`sagactl verify`: recompute the hash chain of the log, and compare it with heads that were kept elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import click
import typer
from typer.core import TyperCommand

from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.verify import render_verification
from sagactl.errors import ExitCode, NotFoundError, UsageError
from sagactl.log.base import Log, Verification
from sagactl.usecases.documents import write_heads, write_verification
from sagactl.usecases.select import select_run, short_ids

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
PRINT: Final = "print"
_VALUES: Final = ("@", "sagactl-head-")
"""How a value of `--head` begins; what doesn't begin so belongs to the next argument."""

app = make_app()


class _HeadCommand(TyperCommand):
    """Takes `--head` with and without a value: alone it prints, with a value it compares."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give each `--head` that has no value the one that means printing."""
        words: list[str] = []
        for place, word in enumerate(args):
            after = args[place + 1] if place + 1 < len(args) else ""
            has_value = after.startswith(_VALUES)
            words += ["--head", PRINT] if word == "--head" and not has_value else [word]
        return super().parse_args(ctx, words)


@app.command(cls=_HeadCommand)
def verify(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="One run; all by default.")] = None,
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="[HEAD|@FILE]",
            help="Print the heads, to be kept elsewhere; with one, or a file of them, compare the log with it.",
        ),
    ] = None,
) -> int:
    """Recompute every hash and compare rows with records; exit 1 where anything is wrong.

    A chain can't tell that its end was cut off, that it was written anew, or that yesterday's copy was put back. Heads
    that were kept elsewhere can: see `sagactl help storage`.

    Examples:
      sagactl verify

      sagactl verify 7kq2m9 -o json

      sagactl verify --head

      sagactl verify --head @heads
    """
    with open_session(context) as session:
        log = session.app.log(read_only=True)
        run_id = None if run is None else select_run(log, run).run_id
        if head == PRINT:
            return _print_heads(session, log, run_id)
        if head is None:
            return _report(session, log, log.verify(run_id), None)
        from sagactl.heads import compare_heads

        found, count = compare_heads(session.app.config, log, run_id, _read_kept(head))
        return _report(session, log, found, count)


def _print_heads(session: Session, log: Log, run_id: str | None) -> int:
    from sagactl.heads import export_heads

    heads = [str(head) for head in export_heads(session.app.config, log, run_id)]
    if session.output is Output.TEXT:
        write_line(answer_stream(), "\n".join(heads))
    else:
        write_document(write_heads(log.store_id, heads))
    return ExitCode.OK


def _report(session: Session, log: Log, found: Verification, kept: int | None) -> int:
    if session.output is Output.TEXT:
        shown = short_ids(log, [each.run_id for each in found.findings])
        write_line(answer_stream(), render_verification(found, short_ids=shown, style=session.style, kept=kept))
    else:
        write_document(write_verification(found, kept=kept))
    return ExitCode.ERROR if found.findings else ExitCode.OK


def _read_kept(value: str) -> str:
    """Return the heads that are meant: the word itself, a file, or what comes on stdin."""
    if not value.startswith("@"):
        return value
    name = value[1:]
    try:
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as stream:
            data = stream.read(KEPT_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFoundError(f"no file {name}", code="no-such-file", hint="sagactl verify --head") from None
    except OSError as error:
        raise UsageError(f"{name} can't be read: {error.strerror}", code="unreadable") from None
    return data.decode("utf-8", "replace")
