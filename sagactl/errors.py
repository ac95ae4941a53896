"""Every error that sagactl raises on purpose: one root, children by who must act.

`code` is a stable word for programs, `message` one lower-case line that names the value at fault, `hint` a
command (or a sentence) that helps, `exit_code` what the process ends with. Codes 0-9 speak of sagactl, 10 and
up of a run.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

SHOWN_LENGTH_MAX: Final = 100
"""How much of a wrong value an error shows."""


class ExitCode(IntEnum):
    """Say what a process ended with; `sagactl help exit-codes` documents the same table."""

    OK = 0
    ERROR = 1
    USAGE = 2
    INVALID = 3
    NOT_FOUND = 4
    BUSY = 5
    REFUSED = 6
    ROLLED_BACK = 10
    STUCK = 11
    WAITING = 12
    TERMINATED = 13
    INTERRUPTED = 130
    TERMINATED_BY_SIGNAL = 143


class SagactlError(Exception):
    """Root of all of them; never raised itself."""

    exit_code: ExitCode = ExitCode.ERROR
    default_code = "error"

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.message = message
        self.hint = hint


class UsageError(SagactlError):
    """The caller must type something else."""

    exit_code = ExitCode.USAGE
    default_code = "usage"


class InvalidError(SagactlError):
    """The author of a saga, an input or a configuration must change it; nothing was called."""

    exit_code = ExitCode.INVALID
    default_code = "invalid"


class NotFoundError(SagactlError):
    """No run, saga or step of that name, or the prefix fits several."""

    exit_code = ExitCode.NOT_FOUND
    default_code = "not-found"


class PrunedError(NotFoundError):
    """The run ended and was deleted since; what became of it is still known, and its key stays taken (rule E8)."""

    default_code = "pruned"

    def __init__(self, message: str, *, run_id: str, status: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.run_id = run_id
        self.status = status


class BusyError(SagactlError):
    """Another process drives the run; try later."""

    exit_code = ExitCode.BUSY
    default_code = "busy"


class RefusedError(SagactlError):
    """The state of the run does not allow what was asked."""

    exit_code = ExitCode.REFUSED
    default_code = "refused"


class MisuseError(SagactlError, RuntimeError):
    """The author of the program that embeds us must call a driver or a project otherwise: it is closed, say."""

    default_code = "misuse"


class SecretError(SagactlError):
    """The operator must provide the value of a secret, or another one; its text never holds one (rule E19)."""

    exit_code = ExitCode.INVALID
    default_code = "missing-secret"


class PluginError(SagactlError):
    """The author of a plugin must mend it; the message names plugin, file and line."""

    exit_code = ExitCode.INVALID
    default_code = "plugin"


class StorageError(SagactlError):
    """The operator must see to the log's disk or database; never a step's failure (rule E18)."""

    default_code = "storage"
    durable: bool | None = False
    """Whether what was to be written is in the log all the same; None: nobody can tell (E18)."""


class DamagedLogError(StorageError):
    """What the log holds cannot be what sagactl wrote."""

    default_code = "damaged-log"


class LeaseLostError(SagactlError):
    """Another driver took the run over; nothing of ours may be written any more (rule E15)."""

    exit_code = ExitCode.BUSY
    default_code = "lease-lost"


class InternalError(SagactlError):
    """A bug of ours: what happened contradicts what must hold."""

    default_code = "bug"


def check_argument(value: object, kind: type | tuple[type, ...], what: str, *, hint: str) -> None:
    """Raise InvalidError, saying *what* is wanted, unless *value* is of that kind."""
    if not isinstance(value, kind):
        shown = repr(value)
        shown = shown if len(shown) <= SHOWN_LENGTH_MAX else f"{shown[:SHOWN_LENGTH_MAX]}…"
        raise InvalidError(f"{what} is wanted, not {shown}", code="invalid-argument", hint=hint)


def check_run_id(run_id: object) -> None:
    """Raise InvalidError where *run_id* isn't even a text."""
    check_argument(run_id, str, "the id of a run", hint="`start`, `project.unfinished` and `project.runs` give ids")
