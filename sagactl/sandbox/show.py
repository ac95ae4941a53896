"""What `sagactl sandbox` shows and forgets."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sagactl.core.canonical import Json, NotJsonError, parse
from sagactl.errors import StorageError
from sagactl.sandbox.database import TABLES, transaction

_COLUMNS: Final = ("seq", "at", "system", "effect", "key", "forward_key", "detail")


@dataclass(frozen=True, slots=True)
class SandboxObject:
    """One thing that a system of the sandbox keeps."""

    kind: str
    id: str
    body: Json


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One effect, in the order in which they happened."""

    seq: int
    at: str
    system: str
    effect: str
    key: str
    forward_key: str
    detail: Json


@dataclass(frozen=True, slots=True)
class SandboxState:
    """All systems with their objects, and everything that ever happened to them."""

    systems: dict[str, tuple[SandboxObject, ...]] = field(default_factory=dict)
    ledger: tuple[LedgerEntry, ...] = ()


def read_sandbox(path: Path) -> SandboxState:
    """Return what the sandbox holds; one that was never used is empty. Raises StorageError."""
    if not path.exists():
        return SandboxState()
    try:
        with transaction(path) as connection:
            objects = connection.execute(
                "SELECT system, kind, id, body FROM objects ORDER BY system, kind, id"
            ).fetchall()
            entries = connection.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM ledger ORDER BY seq"  # noqa: S608 - names of ours
            ).fetchall()
            systems: dict[str, list[SandboxObject]] = {}
            for system, kind, identity, body in objects:
                systems.setdefault(system, []).append(SandboxObject(kind, identity, parse(body)))
            ledger = tuple(
                LedgerEntry(**dict(zip(_COLUMNS, entry, strict=True)) | {"detail": parse(entry[-1])})
                for entry in entries
            )
    except (sqlite3.Error, NotJsonError) as error:
        message = f"the sandbox {path} can't be read: {error}"
        raise StorageError(message, code="sandbox", hint="sagactl sandbox reset") from error
    return SandboxState({system: tuple(found) for system, found in systems.items()}, ledger)


def reset_sandbox(path: Path) -> int:
    """Forget everything and return how many effects there were; a file that is no sandbox is removed."""
    if not path.exists():
        return 0
    try:
        with transaction(path) as connection:
            (count,) = connection.execute("SELECT count(*) FROM ledger").fetchone()
            for table in (*TABLES, "sqlite_sequence"):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
    except sqlite3.OperationalError as error:
        raise StorageError(f"the sandbox {path} can't be reset: {error}", code="sandbox") from error
    except (sqlite3.DatabaseError, StorageError):
        for file in (path, path.with_name(path.name + "-journal")):
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
        return 0
    return int(count)
