"""`sagactl plan FILE`: every call a run would make, and what a failure would undo; nothing is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.inputs import read_inputs
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, find_file, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.plan import Plan, render_plan, write_plan
from sagactl.core.canonical import Json, digest
from sagactl.core.definition import write_definition
from sagactl.core.filled import fill_in
from sagactl.core.preview import preview, read_given
from sagactl.core.template import Scope
from sagactl.errors import ExitCode
from sagactl.inputs import check_input

if TYPE_CHECKING:
    from sagactl.spec.load import Loaded

app = make_app()


@app.command()
def plan(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A saga file, or the name of a saga in sagas/.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("-i", "--input", metavar="NAME=TEXT", help="An input: name=text, name:=json, name=@file."),
    ] = None,
    inputs_file: Annotated[
        str | None, typer.Option("--inputs", metavar="FILE|-", help="All inputs, as JSON or YAML.")
    ] = None,
    show_inputs: Annotated[bool, typer.Option("--show-inputs", help="Also the arguments of each call.")] = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="PLAN", help="Keep the plan in a new file, for `run --plan`.")
    ] = None,
) -> int:
    """Show every call that a run would make, in order, and what a failure would undo. Nothing is called.

    Lines with one number run at the same time. Without inputs the plan is that of the definition alone; with them
    `when`, `foreach` and arguments that hang on nothing else have their values. A plan that is kept with --out is
    carried out by `run --plan`, exactly, or not at all. But for that nothing is written.

    Examples:
      sagactl plan onboarding

      sagactl plan onboarding -i email=ada@example.com -i amount:=4900 --show-inputs

      sagactl plan onboarding -i email=ada@example.com -i amount:=4900 --out deposit.plan
    """
    guard_stdout()
    path = find_file(file)
    with open_session(context, path) as session:
        has_input = bool(inputs) or inputs_file is not None or out is not None
        value = read_inputs(inputs or [], inputs_file) if has_input else None
        loaded = session.app.load_saga(session.app.find_saga(file))
        session.tell_problems(loaded.warnings)
        session.warn_of_secrets(loaded.saga)
        made = _make_plan(session, loaded, value, has_input=has_input)
        if out is not None:
            _keep(session, loaded, made, out)
        if session.output is Output.TEXT:
            write_line(answer_stream(), render_plan(made, style=session.style, shows_inputs=show_inputs))
        else:
            write_document(write_plan(made))
        return ExitCode.OK


def _keep(session: Session, loaded: Loaded, made: Plan, out: str) -> None:
    from shlex import quote

    from sagactl.cli.plan_file import write_plan_file
    from sagactl.core.planned import make_planned
    from sagactl.identity import make_run_id, who_am_i

    planned = make_planned(loaded.saga, made.input, made.filled, plan_id=make_run_id(), planned_by=who_am_i())
    write_plan_file(out, planned)
    told = f"plan {planned.digest[:12]} is kept: sagactl run --plan {quote(out)}"
    session.say(session.progress_style.show(told))


def _make_plan(session: Session, loaded: Loaded, value: Json, *, has_input: bool) -> Plan:
    saga = loaded.saga
    evaluator = session.app.evaluator(saga)
    checked = check_input(saga, value) if has_input else None
    scope: Scope = {"input": checked} if has_input else {}
    given = read_given(saga, scope, evaluator)
    return Plan(
        preview(saga, given),
        digest(write_definition(saga)),
        has_input=has_input,
        input=checked,
        run_key=session.app.run_key(saga, checked) if has_input else None,
        filled=fill_in(saga, given, scope, evaluator),
        warnings=loaded.warnings,
        isolated=[name for name in saga.tools if _is_isolated(session, name)],
    )


def _is_isolated(session: Session, name: str) -> bool:
    return session.app.registry.tool(name).isolation is not None
