"""What was done to the files of a log, in order, and what was acknowledged in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sagactl.log.base import Log, RunFilter
from sagactl.log.gate import GATE_SUFFIX
from tests.log.disk.vfs import Kind

State = tuple[tuple[str, int, str], ...]
"""Where every run stands, and the last tombstone: what a reader of the log can say of it."""


class Change(NamedTuple):
    """One operation that changes files, or their names, or makes something durable."""

    kind: Kind
    name: str
    offset: int = 0
    data: bytes = b""
    size: int = 0


@dataclass
class Trace:
    """A recording: changes in order, and after how many of them which state was acknowledged."""

    changes: list[Change] = field(default_factory=list)
    acknowledged: list[tuple[int, State]] = field(default_factory=list)
    begun: list[tuple[int, str]] = field(default_factory=list)
    """Calls of tools by their keys, and after how many changes they began."""
    before: dict[str, bytes] = field(default_factory=dict)
    """The files that were there, and durable, when the recording began."""

    def acknowledge(self, state: State) -> None:
        """Note that somebody was told of *state*."""
        self.acknowledged.append((len(self.changes), state))

    def states_at(self, cut: int) -> tuple[State, State]:
        """Return the state that was acknowledged before the *cut*, and the next one, that may be there already."""
        last: State = ()
        for place, state in self.acknowledged:
            if place > cut:
                return last, state
            last = state
        return last, last

    def calls_at(self, cut: int) -> set[str]:
        """Return the keys of the calls that began before the *cut*."""
        return {key for place, key in self.begun if place <= cut}


class Recorder:
    """A watcher that notes changes; the gate's file, which no SQLite writes to, is looked at each time."""

    def __init__(self, folder: Path) -> None:
        before = {each.name: each.read_bytes() for each in folder.iterdir()} if folder.exists() else {}
        self.trace = Trace(before=before)
        self._folder = folder
        self._gate = next((text for name, text in before.items() if name.endswith(GATE_SUFFIX)), None)

    def see(self, kind: Kind, name: str, *, offset: int = 0, data: bytes = b"", size: int = 0) -> bytes:
        """Note a change; reads and locks change nothing."""
        self.look_at_gate()
        if kind not in {Kind.READ, Kind.LOCK}:
            self.trace.changes.append(Change(kind, name, offset, data, size))
        return data

    def look_at_gate(self) -> None:
        """Note what was written to the gate since; its file is made, and its folder synced, before the database."""
        for path in self._folder.glob(f"*{GATE_SUFFIX}"):
            text = path.read_bytes()
            if text != self._gate:
                self._gate = text
                self.trace.changes.append(Change(Kind.WRITE, path.name, 0, text))


def state_of(log: Log) -> State:
    """Return where a log stands."""
    rows, _ = log.rows(RunFilter(limit=0))
    runs = sorted((row.run_id, row.seq, row.head) for row in rows)
    buried = log.pruned("")[:1]
    return (*runs, *((f"tombstone {each.number}", each.seq, each.hash) for each in buried))
