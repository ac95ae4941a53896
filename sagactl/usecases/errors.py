"""An error, and what is wrong with a saga file, as JSON for programs: a contract that only ever grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, cast

from sagactl.core.canonical import Json
from sagactl.errors import SagactlError
from sagactl.usecases.documents import RUN_SCHEMA, Document

ERROR_SCHEMA: Final = "sagactl.error/1"
PROBLEMS_SCHEMA: Final = "sagactl.problems/1"


class ProblemFacts(Protocol):
    """What a problem in a saga file has, whoever found it."""

    @property
    def code(self) -> str:
        """A word."""

    @property
    def message(self) -> str:
        """One line."""

    @property
    def file(self) -> str:
        """Where."""

    @property
    def line(self) -> int:
        """From 1; 0 where it has no place in a text."""

    @property
    def column(self) -> int:
        """From 1."""

    @property
    def end_column(self) -> int:
        """The first one behind it."""

    @property
    def hint(self) -> str | None:
        """What to do."""

    @property
    def severity(self) -> str:
        """`error` or `warning`."""


def write_error(error: SagactlError, *, schema: str = ERROR_SCHEMA) -> Document:
    """Return the document of an error; under the schema of a run it says that there is none."""
    document: Document = {"schema": schema}
    if schema == RUN_SCHEMA:
        document["run"] = None
    return {**document, "error": _write_body(error)}


def _write_body(error: SagactlError) -> Document:
    body: Document = {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "exit": int(error.exit_code),
    }
    problems = cast("Sequence[ProblemFacts]", getattr(error, "problems", ()))
    first = next((each for each in problems if each.severity == "error"), None)
    if first is not None:
        body |= {"file": first.file, "line": first.line or None, "column": first.column if first.line else None}
        body["problems"] = [write_problem(each) for each in problems]
    return body


def write_problem(problem: ProblemFacts) -> Document:
    """Return one problem of a saga file."""
    has_place = problem.line > 0
    return {
        "code": problem.code,
        "severity": problem.severity,
        "message": problem.message,
        "hint": problem.hint,
        "file": problem.file,
        "line": problem.line if has_place else None,
        "column": problem.column if has_place else None,
        "end_column": problem.end_column if has_place else None,
    }


def write_problems(problems: Sequence[ProblemFacts], *, files: int) -> Document:
    """Return the document of `validate`: what was found in so many files."""
    items: list[Json] = [write_problem(each) for each in problems]
    errors = sum(each.severity == "error" for each in problems)
    return {
        "schema": PROBLEMS_SCHEMA,
        "ok": errors == 0,
        "files": files,
        "items": items,
        "total": len(items),
        "error": None,
    }
