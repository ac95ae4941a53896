"""What a runner of GitHub Actions is told: annotations, and how lines come into the files that it reads.

`SAGACTL_CI=off` leaves it all out. The runner isn't asked to mask secrets: all that is written is masked by value, and
the command for it would write the value down in the clear, on a stream that may as well lead into a file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sagactl import workflow
from sagactl.cli.streams import write_line
from sagactl.errors import SagactlError
from sagactl.secrets.masking import KNOWN

if TYPE_CHECKING:
    from sagactl.cli.options import Globals
    from sagactl.cli.views.annotations import Annotation
    from sagactl.written.problem import Problem


def tell_problems(settings: Globals, problems: Sequence[Problem], project: Path) -> None:
    """Tell the runner, where there is one, what is wrong with saga files."""
    if workflow.is_listening() and problems:
        from sagactl.cli.views.annotations import annotate_problem, bound

        found = bound([annotate_problem(problem) for problem in problems])
        write_annotations(settings, found, project)


def tell_warnings(settings: Globals, warnings: Sequence[str], file: str | None, project: Path) -> None:
    """Tell the runner, where there is one, what is odd about a saga file as a whole."""
    if workflow.is_listening() and warnings:
        from sagactl.cli.views.annotations import annotate_warning, bound

        write_annotations(settings, bound([annotate_warning(text, file) for text in warnings]), project)


def tell_error(error: SagactlError, settings: Globals) -> None:
    """Tell the runner, where there is one, why sagactl could not do what was asked; files are told where they are."""
    if workflow.is_listening() and not hasattr(error, "problems"):
        from sagactl.cli.views.annotations import annotate_error

        write_annotations(settings, [annotate_error(error)], Path())


def write_annotations(settings: Globals, annotations: Iterable[Annotation], project: Path) -> None:
    """Write annotations to stderr, with files as the runner knows them."""
    if settings.quiet > 1:
        return
    for each in annotations:
        line = workflow.make_command(
            each.level,
            KNOWN.mask(each.message),
            file=find_file(each.file, project, os.environ),
            line=each.line,
            col=each.column,
            endColumn=each.end_column,
            title=KNOWN.mask(each.title),
        )
        write_line(sys.stderr, line, is_command=True)


def find_file(file: str | None, project: Path, environ: Mapping[str, str]) -> str | None:
    """Return *file* of the project as it is called in the repository that the runner has checked out."""
    if file is None:
        return None
    whole = (project / file).resolve()
    root = Path(environ.get("GITHUB_WORKSPACE") or project).resolve()
    return str(whole.relative_to(root)) if whole.is_relative_to(root) else file


def spell_output(name: str, value: str) -> str:
    """Return an output of the step; its end is marked by a word that no value can know."""
    import secrets

    end = f"end_{secrets.token_hex(16)}"
    return f"{name}<<{end}\n{value}\n{end}\n"


def append(variable: str, text: str) -> None:
    """Append *text* at once to the file that *variable* names, where it names one."""
    path = os.environ.get(variable)
    if not path:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        rest = KNOWN.mask(text).encode()
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)
