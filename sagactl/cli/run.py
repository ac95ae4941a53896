"""`sagactl run FILE`: start a saga and follow it to its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.begin import Beginning, Given, begin, check_given, path_of
from sagactl.cli.changed_file import is_same
from sagactl.cli.follow import code_of_ending, code_of_status, drive, write_ending, write_logged_run
from sagactl.cli.junit import Junit, JunitOption, junit_report
from sagactl.cli.operate import wait_while_driven
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, now_ms, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.prune import render_tombstone, write_tombstone
from sagactl.core.saga import Saga
from sagactl.engine.ending import Why
from sagactl.errors import PrunedError, RefusedError

app = make_app()


@app.command()
def run(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A saga file, or the name of a saga in sagas/.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("-i", "--input", metavar="NAME=TEXT", help="An input: name=text, name:=json, name=@file."),
    ] = None,
    inputs_file: Annotated[
        str | None, typer.Option("--inputs", metavar="FILE|-", help="All inputs, as JSON or YAML.")
    ] = None,
    from_run: Annotated[
        str | None, typer.Option("--from", metavar="RUN", help="With the inputs of that run; -i changes some of them.")
    ] = None,
    plan: Annotated[
        str | None, typer.Option("--plan", metavar="PLAN", help="Exactly what `plan --out` has kept, or nothing.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="The same key is the same run, for ever.")
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Stay neither for timers nor for calls that hang; end with 12.")
    ] = False,
    junit: JunitOption = None,
) -> int:
    """Start a saga and follow it to its end.

    The exit code says what became of the run: 0 succeeded, 10 rolled back, 11 stuck, 12 waiting, 13 terminated.
    --from begins a new run with the inputs of another one, whatever became of that; without FILE its saga's file is
    taken, as it is now. --plan carries a kept plan out, once: a second time it shows the run that did, unless that was
    rolled back. It is refused (6), with every reason, where the saga file, a tool or a call is no longer what was
    planned.

    Examples:
      sagactl run onboarding -i email=ada@example.com -i amount:=4900

      sagactl run sagas/onboarding.yaml --inputs input.json -o json

      sagactl run onboarding --inputs input.json --junit results.xml

      sagactl run --from 7kq2m9 -i amount:=5000

      sagactl run --plan deposit.plan
    """
    guard_stdout()
    given = Given(file, inputs or [], inputs_file, from_run, plan)
    check_given(given)
    with open_session(context, path_of(file)) as session, junit_report(session, junit) as report:
        return _start(session, begin(session, given), idempotency_key, report, waits=not no_wait)


def _start(session: Session, beginning: Beginning, key: str | None, report: Junit, *, waits: bool) -> int:
    saga, has_same_key = beginning.saga, beginning.origin.forked_from is not None and key is None
    driver = session.app.driver(replace(session.app.settings, waits_for_timers=waits))
    started: list[str] = []

    def take_over() -> None:
        started.append(driver.start(saga, beginning.input, key=key, origin=beginning.origin))
        report.run_ids[started[0]] = None

    try:
        endings, follower, signal_code = drive(session, driver, take_over, waits=waits)
    except PrunedError as gone:
        return _report_pruned(session, gone)
    except RefusedError as error:
        if error.code == "key-taken" and has_same_key:
            error.hint = "with --idempotency-key the new run has a key of its own"
        raise
    ending = endings[started[0]]
    if ending.why is Why.EXISTING:
        if has_same_key:
            session.say("these inputs make the same key: with --idempotency-key the new run has one of its own")
        return _report_existing(session, ending.run_id, saga, beginning.origin.plan)
    write_ending(session, ending, follower.latest[ending.run_id])
    return code_of_ending(ending, signal_code)


def _report_pruned(session: Session, gone: PrunedError) -> int:
    """E8: the same key is the same run, also after its records were deleted: its outcome, and no call."""
    session.say(f"run {gone.run_id} has this key, and was pruned; nothing is called")
    (tombstone,) = session.app.log().pruned(gone.run_id)
    if session.output is Output.TEXT:
        if session.settings.quiet < 2:
            write_line(answer_stream(), render_tombstone(tombstone, now_ms=now_ms(), style=session.style))
    else:
        write_document(write_tombstone(tombstone))
    return code_of_status(tombstone.status)


def _carried_out(session: Session, run_id: str) -> str | None:
    created = session.app.read(run_id).state.created
    return None if created is None else created.plan


def _report_existing(session: Session, run_id: str, saga: Saga, plan: str | None) -> int:
    """E8: the same key is the same run: its outcome, and no call."""
    row = session.app.row(run_id)
    pinned = session.app.saga_of(row)
    if plan is not None and _carried_out(session, run_id) == plan:
        session.say(f"run {run_id} is that of this plan; it is shown, nothing is called")
    elif not is_same(pinned, saga):
        versions = f"version {pinned.version or '?'} there, {saga.version or '?'} here"
        session.say(f"warning: run {run_id} has this key, with another definition ({versions}); it is the one shown")
    else:
        session.say(f"run {run_id} has this key; it is shown, nothing is called")
    row = wait_while_driven(session, run_id)
    write_logged_run(session, row)
    return code_of_status(row.status)
