"""`sagactl chaos FILE`: crash a saga at each of its points, in a world of its own, and say where that isn't safe."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.ending import ending_cleanly
from sagactl.cli.inputs import read_inputs
from sagactl.cli.junit import JunitOption, junit_report
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, find_file, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.dataclass import dataclass
from sagactl.errors import ExitCode, InvalidError, UsageError
from sagactl.inputs import check_input

if TYPE_CHECKING:
    from sagactl.app import Project
    from sagactl.chaos.choosing import Choice
    from sagactl.chaos.enumerating import Reference
    from sagactl.chaos.experiment import Experiment
    from sagactl.chaos.laboratory import Laboratory, Outcome
    from sagactl.chaos.report import ChaosReport
    from sagactl.chaos.settings import ChaosSettings
    from sagactl.core.canonical import Json
    from sagactl.core.records import Operation
    from sagactl.core.saga import Saga

JOBS_MAX: Final = 64
TIMEOUT_SECONDS: Final = 20.0
PROGRESS_SECONDS: Final = 2.0
"""How often it is said how far the experiments have come."""

app = make_app()


@dataclass(frozen=True, slots=True)
class _Given:
    """What the command line says."""

    file: str
    inputs: Sequence[str]
    inputs_file: str | None
    replay: str | None
    allowed: Sequence[str]
    jobs: int
    timeout_seconds: float

    def words(self, session: Session) -> list[str]:
        """Return the command, but for which experiments it makes."""
        given = [word for pair in self.inputs for word in ("-i", pair)]
        given += [] if self.inputs_file is None else ["--inputs", self.inputs_file]
        given += [] if self.replay is None else ["--replay", self.replay]
        given += [word for name in self.allowed for word in ("--allow-unsafe", name)]
        given += [] if self.timeout_seconds == TIMEOUT_SECONDS else ["--timeout", f"{self.timeout_seconds:g}"]
        return ["sagactl", *session.settings.words_of_place, "chaos", self.file, *given]


InputOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("-i", "--input", metavar="NAME=TEXT", help="An input: name=text, name:=json, name=@file."),
]
InputsOption: TypeAlias = Annotated[
    str | None, typer.Option("--inputs", metavar="FILE|-", help="All inputs, as JSON or YAML.")
]
ReplayOption: TypeAlias = Annotated[
    str | None, typer.Option("--replay", metavar="RUN", help="Call no tool; take inputs and outputs from that run.")
]
AllowOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--allow-unsafe", metavar="TOOL", help="Call a tool that isn't marked as safe: a name, or crm.*"),
]
OnlyOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--only", metavar="STEP", help="Only experiments on this step.")
]
ExperimentOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--experiment", metavar="NAME", help="Only this experiment.")
]
PairsOption: TypeAlias = Annotated[bool, typer.Option("--pairs", help="Also each crash after each other one.")]
LimitOption: TypeAlias = Annotated[
    int | None, typer.Option("--limit", min=1, metavar="N", help="At most so many experiments; 5,000 by default.")
]
SeedOption: TypeAlias = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="Draw those within the limit, instead of the first.")
]
TimeoutOption: TypeAlias = Annotated[
    float, typer.Option("--timeout", min=0.1, max=3600, metavar="SECONDS", help="How long one process may take.")
]
JobsOption: TypeAlias = Annotated[
    int | None, typer.Option("--jobs", min=1, max=JOBS_MAX, metavar="N", help="Processes at a time.")
]
StrictOption: TypeAlias = Annotated[bool, typer.Option("--strict", help="Take notes for findings.")]
ListOption: TypeAlias = Annotated[bool, typer.Option("--list", help="List the experiments; make none.")]


@app.command()
def chaos(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A saga file, or the name of a saga in sagas/.")],
    inputs: InputOption = None,
    inputs_file: InputsOption = None,
    replay: ReplayOption = None,
    allow_unsafe: AllowOption = None,
    only: OnlyOption = None,
    experiment: ExperimentOption = None,
    pairs: PairsOption = False,
    limit: LimitOption = None,
    seed: SeedOption = None,
    timeout: TimeoutOption = TIMEOUT_SECONDS,
    jobs: JobsOption = None,
    strict: StrictOption = False,
    lists: ListOption = False,
    junit: JunitOption = None,
) -> int:
    """Crash a saga at each of its points, let each call fail in each way, and say where that isn't safe.

    Every experiment is a run in processes, a log and a world of its own; nothing of the project is written. Tools are
    really called, so each must be marked as safe for that. Ends with 1 where a step isn't safe.

    Examples:
      sagactl chaos onboarding -i email=ada@example.com -i amount:=4900 --only lead

      sagactl chaos onboarding -i email=ada@example.com -i amount:=4900 --list

      sagactl chaos onboarding --inputs input.json --only welcome --junit chaos.xml
    """
    guard_stdout()
    if only and experiment:
        raise UsageError("--experiment names what --only would choose from", hint="leave one of them out")
    given = _Given(file, inputs or [], inputs_file, replay, allow_unsafe or [], jobs or _count_jobs(), timeout)
    from sagactl.chaos.choosing import EXPERIMENTS_MAX, Choice

    choice = Choice(tuple(only or ()), tuple(experiment or ()), pairs, limit or EXPERIMENTS_MAX, seed)
    with open_session(context, find_file(file)) as session, junit_report(session, junit) as report, ending_cleanly():
        with _open_laboratory(session, given) as laboratory:
            if lists:
                return _list(session, laboratory, choice)
            found = _experiment(session, laboratory, choice)
        _write(session, given, found)
        from sagactl.cli.views.chaos_documents import make_chaos_suite

        _tell_runner(session, given, found)
        report.suites.append(make_chaos_suite(found, strict=strict))
        is_good = found.is_safe and not (strict and found.found)
        return ExitCode.OK if is_good else ExitCode.ERROR


def _count_jobs() -> int:
    return min(4, os.cpu_count() or 1)


@contextmanager
def _open_laboratory(session: Session, given: _Given) -> Iterator[Laboratory]:
    from sagactl.chaos.laboratory import isolate, open_laboratory
    from sagactl.chaos.settings import read_settings

    settings = read_settings(session.app.config.chaos, session.app.config.project)
    with isolate(session.app) as project:
        saga = project.load_saga(project.find_saga(given.file)).saga
        value, outputs = _read_material(session, given, saga)
        if outputs is None:
            _refuse_unsafe(project, saga, settings, given)
        with open_laboratory(
            project,
            saga,
            value,
            settings,
            outputs=outputs,
            jobs=given.jobs,
            timeout_seconds=given.timeout_seconds,
        ) as laboratory:
            yield laboratory


def _read_material(session: Session, given: _Given, saga: Saga) -> tuple[Json, dict[Operation, Json] | None]:
    """Return the input and, where a run is replayed, what its operations have returned."""
    if given.replay is not None and (given.inputs or given.inputs_file is not None):
        raise UsageError("--replay takes the inputs of the run", hint="leave -i and --inputs out")
    if given.replay is None:
        return check_input(saga, read_inputs(given.inputs, given.inputs_file)), None
    from sagactl.chaos.recorded import gather_outputs
    from sagactl.usecases.select import select_run

    row = select_run(session.app.log(read_only=True), given.replay)
    known = session.app.read(row.run_id)
    assert known.state.created is not None, "a run begins with its first record"
    outputs = gather_outputs(saga, known.state, row.run_id)
    return check_input(saga, known.state.created.input), outputs


def _refuse_unsafe(project: Project, saga: Saga, settings: ChaosSettings, given: _Given) -> None:
    from sagactl.chaos.settings import refuse_unsafe

    tools = {name: project.registry.tool(name) for name in (*saga.tools, *settings.check)}
    marked = {name for name, tool in tools.items() if tool.is_chaos_safe}
    changing = [name for name in settings.check if not tools[name].facts.read_only]
    if changing:
        message = f"chaos.check names {changing[0]}, which isn't read_only"
        raise InvalidError(message, code="invalid-config", hint=f"sagactl tools {changing[0]}")
    refuse_unsafe(saga, settings, marked=marked, allowed=given.allowed)


def _choose(laboratory: Laboratory, reference: Reference, choice: Choice) -> tuple[list[Experiment], int]:
    """Return the experiments to make, and how many are left out."""
    from sagactl.chaos.choosing import choose
    from sagactl.chaos.enumerating import list_experiments

    return choose(list_experiments(laboratory.saga, reference), choice, laboratory.saga.by_id)


def _list(session: Session, laboratory: Laboratory, choice: Choice) -> int:
    from sagactl.cli.views.chaos import render_experiments
    from sagactl.cli.views.chaos_documents import write_experiments

    reference, _ = laboratory.refer()
    made, left_out = _choose(laboratory, reference, choice)
    if session.output is Output.TEXT:
        write_line(answer_stream(), render_experiments(made, left_out, style=session.style))
    else:
        write_document(write_experiments(made, left_out))
    return ExitCode.OK


def _experiment(session: Session, laboratory: Laboratory, choice: Choice) -> ChaosReport:
    from sagactl.chaos.observed import Close
    from sagactl.chaos.report import make_report

    reference, outcomes = laboratory.refer()
    chosen, left_out = _choose(laboratory, reference, choice)
    outcomes += _follow(session, laboratory.make(reference, chosen), len(chosen))
    not_reached = [each.experiment.name for each in outcomes if each.observed.close is Close.NOT_REACHED]
    in_order = {each.name: number for number, each in enumerate(chosen)}
    outcomes.sort(key=lambda each: in_order.get(each.experiment.name, -1))
    return make_report(
        laboratory.saga,
        laboratory.world,
        laboratory.settings.check if laboratory.outputs is None else (),
        [each.experiment for each in outcomes],
        [finding for each in outcomes for finding in each.findings],
        not_reached=not_reached,
        left_out=left_out,
        took_ms=laboratory.took_ms,
        is_beside=laboratory.earlier is not None,
    )


def _follow(session: Session, outcomes: Iterator[Outcome], total: int) -> Iterator[Outcome]:
    """Pass the outcomes on, and say on stderr how far they have come and what is new about a step."""
    from sagactl.cli.views.chaos import say_finding, say_progress

    known: set[tuple[object, object]] = set()
    told_at = time.monotonic()
    for number, outcome in enumerate(outcomes, start=1):
        yield outcome
        if not session.shows_progress:
            continue
        for finding in outcome.findings:
            place = finding.place and finding.place.step, finding.code
            if place not in known:
                known.add(place)
                session.say(say_finding(finding, session.progress_style))
        if time.monotonic() - told_at >= PROGRESS_SECONDS:
            told_at = time.monotonic()
            session.say(say_progress(number, total))


def _write(session: Session, given: _Given, report: ChaosReport) -> None:
    from sagactl.cli.views.chaos import render_chaos
    from sagactl.cli.views.chaos_documents import write_chaos

    if session.output is not Output.TEXT:
        write_document(write_chaos(report, given.words(session)))
    elif session.settings.quiet < 2:
        write_line(answer_stream(), render_chaos(report, given.words(session), style=session.style))


def _tell_runner(session: Session, given: _Given, report: ChaosReport) -> None:
    """Tell the runner of CI, where there is one, what was found and at which line."""
    from sagactl import workflow

    if workflow.is_listening() and report.found:
        from sagactl.cli.ci import write_annotations
        from sagactl.cli.views.chaos_documents import annotate_chaos

        write_annotations(session.settings, annotate_chaos(report, given.words(session)), session.app.config.project)
