"""Sending beside a driver: a thread for each lane, which never holds up a run, and the end of the program only shortly.

What isn't sent when the program ends is in the log, and whoever delivers next sends it: another run of the project, or
`sagactl outbox deliver`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sagactl.alerts.lanes import AlertLane, Lane
from sagactl.core.alerting import Raise, alert_effects
from sagactl.core.outbox import Sent
from sagactl.core.records import Decision, Disposition, Ended, Operator, Outcome, Probe, Record, StepDecided
from sagactl.errors import SagactlError

END_SECONDS: Final = 5.0
"""How long the end of a program waits for what is being sent."""

PAUSE_SECONDS: Final = 0.2
"""How long a lane lets news gather before it looks again."""

TROUBLE_SECONDS: Final = 5.0
"""How long a lane waits after trouble with the log."""

WAIT_SECONDS_MAX: Final = 600.0


class Courier:
    """Runs *lanes*; the threads begin with the first news and end with `close`."""

    def __init__(self, lanes: Sequence[Lane], now_ms: Callable[[], int]) -> None:
        self._lanes = lanes
        self._now_ms = now_ms
        self._condition = threading.Condition()
        self._news: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._is_closing = False
        self._ends_at: float | None = None
        self._told: set[str] = set()
        """Runs of which a person was told something: their end is news as well."""

    def note(self, run_id: str, records: Iterable[Record]) -> None:
        """Take note of records that are durable now; costs next to nothing where they are no news."""
        is_first = not self._threads  # what an earlier process left waits in the log
        is_alerting = self._is_news(run_id, records) or is_first
        woken = [lane for lane in self._lanes if is_alerting or not isinstance(lane, AlertLane)]
        if not woken:
            return
        with self._condition:
            for lane in woken:
                lane.note(run_id)
                self._news.add(lane.name)
            if not self._threads and not self._is_closing:
                self._start()
            self._condition.notify_all()

    def _is_news(self, run_id: str, records: Iterable[Record]) -> bool:
        is_news = False
        for record in records:
            match record:
                case Decision() | StepDecided() if any(isinstance(effect, Raise) for effect in alert_effects(record)):
                    self._told.add(run_id)
                    is_news = True
                case Operator(disposition=Disposition.VOID | Disposition.ACCEPTED):
                    is_news = True
                case Ended() | Decision() | Outcome() | Probe() if run_id in self._told and alert_effects(record):
                    is_news = True
                    self._told -= {run_id} if isinstance(record, Ended) else set()
                case _:
                    pass
        return is_news

    def _start(self) -> None:
        for lane in self._lanes:
            thread = threading.Thread(target=self._run, args=(lane,), name=f"sagactl {lane.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, lane: Lane) -> None:
        while True:
            with self._condition:
                self._news.discard(lane.name)
                is_last = self._is_closing
            due_ms = self._work(lane)
            if is_last:
                return
            self._wait(lane, due_ms)

    def _work(self, lane: Lane) -> int | None:
        try:
            return lane.work(_ignore, self._is_over)
        except SagactlError as error:
            logging.getLogger("sagactl").debug("%s can't be sent now: %s", lane.name, error)
        except Exception:
            if not self._is_closing:  # later everything around may be gone already
                logging.getLogger("sagactl").exception("sending to %s failed", lane.name)
        return self._now_ms() + int(TROUBLE_SECONDS * 1000)

    def _wait(self, lane: Lane, due_ms: int | None) -> None:
        """Wait for news, until *due_ms*, or for the end."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_closing, PAUSE_SECONDS)
            left = WAIT_SECONDS_MAX if due_ms is None else (due_ms - self._now_ms()) / 1000
            self._condition.wait_for(
                lambda: self._is_closing or lane.name in self._news, min(max(0.0, left), WAIT_SECONDS_MAX)
            )

    def _is_over(self) -> bool:
        return self._ends_at is not None and time.monotonic() >= self._ends_at

    def close(self, *, patience_seconds: float = END_SECONDS) -> None:
        """Send what is due now, for so long at most; the rest is in the log."""
        with self._condition:
            self._is_closing = True
            self._ends_at = time.monotonic() + patience_seconds
            self._condition.notify_all()
        with contextlib.suppress(KeyboardInterrupt):  # who won't wait leaves the rest to others, with the same code
            for thread in self._threads:
                thread.join(max(0.0, self._ends_at - time.monotonic()))
        for lane, thread in zip(self._lanes, self._threads, strict=False):
            if thread.is_alive():
                self._let_go(lane)

    def _let_go(self, lane: Lane) -> None:
        try:
            lane.let_go()
        except SagactlError as error:
            logging.getLogger("sagactl").debug("%s keeps its lease: %s", lane.name, error)


def _ignore(sent: Sent) -> None:
    del sent
