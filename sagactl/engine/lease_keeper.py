"""Heartbeats: keep the leases of the runs driven here, and know how long they are good for (rule E15, C3).

The heart beats as a job of its own, on another thread than the loop, so a tool that takes long, or a loop that is busy,
never costs a lease. When beats fail, the driver must have ended its calls before somebody else may take the runs over;
`seconds_left` tells how long that is. The count is from *before* the last renewal was asked for, so it errs on the safe
side. A log that is locked holds up the heart and the loop alike, so yet another job watches the time and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from sagactl.engine.clock import Clock
from sagactl.errors import LeaseLostError, SagactlError
from sagactl.log.base import HEARTBEAT_MS, LEASE_MS, Lease, Log

CLOSE_SECONDS: Final = 5.0
MARGIN_SECONDS: Final = 2.0
"""How long before a lease may run out the driver stops to rely on it, and has its calls end."""

WATCH_SECONDS: Final = 0.25
"""How often calls are told to end once that time has come: until the driver itself has stopped."""


class LeaseKeeper:
    """Renews leases until closed; `on_lost` is told of leases that another driver has taken.

    `end_calls` is called, from another thread and perhaps more than once, when no lease can be relied on any more.
    """

    def __init__(
        self,
        log: Log,
        clock: Clock,
        on_lost: Callable[[list[Lease]], None],
        submit: Callable[[Callable[[], None]], None],
        end_calls: Callable[[], None] = lambda: None,
        *,
        lease_ms: int = LEASE_MS,
        heartbeat_ms: int = HEARTBEAT_MS,
    ) -> None:
        self._log = log
        self._clock = clock
        self._on_lost = on_lost
        self._lease_seconds = lease_ms / 1000
        self._heartbeat_seconds = heartbeat_ms / 1000
        self._leases: dict[str, Lease] = {}
        self._renewed_at: dict[str, float] = {}
        self._oldest = 0.0
        """Not after any of `_renewed_at`; worked out anew with each beat, so that asking costs nothing."""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._submit = submit
        self._end_calls = end_calls
        self._is_beating = False
        self._renewing = threading.Lock()
        """Held while leases are renewed."""
        self.last_error: SagactlError | None = None

    def explain_loss(self, run_id: str) -> SagactlError:
        """Return why the lease of a run could not be kept: trouble with the log, or no time to renew it."""
        message = f"run {run_id}: the lease could not be renewed in time"
        return self.last_error or LeaseLostError(message, hint=f"sagactl resume {run_id}")

    def hold(self, lease: Lease, asked_at: float) -> None:
        """Keep *lease*, which was granted for a request made at *asked_at* (monotonic seconds)."""
        with self._lock:
            self._oldest = min(self._oldest, asked_at) if self._leases else asked_at
            self._leases[lease.run_id] = lease
            self._renewed_at[lease.run_id] = asked_at
            must_begin, self._is_beating = not self._is_beating, True
        if must_begin:
            self._submit(self._beat)

    def drop(self, lease: Lease) -> None:
        """Keep *lease* no longer."""
        with self._lock:
            self._leases.pop(lease.run_id, None)
            self._renewed_at.pop(lease.run_id, None)

    def seconds_left(self, run_id: str) -> float:
        """Return for how long calls of the run may go on, by what is known for certain; 0 or less: stop."""
        with self._lock:
            renewed_at = self._renewed_at.get(run_id)
        if renewed_at is None:
            return 0.0
        return renewed_at + self._lease_seconds - MARGIN_SECONDS - self._clock.monotonic()

    def soonest_seconds_left(self) -> float:
        """Return at most the least `seconds_left` of all runs."""
        with self._lock:
            oldest = self._oldest if self._leases else self._clock.monotonic()
        return oldest + self._lease_seconds - MARGIN_SECONDS - self._clock.monotonic()

    def _beat(self) -> None:
        if not self._closed.wait(self._heartbeat_seconds):
            self._submit(self._watch)  # only now: most drivers have come to their end by then
            self._beat_once()
        while not self._closed.wait(self._heartbeat_seconds):
            self._beat_once()

    def _beat_once(self) -> None:
        with self._renewing:
            if not self._closed.is_set():
                self._renew()

    def _watch(self) -> None:
        while not self._closed.wait(max(self.soonest_seconds_left(), WATCH_SECONDS)):
            if self.soonest_seconds_left() <= 0:
                self._end_calls()

    def _renew(self) -> None:
        with self._lock:
            leases = list(self._leases.values())
        if not leases:
            return
        asked_at = self._clock.monotonic()
        try:
            lost = self._log.renew(leases)
        except SagactlError as error:
            self.last_error = error
            return
        self.last_error = None
        gone = {lease.run_id for lease in lost}
        with self._lock:
            for lease in leases:
                if lease.run_id not in gone and self._leases.get(lease.run_id) == lease:
                    self._renewed_at[lease.run_id] = asked_at
            self._oldest = min(self._renewed_at.values(), default=asked_at)
        if lost:
            self._on_lost(lost)

    def close(self) -> None:
        """Stop the heart; a beat under way is waited for."""
        is_at_rest = self._renewing.acquire(timeout=CLOSE_SECONDS)
        self._closed.set()
        if is_at_rest:
            self._renewing.release()
