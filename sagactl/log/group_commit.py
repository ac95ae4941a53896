"""Group commit: callers on several threads share one durable commit; a lone caller pays for no company.

Leader and followers: who comes while nobody commits is the leader and commits on its own thread, at once. Who comes
while a commit is under way waits; when it ends, the first of those who wait leads the next one, with everything that
has come in. So a commit that takes as long as the disk takes is shared by all who asked meanwhile, no thread stands
by for it, and nobody waits for more than the commit under way and the next.

An item that spoils the commit it takes part in must not spoil the others': where a commit fails for another reason
than the storage, each item is tried alone, and only the one at fault gets the error.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from sagactl.errors import StorageError

T = TypeVar("T")
R = TypeVar("R")


class _Ticket(Generic[T, R]):
    __slots__ = ("error", "item", "result", "woken")

    def __init__(self, item: T) -> None:
        self.item = item
        self.result: R | None = None
        self.error: BaseException | None = None
        self.woken: threading.Event | None = None
        """There while somebody waits; set when the ticket is done or its turn to lead has come."""


class GroupCommit(Generic[T, R]):
    """Calls *commit* with one item or many, from one thread at a time; it returns a result for each."""

    def __init__(self, commit: Callable[[Sequence[T]], Sequence[R]]) -> None:
        self._commit = commit
        self._lock = threading.Lock()
        self._waiting: list[_Ticket[T, R]] = []
        self._is_led = False

    def submit(self, item: T) -> R:
        """Return the result of *item* once it is committed; raises what committing it raised."""
        ticket: _Ticket[T, R] = _Ticket(item)
        with self._lock:
            self._waiting.append(ticket)
            must_wait = self._is_led
            if must_wait:
                ticket.woken = threading.Event()
            self._is_led = True
        if must_wait:
            self._wait(ticket)
        if ticket.result is None and ticket.error is None:
            self._lead()
        if ticket.error is not None:
            raise ticket.error
        assert ticket.result is not None, "a leader's own ticket is in its group"
        return ticket.result

    def _wait(self, ticket: _Ticket[T, R]) -> None:
        assert ticket.woken is not None
        try:
            ticket.woken.wait()
        except BaseException:  # a signal's exception on the main thread: leave the line, and the lead if it has come
            with self._lock:
                is_next = ticket in self._waiting and ticket.woken.is_set()
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                if is_next:
                    self._pass_on()
            raise

    def _lead(self) -> None:
        with self._lock:
            group, self._waiting = self._waiting, []
        try:
            self._commit_group(group)
        finally:
            with self._lock:
                self._pass_on()
            for ticket in group:
                if ticket.woken is not None:
                    ticket.woken.set()

    def _pass_on(self) -> None:
        """Give the lead to the first who waits, or to nobody; the lock is held."""
        if not self._waiting:
            self._is_led = False
            return
        woken = self._waiting[0].woken
        assert woken is not None, "who waits can be woken"
        woken.set()

    def _commit_group(self, group: list[_Ticket[T, R]]) -> None:
        try:
            results = self._commit([ticket.item for ticket in group])
        except StorageError as error:
            for ticket in group:
                ticket.error = copy.copy(error)
        except Exception as error:
            if len(group) == 1:
                group[0].error = error
                return
            for ticket in group:
                self._commit_group([ticket])
        except BaseException as error:
            for ticket in group:
                ticket.error = error
            raise
        else:
            for ticket, result in zip(group, results, strict=True):
                ticket.result = result
