"""Run distributed sagas for AI-agent tool workflows, with a write-ahead log and exact rollback.

What plugins need is here by name: `from sagactl import tool, CallContext, Rejected`. The names are looked up when they
are first used, so that `import sagactl` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sagactl.errors import SagactlError
    from sagactl.tools.api import CallContext, CannotTell, Done, NotDone, Pending, Rejected, Unavailable, tool

__version__ = "0.1.0"

__all__ = [
    "CallContext",
    "CannotTell",
    "Done",
    "NotDone",
    "Pending",
    "Rejected",
    "SagactlError",
    "Unavailable",
    "__version__",
    "tool",
]

_HOMES: Final = dict.fromkeys(__all__, "sagactl.tools.api") | {"SagactlError": "sagactl.errors"}


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
