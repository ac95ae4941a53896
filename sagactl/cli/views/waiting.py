"""What a run waits for, in words, and what helps it on, as commands."""

from __future__ import annotations

from typing import Final

from sagactl.cli.views import commands
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.text import join_some
from sagactl.cli.views.times import show_duration
from sagactl.cli.views.words import name_again, name_holder, name_operation, plain
from sagactl.core.people import approval_until_ms
from sagactl.core.pinned import is_of_machine, is_of_pins
from sagactl.core.records import Cause
from sagactl.core.state import next_timer
from sagactl.core.summary import Summary

CALLS_NAMED_MAX: Final = 12
_HINTS: Final = {Cause.MISSING_TOOL: "sagactl tools", Cause.MISSING_SECRET: "sagactl help secrets"}


def say_waiting(scene: Scene, summary: Summary) -> str:
    """Return what the run waits for, safe: `deposit goes on at 14:02:24, in 12.0s`; empty where it doesn't."""
    waiting = summary.waiting_for
    if waiting is None:
        return ""
    if waiting.what == "approval":
        return scene.style.show(f"{waiting.detail} waits for an approval") + _say_limit(scene, waiting.until_ms)
    detail = name_again(waiting.detail or plain(waiting.what))
    detail = scene.style.show(_say_hanging(scene, detail) if waiting.what == Cause.CANNOT_END else detail)
    if waiting.until_ms is None:
        return detail
    due = scene.show_due(waiting.until_ms)
    return f"{detail}, until {due}" if waiting.what != "timer" else _say_timer(scene, detail, waiting.until_ms, due)


def _say_timer(scene: Scene, detail: str, until_ms: int, due: str) -> str:
    if until_ms <= scene.now_ms:
        return f"{detail} was due at {due}"
    left = "" if scene.is_kept else f", in {show_duration(until_ms - scene.now_ms)}"
    words = f"{detail} goes on at {due}{left}"
    return f"{words}: until then a call of a lost driver may still land" if _may_land(scene) else words


def _may_land(scene: Scene) -> bool:
    """Tell whether what goes on next waits for the end of an old call (E9), and for no delay of its own."""
    timer = next_timer(scene.state)
    return timer is not None and scene.state.operations[timer[1]].late_until_ms > scene.now_ms


def _say_limit(scene: Scene, until_ms: int | None) -> str:
    if until_ms is None:
        return ""
    due = scene.show_due(until_ms)
    if until_ms > scene.now_ms:
        return f", until {due}"
    return f", which nobody has given until {due}: it counts as denied"


def _say_hanging(scene: Scene, detail: str) -> str:
    """Say of calls that can't be ended what ends them, or that their process is gone and a resume waits for nothing."""
    if scene.holder is not None and scene.is_hanging:
        return f"{detail}: end {name_holder(scene.holder)}, which drives the run, then resume"
    names = [name_operation(operation) for operation in scene.state.in_flight]
    named = join_some(names, CALLS_NAMED_MAX)
    return f"for a resume: the process that called {named} ended before it had an answer"


def hint_people(scene: Scene, summary: Summary) -> list[str]:
    """Return what a person types who is waited for."""
    if summary.waiting_for is not None and summary.waiting_for.what == "paused":
        return [commands.type_unpause(scene.short_id)]
    awaited = scene.state.awaiting
    until = {name: approval_until_ms(scene.state, each, scene.now_ms) for name, each in awaited.items()}
    open_ = [name for name, until_ms in until.items() if until_ms is None or until_ms > scene.now_ms]
    if awaited and not open_:
        return [commands.type_resume(scene.short_id)]  # nobody can answer any more: it carries out that they are denied
    return [line for step_id in open_ for line in commands.type_answers(scene.short_id, step_id)]


def hint_hanging(scene: Scene) -> list[str]:
    """Return what a person types where a call can't be ended: only the end of its process ends it."""
    kill = [commands.type_kill(scene.holder.pid)] if scene.is_here and scene.holder is not None else []
    return [*kill, commands.type_resume(scene.short_id)]


def hint_missing(scene: Scene, summary: Summary) -> list[str]:
    """Return what helps where a tool or a secret is missing: a changed tool may be taken as it is now."""
    waiting = summary.waiting_for
    if waiting is not None and waiting.what == Cause.MISSING_TOOL and is_of_pins(waiting.detail or ""):
        return ["sagactl tools pin"]  # another definition has the same pins
    if waiting is not None and waiting.what == Cause.MISSING_TOOL and is_of_machine(waiting.detail or ""):
        return ["sagactl doctor"]
    hints = [hint for cause, hint in _HINTS.items() if waiting is not None and waiting.what == cause]
    if waiting is not None and waiting.what == Cause.MISSING_TOOL and scene.saga.source:
        hints.append(scene.style.show(commands.type_rebind(scene.short_id, scene.saga.source)))
    return hints


def hint_going_on(scene: Scene) -> list[str]:
    """Return what carries on with a run that isn't at rest, or turns it back."""
    if scene.is_hanging:
        return hint_hanging(scene)
    if scene.state.people_since_ms is not None:
        return commands.type_rollback(scene.state, scene.short_id)
    return [_type_going_on(scene), *commands.type_rollback(scene.state, scene.short_id)]


def _type_going_on(scene: Scene) -> str:
    """Return how the run goes on: a process that drives it does that, and a resume would be refused."""
    if scene.is_left:
        return commands.type_resume(scene.short_id)
    return commands.type_unpause(scene.short_id) if scene.state.paused else commands.type_watch(scene.short_id)
