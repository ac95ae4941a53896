"""E8, E16: a saga's snapshot, and the keys of its operations."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagactl.core.canonical import canonical, parse
from sagactl.core.definition import DEFINITION_SCHEMA, read_definition, write_definition
from sagactl.core.keys import RESERVED_IDS, RUN_ALPHABET, RUN_ID, STEP_ID, idempotency_key
from sagactl.core.records import Direction, Operation
from sagactl.core.saga import Call, Jitter, Retry, Saga, Step, ToolFacts
from sagactl.core.template import parse_template
from tests.core.builders import saga
from tests.core.simulation.generate import generate


@pytest.mark.parametrize("seed", range(60))
def test_a_saga_reads_back_equal_from_its_snapshot(seed: int) -> None:
    """E16: resume uses the snapshot, so nothing of the definition may be lost in it."""
    what = generate(seed).saga
    assert read_definition(write_definition(what)) == what
    stored = parse(canonical(write_definition(what)))
    assert isinstance(stored, dict)
    assert canonical(write_definition(read_definition(stored))) == canonical(write_definition(what))


def test_every_field_of_a_saga_is_in_its_snapshot() -> None:
    """E16: a field that is changed changes the snapshot, whichever it is."""
    what = saga("a", saga_fields={"run_key": parse_template("${{ input.x }}"), "output": parse_template(1)})
    changed: dict[str, Any] = {
        "name": "other",
        "steps": (),
        "tools": {},
        "version": "2",
        "description": "d",
        "input_schema": {"type": "object"},
        "run_key": None,
        "run_timeout_ms": 1,
        "settle_timeout_ms": 2,
        "compensation_concurrency": 3,
        "output": None,
        "secrets": ("S",),
        "source": "f.yaml",
    }
    assert set(changed) == {each.name for each in fields(Saga)}
    for name, value in changed.items():
        assert write_definition(replace(what, **{name: value})) != write_definition(what), name
    for kind in (Step, Call, Retry, ToolFacts):
        assert fields(kind)


def test_every_field_of_steps_calls_and_tools_is_in_the_snapshot() -> None:
    """E16: what a later release adds to these must be written too, or this test says so."""
    document: Any = write_definition(saga("a"))
    assert len(document["steps"][0]) == len(fields(Step))
    assert len(document["steps"][0]["action"]) == len(fields(Call))
    assert set(document["steps"][0]["action"]["retry"]) == {each.name for each in fields(Retry)}
    assert set(document["tools"]["do.a"]) == {each.name for each in fields(ToolFacts)}


def test_a_snapshot_of_a_newer_release_is_refused() -> None:
    """E16: what this release can't read it doesn't guess."""
    document = {**write_definition(saga("a")), "schema": "sagactl.definition/2"}
    with pytest.raises(ValueError, match=re.escape(f"this release reads {DEFINITION_SCHEMA}")):
        read_definition(document)


RUN_IDS = st.text(RUN_ALPHABET, min_size=13, max_size=13)
STEP_IDS = st.from_regex(STEP_ID, fullmatch=True)
OPERATIONS = st.builds(Operation, STEP_IDS, st.none() | st.integers(0, 9_999), st.sampled_from(Direction))


@given(st.tuples(RUN_IDS, OPERATIONS), st.tuples(RUN_IDS, OPERATIONS))
def test_two_operations_never_share_a_key(one: tuple[str, Operation], two: tuple[str, Operation]) -> None:
    """E8, S3: the key is injective in run, step, item and direction."""
    assert (idempotency_key(*one) == idempotency_key(*two)) == (one == two)


@given(RUN_IDS, OPERATIONS)
def test_a_key_tells_its_operation(run_id: str, operation: Operation) -> None:
    """E8: a key can be taken apart again, so it is injective and a person can read it."""
    run, step, *item, direction = idempotency_key(run_id, operation).split("/")
    assert run == run_id
    assert Operation(step, int(item[0]) if item else None, Direction(direction)) == operation


def test_keys_are_the_same_in_every_release() -> None:
    """E8: a run that was begun by an older release goes on under the same keys."""
    action = Operation("charge", None, Direction.ACTION)
    assert idempotency_key("2345678923456", action) == "2345678923456/charge/action"
    assert idempotency_key("2345678923456", action.other) == "2345678923456/charge/compensation"
    assert idempotency_key("r", Operation("vm", 3, Direction.ACTION)) == "r/vm/3/action"


@pytest.mark.parametrize("name", ["", "A", "1a", "a-b", "a/b", "..", "a" * 64, "é", "a b", "a\n", "\u0430"])
def test_a_step_id_is_a_plain_word(name: str) -> None:
    """F1: ids are ASCII, start with a letter, and can't be mistaken for a path."""
    assert STEP_ID.fullmatch(name) is None


def test_no_reserved_word_and_no_run_id_is_ambiguous() -> None:
    """F1: the words of the expression language can't be ids, and run ids hold no slash."""
    assert {"true", "in", "steps", "secrets", "item"} <= RESERVED_IDS
    assert RUN_ID.fullmatch("a/b/action/xx") is None


def test_jitter_is_read_back_as_what_it_was() -> None:
    """E5: a snapshot keeps how delays are drawn."""
    what = saga("a", a={"jitter": Jitter.FULL, "non_retryable": ("x", "y")})
    assert read_definition(write_definition(what)).by_id["a"].action.retry == what.by_id["a"].action.retry
