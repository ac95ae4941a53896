"""Files of the project: written, copied, moved, deleted, each with an undo that puts back exactly what was there.

    files.write        writes a text, or bytes as base64, over a file or as a new one
    files.copy         copies a file to a place, over a file or as a new one
    files.move         gives a file or a folder another place, where nothing is yet
    files.delete       takes a file, a link, or a folder away
    files.make_folder  makes a folder, and those that it lies in
    files.undo         undoes each of these; what somebody else has changed since is left alone: rejected
    files.read         reads a file; files.list tells what is in a folder
    files.forget       throws away what is kept for an undo that nobody will want any more

Each happens in one instant: other programs see what was before or what is after, and never half of it. What was there
before is kept in `.sagactl/kept`, as the very same file: its mode, owner, times and further names come back with it. A
folder that is deleted is kept whole. It stays there until the undo, or files.forget with the `kept` of the output.

The plugin keeps notes in `.sagactl/notes`, by the operation's key. So a repeated call answers as the first did, an undo
needs no output, and a call that comes after its undo is refused (`too_late`). Both folders belong to the run as the log
does: without them an undo can't tell what was there, and is rejected (`copy_gone`, `note_gone`). Notes of runs that
nobody will roll back any more may be deleted.

A path is seen from the project and stays within it: no `..`, nothing absolute, no link on the way, whatever the input
says. `.sagactl`, `.git`, `plugins`, `sagas`, `sagactl.toml` and `pyproject.toml` are out of reach. Everything must lie
on one disk. Only this plugin's calls wait for each other; a program that changes the same file in the very instant of
the change isn't noticed.

Rejected: a place that is taken or empty, a path that leads out, no permission. Unavailable: no space, or another call
at work for too long.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, TypedDict

from sagactl import CallContext, CannotTell, Done, NotDone, Rejected, tool

from ._file_deeds import (
    FILE_BYTES_MAX,
    Note,
    Shelf,
    act,
    find,
    identify,
    list_folder,
    remove_tree,
    undo,
)
from ._places import (
    BLOCK_BYTES,
    Place,
    check_path,
    is_file,
    is_folder,
    is_link,
    opened_place,
    opened_shelf,
    refuse,
)

CONTENT_BYTES_MAX: Final = 524_288
"""What may be written or read as an argument or output of a call."""

OF_OUTPUT: Final = {"path": "${{ output.path }}"}
ENTRIES_MAX: Final = 1_000
NEW_MODE: Final = 0o644

Path = Annotated[str, {"minLength": 1, "maxLength": 1_000}, "Seen from the project's folder, such as `etc/app.conf`."]
Mode = Annotated[str | None, {"pattern": "^0[0-7]{3}$"}, "Such as `0640`; what it was, or 0644, where it isn't given."]
Encoding = Literal["utf-8", "base64"]
MaybeKept = Annotated[str | None, {"pattern": "^[0-9a-f]{24}$"}]


class Written(TypedDict):
    """A file that was written: its checksum, and under which name the former one is kept (null: there was none)."""

    path: str
    sha256: str
    kept: str | None


class Moved(TypedDict):
    """A file or folder in its new place."""

    path: str


class Deleted(TypedDict):
    """What was taken away, and under which name it is kept."""

    path: str
    kept: str


class Made(TypedDict):
    """The folder, and which were made, the outermost first; none where all of them were there."""

    path: str
    made: list[str]


class Content(TypedDict):
    """What is in a file."""

    content: str
    sha256: str
    mode: str


class Undone(TypedDict):
    """What an undo found and did."""

    status: Literal["put_back", "removed", "moved_back", "already_gone", "never_happened"]


class Forgotten(TypedDict):
    """Nothing of that name is kept now."""

    status: Literal["forgotten"]


class Entry(TypedDict):
    """Something in a folder."""

    name: str
    kind: Literal["file", "folder", "link", "other"]


class Listed(TypedDict):
    """What is in a folder, by name."""

    entries: list[Entry]


@tool("files.write", compensation="files.undo", compensation_with=OF_OUTPUT, probe="files.find", chaos_safe=True)
def write(
    context: CallContext,
    *,
    path: Path,
    content: str,
    encoding: Encoding = "utf-8",
    mode: Mode = None,
    replace: bool = True,
) -> Written:
    """Write a file, whole and at once.

    Args:
        context: The call.
        path: Which one; its folder must be there.
        content: What shall be in it.
        encoding: How the content is given.
        mode: Who may read, write and execute it.
        replace: Whether a file that is there may be written over.
    """
    written = _decode(content, encoding)
    return _written(
        act(context, lambda: path, lambda shelf, place: _stage(shelf, place, iter([written]), mode, replace))
    )


@tool("files.copy", compensation="files.undo", compensation_with=OF_OUTPUT, probe="files.find", chaos_safe=True)
def copy(context: CallContext, *, source: Path, path: Path, mode: Mode = None, replace: bool = True) -> Written:
    """Copy a file to a place, whole and at once.

    Args:
        context: The call.
        source: Which file.
        path: Where to; the folder must be there.
        mode: As for files.write; that of the source where it isn't given.
        replace: Whether a file that is there may be written over.
    """

    def prepare(shelf: Shelf, place: Place) -> Note:
        with opened_place(context, source) as origin:
            found = origin.look()
            if not is_file(found) or found is None:
                raise Rejected(f"{source} is no file", code="nothing_there" if found is None else "not_a_file")
            given = mode or f"{stat.S_IMODE(found.st_mode) & 0o777:04o}"
            return _stage(shelf, place, _read_blocks(context, origin), given, replace)

    return _written(act(context, lambda: path, prepare))


@tool("files.move", compensation="files.undo", compensation_with=OF_OUTPUT, probe="files.find", chaos_safe=True)
def move(context: CallContext, *, source: Path, path: Path) -> Moved:
    """Give a file, link or folder another place, where nothing is yet.

    Args:
        context: The call.
        source: What is moved.
        path: Where it is then; the folder must be there.
    """
    check_path(source)
    if f"{path}/".startswith(f"{source}/"):
        raise Rejected(f"{source} can't be moved into itself", code="bad_path")

    def prepare(_: Shelf, place: Place) -> Note:
        with opened_place(context, source) as origin:
            found = origin.look()
            if found is None:
                raise Rejected(f"there is no {source}", code="nothing_there")
            _check_kind(source, found)
            if place.look() is not None:
                raise Rejected(f"there is a {path} already", code="exists")
            return {"does": "move", "source": source, "inode": identify(found), "output": {"path": path}}

    act(context, lambda: path, prepare)
    return {"path": path}


@tool("files.delete", compensation="files.undo", compensation_with=OF_OUTPUT, probe="files.find", chaos_safe=True)
def delete(context: CallContext, *, path: Path, with_content: bool = False) -> Deleted:
    """Take a file, a link or a folder away; it is kept, whole, for the undo.

    Args:
        context: The call.
        path: Which one.
        with_content: Whether a folder that isn't empty may be taken.
    """

    def prepare(shelf: Shelf, place: Place) -> Note:
        found = place.look()
        if found is None:
            raise Rejected(f"there is no {path}", code="nothing_there")
        _check_kind(path, found)
        if is_folder(found) and not with_content and list_folder(place):
            raise Rejected(f"{path} isn't empty: say `with_content: true`", code="not_empty")
        return {"does": "delete", "output": {"path": path, "kept": shelf.key}}

    output = act(context, lambda: path, prepare)
    return {"path": path, "kept": str(output["kept"])}


@tool(
    "files.make_folder",
    compensation="files.undo",
    compensation_with=OF_OUTPUT,
    probe="files.find",
    chaos_safe=True,
)
def make_folder(context: CallContext, path: Path) -> Made:
    """Make a folder, and the folders that it lies in; those that are there already stay as they are, with the undo too.

    Args:
        context: The call.
        path: Which one.
    """
    names = check_path(path)
    paths = ["/".join(names[:count]) for count in range(1, len(names) + 1)]
    missing: list[str] = []

    def choose() -> str:
        missing.extend(each for each in paths if not _has_folder(context, each, missing))
        return (missing or paths[-1:])[0]

    def prepare(shelf: Shelf, _: Place) -> Note:
        if not missing:
            return {"does": "nothing", "output": {"path": path, "made": []}}
        _make_tree(shelf.new, [each.rpartition("/")[2] for each in missing[1:]])
        inode = identify(shelf.new.look())
        return {"does": "make_folder", "made": missing, "inode": inode, "output": {"path": path, "made": missing}}

    output = act(context, choose, prepare)
    return {"path": path, "made": list(output["made"])}


@tool("files.read", read_only=True, chaos_safe=True)
def read(context: CallContext, path: Path, encoding: Encoding = "utf-8") -> Content:
    """Read a file of half a megabyte at most."""
    with opened_place(context, path) as place:
        found = place.look()
        if not is_file(found) or found is None:
            raise Rejected(f"{path} is no file", code="nothing_there" if found is None else "not_a_file")
        try:
            content = b"".join(_read_blocks(context, place, CONTENT_BYTES_MAX))
        except OSError as error:
            refuse(error, path)
    return {
        "content": _encode(content, encoding),
        "sha256": hashlib.sha256(content).hexdigest(),
        "mode": f"{stat.S_IMODE(found.st_mode):04o}",
    }


@tool("files.list", read_only=True, chaos_safe=True)
def list_entries(context: CallContext, path: Path) -> Listed:
    """Tell what is in a folder, a thousand names at most."""
    entries: list[Entry] = []
    with opened_place(context, f"{path}/x") as inside:
        names = sorted(os.listdir(inside.folder))  # noqa: PTH208 - a path could be swapped for a link
        if len(names) > ENTRIES_MAX:
            raise Rejected(f"{path} has more than {ENTRIES_MAX:,} names in it", code="too_many")
        for name in names:
            found = Place(inside.folder, name, name).look()
            entries.append({"name": name.encode(errors="replace").decode(), "kind": _name_kind(found)})
    return {"entries": entries}


def _name_kind(found: os.stat_result | None) -> Literal["file", "folder", "link", "other"]:
    if is_file(found):
        return "file"
    if is_folder(found):
        return "folder"
    return "link" if is_link(found) else "other"


@tool("files.undo", null_safe=True, late_safe=True, chaos_safe=True)
def undo_deed(context: CallContext, path: str | None = None) -> Undone:
    """Undo what an operation of this plugin did: what was there is there again, the same file, or nothing is.

    Args:
        context: The call.
        path: Of the output: where it is known that something happened, there must be a note of it.
    """
    answer = undo(context, happened_at=path)
    return {"status": answer["status"]}


@tool("files.find", read_only=True, chaos_safe=True)
def find_deed(context: CallContext) -> Done | NotDone | CannotTell:
    """Find out whether an operation of this plugin has happened, and wasn't undone."""
    try:
        output = find(context)
    except LookupError as error:
        return CannotTell(str(error))
    return NotDone() if output is None else Done(output)


@tool("files.forget", chaos_safe=True)
def forget(context: CallContext, kept: MaybeKept) -> Forgotten:
    """Throw away what is kept of a file or folder; after that its undo is rejected.

    Args:
        context: The call.
        kept: Under which name, as in the output of files.write and files.delete; null: nothing is kept.
    """
    if kept is not None:
        with opened_shelf(context) as (folder, _):
            place = Place(folder, f"{kept}.before", "")
            if is_folder(place.look()):
                remove_tree(place)
            else:
                place.unlink()
    return {"status": "forgotten"}


def _stage(shelf: Shelf, place: Place, blocks: Iterator[bytes], mode: str | None, replace: bool) -> Note:
    """Make a file ready, and give what it replaces a second name."""
    found = place.look()
    if is_link(found):
        raise Rejected(f"{place.path} is a link: write to what it points to", code="is_link")
    if found is not None:
        if not is_file(found):
            raise Rejected(f"{place.path} is no file", code="not_a_file")
        if not replace:
            raise Rejected(f"there is a {place.path} already", code="exists")
    bits = int(mode, 8) if mode else NEW_MODE if found is None else stat.S_IMODE(found.st_mode)
    size, checksum = _write_blocks(shelf.new, blocks, bits)
    if found is not None:
        place.link_to(shelf.before)
    output = {"path": place.path, "sha256": checksum, "kept": None if found is None else shelf.key}
    after = {"size": size, "mode": bits, "sha256": checksum}
    return {"does": "write", "replaces": found is not None, "after": after, "output": output}


def _write_blocks(place: Place, blocks: Iterator[bytes], mode: int) -> tuple[int, str]:
    size, summed = 0, hashlib.sha256()
    with os.fdopen(place.open_file(os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        for block in blocks:
            file.write(block)
            summed.update(block)
            size += len(block)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    return size, summed.hexdigest()


def _read_blocks(context: CallContext, place: Place, bytes_max: int = FILE_BYTES_MAX) -> Iterator[bytes]:
    left = bytes_max
    with os.fdopen(place.open_file(os.O_RDONLY), "rb") as file:
        while block := file.read(BLOCK_BYTES):
            left -= len(block)
            if left < 0:
                raise Rejected(f"{place.path} has more than {bytes_max:,} bytes", code="too_large")
            if context.cancelled.is_set():
                raise TimeoutError("gave up, the call was cancelled")
            yield block


def _written(output: dict[str, Any]) -> Written:
    return {"path": output["path"], "sha256": output["sha256"], "kept": output["kept"]}


def _make_tree(place: Place, inner: list[str]) -> None:
    os.mkdir(place.name, 0o755, dir_fd=place.folder)
    with contextlib.ExitStack() as stack:
        folder, name = place.folder, place.name
        for each in inner:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            stack.callback(os.close, folder)
            os.mkdir(each, 0o755, dir_fd=folder)
            name = each


def _has_folder(context: CallContext, path: str, missing: list[str]) -> bool:
    """Tell whether there is that folder; where one above it is missing, it can't be there."""
    if missing:
        return False
    with opened_place(context, path) as place:
        found = place.look()
    if found is not None and not is_folder(found):
        raise Rejected(f"{path} is no folder", code="link_in_the_way" if is_link(found) else "not_a_folder")
    return found is not None


def _check_kind(path: str, found: os.stat_result) -> None:
    if not (is_file(found) or is_folder(found) or is_link(found)):
        raise Rejected(f"{path} is neither a file nor a folder", code="not_a_file")


def _decode(content: str, encoding: Encoding) -> bytes:
    try:
        given = content.encode() if encoding == "utf-8" else base64.b64decode(content, validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise Rejected(f"the content isn't {encoding}", code="bad_content") from None
    if len(given) > CONTENT_BYTES_MAX:
        raise Rejected(f"the content has more than {CONTENT_BYTES_MAX:,} bytes", code="too_large")
    return given


def _encode(content: bytes, encoding: Encoding) -> str:
    if encoding == "base64":
        return base64.b64encode(content).decode()
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Rejected("the file is no text: read it as base64", code="bad_content") from None
