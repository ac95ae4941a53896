"""`sagactl validate FILE…`: check saga files; nothing is called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import complete_problems, write_document
from sagactl.cli.junit import Junit, JunitOption, junit_report
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, find_file, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.errors import ExitCode, NotFoundError
from sagactl.usecases.errors import write_problems

if TYPE_CHECKING:
    from sagactl.written.problem import Problem

app = make_app()


@app.command()
def validate(
    context: typer.Context,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE…", help="Saga files or names; all of sagas/ by default.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Take warnings for errors.")] = False,
    junit: JunitOption = None,
) -> int:
    """Check saga files against the format and the tools; nothing is called.

    Examples:
      sagactl validate

      sagactl validate sagas/onboarding.yaml --strict

      sagactl validate --junit problems.xml
    """
    guard_stdout()
    first = find_file(files[0]) if files else None
    with open_session(context, first) as session, junit_report(session, junit) as report:
        paths = [session.app.find_saga(name) for name in files or ()] or _all_sagas(session)
        found = [problem for path in paths for problem in _check(session, path, report, strict=strict)]
        session.tell_problems(found)
        if session.output is not Output.TEXT:
            write_document(write_problems(found, files=len(paths)))
        elif not found:
            write_line(answer_stream(), f"{len(paths)} saga{'s' if len(paths) != 1 else ''} checked, nothing to mend")
        is_bad = any(problem.severity == "error" or strict for problem in found)
        return ExitCode.INVALID if is_bad else ExitCode.OK


def _all_sagas(session: Session) -> list[Path]:
    folder = session.app.config.project / "sagas"
    paths = sorted(folder.glob("*.y*ml")) if folder.is_dir() else []
    if not paths:
        raise NotFoundError(f"no saga files in {folder}", code="no-such-saga", hint="sagactl validate FILE")
    return paths


def _check(session: Session, path: Path, report: Junit, *, strict: bool) -> list[Problem]:
    from sagactl.cli.views.junit import make_problem_suite
    from sagactl.written.problem import InvalidSagaError

    try:
        loaded = session.app.load_saga(path)
        file, problems, text = loaded.saga.source or str(path), list(loaded.warnings), loaded.source_text
        session.warn_of_secrets(loaded.saga)
    except InvalidSagaError as error:
        file, problems, text = error.file, list(error.problems), error.source_text
    problems = complete_problems(problems, session.settings)
    _write_problems(session, problems, text)
    report.suites.append(make_problem_suite(file, problems, strict=strict))
    return problems


def _write_problems(session: Session, problems: Sequence[Problem], text: str) -> None:
    from sagactl.written.report import render_problems

    if problems and session.output is Output.TEXT:
        write_line(answer_stream(), render_problems(problems, text))
