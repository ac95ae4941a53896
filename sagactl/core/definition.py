"""A saga as JSON and back: the snapshot that a run keeps (rule E16).

The snapshot is complete and explicit, so it is read back without the file, the plugins or the defaults of the release
that wrote it. Its digest is the definition that a run is bound to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, cast

from sagactl.core.canonical import Json, canonical
from sagactl.core.saga import (
    Approval,
    Call,
    CompensateFailed,
    Jitter,
    OnUnknown,
    Retry,
    Saga,
    Step,
    StepClass,
    ToolFacts,
)
from sagactl.core.template import Template, parse_template, write_template
from sagactl.dataclass import dataclass
from sagactl.hashing import sha256

DEFINITION_SCHEMA: Final = "sagactl.definition/1"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A definition as the log keeps it: its spelling, and the digest that runs are bound to."""

    text: str
    digest: str
    steps_total: int


def take_snapshot(saga: Saga) -> Snapshot:
    """Return the snapshot of *saga*; worth keeping where many runs begin with it."""
    return spell_snapshot(write_definition(saga))


def spell_snapshot(definition: Mapping[str, Json]) -> Snapshot:
    """Return the snapshot that *definition* makes."""
    text = canonical(dict(definition))
    steps = definition.get("steps")
    return Snapshot(text, sha256(text.encode()).hexdigest(), len(steps) if isinstance(steps, list) else 0)


def write_definition(saga: Saga) -> dict[str, Json]:
    """Return *saga* as JSON; `read_definition` gives an equal saga back."""
    return {
        "schema": DEFINITION_SCHEMA,
        "saga": saga.name,
        "version": saga.version,
        "description": saga.description,
        "input": dict(saga.input_schema),
        "run_key": _write_optional(saga.run_key),
        "run_timeout_ms": saga.run_timeout_ms,
        "settle_timeout_ms": saga.settle_timeout_ms,
        "compensation_concurrency": saga.compensation_concurrency,
        "output": _write_optional(saga.output),
        "secrets": list(saga.secrets),
        "source": saga.source,
        "steps": [_write_step(step) for step in saga.steps],
        "tools": {name: write_facts(facts) for name, facts in sorted(saga.tools.items())},
    }


def read_definition(document: Mapping[str, Json]) -> Saga:
    """Build the saga from a snapshot; a newer schema raises ValueError."""
    if document.get("schema") != DEFINITION_SCHEMA:
        raise ValueError(f"a definition of schema {document.get('schema')!r}; this release reads {DEFINITION_SCHEMA}")
    data = cast("dict[str, Any]", dict(document))
    return Saga(
        name=data["saga"],
        steps=tuple(_read_step(step) for step in data["steps"]),
        tools={name: _read_facts(facts) for name, facts in data["tools"].items()},
        version=data["version"],
        description=data["description"],
        input_schema=data["input"],
        run_key=_read_optional(data["run_key"]),
        run_timeout_ms=data["run_timeout_ms"],
        settle_timeout_ms=data["settle_timeout_ms"],
        compensation_concurrency=data["compensation_concurrency"],
        output=_read_optional(data["output"]),
        secrets=tuple(data["secrets"]),
        source=data["source"],
    )


def _write_step(step: Step) -> Json:
    return {
        "id": step.id,
        "class": step.klass.value,
        "action": _write_call(step.action),
        "compensation": None if step.compensation is None else _write_call(step.compensation),
        "not_undoable_reason": step.not_undoable_reason,
        "needs": list(step.needs),
        "when": _write_optional(step.when),
        "foreach": _write_optional(step.foreach),
        "concurrency": step.concurrency,
        "guard": _write_optional(step.guard),
        "compensate_failed": step.compensate_failed.value,
        "description": step.description,
        "agent": step.agent,
        "line": step.line,
        "approval": None if step.approval is None else _write_approval(step.approval),
    }


def _write_approval(approval: Approval) -> Json:
    return {
        "required": _write_optional(approval.required),
        "by": list(approval.by),
        "timeout_ms": approval.timeout_ms,
    }


def _read_approval(data: dict[str, Any]) -> Approval:
    return Approval(_read_optional(data["required"]), tuple(data["by"]), data["timeout_ms"])


def _read_step(data: dict[str, Any]) -> Step:
    return Step(
        id=data["id"],
        klass=StepClass(data["class"]),
        action=_read_call(data["action"]),
        compensation=None if data["compensation"] is None else _read_call(data["compensation"]),
        not_undoable_reason=data["not_undoable_reason"],
        needs=tuple(data["needs"]),
        when=_read_optional(data["when"]),
        foreach=_read_optional(data["foreach"]),
        concurrency=data["concurrency"],
        guard=_read_optional(data["guard"]),
        compensate_failed=CompensateFailed(data["compensate_failed"]),
        description=data["description"],
        agent=data["agent"],
        line=data["line"],
        approval=None if data["approval"] is None else _read_approval(data["approval"]),
    )


def _write_call(call: Call) -> Json:
    return {
        "tool": call.tool,
        "with": write_template(call.arguments),
        "retry": _write_flat(call.retry),
        "start_to_close_ms": call.start_to_close_ms,
        "schedule_to_close_ms": call.schedule_to_close_ms,
        "on_unknown": call.on_unknown.value,
    }


def _read_call(data: dict[str, Any]) -> Call:
    retry = dict(data["retry"])
    retry["jitter"] = Jitter(retry["jitter"])
    retry["non_retryable_errors"] = tuple(retry["non_retryable_errors"])
    return Call(
        tool=data["tool"],
        arguments=parse_template(data["with"]),
        retry=Retry(**retry),
        start_to_close_ms=data["start_to_close_ms"],
        schedule_to_close_ms=data["schedule_to_close_ms"],
        on_unknown=OnUnknown(data["on_unknown"]),
    )


def _write_flat(value: Retry | ToolFacts) -> dict[str, Json]:
    result: dict[str, Json] = {}
    for each in fields(value):
        content = getattr(value, each.name)
        result[each.name] = list(content) if isinstance(content, tuple) else content
    return result


_LATER: Final = ("secrets",)
"""Facts that came after the first release: left out where there are none, so that what was written keeps its digest."""


def write_facts(facts: ToolFacts) -> dict[str, Json]:
    """Return the facts of a tool as the snapshot has them."""
    return {name: value for name, value in _write_flat(facts).items() if value or name not in _LATER}


def _read_facts(data: dict[str, Any]) -> ToolFacts:
    return ToolFacts(**{**data, "secrets": tuple(data.get("secrets", ()))})


def _write_optional(template: Template | None) -> Json:
    return None if template is None else {"value": write_template(template)}


def _read_optional(data: Json) -> Template | None:
    return None if data is None else parse_template(cast("dict[str, Json]", data)["value"])
