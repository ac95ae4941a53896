"""What the expressions of a saga give, found by compiling those that are CEL; the library is loaded for these only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sagactl.core.template import Reference
from sagactl.errors import InvalidError
from sagactl.spec.expressions import PlacedExpression
from sagactl.spec.references import View, is_misspelt, type_at
from sagactl.spec.schema_types import Types, overlap, show_types, types_of
from sagactl.written.findings import Findings

if TYPE_CHECKING:
    from sagactl.spec.cel import CelEvaluator, Complaint

_SCALARS: Final[Types] = frozenset({"string", "integer", "number", "boolean"})


class Compiler:
    """Compiles each expression when its type is first asked for, and notes what is wrong with it once."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._evaluator: CelEvaluator | None = None
        self._is_missing = False
        self._known: dict[str, Types | tuple[Complaint, ...] | None] = {}
        self._told: set[PlacedExpression] = set()

    def types_of(self, placed: PlacedExpression, view: View) -> Types | None:
        """Return the JSON types of what *placed* gives, None where it could be any."""
        if isinstance(placed.found, Reference):
            if placed.found.path[0] == "secrets":
                return frozenset({"string"}) if "secrets" in view.place.roots else None
            return types_of(type_at(placed.found.path, view))
        text = placed.found.text
        if is_misspelt(placed) or not self._is_there(placed):
            return None
        if text not in self._known:
            assert self._evaluator is not None, "the library is there"
            self._known[text] = self._evaluator.compile(text)
        found = self._known[text]
        if isinstance(found, tuple):
            self._complain(placed, found)
            return None
        return found

    def _is_there(self, placed: PlacedExpression) -> bool:
        if self._evaluator is None and not self._is_missing:
            from sagactl.spec.cel import CelEvaluator

            try:
                self._evaluator = CelEvaluator()
            except InvalidError as error:
                self._is_missing = True
                self._findings.error(error.code, error.message, placed.span, hint=error.hint)
        return self._evaluator is not None

    def _complain(self, placed: PlacedExpression, complaints: tuple[Complaint, ...]) -> None:
        if placed in self._told:
            return
        self._told.add(placed)
        for each in complaints:
            self._findings.error("bad-expression", each.message, placed.part(each.offset, each.length))

    def expect(self, placed: PlacedExpression, view: View, wanted: Types, title: str) -> None:
        """Note an expression that is all of a value and can't give what is *wanted*."""
        found = self.types_of(placed, view)
        if found is not None and placed.is_whole and not overlap(found, wanted):
            message = f"{title} must be {show_types(wanted)}, but the expression gives {show_types(found)}"
            self._findings.error("wrong-type", message, placed.span)

    def expect_text(self, placed: PlacedExpression, view: View, title: str) -> None:
        """Note an expression within a text that can't be written as one, or that is all of a key."""
        found = self.types_of(placed, view)
        if found is not None and not overlap(found, _SCALARS):
            message = f"{title} must be text, but the expression gives {show_types(found)}"
            self._findings.error("wrong-type", message, placed.span)
