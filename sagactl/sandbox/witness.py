"""What tests of crashes need of the sandbox: a witness that outlives the process, and death at a chosen point.

`SAGACTL_SANDBOX_LEDGER=FILE`: each call appends one synced JSON line when it begins, has its effect, and ends.

`SAGACTL_SANDBOX_KILL=billing.charge:after_effect:1[,...]`: the process kills itself when the tool reaches the point for
the n-th time (`:1` may be left out). Points are `before_effect` (the call has begun, nothing has happened) and
`after_effect` (it has happened for good, nobody was told); a probe has the first only. Arrivals are counted in the
sandbox itself, over all processes: a resumed run passes the point unharmed, and the counts start anew with
`sagactl sandbox reset`.
"""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sagactl.sandbox.database import count_up, transaction
from sagactl.tools.api import CallContext

LEDGER_VARIABLE: Final = "SAGACTL_SANDBOX_LEDGER"
KILL_VARIABLE: Final = "SAGACTL_SANDBOX_KILL"
POINTS: Final = ("before_effect", "after_effect")


def testify(context: CallContext, phase: str, **facts: object) -> None:
    """Append a line to the witness's file, if there is one."""
    target = os.environ.get(LEDGER_VARIABLE)
    if not target:
        return
    line = {
        "at": datetime.now(UTC).isoformat(),
        "phase": phase,
        "tool": context.tool,
        "run": context.run_id,
        "step": context.step,
        "item": context.item,
        "direction": context.direction,
        "attempt": context.attempt,
        "key": context.idempotency_key,
        "forward_key": context.forward_key,
        "pid": os.getpid(),
        **facts,
    }
    descriptor = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, (json.dumps(line, default=str) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def die_if_told(path: Path, context: CallContext, point: str) -> None:
    """Kill this process if the environment names this arrival of this tool at this point."""
    for order in filter(None, os.environ.get(KILL_VARIABLE, "").split(",")):
        tool, _, rest = order.strip().partition(":")
        wanted_point, _, number = rest.partition(":")
        if (tool, wanted_point) == (context.tool, point) and _count_arrival(path, order) == int(number or "1"):
            os.kill(os.getpid(), signal.SIGKILL)


def _count_arrival(path: Path, order: str) -> int:
    with transaction(path) as connection:
        return count_up(connection, f"kill {order}")
