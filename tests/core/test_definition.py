"""E8, E16: a saga's snapshot, and the keys of its operations."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagactl.core.canonical import canonical, parse
from sagactl.core.definition import DEFINITION_SCHEMA, read_definition, write_definition, write_facts
from sagactl.core.keys import RESERVED_IDS, RUN_ALPHABET, RUN_ID, STEP_ID, idempotency_key
from sagactl.core.records import Direction, Operation
from sagactl.core.saga import (
    Approval,
    Call,
    CompensateFailed,
    Jitter,
    OnUnknown,
    Retry,
    Saga,
    Step,
    StepClass,
    ToolFacts,
)
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
    document: Any = write_definition(saga("a", a={"own_secrets": ("KEY",)}))
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


CALL = Call("do.a", parse_template({"x": 1}), Retry(7, 11, 150, 13, Jitter.NONE, ("lost",)), 17, 19, OnUnknown.ASK)
WHOLE = Saga(
    name="whole",
    steps=(
        Step(
            "a", StepClass.COMPENSABLE, CALL, CALL, needs=("b",), when=parse_template("${{ input.x }}"),
            foreach=parse_template([1]), concurrency=3, guard=parse_template(True), description="words", agent="bot",
            approval=Approval(parse_template("${{ input.y }}"), ("ana",), 23), line=29,
            compensate_failed=CompensateFailed.NEVER,
        ),
        Step("b", StepClass.NOT_UNDOABLE, CALL, not_undoable_reason="it has been read"),
    ),
    tools={"do.a": ToolFacts("do.a", "3", "shop", idempotent=False, null_safe=True, late_safe=True, key_retention_ms=31,
                             probe="probe.a", compensation="undo.a", compensation_with={"id": "${{ output.id }}"},
                             arguments_schema={"type": "object"}, output_schema={"type": "array"}, pending_max_ms=37,
                             secrets=("TOOL_KEY",))},
    version="4", description="all of it", input_schema={"type": "object"}, run_key=parse_template("${{ input.k }}"),
    run_timeout_ms=41, settle_timeout_ms=43, compensation_concurrency=2, output=parse_template({"o": 1}),
    secrets=("KEY",), source="sagas/whole.yaml",
)  # fmt: skip
"""A saga in which every field says something."""


def test_a_saga_that_says_everything_reads_back_whole() -> None:
    """E16: each field of the saga, its steps, calls and tools, the place in the file as well."""
    read = read_definition(write_definition(WHOLE))
    assert read == WHOLE
    assert (read.source, [step.line for step in read.steps]) == ("sagas/whole.yaml", [29, None])
    for kind, value in ((Saga, read), (Step, read.steps[0]), (ToolFacts, read.tools["do.a"]), (Call, CALL)):
        unsaid = [each.name for each in fields(kind) if getattr(value, each.name) in (None, (), {}, "")]
        assert unsaid == (["not_undoable_reason"] if kind is Step else []), kind
    assert read.steps[1].not_undoable_reason == "it has been read"


def test_what_tools_came_to_say_later_is_left_out_where_it_says_nothing() -> None:
    """E16: a definition without secrets of tools has the digest that releases gave it that knew none."""
    facts = ToolFacts("do.a")
    assert "secrets" not in write_facts(facts)
    assert write_facts(replace(facts, secrets=("K",)))["secrets"] == ["K"]
    silent = replace(WHOLE, tools={"do.a": facts})
    assert read_definition(write_definition(silent)) == silent


def test_a_snapshot_of_another_schema_is_named() -> None:
    """E16: a newer release's definition is refused by what it calls itself."""
    with pytest.raises(ValueError, match=r"schema 'sagactl.definition/9'; this release reads sagactl.definition/1"):
        read_definition({"schema": "sagactl.definition/9"})
