"""Where other threads put what has happened, for the driving thread to take in."""

from __future__ import annotations

import queue
from collections.abc import Callable


class Inbox:
    """Events are functions; they run on the thread that takes them."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def put(self, event: Callable[[], None]) -> None:
        """Add an event, from any thread or signal handler."""
        self._events.put(event)

    def take(self, timeout_seconds: float) -> None:
        """Wait for an event, then handle all that are there."""
        try:
            self._events.get(timeout=max(0.0, timeout_seconds))()
        except queue.Empty:
            return
        self.take_at_once()

    def take_at_once(self) -> None:
        """Handle all events that are there."""
        while not self._events.empty():
            self._events.get_nowait()()
