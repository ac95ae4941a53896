"""The folder and the file of a log: what is made, what is refused, and what is said when it can't be (E18)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sagactl.errors import StorageError
from sagactl.log import file_system
from sagactl.log.checkpoint import Checkpointer
from sagactl.log.file_system import (
    STATE_FOLDER,
    file_error,
    make_private_file,
    make_private_folder,
    refuse_odd_file,
    replace_file,
    sync_folder,
)
from sagactl.log.sqlite_counts import _measure


def refuse(error: int) -> Callable[..., object]:
    """Return a call of the system that fails so."""

    def call(*_: object, **__: object) -> object:
        raise OSError(error, os.strerror(error))

    return call


def test_folders_are_private_and_our_own_is_kept_out_of_git(tmp_path: Path) -> None:
    """H41: all that is missing is made for its owner alone, and git looks past a project's own folder."""
    make_private_folder(tmp_path / "a" / STATE_FOLDER)
    assert [oct(each.stat().st_mode & 0o777) for each in (tmp_path / "a", tmp_path / "a" / STATE_FOLDER)] == [
        "0o700"
    ] * 2
    assert (tmp_path / "a" / STATE_FOLDER / ".gitignore").read_text(encoding="ascii") == "*\n"
    assert not (tmp_path / "a" / ".gitignore").exists()
    make_private_folder(tmp_path / "a" / STATE_FOLDER)


def test_a_folder_that_another_process_makes_meanwhile_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E18: of two that begin at once one makes the folder, and the other one goes on in it."""
    folder = tmp_path / "state"

    def be_late(path: Path, mode: int = 0o777) -> None:
        os.mkdir(path, mode)  # noqa: PTH102 - the other process
        raise FileExistsError(errno.EEXIST, "it is there", str(path))

    monkeypatch.setattr(Path, "mkdir", be_late)
    make_private_folder(folder)
    assert folder.is_dir()


CANNOT: dict[str, tuple[str, int, Callable[[Path], object], str]] = {
    "no folder": ("pathlib.Path.mkdir", errno.EACCES, lambda path: make_private_folder(path / "x"), "make the folder"),
    "no mark for git": (
        "pathlib.Path.open",
        errno.EROFS,
        lambda path: make_private_folder(path / STATE_FOLDER),
        "make a file in",
    ),
    "no file": ("os.open", errno.EACCES, lambda path: make_private_file(path / "x"), "make"),
    "no room for a file": ("os.open", errno.ENOSPC, lambda path: make_private_file(path / "x"), "make"),
    "no room for a text": ("pathlib.Path.write_text", errno.EDQUOT, lambda path: replace_file(path / "x", ""), "write"),
    "no sync": ("os.fsync", errno.EIO, sync_folder, "sync the folder"),
    "no look": ("pathlib.Path.lstat", errno.EACCES, lambda path: refuse_odd_file(path / "x"), "look at"),
}


@pytest.mark.parametrize("name", CANNOT)
def test_what_cannot_be_made_is_an_error_of_storage(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E18: what the system refuses is told with the place and the reason, and a full or read-only disk by its code."""
    what, number, act, said = CANNOT[name]
    monkeypatch.setattr(what, refuse(number))
    with pytest.raises(StorageError, match=f"can't {said} .*{os.strerror(number)}") as caught:
        act(tmp_path)
    codes = {errno.ENOSPC: "disk-full", errno.EDQUOT: "disk-full", errno.EROFS: "read-only", errno.EACCES: "read-only"}
    assert caught.value.code == codes.get(number, "storage")
    monkeypatch.undo()
    assert list(tmp_path.glob("x*")) == []


def test_a_file_system_that_syncs_no_folders_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E18: where the system says that folders can't be synced, it keeps their entries in order by itself."""
    monkeypatch.setattr(os, "fsync", refuse(errno.EINVAL))
    sync_folder(tmp_path)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E18: whoever reads it sees the old text or the new one, and after an error the old one stays alone."""
    path = tmp_path / "kept"
    replace_file(path, "one")
    replace_file(path, "two")
    monkeypatch.setattr(Path, "replace", refuse(errno.ENOSPC))
    with pytest.raises(StorageError):
        replace_file(path, "three")
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [("kept", "two")]


def test_a_file_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    """E18: of two that make the log's file at once, one does."""
    assert [make_private_file(tmp_path / "x") for _ in range(2)] == [True, False]


def test_a_file_that_is_gone_is_empty(tmp_path: Path) -> None:
    """What can't be measured counts for nothing: a WAL that nobody has written yet, a log that is being moved."""
    assert Checkpointer(tmp_path / "log.db").wal_bytes() == 0
    assert _measure(tmp_path / "log.db") == {"db": 0, "wal": 0}
    (tmp_path / "log.db-wal").write_bytes(b"x" * 5)
    assert _measure(tmp_path / "log.db") == {"db": 0, "wal": 5}


def test_only_a_plain_file_is_taken_for_a_log(tmp_path: Path) -> None:
    """H41: neither a link, which may point anywhere, nor a folder."""
    (tmp_path / "link").symlink_to(tmp_path / "x")
    for path, said in ((tmp_path / "link", "a symbolic link"), (tmp_path, "no file")):
        with pytest.raises(StorageError, match=said):
            refuse_odd_file(path)
    assert file_system.find_mount(tmp_path) is not None


@pytest.mark.parametrize(
    ("number", "code", "hint"),
    [
        (errno.EROFS, "read-only", "mounted read-only"),
        (errno.EACCES, "read-only", "see to the permissions"),
        (errno.EDQUOT, "disk-full", "free some space"),
        (errno.ENAMETOOLONG, "storage", "name another place with --log"),
    ],
)
def test_trouble_with_a_file_is_mended_where_it_lies(number: int, code: str, hint: str) -> None:
    """E18: only where nothing can lie there is another place advised: a log at another place knows none of the runs."""
    error = file_error("make", Path("log.db"), OSError(number, "no"))
    assert (error.code, hint in str(error.hint)) == (code, True)
    assert ("--log" in str(error.hint)) is (code == "storage")
