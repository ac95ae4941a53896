"""Who is told of records once they are durable, and what a listener that fails may not break."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from sagactl.errors import MisuseError, check_argument

if TYPE_CHECKING:
    from sagactl.engine.settings import Committed

Listener = Callable[["Committed"], None]


class Listeners:
    """The listeners of one driver, told in the order in which they came."""

    def __init__(self, first: Listener, *, is_breaking_off: Callable[[], bool]) -> None:
        self._listeners = [first]
        self._is_breaking_off = is_breaking_off
        self._telling: int | None = None
        """Who calls listeners now."""

    def add(self, listener: Listener) -> Callable[[], None]:
        """Tell *listener* from now on; return what ends that."""
        check_argument(listener, Callable, "a listener, a function of one argument,", hint="sagactl help embedding")  # type: ignore[arg-type]
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with suppress(ValueError):  # it has been called before
                self._listeners.remove(listener)

        return unsubscribe

    def tell(self, committed: Committed) -> None:
        """Tell all listeners; an exit out of one comes out here, unless the driving breaks off already."""
        before, self._telling = self._telling, threading.get_ident()
        try:
            for listener in list(self._listeners):
                self._tell_one(listener, committed)
        finally:
            self._telling = before

    def _tell_one(self, listener: Listener, committed: Committed) -> None:
        try:
            listener(committed)
        except BaseException as error:
            if not isinstance(error, Exception) and not self._is_breaking_off():
                raise  # the program wants to leave: it comes out of `drive`, once
            import logging

            logging.getLogger("sagactl").exception("a listener failed on records of run %s", committed.run_id)

    def check_not_within(self, what: str) -> None:
        """Raise MisuseError where a listener asks for what can't come before it has returned."""
        if self._telling == threading.get_ident():
            message = f"`{what}` in a listener would wait for the listener itself"
            raise MisuseError(message, code="in-listener", hint="`interrupt` and `start` work there; wait elsewhere")
