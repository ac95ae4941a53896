"""Which regular expressions a schema may hold: those that Python's engine answers quickly whatever the text.

Python's `re` backtracks. `(a+)+$` takes time that doubles with each character of a text that does not match, because
a text can be shared out among the two `+` in ever more ways. The check reads the parsed expression and refuses it when

* a repeat lies within a repeat, or alternatives that can begin alike lie within one, and no delimiter tells one round
  from the next (in `(,[0-9]+)*` the comma does, since no digit is one);
* one round of a repeat can match one text in two ways; or
* repeats that can share characters follow one another, no delimiter between them, so that their choices multiply to
  more than about the square of the length of the text. A search that may begin anywhere is such a choice.

What is left costs at most that square, so the length of texts with a pattern is limited as well. The check may refuse
harmless expressions; it says why, and they can be rewritten.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import log2
from typing import Any, Final, TypeAlias

PATTERN_LENGTH_MAX: Final = 1_000
PATTERN_TEXT_MAX: Final = 1_024
"""Longest text that is matched against a pattern; longer ones do not match."""

CHOICE_BITS_MAX: Final = 23.0
"""Choices of the engine, as a power of two: two unlimited repeats, and three optional characters."""

_UNLIMITED_BITS: Final = log2(PATTERN_TEXT_MAX)
_SAMPLE: Final = frozenset(map(chr, [*range(256), 0x100, 0x3B1, 0x661, 0x2028, 0x4E2D, 0x1F600]))
"""Characters that stand for all: two sets overlap if they share one of these."""

_BEYOND: Final = frozenset(each for each in _SAMPLE if ord(each) > 255)

_Node: TypeAlias = "tuple[Any, Any]"
_Characters: TypeAlias = "frozenset[str]"


class UnsafePatternError(ValueError):
    """The expression is no regular expression, or matching it could take for ever."""


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that is safe to match; raises UnsafePatternError."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise UnsafePatternError(f"the pattern has more than {PATTERN_LENGTH_MAX} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = re.compile(pattern)
            nodes = _parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UnsafePatternError(f"{pattern!r} is no regular expression: {error}") from None
    if compiled.flags != re.UNICODE:
        raise UnsafePatternError(f"{pattern!r} sets flags; JSON Schema has none")
    is_anchored = bool(nodes) and str(nodes[0][0]) == "AT" and "BEGINNING" in str(nodes[0][1])
    _check_sequence(pattern, nodes, start_bits=0 if is_anchored else _UNLIMITED_BITS, is_last=True)
    return compiled


def matches(compiled: re.Pattern[str], text: str) -> bool:
    """Tell whether the pattern is found in *text*, in time that is bounded."""
    return len(text) <= PATTERN_TEXT_MAX and compiled.search(text) is not None


def _parse(pattern: str) -> list[_Node]:
    # The parser of `re` has no public name.
    from re import _parser  # type: ignore[attr-defined]  # see above

    return list(_flatten(_parser.parse(pattern)))


def _flatten(nodes: Sequence[_Node]) -> Iterator[_Node]:
    """Yield the nodes with plain groups dissolved: they bound what is captured, not what is matched."""
    for node in nodes:
        name = str(node[0])
        if name == "SUBPATTERN":
            if node[1][1] or node[1][2]:
                raise re.error("a group sets flags")
            yield from _flatten(node[1][3])
        elif name == "ATOMIC_GROUP":
            yield from _flatten(node[1])
        else:
            yield node


def _check_sequence(
    pattern: str, nodes: Sequence[_Node], *, start_bits: float = 0, is_last: bool = False, is_repeated: bool = False
) -> None:
    """Refuse a sequence whose repeats can share out one text in too many ways, and the same in its parts.

    Within a repeat two ways are too many, since each round has them again.
    """
    active: list[tuple[_Characters, float]] = [(_SAMPLE, start_bits)]
    for index, node in enumerate(nodes):
        bits = _choice_bits(node)
        _check_parts(pattern, node, start_bits=start_bits, is_repeated=is_repeated)
        if _is_mandatory(node):
            # What a repeat before this one took ends here, if it can't take this character itself.
            active = [(known, weight) for known, weight in active if known & _entry(node)]
        # What stands last in the whole expression can't fail, so the engine never comes back to its choices.
        if not bits or (is_last and index == len(nodes) - 1):
            continue
        shared = sum(weight for known, weight in active if known & _entry(node))
        if shared + bits > CHOICE_BITS_MAX or (is_repeated and shared):
            raise UnsafePatternError(f"{pattern!r} has repeats that share text; matching could take too long")
        active.append((_characters(node), bits))


def _check_parts(pattern: str, node: _Node, *, start_bits: float, is_repeated: bool) -> None:
    looks_around = str(node[0]).startswith("ASSERT")
    is_loop = _is_repeat(node) and node[1][1] > 1
    for part in _parts(node):
        inner_start = start_bits if looks_around else 0
        _check_sequence(pattern, part, start_bits=inner_start, is_repeated=is_repeated or is_loop)
    if is_loop:
        _check_body(pattern, list(_flatten(node[1][2])))
    if is_repeated and _is_double(node):
        raise UnsafePatternError(f"{pattern!r} can match one text in two ways in each round of a repeat")


def _is_double(node: _Node) -> bool:
    """Tell whether a node alone can match one text in two ways: nothing, or what two alternatives begin with."""
    if _is_repeat(node) and node[1][0] != node[1][1]:
        return not all(any(map(_is_mandatory, part)) for part in _parts(node))
    return str(node[0]) == "BRANCH" and not _begin_apart(list(_parts(node)))


def _entry(node: _Node) -> _Characters:
    """Return the sample characters with which the node can begin."""
    parts = list(_parts(node))
    if (_is_repeat(node) or str(node[0]) == "BRANCH") and all(not part or _is_mandatory(part[0]) for part in parts):
        return frozenset[str]().union(*(_entry(part[0]) for part in parts if part))
    return _characters(node)


def _check_body(pattern: str, body: list[_Node]) -> None:
    """Refuse a repeated part whose rounds can be told apart in several ways."""
    if _is_ambiguous(body) and not (_delimits(body[0], body[1:]) or _delimits(body[-1], body[:-1])):
        raise UnsafePatternError(f"{pattern!r} has a repeat within a repeat; matching could take for ever")


def _is_ambiguous(nodes: Sequence[_Node]) -> bool:
    return any(
        (_is_repeat(node) and node[1][0] != node[1][1])
        or (str(node[0]) == "BRANCH" and not (all(parts := list(_parts(node))) and _begin_apart(parts)))
        or any(map(_is_ambiguous, _parts(node)))
        for node in nodes
    )


def _choice_bits(node: _Node) -> float:
    """Return in how many ways the engine can go on from here, as a power of two."""
    if _is_repeat(node):
        low, high = int(node[1][0]), int(node[1][1])
        inner = 0.0 if high > 1 else _sum_bits(node)
        return log2(min(high - low + 1, PATTERN_TEXT_MAX)) + inner
    if str(node[0]) == "BRANCH":
        return _sum_bits(node) + log2(len(node[1][1]))
    return 0.0


def _sum_bits(node: _Node) -> float:
    return max((sum(map(_choice_bits, part)) for part in _parts(node)), default=0.0)


def _begin_apart(alternatives: Sequence[Sequence[_Node]]) -> bool:
    """Tell whether the next character says which alternative it is; at most one of them is empty."""
    seen: set[str] = set()
    if sum(not alternative for alternative in alternatives) > 1:
        return False
    for alternative in filter(None, alternatives):
        if not _is_mandatory(alternative[0]):
            return False
        first = _entry(alternative[0])
        if seen & first:
            return False
        seen |= first
    return True


def _delimits(node: _Node, others: Sequence[_Node]) -> bool:
    rest = frozenset[str]().union(*(_characters(other) for other in others))
    return _is_mandatory(node) and not _is_repeat(node) and not _characters(node) & rest


def _is_repeat(node: _Node) -> bool:
    return str(node[0]) in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


def _is_mandatory(node: _Node) -> bool:
    if _is_repeat(node):
        return int(node[1][0]) > 0 and all(any(map(_is_mandatory, part)) for part in _parts(node))
    return str(node[0]) in {"LITERAL", "NOT_LITERAL", "IN", "ANY"}


def _parts(node: _Node) -> Iterator[list[_Node]]:
    name, content = str(node[0]), node[1]
    if _is_repeat(node):
        yield list(_flatten(content[2]))
    elif name == "BRANCH":
        yield from (list(_flatten(part)) for part in content[1])
    elif name in {"ASSERT", "ASSERT_NOT"}:
        yield list(_flatten(content[1]))
    elif name == "GROUPREF_EXISTS":
        yield from (list(_flatten(part)) for part in content[1:] if part)


def _characters(node: _Node) -> _Characters:
    """Return the sample characters that can occur in what the node matches."""
    name, content = str(node[0]), node[1]
    if name == "LITERAL":
        return _stand_for(content, content)
    if name == "IN":
        return _members(content)
    if name == "NOT_LITERAL":
        return _SAMPLE - {chr(content)}
    if name == "AT" or name.startswith("ASSERT"):
        return frozenset()
    parts = list(_parts(node))
    if name in {"ANY", "GROUPREF"} or not parts:
        return _SAMPLE
    return frozenset[str]().union(*(_characters(inner) for part in parts for inner in part))


def _stand_for(first: int, last: int) -> _Characters:
    inside = frozenset(each for each in _SAMPLE if first <= ord(each) <= last)
    return inside | _BEYOND if last > 255 else inside


def _members(items: Sequence[_Node]) -> _Characters:
    is_negated = bool(items) and str(items[0][0]) == "NEGATE"
    found: set[str] = set()
    for name, content in ((str(item[0]), item[1]) for item in items):
        if name == "LITERAL":
            found |= _SAMPLE & {chr(content)} if is_negated else _stand_for(content, content)
        elif name == "RANGE":
            inside = _stand_for(*content)
            found |= frozenset(each for each in inside if ord(each) <= content[1]) if is_negated else inside
        elif name == "CATEGORY":
            found |= _category(str(content))
    return _SAMPLE - found if is_negated else frozenset(found)


def _category(name: str) -> _Characters:
    letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.rsplit("_", 1)[1]]
    expression = re.compile("\\" + (letter.upper() if "_NOT_" in name else letter))
    return frozenset(each for each in _SAMPLE if expression.match(each))
