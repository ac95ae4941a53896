"""What a disk may hold after a power cut: what was synced, and any part of what was not.

A file is a row of sectors. A write that no sync followed may have reached the disk as a whole, not at all, or in some
of its sectors, whatever was written before or after it: nothing keeps their order. A sector is written whole or not at
all, as SQLite takes for granted too (its "powersafe overwrite"). Names are made and unmade in the folder, which has a
sync of its own: a file that was deleted may be back, one that was made may be missing, each by itself.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.log.disk.trace import Change, Trace
from tests.log.disk.vfs import Kind

SECTOR_BYTES = 512


@dataclass
class _File:
    """What is durable of a file, and what was done to it since."""

    durable: bytes = b""
    pending: list[Change] = field(default_factory=list)


@dataclass
class Disk:
    """The folder of a log under a cut: durable names, names as the process sees them, and what lies between."""

    durable: dict[str, _File] = field(default_factory=dict)
    seen: dict[str, _File] = field(default_factory=dict)
    renamed: list[tuple[str, _File | None]] = field(default_factory=list)
    """Names that were made or unmade since the folder was synced, in order."""

    @classmethod
    def of(cls, files: dict[str, bytes]) -> Disk:
        """Return a disk on which *files* are durable."""
        found = {name: _File(content) for name, content in files.items()}
        return cls(dict(found), dict(found))

    def do(self, change: Change) -> None:
        """Take one change in."""
        match change.kind:
            case Kind.CREATE:
                self._name(change.name, _File())
            case Kind.DELETE:
                self._name(change.name, None)
            case Kind.SYNC_FOLDER:
                self.durable = dict(self.seen)
                self.renamed.clear()
            case Kind.SYNC:
                file = self._file(change.name)
                file.durable = _apply(file.durable, file.pending)
                file.pending.clear()
            case _:
                self._file(change.name).pending.append(change)

    def _name(self, name: str, file: _File | None) -> None:
        self.renamed.append((name, file))
        if file is None:
            self.seen.pop(name, None)
        else:
            self.seen[name] = file

    def _file(self, name: str) -> _File:
        if name not in self.seen:  # made by us, with its folder synced, before SQLite opened it
            self.seen[name] = self.durable[name] = _File()
        return self.seen[name]

    def image(self, how: str) -> dict[str, bytes]:
        """Return what may be found afterwards: `none` of what is pending, `all` of it, or some of it, by a seed."""
        if how == "none":
            return {name: file.durable for name, file in self.durable.items()}
        if how == "all":
            return {name: _apply(file.durable, file.pending) for name, file in self.seen.items()}
        draw = random.Random(how)
        names = dict(self.durable)
        for name in sorted({name for name, _ in self.renamed}):
            steps = [file for each, file in self.renamed if each == name]
            for file in steps[: draw.randint(0, len(steps))]:
                if file is None:
                    names.pop(name, None)
                else:
                    names[name] = file
        return {name: _apply(file.durable, _tear(file.pending, draw)) for name, file in sorted(names.items())}


def _apply(content: bytes, changes: list[Change]) -> bytes:
    found = bytearray(content)
    for change in changes:
        if change.kind is Kind.TRUNCATE:
            del found[change.size :]
            found.extend(bytes(change.size - len(found)))
            continue
        found.extend(bytes(max(0, change.offset - len(found))))
        found[change.offset : change.offset + len(change.data)] = change.data
    return bytes(found)


def _tear(changes: list[Change], draw: random.Random) -> list[Change]:
    """Return some of the sectors of some of the changes, in any order."""
    return [part for change in changes if draw.random() < 0.7 for part in _split(change) if draw.random() < 0.8]


def _split(change: Change) -> Iterator[Change]:
    if change.kind is Kind.TRUNCATE:
        yield change
        return
    end = change.offset + len(change.data)
    start = change.offset
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield change._replace(offset=start, data=change.data[start - change.offset : stop - change.offset])
        start = stop


class Image(NamedTuple):
    """What a disk may hold after a cut; `name` makes the same one again."""

    name: str
    cut: int
    files: dict[str, bytes]


def cut_everywhere(trace: Trace, *, torn: int, cuts: range | None = None) -> Iterator[Image]:
    """Yield every image of a cut after each change, of those in *cuts*.

    An image that is found a second time under the same promises is left out: it would prove nothing more.
    """
    disk = Disk.of(trace.before)
    seen: set[bytes] = set()
    for cut in range(len(trace.changes) + 1):
        if cut:
            disk.do(trace.changes[cut - 1])
        if cuts is not None and cut not in cuts:
            continue
        for how in ("none", "all", *(f"torn{number}" for number in range(torn))):
            files = disk.image(how if not how.startswith("torn") else f"{how}@{cut}")
            digest = _digest(files, repr(trace.states_at(cut)))
            if digest not in seen:
                seen.add(digest)
                yield Image(f"{cut}:{how}", cut, files)


def count_cuts(trace: Trace, part: int, parts: int) -> range:
    """Return the cuts of one of several equal parts of a trace."""
    whole = len(trace.changes) + 1
    return range(whole * part // parts, whole * (part + 1) // parts)


def _digest(files: dict[str, bytes], promised: str) -> bytes:
    found = hashlib.sha256(promised.encode())
    for name, content in sorted(files.items()):
        found.update(f"{name}:{len(content)}:".encode() + content)
    return found.digest()
