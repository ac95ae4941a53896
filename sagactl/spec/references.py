"""What expressions may look at, place by place (rule F3), and what they find there by the schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import Enum
from typing import Final

from sagactl.core.canonical import Json
from sagactl.core.template import Expression, Path
from sagactl.dataclass import dataclass
from sagactl.spec.expressions import PlacedExpression
from sagactl.spec.graph import Graph
from sagactl.spec.guards import unguarded
from sagactl.spec.printed import hint_about
from sagactl.spec.schema_types import NoSuchFieldError, Typed, array_of, descend
from sagactl.written.findings import Findings
from sagactl.written.source import Span
from sagactl.written.visible import name_odd, quote

_RUN: Final[Mapping[str, Json]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string"},
        "saga": {"type": "string"},
        "key": {"type": ["string", "null"]},
    },
}
_STATUS: Final[Mapping[str, Json]] = {"enum": ["succeeded", "skipped"]}
_INDEX: Final[Mapping[str, Json]] = {"type": "integer"}


_NAMES_SHOWN_MAX: Final = 20
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[\d+\])*", re.ASCII)


class Place(Enum):
    """Where an expression stands, with the roots that it may use there."""

    RUN_KEY = ("run_key", frozenset({"input"}))
    WHEN = ("when", frozenset({"input", "steps", "run"}))
    FOREACH = ("foreach", frozenset({"input", "steps", "run"}))
    APPROVAL = ("approval", frozenset({"input", "steps", "run"}))
    GUARD = ("guard", frozenset({"input", "steps", "run", "item", "index"}))
    ACTION = ("with", frozenset({"input", "steps", "run", "item", "index", "secrets"}))
    UNDO = (
        "the compensation's with",
        frozenset({"input", "steps", "run", "item", "index", "secrets", "args", "output"}),
    )
    OUTPUT = ("output", frozenset({"input", "steps", "run"}))

    def __init__(self, title: str, roots: frozenset[str]) -> None:
        self.title = title
        self.roots = roots


@dataclass(frozen=True)
class Facts:
    """What is known about the values of the whole saga; steps by their index."""

    graph: Graph
    input: Typed
    outputs: Mapping[int, Typed]
    conditional: frozenset[str]
    """Ids of the steps that may be skipped."""

    findings: Findings


@dataclass(frozen=True)
class View:
    """What one place can see. `step` is None for the saga's own keys; `own` are the roots that differ by step."""

    place: Place
    facts: Facts
    step: int | None = None
    succeeded: frozenset[str] = frozenset()
    own: Mapping[str, Typed] = field(default_factory=dict)


def check_expression(placed: PlacedExpression, view: View) -> None:
    """Note everything that the expression refers to and can't see, or that isn't there."""
    if is_misspelt(placed):
        _report_root(_NAME.findall(placed.found.text)[0], placed.span, view)
        return
    for path in dict.fromkeys(placed.paths):
        _check_path(path, placed, view)
    _check_guards(placed, view)


def is_misspelt(placed: PlacedExpression) -> bool:
    """Tell whether this looks like a plain reference, but begins with no known root."""
    text = placed.found.text
    is_plain = isinstance(placed.found, Expression) and _PLAIN.fullmatch(text) is not None
    return is_plain and text not in {"true", "false", "null"}


def _check_path(path: Path, placed: PlacedExpression, view: View) -> None:
    root = str(path[0])
    span = _span_of(path, placed)
    if root == "secrets":
        if root not in view.place.roots:
            message = f"a secret may stand only in with, not in {view.place.title}"
            view.facts.findings.error("secret-place", message, span)
        # In `with` it is a matter of the property: `arguments` looks at it.
    elif root not in view.place.roots:
        _report_root(root, span, view)
    elif root == "steps":
        _check_step_path(path, span, view)
    elif root in {"item", "index"} and root not in view.own:
        message = f"{root} is known only in a step with foreach"
        view.facts.findings.error("unknown-root", message, span)
    else:
        _check_fields(path, 1, root_type(path, view), span, view)
        if root == "input" and not isinstance(placed.found, Expression):
            _warn_of_gaps(path, span, view)


def _warn_of_gaps(path: Path, span: Span, view: View) -> None:
    """Warn of a plain reference to an input that may not be given: the step that asks for it would be refused."""
    typed = view.facts.input
    for depth, step in enumerate(path[1:], start=1):
        schema = typed.resolve().schema
        try:
            typed = descend(typed, step)
        except NoSuchFieldError:
            return
        if isinstance(schema, dict) and isinstance(step, str) and _may_be_missing(schema, step, typed):
            message = f"{spell(path[: depth + 1])} is optional and has no default: without it this is refused"
            hint = "list it under required, give it a default, or ask has(...) first"
            view.facts.findings.warning("maybe-missing", message, span, hint=hint)
            return


def _may_be_missing(schema: dict[str, Json], name: str, typed: Typed) -> bool:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or name not in properties:
        return False
    is_required = isinstance(required, list) and name in required
    has_default = isinstance(typed.schema, dict) and "default" in typed.schema
    return not (is_required or has_default)


def _span_of(path: Path, placed: PlacedExpression) -> Span:
    """Return the place of a reference in its expression: from its root to the end of its last plain name."""
    text = placed.found.text
    spelled = spell(path)
    at = text.find(spelled)
    return placed.span if at < 0 or not isinstance(placed.found, Expression) else placed.part(at, len(spelled))


def spell(path: Path) -> str:
    """Return a path as one writes it."""
    return str(path[0]) + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path[1:])


def _report_root(root: str, span: Span, view: View) -> None:
    place = view.place
    if root in {"args", "output"} and place is Place.ACTION:
        message = f"{root} is that of the action itself, so only its compensation knows it"
        view.facts.findings.error("unknown-root", message, span, hint="use steps.<id>.output of a step before this one")
        return
    known = ", ".join(sorted(place.roots - {"secrets"}))
    message = f"{quote(root)} is not known in {place.title}"
    view.facts.findings.unknown("unknown-root", message, span, word=root, known=place.roots, hint=f"known is {known}")


def _check_step_path(path: Path, span: Span, view: View) -> None:
    findings, graph = view.facts.findings, view.facts.graph
    if len(path) < 2 or isinstance(path[1], int):
        message = "steps is followed by the id of a step, as in steps.lead.output"
        findings.error("unknown-step", message, span)
        return
    name = path[1]
    if name not in graph.index:
        message = f"there is no step {quote(name)}{name_odd(name)}"
        hint = "steps.<id> names a step of this file"
        findings.unknown("unknown-step", message, span, word=name, known=graph.index, hint=hint)
        return
    if not _check_order(name, span, view):
        return
    if len(path) < 3 or path[2] not in {"output", "status"}:
        asked = f"no {path[2]}" if len(path) > 2 else "two fields"
        message = f"steps.{name} has {asked}; it has output and status"
        findings.error("unknown-field", message, span, hint=f"write steps.{name}.output")
        return
    _check_fields(path, 3, _typed_step(graph.index[name], path[2], view), span, view)


def _check_order(name: str, span: Span, view: View) -> bool:
    """Tell whether the step is finished when this is evaluated; notes it where not."""
    graph, findings = view.facts.graph, view.facts.findings
    position = graph.index[name]
    if view.step is None or graph.is_ancestor(position, view.step):
        return True
    own = graph.steps[view.step]
    if position == view.step:
        known_by = "args and output" if view.place is Place.UNDO else "input and the steps before it"
        findings.error("not-an-ancestor", f"{own.label} can't look at itself", span, hint=f"it knows {known_by}")
    elif graph.is_ancestor(view.step, position):
        message = f"{name} comes after {own.id or own.label}, so it has no output yet"
        findings.error("not-an-ancestor", message, span)
    else:
        message = f"{name} may not be finished when {own.id or own.label} starts"
        findings.error("not-an-ancestor", message, span, hint=f"add {name} to the needs of {own.id or own.label}")
    return False


def _typed_step(position: int, field_name: str | int, view: View) -> Typed:
    if field_name == "status":
        return Typed.of(_STATUS)
    return view.facts.outputs.get(position, Typed.of({}))


def root_type(path: Path, view: View) -> Typed:
    """Return the schema of the root of *path*."""
    root = str(path[0])
    if root in view.own:
        return view.own[root]
    return {"input": view.facts.input, "run": Typed.of(_RUN)}.get(root, Typed.of({}))


def _check_fields(path: Path, start: int, typed: Typed, span: Span, view: View) -> None:
    for depth in range(start, len(path)):
        try:
            typed = descend(typed, path[depth])
        except NoSuchFieldError as error:
            message, word = f"{spell(path[:depth])} {error}", str(path[depth])
            known = f"it has {', '.join(error.known[:_NAMES_SHOWN_MAX])}" if error.known else None
            hint = known or hint_about(typed.schema)
            if path[0] == "input" and depth == 1 and hint is None:
                hint = "declare it under input: the saga takes none so far"
            if path[0] == "args" and depth == 1:
                message = f"the undo needs {spell(path[: depth + 1])}, and the step doesn't give it"
                hint = f"write with: {{{quote(word)}: ...}}; what is left to a default can't be known to an undo"
            view.facts.findings.unknown("unknown-field", message, span, word=word, known=error.known, hint=hint)
            return


def type_at(path: Path, view: View) -> Typed:
    """Return the schema at the end of *path*; of anything where it isn't known (mistakes are told elsewhere)."""
    try:
        if path[0] == "steps" and path[2] in {"output", "status"}:
            typed, rest = _typed_step(view.facts.graph.index[str(path[1])], path[2], view), path[3:]
        else:
            typed, rest = root_type(path, view), path[1:]
        for step in rest:
            typed = descend(typed, step)
    except LookupError:
        return Typed.of({})
    return typed


def _check_guards(placed: PlacedExpression, view: View) -> None:
    if view.facts.conditional.isdisjoint(_steps_in(placed)):
        return
    for name in dict.fromkeys(unguarded(placed.found.text, view.succeeded)):
        if name in view.facts.conditional:
            message = f"{name} has a when: if it is skipped, steps.{name}.output is null"
            hint = f'guard it: steps.{name}.status == "succeeded" ? ... : ..., or in the when of this step'
            span = _span_of(("steps", name, "output"), placed)
            view.facts.findings.error("unguarded", message, span, hint=hint)


def _steps_in(placed: PlacedExpression) -> Iterator[str]:
    return (str(path[1]) for path in placed.paths if path[0] == "steps" and len(path) > 1)


def loop_types(foreach: Typed) -> dict[str, Typed]:
    """Return the schemas of `item` and `index` for a step whose list has the schema *foreach*."""
    try:
        item = descend(foreach, 0)
    except NoSuchFieldError:
        item = Typed.of({})
    return {"item": item, "index": Typed.of(_INDEX)}


def output_of(schema: Mapping[str, Json], *, has_foreach: bool) -> Typed:
    """Return the schema of a step's output, given that of its tool."""
    typed = Typed.of(schema)
    return array_of(typed) if has_foreach else typed
