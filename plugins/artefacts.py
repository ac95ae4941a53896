"""Artefacts: files that a build makes, and a folder that is the shop window for them.

    artefacts.keep      copies the file that a build is going to overwrite, if there is one
    artefacts.put_back  undoes a build: that file is there again, or none is
    artefacts.stage     copies an artefact into a hidden folder of the store, with its checksum, named by the operation
    artefacts.publish   renames that folder to the name of the release: one instant, never half published; a good pivot
    artefacts.announce  adds a line to the store's feed, `releases.jsonl`, which whoever waits for releases reads

Everything that can take long or fail, the copying, lies before the pivot and can be undone; the pivot is one rename.
The store is a folder: a mounted share, or what a web server shows. It must be there: a mistyped path is no new store.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from sagactl import CallContext, Done, NotDone, Rejected, tool

from ._programs import alone

Version = Annotated[str, {"pattern": "^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$"}]
"""The name of a release; it becomes the name of a folder, so it has no slash and doesn't begin with a dot."""

FEED: Final = "releases.jsonl"
MANIFEST: Final = "release.json"
STAGING: Final = ".staging"


class Kept(TypedDict):
    """A file before a build: the name of its copy (null: there was none), and folders that weren't there."""

    kept: str | None
    missing_folders: list[str]


class Staged(TypedDict):
    """An artefact in the store that nobody sees yet."""

    staged: str
    file: str
    sha256: str


class Published(TypedDict):
    """A release in the store."""

    path: str


class Undone(TypedDict):
    """What an undo found and did."""

    status: str


@tool("artefacts.keep", compensation="artefacts.forget", compensation_with={"kept": "${{ output.kept }}"})
def keep(context: CallContext, path: str) -> Kept:
    """Copy a file aside before it is overwritten."""
    file = context.project / path
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise Rejected(f"{path} is no regular file", code="not_a_file")
    missing = [folder for folder in file.parents if not folder.exists()]
    name = _name_of(context.idempotency_key)
    copy = _kept_folder(context) / name
    if file.exists() and not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        with alone(context, copy.parent):  # a call of an earlier try may still be copying
            if not copy.exists():
                _copy(file, copy)
    kept = name if copy.exists() else None
    return {"kept": kept, "missing_folders": [str(folder) for folder in missing]}


@tool("artefacts.forget", null_safe=True)
def forget(context: CallContext, kept: str | None = None) -> Undone:
    """Remove the copy of a file, found by its name or by the key of its making."""
    folder = _kept_folder(context)
    copy = folder / Path(kept or _name_of(context.forward_key)).name
    was_there = copy.exists()
    copy.unlink(missing_ok=True)
    copy.with_name(f"{copy.name}.part").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return {"status": "forgotten" if was_there else "nothing_kept"}


@tool("artefacts.put_back", null_safe=True)
def put_back(context: CallContext, path: str, kept: str | None = None, missing_folders: tuple[str, ...] = ()) -> Undone:
    """Undo a build, however far it came: the file that was there before is back, or there is none."""
    file = context.project / path
    if kept is not None:
        if not (_kept_folder(context) / Path(kept).name).exists():
            raise Rejected(f"the copy of {path} is gone: was it made on another machine?", code="copy_gone")
        _copy(_kept_folder(context) / Path(kept).name, file)
        return {"status": "put_back"}
    file.unlink(missing_ok=True)
    for folder in missing_folders:
        with contextlib.suppress(OSError):  # it holds something else by now, or isn't there
            Path(folder).rmdir()
    return {"status": "removed"}


@tool(
    "artefacts.stage",
    compensation="artefacts.unstage",
    compensation_with={"store": "${{ args.store }}"},
    probe="artefacts.find_staged",
)
def stage(context: CallContext, path: str, store: str, version: Version) -> Staged:
    """Copy an artefact into the store, unseen; nothing is staged for a release that there is already."""
    file, shelf = context.project / path, _find_store(context, store)
    if not file.is_file():
        raise Rejected(f"the build made no file {path}", code="no_artefact")
    if (shelf / version).exists():
        raise Rejected(f"{version} is published already", code="release_exists")
    name = _name_of(context.idempotency_key)
    folder = shelf / STAGING / name
    with alone(context, shelf):  # a call of an earlier try may still be copying
        shutil.rmtree(folder, ignore_errors=True)  # what an earlier try has left
        folder.mkdir(parents=True)
        staged: Staged = {"staged": name, "file": file.name, "sha256": _copy(file, folder / file.name)}
        _write(folder / MANIFEST, json.dumps({"version": version, **staged}) + "\n")
    return staged


@tool("artefacts.unstage", null_safe=True)
def unstage(context: CallContext, store: str) -> Undone:
    """Remove what an operation has staged."""
    staging = context.project / store / STAGING
    folder = staging / _name_of(context.forward_key)
    was_there = folder.exists()
    if was_there:
        with alone(context, staging.parent):
            shutil.rmtree(folder)
    with contextlib.suppress(OSError):
        staging.rmdir()
    return {"status": "removed" if was_there else "nothing_staged"}


@tool("artefacts.find_staged", read_only=True)
def find_staged(context: CallContext, store: str) -> Done | NotDone:
    """Find out whether an operation has staged its artefact; the manifest is written last."""
    manifest = _read_manifest(context.project / store / STAGING / _name_of(context.forward_key))
    return NotDone() if manifest is None else Done({name: manifest[name] for name in ("staged", "file", "sha256")})


@tool(
    "artefacts.publish",
    compensation="artefacts.withdraw",
    compensation_with={name: f"${{{{ args.{name} }}}}" for name in ("store", "version", "staged")},
    probe="artefacts.find_published",
)
def publish(context: CallContext, store: str, version: Version, staged: str) -> Published:
    """Make a staged artefact a release, in one instant; a release that there is already stays."""
    shelf = _find_store(context, store)
    source, target = shelf / STAGING / Path(staged).name, shelf / version
    if not _is_ours(target, staged):
        try:
            source.rename(target)
        except FileNotFoundError:
            raise Rejected(f"nothing is staged as {staged}", code="not_staged") from None
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise Rejected(f"{version} is published already, by somebody else", code="release_exists") from None
            raise
        _sync_folder(shelf)
    with contextlib.suppress(OSError):
        source.parent.rmdir()
    return {"path": str(target.resolve())}


@tool("artefacts.withdraw", null_safe=True)
def withdraw(context: CallContext, store: str, version: Version, staged: str) -> Undone:
    """Take a release out of the window again, behind the pivot and on demand; somebody else's stays."""
    shelf = _find_store(context, store)
    if not _is_ours(shelf / version, staged):
        return {"status": "nothing_of_ours"}
    hidden = shelf / STAGING / Path(staged).name
    hidden.parent.mkdir(exist_ok=True)
    (shelf / version).rename(hidden)  # back where it was staged, whose undo removes it
    return {"status": "withdrawn"}


@tool("artefacts.find_published", read_only=True)
def find_published(context: CallContext, store: str, version: Version, staged: str) -> Done | NotDone:
    """Find out whether the release is there and is ours."""
    target = _find_store(context, store) / version
    return Done({"path": str(target.resolve())}) if _is_ours(target, staged) else NotDone()


@tool("artefacts.announce")
def announce(context: CallContext, store: str, version: Version, text: str = "") -> None:
    """Add one line about a release to the feed; the same operation adds none twice."""
    feed = _find_store(context, store) / FEED
    with _locked(feed) as file:
        file.seek(0)
        lines = [line for line in file.read().splitlines(keepends=True) if line.endswith("\n")]
        if any(_key_of(line) == context.idempotency_key for line in lines):
            return
        line = json.dumps({"version": version, "text": text, "key": context.idempotency_key}) + "\n"
        file.truncate(len("".join(lines).encode()))  # a line that was cut off by a crash goes
        file.seek(0, os.SEEK_END)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _key_of(line: str) -> object:
    with contextlib.suppress(ValueError):
        entry = json.loads(line)
        return entry.get("key") if isinstance(entry, dict) else None
    return None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[Any]:
    with path.open("a+", encoding="utf-8", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _find_store(context: CallContext, store: str) -> Path:
    folder = context.project / store
    if not folder.is_dir():
        raise Rejected(f"no folder {store}", code="no_store")
    return folder


def _kept_folder(context: CallContext) -> Path:
    return context.project / ".sagactl" / "kept"


def _name_of(key: str) -> str:
    """Return a file name for the effect of an operation: the same in every try."""
    return hashlib.sha256(key.encode()).hexdigest()[:24]


def _is_ours(release: Path, staged: str) -> bool:
    manifest = _read_manifest(release)
    return manifest is not None and manifest.get("staged") == staged


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / MANIFEST).read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _copy(source: Path, target: Path) -> str:
    """Copy a file with its mode and times, so that the target is whole or isn't there; return its checksum."""
    part = target.with_name(f"{target.name}.part")
    shutil.copyfile(source, part)
    shutil.copystat(source, part)
    with part.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    part.rename(target)
    return checksum


def _write(path: Path, text: str) -> None:
    """Write a small file, durably and at once."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
