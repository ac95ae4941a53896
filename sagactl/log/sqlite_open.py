"""Opening the database of a log: whose it is, in which shape, and with settings that are read back.

SQLite's settings belong to the connection, not to the file, and it may decline one without a word (a switch to WAL
that failed leaves the old mode). So each is set on every open and then read back; a log whose settings don't hold is
not written to.

A database that isn't ours is told before any setting is made, since some of them change the file.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sagactl.errors import DamagedLogError, NotFoundError, StorageError
from sagactl.log.far_witness import Kept, find_kept
from sagactl.log.file_system import (
    NAME_ANOTHER,
    make_private_file,
    make_private_folder,
    refuse_foreign_file,
    refuse_network,
    refuse_odd_file,
    sync_folder,
)
from sagactl.log.gate import Gate, Witness, find_gate
from sagactl.log.migrate import APPLICATION_ID, SCHEMA_VERSION, migrate
from sagactl.log.pruning import TOMBSTONES
from sagactl.log.sqlite_errors import SQLITE_ERRORS, storage_error

PUT_BACK: Final = "mount its disk, or put it back; to begin anew, without what it knows: sagactl run"

BUSY_MS: Final = 10_000
"""How long a writer waits for another one."""

Connect = Callable[[str, float], sqlite3.Connection]
"""Makes a connection from a URI and a time-out in seconds; a seam for tests that inject faults."""

_STATEMENTS_CACHED: Final = 64
_SWITCH_WAIT_SECONDS: Final = 0.005

_ALWAYS: Final = (
    ("trusted_schema", "OFF", 0),
    ("cell_size_check", "ON", 1),
    ("temp_store", "MEMORY", 2),
)
_WRITING: Final = (
    ("foreign_keys", "ON", 1),
    ("secure_delete", "ON", 1),
    ("synchronous", "FULL", 2),
    ("wal_autocheckpoint", "0", 0),
)
_MACOS: Final = (("fullfsync", "ON", 1),)
"""On macOS a plain fsync stops at the disk's cache."""


def connect_plainly(uri: str, timeout_seconds: float) -> sqlite3.Connection:
    """Connect without any transaction handling by Python's module: begin and commit are ours."""
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=timeout_seconds,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS_CACHED,
    )


def open_to_write(path: Path, gate: Gate, *, busy_ms: int, connect: Connect) -> sqlite3.Connection:
    """Return a connection to the log at *path*, made or migrated if need be; *gate* is not held."""
    if not path.exists():
        check_not_lost(path, gate.read_witness())
        make_private_file(path)
    connection = _connect(path, "mode=rw", busy_ms, connect)
    try:
        if _read_version(connection, path) < SCHEMA_VERSION:
            _bring_up(connection, path, gate)
        for pragma in (*_ALWAYS, *_WRITING, *(_MACOS if sys.platform == "darwin" else ())):
            _set(connection, path, *pragma)
        _switch_to_wal(connection, path, busy_ms)
        check_witness(connection, path, gate.read_witness())
    except SQLITE_ERRORS as error:
        connection.close()
        raise storage_error(error, path, "open") from error
    except BaseException:
        connection.close()
        raise
    return connection


def prepare_place(path: Path) -> None:
    """Make the folder of a log and look at what stands at its path; raises StorageError."""
    refuse_network(path.parent)
    make_private_folder(path.parent)
    refuse_odd_file(path)
    refuse_foreign_file(path, find_gate(path), application_id=APPLICATION_ID)


def open_to_read(path: Path, *, busy_ms: int, connect: Connect, is_immutable: bool) -> sqlite3.Connection:
    """Return a connection that can only read; *is_immutable* says that nobody writes while it is open."""
    connection = _connect(path, "mode=ro&immutable=1" if is_immutable else "mode=ro", busy_ms, connect)
    try:
        version = _read_version(connection, path)
        if version == 0 and is_immutable:
            _refuse_scrap(path)
        _refuse_old(version, path)
        for pragma in (*_ALWAYS, ("query_only", "ON", 1)):
            _set(connection, path, *pragma)
    except SQLITE_ERRORS as error:
        connection.close()
        raise storage_error(error, path, "read") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_scrap(path: Path) -> None:
    """Raise DamagedLogError for a file so short that SQLite would take it for an empty database."""
    if path.stat().st_size > 0:
        raise DamagedLogError(f"{path} is no log of sagactl", code="not-a-log", hint=NAME_ANOTHER)


def _refuse_old(version: int, path: Path) -> None:
    if version == 0:
        raise no_log(path)
    if version < SCHEMA_VERSION:
        message = f"the log {path} has schema {version}, and this release reads {SCHEMA_VERSION}"
        raise StorageError(message, code="old-log", hint="`sagactl resume --all` brings it up to date")


def no_log(path: Path) -> NotFoundError:
    """Return the error for a place without a log, which says so where one was kept."""
    message = f"there is no log at {path}"
    kept = find_kept(path)
    if kept is None:
        return NotFoundError(message, code="no-log", hint="the first `sagactl run` makes one")
    return NotFoundError(f"{message}, but {tell_kept(kept)}", code="no-log", hint=PUT_BACK)


def tell_kept(kept: Kept) -> str:
    """Return when which log was kept at a place that is empty now."""
    until = datetime.fromtimestamp(kept.until_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"one was kept there until {until} (store {kept.store_id[:8]})"


def refuse_nothing(path: Path) -> None:
    """Raise NotFoundError where nothing lies at *path* that could be a log."""
    refuse_odd_file(path)
    if not path.exists() or path.stat().st_size == 0:
        raise no_log(path)


def _connect(path: Path, how: str, busy_ms: int, connect: Connect) -> sqlite3.Connection:
    try:
        return connect(f"file:{quote(bytes(path.absolute()))}?{how}", busy_ms / 1000)
    except SQLITE_ERRORS as error:
        raise storage_error(error, path, "open") from error


def _read_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema's number, 0 for an empty file; raises DamagedLogError where the database is not ours."""
    application_id = _ask(connection, "PRAGMA application_id")
    version = _ask(connection, "PRAGMA user_version")
    if application_id == APPLICATION_ID and isinstance(version, int) and version > 0:
        if version > SCHEMA_VERSION:
            message = f"the log {path} has schema {version}; this release of sagactl knows {SCHEMA_VERSION}"
            raise StorageError(message, code="newer-log", hint="use the release that wrote it, or a newer one")
        return version
    if application_id == 0 and version == 0 and _ask(connection, "SELECT count(*) FROM sqlite_master") == 0:
        return 0
    raise DamagedLogError(f"{path} is a database, but no log of sagactl", code="not-a-log", hint=NAME_ANOTHER)


def _bring_up(connection: sqlite3.Connection, path: Path, gate: Gate) -> None:
    """Migrate, unless another process did so while this one waited for the gate.

    A new database is made under SQLite's rollback journal and synced with its folder before the witness is written:
    from then on an empty file at this path means that something was lost.
    """
    gate.enter()
    try:
        version = _read_version(connection, path)
        if version == SCHEMA_VERSION:
            return
        if version == 0:
            _refuse_scrap(path)
            check_not_lost(path, gate.read_witness())
        connection.execute("PRAGMA synchronous = EXTRA").close()
        migrate(connection, from_version=version)
        sync_folder(path.parent)
        if version == 0:
            gate.write_witness(Witness(read_store_id(connection)))
    finally:
        gate.leave()


def _switch_to_wal(connection: sqlite3.Connection, path: Path, busy_ms: int) -> None:
    """Switch to WAL; the switch needs the file alone, and SQLite doesn't wait for that by itself."""
    until = time.monotonic() + busy_ms / 1000
    while True:
        try:
            _set(connection, path, "journal_mode", "WAL", "wal")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(_SWITCH_WAIT_SECONDS)
        else:
            return


def _set(connection: sqlite3.Connection, path: Path, name: str, value: str, expected: object) -> None:
    connection.execute(f"PRAGMA {name} = {value}").fetchall()
    found = _ask(connection, f"PRAGMA {name}")
    if found != expected:
        message = f"SQLite keeps {name} at {found!r} for {path}, not at {expected!r}"
        hint = f"SQLite {sqlite3.sqlite_version} can't keep a log there: use another SQLite or another disk"
        raise StorageError(message, code="unsafe-setting", hint=hint)


def _ask(connection: sqlite3.Connection, query: str) -> object:
    row = connection.execute(query).fetchone()
    return None if row is None else row[0]


def read_store_id(connection: sqlite3.Connection) -> str:
    """Return the id that the log was given when it was made."""
    return str(_ask(connection, "SELECT value FROM meta WHERE name = 'store_id'"))


def check_not_lost(path: Path, witness: Witness | None) -> None:
    """Raise DamagedLogError for an empty place where a log was kept."""
    if witness is None:
        return
    raise DamagedLogError(
        f"the log {path} is gone or empty, but one was kept here (store {witness.store_id[:8]})",
        hint=f"put it back with its -wal file; to begin anew, remove {path}-gate",
    )


def holds(connection: sqlite3.Connection, run_id: str, seq: int, head: str) -> bool:
    """Tell whether the log has this record, or the tombstone of its run, or with `TOMBSTONES` for a run that one."""
    query = "SELECT hash FROM records WHERE run_id = ? AND seq = ?"
    values: tuple[str | int, ...] = (run_id, seq)
    if run_id == TOMBSTONES:
        query, values = "SELECT hash FROM tombstones WHERE number = ?", (seq,)
    found = _ask_with(connection, query, values)
    if found is not None or run_id == TOMBSTONES:
        return found == head
    query = "SELECT 1 FROM tombstones WHERE run_id = ? AND (seq > ? OR (seq = ? AND head = ?))"
    return _ask_with(connection, query, (run_id, seq, seq, head)) is not None


def _ask_with(connection: sqlite3.Connection, query: str, values: tuple[str | int, ...]) -> object:
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]


def check_witness(connection: sqlite3.Connection, path: Path, witness: Witness | None) -> None:
    """Raise DamagedLogError where the log is another one, or not as far, as the witness saw (see `gate`).

    The witness is to be read first: meanwhile a log only grows.
    """
    if witness is None:
        return
    hint = "put the newest copy back with its -wal file; to go on with this one: sagactl doctor --after-restore"
    store_id = read_store_id(connection)
    if store_id != witness.store_id:
        message = f"{path} is another log (store {store_id[:8]}) than was kept here (store {witness.store_id[:8]})"
        raise DamagedLogError(message, hint=hint)
    if not witness.run_id:
        return
    if not holds(connection, witness.run_id, witness.seq, witness.hash):
        message = f"{path} lacks record {witness.seq} of run {witness.run_id}, which was durable: it is an older copy"
        raise DamagedLogError(f"{message}, or its -wal file is gone", hint=hint)
