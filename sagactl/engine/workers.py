"""Where calls run: daemon threads for plain tools, one event loop for async ones (started only if there are any).

A call in a thread can't be killed. So its thread is a daemon, which never keeps the process from ending, and the pool
makes another thread when one hangs: a hanging tool costs its own slot and nobody else's (rule E14).

All drivers of a process share the threads, and they stay for a while: a service that drives again and again doesn't
pay for making them each time. What belongs to a driver, its heart included, are jobs like any other.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio


class AsyncJob:
    """A task on the event loop of another thread; `done` is told when it has really ended."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, make: Callable[[], Awaitable[Any]], done: Callable[[Any], None]
    ) -> None:
        self._loop = loop
        self._make = make
        self._done = done
        self._task: asyncio.Task[None] | None = None
        loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            result = await self._make()
        except BaseException as error:  # a cancelled task has ended as well, and that is what counts
            self._done(error)
            return
        self._done(result)

    def cancel(self) -> None:
        """Ask the task to end; one that swallows the cancellation goes on, and isn't reported as done."""
        self._loop.call_soon_threadsafe(lambda: self._task.cancel() if self._task is not None else None)


IDLE_SECONDS: Final = 10.0
"""How long a thread waits for another job."""


class Workers:
    """Threads that take jobs from one queue; there are as many as were busy at once, of late."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = 0
        self._threads = 0
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, job: Callable[[], None]) -> None:
        """Run *job*, which must not raise, on a thread of its own."""
        with self._lock:
            must_grow = self._idle == 0
            if must_grow:
                self._threads += 1
            else:
                self._idle -= 1
        self._jobs.put(job)
        if must_grow:
            threading.Thread(target=self._work, name=f"sagactl-call-{self._threads}", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._may_go():
                    return
                continue
            job()
            with self._lock:
                self._idle += 1

    def _may_go(self) -> bool:
        """Let an idle thread end, unless a job is on its way to it."""
        with self._lock:
            if self._idle == 0:
                return False
            self._idle -= 1
            self._threads -= 1
            return True

    def submit_async(self, make: Callable[[], Awaitable[Any]], done: Callable[[Any], None]) -> AsyncJob:
        """Await what *make* returns on the event loop; *done* gets its result, or the exception that ended it."""
        return AsyncJob(self._event_loop(), make, done)

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._run_loop, args=(self._loop,), name="sagactl-async", daemon=True).start()
        return self._loop

    @staticmethod
    def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
        finally:
            loop.close()


_shared: dict[int, Workers] = {}
"""By process: a fork has none of the threads of its parent."""


def shared_workers() -> Workers:
    """Return the threads of this process."""
    found = _shared.get(os.getpid())
    return found if found is not None else _shared.setdefault(os.getpid(), Workers())
