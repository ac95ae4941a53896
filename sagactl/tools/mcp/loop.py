"""The thread with the event loop in which all connections to servers live; a forked child starts its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    import asyncio

STOP_SECONDS: Final = 5.0
T = TypeVar("T")


class LoopThread:
    """An event loop on a thread of its own, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    @property
    def is_running(self) -> bool:
        """Tell whether this very process has started it."""
        return self._loop is not None and self._pid == os.getpid()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run *work* in the loop."""
        import asyncio

        return asyncio.run_coroutine_threadsafe(work, self._open())

    def _open(self) -> asyncio.AbstractEventLoop:
        import asyncio

        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._loop.run_forever, name="sagactl-mcp", daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """End the thread; what still runs in the loop is cancelled."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None or self._pid != os.getpid():
            return
        import asyncio

        asyncio.run_coroutine_threadsafe(_end_tasks(), loop).add_done_callback(
            lambda _: loop.call_soon_threadsafe(loop.stop)
        )
        thread.join(STOP_SECONDS)
        if not thread.is_alive():
            loop.close()


async def _end_tasks() -> None:
    """Cancel what still runs in the loop, and let it come to its end."""
    import asyncio

    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
