"""Whether an expression looks at the output of a step that may have been skipped (rule F3).

A step with `when` that is skipped has a null output, so `steps.x.output.y` would refuse the step that asks for it. Such
a reference must be guarded: it may be looked at only where it is certain that `x` has succeeded. What counts as certain
is deliberately simple, and sound:

* a test is `steps.x.status == "succeeded"`, `steps.x.status != "skipped"` or `steps.x.output != null`, or the contrary
  of one of these, with the sides in either order;
* in `A && B` each side is guarded by the tests in the other, since CEL takes false over an error; in `A || B` by the
  contrary tests; in `T ? A : B` the test guards A, its contrary B;
* the `when` of a step guards all that the step says; and a step whose `when` has all the conditions of `x`'s own runs
  only if `x` did, since both see the same values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from sagactl.core.template import Reference, parse_expression

_SUBJECT: Final = r"""steps(?:\.(?P<name>\w+)|\[["'](?P<key>\w+)["']\])\.(?P<field>status|output)"""
_VALUE: Final = r"""(?P<value>null|["'](?:succeeded|skipped)["'])"""
_TESTS: Final = (
    re.compile(rf"{_SUBJECT}\s*(?P<operator>[!=]=)\s*{_VALUE}", re.ASCII),
    re.compile(rf"{_VALUE}\s*(?P<operator>[!=]=)\s*{_SUBJECT}", re.ASCII),
)
_WHEN_TRUE: Final = frozenset({("status", "==", "succeeded"), ("status", "!=", "skipped"), ("output", "!=", "null")})
_WHEN_FALSE: Final = frozenset({("status", "!=", "succeeded"), ("status", "==", "skipped"), ("output", "==", "null")})
_ATOM: Final = re.compile(
    r"""r?\"{3}.*?\"{3}|r?'{3}.*?'{3}|r?"(?:[^"\\]|\\.)*"|r?'(?:[^'\\]|\\.)*'"""
    r"""|(?<=[\w\])])\[\s*(?:\d+|"[^"\\]*"|'[^'\\]*')\s*\]|\.\?|\[\?|&&|\|\||.""",
    re.DOTALL | re.ASCII,
)
"""Strings and plain indexes are taken whole, so that nothing in them looks like structure."""

_OPENERS: Final = frozenset({"(", "[", "{", "[?"})
_CLOSERS: Final = frozenset({")", "]", "}"})
_DEPTH_MAX: Final = 64

Steps: TypeAlias = frozenset[str]
_NONE: Final[Steps] = frozenset()


def unguarded(text: str, known: Steps = _NONE) -> Iterator[str]:
    """Yield the steps whose output *text* looks at though they may be skipped; *known* have succeeded for certain."""
    yield from _unguarded(text, known, 0)


def conditions(text: str) -> frozenset[str]:
    """Return the conditions that must all hold for *text* to be true, without white space around them."""
    parts = _split(_strip(text), "&&")
    if len(parts) == 1:
        return frozenset(parts)
    return frozenset[str]().union(*(conditions(part) for part in parts))


def succeeded_if_true(text: str) -> Steps:
    """Return the steps that have succeeded for certain where *text* is true."""
    return _certain(_strip(text), holds=True, depth=0)


def _unguarded(text: str, known: Steps, depth: int) -> Iterator[str]:
    text = _strip(text)
    if depth > _DEPTH_MAX:
        yield from _outputs(text, known)
        return
    ternary = _split_ternary(text)
    if ternary is not None:
        test, positive, negative = ternary
        yield from _unguarded(test, known, depth + 1)
        yield from _unguarded(positive, known | _certain(test, holds=True, depth=depth), depth + 1)
        yield from _unguarded(negative, known | _certain(test, holds=False, depth=depth), depth + 1)
        return
    for operator, holds in (("||", False), ("&&", True)):
        parts = _split(text, operator)
        if len(parts) > 1:
            tests = [_certain(part, holds=holds, depth=depth) for part in parts]
            whole = known.union(*tests)
            for part in parts:
                yield from _unguarded(part, whole, depth + 1)
            return
    yield from _unguarded_leaf(text, known, depth)


def _unguarded_leaf(text: str, known: Steps, depth: int) -> Iterator[str]:
    if _read_test(text) is not None:
        return
    outside, groups = _split_groups(text)
    yield from _outputs(outside, known)
    for group in groups:
        yield from _unguarded(group, known, depth + 1)


def _outputs(text: str, known: Steps) -> Iterator[str]:
    """Yield the steps whose output is mentioned, wherever it is; *known* ones are left out."""
    if not text.strip():
        return
    found = parse_expression(text)
    for path in (found.path,) if isinstance(found, Reference) else found.paths:
        if len(path) > 2 and path[0] == "steps" and path[2] == "output" and path[1] not in known:
            yield str(path[1])


def _certain(text: str, *, holds: bool, depth: int) -> Steps:
    """Return the steps that have succeeded for certain where *text* is true (or false, if it doesn't hold)."""
    text = _strip(text)
    if depth > _DEPTH_MAX or _split_ternary(text) is not None:
        return _NONE
    for operator, all_hold in (("||", False), ("&&", True)):
        parts = _split(text, operator)
        if len(parts) > 1:
            each = [_certain(part, holds=holds, depth=depth + 1) for part in parts]
            return _NONE.union(*each) if holds is all_hold else each[0].intersection(*each[1:])
    if text.startswith("!"):
        return _certain(text[1:], holds=not holds, depth=depth + 1)
    test = _read_test(text)
    return frozenset({test[0]}) if test is not None and test[1] is holds else _NONE


def _read_test(text: str) -> tuple[str, bool] | None:
    """Return the step that *text* tests, and whether it has succeeded if the test is true."""
    for pattern in _TESTS:
        found = pattern.fullmatch(text)
        if found is not None:
            test = found["field"], found["operator"], found["value"].strip("\"'")
            if test in _WHEN_TRUE or test in _WHEN_FALSE:
                return found["name"] or found["key"], test in _WHEN_TRUE
    return None


def _levels(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the atoms of *text* with their offset and depth; brackets belong to the level around them."""
    depth = 0
    for found in _ATOM.finditer(text):
        atom = found.group()
        if atom in _CLOSERS:
            depth -= 1
        yield atom, found.start(), depth
        if atom in _OPENERS:
            depth += 1


def _strip(text: str) -> str:
    """Return *text* without white space and brackets around all of it."""
    text = text.strip()
    for _ in range(_DEPTH_MAX):
        if not (text.startswith("(") and text.endswith(")")):
            return text
        closing = next((at for atom, at, depth in _levels(text) if atom == ")" and depth == 0), -1)
        if closing != len(text) - 1:
            return text
        text = text[1:-1].strip()
    return text


def _split(text: str, operator: str) -> list[str]:
    """Split at *operator* outside all brackets."""
    parts, start = [], 0
    for atom, at, depth in _levels(text):
        if atom == operator and depth == 0:
            parts.append(text[start:at].strip())
            start = at + len(operator)
    return [*parts, text[start:].strip()]


def _split_ternary(text: str) -> tuple[str, str, str] | None:
    first = next((at for atom, at, depth in _levels(text) if atom == "?" and depth == 0), None)
    if first is None:
        return None
    open_marks = 0
    for atom, at, depth in _levels(text):
        if depth != 0 or at < first or atom not in {"?", ":"}:
            continue
        open_marks += 1 if atom == "?" else -1
        if open_marks == 0:
            return text[:first], text[first + 1 : at], text[at + 1 :]
    return None


def _split_groups(text: str) -> tuple[str, list[str]]:
    """Return what stands outside all brackets, and what stands in each, split at commas and at the colons of a map."""
    outside: list[str] = []
    groups: list[list[str]] = []
    for atom, _, depth in _levels(text):
        if depth == 0:
            outside.append(atom)
            if atom in _OPENERS:
                groups.append([])
        elif depth == 1 and (atom == "," or (atom == ":" and "?" not in groups[-1])):
            groups.append([])
        elif groups:
            groups[-1].append(atom)
    return "".join(outside), ["".join(group) for group in groups]
