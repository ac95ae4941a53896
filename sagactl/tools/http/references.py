"""Values of a declaration with `${{ … }}` in them: plain references, and nothing that would have to be evaluated.

What a reference leads to is data. It is put where the reference stood and never looked at again, and each place encodes
it in its own way (`requests`), so that no value can become another part of the request.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Final, TypeAlias

from sagactl.core.canonical import Json, canonical
from sagactl.core.template import (
    ExpressionError,
    ListOf,
    Literal,
    MapOf,
    Path,
    Reference,
    Template,
    TemplateSyntaxError,
    Text,
    references,
    spell_path,
)

REQUEST_ROOTS: Final = frozenset({"args", "key", "forward_key", "context", "secrets"})
ANSWER_ROOTS: Final = frozenset({"response", "args", "key", "forward_key"})
CONTEXT_FIELDS: Final = ("run_id", "step", "item", "direction", "attempt", "tool", "traceparent")
RESPONSE_FIELDS: Final = ("body", "status", "headers")

Scope: TypeAlias = Mapping[str, Json]

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_STEPS: Final = rf"(?:\.{_NAME}|\[\d{{1,6}}\]|\[\"[^\"\\]*\"\]|\['[^'\\]*'\])*"
REFERENCE: Final = re.compile(rf"\s*({_NAME}{_STEPS})\s*", re.ASCII)
_STEP: Final = re.compile(rf"\.({_NAME})|\[(\d{{1,6}})\]|\[\"([^\"\\]*)\"\]|\['([^'\\]*)'\]", re.ASCII)
_OPENING: Final = re.compile(r"\$?\$\{\{")


class Missing:
    """What a reference leads to where an optional argument wasn't given."""

    def __repr__(self) -> str:
        """Return what it is."""
        return "MISSING"


MISSING: Final = Missing()


def parse(value: Json, roots: Collection[str]) -> Template:
    """Turn a value as written into a template; raises TemplateSyntaxError for all but plain references."""
    if isinstance(value, str):
        return _parse_text(value, roots)
    if isinstance(value, list):
        return ListOf(tuple(parse(item, roots) for item in value))
    if isinstance(value, dict):
        return MapOf(tuple((key, parse(child, roots)) for key, child in value.items()))
    return Literal(value)


def _parse_text(text: str, roots: Collection[str]) -> Template:
    parts = [part for part in _split(text, roots) if part != ""]
    if all(isinstance(part, str) for part in parts):
        return Literal("".join(map(str, parts)))
    first = parts[0]
    return first if len(parts) == 1 and not isinstance(first, str) else Text(tuple(parts))


def _split(text: str, roots: Collection[str]) -> Iterator[str | Reference]:
    position = 0
    while opening := _OPENING.search(text, position):
        yield text[position : opening.start()]
        if opening.group().startswith("$$"):
            yield "${{"
            position = opening.end()
            continue
        end = text.find("}}", opening.end())
        if end < 0:
            raise TemplateSyntaxError("${{ without }}", opening.start())
        yield parse_reference(text[opening.end() : end], roots, opening.start())
        position = end + 2
    yield text[position:]


def parse_reference(text: str, roots: Collection[str], offset: int = 0) -> Reference:
    """Read what stands between the braces; raises TemplateSyntaxError."""
    found = REFERENCE.fullmatch(text)
    if found is None:
        raise TemplateSyntaxError("only a plain reference may stand here, such as `args.email`", offset)
    path = _parse_path(found[1])
    if path[0] not in roots:
        known = ", ".join(sorted(roots))
        raise TemplateSyntaxError(f"{path[0]} is not known here; known are {known}", offset, code="unknown-reference")
    _check_path(path, offset)
    if path[:2] == ("response", "headers"):
        path = (*path[:2], *(str(step).lower() for step in path[2:]))  # names of headers have no case
    return Reference(path, found[1])


def _parse_path(text: str) -> Path:
    head = re.match(_NAME, text, re.ASCII)
    assert head is not None, "the text is a reference"
    path: list[str | int] = [head.group()]
    for name, index, double, single in _STEP.findall(text[head.end() :]):
        path.append(int(index) if index else name or double or single)
    return tuple(path)


def _check_path(path: Path, offset: int) -> None:
    root, rest = path[0], path[1:]
    fields = {"context": CONTEXT_FIELDS, "response": RESPONSE_FIELDS}.get(str(root))
    if root in {"key", "forward_key"} and rest:
        raise TemplateSyntaxError(f"{root} is a text; it has no {spell_path(rest)}", offset)
    if root == "secrets" and (len(rest) != 1 or not isinstance(rest[0], str)):
        raise TemplateSyntaxError("a secret is written secrets.NAME", offset)
    if fields is not None and (not rest or rest[0] not in fields):
        raise TemplateSyntaxError(f"{root} has {', '.join(fields)}", offset, code="unknown-reference")


def roots_of(template: Template, root: str) -> Iterator[Reference]:
    """Yield the references of *template* that begin with *root*."""
    return (found for found in references(template) if isinstance(found, Reference) and found.path[0] == root)


def render(template: Template, scope: Scope) -> Json | Missing:
    """Return the value; entries and items that are missing are left out. Raises ExpressionError."""
    match template:
        case Literal(value):
            return value
        case Reference():
            return look_up(template, scope)
        case Text(parts):
            return "".join(part if isinstance(part, str) else _in_text(part, scope) for part in parts)
        case ListOf(items):
            rendered = [render(item, scope) for item in items]
            return [item for item in rendered if not isinstance(item, Missing)]
        case MapOf(entries):
            members = {key: render(child, scope) for key, child in entries}
            return {key: member for key, member in members.items() if not isinstance(member, Missing)}
    raise AssertionError("declarations hold plain references alone")


def _in_text(part: object, scope: Scope) -> str:
    assert isinstance(part, Reference), "declarations hold plain references alone"
    return as_text(look_up(part, scope), part.text)


def as_text(value: Json | Missing, what: str) -> str:
    """Return a single value as it stands in a text; raises ExpressionError for lists, maps and nothing."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, Missing):
        raise ExpressionError(f"{what} has no value, and it stands in a text")
    if isinstance(value, list | dict):
        raise ExpressionError(f"{what} is a {'list' if isinstance(value, list) else 'map'}, and it stands in a text")
    if isinstance(value, bool):
        return "true" if value else "false"
    return canonical(value) if isinstance(value, Decimal) else str(value)


def look_up(reference: Reference, scope: Scope) -> Json | Missing:
    """Return what a reference leads to; MISSING for an argument that isn't there, or below one that is null."""
    value: Json = scope[str(reference.path[0])]
    for depth, step in enumerate(reference.path[1:], start=1):
        found = _step_into(value, step)
        if isinstance(found, Missing):
            if reference.path[0] in {"args", "context"}:
                return MISSING
            raise ExpressionError(f"there is no {spell_path(reference.path[: depth + 1])}")
        value = found
    return value


def _step_into(value: Json, step: str | int) -> Json | Missing:
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else MISSING
    return value[step] if isinstance(value, dict) and step in value else MISSING
