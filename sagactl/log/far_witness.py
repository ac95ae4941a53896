"""A second witness of the log, kept far from it: in the user's state folder and not beside the database (N9).

The witness in the gate's file (see `gate`) notices a database that was replaced by an older copy. Where the whole
folder was put back - a backup, a snapshot, a copy of yesterday's project - the gate's file was put back with it, and
all that was done since would be done again. So what the log held is taken down once more in
`$XDG_STATE_HOME/sagactl/witnesses` (or `~/.local/state/…`): one small file for each log, named after its path and its
id, so that a copy that goes its own way at another place is another log. And where nothing lies at a path, the folder
still tells that a log was kept there: a folder was removed, or its disk isn't mounted.

It is written at most once a second and when a log is closed, without a sync: an older one only sees less. It may be
missing (another machine, another user, no home): then nothing is noticed, as without it. No record of work depends on
it, so whatever can't be written or read there is passed over.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from sagactl.hashing import sha256
from sagactl.log.file_system import file_error
from sagactl.log.gate import Witness, parse_witness, spell_witness
from sagactl.regular_file import read_beginning

WITNESSES_MAX: Final = 1_000
"""Files that are kept; the oldest go first."""

_EVERY_SECONDS: Final = 1.0
_NAME_LENGTH: Final = 24
_BYTES_MAX: Final = 512


class FarWitness:
    """The second witness of the log *store_id* at *path*; of one that isn't *lasting* nothing is taken down."""

    def __init__(self, path: Path, store_id: str, *, is_lasting: bool = True) -> None:
        self._store_id = store_id
        folder = _find_folder() if is_lasting else None
        self._file = None if folder is None else folder / f"{_name_place(path)}-{_name(store_id)}"
        self._noted: Witness | None = None
        self._written_at = time.monotonic()

    def read(self) -> Witness | None:
        """Return what was taken down, or None."""
        if self._file is None:
            return None
        try:
            found = parse_witness(read_beginning(self._file, _BYTES_MAX))
        except OSError:
            return None
        return found if found is not None and found.store_id == self._store_id else None

    def note(self, witness: Witness) -> None:
        """Take down what is durable, now or soon."""
        self._noted = witness
        if time.monotonic() - self._written_at >= _EVERY_SECONDS:
            self.write()

    def write(self) -> None:
        """Write down what was noted last."""
        witness, self._noted = self._noted, None
        line = None if witness is None else spell_witness(witness)
        self._written_at = time.monotonic()
        if self._file is None or line is None:
            return
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._file.exists():
                _make_room(self._file.parent)
            beside = self._file.with_name(f"{self._file.name}.{os.getpid()}")
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                file.write(line)
            beside.replace(self._file)

    def forget(self) -> None:
        """Take back what was taken down: the log is accepted as it is. Raises StorageError where it can't be."""
        self._noted = None
        if self._file is None:
            return
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            if self.read() is not None:  # and what can't be read speaks against no log
                raise file_error("remove", self._file, error) from error

    def find_hindrance(self) -> str | None:
        """Return why nothing can be taken down here, or None; a file is made for it, and removed."""
        if self._file is None:
            return "there is no home folder"
        beside = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.touch(mode=0o600)
            beside.unlink()
        except OSError as error:
            return f"{self._file.parent} can't be written to: {error.strerror}"
        return None


class Kept(NamedTuple):
    """A log that was kept at a place, and when that was seen last."""

    store_id: str
    until_seconds: float


def find_kept(path: Path) -> Kept | None:
    """Return which log was kept at *path* last, as far as is known here, or None."""
    folder = _find_folder()
    found: list[Kept] = []
    with suppress(OSError):
        for file in () if folder is None else folder.glob(f"{_name_place(path)}-{'?' * _NAME_LENGTH}"):
            witness = parse_witness(read_beginning(file, _BYTES_MAX))
            if witness is not None:
                found.append(Kept(witness.store_id, file.stat().st_mtime))
    return max(found, key=lambda kept: kept.until_seconds, default=None)


def _name_place(path: Path) -> str:
    return _name(os.path.realpath(path))


def _name(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_NAME_LENGTH]


def _find_folder() -> Path | None:
    state = os.environ.get("XDG_STATE_HOME")
    try:
        base = Path(state) if state else Path.home() / ".local" / "state"
    except RuntimeError:  # nobody's process
        return None
    return base / "sagactl" / "witnesses"


def _make_room(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)
    for file in files[: max(0, len(files) - WITNESSES_MAX + 1)]:
        file.unlink(missing_ok=True)
