"""`sagactl dlq`: dead letters, what waits for a person, and how a person settles it (rule E23)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from sagactl.app import guard_stdout
from sagactl.cli.ages import read_moment_ms
from sagactl.cli.answer import write_document
from sagactl.cli.follow import make_scene
from sagactl.cli.operate import ask
from sagactl.cli.options import NoResumeOption, Output, ReasonOption, RunArgument, make_app
from sagactl.cli.session import Session, now_ms, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.commands import list_decidable
from sagactl.cli.views.dlq import Decided, render_letter, render_letters, write_whole_letter
from sagactl.cli.views.scene import Scene
from sagactl.core.canonical import Json, NotJsonError, parse
from sagactl.core.evolve import replay
from sagactl.core.records import Direction, Resolution, Verb
from sagactl.errors import ExitCode, InvalidError, UsageError
from sagactl.log.base import DeadLetter, RunRow, StoredRecord
from sagactl.requests import make_request
from sagactl.usecases.documents import write_letter_row, write_letters
from sagactl.usecases.foreseeing import survey
from sagactl.usecases.letters import check_output, find_letter, find_matter
from sagactl.usecases.select import select_run, short_ids

LETTERS_SHOWN: Final = 20
"""Dead letters that are listed unless more are asked for."""

app = make_app("Dead letters: what waits for a person.")

StepArgument = Annotated[
    str | None, typer.Argument(metavar="STEP", help="The step, or step[3] for an item; may be left out if only one.")
]


@app.command("list")
def list_letters(
    context: typer.Context,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Only of this run.")] = None,
    saga: Annotated[str | None, typer.Option("--saga", help="Only of runs of this saga.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="Open since then: 2h, 3d, or a date.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many; 0 for all.")] = LETTERS_SHOWN,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are settled.")] = False,
) -> int:
    """List dead letters, oldest first.

    Examples:
      sagactl dlq list

      sagactl dlq list --saga onboarding --since 2d -o json
    """
    since_ms = None if since is None else read_moment_ms(since)
    with open_session(context) as session:
        log = session.app.log(read_only=True)
        run_id = None if run is None else select_run(log, run).run_id
        letters = [
            letter
            for letter in log.dead_letters(run_id=run_id, is_open=not everything)
            if saga in {None, letter.saga} and (since_ms is None or letter.opened_at_ms >= since_ms)
        ]
        shown = letters[:limit] if limit else letters
        is_narrowed = any(each is not None for each in (run, saga, since))
        _write_letters(session, shown, len(letters), is_narrowed=is_narrowed)
        return ExitCode.OK


def _write_letters(session: Session, letters: list[DeadLetter], total: int, *, is_narrowed: bool) -> None:
    if session.output is Output.JSON:
        write_document(write_letters(letters, total))
    elif session.output is Output.JSONL:
        for letter in letters:
            write_document(write_letter_row(letter))
    else:
        shown = short_ids(session.app.log(read_only=True), [letter.run_id for letter in letters]) if letters else {}
        text = render_letters(
            letters, short_ids=shown, now_ms=now_ms(), style=session.style, total=total, is_narrowed=is_narrowed
        )
        write_line(answer_stream(), text)


@app.command()
def show(context: typer.Context, run: RunArgument, step: StepArgument = None) -> int:
    """Show a dead letter: every attempt, the key, the arguments, and the commands that settle it.

    Examples:
      sagactl dlq show 7kq2m9

      sagactl dlq show 7kq2m9 deposit -o json
    """
    with open_session(context) as session:
        log = session.app.log(read_only=True)
        row = select_run(log, run)
        letter = find_letter(log, row, step)
        records = list(log.read(row.run_id))
        saga = session.app.saga_of(log.row(row.run_id))  # after the records: a later definition fits them
        state = replay(saga, (stored.record for stored in records))
        scene = make_scene(session, saga, state)
        printed = sum(each.operation in {letter.operation, letter.operation.other} for each in log.captured(row.run_id))
        decided = _decide(session, scene, letter, records)
        if session.output is Output.TEXT:
            write_line(answer_stream(), render_letter(scene, letter, records, decided, printed=printed))
        else:
            write_document(write_whole_letter(scene, letter, records, decided, printed=printed))
        return ExitCode.OK


def _decide(session: Session, scene: Scene, letter: DeadLetter, records: Sequence[StoredRecord]) -> list[Decided]:
    """Return what can be decided, each with what the core would make of it."""
    from sagactl.cli.views.consequences import say_consequence
    from sagactl.core.foresight import foresee_decision

    if letter.operation not in scene.state.dead:
        return []
    row, evaluator = session.app.row(letter.run_id), session.app.evaluator(scene.saga)
    situation = survey(session.app, row)
    decided = []
    for choice in list_decidable(scene.saga, scene.state, scene.short_id, letter.operation, scene.now_ms):
        state = replay(scene.saga, (stored.record for stored in records))  # its own: a foresight consumes it
        foresight = foresee_decision(scene.saga, state, choice.request, evaluator, situation)
        decided.append(Decided(choice, say_consequence(scene, choice, foresight)))
    return decided


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
        row = select_run(session.app.log(), run, changes=True)
        matter = find_matter(session.app, row, step)
        request = make_request(Verb.RETRY, reason=reason, operation=matter.operation)
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
    hint = shlex.join(["sagactl", "dlq", "show", run, *([] if step is None else [step])])  # all ways, each whole
    resolution = _resolution_of(hint, done=done, not_done=not_done, skip=skip, abandon=abandon)
    if not reason:
        raise UsageError("a resolution takes a --reason", code="reason-needed", hint=hint)
    with open_session(context) as session:
        row = select_run(session.app.log(), run, changes=True)
        operation, letter = find_matter(session.app, row, step)
        value = None if letter is None else _read_output(session, row, letter, resolution, output)
        request = make_request(Verb.RESOLVE, reason=reason, operation=operation, resolution=resolution, output=value)
        return ask(session, row, request, only_record=no_resume)


def _resolution_of(hint: str, *, done: bool, not_done: bool, skip: bool, abandon: bool) -> Resolution:
    given = {
        Resolution.DONE: done,
        Resolution.NOT_DONE: not_done,
        Resolution.SKIP: skip,
        Resolution.ABANDON: abandon,
    }
    chosen = [resolution for resolution, is_given in given.items() if is_given]
    if len(chosen) != 1:
        raise UsageError("say how: one of --done, --not-done, --skip, --abandon", code="usage", hint=hint)
    return chosen[0]


def _read_output(session: Session, row: RunRow, letter: DeadLetter, resolution: Resolution, text: str | None) -> Json:
    """E23: what a person says an action has returned must fit the tool's output schema, and what reads it."""
    if resolution is not Resolution.DONE or letter.operation.direction is not Direction.ACTION:
        if text is not None:
            raise UsageError("--output goes with --done of an action", code="usage")
        return None
    try:
        output = None if text is None else parse(text)
    except NotJsonError as error:
        saga = session.app.saga_of(row)
        hint = f"sagactl tools {saga.by_id[letter.operation.step].action.tool}"
        raise InvalidError(f"--output is no JSON: {error}", code="invalid-input", hint=hint) from None
    check_output(session.app, row, letter, output)
    return output
