"""Records as the log stores them, and back: a type word, three columns, and a body of canonical JSON.

The layout
----------
A record becomes `Encoded`: its time, its type word (`RECORD_TYPES`), step, item and attempt where it has them - the
columns that people and queries look for - and all the rest in the body, under the names of the dataclass fields.
What stands in a column is not repeated in the body. A field that has its default is left out, so records stay small
and a field that a later release adds, with a default, changes no old record. `v` is the version of the layout.

Reading is strict: an unknown version, type, field or word, a missing field, a value of another type - all are
DamagedLogError. A log that can't be understood completely must not be acted on: it might hold the one record that
says what was already done.

How it stays fast
-----------------
The forms of each field (`forms`) are put into tables once, when the module is imported; nothing is looked up by
reflection for a record.

Half characters (lone surrogates, as broken file names have them) have no UTF-8 form. In a value they are refused, as
everywhere; in a text of ours, like the message of an error that some tool raised, each is written as `?`: a record
that must be written now is not lost over the wording of a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from json import JSONDecoder
from typing import Any, Final, NamedTuple

from sagactl.core.canonical import canonical
from sagactl.core.records import (
    RECORD_TYPES,
    Cause,
    Decision,
    DecisionKind,
    Direction,
    Disposition,
    DriverClaimed,
    Ended,
    Failure,
    Holder,
    Intent,
    NotUndone,
    Operation,
    Operator,
    Outcome,
    OutcomeKind,
    Probe,
    ProbeAnswer,
    Record,
    Request,
    Resolution,
    RunCreated,
    RunStatus,
    StepDecided,
    Timer,
    TimerKind,
    ToolChange,
    Verb,
)
from sagactl.dataclass import dataclass
from sagactl.errors import DamagedLogError
from sagactl.log.forms import (
    ANY_JSON,
    Fields,
    Form,
    MalformedError,
    list_of,
    optional,
    plain,
    tuple_of,
    word,
)

BODY_VERSION: Final = 1
"""The layout of bodies; a change of layout, unlike a new field with a default, takes a new number."""


class Encoded(NamedTuple):
    """A record as columns."""

    at_ms: int
    type: str
    step: str | None
    item: int | None
    attempt: int | None
    body: str


_TEXT: Final = plain(str)
_INTEGER: Final = plain(int)
_FLAG: Final = plain(bool)
_JSON: Final = ANY_JSON
_DIRECTION: Final = word(Direction)
_OPERATION: Final = tuple_of(Operation, _TEXT, optional(_INTEGER), _DIRECTION)


def _nested(kind: type, forms: Mapping[str, Form]) -> Form:
    table = Fields(kind, forms)
    return Form(table.write, table.read)


_FAILURE: Final = _nested(Failure, {"type": _TEXT, "message": _TEXT})
_HOLDER: Final = _nested(Holder, {"host": _TEXT, "pid": _INTEGER, "started": _TEXT, "boot_id": _TEXT})
_NOT_UNDONE: Final = _nested(NotUndone, {"step": _TEXT, "item": optional(_INTEGER), "reason": _TEXT})
_TOOL_CHANGE: Final = _nested(
    ToolChange, {"fact": _TEXT, "path": _TEXT, "before": _JSON, "after": _JSON, "breaks": _FLAG}
)
_REQUEST: Final = _nested(
    Request,
    {
        "id": _TEXT,
        "verb": word(Verb),
        "who": _TEXT,
        "reason": _TEXT,
        "operation": _OPERATION,
        "resolution": word(Resolution),
        "output": _JSON,
        "past_pivot": _FLAG,
        "digest": _TEXT,
        "replaces": _TEXT,
    },
)


class _Columns(StrEnum):
    """What a type of record keeps in the columns step, item and attempt."""

    NOTHING = "nothing"
    STEP = "step"
    OPERATION = "operation"
    OPERATION_OR_STEP = "operation_or_step"
    CALL = "call"


_AT: Final = frozenset({"at_ms"})
_IN_COLUMNS: Final = {
    _Columns.NOTHING: _AT,
    _Columns.STEP: _AT | {"step"},
    _Columns.OPERATION: _AT | {"operation"},
    _Columns.OPERATION_OR_STEP: _AT | {"operation"},
    _Columns.CALL: _AT | {"operation", "attempt"},
}


@dataclass(frozen=True, slots=True)
class _Layout:
    word: str
    columns: _Columns
    table: Fields


_WORDS: Final = {kind: name for name, kind in RECORD_TYPES.items()}


def _layout(kind: type, columns: _Columns, forms: Mapping[str, Form]) -> _Layout:
    return _Layout(_WORDS[kind], columns, Fields(kind, forms, _IN_COLUMNS[columns]))


_ALL: Final = (
    _layout(
        RunCreated,
        _Columns.NOTHING,
        {
            "run_id": _TEXT,
            "saga": _TEXT,
            "definition": _TEXT,
            "input": _JSON,
            "requested_by": _TEXT,
            "run_key": _TEXT,
            "deadline_ms": _INTEGER,
            "forked_from": _TEXT,
            "plan": _TEXT,
            "project": _TEXT,
            "traceparent": _TEXT,
        },
    ),
    _layout(DriverClaimed, _Columns.NOTHING, {"fence": _INTEGER, "holder": _HOLDER, "calls_ended": _FLAG}),
    _layout(
        StepDecided,
        _Columns.STEP,
        {"runs": _FLAG, "items": list_of(_JSON), "approval": _TEXT, "until_ms": _INTEGER, "arguments": list_of(_JSON)},
    ),
    _layout(
        Intent,
        _Columns.CALL,
        {
            "asking": _INTEGER,
            "fence": _INTEGER,
            "tool": _TEXT,
            "key": _TEXT,
            "deadline_ms": _INTEGER,
            "arguments": _JSON,
        },
    ),
    _layout(
        Outcome,
        _Columns.CALL,
        {
            "kind": word(OutcomeKind),
            "output": _JSON,
            "failure": _FAILURE,
            "after_ms": _INTEGER,
            "token": _JSON,
            "raw": _JSON,
        },
    ),
    _layout(
        Probe,
        _Columns.OPERATION,
        {
            "number": _INTEGER,
            "fence": _INTEGER,
            "tool": _TEXT,
            "deadline_ms": _INTEGER,
            "answer": word(ProbeAnswer),
            "output": _JSON,
            "failure": _FAILURE,
        },
    ),
    _layout(Timer, _Columns.OPERATION, {"kind": word(TimerKind), "due_ms": _INTEGER}),
    _layout(
        Decision,
        _Columns.OPERATION_OR_STEP,
        {
            "kind": word(DecisionKind),
            "cause": word(Cause),
            "step": _TEXT,
            "failure": _FAILURE,
            "plan": list_of(_OPERATION),
            "until_ms": _INTEGER,
            "changes": list_of(_TOOL_CHANGE),
        },
    ),
    _layout(
        Operator,
        _Columns.NOTHING,
        {"request": _REQUEST, "disposition": word(Disposition), "detail": _TEXT},
    ),
    _layout(
        Ended,
        _Columns.NOTHING,
        {
            "status": word(RunStatus),
            "cause": word(Cause),
            "output": _JSON,
            "output_failure": _FAILURE,
            "not_undone": list_of(_NOT_UNDONE),
        },
    ),
)
_BY_KIND: Final = {layout.table.kind: layout for layout in _ALL}
_BY_WORD: Final = {layout.word: layout for layout in _ALL}
assert _BY_WORD.keys() == RECORD_TYPES.keys(), "every type of record has a layout"

_parse = JSONDecoder(parse_float=Decimal).decode


def encode(record: Record) -> Encoded:
    """Return *record* as columns; raises NotJsonError where a value in it has no JSON form."""
    layout = _BY_KIND[type(record)]
    body = layout.table.write(record)
    body["v"] = BODY_VERSION
    step = item = attempt = None
    match record:
        case StepDecided():
            step = record.step
        case Intent() | Outcome():
            attempt = record.attempt
        case _:
            pass
    operation: Operation | None = getattr(record, "operation", None)
    if operation is not None:
        step, item = operation.step, operation.item
        body["direction"] = operation.direction.value
    elif isinstance(record, Decision):
        step = body.pop("step", None)
    return Encoded(record.at_ms, layout.word, step, item, attempt, canonical(body))


def decode(encoded: Encoded) -> Record:
    """Build the record; raises DamagedLogError for anything that `encode` would not have written."""
    at_ms, type_word, step, item, attempt, text = encoded
    try:
        layout = _find_layout(type_word)
        body = _read_body(text)
        given = _read_columns(layout.columns, step, item, attempt, body)
        given["at_ms"] = _INTEGER.read(at_ms)
        record: Record = layout.table.read(body, given)
    except (MalformedError, RecursionError) as error:
        hint = "a newer sagactl may have written it; `sagactl verify` tells whether the log was changed"
        raise DamagedLogError(f"a record can't be read: {error}", hint=hint) from None
    return record


def _find_layout(type_word: Any) -> _Layout:
    layout = _BY_WORD.get(type_word)
    if layout is None:
        raise MalformedError(f"unknown type of record {type_word!r}")
    return layout


def _read_body(text: Any) -> dict[str, Any]:
    try:
        body = _parse(text)
    except (ValueError, TypeError) as error:
        raise MalformedError(f"its body is no JSON: {error}") from None
    if type(body) is not dict:
        raise MalformedError("its body is no map")
    version = body.pop("v", None)
    if type(version) is not int or version != BODY_VERSION:
        raise MalformedError(f"its layout is version {version!r}; this release reads {BODY_VERSION}")
    return body


def _read_columns(columns: _Columns, step: Any, item: Any, attempt: Any, body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that stand in columns; what must be empty is checked to be."""
    if columns is _Columns.CALL:
        if type(attempt) is not int:
            raise MalformedError(f"{attempt!r} is no attempt")
        return {"operation": _read_operation(step, item, body), "attempt": attempt}
    if attempt is not None:
        raise MalformedError("an attempt where none belongs")
    if columns is _Columns.OPERATION or (columns is _Columns.OPERATION_OR_STEP and "direction" in body):
        return {"operation": _read_operation(step, item, body)}
    if item is not None:
        raise MalformedError("an item where none belongs")
    if columns is _Columns.STEP:
        return {"step": _TEXT.read(step)}
    if columns is _Columns.OPERATION_OR_STEP:
        if step is None:
            return {}
        if "step" in body:
            raise MalformedError("the step is given twice")
        return {"step": _TEXT.read(step)}
    if step is not None:
        raise MalformedError("a step where none belongs")
    return {}


def _read_operation(step: Any, item: Any, body: dict[str, Any]) -> Operation:
    if type(step) is not str or (item is not None and type(item) is not int):
        raise MalformedError(f"{step!r} and {item!r} are no step and item")
    return Operation(step, item, _DIRECTION.read(body.pop("direction", None)))


def encode_request(request: Request) -> str:
    """Return an operator's request as text."""
    return canonical({**_REQUEST.write(request), "v": BODY_VERSION})


def decode_request(text: str) -> Request:
    """Build the request; raises DamagedLogError."""
    try:
        request: Request = _REQUEST.read(_read_body(text))
    except MalformedError as error:
        raise DamagedLogError(f"a request can't be read: {error}", hint="sagactl verify") from None
    return request


def encode_failure(failure: Failure | None) -> str | None:
    """Return a failure as text."""
    return None if failure is None else canonical(_FAILURE.write(failure))


def decode_failure(text: str | None) -> Failure | None:
    """Build the failure; raises DamagedLogError."""
    if text is None:
        return None
    try:
        failure: Failure = _FAILURE.read(_parse(text))
    except (MalformedError, ValueError, TypeError) as error:
        raise DamagedLogError(f"a failure can't be read: {error}", hint="sagactl verify") from None
    return failure
