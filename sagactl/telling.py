"""What is told of runs while they are driven: alerts, events and traces, each where the settings ask for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from sagactl.once import once_property

if TYPE_CHECKING:
    from sagactl.alerts.courier import Courier
    from sagactl.config import Config
    from sagactl.driving.driver import Driver
    from sagactl.log.base import Log
    from sagactl.telemetry.tracer import Tracer


class Telling:
    """Tells what the drivers of one project do, and lasts as long as the project; any thread may attach a driver.

    Args:
        config: What is to be told, and where.
        find_log: Opens the log, whose outbox holds what waits to be sent.
        is_whole_process: The process is ours, so that what tools do with OpenTelemetry may be set up as well.
    """

    def __init__(self, config: Config, find_log: Callable[[], Log], *, is_whole_process: bool) -> None:
        self._config = config
        self._find_log = find_log
        self._is_whole_process = is_whole_process
        self._courier: Courier | None = None
        self._lock = threading.Lock()

    def attach(self, driver: Driver) -> None:
        """Have told what *driver* does; raises InvalidError where a setting can't be."""
        if self._config.alerts is not None or self._config.events is not None:
            self._send(driver)
        if (tracer := self.tracer) is not None:
            driver.subscribe(lambda committed: tracer.note(committed.run_id, committed.first_seq, committed.records))

    def _send(self, driver: Driver) -> None:
        from sagactl.outgoing import make_courier, read_ways

        ways = read_ways(self._config)
        with self._lock:
            if self._courier is None and ways:
                self._courier = make_courier(ways, self._find_log(), self._config.project)
            courier = self._courier
        if courier is not None:
            driver.subscribe(lambda committed: courier.note(committed.run_id, committed.records))

    @once_property
    def tracer(self) -> Tracer | None:
        """What sends runs as traces of OpenTelemetry, or None; raises InvalidError where it is asked for in vain."""
        if self._config.telemetry is None and not any(name.startswith("OTEL_") for name in os.environ):
            return None
        from sagactl.telemetry.begin import begin_tracing

        return begin_tracing(self._config.telemetry, os.environ, is_whole_process=self._is_whole_process)

    def close(self) -> None:
        """Send what waits, for a moment at most."""
        if self._courier is not None:
            self._courier.close()
            self._courier = None
        if (tracer := vars(self).pop("tracer", None)) is not None:
            tracer.close()
