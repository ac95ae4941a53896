"""Where the checks put what they find, so that everything is told at once (rule F5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sagactl.written.problem import PROBLEMS_MAX, Problem, Related
from sagactl.written.source import Source, Span
from sagactl.written.suggest import suggestion_hint

SUGGESTED_MAX: Final = 20
"""Problems that get a suggestion: to look for near words costs, and no more are shown."""


class Findings:
    """The problems of one file, in the order in which they were found."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._errors: list[Problem] = []
        self._warnings: list[Problem] = []

    @property
    def count(self) -> int:
        """Return how many problems were found so far."""
        return len(self._errors) + len(self._warnings)

    @property
    def is_full(self) -> bool:
        """Tell whether no more errors are kept; warnings have a room of their own and never keep an error out."""
        return len(self._errors) >= PROBLEMS_MAX

    @property
    def has_errors(self) -> bool:
        """Tell whether the file can't be loaded."""
        return bool(self._errors)

    def error(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        hint: str | None = None,
        label: str | None = None,
        first: Span | None = None,
    ) -> None:
        """Note an error at *span*; *first* is where the same thing stood before."""
        if self.is_full:
            return
        related: Related | None = None if first is None else (*self.source.place_span(first), "first here")
        self._errors.append(Problem(code, message, *self._place(span), hint, "error", related, label))

    def warning(self, code: str, message: str, span: Span, *, hint: str | None = None) -> None:
        """Note something that may be meant."""
        if len(self._warnings) < PROBLEMS_MAX:
            self._warnings.append(Problem(code, message, *self._place(span), hint, "warning"))

    def unknown(
        self, code: str, message: str, span: Span, *, word: str, known: Iterable[str], hint: str | None
    ) -> None:
        """Note an unknown word, with the known ones that are near, or else with *hint*."""
        near = suggestion_hint(word, known) if len(self._errors) < SUGGESTED_MAX else None
        self.error(code, message, span, hint=near or hint)

    def _place(self, span: Span) -> tuple[str, int, int, int]:
        return (self.source.file, *self.source.place_span(span))

    def sorted(self) -> tuple[Problem, ...]:
        """Return all problems in the order of the text, each once."""
        unique = dict.fromkeys([*self._errors, *self._warnings])
        return tuple(sorted(unique, key=lambda each: (each.line, each.column, each.severity, each.code)))
