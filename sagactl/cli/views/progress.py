"""What happens, line by line as it becomes durable, for whoever watches a run on stderr.

A `Progress` is fed the batches that a driver commits and gives the lines that they are worth. It says each fact once:
that something was tried again is told with its reason and its delay, calls that only begin are not told at all. Of a
run that is taken up again the history isn't repeated; one line says where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Final

from sagactl.cli.views.news import Line, News, Track, describe_whole, say_place, tell, tell_more
from sagactl.cli.views.runs import say_status
from sagactl.cli.views.style import Hue, Style
from sagactl.cli.views.text import pad
from sagactl.cli.views.times import show_clock
from sagactl.core.records import (
    Cause,
    DriverClaimed,
    Record,
    RunStatus,
)
from sagactl.engine.settings import Committed
from sagactl.log.base import RunRow

HEARTBEAT_LINES_MAX: Final = 3
"""How many of the things that go on are named after a silence; the others are counted."""

NEW_RECORDS: Final = 2
"""What the log of a run begins with, before anything is done: it is created, and somebody drives it."""

DEBUG: Final = 2
"""The verbosity at which each record is told with all that it holds."""

_WORD_COLUMNS: Final = 5
_HUES: Final = {
    "ok": Hue.GOOD,
    "FAIL": Hue.BAD,
    "STUCK": Hue.BAD,
    "doubt": Hue.BAD,
    "alert": Hue.BAD,
    "retry": Hue.ODD,
    "undo": Hue.ODD,
    "back": Hue.ODD,
    "wait": Hue.ODD,
    "skip": Hue.DIM,
}


class Progress:
    """The lines about one run or several; *short_ids* says how runs are named, which lines do once there are several.

    With a *verbosity* of 1 calls that begin, probes and timers are told as well; at 2 every record.
    """

    def __init__(
        self, *, style: Style, tz: tzinfo, short_ids: Mapping[str, str] | None = None, verbosity: int = 0
    ) -> None:
        self._style = style
        self._tz = tz
        self._short_ids = dict(short_ids or {})
        self._verbosity = verbosity
        self._tracks: dict[str, Track] = {}

    def feed(self, committed: Committed) -> list[str]:
        """Return the lines that a batch is worth, most often none or one."""
        track = self._tracks.get(committed.run_id)
        if track is None:
            short_id = self._short_ids.get(committed.run_id, committed.run_id[:6])
            track = self._tracks[committed.run_id] = Track(short_id, committed.saga)
            if committed.first_seq == 1:
                return self._begin(committed, track)
        lines = []
        for seq, record in enumerate(committed.records, committed.first_seq):
            track.note(record)
            news = News(committed.saga, committed.state, track)
            told = [*tell(record, news), *(tell_more(record) if self._verbosity else ())]
            lines += [self._write(record.at_ms, track, line) for line in told]
            if self._verbosity >= DEBUG:
                lines.append(self._write_whole(seq, record, track))
        return lines

    def note(self, at_ms: int, text: str) -> str:
        """Return a line about the runs that is no record."""
        return self._write(at_ms, None, Line("note", text))

    def _begin(self, committed: Committed, track: Track) -> list[str]:
        for record in committed.records:
            track.note(record)
        last = committed.records[-1]
        text = f"{committed.saga.name} {track.short_id}"
        is_resumed = any(isinstance(record, DriverClaimed) and record.fence > 1 for record in committed.records)
        if is_resumed or len(committed.records) > NEW_RECORDS:
            text += f"{' resumed' if is_resumed else ''}; {say_place(committed.saga, committed.state)}"
        lines = [Line("run", text)]
        waiting = committed.state.waiting
        if waiting is not None and waiting.cause is Cause.CANNOT_END:  # nothing more will happen by itself
            lines += tell(waiting, News(committed.saga, committed.state, track))
        return [self._write(last.at_ms, track, line) for line in lines]

    def heartbeat(self, now_ms: int) -> list[str]:
        """Return lines for what is under way or waited for, after a silence."""
        going_on = [(track, text) for track in self._tracks.values() for text in track.list_going_on(now_ms)]
        lines = [self._write(now_ms, track, Line("wait", text)) for track, text in going_on[:HEARTBEAT_LINES_MAX]]
        more = len(going_on) - HEARTBEAT_LINES_MAX
        return [*lines, self._write(now_ms, None, Line("wait", f"and {more:,} more"))] if more > 0 else lines

    def _write(self, at_ms: int, track: Track | None, line: Line) -> str:
        style = self._style
        head = self._begin_line(at_ms, track)
        word = pad(line.word, _WORD_COLUMNS)
        room = max(style.columns - len(head) - len(word) - 2, 20)
        text = style.fit(style.show(line.text), room)
        return f"{style.paint(head, Hue.DIM)}{style.paint(word, _HUES.get(line.word, Hue.PLAIN))}  {text}"

    def _begin_line(self, at_ms: int, track: Track | None) -> str:
        time = show_clock(at_ms, self._tz)
        return f"{time} {track.short_id} " if track is not None and len(self._tracks) > 1 else f"{time} "

    def _write_whole(self, seq: int, record: Record, track: Track) -> str:
        """Return a record with all that it holds, bounded, and secrets as their names; such a line is not cut."""
        style = self._style
        head = self._begin_line(record.at_ms, track)
        return style.paint(head + pad("debug", _WORD_COLUMNS) + "  " + style.show(describe_whole(seq, record)), Hue.DIM)


def render_change(row: RunRow, short_id: str, at_ms: int, tz: tzinfo, style: Style) -> str:
    """Return a line about a run of which only the row is read: `14:02:30 end    7kq2m9 onboarding succeeded`."""
    word = _ROW_WORDS.get(row.status, "run")
    text = style.show(f"{short_id} {row.saga} {say_status(row, at_ms)}")
    head = f"{show_clock(at_ms, tz)} "
    room = max(style.columns - len(head) - _WORD_COLUMNS - 2, 20)
    word = style.paint(pad(word, _WORD_COLUMNS), _HUES.get(word, Hue.PLAIN))
    return f"{style.paint(head, Hue.DIM)}{word}  {style.fit(text, room)}"


_ROW_WORDS: Final = {
    RunStatus.SUCCEEDED: "ok",
    RunStatus.ROLLED_BACK: "FAIL",
    RunStatus.STUCK: "STUCK",
    RunStatus.TERMINATED: "end",
}
