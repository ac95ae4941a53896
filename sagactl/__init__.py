"""Run distributed sagas for AI-agent tool workflows, with a write-ahead log and exact rollback.

What plugins need is here by name: `from sagactl import tool, CallContext, Rejected`; and what a program needs that runs
sagas itself: `from sagactl import open_project` (see `sagactl help embedding`). The names are looked up when they are
first used, so that `import sagactl` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sagactl.app import Project, open_project
    from sagactl.core.records import RunStatus
    from sagactl.core.saga import Saga
    from sagactl.driving.driver import Driver
    from sagactl.engine.ending import Ending, Why
    from sagactl.engine.settings import Committed, Settings
    from sagactl.errors import (
        BusyError,
        DamagedLogError,
        InvalidError,
        LeaseLostError,
        MisuseError,
        NotFoundError,
        PrunedError,
        RefusedError,
        SagactlError,
        StorageError,
    )
    from sagactl.log.base import RunFilter, RunRow, Runs, StoredRecord
    from sagactl.tools.api import CallContext, CannotTell, Done, NotDone, Pending, Rejected, Secret, Unavailable, tool

__version__ = "0.1.0"

_NAMES: Final = {
    "app": ("Project", "open_project"),
    "core.records": ("RunStatus",),
    "core.saga": ("Saga",),
    "driving.driver": ("Driver",),
    "engine.ending": ("Ending", "Why"),
    "engine.settings": ("Committed", "Settings"),
    "errors": (
        *("BusyError", "DamagedLogError", "InvalidError", "LeaseLostError", "MisuseError", "NotFoundError"),
        *("PrunedError", "RefusedError", "SagactlError", "StorageError"),
    ),
    "log.base": ("RunFilter", "RunRow", "Runs", "StoredRecord"),
    "tools.api": (
        "CallContext",
        "CannotTell",
        "Done",
        "NotDone",
        "Pending",
        "Rejected",
        "Secret",
        "Unavailable",
        "tool",
    ),
}
_HOMES: Final = {name: f"sagactl.{module}" for module, names in _NAMES.items() for name in names}

__all__ = [
    "BusyError",
    "CallContext",
    "CannotTell",
    "Committed",
    "DamagedLogError",
    "Done",
    "Driver",
    "Ending",
    "InvalidError",
    "LeaseLostError",
    "MisuseError",
    "NotDone",
    "NotFoundError",
    "Pending",
    "Project",
    "PrunedError",
    "RefusedError",
    "Rejected",
    "RunFilter",
    "RunRow",
    "RunStatus",
    "Runs",
    "Saga",
    "SagactlError",
    "Secret",
    "Settings",
    "StorageError",
    "StoredRecord",
    "Unavailable",
    "Why",
    "__version__",
    "open_project",
    "tool",
]


if not TYPE_CHECKING:
    # Type checkers would take any name for one of ours if they saw this.
    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'sagactl' has no attribute {name!r}")
        from importlib import import_module

        value: object = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
