"""Records go into the log and come back as they were, and nothing else is read."""

from __future__ import annotations

import json
import time
from dataclasses import MISSING, fields
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagactl.core.canonical import Json, canonical
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
from sagactl.errors import DamagedLogError
from sagactl.log.chain import chain_hash, genesis_hash
from sagactl.log.codec import (
    Encoded,
    decode,
    decode_failure,
    decode_request,
    encode,
    encode_failure,
    encode_request,
)
from tests.log.samples import STEP, intent, outcome

texts = st.text(max_size=20)
numbers = st.integers(min_value=0, max_value=2**53)
fractions = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**6), max_value=10**6, places=3)
leaves = st.none() | st.booleans() | st.integers(-(10**40), 10**40) | fractions | texts
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)


def words(kind: type[StrEnum]) -> st.SearchStrategy[Any]:
    """Draw one of some words."""
    return st.sampled_from(list(kind))


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw a value or None."""
    return st.none() | strategy


operations = st.builds(Operation, texts, maybe(numbers), words(Direction))
failures = st.builds(Failure, texts, texts)
requests = st.builds(
    Request,
    texts,
    words(Verb),
    texts,
    maybe(texts),
    maybe(operations),
    maybe(words(Resolution)),
    values,
    st.booleans(),
    maybe(texts),
    maybe(texts),
)
RECORDS: dict[type, st.SearchStrategy[Any]] = {
    RunCreated: st.builds(
        RunCreated,
        numbers,
        texts,
        texts,
        texts,
        values,
        texts,
        run_key=maybe(texts),
        deadline_ms=maybe(numbers),
        forked_from=maybe(texts),
        traceparent=maybe(texts),
        plan=maybe(texts),
        project=maybe(texts),
    ),
    DriverClaimed: st.builds(
        DriverClaimed, numbers, numbers, st.builds(Holder, texts, numbers, texts, texts), st.booleans()
    ),
    StepDecided: st.builds(
        StepDecided, numbers, texts, st.booleans(), items=maybe(st.lists(values, max_size=3).map(tuple))
    ),
    Intent: st.builds(Intent, numbers, operations, numbers, numbers, numbers, texts, texts, numbers, arguments=values),
    Outcome: st.builds(
        Outcome,
        numbers,
        operations,
        numbers,
        words(OutcomeKind),
        output=values,
        failure=maybe(failures),
        after_ms=maybe(numbers),
        token=values,
        raw=values,
    ),
    Probe: st.builds(
        Probe,
        numbers,
        operations,
        numbers,
        numbers,
        texts,
        numbers,
        answer=maybe(words(ProbeAnswer)),
        output=values,
        failure=maybe(failures),
    ),
    Timer: st.builds(Timer, numbers, operations, words(TimerKind), numbers),
    Decision: st.builds(
        Decision,
        numbers,
        words(DecisionKind),
        cause=maybe(words(Cause)),
        operation=maybe(operations),
        step=maybe(texts),
        failure=maybe(failures),
        plan=st.lists(operations, max_size=3).map(tuple),
        until_ms=maybe(numbers),
        changes=st.lists(st.builds(ToolChange, texts, texts, values, values, st.booleans()), max_size=2).map(tuple),
    ),
    Operator: st.builds(Operator, numbers, requests, words(Disposition), detail=maybe(texts)),
    Ended: st.builds(
        Ended,
        numbers,
        words(RunStatus),
        cause=maybe(words(Cause)),
        output=values,
        output_failure=maybe(failures),
        not_undone=st.lists(st.builds(NotUndone, texts, maybe(numbers), texts), max_size=2).map(tuple),
    ),
}


@given(st.one_of(*RECORDS.values()))
def test_every_record_comes_back_as_it_was(record: Record) -> None:
    """E20: what is recorded is read back equal, of each kind and with any values, and spelled the same again."""
    encoded = encode(record)
    again = decode(encoded)
    assert again == record
    assert encode(again) == encoded
    assert encoded.body == canonical(json.loads(encoded.body, parse_float=Decimal))


def test_every_kind_of_record_is_tried() -> None:
    """The strategies above leave no kind of record out."""
    assert set(RECORDS) == set(RECORD_TYPES.values())


@given(requests, failures)
def test_requests_and_failures_come_back(request_: Request, failure: Failure) -> None:
    """E22: an operator's request is read back as it was asked."""
    assert decode_request(encode_request(request_)) == request_
    assert decode_failure(encode_failure(failure)) == failure
    assert decode_failure(encode_failure(None)) is None


def test_types_are_kept() -> None:
    """E20: true stays true and 1 stays 1; a decimal keeps its zeros; tuples are tuples again."""
    output: Json = {"flag": True, "list": [False, 0, ""], "one": 1, "rate": Decimal("1.10")}
    again = decode(encode(outcome(output=output)))
    assert isinstance(again, Outcome)
    assert repr(again.output) == repr(output)
    decided = decode(encode(StepDecided(1, "vm", runs=True, items=(1, "a"))))
    assert isinstance(decided, StepDecided)
    assert decided.items == (1, "a")


def test_defaults_take_no_room() -> None:
    """A record's body holds what differs from the defaults, and what stands in a column only there."""
    encoded = encode(Outcome(1, Operation("a", 2, Direction.ACTION), 3, OutcomeKind.PENDING))
    assert encoded == Encoded(1, "outcome", "a", 2, 3, '{"direction":"action","kind":"pending","v":1}')
    falsies: list[Json] = [0, False, "", [], {}]
    for falsy in falsies:
        assert '"output":' in encode(outcome(output=falsy)).body


def test_a_text_with_half_a_character_is_not_lost() -> None:
    """A message that some tool wrote with half a character is recorded with a question mark in its place."""
    again = decode(encode(Outcome(1, STEP, 1, OutcomeKind.UNKNOWN, failure=Failure("x", "a\udcffb"))))
    assert isinstance(again, Outcome)
    assert again.failure == Failure("x", "a?b")


def _changed(**changes: Any) -> Encoded:
    """Return an intent with some of its body or columns changed; None removes a field."""
    encoded = encode(intent())
    body = json.loads(encoded.body)
    columns = {name: changes.pop(name) for name in ("type", "step", "item", "attempt", "at_ms") if name in changes}
    for name, value in changes.items():
        body[name] = value
        if value is None:
            del body[name]
    return encoded._replace(body=json.dumps(body), **columns)


@pytest.mark.parametrize(
    "encoded",
    [
        _changed(type="nonsense"),
        _changed(type=None),
        _changed(v=2),
        _changed(v=True),
        _changed(v="1"),
        _changed(v=None),
        _changed(unheard_of=1),
        _changed(fence=None),
        _changed(fence="1"),
        _changed(fence=True),
        _changed(fence=1.0),
        _changed(tool=7),
        _changed(direction="sideways"),
        _changed(direction=None),
        _changed(direction=["action"]),
        _changed(step=None),
        _changed(step=5),
        _changed(item="3"),
        _changed(item=True),
        _changed(attempt=None),
        _changed(attempt="1"),
        _changed(at_ms="1"),
        _changed(at_ms=None),
        _changed()._replace(body=""),
        _changed()._replace(body="[]"),
        _changed()._replace(body="{"),
        _changed()._replace(body="[" * 100_000),
        _changed()._replace(body=None),  # type: ignore[arg-type]
        _changed()._replace(body=b"\xff"),  # type: ignore[arg-type]
        encode(DriverClaimed(1, 1, Holder("h", 1, "", ""), calls_ended=True))._replace(step="a"),
        encode(DriverClaimed(1, 1, Holder("h", 1, "", ""), calls_ended=True))._replace(attempt=1),
        encode(Timer(1, STEP, TimerKind.RETRY, 2))._replace(attempt=1),
        encode(StepDecided(1, "a", runs=True))._replace(item=1),
        encode(Decision(1, DecisionKind.ALERT))._replace(item=1),
        encode(Decision(1, DecisionKind.ALERT))._replace(step=7),  # type: ignore[arg-type]
        encode(Ended(1, RunStatus.SUCCEEDED))._replace(body='{"not_undone":[{"step":"a"}],"status":"stuck","v":1}'),
        encode(Ended(1, RunStatus.SUCCEEDED))._replace(body='{"not_undone":{},"status":"stuck","v":1}'),
        encode(Decision(1, DecisionKind.ROLLBACK))._replace(body='{"kind":"rollback","plan":[["a",null]],"v":1}'),
        encode(Decision(1, DecisionKind.REFUSED, step="a"))._replace(body='{"kind":"refused","step":"b","v":1}'),
        encode(Operator(1, Request("q", Verb.CANCEL, "me"), Disposition.VOID))._replace(
            body='{"disposition":"void","request":[],"v":1}'
        ),
    ],
)
def test_anything_else_is_damage(encoded: Encoded) -> None:
    """H41: unknown versions, types, fields and words, missing and mistyped values are refused, never guessed at."""
    with pytest.raises(DamagedLogError):
        decode(encoded)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v":1}', '{"v":1,"id":"q","verb":"dance","who":"me"}'])
def test_a_damaged_request_is_damage(text: str) -> None:
    """A request that can't be read stops who would answer it."""
    with pytest.raises(DamagedLogError):
        decode_request(text)


@pytest.mark.parametrize("text", ["", "[]", '{"type":"x"}', '{"type":"x","message":1}'])
def test_a_damaged_failure_is_damage(text: str) -> None:
    """A failure in a row that can't be read is damage, not an empty failure."""
    with pytest.raises(DamagedLogError):
        decode_failure(text)


def test_new_fields_need_a_default() -> None:
    """Records of older releases stay readable: only the fields of the first release may be without a default."""
    required = {
        RunCreated: 6,
        DriverClaimed: 4,
        StepDecided: 3,
        Intent: 8,
        Outcome: 4,
        Probe: 6,
        Timer: 4,
        Decision: 2,
        Operator: 3,
        Ended: 2,
    }
    for kind, count in required.items():
        assert sum(field.default is MISSING for field in fields(kind)) == count, kind


GOLDEN = [
    (
        RunCreated(7, "r", "s", "d", {"b": 1, "a": [Decimal("1.0")]}, "me", run_key="k"),
        Encoded(
            7,
            "run_created",
            None,
            None,
            None,
            '{"definition":"d","input":{"a":[1.0],"b":1},"requested_by":"me","run_id":"r","run_key":"k","saga":"s","v":1}',
        ),
    ),
    (
        Decision(8, DecisionKind.ROLLBACK, cause=Cause.STEP_FAILED, plan=(Operation("a", 1, Direction.ACTION),)),
        Encoded(
            8,
            "decision",
            None,
            None,
            None,
            '{"cause":"step_failed","kind":"rollback","plan":[["a",1,"action"]],"v":1}',
        ),
    ),
    (
        Decision(9, DecisionKind.REFUSED, step="a", operation=Operation("b", None, Direction.COMPENSATION)),
        Encoded(9, "decision", "b", None, None, '{"direction":"compensation","kind":"refused","step":"a","v":1}'),
    ),
]


@pytest.mark.parametrize(("record", "encoded"), GOLDEN)
def test_the_spelling_is_for_ever(record: Record, encoded: Encoded) -> None:
    """L4: what this release writes, every later one must read; so its spelling is written down here."""
    assert encode(record) == encoded
    assert decode(encoded) == record


def test_the_hash_is_for_ever() -> None:
    """L1: the hash of a record is the same in every release and on every machine."""
    genesis = genesis_hash("run1")
    assert genesis == "c3c94730c5609ab8cc60f9f461545356c2288fdb24cd49238a79f80c7e25b592"
    assert chain_hash(genesis, "run1", 1, 7, "ended", None, None, None, "{}") == (
        "0c72f3a59d8c39a64c26847af78871300baeca7958bf7ce68fa4fb5c86fb20a8"
    )


parts = st.tuples(texts, texts, numbers, numbers, texts, maybe(texts), maybe(numbers), maybe(numbers), texts)


@given(parts, parts)
def test_different_records_have_different_hashes(one: Any, other: Any) -> None:
    """L1: what is hashed is injective: moving a character from one part to another changes the hash."""
    assert (chain_hash(*one) == chain_hash(*other)) is (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("h", "r", 1, 2, "t", None, None, None, "b"), ("h", "r", 1, 2, "t", "-", None, None, "b")),
        (("h", "r", 1, 2, "t", "a;1", 2, None, "b"), ("h", "r", 1, 2, "t", "a", 1, 2, "b")),
        (("h", "r1", 1, 2, "t", None, None, None, "b"), ("h", "r", 11, 2, "t", None, None, None, "b")),
        (("h", "r", 1, 2, "t", None, 3, None, "b"), ("h", "r", 1, 2, "t", None, None, 3, "b")),
        (("h", "r", 1, 2, "t", "", None, None, "b"), ("h", "r", 1, 2, "t", None, None, None, "b")),
    ],
)
def test_neighbours_do_not_run_together(one: Any, other: Any) -> None:
    """L1: an absent part differs from every present one, and no two parts can be read as two others."""
    assert chain_hash(*one) != chain_hash(*other)


def test_every_run_has_its_own_beginning() -> None:
    """L1: the chain of a run begins with its id, so no record can be moved to another run."""
    assert genesis_hash("run1") != genesis_hash("run2")


def test_reading_is_fast() -> None:
    """Resuming must not wait for its own log: 20,000 records are decoded in much less than a second."""
    encoded = [encode(outcome(output={"id": "ch_17", "amount": 1200})), encode(intent(arguments={"a": 1}))] * 10_000
    best = min(_seconds(encoded) for _ in range(3))
    assert best < 1.0


def _seconds(encoded: list[Encoded]) -> float:
    started = time.process_time()
    for each in encoded:
        decode(each)
    return time.process_time() - started
