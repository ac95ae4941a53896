"""Places in the project's folder, for the plugins beside this file: reached folder by folder, and never through a link.

A path of a saga is walked from the project's folder with one descriptor a step, and no step follows a symbolic link. So
nothing outside is reached, whatever the path says and whoever swaps a folder for a link in the meantime.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from sagactl import CallContext, Rejected, Unavailable

PATH_LENGTH_MAX: Final = 1_000
NAME_BYTES_MAX: Final = 255
POLL_SECONDS: Final = 0.02
BLOCK_BYTES: Final = 1_048_576

RESERVED: Final = frozenset({".sagactl", ".git", "plugins", "sagas", "sagactl.toml", "pyproject.toml"})
"""What sagactl itself lives by, at the top of the project: whoever writes there decides what runs."""

NO_PERMISSION: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM})


@dataclass(frozen=True)
class Place:
    """A name in a folder that is open; there may be something of that name or not."""

    folder: int
    name: str
    path: str

    def look(self) -> os.stat_result | None:
        """Return what is there; a link is looked at itself."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        return None

    def move_to(self, other: Place) -> None:
        """Move what is here to *other*, over whatever file is there, in one instant."""
        os.rename(self.name, other.name, src_dir_fd=self.folder, dst_dir_fd=other.folder)

    def link_to(self, other: Place) -> None:
        """Give the file or link that is here a second name; raises FileExistsError where there is something."""
        os.link(self.name, other.name, src_dir_fd=self.folder, dst_dir_fd=other.folder, follow_symlinks=False)

    def unlink(self) -> None:
        """Take the name away; nothing there is fine."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self.folder)

    def sync(self) -> None:
        """Make durable which names the folder has."""
        os.fsync(self.folder)

    def open_file(self, flags: int, mode: int = 0o600) -> int:
        """Open the file that is here, never through a link and never waiting for somebody at the other end of it."""
        return os.open(self.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=self.folder)


def check_path(path: str) -> tuple[str, ...]:
    """Return the names that a path consists of; raises Rejected for one that leads out, or to what is reserved."""
    names = tuple(path.split("/"))
    if path.startswith("/") or ".." in names:
        raise Rejected(f"{path!r:.200} leads out of the project's folder", code="outside")
    if not path.isprintable() or len(path) > PATH_LENGTH_MAX or any(_is_odd(name) for name in names):
        raise Rejected(f"{path!r:.200} is no path of a file: write it as a/b.txt", code="bad_path")
    if names[0].casefold() in RESERVED:
        raise Rejected(f"{names[0]} is what sagactl itself lives by", code="reserved")
    return names


def _is_odd(name: str) -> bool:
    return name in {"", "."} or len(name.encode(errors="replace")) > NAME_BYTES_MAX


@contextlib.contextmanager
def opened_place(context: CallContext, path: str) -> Iterator[Place]:
    """Open the folder of a path; raises Rejected where it isn't there, or where a link stands in the way."""
    *folders, name = check_path(path)
    with _opened_folder(context.project, folders, path) as folder:
        yield Place(folder, name, path)


@contextlib.contextmanager
def _opened_folder(root: Path, folders: list[str], path: str) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        here = os.open(root, flags)
        stack.callback(os.close, here)
        for name in folders:
            try:
                here = os.open(name, flags | os.O_NOFOLLOW, dir_fd=here)
            except OSError as error:
                refuse(error, path, folder=name)
            stack.callback(os.close, here)
        yield here


@contextlib.contextmanager
def opened_shelf(context: CallContext) -> Iterator[tuple[int, int]]:
    """Open `.sagactl/kept` and `.sagactl/notes`, made where they aren't, and hold the lock of all file operations."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.ExitStack() as stack:
        state = _open_or_make(context.project / ".sagactl", None, flags, stack)
        kept, notes = (_open_or_make(name, state, flags, stack) for name in ("kept", "notes"))
        lock = os.open("files.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=notes)
        stack.callback(os.close, lock)
        _wait_for(context, lock)
        yield kept, notes


def _open_or_make(name: str | Path, parent: int | None, flags: int, stack: contextlib.ExitStack) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    folder = os.open(name, flags, dir_fd=parent)
    stack.callback(os.close, folder)
    return folder


def _wait_for(context: CallContext, lock: int) -> None:
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if context.cancelled.wait(POLL_SECONDS) or context.seconds_left() < 1:
            raise Unavailable("another call is at work on files", code="under_way", retry_after=1)


def name_of_key(key: str) -> str:
    """Return a file name for what belongs to an operation: the same in every try."""
    return hashlib.sha256(key.encode()).hexdigest()[:24]


def digest(place: Place, *, bytes_max: int) -> str | None:
    """Return the checksum of a file, None where it is larger; raises OSError."""
    summed, left = hashlib.sha256(), bytes_max
    with os.fdopen(place.open_file(os.O_RDONLY), "rb") as file:
        while block := file.read(BLOCK_BYTES):
            left -= len(block)
            if left < 0:
                return None
            summed.update(block)
    return summed.hexdigest()


def is_file(found: os.stat_result | None) -> bool:
    """Tell whether it is a regular file."""
    return found is not None and stat.S_ISREG(found.st_mode)


def is_folder(found: os.stat_result | None) -> bool:
    """Tell whether it is a folder."""
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_link(found: os.stat_result | None) -> bool:
    """Tell whether it is a symbolic link."""
    return found is not None and stat.S_ISLNK(found.st_mode)


def refuse(error: OSError, path: str, *, folder: str = "") -> NoReturn:
    """Say what a failure comes to that came before anything was done."""
    if error.errno == errno.ENOENT:
        raise Rejected(
            f"{path}: there is no {folder or path}", code="no_folder" if folder else "nothing_there"
        ) from None
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        raise Rejected(f"{path}: {folder or path} is a link or no folder", code="link_in_the_way") from None
    if error.errno in NO_PERMISSION:
        raise Rejected(f"{path}: {error.strerror}", code="no_permission") from None
    if error.errno in NO_SPACE:
        raise Unavailable(f"{path}: {error.strerror}", code="no_space") from None
    if error.errno == errno.EXDEV:
        raise Rejected(f"{path} isn't on the disk of the project's .sagactl folder", code="other_disk") from None
    raise Rejected(f"{path}: {error.strerror}", code="refused") from None
