"""`sagactl plan`: every call of a run in order, its undo beside it, and what a failure at each step would undo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, cast

from sagactl.cli.views.layout import Cell, Column, Fact, Row, join_blocks, lay_out, list_facts
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.style import Hue, Style
from sagactl.cli.views.text import brief, plural, wrap
from sagactl.cli.views.words import name_place
from sagactl.core.canonical import Json
from sagactl.core.filled import Filled
from sagactl.core.preview import Preview, Undone
from sagactl.core.saga import Call, OnUnknown, Step, StepClass
from sagactl.core.template import Template, write_template
from sagactl.dataclass import dataclass
from sagactl.schemas.durations import format_duration
from sagactl.usecases.documents import Document
from sagactl.usecases.errors import ProblemFacts, write_problem

PLAN_SCHEMA: Final = "sagactl.plan/1"
FAILURES_SHOWN_MAX: Final = 20
"""Lines about failures in the text, the last ones included; the JSON has all of them."""

LAST_FAILURES: Final = 3

NAMES_SHOWN_MAX: Final = 12
ITEMS_SHOWN_MAX: Final = 10
UNDONE_LISTED_MAX: Final = 50_000
"""Steps that the JSON lists under all failures together; of a larger plan it gives the counts and `undo_order`."""

_COLUMNS: Final = (
    Column("", to_right=True, is_whole=True),
    Column("step", columns_min=10),
    Column("do", columns_min=10),
    Column("undo", columns_min=10),
    Column("class"),
    Column("tries", to_right=True),
    Column("limit", to_right=True),
)

CLASS_WORDS: Final = {
    StepClass.READ_ONLY: "read only",
    StepClass.COMPENSABLE: "compensable",
    StepClass.NOT_UNDOABLE: "stays",
    StepClass.PIVOT: "pivot",
    StepClass.RETRIABLE: "retriable",
}

_DOUBT_WORDS: Final = {
    OnUnknown.PROBE: "probed",
    OnUnknown.RETRY: "called again with the same key",
    OnUnknown.COMPENSATE: "undone",
    OnUnknown.ASK: "a person is asked",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A previewed run and what was said of it; without an input `filled` holds the arguments as written."""

    preview: Preview
    definition: str
    has_input: bool = False
    input: Json = None
    run_key: Json = None
    filled: Mapping[str, Sequence[Filled]] = field(default_factory=dict)
    warnings: Sequence[ProblemFacts] = ()
    isolated: Sequence[str] = ()
    """Tools whose calls have a process of their own here."""


def render_plan(plan: Plan, *, style: Style, shows_inputs: bool = False) -> str:
    """Return the plan as text; a large one is shortened, and its JSON isn't."""
    preview = plan.preview
    return join_blocks(
        _list_head(plan, style),
        lay_out(_COLUMNS, list(_lay_steps(preview, style)), style),
        list_facts(_list_conditions(preview, style), style),
        list(_list_failures(preview, style)),
        list_facts(_list_rules(plan, style), style),
        list(_list_arguments(plan, style)) if shows_inputs else [],
        _lay_warnings(plan, style),
    )


def _list_head(plan: Plan, style: Style) -> list[str]:
    saga = plan.preview.saga
    name, counted = style.show(saga.name), plural(len(saga.steps), "step")
    first, *others = wrap(f"{name}   {style.show(saga.source or '')}   {counted}, nothing is called", style.columns)
    return [style.paint(name, Hue.STRONG) + first.removeprefix(name) if first.startswith(name) else first, *others]


def _lay_steps(preview: Preview, style: Style) -> Iterator[Row]:
    is_alike = len({step.action.start_to_close_ms for step in preview.steps}) == 1
    last: int | None = None
    for step in preview.steps:
        number = preview.numbers.get(step.id)
        shown = "" if number == last and number is not None else "-" if number is None else str(number)
        last = number
        yield [
            Cell(shown, Hue.DIM),
            style.show(name_step(preview, step)),
            style.show(step.action.tool),
            Cell(style.show(name_undo(step)), Hue.DIM if step.compensation is None else Hue.PLAIN),
            Cell(CLASS_WORDS[step.klass], Hue.ODD if step.klass is StepClass.PIVOT else Hue.PLAIN),
            f"{step.action.retry.max_attempts}x",
            "" if is_alike else format_duration(step.action.start_to_close_ms),
        ]


def name_step(preview: Preview, step: Step) -> str:
    """Return the step with how many calls it is: `servers x?`, or `servers x3` where the input says so."""
    if step.foreach is None:
        return step.id
    items = preview.given_of(step.id).items
    return f"{step.id} x?" if items is None else f"{step.id} x{len(items):,}"


def name_undo(step: Step) -> str:
    """Return the tool that undoes a step, or what stands in its place."""
    return "-" if step.compensation is None else step.compensation.tool


def spell_template(template: Template | None) -> str:
    """Return an expression as it stands in the file, unsafe as yet; other values summed up."""
    written = None if template is None else write_template(template)
    return written if isinstance(written, str) else brief(written)


def _list_conditions(preview: Preview, style: Style) -> Iterator[Fact]:
    """Yield what decides whether and how often steps run."""
    for step in preview.steps:
        given = preview.given_of(step.id)
        if step.when is not None:
            known = {True: ": it does", False: ": it doesn't", None: ""}[given.when]
            yield "when", style.show(f"{step.id} runs if {spell_template(step.when)}{known}")
        if step.foreach is not None:
            pace = "one after another" if step.concurrency == 1 else f"{step.concurrency} at once"
            count = "" if given.items is None else f" ({plural(len(given.items), 'item')})"
            yield "for each", style.show(f"{step.id} of {spell_template(step.foreach)}{count}, {pace}")
        if step.guard is not None:
            yield "guard", style.show(f"{step.id} is refused unless {spell_template(step.guard)}")


def _list_failures(preview: Preview, style: Style) -> Iterator[str]:
    groups = preview.groups
    is_long = len(groups) > FAILURES_SHOWN_MAX
    head = groups[: FAILURES_SHOWN_MAX - LAST_FAILURES] if is_long else groups
    tail = groups[-LAST_FAILURES:] if is_long else []
    lines = [_say_failure(preview, group) for group in [*head, *tail]]
    for number, line in enumerate(lines):
        if is_long and number == len(head):
            hidden = sum(map(len, groups)) - sum(map(len, head)) - sum(map(len, tail))
            yield f"  ... {plural(hidden, 'step')} more, all in -o json"
        yield from _hang(style.show(line), style)
    if any("[" in line.split(" fails: ", 1)[-1] for line in lines):
        yield style.paint("  in brackets: if it has run by then", Hue.DIM)
    pivot = preview.pivot
    if pivot is not None:
        yield from _hang(f"once {pivot} has succeeded nothing is undone: the run only goes forward", style)
    behind = [step_id for step_id in preview.numbers if not preview.turns_back(step_id)]
    if behind:
        yield from _hang(f"if {_join(behind, 'or')} fails for good: a person must act, nothing is undone", style)


def _say_failure(preview: Preview, group: Sequence[str]) -> str:
    undone = preview.undone_if_one_fails(group)
    names = _name_undone([each for each in undone if each.reason is None])
    kept = [each for each in undone if each.reason is not None]
    what = f"undo {names}" if names else "nothing to undo"
    stays = f"; {_name_undone(kept)} {'stays' if len(kept) == 1 else 'stay'}" if kept else ""
    return f"if {_join(group, 'or')} fails: {what}{stays}"


def _name_undone(undone: Sequence[Undone]) -> str:
    """Return `[c, b], a`: in the order of the undo, in brackets what may not have run."""
    parts = []
    shown = undone[:NAMES_SHOWN_MAX]
    for place, each in enumerate(shown):
        opens = not each.is_certain and (place == 0 or shown[place - 1].is_certain)
        closes = not each.is_certain and (place == len(shown) - 1 or shown[place + 1].is_certain)
        parts.append("[" * opens + each.step + "]" * closes)
    more = len(undone) - len(shown)
    return ", ".join(parts) + (f" and {more:,} more, down to {undone[-1].step}" if more else "")


def _join(names: Sequence[str], word: str = "and") -> str:
    shown = list(names[:NAMES_SHOWN_MAX])
    if len(names) > NAMES_SHOWN_MAX:
        shown.append(f"{len(names) - NAMES_SHOWN_MAX:,} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {word} {shown[-1]}"


def _hang(text: str, style: Style) -> list[str]:
    first, *others = wrap(text, style.columns - 6)
    return [f"  {first}", *(f"      {other}" for other in others)]


def _list_rules(plan: Plan, style: Style) -> Iterator[Fact]:
    """Yield what holds for several steps at once: doubt, what stays, times."""
    preview, saga = plan.preview, plan.preview.saga
    called = [step for step in preview.steps if step.id in preview.numbers]
    stays = [f"{each.step}: {each.reason}" for each in reversed(preview.undo_order) if _is_meant(preview, each)]
    yield "stays", [style.show(each) for each in _shorten(stays)]
    by_policy = {policy: [step.id for step in called if step.action.on_unknown is policy] for policy in _DOUBT_WORDS}
    doubts = [f"{words}: {_join(by_policy[policy])}" for policy, words in _DOUBT_WORDS.items() if by_policy[policy]]
    yield "in doubt", doubts
    yield "isolated", style.show(f"{_join(plan.isolated)}: a process for each call") if plan.isolated else ""
    limits = {step.action.start_to_close_ms for step in saga.steps}
    yield "a call", f"may take {format_duration(next(iter(limits)))}" if len(limits) == 1 else ""
    whole = [(step.id, step.action.schedule_to_close_ms) for step in called]
    bounded = [f"{step_id}: {format_duration(limit_ms)}" for step_id, limit_ms in whole if limit_ms is not None]
    yield "all tries", _shorten(bounded)
    yield "an undo", _say_undo_policy(saga.compensation_concurrency, called)
    run_ms = saga.run_timeout_ms
    then = "rolled back" if preview.pivot is None else "rolled back, or behind the pivot a person is told"
    yield "the run", "" if run_ms is None else f"may take {format_duration(run_ms)}, then it is {then}"
    key = spell_template(saga.run_key) if plan.run_key is None else str(plan.run_key)
    yield "run key", style.show(f"{key}: a second run with it is the same run") if saga.run_key is not None else ""


def _is_meant(preview: Preview, each: Undone) -> bool:
    return each.reason is not None and preview.turns_back(each.step) and each.step != preview.pivot


def _say_undo_policy(concurrency: int, steps: Sequence[Step]) -> str:
    attempts = sorted({step.compensation.retry.max_attempts for step in steps if step.compensation is not None})
    if not attempts:
        return ""
    often = str(attempts[0]) if len(attempts) == 1 else f"{attempts[0]} to {attempts[-1]}"
    pace = "one at a time" if concurrency == 1 else f"up to {concurrency} at once"
    return f"is tried {often} times at most, {pace}"


def _shorten(lines: Sequence[str]) -> list[str]:
    more = len(lines) - NAMES_SHOWN_MAX
    return [*lines[:NAMES_SHOWN_MAX], *([f"and {more:,} more"] if more > 0 else [])]


def _list_arguments(plan: Plan, style: Style) -> Iterator[str]:
    """Yield each call with its arguments, and its undo's."""
    called = [step for step in plan.preview.steps if step.id in plan.preview.numbers]
    for place_of_step, step in enumerate(called):
        filled = plan.filled.get(step.id, ())
        if place_of_step > 0:
            yield ""
        for each in filled[:ITEMS_SHOWN_MAX]:
            yield from _lay_call(name_place(step.id, each.item), step.action.tool, each.arguments, style)
            if step.compensation is not None:
                place = f"undo of {name_place(step.id, each.item)}"
                yield from _lay_call(place, step.compensation.tool, each.undo_arguments, style)
        if len(filled) > ITEMS_SHOWN_MAX:
            yield f"  ... and {plural(len(filled) - ITEMS_SHOWN_MAX, 'item')} more"


def _lay_call(place: str, tool: str, arguments: Json, style: Style) -> list[str]:
    head = f"{style.show(place)}: {style.paint(style.show(tool), Hue.STRONG)}"
    if not isinstance(arguments, dict) or not arguments:
        return [head, *list_facts([("with", style.show(brief(arguments) or "nothing"))], style)]
    facts = [(style.show(name), style.show(show_argument(value))) for name, value in arguments.items()]
    return [head, *list_facts(facts, style)]


def show_argument(value: Json) -> str:
    """Sum an argument up, unsafe as yet; what isn't known yet is an expression and shown as it is written."""
    is_open = isinstance(value, str) and value.startswith("${{") and value.endswith("}}")
    return str(value) if is_open else brief(value) or spell(value)


def _lay_warnings(plan: Plan, style: Style) -> Iterator[str]:
    for each in plan.warnings:
        where = f" ({each.file}:{each.line})" if each.line else ""
        yield from _lay_warning(each.code, f"{each.message}{where}", style)
    for place, message in list_objections(plan):
        yield from _lay_warning("would-be-refused", f"{place} would be refused: {message}", style)


def _lay_warning(code: str, message: str, style: Style) -> Iterator[str]:
    head = style.show(f"warning[{code}]:")
    first, *others = wrap(f"{head} {style.show(message)}", style.columns - 2)
    yield style.paint(head, Hue.ODD) + first.removeprefix(head) if first.startswith(head) else first
    yield from (f"  {other}" for other in others)


def list_objections(plan: Plan) -> list[tuple[str, str]]:
    """Return the calls that are certain to be refused, and why."""
    found = []
    for step in plan.preview.steps:
        if step.id not in plan.preview.numbers:
            continue
        refused = plan.preview.given_of(step.id).objection
        found += [] if refused is None else [(step.id, refused)]
        for each in plan.filled.get(step.id, ()):
            found += [] if each.objection is None else [(name_place(each.step, each.item), each.objection)]
    return found


def write_plan(plan: Plan) -> Document:
    """Return the document of a plan, complete whatever its size."""
    preview, saga = plan.preview, plan.preview.saga
    lists_undone = sum(preview.count_undone(step.id) for step in preview.steps) <= UNDONE_LISTED_MAX
    body: Document = {
        "saga": saga.name,
        "version": saga.version,
        "file": saga.source,
        "definition": plan.definition,
        "input": plan.input if plan.has_input else None,
        "has_input": plan.has_input,
        "run_key": plan.run_key,
        "run_timeout_ms": saga.run_timeout_ms,
        "settle_timeout_ms": saga.settle_timeout_ms,
        "compensation_concurrency": saga.compensation_concurrency,
        "pivot": preview.pivot,
        "isolated": list(plan.isolated),
        "steps": [_write_step(plan, step, lists_undone=lists_undone) for step in preview.steps],
        "undo_order": [{"step": each.step, "not_undone_because": each.reason} for each in preview.undo_order],
        "refused": [{"place": place, "message": message} for place, message in list_objections(plan)],
        "warnings": [write_problem(each) for each in plan.warnings],
    }
    return {"schema": PLAN_SCHEMA, "plan": body, "error": None}


def _write_step(plan: Plan, step: Step, *, lists_undone: bool) -> Document:
    preview = plan.preview
    given = preview.given_of(step.id)
    return {
        "id": step.id,
        "number": preview.numbers.get(step.id),
        "class": step.klass.value,
        "description": step.description,
        "agent": step.agent,
        "needs": list(step.needs),
        "when": None if step.when is None else {"expression": write_template(step.when), "value": given.when},
        "foreach": _write_foreach(step, given.items),
        "guard": None if step.guard is None else write_template(step.guard),
        "action": _write_call(preview, step.action),
        "compensation": None if step.compensation is None else _write_call(preview, step.compensation),
        "not_undoable_reason": step.not_undoable_reason,
        "compensate_failed": step.compensate_failed.value,
        "calls": [_write_filled(each) for each in plan.filled.get(step.id, ())],
        "on_failure": _write_failure(preview, step, lists_undone=lists_undone),
    }


def _write_foreach(step: Step, items: tuple[Json, ...] | None) -> Json:
    if step.foreach is None:
        return None
    listed = None if items is None else list(items)
    return {"expression": write_template(step.foreach), "items": listed, "concurrency": step.concurrency}


def _write_call(preview: Preview, call: Call) -> Json:
    facts, retry = preview.saga.tools[call.tool], call.retry
    return {
        "tool": call.tool,
        "with": write_template(call.arguments),
        "retry": {
            "max_attempts": retry.max_attempts,
            "initial_interval_ms": retry.initial_interval_ms,
            "backoff_coefficient_percent": retry.backoff_coefficient_percent,
            "max_interval_ms": retry.max_interval_ms,
            "jitter": retry.jitter.value,
            "non_retryable_errors": list(retry.non_retryable_errors),
        },
        "start_to_close_ms": call.start_to_close_ms,
        "schedule_to_close_ms": call.schedule_to_close_ms,
        "on_unknown": call.on_unknown.value,
        "probe": facts.probe,
        "idempotent": facts.idempotent,
        "null_safe": facts.null_safe,
    }


def _write_filled(filled: Filled) -> Json:
    return {
        "item": filled.item,
        "arguments": filled.arguments,
        "compensation_arguments": filled.undo_arguments,
        "refused": filled.objection,
    }


def _write_failure(preview: Preview, step: Step, *, lists_undone: bool) -> Json:
    if step.id not in preview.numbers:
        return None
    turns_back = preview.turns_back(step.id)
    undone = [_write_undone(each) for each in preview.undone_if_fails(step.id)] if lists_undone else None
    return {
        "direction": "backward" if turns_back else "forward",
        "undone_count": preview.count_undone(step.id),
        "undone": cast("list[Json] | None", undone),
    }


def _write_undone(each: Undone) -> Document:
    return {"step": each.step, "certain": each.is_certain, "not_undone_because": each.reason}
