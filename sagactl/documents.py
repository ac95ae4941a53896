"""JSON documents that leave by more ways than one: on stdout, and as events. Like all of them they only ever grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, cast

from sagactl.core.canonical import Json
from sagactl.core.limits import SHOWN_MS_MAX
from sagactl.core.records import RECORD_TYPES, NotUndone, Operation, Operator, Record

RECORD_SCHEMA: Final = "sagactl.record/1"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

TYPE_NAMES: Final = {kind: name for name, kind in RECORD_TYPES.items()}
_LIFTED: Final = frozenset({"at_ms", "operation", "step", "item", "attempt"})
"""Fields of records that stand beside the body and not in it."""


def write_time(at_ms: int | None) -> str | None:
    """Return RFC 3339 in UTC with milliseconds, `2026-03-04T13:02:11.204Z`."""
    if at_ms is None:
        return None
    moment = _EPOCH + timedelta(milliseconds=min(max(0, at_ms), SHOWN_MS_MAX))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def operation_in(record: Record) -> Operation | None:
    """Return the operation that *record* speaks of, if any."""
    if isinstance(record, Operator):
        return record.request.operation
    found = getattr(record, "operation", None)
    return found if isinstance(found, Operation) else None


def write_record_at(run_id: str, seq: int, record: Record, hash: str) -> dict[str, Json]:  # noqa: A002 - the member's name
    """Return a record with everything in it, as `-o jsonl` prints it and events carry it."""
    operation = operation_in(record)
    step = getattr(record, "step", None) if operation is None else operation.step
    body = {each.name: getattr(record, each.name) for each in fields(record) if each.name not in _LIFTED}
    return {
        "schema": RECORD_SCHEMA,
        "run_id": run_id,
        "seq": seq,
        "at": write_time(record.at_ms),
        "type": TYPE_NAMES[type(record)],
        "step": step,
        "item": None if operation is None else operation.item,
        "direction": None if operation is None else operation.direction.value,
        "attempt": getattr(record, "attempt", None),
        "body": _write_members(body),
        "hash": hash,
    }


def _write_members(members: Mapping[str, object]) -> dict[str, Json]:
    """Write fields: points in time by name and as text, everything else as it is."""
    written: dict[str, Json] = {}
    for name, value in members.items():
        if name in {"deadline_ms", "due_ms", "until_ms"}:
            written[name.removesuffix("_ms") + "_at"] = write_time(cast("int | None", value))
        else:
            written[name] = _write_value(value)
    return written


def _write_value(value: object) -> Json:
    match value:
        case Operation():
            return write_operation(value)
        case NotUndone():
            return {"step": value.step, "item": value.item, "reason": value.reason}
        case Enum():
            return str(value.value)
        case tuple():
            return [_write_value(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _write_members({each.name: getattr(value, each.name) for each in fields(value)})
    return cast("Json", value)


def write_operation(operation: Operation) -> dict[str, Json]:
    """Return step, item and direction."""
    return {"step": operation.step, "item": operation.item, "direction": operation.direction.value}
