"""Going on with a log that its witnesses object to: an older copy that was put back, knowingly."""

from __future__ import annotations

from pathlib import Path

from sagactl.log.far_witness import FarWitness
from sagactl.log.file_system import refuse_odd_file
from sagactl.log.gate import Gate, Witness
from sagactl.log.sqlite_open import BUSY_MS, connect_plainly, no_log, open_to_read, read_store_id


def accept_log(path: Path) -> None:
    """Let the log that lies at *path* be the one that was always there; raises StorageError, NotFoundError.

    What the witnesses have seen beyond it is forgotten. The log itself isn't changed.
    """
    refuse_odd_file(path)
    if not path.exists() or path.stat().st_size == 0:
        raise no_log(path)
    gate = Gate(path, timeout_seconds=BUSY_MS / 1000)
    try:
        gate.enter()
        connection = open_to_read(path, busy_ms=BUSY_MS, connect=connect_plainly, is_immutable=False)
        try:
            store_id = read_store_id(connection)
        finally:
            connection.close()
        gate.write_witness(Witness(store_id))
        FarWitness(path, store_id).forget()
    finally:
        gate.close()
