"""`sagactl tools check`: the golden rules of tools, tried on each of them in worlds of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.ending import ending_cleanly
from sagactl.cli.inputs import read_inputs
from sagactl.cli.junit import JunitOption, junit_report
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.dataclass import dataclass
from sagactl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from sagactl.app import Project
    from sagactl.conformance.choosing import Left, Tools
    from sagactl.conformance.report import CheckReport, ToolReport
    from sagactl.conformance.rules import Rule
    from sagactl.conformance.stage import Subject
    from sagactl.conformance.suite import Suite
    from sagactl.core.canonical import Json

TIMEOUT_SECONDS: Final = 30.0

app = make_app()


@dataclass(frozen=True, slots=True)
class _Given:
    """What the command line says."""

    inputs: Sequence[str]
    inputs_file: str | None
    allowed: Sequence[str]
    timeout_seconds: float

    def words(self, session: Session) -> list[str]:
        """Return the command, but for which tools and rules it tries."""
        given = [word for pair in self.inputs for word in ("-i", pair)]
        given += [] if self.inputs_file is None else ["--inputs", self.inputs_file]
        given += [word for name in self.allowed for word in ("--allow-unsafe", name)]
        given += [] if self.timeout_seconds == TIMEOUT_SECONDS else ["--timeout", f"{self.timeout_seconds:g}"]
        return ["sagactl", *session.settings.words_of_place, "tools", "check", *given]


@app.command()
def check(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TOOL…", help="Tools or whole plugins; all of the project's.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("-i", "--input", metavar="NAME=TEXT", help="What check files see as `input`, on top of theirs."),
    ] = None,
    inputs_file: Annotated[
        str | None, typer.Option("--inputs", metavar="FILE|-", help="All of it, as JSON or YAML.")
    ] = None,
    rule: Annotated[list[str] | None, typer.Option("--rule", metavar="RULE", help="Only this rule.")] = None,
    allow_unsafe: Annotated[
        list[str] | None,
        typer.Option("--allow-unsafe", metavar="TOOL", help="Call a tool that isn't marked as safe: a name, or crm.*"),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=3600, metavar="SECONDS", help="How long one call may take.")
    ] = TIMEOUT_SECONDS,
    strict: Annotated[bool, typer.Option("--strict", help="Take what can't be tried for a breach.")] = False,
    junit: JunitOption = None,
) -> int:
    """Call tools twice, at once, late and in vain, and say which of the golden rules hold.

    Tools are really called, with the arguments of plugins/NAME.check.yaml, in worlds of their own as far as they keep
    to context.project; so each must be marked as safe for that. Ends with 1 where a rule is broken.

    Examples:
      sagactl tools check billing

      sagactl tools check crm.create_lead --rule undo-twice

      sagactl tools check billing crm --junit tools.xml
    """
    guard_stdout()
    given = _Given(inputs or [], inputs_file, allow_unsafe or [], timeout)
    rules = _read_rules(rule or ())
    with open_session(context) as session, junit_report(session, junit) as report, ending_cleanly():
        found = _check(session, given, names or (), rules)
        _write(session, given, found, strict=strict)
        _tell_runner(session, given, found)
        from sagactl.cli.views.tools_check_documents import make_check_suites

        report.suites.extend(make_check_suites(found, strict=strict))
        return ExitCode.OK if found.is_good(strict=strict) else ExitCode.ERROR


def _read_rules(names: Sequence[str]) -> frozenset[Rule]:
    from sagactl.conformance.rules import Rule

    for name in names:
        if name not in set(Rule):
            raise UsageError(f"no rule named {name}", code="no-such-rule", hint=f"known: {', '.join(Rule)}")
    return frozenset(Rule(name) for name in names) or frozenset(Rule)


def _check(session: Session, given: _Given, names: Sequence[str], rules: frozenset[Rule]) -> CheckReport:
    from sagactl.chaos.laboratory import isolate
    from sagactl.conformance.apart import check_apart
    from sagactl.conformance.choosing import Left, make_subjects, select
    from sagactl.conformance.report import CheckReport

    with isolate(session.app) as project:
        tools = _gather(session, project, given)
        subjects = list(make_subjects(tools, select(tools, names)))
        _refuse_unsafe(subjects)
        suite = _make_suite(project, given, rules)
        reports: list[ToolReport] = []
        notes: list[str] = []
        for subject in subjects:
            if isinstance(subject, Left):
                reports.append(suite.leave(subject))
            else:
                report, more = check_apart(suite, subject, project.toolset.close)
                reports.append(report)
                notes += more
            _tell(session, reports[-1])
        return CheckReport(tuple(reports), tuple(notes))


def _gather(session: Session, project: Project, given: _Given) -> Tools:
    from sagactl.chaos.settings import read_settings
    from sagactl.conformance.choosing import Broken, Tools
    from sagactl.conformance.finding import CheckFiles
    from sagactl.conformance.fitting import refuse_strays

    settings = read_settings(session.app.config.chaos, session.app.config.project)
    files = CheckFiles(project.config.project, partial(_read_input, given))
    broken = [Broken(each.name, tuple(each.tools), str(each)) for each in project.registry.broken]
    known = [*(each.plugin for each in project.tool_facts.values()), *(each.plugin for each in broken)]
    refuse_strays(files.list_plugins(), known)
    return Tools(
        facts=project.tool_facts,
        file_of=files.find,
        marked=lambda name: project.registry.tool(name).is_chaos_safe,
        safe=(*settings.safe_tools, *given.allowed),
        broken=broken,
    )


def _read_input(given: _Given, known: dict[str, Json]) -> Json:
    return read_inputs(given.inputs, given.inputs_file, known)


def _make_suite(project: Project, given: _Given, rules: frozenset[Rule]) -> Suite:
    from sagactl.app import evaluate_cel
    from sagactl.conformance.suite import Suite
    from sagactl.engine.run import RunEvaluator

    def find_origin(name: str) -> tuple[str, int]:
        place = project.registry.tool(name).place
        file, home = Path(place.file), project.config.project
        return str(file.relative_to(home) if file.is_relative_to(home) else file), place.line

    return Suite(
        tools=project.toolbox,
        evaluator=RunEvaluator(project.tool_facts, project.toolbox, evaluate_cel),
        place=Path(project.config.log).parent,
        origin_of=find_origin,
        rules=rules,
        timeout_seconds=given.timeout_seconds,
    )


def _refuse_unsafe(subjects: Sequence[Subject | Left]) -> None:
    """Raise UsageError where all that was asked for may not be called."""
    from sagactl.conformance.choosing import Left

    unsafe = [each for each in subjects if isinstance(each, Left) and each.is_unsafe]
    if not unsafe or len(unsafe) < len(subjects):
        return
    plugins = sorted({each.facts.name.partition(".")[0] for each in unsafe})
    options = " ".join(f"--allow-unsafe '{plugin}.*'" for plugin in plugins)
    raise UsageError(
        f"a check calls tools for real, and of {unsafe[0].facts.name} {unsafe[0].why}"
        f" ({options}, where no harm can come of it)",
        code="unsafe-tools",
        hint="sagactl help tools-check",
    )


def _tell(session: Session, report: ToolReport) -> None:
    """Say on stderr what came of one tool, while others are still tried."""
    if session.shows_progress:
        from sagactl.cli.views.tools_check import say_tool

        session.say(say_tool(report, session.progress_style))


def _write(session: Session, given: _Given, report: CheckReport, *, strict: bool) -> None:
    if session.output is not Output.TEXT:
        from sagactl.cli.views.tools_check_documents import write_check

        write_document(write_check(report, given.words(session)))
    elif session.settings.quiet < 2:
        from sagactl.cli.views.tools_check import render_check

        write_line(answer_stream(), render_check(report, given.words(session), style=session.style, strict=strict))


def _tell_runner(session: Session, given: _Given, report: CheckReport) -> None:
    """Tell the runner of CI, where there is one, which rule is broken by the tool at which line."""
    from sagactl import workflow

    if workflow.is_listening():
        from sagactl.cli.ci import write_annotations
        from sagactl.cli.views.tools_check_documents import annotate_check

        write_annotations(session.settings, annotate_check(report, given.words(session)), session.app.config.project)
