"""Which tools run in a process of their own: what their authors and the operator say.

How a tool is called is no matter of the saga, which only says what. An author who knows that a function may crash,
leak, or hang for ever says so in `@tool(…, isolation="process")`. The operator may say it of more tools, and makes
exceptions from that; what an author requires holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

from sagactl.core.pinned import Misfit
from sagactl.core.saga import ToolFacts
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError
from sagactl.tools.api import IN_PROCESS
from sagactl.tools.describe import Isolation, Tool
from sagactl.tools.loading import digest_home
from sagactl.tools.plugin import PROGRAM, Home, Plugin

MEMORY_BYTES_MIN: Final = 128 * 1_048_576
"""With less of an address space hardly any interpreter starts."""

PATTERNS_MAX: Final = 1_000

AUTHOR, OPERATOR = "author", "operator"
_KEYS: Final = {"process", "none", "memory_bytes_max", "pid_namespace"}


@dataclass(frozen=True, slots=True)
class IsolationRules:
    """What the operator says; `process` and `none` hold patterns of tool names."""

    process: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    """Exceptions from `process`."""
    memory_bytes_max: int | None = None
    has_pid_namespace: bool = True
    """Whether a call gets a pid namespace of its own, where the kernel gives one."""

    def place(self, tool: Tool, declared: str, plugin: Plugin) -> Tool:
        """Return *tool* as it is called here; raises ValueError where it must be isolated and can't be."""
        by = self._who_wants(tool.facts.name, declared)
        if by is None or (plugin.home is None and plugin.origin != PROGRAM):
            return tool  # no function of Python: requests, servers and commands aren't run here anyway
        home = _find_home(tool, plugin, by)
        isolation = Isolation(by, home, plugin.version)
        return replace(tool, isolation=isolation, is_async=False, guard=partial(_compare, isolation))

    def _who_wants(self, name: str, declared: str) -> str | None:
        if declared != IN_PROCESS:
            return AUTHOR
        if _matches(name, self.process) and not _matches(name, self.none):
            return OPERATOR
        return None


def _compare(isolation: Isolation, _: ToolFacts) -> Misfit | None:
    """Say before an intent that a plugin is another one by now: its process would refuse to call it (E16)."""
    try:
        version = digest_home(isolation.home)
    except OSError as error:
        return Misfit(f"can't be imported any more: {error.strerror}")
    if version is None or version == isolation.version:
        return None
    return Misfit("runs in a process of its own, and its plugin's file has changed or gone since this process read it")


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _find_home(tool: Tool, plugin: Plugin, by: str) -> Home:
    """Return where another interpreter finds the tool; raises ValueError where it can't."""
    home, wanted = plugin.home, 'isolation="process"' if by == AUTHOR else "sagactl.toml wants it isolated"
    if home is None:
        raise ValueError(f"{wanted}: the program's own module can't be imported by another interpreter")
    if home.kind == "module" and not _is_bound(tool, home):
        raise ValueError(f"{wanted}: it stands within a function, where another interpreter can't find it")
    return home


def _is_bound(tool: Tool, home: Home) -> bool:
    import sys

    return any(each is tool.function for each in list(vars(sys.modules[home.place]).values()))


def read_rules(table: Mapping[str, Any] | None) -> IsolationRules:
    """Return what the table `[isolation]` says; raises InvalidError for keys and values that mean nothing."""
    table = table or {}
    unknown = sorted(table.keys() - _KEYS)
    if unknown:
        raise _invalid(f"unknown setting isolation.{unknown[0]}", f"known are {', '.join(sorted(_KEYS))}")
    memory = table.get("memory_bytes_max")
    is_number = isinstance(memory, int) and not isinstance(memory, bool)
    if memory is not None and not (is_number and memory >= MEMORY_BYTES_MIN):
        raise _invalid(
            f"isolation.memory_bytes_max must be a number from {MEMORY_BYTES_MIN} on, not {memory!r}",
            "memory_bytes_max = 1_073_741_824",
        )
    has_namespace = table.get("pid_namespace", True)
    if not isinstance(has_namespace, bool):
        raise _invalid(f"isolation.pid_namespace must be true or false, not {has_namespace!r}", "pid_namespace = false")
    return IsolationRules(_read_patterns(table, "process"), _read_patterns(table, "none"), memory, has_namespace)


def _read_patterns(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise _invalid(f"isolation.{key} must be a list of patterns of tool names, not {value!r}", f'{key} = ["crm.*"]')
    if len(value) > PATTERNS_MAX:
        raise _invalid(f"isolation.{key} has {len(value)} patterns; {PATTERNS_MAX} is the limit", f'{key} = ["crm.*"]')
    return tuple(value)


def _invalid(message: str, hint: str) -> InvalidError:
    return InvalidError(message, code="invalid-config", hint=hint)
