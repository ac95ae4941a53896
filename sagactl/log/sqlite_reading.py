"""Reading a log that this command must not write to: nothing beside it or in it is made or changed.

SQLite would make `-wal` and `-shm` files even for a connection that only reads. While no WAL has content, the database
file is all there is, and it changes by checkpoints only; a reader that keeps those out by the gate, for the moment of
one query, may read it as immutable, which needs no other file and no permission to write.
Where a WAL has content, somebody writes, or was killed: then its files are there, and a plain reading connection
takes part in SQLite's protocol.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from sagactl.log.far_witness import FarWitness
from sagactl.log.file_system import refuse_foreign_file, refuse_odd_file
from sagactl.log.gate import Gate, Witness, find_gate
from sagactl.log.migrate import APPLICATION_ID
from sagactl.log.sqlite_errors import SQLITE_ERRORS, storage_error
from sagactl.log.sqlite_open import (
    BUSY_MS,
    Connect,
    check_not_lost,
    check_witness,
    connect_plainly,
    no_log,
    open_to_read,
    read_store_id,
)

T = TypeVar("T")


class Store(Protocol):
    """Something that queries can be put to."""

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return what *query* finds; it must not leave a cursor open."""
        ...

    def witness(self) -> Witness | None:
        """Return what the gate saw of the log last."""
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...


class ReadingStore:
    """The database at *path*, for reading only: nothing there is made or changed."""

    def __init__(
        self,
        path: Path,
        *,
        busy_ms: int = BUSY_MS,
        connect: Connect = connect_plainly,
        is_lasting: bool = True,
    ) -> None:
        self._path = path
        self._is_lasting = is_lasting
        self._busy_ms = busy_ms
        self._connect = connect
        self._lock = threading.Lock()
        self._live: sqlite3.Connection | None = None
        self._is_checked = False
        refuse_odd_file(path)
        refuse_foreign_file(path, find_gate(path), application_id=APPLICATION_ID)
        self._gate = Gate(path, timeout_seconds=busy_ms / 1000, is_read_only=True)
        try:
            self._check_there()
            self.read(lambda _: None)
        except BaseException:
            self.close()
            raise

    def _check_there(self) -> None:
        """Tell a log that was lost from one that never was."""
        if self._path.exists() and self._path.stat().st_size > 0:
            return
        check_not_lost(self._path, self._gate.read_witness())
        raise no_log(self._path)

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return what *query* finds."""
        with self._lock:
            try:
                if self._live is None and self._has_journal():
                    self._live = self._open(is_immutable=False)
                if self._live is not None:
                    return query(self._live)
                return self._read_at_rest(query)
            except SQLITE_ERRORS as error:
                raise storage_error(error, self._path, "read") from error

    def _read_at_rest(self, query: Callable[[sqlite3.Connection], T]) -> T:
        self._gate.enter(is_shared=True)
        try:
            is_immutable = not self._has_journal()
            connection = self._open(is_immutable=is_immutable)
            try:
                return query(connection)
            finally:
                connection.close()
        finally:
            self._gate.leave()

    def _open(self, *, is_immutable: bool) -> sqlite3.Connection:
        witness = self._gate.read_witness()
        connection = open_to_read(self._path, busy_ms=self._busy_ms, connect=self._connect, is_immutable=is_immutable)
        try:
            if not self._is_checked:
                check_witness(connection, self._path, witness)
                far = FarWitness(self._path, read_store_id(connection), is_lasting=self._is_lasting)
                check_witness(connection, self._path, far.read())
                self._is_checked = True
        except BaseException:
            connection.close()
            raise
        return connection

    def _has_journal(self) -> bool:
        for suffix in ("-wal", "-journal"):
            try:
                if self._path.with_name(self._path.name + suffix).stat().st_size > 0:
                    return True
            except OSError:
                continue
        return False

    def witness(self) -> Witness | None:
        """Return what the gate saw of the log last."""
        return self._gate.read_witness()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._live is not None:
                self._live.close()
                self._live = None
            self._gate.close()
