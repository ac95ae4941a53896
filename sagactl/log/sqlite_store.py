"""Transactions on the database of a log: one writer at a time, every error a StorageError, doubt looked into (E18).

A commit that raised may be durable all the same: the sync failed after the write, or the machine's answer was lost.
So after an error of COMMIT the connection is thrown away, and a new one is asked whether the transaction is there, by
the record that it would have ended with. If it is, a checkpoint copies it into the database file and syncs that:
only then it counts as durable, for after a failed sync the system may hold the WAL's pages for written. StorageError
says what was found (`durable`), and the next operation finds a working connection.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from sagactl.errors import InternalError, StorageError
from sagactl.log.checkpoint import Checkpointer, checkpoint
from sagactl.log.far_witness import FarWitness
from sagactl.log.gate import Gate, Witness
from sagactl.log.sqlite_errors import SQLITE_ERRORS, storage_error
from sagactl.log.sqlite_open import (
    BUSY_MS,
    Connect,
    check_witness,
    connect_plainly,
    holds,
    open_to_write,
    prepare_place,
    read_store_id,
    refuse_nothing,
)

T = TypeVar("T")
_READERS_WAIT_MS: Final = 250


class Mark(NamedTuple):
    """The last record or tombstone of a transaction: what tells whether it is there."""

    run_id: str
    seq: int
    hash: str


Work = Callable[[sqlite3.Connection], tuple[T, Mark | None]]
"""Writes, and returns a result and the mark of what it wrote, if it wrote records or tombstones."""


class WritingStore:
    """The database at *path*, for reading and writing, from any thread.

    With *passes_witnesses* it is a copy that was put back and isn't accepted yet: no witness is asked or changed.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_ms: int = BUSY_MS,
        connect: Connect = connect_plainly,
        checkpointer: Checkpointer | None = None,
        is_lasting: bool = True,
        passes_witnesses: bool = False,
    ) -> None:
        self._path = path
        self._busy_ms = busy_ms
        self._connect = connect
        self._checkpointer = checkpointer or Checkpointer(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False
        if passes_witnesses:
            refuse_nothing(path)
        prepare_place(path)
        self._gate = Gate(path, timeout_seconds=busy_ms / 1000, passes_witness=passes_witnesses)
        try:
            self._store_id = self.read(read_store_id)
            self._far = FarWitness(path, self._store_id, is_lasting=is_lasting and not passes_witnesses)
            witness = self._far.read()
            self.read(lambda connection: check_witness(connection, path, witness))
        except BaseException:
            self._throw_away()
            self._gate.close()
            raise

    def _connected(self) -> sqlite3.Connection:
        if self._is_closed:
            raise InternalError(f"the log {self._path} was closed")
        if self._connection is None:
            self._connection = open_to_write(self._path, self._gate, busy_ms=self._busy_ms, connect=self._connect)
        return self._connection

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return what *query* finds."""
        with self._lock:
            connection = self._connected()
            try:
                return query(connection)
            except SQLITE_ERRORS as error:
                self._throw_away()
                raise storage_error(error, self._path, "read") from error

    def write(self, work: Work[T]) -> T:
        """Run *work* in one durable transaction; raises StorageError, see the essay above."""
        with self._lock:
            connection = self._connected()
            self._gate.enter()
            try:
                value, mark = self._run(connection, work)
                self._commit(connection, mark)
                if mark is not None:
                    witness = Witness(self._store_id, *mark)
                    self._gate.write_witness(witness)
                    self._far.note(witness)
                self._checkpointer.after_commit(connection)
                return value
            finally:
                self._gate.leave()

    def _run(self, connection: sqlite3.Connection, work: Work[T]) -> tuple[T, Mark | None]:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return work(connection)
        except SQLITE_ERRORS as error:
            found = storage_error(error, self._path, "write to")
            self._roll_back(connection)
            if found.code != "locked":
                self._throw_away()
            raise found from error
        except BaseException:
            self._roll_back(connection)
            raise

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except SQLITE_ERRORS:
            self._throw_away()  # closing it rolls back for sure

    def _commit(self, connection: sqlite3.Connection, mark: Mark | None) -> None:
        try:
            connection.execute("COMMIT")
        except SQLITE_ERRORS as error:
            self._throw_away()
            durable = self._look_again(mark)
            raise _doubtful_commit(error, self._path, durable) from error
        except BaseException:
            self._throw_away()
            raise

    def _look_again(self, mark: Mark | None) -> bool | None:
        """Return whether a transaction whose commit raised is durable; None: nobody knows."""
        if mark is None:
            return None
        try:
            connection = self._connected()
            if not holds(connection, *mark):
                return False
        except (*SQLITE_ERRORS, StorageError):
            self._throw_away()
            return None
        return checkpoint(connection, cut=True, wait_ms=_READERS_WAIT_MS) or None

    def _throw_away(self) -> None:
        if self._connection is None:
            return
        with suppress(*SQLITE_ERRORS):
            self._connection.close()
        self._connection = None

    def checkpoint(self) -> bool:
        """Copy the WAL into the database and cut both to what they hold; False where readers hindered it."""
        with self._lock:
            connection = self._connected()
            self._gate.enter()
            try:
                return checkpoint(connection, cut=True, wait_ms=_READERS_WAIT_MS)
            finally:
                self._gate.leave()

    def witness(self) -> Witness | None:
        """Return what the gate saw of the log last."""
        return self._gate.read_witness()

    def close(self) -> None:
        """Close the connection; the last one leaves no WAL behind."""
        with self._lock:
            self._is_closed = True
            self._far.write()
            if self._connection is not None:
                # Where others keep the gate, SQLite's own lock keeps them out of a checkpoint (see `checkpoint`).
                with suppress(StorageError):
                    self._gate.enter()
                self._throw_away()
            self._gate.close()


def _doubtful_commit(error: sqlite3.Error | UnicodeDecodeError, path: Path, durable: bool | None) -> StorageError:
    ends = {
        True: "what was to be written is there all the same",
        False: "nothing of it was written",
        None: "what was to be written may be there or not",
    }
    found = storage_error(error, path, "commit to")
    # Who types the same again where it was written down already may begin a run twice.
    look = "see what is in the log: sagactl list"
    hint = found.hint if durable is False or found.hint is None else found.hint.replace("type the same again", look)
    wrapped = StorageError(f"{found.message}; {ends[durable]}", code=found.code, hint=hint)
    wrapped.durable = durable
    return wrapped
