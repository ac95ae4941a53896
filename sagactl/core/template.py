"""Values with `${{ … }}` in them: parsed once, rendered without ever looking at a result again (rule F3).

A plain reference (`input.a[0].b`, `steps.x.output.y`) is resolved here, so integers of any size and decimals stay
exact. Everything else is an expression of CEL, whose evaluation is somebody else's business: the core only knows the
`Evaluator` protocol. What an expression yields is data; a value that contains `${{` is just text with odd characters.

The syntax in short: a string that is one expression keeps the type of its value; text around it makes a string;
`$${{` stands for the characters `${{`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final, Protocol, TypeAlias, assert_never, cast

from sagactl.core.canonical import Json, canonical
from sagactl.core.keys import SECRET_MARK
from sagactl.dataclass import dataclass

ROOTS: Final = frozenset({"input", "steps", "item", "index", "run", "args", "output", "secrets"})

EXPRESSION_LENGTH_MAX: Final = 4_000
"""Characters of one expression; what is longer belongs into a tool."""

Scope: TypeAlias = Mapping[str, object]
Path: TypeAlias = tuple[str | int, ...]


class TemplateSyntaxError(ValueError):
    """The text between the braces is unfinished, empty or too long; `offset` counts characters of the string."""

    def __init__(self, message: str, offset: int, *, code: str = "bad-expression") -> None:
        super().__init__(message)
        self.offset = offset
        self.code = code


class ExpressionError(ValueError):
    """An expression has no value here; the step is refused (E21)."""


class Evaluator(Protocol):
    """What the core needs from outside to dispatch a call; both methods are pure functions."""

    def evaluate(self, expression: str, scope: Scope) -> Json:
        """Return the value of a CEL *expression*; raises ExpressionError."""
        ...

    def check_arguments(self, tool: str, arguments: Json) -> str | None:
        """Return what is wrong with *arguments* by the pinned schema of *tool*, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Literal:
    """A value without expressions."""

    value: Json


@dataclass(frozen=True, slots=True)
class Reference:
    """A plain path from one of the roots."""

    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class Expression:
    """CEL; `paths` are the references that occur in it, found by reading its tokens."""

    text: str
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Text around expressions."""

    parts: tuple[str | Reference | Expression, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list with expressions somewhere in it."""

    items: tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map with expressions somewhere in its values."""

    entries: tuple[tuple[str, Template], ...]


Template: TypeAlias = "Literal | Reference | Expression | Text | ListOf | MapOf"

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_STEP = rf"\.{_NAME}|\[\d{{1,6}}\]|\[\"[^\"\\]*\"\]|\['[^'\\]*'\]"
_REFERENCE: Final = re.compile(rf"\s*({_NAME})((?:{_STEP})*)\s*", re.ASCII)
_PATH_STEP: Final = re.compile(rf"\.({_NAME})|\[(\d{{1,6}})\]|\[\"([^\"\\]*)\"\]|\['([^'\\]*)'\]", re.ASCII)
_MARKS: Final = ('"""', "'''", '"', "'")
STRINGS: Final = {mark: rf"{mark}(?:[^\\]|\\.)*?{mark}" for mark in _MARKS}
"""The patterns of strings in CEL, by the mark that they begin and end with; a dot stands for any character.

They hold for raw strings too: the library takes none in which a backslash stands before its mark.
"""


@lru_cache(maxsize=1 << len(_MARKS))
def _compile_tokens(marks: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of strings, paths and braces; a group is named after the mark that no other one closes."""
    strings = "".join(rf"{STRINGS[mark]}|(?P<open{_MARKS.index(mark)}>{mark})|" for mark in marks)
    path = rf"(?P<path>(?<![\w.])(?:{_NAME})(?:(?:{_STEP})(?!\w|\s*\())*)"
    return re.compile(rf"{strings}{path}|(?P<brace>[{{}}])", re.ASCII | re.DOTALL)


_OPEN: Final = re.compile(r"\$?\$\{\{")


def parse_template(value: Json) -> Template:
    """Turn a value as written into a template; raises TemplateSyntaxError."""
    if isinstance(value, str):
        return _parse_text(value)
    if isinstance(value, list):
        items = tuple(parse_template(item) for item in value)
        if all(isinstance(item, Literal) for item in items):
            return Literal([item.value for item in items if isinstance(item, Literal)])
        return ListOf(items)
    if isinstance(value, dict):
        entries = tuple((key, parse_template(child)) for key, child in value.items())
        if all(isinstance(child, Literal) for _, child in entries):
            return Literal({key: child.value for key, child in entries if isinstance(child, Literal)})
        return MapOf(entries)
    return Literal(value)


def _parse_text(text: str) -> Template:
    parts = [part for part in _split(text) if part != ""]
    if not any(isinstance(part, Reference | Expression) for part in parts):
        return Literal("".join(cast("list[str]", parts)))
    if len(parts) == 1:
        return cast("Reference | Expression", parts[0])
    return Text(tuple(parts))


def _split(text: str) -> Iterator[str | Reference | Expression]:
    position = 0
    while opening := _OPEN.search(text, position):
        yield text[position : opening.start()]
        if opening.group().startswith("$$"):
            yield "${{"
            position = opening.end()
            continue
        end = _find_end(text, opening.end())
        yield parse_expression(text[opening.end() : end], opening.end())
        position = end + 2
    yield text[position:]


def _find_end(text: str, start: int) -> int:
    depth = 0
    for token in _tokens(text, start):
        if token.lastgroup != "brace":
            continue
        if depth == 0 and text.startswith("}}", token.start()):
            return token.start()
        depth += 1 if token.group() == "{" else -1
    raise TemplateSyntaxError("${{ without }}", start - 3)


def _tokens(text: str, position: int = 0) -> Iterator[re.Match[str]]:
    """Yield strings, paths and braces, in a time that grows with the length of *text* alone.

    Behind a mark that no other one closes, further ones of its kind are escaped and nothing closes them either: strings
    in such marks are not looked for again.
    """
    marks: tuple[str, ...] = _MARKS
    while (token := _compile_tokens(marks).search(text, position)) is not None:
        if token.lastgroup is not None and token.lastgroup.startswith("open"):
            marks = tuple(mark for mark in marks if mark != token.group())
            position = token.start()
        else:
            position = token.end()
            yield token


def parse_expression(text: str, offset: int = 0) -> Reference | Expression:
    """Read what stands between the braces; *offset* is where it begins in its string."""
    if not text.strip():
        raise TemplateSyntaxError("an empty expression", offset)
    if (length := len(text.strip())) > EXPRESSION_LENGTH_MAX:
        message = f"the expression has {length} characters; at most {EXPRESSION_LENGTH_MAX} are allowed"
        raise TemplateSyntaxError(message, offset, code="over-limit")
    plain = _REFERENCE.fullmatch(text)
    if plain is not None and plain.group(1) in ROOTS:
        return Reference(_parse_path(text.strip()), text.strip())
    paths = tuple(
        _parse_path(token.group("path"))
        for token in _tokens(text)
        if token.lastgroup == "path" and token.group("path").split(".")[0].split("[")[0] in ROOTS
    )
    return Expression(text.strip(), paths)


def _parse_path(text: str) -> Path:
    head = re.match(_NAME, text, re.ASCII)
    assert head is not None
    path: list[str | int] = [head.group()]
    for name, index, double, single in _PATH_STEP.findall(text[head.end() :]):
        path.append(int(index) if index else name or double or single)
    return tuple(path)


def references(template: Template) -> Iterator[Reference | Expression]:
    """Yield each reference and expression in *template*, in the order written."""
    match template:
        case Reference() | Expression():
            yield template
        case Text(parts):
            yield from (part for part in parts if not isinstance(part, str))
        case ListOf(items):
            for item in items:
                yield from references(item)
        case MapOf(entries):
            for _, child in entries:
                yield from references(child)
        case _:
            assert isinstance(template, Literal), "a literal has no references"


def paths_of(template: Template) -> Iterator[Path]:
    """Yield the path of each reference, those inside expressions included."""
    for found in references(template):
        if isinstance(found, Reference):
            yield found.path
        else:
            yield from found.paths


def render(template: Template, scope: Scope, evaluator: Evaluator) -> Json:
    """Return the value of *template* in *scope*; raises ExpressionError."""
    match template:
        case Literal(value):
            return value
        case Reference() | Expression():
            return _value_of(template, scope, evaluator)
        case Text(parts):
            return "".join(
                part if isinstance(part, str) else _as_text(part, _value_of(part, scope, evaluator)) for part in parts
            )
        case ListOf(items):
            return [render(item, scope, evaluator) for item in items]
        case MapOf(entries):
            return {key: render(child, scope, evaluator) for key, child in entries}
        case _:
            assert_never(template)


def _value_of(found: Reference | Expression, scope: Scope, evaluator: Evaluator) -> Json:
    if isinstance(found, Reference) and found.path[0] == "secrets":
        return {SECRET_MARK: str(found.path[1])}
    value = _evaluate(found, scope, evaluator)
    is_recorded = isinstance(found, Reference) and found.path[0] == "args"
    if not is_recorded and _names_secret(value):
        raise ExpressionError(f"data can't name a secret: there is a key {SECRET_MARK} in {found.text}")
    return value


def _names_secret(value: object) -> bool:
    """Tell whether data holds what we write for a secret: resolving it would let data choose a secret (E19, X1).

    In recorded arguments (`args`) it is no data: templates wrote it there, and an undo may use the action's secret.
    """
    if isinstance(value, Mapping):
        return SECRET_MARK in value or any(map(_names_secret, value.values()))
    return isinstance(value, list) and any(map(_names_secret, value))


def _evaluate(found: Reference | Expression, scope: Scope, evaluator: Evaluator) -> Json:
    if isinstance(found, Reference):
        return _follow(found, scope)
    if "output" in scope and scope["output"] is None and any(path[0] == "output" for path in found.paths):
        return None
    return evaluator.evaluate(found.text, scope)


def _follow(reference: Reference, scope: Scope) -> Json:
    root = str(reference.path[0])
    if root not in scope:
        raise ExpressionError(f"{root} is not known here, in {reference.text}")
    value = scope[root]
    if value is None and root == "output":
        return None  # the action left no output: its compensation is told so by null (E7)
    return follow_path(reference, value)


def follow_path(reference: Reference, value: object) -> Json:
    """Return what lies at the end of *reference* in *value*, that of its root; raises ExpressionError."""
    for depth, step in enumerate(reference.path[1:], start=1):
        value = _descend(value, step, reference, depth)
    return cast("Json", value)


def _descend(value: object, step: str | int, reference: Reference, depth: int) -> object:
    here = spell_path(reference.path[:depth])
    if isinstance(step, int):
        if not isinstance(value, list):
            raise ExpressionError(f"{here} is no list, in {reference.text}")
        if step >= len(value):
            raise ExpressionError(f"{here} has {len(value)} items, no [{step}], in {reference.text}")
        return value[step]
    if not isinstance(value, Mapping):
        raise ExpressionError(f"{here} is {_kind(value)}, so it has no {step}, in {reference.text}")
    if step not in value:
        raise ExpressionError(f"{here} has no {step}, in {reference.text}")
    return value[step]


def spell_path(path: Path) -> str:
    """Return *path* as sagas write it, `items[0].id`; empty for an empty one."""
    if not path:
        return ""
    return str(path[0]) + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path[1:])


def _kind(value: object) -> str:
    names = {type(None): "null", bool: "a boolean", int: "a number", Decimal: "a number", str: "text", list: "a list"}
    return names.get(type(value), type(value).__name__)


def _as_text(part: Reference | Expression, value: Json) -> str:
    if isinstance(value, str):
        return value
    if value is None or _names_secret(value):
        what = "null" if value is None else "a secret"
        raise ExpressionError(f"{what} can't be part of a text, in {part.text}")
    return canonical(value)


def write_template(template: Template) -> Json:
    """Return the value as one would write it: `parse_template` gives the same template back."""
    match template:
        case Literal(value):
            return _escape(value)
        case Reference(text=text) | Expression(text=text):
            return f"${{{{ {text} }}}}"
        case Text(parts):
            return "".join(
                cast("str", _escape(part)) if isinstance(part, str) else f"${{{{ {part.text} }}}}" for part in parts
            )
        case ListOf(items):
            return [write_template(item) for item in items]
        case MapOf(entries):
            return {key: write_template(child) for key, child in entries}
        case _:
            assert_never(template)


def _escape(value: Json) -> Json:
    if isinstance(value, str):
        return value.replace("${{", "$${{")
    if isinstance(value, list):
        return [_escape(item) for item in value]
    if isinstance(value, dict):
        return {key: _escape(child) for key, child in value.items()}
    return value
