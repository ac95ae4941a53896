"""Two threads that take turns at one loop, so that a chain of quick calls costs no change of thread.

A call must not hold up the loop, which has deadlines to watch and requests to answer. The usual way out, a thread for
each call, costs more than the call where that is quick: two changes of thread, each some fifty microseconds, between
two commits. So where a call is likely to be quick, the loop goes along with it: it is *lent* to a worker, which makes
the call and then goes on turning, call after call. The owner, the thread that called `drive`, stands by. When the
borrower stays inside a call for longer than `PATIENCE_SECONDS`, the owner takes the loop back; the borrower learns of
it when its call returns, and its answer arrives like that of any other worker.

The loop is turned by one thread at a time. It changes hands under one lock, and only while the borrower is inside a
call or between two turns; `_term` says whose turn it is. No tool ever runs on the owner, so an exception that a signal
raises there (Ctrl-C in a program that embeds us) is never taken for the answer of a tool.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

PATIENCE_SECONDS: Final = 0.004
"""How long a call may hold the loop up."""

_WATCH_SECONDS: Final = 0.004


class Relay:
    """Lends a loop to workers and takes it back; see the essay above."""

    def __init__(self, submit: Callable[[Callable[[], None]], None]) -> None:
        self._submit = submit
        self._lock = threading.Lock()
        self._returned = threading.Semaphore(0)
        self._term = 0
        self._inside_since: float | None = None
        self._is_borrowed = False
        self._error: BaseException | None = None
        self.is_recalled = False
        """The owner wants the loop back: the borrower is to return between two turns."""

    def lend(self, work: Callable[[int], None]) -> None:
        """Let a worker do *work*, which gets its term, and return when the loop is back; raises what *work* raised."""
        with self._lock:
            self._term += 1
            self._inside_since = None
            self._is_borrowed = False
            self._returned, self._error = threading.Semaphore(0), None
            term = self._term
        try:
            self._submit(lambda: self._borrow(term, work))
            self._wait()
        except BaseException:  # a signal's, at whatever place of this thread
            self._recall(term)
            raise
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _recall(self, term: int) -> None:
        """Get the loop back as soon as it can be: at once where nobody has begun to turn it."""
        with self._lock:
            if not self._is_borrowed:
                self._term += 1
            if self._term != term:
                return
        self.is_recalled = True
        while self._term == term:
            with suppress(BaseException):  # another signal's: a turn is short, and two threads must never turn the loop
                self._wait()
        self.is_recalled = False

    def _wait(self) -> None:
        while not self._returned.acquire(timeout=_WATCH_SECONDS):
            with self._lock:
                since = self._inside_since
                if since is not None and (self.is_recalled or time.monotonic() - since >= PATIENCE_SECONDS):
                    self._term += 1
                    return

    def _borrow(self, term: int, work: Callable[[int], None]) -> None:
        with self._lock:
            if self._term != term:
                return
            self._is_borrowed = True
        error = None
        try:
            work(term)
        except BaseException as raised:  # it belongs to whoever called `drive`
            error = raised
        with self._lock:
            if self._term == term:
                self._term += 1
                self._error = error
                self._returned.release()

    def step_out(self, term: int, job: Callable[[], None]) -> bool:
        """Do *job*, a call, on the borrowing thread; return whether the loop is still this thread's afterwards."""
        with self._lock:
            self._inside_since = time.monotonic()
        job()
        with self._lock:
            if self._term != term:
                return False
            self._inside_since = None
        return True
