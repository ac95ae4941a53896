"""Where a run stands, and each of its steps, in words that people see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sagactl.core.records import (
    Cause,
    Decision,
    DecisionKind,
    Direction,
    Failure,
    Operation,
    Resolution,
    RunStatus,
    Verb,
)
from sagactl.core.state import tool_of
from sagactl.core.summary import StepRow, StepStatus, Waiting, step_rows, tally_steps
from tests.core.builders import Plain, Play, saga


def _play(shape: str, *answers: tuple[str, str], data: Any = None, **steps: dict[str, Any]) -> Play:
    play = Play(saga(shape, **steps), data=data)
    play.turn()
    for name, word in answers:
        play.answer(name, word)
    return play


def _undo_denied() -> Play:
    play = _play("a -> b", ("a", "ok"), b={"null_safe": False})
    play.answer("b", "lost")
    play.resolve("b'", Resolution.NOT_DONE)
    return play


def _abandoned() -> Play:
    play = _play("a", ("a", "lost"), a={"null_safe": False})
    play.resolve("a'", Resolution.ABANDON)
    return play


def _skipped_by_hand() -> Play:
    play = _play("p* -> a", ("p", "ok"), ("a", "reject"))
    play.resolve("a", Resolution.SKIP)
    return play


ROWS: dict[str, tuple[Callable[[], Play], dict[str, str]]] = {
    "pending": (lambda: _play("a -> b"), {"a": "running", "b": "pending"}),
    "retrying": (lambda: _play("a", ("a", "retry"), a={"attempts": 2}), {"a": "retrying"}),
    "polling": (lambda: _play("a", ("a", "pending"), a={"schedule": 60_000}), {"a": "running"}),
    "in doubt": (lambda: _play("a", ("a", "lost"), a={"probe": True}), {"a": "in_doubt"}),
    "succeeded": (lambda: _play("a -> b", ("a", "ok"), ("b", "ok")), {"a": "succeeded", "b": "succeeded"}),
    "stuck": (lambda: _play("a", ("a", "lost"), a={"on_unknown": "ask"}), {"a": "stuck"}),
    "compensating": (lambda: _play("a -> b", ("a", "ok"), ("b", "reject")), {"a": "compensating", "b": "failed"}),
    "compensated": (
        lambda: _play("a -> b", ("a", "ok"), ("b", "reject"), ("a'", "ok")),
        {"a": "compensated", "b": "failed"},
    ),
    "an undo that is dead": (
        lambda: _play("a -> b", ("a", "ok"), ("b", "reject"), ("a'", "reject")),
        {"a": "stuck", "b": "failed"},
    ),
    "doubt compensated": (lambda: _play("a", ("a", "lost"), ("a'", "ok")), {"a": "compensated"}),
    "doubt left": (lambda: _play("a", ("a", "lost"), a={"undo": False, "on_unknown": "compensate"}), {"a": "in_doubt"}),
    "doubt denied by a person": (_undo_denied, {"a": "compensating", "b": "failed"}),
    "an undo abandoned": (_abandoned, {"a": "in_doubt"}),
    "skipped": (
        lambda: _play("a -> b", ("b", "ok"), data={"on": False}, a={"when": "${{ input.on }}"}),
        {"a": "skipped", "b": "succeeded"},
    ),
    "skipped by a person": (_skipped_by_hand, {"p": "succeeded", "a": "skipped"}),
    "refused": (
        lambda: _play("a -> b", ("a", "ok"), b={"guard": "${{ input.no }}"}, data={"no": False}),
        {"a": "compensating", "b": "failed"},
    ),
    "never reached": (lambda: _play("a -> b", ("a", "reject")), {"a": "failed", "b": "pending"}),
    "never called though ready": (
        lambda: _play("[a | b]", ("a", "reject"), b={"arguments": "${{ input.x }}"}),
        {"a": "failed", "b": "failed"},
    ),
    "items": (
        lambda: _play("f", ("f[0]", "ok"), data={"xs": [1, 2, 3]}, f={"foreach": "${{ input.xs }}"}),
        {"f[0]": "succeeded", "f[1]": "running", "f[2]": "pending"},
    ),
    "no items": (lambda: _play("f", data={"xs": []}, f={"foreach": "${{ input.xs }}"}), {"f": "succeeded"}),
}


@pytest.mark.parametrize("case", ROWS)
def test_each_situation_of_a_step_has_its_word(case: str) -> None:
    """Words: `pending` to `stuck`, as the contract lists them."""
    reach, expected = ROWS[case]
    play = reach()
    rows = {row.id if row.item is None else f"{row.id}[{row.item}]": row.status for row in _rows(play)}
    assert rows == expected
    assert set(rows.values()) <= set(StepStatus)


def _rows(play: Play) -> list[Any]:
    return list(step_rows(play.saga, play.state))


def test_a_row_tells_attempts_and_errors_of_both_directions() -> None:
    """Words: what an action and its compensation needed and said stand apart."""
    play = _play("a -> b", a={"attempts": 2, "undo_attempts": 3})
    play.run({"a": ["retry", "ok"], "b": ["reject"], "a'": ["retry", "reject"]})
    row = _rows(play)[0]
    assert (row.attempts, row.undo_attempts) == (2, 2)
    assert row.failure is None
    assert row.undo_failure == Failure("reject", "a' reject 2")
    assert row.output == {"id": "a"}


def test_a_run_whose_calls_all_wait_is_waiting_and_says_until_when() -> None:
    """Words: `waiting` means that no call is under way; a rollback that waits is still `rolling_back`."""
    play = _play("[a | b]", ("a", "retry"), a={"attempts": 2, "undo_attempts": 2}, b={"attempts": 2})
    assert play.status() is RunStatus.RUNNING
    play.answer("b", "retry")
    assert play.status() is RunStatus.WAITING
    assert play.summary.waiting_for == Waiting("timer", "a", 1_000)
    play = _play("a -> b", ("a", "ok"), ("b", "reject"), ("a'", "retry"), a={"undo_attempts": 2})
    assert play.status() is RunStatus.ROLLING_BACK
    assert play.summary.waiting_for == Waiting("timer", "compensation of a", 1_000)


def test_a_driver_can_say_what_it_waits_for_until_something_happens() -> None:
    """Words: what only the driver knows (a missing tool, a call that can't be ended) is recorded and shown."""
    play = _play("a")
    failure = Failure("cannot_end", "a has not returned")
    play.put(Decision(0, DecisionKind.WAITING, cause=Cause.CANNOT_END, failure=failure, until_ms=9))
    assert play.status() is RunStatus.WAITING
    assert play.summary.waiting_for == Waiting("cannot_end", "a has not returned", 9)
    play.put(Decision(0, DecisionKind.WAITING))
    assert play.summary.waiting_for == Waiting("person")
    play.answer("a", "ok")
    assert play.status() is RunStatus.SUCCEEDED


def test_a_summary_counts_steps_and_open_letters() -> None:
    """Words: done of all, dead letters open, and whether a person must act."""
    play = _play("p* -> [a | b]", ("p", "ok"), ("a", "reject"), ("b", "ok"))
    summary = play.summary
    assert (summary.steps_done, summary.steps_total, summary.dead_letters) == (2, 3, 1)
    assert (summary.status, summary.cause, summary.direction) == ("stuck", "forward_stuck", Direction.ACTION)
    assert summary.is_at_rest
    play.ask(Verb.RETRY, "a")
    assert not play.summary.is_at_rest


def test_a_rollback_shows_why_the_run_turned_around() -> None:
    """Words: the cause is there as soon as the run stops starting anything new."""
    play = _play("[a | b]", ("a", "reject"))
    assert (play.summary.status, play.summary.cause) == ("running", "step_failed")
    play.answer("b", "ok")
    assert (play.summary.status, play.summary.cause) == ("rolling_back", "step_failed")


def test_steps_can_be_looked_through_in_an_expression() -> None:
    """F3: `steps` is a map of all steps; what has not happened yet is pending with a null output."""
    seen: list[Any] = []

    def look(scope: Any) -> int:
        steps = scope["steps"]
        seen.append((list(steps), len(steps), steps["b"], "z" in steps))
        return 1

    what = saga("a -> b", a={"arguments": {"n": "${{ look() }}"}})
    Play(what, evaluator=Plain({"look()": look})).run()
    assert seen == [(["a", "b"], 2, {"output": None, "status": "pending"}, False)]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["succeeded", "failed", "pending"], "failed"),
        (["compensated", "succeeded"], "succeeded"),
        (["compensated", "failed"], "failed"),
        (["compensated", "compensated"], "compensated"),
        (["skipped"], "skipped"),
        (["stuck", "in_doubt", "failed"], "stuck"),
    ],
)
def test_a_step_is_counted_once_by_its_most_telling_item(items: list[str], expected: str) -> None:
    """Words: the counts of steps add up to the steps, however many items they have."""
    rows = [StepRow("f", index, StepStatus(word), 0, None, None) for index, word in enumerate(items)]
    lone = StepRow("a", None, StepStatus.PENDING, 0, None, None)
    assert tally_steps([*rows, lone]) == {StepStatus(expected): 1, StepStatus.PENDING: 1}


def test_the_count_knows_every_status() -> None:
    """Words: no status of a step is left out of the counts."""
    rows = [StepRow(status, None, status, 0, None, None) for status in StepStatus]
    assert tally_steps(rows) == dict.fromkeys(StepStatus, 1)


def rows_of(play: Play) -> dict[str, StepRow]:
    """Return the rows of a run by step and item."""
    return {row.id if row.item is None else f"{row.id}[{row.item}]": row for row in step_rows(play.saga, play.state)}


def test_a_row_has_what_the_last_call_failed_with_and_who_settled_it() -> None:
    """UX: of the action and of the undo: tries, the failure, and the person's decision."""
    play = Play(saga("a -> b", a={"on_unknown": "ask"}))
    play.run({"a": ["lost"]})
    assert rows_of(play)["a"].failure == Failure("lost", "a lost 1")
    assert (rows_of(play)["a"].settled, rows_of(play)["b"].attempts, rows_of(play)["b"].undo_attempts) == (None, 0, 0)
    play.resolve("a", Resolution.DONE, output={"id": 1})
    play.answer("b", "reject")
    play.answer("a'", "reject")
    row = rows_of(play)["a"]
    assert (row.attempts, row.undo_attempts, row.undo_failure) == (1, 1, Failure("reject", "a' reject 1"))
    assert row.settled is not None
    assert (row.settled.who, row.settled.resolution, row.undo_settled) == ("eva", Resolution.DONE, None)
    play.resolve("a'", Resolution.ABANDON)
    settled = rows_of(play)["a"].undo_settled
    assert settled is not None
    assert settled.resolution is Resolution.ABANDON


def test_a_list_without_items_is_a_row_that_has_its_output() -> None:
    """F9: an empty list is `succeeded` with `[]`, without a call."""
    play = Play(saga("f -> a", f={"foreach": []}))
    play.turn()
    assert rows_of(play)["f"] == StepRow("f", None, StepStatus.SUCCEEDED, 0, [], None)


def test_what_was_never_called_did_not_fail_and_what_was_called_did() -> None:
    """E21: a step that the rollback overtook is pending; one whose call was given up, or that was refused, failed."""
    play = Play(saga("[a | b | c] -> d", a={"schedule": 90_000}), slots=2)
    play.turn()
    play.answer("a", "pending", after_ms=60_000)
    play.answer("b", "reject")
    play.run()
    status = {name: row.status for name, row in rows_of(play).items()}
    assert {name: status[name] for name in "bcd"} == {
        "b": StepStatus.FAILED,
        "c": StepStatus.PENDING if "c" not in play.calls else StepStatus.COMPENSATED,
        "d": StepStatus.PENDING,
    }
    refused = Play(saga("a", a={"arguments": {"x": "${{ input.none }}"}}))
    refused.run()
    assert rows_of(refused)["a"].status is StepStatus.FAILED


def test_an_operation_names_its_tool_where_there_is_one() -> None:
    """A step has a tool for each direction, or none for the way back."""
    made = saga("a -> p*")
    found = [tool_of(made, Operation(step, None, way)) for step in ("a", "p") for way in Direction]
    assert found == [*(each and each.tool for step in made.steps for each in (step.action, step.compensation))]
    assert found[-1] is None
    assert None not in found[:-1]
