"""Opening a log by what the settings call it: a path, or the address of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sagactl.errors import InvalidError
from sagactl.log.base import Log

_SERVERS: Final = ("postgresql://", "postgres://")


def tell_lost(target: str) -> str | None:
    """Return when a log was kept at *target*, where none lies now; None where one does, or none ever did."""
    path = Path(target).expanduser()
    if "://" in target or path.exists():
        return None
    from sagactl.log.far_witness import find_kept
    from sagactl.log.sqlite_open import tell_kept

    kept = find_kept(path)
    return None if kept is None else f"there is no log at {path}, but {tell_kept(kept)}"


def open_log(
    target: str | Path, *, read_only: bool = False, is_lasting: bool = True, passes_witnesses: bool = False
) -> Log:
    """Return the log at *target*, made if need be; read-only, nothing is made or changed.

    A log that isn't *lasting* will be thrown away: nothing of it is taken down elsewhere. With *passes_witnesses* it is
    a copy that isn't accepted yet: it must be there, to be written to.

    Raises StorageError, InvalidError where *target* names no kind of log, and NotFoundError where there is none to
    read.
    """
    text = str(target)
    if text.startswith(_SERVERS):
        raise InvalidError(
            "a log in PostgreSQL is not supported by this release",
            code="not-supported",
            hint="name a file with --log or SAGACTL_LOG",
        )
    if "://" in text:
        message = f"{text!r} names no kind of log that sagactl knows"
        raise InvalidError(message, code="invalid-config", hint="name a file with --log or SAGACTL_LOG")
    if not text or "\0" in text:
        raise InvalidError(f"{text!r} is no path of a log", code="invalid-config", hint="name a file with --log")
    from sagactl.log.sqlite import SqliteLog

    path = Path(target).expanduser()
    if passes_witnesses:
        return SqliteLog(path, passes_witnesses=True)
    return SqliteLog(path, read_only=read_only, is_lasting=is_lasting)
