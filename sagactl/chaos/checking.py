"""Asking a check tool what there is in the world."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from sagactl.core.canonical import Json
from sagactl.core.keys import idempotency_key
from sagactl.core.records import Direction, Operation, OutcomeKind
from sagactl.errors import RefusedError
from sagactl.tools.base import Invocation, Toolbox

CHECK_SECONDS: Final = 30.0


def ask_tool(tools: Toolbox, name: str, folder: Path, run_id: str) -> Json:
    """Call *name* without arguments and return its output; raises RefusedError where it gives none."""
    operation = Operation("check", None, Direction.ACTION)
    key = idempotency_key(run_id, operation)
    invocation = Invocation(
        tool=name,
        arguments={},
        run_id=run_id,
        operation=operation,
        attempt=1,
        idempotency_key=key,
        forward_key=key,
        deadline_ms=time.time_ns() // 1_000_000 + int(CHECK_SECONDS * 1_000),
        seconds_left=CHECK_SECONDS,
        project=folder,
    )
    answer = tools.call(invocation)
    if answer.kind is not OutcomeKind.SUCCEEDED:
        reason = answer.failure or answer.kind
        raise RefusedError(f"the check tool {name} doesn't say what there is: {reason}", code="check-failed")
    return answer.output
