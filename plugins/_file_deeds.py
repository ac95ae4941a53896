"""What one operation does to files: prepared aside, noted, done in one instant, and undone by its note.

Everything is made ready in `.sagactl/kept` first. Then a note says what is about to happen, then one rename or link
lets it happen, then the note says that it has. A process that is killed in between leaves either nothing that anybody
sees or all of it, and the note tells which. What was there before isn't copied: it is the very same file, kept under a
second name until the undo gives it back, with its mode, owner, times and links. A note that says `undone` stays, and
refuses an action that comes late.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from sagactl import CallContext, Rejected

from ._places import Place, digest, is_file, is_folder, name_of_key, opened_place, opened_shelf, refuse

FILE_BYTES_MAX: Final = 1024 * 1024 * 1024
LOST: Final = "it has happened, and the note of it is gone: what was there before is still kept"
Note = dict[str, Any]


@dataclass(frozen=True)
class Shelf:
    """What is kept and noted of one operation; all file operations of the project wait for each other meanwhile."""

    context: CallContext
    key: str
    new: Place
    before: Place
    note: Place
    part: Place

    def read(self) -> Note | None:
        """Return the note of the operation."""
        try:
            with os.fdopen(self.note.open_file(os.O_RDONLY), encoding="utf-8") as file:
                found: Note = json.load(file)
        except FileNotFoundError:
            return None
        return found

    def write(self, note: Note) -> None:
        """Write the note, durably and whole."""
        self.part.unlink()
        with os.fdopen(self.part.open_file(os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w", encoding="utf-8") as file:
            json.dump(note, file)
            file.flush()
            os.fsync(file.fileno())
        self.part.move_to(self.note)
        self.note.sync()

    def clear(self, *, with_before: bool) -> None:
        """Remove what was made ready and is of no use any more, and the second name of what was there before.

        The second name goes first: while it is there without what was made ready, `has_lost_note` holds.
        """
        if with_before:
            self.before.unlink()
        if is_folder(self.new.look()):
            remove_tree(self.new)
        else:
            self.new.unlink()

    def has_lost_note(self, note: Note | None) -> bool:
        """Tell whether something has happened of which the note is gone: what was there before is kept for an undo.

        Before it happens what was made ready is there as well, and a folder or file that is deleted is kept only then.
        """
        return note is None and self.before.look() is not None and self.new.look() is None

    def begin_anew(self) -> None:
        """Forget a try that came to nothing; the note goes first, since with it what is missing would have happened."""
        self.note.unlink()
        self.note.sync()
        self.clear(with_before=True)


@contextmanager
def opened(context: CallContext, key: str) -> Iterator[Shelf]:
    """Open the shelf of the operation with that key."""
    name = name_of_key(key)
    with opened_shelf(context) as (kept, notes):
        yield Shelf(
            context,
            name,
            Place(kept, f"{name}.new", ""),
            Place(kept, f"{name}.before", ""),
            Place(notes, f"{name}.json", ""),
            Place(notes, f"{name}.part", ""),
        )


def act(context: CallContext, choose: Callable[[], str], prepare: Callable[[Shelf, Place], Note]) -> dict[str, Any]:
    """Carry out an operation once; a repeated call answers as the first.

    *choose* names the place, and *prepare* makes everything ready and returns the note, with `does` and `output`, what
    the call answers.
    """
    with opened(context, context.idempotency_key) as shelf:
        note = shelf.read()
        if note is not None and note["state"] in {"undoing", "undone"}:
            raise Rejected("this call was undone before it came", code="too_late")
        if shelf.has_lost_note(note):
            raise LookupError(LOST)
        if note is None or not _complete_old(shelf, note):
            with opened_place(context, choose()) as place:
                note = _prepare(shelf, place, prepare)
                _place(shelf, place, note)
        if note["state"] != "done":
            shelf.write({**note, "state": "done"})
        output: dict[str, Any] = note["output"]
        return output


def _complete_old(shelf: Shelf, note: Note) -> bool:
    with opened_place(shelf.context, note["path"]) as place:
        return _has_happened(shelf, place, note)


def find(context: CallContext) -> dict[str, Any] | None:
    """Return what an operation answered, or would have, where it has happened and wasn't undone.

    Where a call was broken off before it happened, what it had made ready is cleared away: nobody may come for it.
    Raises LookupError where it has happened and nobody can tell to what.
    """
    with opened(context, context.forward_key) as shelf:
        note = shelf.read()
        if note is not None and note["state"] in {"undoing", "undone"}:
            return None
        if shelf.has_lost_note(note):
            raise LookupError(LOST)
        if note is None or not _complete_old(shelf, note):
            shelf.begin_anew()
            return None
        output: dict[str, Any] = note["output"]
        return output


def undo(context: CallContext, *, happened_at: str | None) -> dict[str, Any]:
    """Undo an operation, however far it came; where it never began, leave a note that refuses it."""
    with opened(context, context.forward_key) as shelf:
        note = shelf.read()
        if shelf.has_lost_note(note) or (note is None and happened_at is not None):
            raise Rejected(f"there is no note of what was done to {happened_at or 'the files'}", code="note_gone")
        if note is None:
            note = {"state": "undone", "answer": {"status": "never_happened"}}
            shelf.write(note)
        elif note["state"] != "undone":
            with opened_place(context, note["path"]) as place:
                note = {"state": "undone", "answer": {"status": _take_back(shelf, place, note)}}
            shelf.write(note)
        answer: dict[str, Any] = note["answer"]
        shelf.clear(with_before=answer["status"] == "never_happened")
        return answer


def _prepare(shelf: Shelf, place: Place, prepare: Callable[[Shelf, Place], Note]) -> Note:
    try:
        shelf.begin_anew()
        note = {**prepare(shelf, place), "path": place.path, "state": "prepared"}
        shelf.new.sync()
        shelf.write(note)
    except OSError as error:
        shelf.begin_anew()
        refuse(error, place.path)
    except BaseException:
        shelf.begin_anew()
        raise
    return note


def _place(shelf: Shelf, place: Place, note: Note) -> None:
    """Let it happen, in one instant."""
    try:
        match note["does"]:
            case "nothing":
                return
            case "delete":
                place.move_to(shelf.before)
            case "move":
                with opened_place(shelf.context, note["source"]) as source:
                    give_name(source, place)
                    source.sync()
            case "write" if note["replaces"]:
                shelf.new.move_to(place)
            case _:
                give_name(shelf.new, place)
    except OSError as error:  # nothing has happened
        shelf.begin_anew()
        if isinstance(error, FileExistsError):
            raise Rejected(f"{place.path} is there by now: somebody else made it", code="moved_on") from None
        refuse(error, place.path)
    place.sync()
    shelf.before.sync()


def _has_happened(shelf: Shelf, place: Place, note: Note) -> bool:
    """Tell whether what a note says has happened; completes it where only half of the names were changed."""
    if note["state"] == "done":
        return True
    match note["does"]:
        case "nothing":
            return True
        case "delete":
            return shelf.before.look() is not None
        case "move":
            with opened_place(shelf.context, note["source"]) as source:
                return _complete(source, place, note["inode"])
        case _:
            return shelf.new.look() is None or _complete(shelf.new, place, identify(shelf.new.look()))


def _complete(old: Place, new: Place, inode: object) -> bool:
    """Tell whether something has its new name, and take the old one away where it still has both."""
    if identify(new.look()) != inode:
        return False
    if identify(old.look()) == inode:
        old.unlink()
    return True


def _take_back(shelf: Shelf, place: Place, note: Note) -> str:
    if note["state"] == "prepared" and not _has_happened(shelf, place, note):
        return "never_happened"
    is_repeated = note["state"] == "undoing"
    match note["does"]:
        case "nothing":
            return "never_happened"
        case "delete":
            return _bring_back(shelf, place, note, is_repeated=is_repeated)
        case "move":
            return _move_back(shelf, place, note)
        case "make_folder":
            return _remove_folders(shelf, place, note)
        case _:
            return _unwrite(shelf, place, note, is_repeated=is_repeated)


def _unwrite(shelf: Shelf, place: Place, note: Note, *, is_repeated: bool) -> str:
    found, kept = place.look(), shelf.before.look()
    if note["replaces"] and kept is None:
        if is_repeated:
            return "put_back"
        raise Rejected(f"what {place.path} was before is kept no more", code="copy_gone")
    if found is None and not note["replaces"]:
        return "already_gone"
    if not _is_ours(place, found, note["after"]):
        raise Rejected(f"{place.path} was changed since by somebody else", code="moved_on")
    shelf.write({**note, "state": "undoing"})
    if note["replaces"]:
        shelf.before.move_to(place)
    else:
        place.unlink()
    place.sync()
    return "put_back" if note["replaces"] else "removed"


def _bring_back(shelf: Shelf, place: Place, note: Note, *, is_repeated: bool) -> str:
    kept, found = shelf.before.look(), place.look()
    if kept is None:
        if is_repeated:
            return "put_back"
        raise Rejected(f"what was {place.path} is kept no more", code="copy_gone")
    if found is not None and identify(found) != identify(kept):
        raise Rejected(f"there is another {place.path} by now", code="moved_on")
    shelf.write({**note, "state": "undoing"})
    if found is None:
        give_name(shelf.before, place)
    else:
        shelf.before.unlink()  # it has both of its names
    place.sync()
    return "put_back"


def _move_back(shelf: Shelf, place: Place, note: Note) -> str:
    with opened_place(shelf.context, note["source"]) as source:
        there, here = identify(place.look()), source.look()
        if identify(here) == note["inode"]:
            if there == note["inode"]:
                place.unlink()
            return "moved_back"
        if there != note["inode"]:
            raise Rejected(f"{place.path} isn't what was moved there any more", code="moved_on")
        if here is not None:
            raise Rejected(f"there is another {source.path} by now", code="moved_on")
        shelf.write({**note, "state": "undoing"})
        give_name(place, source)
        source.sync()
    place.sync()
    return "moved_back"


def _remove_folders(shelf: Shelf, place: Place, note: Note) -> str:
    if place.look() is None:
        return "already_gone"
    if identify(place.look()) != note["inode"]:
        raise Rejected(f"{place.path} is another one by now", code="moved_on")
    made: list[str] = note["made"]
    if _is_used(shelf, made[-1]):
        raise Rejected(f"{made[-1]} has something in it that isn't ours", code="not_empty")
    shelf.write({**note, "state": "undoing"})
    for path in reversed(made):
        with suppress(OSError, Rejected), opened_place(shelf.context, path) as folder:
            os.rmdir(folder.name, dir_fd=folder.folder)  # an outer one that somebody else uses by now stays
            folder.sync()
    return "removed"


def _is_used(shelf: Shelf, path: str) -> bool:
    with suppress(Rejected), opened_place(shelf.context, path) as folder:
        return folder.look() is not None and bool(list_folder(folder))
    return False


def _is_ours(place: Place, found: os.stat_result | None, after: dict[str, Any]) -> bool:
    if not is_file(found) or found is None:
        return False
    if (found.st_size, stat.S_IMODE(found.st_mode)) != (after["size"], after["mode"]):
        return False
    return digest(place, bytes_max=FILE_BYTES_MAX) == str(after["sha256"])


def identify(found: os.stat_result | None) -> list[int] | None:
    """Return what tells a file or folder from every other one on this machine."""
    return None if found is None else [found.st_dev, found.st_ino]


def give_name(old: Place, new: Place) -> None:
    """Move to a name that nobody has; raises FileExistsError where somebody has it."""
    if is_folder(old.look()):
        if new.look() is not None:  # renaming a folder never overwrites more than an empty one
            raise FileExistsError
        old.move_to(new)
    else:
        old.link_to(new)
        old.unlink()


def list_folder(place: Place) -> list[str]:
    """Return the names in a folder."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(place.name, flags, dir_fd=place.folder)
    try:
        return os.listdir(folder)  # noqa: PTH208 - a path could be swapped for a link
    finally:
        os.close(folder)


def remove_tree(place: Place) -> None:
    """Remove a folder with all that is in it."""
    import shutil

    shutil.rmtree(place.name, dir_fd=place.folder)
