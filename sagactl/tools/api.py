"""What the author of a plugin uses: the decorator, the context of a call, and the ways a call can end.

A tool is a plain or an async function. What it returns is its output; it raises `Rejected` (nothing happened, and
trying again is no use) or `Unavailable` (nothing happened, try again later). Any other exception means that nobody
knows whether something happened, and sagactl treats it so (rule E3). `Pending` says "not done yet, ask me again".
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, TypeVar

from sagactl.core.canonical import Json
from sagactl.core.pinned import Guard
from sagactl.core.records import Direction, Operation
from sagactl.core.tracing import call_span_id, write_traceparent
from sagactl.dataclass import dataclass as internal_dataclass

if TYPE_CHECKING:
    import logging

DECLARATIONS: Final = "__sagactl_tools__"
"""The attribute in which a decorated function carries its declarations."""

PLACE: Final = "__sagactl_place__"
"""The attribute in which a tool that is no function of a module says where it stands: file and line."""

DECLARED: Final = "__sagactl_declared__"
"""The global in which a module keeps what `@tool` was put on while the module ran, in order."""

DEADLINE_SECONDS: Final = 30.0
"""How long a context that a test makes by hand lasts."""

IN_PROCESS: Final = "none"
ISOLATIONS: Final = (IN_PROCESS, "process")

Seconds: TypeAlias = "float | timedelta"
F = TypeVar("F", bound=Callable[..., object])


class Mark(Enum):
    """A keyword of JSON Schema that is true of a parameter; unlike a map it can stand within a union."""

    WRITE_ONLY = "writeOnly"


Secret: TypeAlias = Annotated[str, Mark.WRITE_ONLY]
"""The type of a parameter that may be a secret: `key: Secret`, `keys: dict[str, Secret]`, `key: Secret | None = None`.

The tool receives a plain `str`. In a saga only such a parameter may be `${{ secrets.NAME }}`; no message quotes it.
"""


class Rejected(Exception):  # noqa: N818 - an outcome and not a mistake, named as the log names it
    """Say that nothing happened and nothing will: the card is declined, the name is taken."""

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Unavailable(Exception):  # noqa: N818 - as above
    """Say that nothing happened but may, later: too many requests, a service that restarts."""

    def __init__(self, message: str = "", *, retry_after: Seconds | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
        self.code = code


class Pending(Exception):  # noqa: N818 - as above
    """Say that the work has begun and is not done: return or raise it, and be asked again with the same key.

    `token` is handed back as `context.token`; it is written to the log, so it must be JSON and no secret.
    """

    def __init__(self, *, after: Seconds, token: object = None) -> None:
        super().__init__(f"asked again after {after}")
        self.after = after
        self.token = token


@dataclass(frozen=True, slots=True)
class Done:
    """A probe found that the call took effect; `output` is what the action would have returned."""

    output: object = None


@dataclass(frozen=True, slots=True)
class NotDone:
    """A probe found that the call took no effect and, as far as the probed system knows, never will."""


@dataclass(frozen=True, slots=True)
class CannotTell:
    """A probe could not find out."""

    reason: str = ""


class UndeclaredSecretError(KeyError):
    """A tool asked its context for a secret that it hasn't declared, so that nobody looked after it."""

    def __init__(self, name: object, tool: str) -> None:
        super().__init__(name)
        self._name = name
        self._tool = tool

    def __str__(self) -> str:
        """Say what to write into the declaration."""
        wanted = f"secrets=({str(self._name)!r},)"
        return f"the tool {self._tool} has not declared the secret {self._name}: @tool({self._tool!r}, {wanted})"


class ToolSecrets(Mapping[str, str]):
    """The values of the secrets that a tool has declared, by name; no `repr` and no `str` of it shows one."""

    __slots__ = ("_tool", "_values")

    def __init__(self, values: Mapping[str, str], tool: str) -> None:
        self._values = dict(values)
        self._tool = tool

    def __getitem__(self, name: str) -> str:
        """Return the value; raises UndeclaredSecretError, a KeyError."""
        try:
            return self._values[name]
        except KeyError:
            raise UndeclaredSecretError(name, self._tool) from None

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._values)

    def __repr__(self) -> str:
        """Show the names alone."""
        return f"ToolSecrets({', '.join(self._values)})"


NO_SECRETS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a tool may know about the call it is in; a parameter with this annotation receives it.

    Hand `idempotency_key` to the service you call: it is the same in every attempt of this operation, also after a
    crash. A compensation or a probe finds the action's effect by `forward_key`, and need not look further back than
    `begun_at`, when the action was first intended, by the clock of the machine that intended it. `raw` is a reply of
    the action that did not fit its schema, `token` what `Pending` handed over. `traceparent` is the call's place in the
    trace of its run, as the header of that name (W3C Trace Context); it is another one in each attempt. `secrets` has
    the values of those that the tool declared (`@tool(…, secrets=("STRIPE_KEY",))`), read for this very call.
    """

    idempotency_key: str
    forward_key: str = ""
    tool: str = ""
    run_id: str = ""
    step: str = ""
    item: int | None = None
    direction: str = "action"
    attempt: int = 1
    project: Path = field(default_factory=Path.cwd)
    begun_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    deadline: datetime = field(default_factory=lambda: datetime.now(UTC) + timedelta(seconds=DEADLINE_SECONDS))
    cancelled: threading.Event = field(default_factory=threading.Event)
    token: Json = None
    raw: Json = None
    traceparent: str = ""
    monotonic_deadline: float = field(default_factory=lambda: time.monotonic() + DEADLINE_SECONDS, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "secrets", ToolSecrets(self.secrets, self.tool))
        if not self.forward_key:
            object.__setattr__(self, "forward_key", self.idempotency_key)
        if not self.traceparent:
            object.__setattr__(self, "traceparent", self._make_traceparent())

    def _make_traceparent(self) -> str:
        operation = Operation(
            self.step, self.item, Direction.COMPENSATION if self.direction == "compensation" else Direction.ACTION
        )
        return write_traceparent(self.run_id, call_span_id(self.run_id, operation, self.attempt))

    def seconds_left(self) -> float:
        """Return how long the call may still take; never negative, and no jump of the clock changes it."""
        return max(0.0, self.monotonic_deadline - time.monotonic())

    @property
    def logger(self) -> logging.Logger:
        """Return a logger whose lines are kept with the call, beside what it prints."""
        from sagactl.tools.capture import logger_of

        return logger_of(self.tool)


@internal_dataclass(frozen=True, slots=True)
class Declaration:
    """What `@tool` was told, unchecked: the registry checks it, so that one slip does not hide a plugin's other tools.

    The names are those of `tool`.
    """

    name: str
    compensation: str | None = None
    compensation_with: Mapping[str, object] | None = None
    probe: str | None = None
    idempotent: bool = True
    null_safe: bool = False
    late_safe: bool = False
    key_retention: str | timedelta | None = None
    read_only: bool = False
    version: str | None = None
    arguments_schema: Mapping[str, object] | None = None
    output_schema: Mapping[str, object] | None = None
    pending_max: str | timedelta | None = None
    chaos_safe: bool = False
    secrets: tuple[str, ...] = ()
    isolation: str = IN_PROCESS
    guard: Guard | None = None
    """For kinds of tools whose other end may change: what is asked before each intent, see `core.pinned`."""


def tool(
    name: str,
    *,
    compensation: str | None = None,
    compensation_with: Mapping[str, object] | None = None,
    probe: str | None = None,
    idempotent: bool = True,
    null_safe: bool = False,
    late_safe: bool = False,
    key_retention: str | timedelta | None = None,
    read_only: bool = False,
    version: str | None = None,
    arguments_schema: Mapping[str, object] | None = None,
    output_schema: Mapping[str, object] | None = None,
    pending_max: str | timedelta | None = None,
    chaos_safe: bool = False,
    secrets: Sequence[str] = (),
    isolation: Literal["none", "process"] = "none",
) -> Callable[[F], F]:
    """Make a tool of the function; it stays an ordinary function with its own type.

    Args:
        name: What sagas call it, `system.verb`.
        compensation: The tool that undoes it.
        compensation_with: Arguments of the compensation, templates over `args` and `output` of this call.
        probe: The read-only tool that finds out, by the forward key, whether a call in doubt took effect.
        idempotent: Whether the same key a second time has no second effect.
        null_safe: Of a compensation: it may be called without the action's output, and when nothing happened.
        late_safe: Of a compensation: after it, an action that arrives late is refused by the target.
        key_retention: How long the target remembers a key, such as `24h`; for ever where it isn't given.
        read_only: Whether it changes nothing.
        version: Of this tool; the plugin's by default.
        arguments_schema: JSON Schema 2020-12 of the arguments; made from the annotations by default.
        output_schema: Likewise of the output.
        pending_max: How long it may say `Pending`, such as `1d`, where a step has no `schedule_to_close_timeout`.
        chaos_safe: Whether no harm can come of calling it a thousand times, as `sagactl chaos` does: all that it does
            stays in the folder `context.project`, or in a place that is there for tests.
        secrets: Names of secrets that it needs itself, whatever a saga gives it; `context.secrets` has their values.
        isolation: `process` for a function that may crash or hang: each call has an interpreter of its own, which is
            ended for sure with all that it started. The operator may ask for it as well.
    """
    pair = (compensation, compensation_with, probe)
    promises = (idempotent, null_safe, late_safe, key_retention, read_only)
    names = (secrets,) if isinstance(secrets, str) else tuple(secrets)
    rest = (version, arguments_schema, output_schema, pending_max, chaos_safe, names, isolation)
    given = (*pair, *promises, *rest)
    declaration = Declaration(_check_name(name), *given)
    return lambda function: _declare(function, declaration)


def _check_name(name: str) -> str:
    if callable(name):
        raise TypeError("@tool needs a name: @tool('system.verb')")
    return name


def _declare(function: F, declaration: Declaration) -> F:
    setattr(function, DECLARATIONS, (*declarations_of(function), declaration))
    noted = _find_module(function).setdefault(DECLARED, [])
    if isinstance(noted, list):
        noted.append(function)
    return function


def _find_module(function: object) -> dict[str, object]:
    """Return the globals of the module whose code runs and makes *function* a tool.

    That is not always the module in which the function stands: a library may offer a function that makes tools.
    """
    frame = inspect.currentframe()
    while frame is not None:
        namespace: dict[str, object] = frame.f_globals
        is_module = getattr(sys.modules.get(str(namespace.get("__name__"))), "__dict__", None) is namespace
        if is_module and frame.f_code.co_name == "<module>":
            return namespace
        frame = frame.f_back
    module = sys.modules.get(str(getattr(function, "__module__", None)))
    home: dict[str, object] = getattr(module, "__dict__", {})
    return home


def declared_in(namespace: Mapping[str, object]) -> tuple[object, ...]:
    """Return everything that became a tool while the module of that *namespace* ran, bound to a name or not."""
    noted = namespace.get(DECLARED)
    return tuple(thing for thing in noted if declarations_of(thing)) if isinstance(noted, list) else ()


def declarations_of(thing: object) -> tuple[Declaration, ...]:
    """Return what `@tool` noted on *thing*; nothing for anything else, however oddly it answers."""
    try:
        found = getattr(thing, DECLARATIONS, ())
    except Exception:  # a module may hold objects whose attributes raise anything
        return ()
    return found if isinstance(found, tuple) and all(isinstance(each, Declaration) for each in found) else ()
