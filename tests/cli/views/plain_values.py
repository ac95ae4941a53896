"""Rows, letters, tools and sandbox objects for the views that need no run."""

from __future__ import annotations

from dataclasses import replace

from sagactl.cli.views.tools import BrokenRow, ToolRow
from sagactl.core.canonical import Json
from sagactl.core.records import Cause, Direction, Failure, Operation, RunStatus
from sagactl.core.saga import ToolFacts
from sagactl.log.base import DeadLetter, RunRow
from tests.cli.views.scripted import CHARGE_OUTPUT, START_MS
from tests.cli.views.situations import succeeded

HOUR_MS = 3_600_000
_ROW = succeeded().row()


def _row(run_id: str, saga: str, status: RunStatus, hours_ago: int, **known: object) -> RunRow:
    at_ms = START_MS + 24 * HOUR_MS - hours_ago * HOUR_MS
    is_over = status in {RunStatus.SUCCEEDED, RunStatus.ROLLED_BACK, RunStatus.TERMINATED}
    row = replace(_ROW, run_id=run_id, saga=saga, status=status, created_at_ms=at_ms, ended_at_ms=None)
    return replace(row, ended_at_ms=at_ms + 19_000 if is_over else None, **known)  # type: ignore[arg-type]


MANY_ROWS = [
    _row("7kq2m9xw4tzn3", "onboarding", RunStatus.ROLLED_BACK, 0, cause=Cause.STEP_FAILED, failed_step="deposit"),
    _row("3f8wxamm4tzn3", "nightly-report", RunStatus.RUNNING, 1, steps_done=4, steps_total=9),
    _row("b2m4cdxw4tzn3", "onboarding", RunStatus.WAITING, 1, waiting_for="timer",
         waiting_until_ms=START_MS + 24 * HOUR_MS + 12_000),
    _row("8tz6keqw4tzn3", "close-account", RunStatus.STUCK, 3, dead_letters=2, cause=Cause.COMPENSATION_FAILED),
    _row("d5wxampp4tzn3", "onboarding", RunStatus.WAITING, 4, waiting_for="missing_tool"),
    _row("h2m4cdss4tzn3", "onboarding", RunStatus.ROLLING_BACK, 4, cause=Cause.CANCELLED,
         direction=Direction.COMPENSATION, waiting_for="timer", waiting_until_ms=START_MS),
    _row("k9tz6kgg4tzn3", "an-uncommonly-long-name-of-a-saga-that-nobody-would-type", RunStatus.TERMINATED, 22,
         cause=Cause.TERMINATED),
    _row("m4p5rexw4tzn3", "onboarding", RunStatus.SUCCEEDED, 5),
]  # fmt: skip


def _letter(run_id: str, operation: Operation, hours_ago: int, reason: Cause, failure: Failure) -> DeadLetter:
    opened_ms = START_MS + 24 * HOUR_MS - hours_ago * HOUR_MS
    return DeadLetter(run_id, "close-account", 17, operation, reason.value, failure, opened_ms)


MANY_LETTERS = [
    _letter(
        "8tz6keqw4tzn3",
        Operation("close_books", None, Direction.COMPENSATION),
        3,
        Cause.COMPENSATION_FAILED,
        Failure("unavailable", "503 the ledger is closed for the night, come back tomorrow at nine"),
    ),
    _letter(
        "8tz6keqw4tzn3",
        Operation("servers", 12, Direction.COMPENSATION),
        3,
        Cause.IN_DOUBT,
        Failure("timeout", "no answer within 30s"),
    ),
    _letter(
        "m4p5rexw4tzn3",
        Operation("send_wire", None, Direction.ACTION),
        26,
        Cause.IN_DOUBT,
        Failure("driver_lost", "the driver ended before the answer was recorded"),
    ),
    _letter(
        "m4p5rexw4tzn3",
        Operation("welcome", None, Direction.ACTION),
        26,
        Cause.FORWARD_STUCK,
        Failure("bad_address", "550 no such mailbox"),
    ),
]
SETTLED_LETTER = replace(MANY_LETTERS[2], closed_at_ms=START_MS)  # fmt: skip

LINE: dict[str, Json] = {
    "type": "object",
    "required": ["sku"],
    "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}},
}
CHARGE_ARGUMENTS: dict[str, Json] = {
    "type": "object",
    "required": ["lead_id", "amount"],
    "properties": {
        "lead_id": {"type": "string", "description": "Who pays."},
        "amount": {"type": "integer", "minimum": 1, "description": "In cents."},
        "card": {"enum": ["ok", "declined", "flaky"], "default": "ok", "description": "How the bank behaves."},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}},
        "lines": {"type": ["array", "null"], "items": LINE},
        "memo": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    },
}

TOOL_ROWS = [
    ToolRow(
        ToolFacts("billing.charge", "sha256:0f3a", "billing", compensation="billing.refund",
                  compensation_with={"charge_id": "${{ output.charge_id }}"}, probe="billing.find_charge",
                  key_retention_ms=86_400_000, arguments_schema=CHARGE_ARGUMENTS, output_schema=CHARGE_OUTPUT),
        "Charge a deposit.", "plugins/billing.py", 42, isolated_by="author",
    ),
    ToolRow(ToolFacts("billing.refund", "sha256:0f3a", "billing", null_safe=True, late_safe=True,
                      arguments_schema={"type": "object", "properties": {}}),
            "Refund a deposit, found by its id or by the key of the charge; a charge that comes later is refused."),
    ToolRow(ToolFacts("billing.find_charge", "sha256:0f3a", "billing", read_only=True),
            "Find out whether a charge went through."),
    ToolRow(ToolFacts("mail.send", "1.2", "mail", idempotent=False, output_schema={"type": "null"}), "Send a mail.",
            isolated_by="operator"),
]  # fmt: skip

BROKEN = [
    BrokenRow("crm", "plugins/crm.py", 12, "SyntaxError: invalid syntax", ("crm.create_lead", "crm.archive_lead")),
    BrokenRow("slack", "slack_tools", 0, "ModuleNotFoundError: No module named 'slack_sdk'"),
]

SYSTEMS: dict[str, list[dict[str, Json]]] = {
    "billing": [{"kind": "charge", "id": "ch_8f2", "body": {"amount": 5000, "state": "refunded"}}],
    "crm": [{"kind": "lead", "id": "lead_12", "body": {"email": "ana@example.com", "state": "archived"}}],
}

LEDGER: list[dict[str, Json]] = [
    {"seq": 1, "at": "2026-03-04T13:02:12.009+00:00", "system": "crm", "effect": "created",
     "key": "7kq2m9xw4tzn3/lead/action", "forward_key": "7kq2m9xw4tzn3/lead/action", "detail": {"lead_id": "lead_12"}},
    {"seq": 2, "at": "2026-03-04T13:02:12.809+00:00", "system": "billing", "effect": "charged",
     "key": "7kq2m9xw4tzn3/deposit/action", "forward_key": "7kq2m9xw4tzn3/deposit/action",
     "detail": {"charge_id": "ch_8f2", "amount": 5000}},
]  # fmt: skip
