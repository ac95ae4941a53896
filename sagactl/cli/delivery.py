"""Sending what is due, each channel at its own pace: one that hangs keeps no other waiting.

A thread for each way out, and there are few. What one sends goes out in order; the others know nothing of it.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from sagactl.cli.answer import write_document
from sagactl.cli.options import Output
from sagactl.cli.session import Session, now_ms
from sagactl.cli.streams import write_line
from sagactl.cli.views.outbox import Tally, render_sent, write_sent
from sagactl.core.outbox import Sent
from sagactl.errors import ExitCode, SagactlError

WATCH_SECONDS: Final = 1.0
"""How often `deliver --watch` looks for something to send."""

END_SECONDS: Final = 5.0
"""How long a signal waits for what is being sent."""

_LOOK_SECONDS: Final = 0.1


class Lane(Protocol):
    """What is asked of a way out."""

    name: str

    def work(self, tell: Callable[[Sent], None], is_over: Callable[[], bool]) -> int | None:
        """Send what is due until *is_over*; return when there may be more, in UTC milliseconds."""
        ...

    def let_go(self) -> None:
        """Let others send what is being sent here."""
        ...


class Delivery:
    """Lanes at work until they are through, or with *watches* until a signal."""

    def __init__(self, session: Session, lanes: Sequence[Lane], *, watches: bool) -> None:
        self.tallies = {lane.name: Tally(lane.name) for lane in lanes}
        self._session = session
        self._lanes = lanes
        self._watches = watches
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []
        self._over = threading.Event()

    def work(self) -> ExitCode:
        """Send, and return the exit code; raises what a lane has met."""
        threads = [threading.Thread(target=self._run, args=(lane,), daemon=True) for lane in self._lanes]
        with _catch_signals(self._over.set) as caught:
            for thread in threads:
                thread.start()
            while not self._over.is_set() and any(thread.is_alive() for thread in threads):
                self._over.wait(_LOOK_SECONDS)
            self._end(threads)
        if self._errors:
            raise self._errors[0]
        has_failed = any(tally.failed for tally in self.tallies.values())
        return caught[0] if caught else ExitCode.ERROR if has_failed and not self._watches else ExitCode.OK

    def _end(self, threads: Sequence[threading.Thread]) -> None:
        """Wait for what is being sent, not for long; what hangs is let go of, and sent again by whoever is next."""
        until = time.monotonic() + END_SECONDS
        for lane, thread in zip(self._lanes, threads, strict=True):
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                with suppress(SagactlError):
                    lane.let_go()

    def _run(self, lane: Lane) -> None:
        tally = self.tallies[lane.name]
        try:
            while not self._over.is_set():
                tally.due_ms = lane.work(self._tell, self._over.is_set)
                if not self._watches or self._over.wait(WATCH_SECONDS):
                    return
        except BaseException as error:  # for the thread that waits
            self._errors.append(error)
            self._over.set()

    def _tell(self, sent: Sent) -> None:
        session = self._session
        with self._lock:
            self.tallies[sent.lane].count(sent)
            if session.output is Output.JSONL:
                write_document(write_sent(sent))
            if session.shows_progress and sent.error is not None:
                write_line(sys.stderr, render_sent(sent, now_ms(), session.progress_style))


@contextmanager
def _catch_signals(stop: Callable[[], None]) -> Iterator[list[ExitCode]]:
    """Let SIGINT and SIGTERM call *stop*; gives the exit code that the first of them means, once there was one."""
    codes = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED_BY_SIGNAL}
    caught: list[ExitCode] = []

    def handle(number: int, _: object) -> None:
        caught.append(codes[signal.Signals(number)])
        stop()

    previous = {number: signal.signal(number, handle) for number in codes}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
