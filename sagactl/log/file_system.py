"""The folder and the file of a log: private, no symlink, on a file system that this host alone writes to.

SQLite makes its files readable as the umask says and follows a symlink at their path, so the database is made here
first, empty, exclusive and 0600; its `-wal` and `-shm` take its mode. A file that was just made is durable only with
its folder's entry, and SQLite ignores a failing sync of the folder, so the folder is synced here as well.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from sagactl.errors import DamagedLogError, StorageError
from sagactl.regular_file import read_beginning

STATE_FOLDER: Final = ".sagactl"
"""A project's folder for what its machine keeps; it is kept out of git by itself."""

NAME_ANOTHER: Final = "name the file of the log with --log or SAGACTL_LOG; the first run makes it"
_DATABASE: Final = b"SQLite format 3\0"
_ID_AT: Final = 68
_HEAD_BYTES: Final = 72
MOUNT_IT: Final = "its file system is mounted read-only: mount it to be written to, then type the same again"
_FREE_SOME: Final = "free some space on its disk, then type the same again"
_PERMIT: Final = "see to the permissions of the file and its folder, then type the same again"
_CODES: Final = {
    errno.ENOSPC: ("disk-full", _FREE_SOME),
    errno.EDQUOT: ("disk-full", _FREE_SOME),
    errno.EROFS: ("read-only", MOUNT_IT),
    errno.EACCES: ("read-only", _PERMIT),
    errno.EPERM: ("read-only", _PERMIT),
}
_MOUNTS: Final = Path("/proc/self/mounts")
_NETWORK_TYPES: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "9p", "ocfs2"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.ceph", "fuse.davfs", "davfs"}
)
"""File systems that other hosts may write to as well, or whose locks and shared memory end at this host."""


def make_private_folder(folder: Path) -> None:
    """Make *folder* and what is missing above it, 0700 whatever the umask; raises StorageError."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        try:
            each.mkdir(mode=0o700)
            each.chmod(0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise file_error("make the folder", each, error) from error
        if each.name == STATE_FOLDER:
            _ignore(each)
        sync_folder(each.parent)


def _ignore(folder: Path) -> None:
    """Let git look past *folder*: it is this machine's own."""
    try:
        with (folder / ".gitignore").open("x", encoding="ascii") as file:
            file.write("*\n")
    except OSError as error:
        raise file_error("make a file in", folder, error) from error


def replace_file(path: Path, text: str) -> None:
    """Put *text* at *path*, whole or not at all; raises StorageError."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise file_error("write", path, error) from error


def make_private_file(path: Path) -> bool:
    """Make an empty file, 0600 whatever the umask, and sync its folder; False where there is one already."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise file_error("make", path, error) from error
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Make the entries of *folder* durable; raises StorageError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return  # a file system that can't sync folders keeps their entries in order by itself
        raise file_error("sync the folder", folder, error) from error


def refuse_odd_file(path: Path) -> None:
    """Raise StorageError where a symlink, a folder or a device stands at *path*."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise file_error("look at", path, error) from error
    if stat.S_ISLNK(mode):
        raise StorageError(f"{path} is a symbolic link", code="unsafe-path", hint="name the file itself with --log")
    if not stat.S_ISREG(mode):
        raise StorageError(f"{path} is {_name_kind(mode)}, no file", code="unsafe-path", hint=NAME_ANOTHER)


def _name_kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket", stat.S_IFIFO: "a pipe"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def refuse_foreign_file(path: Path, gate: Path, *, application_id: int) -> None:
    """Raise DamagedLogError for a file that never was a log: it isn't one, and no *gate* says that one was kept there.

    It is looked at before anything is made beside it. *application_id* is what the head of a log's file holds.
    """
    if gate.exists():
        return  # one was: what is wrong with the file is found out when it is opened
    try:
        head = read_beginning(path, _HEAD_BYTES)
    except OSError:
        return
    if not head or (head.startswith(_DATABASE) and head[_ID_AT:] == application_id.to_bytes(4, "big")):
        return
    what = "is a database, but no log of sagactl" if head.startswith(_DATABASE) else "is no log of sagactl"
    raise DamagedLogError(f"{path} {what}", code="not-a-log", hint=NAME_ANOTHER)


def refuse_network(folder: Path) -> None:
    """Raise StorageError where *folder* lies on a file system that several hosts may share."""
    found = find_mount(folder)
    if found is not None and found[1] in _NETWORK_TYPES and found[0] != "/":  # the root is this machine's own
        raise StorageError(
            f"{folder} lies on a network file system ({found[1]}, mounted at {found[0]})",
            code="network-file-system",
            hint="name a file on a local disk with --log or SAGACTL_LOG",
        )


def find_mount(folder: Path, mounts: Path = _MOUNTS) -> tuple[str, str] | None:
    """Return mount point and type of the file system that *folder* lies on, or None where the system doesn't say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    real = os.path.realpath(folder)
    best: tuple[str, str] | None = None
    for line in lines:
        words = line.split(" ")
        if len(words) < 3:
            continue
        point = _unescape(words[1])
        is_above = real == point or real.startswith(point.rstrip("/") + "/")
        if is_above and (best is None or len(point) >= len(best[0])):
            best = point, words[2]
    return best


def _unescape(text: str) -> str:
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text


def file_error(what: str, path: Path, error: OSError) -> StorageError:
    """Return the error to raise where *what* couldn't be done with *path*."""
    code, hint = _CODES.get(error.errno or 0, ("storage", "name another place with --log or SAGACTL_LOG"))
    return StorageError(f"can't {what} {path}: {error.strerror}", code=code, hint=hint)
