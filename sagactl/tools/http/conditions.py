"""What decides about an answer: `${{ response.body.state == 'paid' && response.body.items[0] }}`.

A part of the expression language that needs no library: references, `==`, `!=`, `!`, `&&`. A reference by itself holds
where there is something: neither absent nor null, false, or empty.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from sagactl.core.canonical import Json
from sagactl.core.template import ExpressionError, Reference, TemplateSyntaxError
from sagactl.dataclass import dataclass
from sagactl.tools.http.references import ANSWER_ROOTS, REFERENCE, Missing, Scope, look_up, parse_reference
from sagactl.tools.simple import is_same

TERMS_MAX: Final = 20

_WHOLE: Final = re.compile(r"\s*\$\{\{(.*)\}\}\s*", re.DOTALL)
_LITERAL: Final = r"'[^'\\]*'|\"[^\"\\]*\"|-?[0-9]+(?:\.[0-9]+)?|true|false|null"
_TERM: Final = re.compile(
    rf"\s*(?P<not>!)?(?P<left>{REFERENCE.pattern})(?:(?P<sign>==|!=)\s*(?:(?P<literal>{_LITERAL})|(?P<right>{REFERENCE.pattern})))?\s*",
    re.ASCII,
)
_WORDS: Final[dict[str, Json]] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison; without *right* and *literal* it asks whether there is something."""

    left: Reference
    is_negated: bool
    compares: bool
    right: Reference | None
    literal: Json


@dataclass(frozen=True, slots=True)
class Condition:
    """All of its terms must hold."""

    text: str
    terms: tuple[Term, ...]

    def holds(self, scope: Scope) -> bool:
        """Tell whether the condition holds of an answer."""
        return all(_holds(term, scope) for term in self.terms)


def parse_condition(text: str) -> Condition:
    """Read a condition as written; raises TemplateSyntaxError."""
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        raise TemplateSyntaxError('a condition is written "${{ … }}"', 0)
    parts = _split(whole[1])
    if len(parts) > TERMS_MAX:
        raise TemplateSyntaxError(f"the condition has {len(parts)} terms; at most {TERMS_MAX} are allowed", 0)
    return Condition(whole[1].strip(), tuple(_parse_term(part) for part in parts))


def _split(text: str) -> list[str]:
    """Return what stands between `&&`, but for those within quotes."""
    parts, start = [], 0
    for found in re.finditer(r"'[^']*'|\"[^\"]*\"|&&", text):
        if found.group() == "&&":
            parts.append(text[start : found.start()])
            start = found.end()
    return [*parts, text[start:]]


def _parse_term(text: str) -> Term:
    found = _TERM.fullmatch(text)
    if found is None:
        hint = "references, ==, !=, ! and && may stand in a condition"
        raise TemplateSyntaxError(f"{text.strip() or 'nothing'} can't be read: {hint}", 0)
    left = parse_reference(found["left"], ANSWER_ROOTS)
    literal, is_negated = found["literal"], found["not"] is not None
    if found["sign"] is None:
        return Term(left, is_negated, compares=False, right=None, literal=None)
    is_negated = is_negated != (found["sign"] == "!=")
    if literal is not None:
        return Term(left, is_negated, compares=True, right=None, literal=_read_literal(literal))
    # `null` and its like are matched as literals first, so this is a reference.
    return Term(left, is_negated, compares=True, right=parse_reference(found["right"], ANSWER_ROOTS), literal=None)


def _read_literal(text: str) -> Json:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "'\"":
        return text[1:-1]
    return Decimal(text) if "." in text else int(text)


def _holds(term: Term, scope: Scope) -> bool:
    left = _find(term.left, scope)
    if not term.compares:
        return _is_there(left) != term.is_negated
    right = term.literal if term.right is None else _find(term.right, scope)
    is_equal = not isinstance(left, Missing) and not isinstance(right, Missing) and is_same(left, right)
    return is_equal != term.is_negated


def _find(reference: Reference, scope: Scope) -> Json | Missing:
    try:
        return look_up(reference, scope)
    except ExpressionError:
        return Missing()


def _is_there(value: Json | Missing) -> bool:
    return not isinstance(value, Missing) and value not in (None, False, "", [], {})
