"""Start `sagactl` again and again without its start: each is forked from this process, which has imported everything.

One JSON object a line on stdin, one a line on stdout. What is forked is a process like any other, with a session, a log
in a file and a pid of its own; it can be killed, stopped and awaited. `hooks` stand at exact places in it:

    signal    {"at", "step", "direction", "number", "signal"}: which signal it sends itself, and when: `create`,
              `before_intent`, `after_intent`, `before_outcome`, `after_outcome`, `before_end`, `after_end`, or around
              the durable write of that number, whatever it is: `before_write`, `after_write`
    lease_ms  a lease of that length instead of 15 s, with a heart that beats faster
    shift     a file that says by how many seconds each clock is ahead: what the test writes there is time that passes
    wall      likewise, but of the wall clock alone: somebody turns it
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import sagactl
from sagactl.__main__ import main as run_main
from sagactl.app import Project
from sagactl.core.records import Ended, Intent, Outcome
from sagactl.engine.settings import Settings
from sagactl.log import leases
from sagactl.log.sqlite import SqliteLog

OTHERS = ("yaml", "jsonschema", "sqlite_utils", "asyncio", "concurrent.futures", "fcntl", "cel_expr_python")
HEARTBEATS = 6
WRITES = ("create", "claim", "ask", "append", "release")
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Answer until stdin ends; then end what was started."""
    _warm_up()
    living: dict[int, None] = {}
    try:
        for line in sys.stdin:
            request = json.loads(line)
            answer = _start(request, living) if "arguments" in request else _wait(request, living)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _warm_up() -> None:
    for module in pkgutil.walk_packages(sagactl.__path__, "sagactl."):
        if "templates" not in module.name and not module.name.endswith("__main__"):
            with suppress(ImportError):  # an extra that isn't installed
                importlib.import_module(module.name)
    for name in OTHERS:
        with suppress(ImportError):
            importlib.import_module(name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a thread would not survive the fork"
    gc.collect()
    gc.freeze()


def _start(request: dict[str, Any], living: dict[int, None]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the child is what it shall be
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        living[pid] = None
        return pid
    living.clear()
    _become(request)
    raise _IsChildError(request["arguments"])


class _IsChildError(Exception):
    """This process is a command: raised all the way up, so that it ends as any other does."""


def _wait(request: dict[str, Any], living: dict[int, None]) -> int | None:
    pid, until = request["wait"], time.monotonic() + request["seconds"]
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            living.pop(pid)
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(0.002)


def _become(request: dict[str, Any]) -> None:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    hooks = request["hooks"]
    if "shift" in hooks or "wall" in hooks:
        _shift_clocks(hooks.get("shift"), hooks.get("wall"))
    if "lease_ms" in hooks:
        _shorten_lease(hooks["lease_ms"])
    if "signal" in hooks:
        _stand_in_log(hooks["signal"])


def _shorten_lease(lease_ms: int) -> None:
    _put(leases, LeaseClock=partial(leases.LeaseClock, lease_ms=lease_ms))
    settings = Settings(lease_ms=lease_ms, heartbeat_ms=lease_ms // HEARTBEATS)
    _put(Project, settings=property(lambda _: settings))


def _shift_clocks(every: str | None, wall: str | None) -> None:
    """Stand before the clocks of this process; the machine's are left alone."""

    def read(path: str | None) -> float:
        text = "" if path is None or not Path(path).exists() else Path(path).read_text()
        return float(text or 0)

    now, now_ns, monotonic = time.time, time.time_ns, time.monotonic
    clock, clock_ns = time.clock_gettime, time.clock_gettime_ns

    def ahead(which: int) -> float:
        return read(every) + (read(wall) if which == time.CLOCK_REALTIME else 0.0)

    _put(
        time,
        time=lambda: now() + ahead(time.CLOCK_REALTIME),
        time_ns=lambda: now_ns() + int(ahead(time.CLOCK_REALTIME) * 1e9),
        monotonic=lambda: monotonic() + ahead(time.CLOCK_MONOTONIC),
        clock_gettime=lambda which: clock(which) + ahead(which),
        clock_gettime_ns=lambda which: clock_ns(which) + int(ahead(which) * 1e9),
    )


def _put(where: object, **things: object) -> None:
    """Have *things* stand where the real ones stood, in this process."""
    for name, thing in things.items():
        setattr(where, name, thing)


def _stand_in_log(order: dict[str, Any]) -> None:
    """Have a signal sent to this process around the durable transaction that *order* means."""
    met = 0

    def send() -> None:
        os.kill(os.getpid(), order["signal"])
        time.sleep(0.05)

    def stand(name: str, is_meant: Callable[[str, tuple[Any, ...]], bool]) -> None:
        real = getattr(SqliteLog, name)

        def write(self: SqliteLog, *arguments: Any, **options: Any) -> Any:
            nonlocal met
            is_here = is_meant(name, arguments)
            met += is_here
            is_now = is_here and met == order.get("number", 1)
            if is_now and (order["at"].startswith("before") or order["at"] == "create"):
                send()
            result = real(self, *arguments, **options)
            if is_now and order["at"].startswith("after"):
                send()
            return result

        setattr(SqliteLog, name, write)

    if order["at"].endswith("_write"):
        for name in WRITES:
            stand(name, lambda *_: True)
        return
    stand("create", lambda *_: order["at"] == "create")
    stand("append", lambda _, arguments: any(_fits(order, record) for record in _records(arguments)))


def _records(arguments: tuple[Any, ...]) -> Iterator[object]:
    for batch in arguments[0]:
        yield from batch.records


def _fits(order: dict[str, Any], record: object) -> bool:
    kind = order["at"].rpartition("_")[2]
    if isinstance(record, Ended):
        return bool(kind == "end")
    if not isinstance(record, Intent | Outcome) or kind != type(record).__name__.lower():
        return False
    return bool((record.operation.step, record.operation.direction.value) == (order["step"], order["direction"]))


if __name__ == "__main__":
    try:
        main()
    except _IsChildError as child:
        sys.argv = ["sagactl", *child.args[0]]
    else:
        sys.exit(0)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        run_main()
    except KeyboardInterrupt:
        sys.exit(130)
