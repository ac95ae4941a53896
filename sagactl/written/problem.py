"""What is wrong with a saga file: one frozen value for each finding, and the error that carries them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError

PROBLEMS_MAX: Final = 1_000
"""Problems of one file that are kept; nobody reads more, and a hostile file must not fill the memory."""

Severity: TypeAlias = Literal["error", "warning"]
Related: TypeAlias = tuple[int, int, int, str]
"""A second place: line, column, end column, and what to say about it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding; lines and columns count characters from 1, `end_column` is the first one behind it.

    `line` 0 means that the problem has no place in a text: an input that came from the command line. `label` is what
    stands at the caret.
    """

    code: str
    message: str
    file: str
    line: int
    column: int
    end_column: int
    hint: str | None = None
    severity: Severity = "error"
    related: Related | None = None
    label: str | None = None


class InvalidSagaError(InvalidError):
    """A saga file or one of inputs with errors; `problems` has all, warnings too, in the order of the text."""

    default_code = "invalid-saga"

    def __init__(self, file: str, problems: Sequence[Problem], source_text: str, *, code: str | None = None) -> None:
        errors = [problem for problem in problems if problem.severity == "error"]
        amount = "an error" if len(errors) == 1 else f"{len(errors)} errors"
        super().__init__(f"{file} has {amount}", code=code, hint=errors[0].hint if len(errors) == 1 else None)
        self.file = file
        self.problems = tuple(problems)
        self.source_text = source_text
