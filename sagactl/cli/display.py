"""What is seen of runs while they go on: a live picture, plain lines with signs of life, or nothing.

A display is shown batches of records as they become durable. The live one only puts them aside: its own thread makes
its own state of them, about eight times a second, so whoever drives the runs never waits for it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol, Self

from sagactl import workflow
from sagactl.cli.modes import Mode, choose_mode
from sagactl.cli.options import Globals, Output
from sagactl.cli.session import local_zone, now_ms, style_of
from sagactl.cli.streams import answer_stream, find_descriptor, write_line, write_raw
from sagactl.cli.views.progress import Progress
from sagactl.cli.views.stopping import say_stopping
from sagactl.cli.views.style import Style
from sagactl.cli.views.text import safe
from sagactl.core.records import Operation
from sagactl.core.saga import GRACE_MS
from sagactl.engine.settings import Committed

ROWS_KEPT_FREE: Final = 1
"""Rows of the terminal below the picture, where the cursor goes at the end."""


class Display(Protocol):
    """Shows runs from `__enter__` to `__exit__`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def show(self, committed: Committed) -> None:
        """Take in what has become durable."""
        ...

    def say_stopping(self, calls: Sequence[tuple[Operation, int]]) -> None:
        """Say what is waited for, each with milliseconds at most; called by a signal handler."""
        ...

    def say_now(self, text: str) -> None:
        """Write lines at once; called by a signal handler, and before the process leaves."""
        ...

    def note(self, text: str) -> None:
        """Say something about the runs, once; an empty text takes it back where that can be done."""
        ...


class NoDisplay:
    """Shows nothing but what must be said."""

    def __enter__(self) -> Self:
        """Begin."""
        self._descriptor = find_descriptor(sys.stderr)
        return self

    def __exit__(self, *error: object) -> None:
        """End."""

    def show(self, committed: Committed) -> None:
        """Show nothing."""

    def say_stopping(self, calls: Sequence[tuple[Operation, int]]) -> None:
        """Say what is waited for."""
        self.say_now("\n".join(say_stopping(calls, Style())))

    def say_now(self, text: str) -> None:
        """Write lines at once."""
        write_raw(self._descriptor, f"{text}\n")

    def note(self, text: str) -> None:
        """Say nothing."""


class PlainDisplay(NoDisplay):
    """Lines on stderr; after a silence of *heartbeat_seconds* one that says what goes on."""

    def __init__(self, progress: Progress, *, heartbeat_seconds: float) -> None:
        self._progress = progress
        self._heartbeat_seconds = heartbeat_seconds
        self._lock = threading.Lock()
        self._left = threading.Event()
        self._noted = ""
        self._spoke_at = time.monotonic()
        self._thread = threading.Thread(target=self._beat, name="sagactl-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        """Begin to listen for silence."""
        super().__enter__()
        if self._heartbeat_seconds > 0:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End; no line comes after this."""
        self._left.set()
        if self._thread.is_alive():
            self._thread.join()

    def show(self, committed: Committed) -> None:
        """Write the lines that a batch is worth."""
        with self._lock:
            self._write(self._progress.feed(committed))

    def note(self, text: str) -> None:
        """Write a line about the runs, unless it is the one that was written last."""
        if text and text != self._noted:
            with self._lock:
                self._write([self._progress.note(now_ms(), text)])
        self._noted = text

    def _write(self, lines: Sequence[str]) -> None:
        if lines:
            self._spoke_at = time.monotonic()
        for line in lines:
            write_line(sys.stderr, line)

    def _beat(self) -> None:
        """Wait for a silence; whenever something was said, it begins anew."""
        quiet = self._heartbeat_seconds
        wait = quiet
        while not self._left.wait(wait):
            with self._lock:
                if time.monotonic() - self._spoke_at >= quiet:
                    self._write(self._progress.heartbeat(now_ms()))
                    self._spoke_at = time.monotonic()
                wait = max(0.001, self._spoke_at + quiet - time.monotonic())


class GroupedDisplay(PlainDisplay):
    """Lines that a runner of CI folds into a group under the name of the first run."""

    _is_begun = False

    def __exit__(self, *error: object) -> None:
        """End the group."""
        super().__exit__(*error)
        if self._is_begun:
            write_line(sys.stderr, workflow.make_command("endgroup"), is_command=True)

    def show(self, committed: Committed) -> None:
        """Write the lines that a batch is worth, below the group's name."""
        if not self._is_begun:
            self._is_begun = True
            title = safe(f"{committed.saga.name} {committed.run_id}")
            write_line(sys.stderr, workflow.make_command("group", title), is_command=True)
        super().show(committed)


class LiveDisplay:
    """A picture on the terminal behind stderr."""

    def __init__(self, settings: Globals, *, grace_ms: int, is_watching: bool) -> None:
        self._is_watching = is_watching
        self._grace_ms = grace_ms
        self._came: deque[Committed] = deque()
        self._stopping_since_ms: int | None = None
        self._note = ""
        self._began_ms = now_ms()
        from sagactl.cli.screen import Screen
        from sagactl.cli.views.picture import Picture

        style = style_of(sys.stderr, settings)
        gap = answer_stream().isatty()
        self._style = style
        self._picture = Picture()
        self._screen = Screen(sys.stderr, self._draw, color=style.color, gap=gap)

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._screen.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Draw the last picture, which stays."""
        self._screen.__exit__(*error)

    def show(self, committed: Committed) -> None:
        """Put a batch aside for the next picture."""
        self._came.append(committed)

    def say_stopping(self, calls: Sequence[tuple[Operation, int]]) -> None:
        """Let the next picture say it: it counts down."""
        del calls
        self._stopping_since_ms = now_ms()

    def say_now(self, text: str) -> None:
        """Write lines below the picture."""
        write_raw(self._screen.descriptor, f"\n{text}\n")

    def note(self, text: str) -> None:
        """Let the next picture say it."""
        self._note = text

    def _draw(self, size: os.terminal_size, is_last: bool) -> list[str]:
        from sagactl.cli.views.live import STOPS_SAFELY, STOPS_WATCHING, View

        while self._came:
            self._picture.feed(self._came.popleft())
        view = View(
            now_ms(),
            Style(self._style.color, self._style.unicode, size.columns, self._style.place),
            size.lines - ROWS_KEPT_FREE,
            STOPS_WATCHING if self._is_watching else STOPS_SAFELY,
            self._stopping_since_ms,
            self._grace_ms,
            self._note,
            is_last,
        )
        return self._picture.render(view, self._began_ms, is_let_go=is_last and not self._is_watching)


def make_display(settings: Globals, *, is_watching: bool = False, grace_ms: int = GRACE_MS) -> Display:
    """Return the display that the settings, the environment and the terminal ask for.

    Somebody who *is_watching* doesn't drive: runs go on after the last picture, and Ctrl-C stops nothing else.
    """
    mode = choose_mode(settings, os.environ, is_terminal=sys.stderr.isatty())
    if mode is Mode.NONE:
        return NoDisplay()
    if mode is Mode.LIVE and not (settings.output is Output.JSONL and answer_stream().isatty()):
        return LiveDisplay(settings, grace_ms=grace_ms, is_watching=is_watching)
    progress = Progress(style=style_of(sys.stderr, settings), tz=local_zone(), verbosity=settings.verbose)
    make = GroupedDisplay if workflow.is_listening() else PlainDisplay
    return make(progress, heartbeat_seconds=settings.heartbeat_seconds)
