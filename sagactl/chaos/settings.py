"""The table `[chaos]` of the settings, and which tools may be called for the sake of an experiment.

An experiment calls tools for real, many times. So nothing is called that nobody has said is safe: a tool says it of
itself (`@tool(…, chaos_safe=True)`), the project says it of tools by name (`safe_tools`), or whoever types the command
does (`--allow-unsafe`). Waits are always safe: they are skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from sagactl.chaos.faulty_tools import WAITS
from sagactl.core.saga import Saga
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError, UsageError

UNSAFE_SHOWN_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class ChaosSettings:
    """What the project says: safe tools, tools that look at the world, a folder to begin with, files not to look at."""

    safe_tools: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    world: Path | None = None
    ignore: tuple[str, ...] = ()


def read_settings(table: Mapping[str, Any] | None, project: Path) -> ChaosSettings:
    """Return what *table* says; raises InvalidError for keys and values that mean nothing."""
    table = table or {}
    unknown = sorted(table.keys() - {"safe_tools", "check", "world", "ignore"})
    if unknown:
        raise _invalid(f"unknown setting chaos.{unknown[0]}", "known are check, ignore, safe_tools, world")
    check = table.get("check", [])
    world = table.get("world")
    if world is not None and not isinstance(world, str):
        raise _invalid(f"chaos.world must be a folder, not {world!r}", 'world = "tests/world"')
    return ChaosSettings(
        safe_tools=_read_names("safe_tools", table.get("safe_tools", [])),
        check=_read_names("check", [check] if isinstance(check, str) else check),
        world=None if world is None else project / world,
        ignore=_read_names("ignore", table.get("ignore", [])),
    )


def _read_names(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _invalid(f"chaos.{key} must be a list of names, not {value!r}", f'{key} = ["crm.*"]')
    return tuple(value)


def _invalid(message: str, hint: str) -> InvalidError:
    return InvalidError(message, code="invalid-config", hint=hint)


def refuse_unsafe(saga: Saga, settings: ChaosSettings, *, marked: Collection[str], allowed: Sequence[str]) -> None:
    """Raise UsageError where the saga calls a tool that nobody has said is safe; *marked* say it of themselves."""
    patterns = (*settings.safe_tools, *allowed)
    names = sorted({*_list_tools(saga), *settings.check} - WAITS)
    unsafe = [name for name in names if name not in marked and not any(fnmatchcase(name, each) for each in patterns)]
    if not unsafe:
        return
    shown = ", ".join(unsafe[:UNSAFE_SHOWN_MAX]) + (", …" if len(unsafe) > UNSAFE_SHOWN_MAX else "")
    noun = "this tool isn't" if len(unsafe) == 1 else "these tools aren't"
    options = " ".join(f"--allow-unsafe '{each}'" for each in sorted({f"{name.split('.')[0]}.*" for name in unsafe}))
    raise UsageError(
        f"experiments call tools for real, and {noun} marked as safe for that: {shown}"
        f" ({options}, where no harm can come of it)",
        code="unsafe-tools",
        hint="sagactl help chaos",
    )


def _list_tools(saga: Saga) -> set[str]:
    found: set[str] = set()
    for step in saga.steps:
        calls = [step.action, *([] if step.compensation is None else [step.compensation])]
        found |= {call.tool for call in calls}
        found |= {probe for call in calls if (probe := saga.tools[call.tool].probe) is not None}
    return found
