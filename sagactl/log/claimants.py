"""Who has claimed what goes out of a log, and what becomes of it when that process is dead.

A claim lapses by itself after `LEASE_MS`: that is for a process of another host, or one that hangs. One of this host
that is certainly dead can be told at once, as leases do it (`holder`), and then nobody waits.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from sagactl.core.records import Holder
from sagactl.log.sqlite_store import Mark

FREED_MS: Final = 1
"""When what is freed is due: long ago, and still told from what was never claimed."""

_TABLES: Final = ("deliveries", "cursors")


def spell_claimant(holder: Holder) -> str:
    """Return *holder* as it stands in the table."""
    return json.dumps([holder.host, holder.pid, holder.started, holder.boot_id])


def read_claimant(text: str | None) -> Holder | None:
    """Return who stands in the table; None for nobody, and for what nobody can read: it lapses by itself."""
    try:
        host, pid, started, boot_id = json.loads(text or "null")
    except (TypeError, ValueError):
        return None
    is_sound = isinstance(pid, int) and all(isinstance(each, str) for each in (host, started, boot_id))
    return Holder(host, pid, started, boot_id) if is_sound else None


def read_claimants(connection: sqlite3.Connection) -> list[str]:
    """Return all who have claimed something."""
    query = " UNION ".join(f"SELECT claimant FROM {table} WHERE claimant IS NOT NULL" for table in _TABLES)
    return [claimant for (claimant,) in connection.execute(query).fetchall()]


def free_claims(claimants: Sequence[str], connection: sqlite3.Connection) -> tuple[None, Mark | None]:
    """Let others have at once what *claimants* have claimed."""
    for table in _TABLES:
        connection.executemany(
            f"UPDATE {table} SET due_ms = {FREED_MS}, claimant = NULL WHERE claimant = ?",
            [(claimant,) for claimant in claimants],
        )
    return None, None
