"""Going on with a log that its witnesses object to: an older copy that was put back, knowingly."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from sagactl.log.far_witness import FarWitness
from sagactl.log.gate import Gate, Witness
from sagactl.log.sqlite_errors import SQLITE_ERRORS, storage_error
from sagactl.log.sqlite_open import BUSY_MS, connect_plainly, open_to_read, read_store_id, refuse_nothing

_FIND_NEWEST: Final = "SELECT run_id, seq, head FROM runs ORDER BY updated_at_ms DESC, number DESC LIMIT 1"


def accept_log(path: Path) -> None:
    """Let the log that lies at *path* be the one that was always there; raises StorageError, NotFoundError.

    What the witnesses have seen beyond it is forgotten, in favour of what it holds now. The log itself isn't changed.
    This is the last step: what must hold of an accepted log is made durable before (`SqliteLog`, `passes_witnesses`).
    """
    refuse_nothing(path)
    with closing(Gate(path, timeout_seconds=BUSY_MS / 1000)) as gate:
        gate.enter()
        witness = _look(path)
        gate.replace_witness(witness)
        FarWitness(path, witness.store_id).forget()


def _look(path: Path) -> Witness:
    """Return what the log holds: its id, and the last record of the run that was written to last."""
    with closing(open_to_read(path, busy_ms=BUSY_MS, connect=connect_plainly, is_immutable=False)) as connection:
        try:
            return _read_witness(connection)
        except SQLITE_ERRORS as error:
            raise storage_error(error, path, "read") from error


def _read_witness(connection: sqlite3.Connection) -> Witness:
    newest = connection.execute(_FIND_NEWEST).fetchone()
    return Witness(read_store_id(connection), *(newest or ()))
