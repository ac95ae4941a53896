"""A dead letter in words: what happened, what it means, and what a person can decide (rule E23)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sagactl.cli.views.commands import list_decisions
from sagactl.cli.views.layout import headline, list_choices, list_facts
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.style import Mark
from sagactl.cli.views.times import show_rough
from sagactl.cli.views.words import name_failure, name_operation
from sagactl.core.needed import find_needs
from sagactl.core.operators import may_act_twice
from sagactl.core.policy import KEY_EXPIRED, Zone, zone_of
from sagactl.core.records import Cause, Direction, Operation
from sagactl.core.state import OperationState, call_of, tool_of
from sagactl.core.template import spell_path

SHOWN_MAX: Final = 5
"""Dead letters of one run that a report spells out; `dlq list` has them all."""


def describe_letters(scene: Scene) -> list[list[str]]:
    """Return a block of lines for each open dead letter, and one that says how many more there are.

    Errors that stand above, as the first one or beside what is left behind, aren't told again.
    """
    dead = list(scene.state.dead)
    blocks = [_describe(scene, operation) for operation in dead[:SHOWN_MAX]]
    if len(dead) > SHOWN_MAX:
        blocks.append([scene.style.complete(f"  and {len(dead) - SHOWN_MAX:,} more: sagactl dlq list")])
    return blocks


def _describe(scene: Scene, operation: Operation) -> list[str]:
    op = scene.state.operations[operation]
    is_told = op.failure == scene.state.failure or operation.direction is Direction.COMPENSATION
    error = "" if is_told else scene.style.show(name_failure(op.failure))
    facts = [("error", error), ("means", explain(scene, op))]
    decisions = list_decisions(scene.saga, scene.state, scene.short_id, operation, scene.now_ms)
    return [
        *headline(Mark.STUCK, say_what(op), scene.style),
        *list_facts(facts, scene.style),
        *list_choices(decisions, scene.style),
        *explain_output(scene, operation, [command for _, command in decisions]),
    ]


def explain_output(scene: Scene, operation: Operation, commands: Sequence[str]) -> list[str]:
    """Say what JSON stands for where one of *commands* asks for it: the tool's output, and what others need of it."""
    if not any("--output JSON" in command for command in commands):
        return []
    tool = tool_of(scene.saga, operation) or ""
    members = scene.saga.tools[tool].output_schema.get("properties")
    shape = f": {', '.join(members)}" if isinstance(members, dict) and members else ""
    readers: dict[str, list[str]] = {}
    for need in dict.fromkeys(find_needs(scene.saga, operation)):
        readers.setdefault(spell_path(need.path), []).append(need.reader)
    needed = [f"{path} (for {', '.join(dict.fromkeys(names))})" for path, names in readers.items() if path]
    lines = [f"what {tool} has returned{shape}", *([f"it must have {', '.join(needed)}"] if needed else [])]
    return list_facts([("JSON", [scene.style.show(line) for line in lines])], scene.style)


def say_what(op: OperationState) -> str:
    """Return in a few words what the dead letter is about."""
    name = name_operation(op.operation)
    if op.cause is Cause.IN_DOUBT:
        return f"{name}: in doubt"
    if op.attempts == 0:
        return f"{name}: refused, never called"
    return f"{name}: failed, {op.attempts} {'call' if op.attempts == 1 else 'calls'}"


def explain(scene: Scene, op: OperationState) -> str:
    """Return what the dead letter means for the world, and why sagactl doesn't go on by itself."""
    if op.operation.direction is Direction.COMPENSATION:
        return _explain_undo(scene, op)
    tool = scene.style.show(tool_of(scene.saga, op.operation) or "")
    if op.attempts == 0:
        return f"{tool} was not called; nothing happened in this step"
    if op.doubt:
        return f"nobody knows whether {tool} took effect: {_why_unknown(scene, op)}"
    zone = zone_of(scene.saga, op.operation)
    behind = "; the pivot has passed, so the run can only go forward" if zone is Zone.BEHIND else ""
    return f"{tool} had no effect{behind}"


def _why_unknown(scene: Scene, op: OperationState) -> str:
    facts = scene.saga.tools[call_of(scene.saga, op.operation).tool]
    if facts.probe is not None and op.probes > 0:
        return f"{scene.style.show(facts.probe)} could not tell"
    if facts.idempotent and may_act_twice(scene.saga, op, scene.now_ms):
        kept = show_rough(facts.key_retention_ms or 0)
        return f"keys are kept for {kept}, so its key may be forgotten, and another try can be a second effect"
    if not facts.idempotent:
        return "it is not idempotent and no probe has answered, so another try can be a second effect"
    return "no answer came, and its retries are used up"


def _explain_undo(scene: Scene, op: OperationState) -> str:
    action = scene.state.operations[op.operation.other]
    tool = scene.style.show(tool_of(scene.saga, op.operation) or "")
    if op.failure is not None and op.failure.type == KEY_EXPIRED:
        forward, found = (scene.style.show(tool_of(scene.saga, each.operation) or "") for each in (action, op))
        why = f"nobody knows whether {forward} took effect, and the key that {found} would look by may be forgotten"
        return f"{why}; finding nothing would count as undone, so it is not called: say it"
    if op.cause is Cause.IN_DOUBT:
        forward = scene.style.show(tool_of(scene.saga, action.operation) or "")
        why = f"nobody knows whether {forward} took effect, so nobody knows whether there is anything to undo"
        return f"{why}; a rollback can't find it out: say it"
    if op.attempts == 0:
        return f"{tool} was not called; what the step did stays until you decide"
    if op.doubt:
        return f"nobody knows whether {tool} undid the step; it stays in doubt until you decide"
    return f"{tool} undid nothing; what the step did stays until you decide"
