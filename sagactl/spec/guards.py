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

The text is read once, into a tree of just these operators; everything between them is a leaf.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from sagactl.core.template import STRINGS, Reference, parse_expression
from sagactl.dataclass import dataclass

DEPTH_MAX: Final = 32
"""Brackets within brackets; CEL allows no more either."""

BUILT_DEPTH_MAX: Final = 2 * DEPTH_MAX
"""Brackets and conditions within one another that are followed; it is more than CEL allows."""

Steps: TypeAlias = frozenset[str]
_NONE: Final[Steps] = frozenset()

_SUBJECT: Final = r"""steps(?:\.(?P<name>\w+)|\[["'](?P<key>\w+)["']\])\.(?P<field>status|output)"""
_VALUE: Final = r"""(?P<value>null|["'](?:succeeded|skipped)["'])"""
_TESTS: Final = (
    re.compile(rf"{_SUBJECT}\s*(?P<operator>[!=]=)\s*{_VALUE}", re.ASCII),
    re.compile(rf"{_VALUE}\s*(?P<operator>[!=]=)\s*{_SUBJECT}", re.ASCII),
)
_WHEN_TRUE: Final = frozenset({("status", "==", "succeeded"), ("status", "!=", "skipped"), ("output", "!=", "null")})
_WHEN_FALSE: Final = frozenset({("status", "!=", "succeeded"), ("status", "==", "skipped"), ("output", "==", "null")})

_ATOM: Final = re.compile(
    rf"""{"|".join(STRINGS.values())}|["'].*"""
    r"""|(?<=[\w\])])\[\s*(?:\d+|"[^"\\]*"|'[^'\\]*')\s*\]|\.\?|\[\?|&&|\|\||[!=]=|[\w.]+|\s+|.""",
    re.DOTALL | re.ASCII,
)
"""Strings and plain indexes are taken whole: nothing in them looks like structure. One without an end is the rest."""

_OPENERS: Final = frozenset({"(", "[", "{", "[?"})
_CLOSERS: Final = frozenset({")", "]", "}"})


@dataclass(frozen=True, slots=True)
class _Group:
    """What stands between brackets."""

    opener: str
    items: tuple[_Item, ...]


_Item: TypeAlias = "str | _Group"


@dataclass(frozen=True, slots=True)
class _Tree:
    """An expression, and the steps that have succeeded for certain if it is true, or false.

    `guards` has, for each part, the steps that its neighbours make certain while it counts.
    """

    items: tuple[_Item, ...]
    parts: tuple[_Tree, ...] = ()
    guards: tuple[Steps, ...] = ()
    if_true: Steps = _NONE
    if_false: Steps = _NONE
    is_test: bool = False
    is_conjunction: bool = False


def unguarded(text: str, known: Steps = _NONE) -> Iterator[str]:
    """Yield the steps whose output *text* looks at though they may be skipped; *known* have succeeded for certain."""
    items = _read(text)
    # What is nested too deep to follow has no guard; CEL refuses it as well.
    yield from _outputs(text, known) if items is None else _look(_build(items), known)


def conditions(text: str) -> frozenset[str]:
    """Return the conditions that must all hold for *text* to be true, without white space around them."""
    items = _read(text)
    return frozenset({text.strip()}) if items is None else frozenset(_conditions(_build(items)))


def succeeded_if_true(text: str) -> Steps:
    """Return the steps that have succeeded for certain where *text* is true."""
    items = _read(text)
    return _NONE if items is None else _build(items).if_true


def _look(tree: _Tree, known: Steps) -> Iterator[str]:
    if tree.is_test:
        return
    if not tree.guards:
        yield from _outputs(_spell(tree.items, hollow=True), known)
    for index, part in enumerate(tree.parts):
        yield from _look(part, known | tree.guards[index] if tree.guards else known)


def _conditions(tree: _Tree) -> Iterator[str]:
    if tree.is_conjunction:
        for part in tree.parts:
            yield from _conditions(part)
    else:
        yield _spell(tree.items)


def _outputs(text: str, known: Steps) -> Iterator[str]:
    """Yield the steps whose output is mentioned, wherever it is; *known* ones are left out."""
    if not text.strip():
        return
    found = parse_expression(text)
    for path in (found.path,) if isinstance(found, Reference) else found.paths:
        if len(path) > 2 and path[0] == "steps" and path[2] == "output" and path[1] not in known:
            yield str(path[1])


def _read(text: str) -> tuple[_Item, ...] | None:
    """Return *text* as atoms and groups, or None where its brackets don't fit or lie too deep."""
    stack: list[tuple[str, list[_Item]]] = [("", [])]
    for atom in _ATOM.findall(text):
        if atom in _OPENERS:
            stack.append((atom, []))
        elif atom in _CLOSERS:
            opener, items = stack.pop()
            if not stack:
                return None
            stack[-1][1].append(_Group(opener, tuple(items)))
        else:
            stack[-1][1].append(atom)
        if len(stack) > DEPTH_MAX:
            return None
    return tuple(stack[0][1]) if len(stack) == 1 else None


def _build(items: Sequence[_Item], depth: int = 0) -> _Tree:
    items = _strip(items)
    if depth > BUILT_DEPTH_MAX:
        return _Tree(items)
    ternary = _split_ternary(items)
    if ternary is not None:
        test, positive, negative = (_build(part, depth + 1) for part in ternary)
        return _Tree(items, (test, positive, negative), (_NONE, test.if_true, test.if_false))
    disjunction = _split(items, "||")
    if len(disjunction) > 1:
        parts = tuple(_build(part, depth + 1) for part in disjunction)
        certain = _NONE.union(*(part.if_false for part in parts))
        shared = parts[0].if_true.intersection(*(part.if_true for part in parts))
        return _Tree(items, parts, (certain,) * len(parts), if_true=shared, if_false=certain)
    conjunction = _split(items, "&&")
    if len(conjunction) > 1:
        parts = tuple(_build(part, depth + 1) for part in conjunction)
        certain = _NONE.union(*(part.if_true for part in parts))
        shared = parts[0].if_false.intersection(*(part.if_false for part in parts))
        guards = (certain,) * len(parts)
        return _Tree(items, parts, guards, if_true=certain, if_false=shared, is_conjunction=True)
    return _build_leaf(items, depth)


def _build_leaf(items: tuple[_Item, ...], depth: int) -> _Tree:
    if items and items[0] == "!":
        return _build_negation(items, depth)
    test = _read_test(_spell(items))
    if test is not None:
        step, holds = frozenset({test[0]}), test[1]
        return _Tree(items, if_true=step if holds else _NONE, if_false=_NONE if holds else step, is_test=True)
    groups = (item for item in items if isinstance(item, _Group))
    return _Tree(items, tuple(_build(part, depth + 1) for group in groups for part in _split_members(group)))


def _build_negation(items: tuple[_Item, ...], depth: int) -> _Tree:
    """Read any number of `!` at once: CEL allows thousands of them, and each is no level of its own."""
    marks = next((index for index, item in enumerate(items) if item != "!" and not _is_space(item)), len(items))
    is_turned = items[:marks].count("!") % 2 == 1
    inner = _build(items[marks:], depth + 1)
    if_true, if_false = (inner.if_false, inner.if_true) if is_turned else (inner.if_true, inner.if_false)
    return _Tree(items, (inner,), (_NONE,), if_true=if_true, if_false=if_false)


def _read_test(text: str) -> tuple[str, bool] | None:
    """Return the step that *text* tests, and whether it has succeeded if the test is true."""
    for pattern in _TESTS:
        found = pattern.fullmatch(text)
        if found is not None:
            test = found["field"], found["operator"], found["value"].strip("\"'")
            if test in _WHEN_TRUE or test in _WHEN_FALSE:
                return found["name"] or found["key"], test in _WHEN_TRUE
    return None


def _strip(items: Sequence[_Item]) -> tuple[_Item, ...]:
    """Return *items* without white space and brackets around all of them."""
    while True:
        start, end = 0, len(items)
        while start < end and _is_space(items[start]):
            start += 1
        while end > start and _is_space(items[end - 1]):
            end -= 1
        first = items[start] if end - start == 1 else ""
        if not isinstance(first, _Group) or first.opener != "(":
            return tuple(items[start:end])
        items = first.items


def _is_space(item: _Item) -> bool:
    return isinstance(item, str) and item.isspace()


def _split(items: Sequence[_Item], operator: str) -> list[list[_Item]]:
    parts: list[list[_Item]] = [[]]
    for item in items:
        if item == operator:
            parts.append([])
        else:
            parts[-1].append(item)
    return parts


def _split_ternary(items: Sequence[_Item]) -> tuple[Sequence[_Item], Sequence[_Item], Sequence[_Item]] | None:
    if "?" not in items:
        return None
    first = items.index("?")
    open_marks = 0
    for index in range(first, len(items)):
        if items[index] in {"?", ":"}:
            open_marks += 1 if items[index] == "?" else -1
            if open_marks == 0:
                return items[:first], items[first + 1 : index], items[index + 1 :]
    return None


def _split_members(group: _Group) -> Iterator[list[_Item]]:
    """Yield what stands in brackets, split at commas and behind the keys of a map."""
    for member in _split(group.items, ","):
        has_key = ":" in member and ("?" not in member or member.index(":") < member.index("?"))
        if has_key:
            yield member[: member.index(":")]
            yield member[member.index(":") + 1 :]
        else:
            yield member


def _spell(items: Sequence[_Item], *, hollow: bool = False) -> str:
    """Return the text of *items*; *hollow* leaves out what stands in brackets."""
    return "".join(
        item if isinstance(item, str) else f"{item.opener}{'' if hollow else _spell(item.items)})" for item in items
    )
