"""`sagactl dlq`: dead letters, what waits for a person, and how a person settles it (rule E23)."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.follow import make_scene
from sagactl.cli.operate import ask
from sagactl.cli.options import Output, make_app
from sagactl.cli.select import select_run, short_ids
from sagactl.cli.session import Session, now_ms, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.dlq import render_letter, render_letters
from sagactl.cli.views.documents import write_letter, write_letters
from sagactl.core.canonical import Json, NotJsonError, parse
from sagactl.core.evolve import replay
from sagactl.core.records import Direction, Resolution, Verb
from sagactl.driving import make_request
from sagactl.errors import ExitCode, InvalidError, NotFoundError, RefusedError, UsageError
from sagactl.log.base import DeadLetter, RunRow

app = make_app("Dead letters: what waits for a person.")

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's id or a prefix of it.")]
StepArgument = Annotated[
    str | None, typer.Argument(metavar="STEP", help="The step, or step[3] for an item; may be left out if only one.")
]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Why; recorded with your name.")]
NoResumeOption = Annotated[bool, typer.Option("--no-resume", help="Only record it; don't carry the run on.")]

_STEP = re.compile(r"([a-z][a-z0-9_]*)(?:\[(\d{1,6})\])?", re.ASCII)


@app.command("list")
def list_letters(
    context: typer.Context,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Only of this run.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are settled.")] = False,
) -> int:
    """List dead letters, oldest first.

    Examples:
      sagactl dlq list
    """
    with open_session(context) as session:
        log = session.app.log(read_only=True)
        run_id = None if run is None else select_run(log, run).run_id
        letters = log.dead_letters(run_id=run_id, is_open=not everything)
        if session.output is Output.TEXT:
            shown = short_ids(log, [letter.run_id for letter in letters])
            text = render_letters(letters, short_ids=shown, now_ms=now_ms(), style=session.style)
            write_line(answer_stream(), text)
        else:
            write_document(write_letters(letters))
        return ExitCode.OK


@app.command()
def show(context: typer.Context, run: RunArgument, step: StepArgument = None) -> int:
    """Show a dead letter: every attempt, the key, the arguments, and the commands that settle it.

    Examples:
      sagactl dlq show 7kq2m9 deposit
    """
    with open_session(context) as session:
        log = session.app.log(read_only=True)
        row = select_run(log, run)
        letter = _find(log.dead_letters(run_id=row.run_id), row, step)
        records = list(log.read(row.run_id))
        saga = session.app.saga_of(log.row(row.run_id))  # after the records: a later definition fits them
        state = replay(saga, (stored.record for stored in records))
        if session.output is Output.TEXT:
            write_line(answer_stream(), render_letter(make_scene(session, saga, state), letter, records))
        else:
            write_document(write_letter(saga, state, letter, records))
        return ExitCode.OK


@app.command()
def retry(
    context: typer.Context,
    run: RunArgument,
    step: StepArgument = None,
    reason: ReasonOption = None,
    no_resume: NoResumeOption = False,
) -> int:
    """Try again with a fresh budget, the same key and the same arguments; the run goes on.

    Examples:
      sagactl dlq retry 7kq2m9 deposit --reason "gateway is back"
    """
    guard_stdout()
    with open_session(context) as session:
        row, letter = _select(session, run, step)
        request = make_request(Verb.RETRY, reason=reason, operation=letter.operation)
        return ask(session, row, request, only_record=no_resume)


@app.command()
def resolve(
    context: typer.Context,
    run: RunArgument,
    step: StepArgument = None,
    done: Annotated[bool, typer.Option("--done", help="It happened, or was undone by hand.")] = False,
    not_done: Annotated[bool, typer.Option("--not-done", help="It did not happen.")] = False,
    skip: Annotated[bool, typer.Option("--skip", help="Go on without it; behind the pivot only.")] = False,
    abandon: Annotated[bool, typer.Option("--abandon", help="Leave its effect; an undo only.")] = False,
    output: Annotated[
        str | None, typer.Option("--output", metavar="JSON", help="With --done of an action: its output.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; recorded with your name.")] = "",
    no_resume: NoResumeOption = False,
) -> int:
    """Settle a dead letter by what a person knows; the run goes on.

    Examples:
      sagactl dlq resolve 7kq2m9 deposit --not-done --reason "no charge at the bank"

      sagactl dlq resolve 7kq2m9 servers[2] --abandon --reason "vm is gone"
    """
    guard_stdout()
    resolution = _resolution_of(done=done, not_done=not_done, skip=skip, abandon=abandon)
    if not reason:
        raise UsageError("a resolution takes a --reason", code="reason-needed")
    with open_session(context) as session:
        row, letter = _select(session, run, step)
        value = _check_output(session, row, letter, resolution, output)
        request = make_request(
            Verb.RESOLVE, reason=reason, operation=letter.operation, resolution=resolution, output=value
        )
        return ask(session, row, request, only_record=no_resume)


def _resolution_of(*, done: bool, not_done: bool, skip: bool, abandon: bool) -> Resolution:
    given = {
        Resolution.DONE: done,
        Resolution.NOT_DONE: not_done,
        Resolution.SKIP: skip,
        Resolution.ABANDON: abandon,
    }
    chosen = [resolution for resolution, is_given in given.items() if is_given]
    if len(chosen) != 1:
        raise UsageError("say how: one of --done, --not-done, --skip, --abandon", code="usage")
    return chosen[0]


def _check_output(session: Session, row: RunRow, letter: DeadLetter, resolution: Resolution, text: str | None) -> Json:
    """E23: what a person says an action has returned must fit the tool's output schema."""
    if resolution is not Resolution.DONE or letter.operation.direction is not Direction.ACTION:
        if text is not None:
            raise UsageError("--output goes with --done of an action", code="usage")
        return None
    saga = session.app.saga_of(row)
    tool = saga.tools[saga.by_id[letter.operation.step].action.tool]
    try:
        output = None if text is None else parse(text)
    except NotJsonError as error:
        raise InvalidError(f"--output: {error}", code="invalid-input") from None
    objection = session.app.toolbox.check_output(tool, output)
    if objection is not None:
        raise InvalidError(f"--output doesn't fit what {tool.name} returns: {objection}", code="invalid-input")
    return output


def _select(session: Session, run: str, step: str | None) -> tuple[RunRow, DeadLetter]:
    log = session.app.log()
    row = select_run(log, run, changes=True)
    return row, _find(log.dead_letters(run_id=row.run_id), row, step)


def _find(letters: list[DeadLetter], row: RunRow, step: str | None) -> DeadLetter:
    if not letters:
        raise RefusedError(f"run {row.run_id} has no open dead letter", hint=f"sagactl show {row.run_id}")
    if step is None:
        if len(letters) == 1:
            return letters[0]
        names = ", ".join(_name(letter) for letter in letters)
        raise UsageError(f"run {row.run_id} has several dead letters: {names}", hint="name the step")
    match = _STEP.fullmatch(step)
    for letter in letters:
        item = letter.operation.item
        if match and letter.operation.step == match[1] and item == (int(match[2]) if match[2] else None):
            return letter
    names = ", ".join(_name(letter) for letter in letters)
    raise NotFoundError(f"no dead letter of {step} in run {row.run_id}", code="no-such-step", hint=f"open: {names}")


def _name(letter: DeadLetter) -> str:
    operation = letter.operation
    return operation.step if operation.item is None else f"{operation.step}[{operation.item}]"
