"""Answers as JSON, and errors as two lines for people and, where JSON was asked for, one value for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sagactl.cli.options import Globals, Output
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.place import complete
from sagactl.cli.views.spelling import spell
from sagactl.errors import SagactlError

if TYPE_CHECKING:
    from sagactl.core.canonical import Json
    from sagactl.written.problem import Problem


def write_document(document: Json) -> None:
    """Write one JSON value."""
    write_line(answer_stream(), spell(document))


def write_error(error: SagactlError, settings: Globals) -> None:
    """Write *error* to stderr, and as JSON to stdout where the answer was to be JSON."""
    from sagactl.usecases.errors import write_error as make_error_document

    write_line(sys.stderr, _text_of(error, settings))
    if "GITHUB_ACTIONS" in os.environ:
        from sagactl.cli.ci import tell_error

        tell_error(error, settings)
    if settings.output is not Output.TEXT:
        write_document(make_error_document(error))


def complete_hints(error: SagactlError, settings: Globals) -> None:
    """Have the commands in the hints of *error*, and of the problems it names, work where the user is."""
    place = settings.place
    if place and error.hint:
        error.hint = complete(error.hint, place)
    if place and hasattr(error, "problems"):
        from sagactl.written.problem import InvalidSagaError

        assert isinstance(error, InvalidSagaError), "no other error has problems"
        error.problems = tuple(complete_problems(error.problems, settings))


def complete_problems(problems: Sequence[Problem], settings: Globals) -> list[Problem]:
    """Return *problems* with the commands in their hints as they work where the user is."""
    from dataclasses import replace

    place = settings.place
    return [replace(each, hint=each.hint and complete(each.hint, place)) for each in problems]


def _text_of(error: SagactlError, settings: Globals) -> str:
    problems = getattr(error, "problems", None)
    if problems is None:
        from sagactl.cli.session import style_of
        from sagactl.cli.views.error import render_error

        return render_error(error, style_of(sys.stderr, settings))
    from sagactl.written.report import render_problems

    return render_problems(problems, getattr(error, "source_text", ""))
