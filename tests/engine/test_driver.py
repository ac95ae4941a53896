"""The driver loop: what it commits, what it calls, and when it lets go."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from sagactl.core.alerting import Reason
from sagactl.core.answer import Answer
from sagactl.core.records import (
    Cause,
    Decision,
    DecisionKind,
    DriverClaimed,
    Intent,
    Outcome,
    OutcomeKind,
    Request,
    RunStatus,
    Verb,
)
from sagactl.core.saga import Call, OnUnknown, Retry, Step, StepClass
from sagactl.core.summary import Waiting
from sagactl.core.template import parse_template
from sagactl.engine.ending import Why
from sagactl.engine.settings import Committed
from sagactl.errors import BusyError, StorageError
from sagactl.log.base import Batch
from sagactl.log.memory import MemoryLog
from sagactl.tools.base import Invocation
from tests.engine.fakes import (
    DONE,
    FAST,
    HOLDER,
    REJECTED,
    UNAVAILABLE,
    UNKNOWN,
    FakeToolbox,
    WatchedLog,
    after,
    make_driver,
    make_new_run,
    make_saga,
    make_step,
)


def _outlast(invocation: Invocation) -> Answer:
    """Go on until told to end, and a little longer."""
    invocation.cancelled.wait(60)
    time.sleep(0.05)
    return DONE


def _make_pivot(step_id: str, needs: tuple[str, ...]) -> Step:
    return replace(make_step(step_id, needs, tool="pivot"), klass=StepClass.PIVOT, compensation=None)


def _chain(length: int) -> tuple[Step, ...]:
    return tuple(make_step(f"s{n}", (f"s{n - 1}",) if n else ()) for n in range(length))


def test_each_outcome_shares_a_commit_with_the_intents_that_follow() -> None:
    """E2: a chain of N steps costs N+1 commits, the first an intent, the last an outcome with the end."""
    saga = make_saga(*_chain(10))
    log = WatchedLog(MemoryLog())
    toolbox = FakeToolbox({"do": lambda _: DONE})
    driver = make_driver(log, saga, toolbox)
    driver.create(make_new_run(saga), saga)
    assert driver.drive()["run1"].summary.status is RunStatus.SUCCEEDED
    assert len(log.commits) == 11
    assert [type(record) for record in log.commits[0]] == [Intent]
    assert all([type(record) for record in commit] == [Outcome, Intent] for commit in log.commits[1:-1])


def test_no_call_begins_before_its_intent_is_in_the_log() -> None:
    """E1: when a tool is entered, the log already holds its intent."""
    inner = MemoryLog()
    seen: list[bool] = []

    def look(invocation: Invocation) -> Answer:
        records = [stored.record for stored in inner.read("run1")]
        seen.append(any(isinstance(r, Intent) and r.operation == invocation.operation for r in records))
        return DONE

    saga = make_saga(*_chain(3))
    driver = make_driver(inner, saga, FakeToolbox({"do": look}))
    driver.create(make_new_run(saga), saga)
    driver.drive()
    assert seen == [True, True, True]


def test_many_runs_share_commits() -> None:
    """E2: what has come in from all runs since the last commit goes into one."""
    saga = make_saga(*_chain(5))
    log = WatchedLog(MemoryLog())
    driver = make_driver(log, saga, FakeToolbox({"do": lambda _: DONE}))
    for number in range(40):
        driver.create(make_new_run(saga, f"run{number}"), saga)
    endings = driver.drive()
    assert {ending.summary.status for ending in endings.values()} == {RunStatus.SUCCEEDED}
    assert len(log.commits) < 40 * 6


def test_a_failed_step_rolls_back_the_ones_before_in_reverse() -> None:
    """E11: along a chain the undo goes in reverse order, and the clean failure itself isn't undone (E7)."""
    saga = make_saga(make_step("a"), make_step("b", ("a",)), make_step("c", ("b",), tool="refuse"))
    toolbox = FakeToolbox({"do": lambda _: DONE, "undo": lambda _: DONE, "refuse": lambda _: REJECTED})
    driver = make_driver(MemoryLog(), saga, toolbox)
    driver.create(make_new_run(saga), saga)
    ending = driver.drive()["run1"]
    assert ending.summary.status is RunStatus.ROLLED_BACK
    assert toolbox.begun() == ["a/action", "b/action", "c/action", "b/compensation", "a/compensation"]


def test_a_call_past_its_deadline_is_unknown_and_ended_before_the_next_try() -> None:
    """E14: the next attempt begins only after the late call has returned; calls never overlap."""
    saga = make_saga(make_step("a", tool="slow", start_to_close_ms=100, retry=FAST))
    toolbox = FakeToolbox({"slow": _outlast, "undo": lambda _: DONE})
    driver = make_driver(MemoryLog(), saga, toolbox)
    driver.create(make_new_run(saga), saga)
    ending = driver.drive()["run1"]
    assert ending.summary.failure is not None
    assert ending.summary.failure.type == "timeout"
    marks = [what for what, i in toolbox.calls if i.operation.direction == "action"]
    assert marks == ["begin", "end"] * 3


def test_a_success_after_the_deadline_is_kept_as_evidence_only() -> None:
    """E3: a reply that comes too late leaves the outcome unknown, with the reply as `raw`."""
    saga = make_saga(make_step("a", tool="slow", start_to_close_ms=50, retry=Retry(1, 1, 100, 1)))
    toolbox = FakeToolbox({"slow": _outlast, "undo": lambda _: DONE})
    log = MemoryLog()
    driver = make_driver(log, saga, toolbox)
    driver.create(make_new_run(saga), saga)
    driver.drive()
    outcome = next(stored.record for stored in log.read("run1") if isinstance(stored.record, Outcome))
    assert (outcome.kind, outcome.raw) == (OutcomeKind.UNKNOWN, {})


def test_an_async_call_is_cancelled_at_its_deadline() -> None:
    """E14: an async tool's task is cancelled, and has ended before anything else of the step starts."""
    saga = make_saga(make_step("a", tool="wait", start_to_close_ms=100, retry=Retry(1, 1, 100, 1)))
    toolbox = FakeToolbox({"undo": lambda _: DONE}, frozenset({"wait"}))
    driver = make_driver(MemoryLog(), saga, toolbox)
    driver.create(make_new_run(saga), saga)
    assert driver.drive()["run1"].summary.status is RunStatus.ROLLED_BACK


def test_a_call_that_cannot_be_ended_makes_the_run_wait_for_it() -> None:
    """E14: past the grace the run is waiting, cause cannot_end, until the call has returned."""
    release = threading.Event()
    saga = make_saga(make_step("a", tool="deaf", start_to_close_ms=50, retry=Retry(1, 1, 100, 1)))
    toolbox = FakeToolbox({"deaf": after(lambda: release.wait(60)), "undo": lambda _: DONE})
    log = MemoryLog()
    driver = make_driver(log, saga, toolbox, grace_ms=50)

    def listen(committed: Committed) -> None:
        waits = [r for r in committed.records if isinstance(r, Decision) and r.kind is DecisionKind.WAITING]
        if waits:
            assert waits[0].cause is Cause.CANNOT_END
            assert log.row("run1").status is RunStatus.WAITING
            release.set()

    driver.subscribe(listen)
    driver.create(make_new_run(saga), saga)
    assert driver.drive()["run1"].summary.status is RunStatus.ROLLED_BACK
    assert release.is_set()
    assert [(each.reason, each.step, each.is_resolution) for each in log.outbox.messages()] == [
        (Reason.CANNOT_END, "a", False),
        (Reason.CANNOT_END, "a", True),
    ]
    assert log.verify().findings == ()


def test_a_retry_that_waits_holds_no_slot() -> None:
    """E5: with one slot, other steps run while one waits for its next try (scenario B43)."""
    first = iter([UNAVAILABLE, DONE])
    saga = make_saga(make_step("a", tool="moody", retry=Retry(2, 2_000, 100, 2_000)), make_step("b"), make_step("c"))
    toolbox = FakeToolbox({"moody": lambda _: next(first), "do": lambda _: DONE})
    driver = make_driver(MemoryLog(), saga, toolbox, calls_max=1)
    driver.create(make_new_run(saga), saga)
    assert driver.drive()["run1"].summary.status is RunStatus.SUCCEEDED
    assert toolbox.begun() == ["a/action", "b/action", "c/action", "a/action"]


def test_calls_at_once_never_exceed_the_slots() -> None:
    """The driver makes at most `calls_max` calls at once, over all its runs."""
    lock = threading.Lock()
    now, most = 0, 0

    def count(_: Invocation) -> Answer:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1
        return DONE

    saga = make_saga(*(make_step(f"s{n}") for n in range(6)))
    driver = make_driver(MemoryLog(), saga, FakeToolbox({"do": count}), calls_max=3)
    for number in range(5):
        driver.create(make_new_run(saga, f"run{number}"), saga)
    driver.drive()
    assert most == 3


def test_a_missing_tool_makes_the_run_wait_and_others_go_on() -> None:
    """E16: a run whose tool is gone waits for it, is let go, and goes on when it is back."""
    saga = make_saga(make_step("a"), make_step("b", ("a",), tool="gone"))
    other = make_saga(make_step("a"))
    log = MemoryLog()
    toolbox = FakeToolbox({"do": lambda _: DONE, "gone": lambda _: DONE})
    driver = make_driver(log, saga, toolbox)
    facts = toolbox.known.pop("gone")
    driver.create(make_new_run(saga), saga)
    driver.create(make_new_run(other, "run2"), other)
    endings = driver.drive()
    assert (endings["run1"].why, endings["run1"].detail) == (Why.MISSING_TOOL, "gone")
    assert endings["run2"].summary.status is RunStatus.SUCCEEDED
    assert log.row("run1").status is RunStatus.WAITING
    again = make_driver(log, saga, toolbox)
    toolbox.known["gone"] = facts
    again.adopt("run1")
    assert again.drive()["run1"].summary.status is RunStatus.SUCCEEDED


def test_a_missing_secret_makes_the_run_wait_without_an_intent_and_others_go_on() -> None:
    """E19: where a secret can't be resolved there is no intent; the run says which and why, and goes on when it can."""
    first, second = make_step("a"), make_step("b", ("a",))
    keyed = replace(second, action=replace(second.action, arguments=parse_template({"key": "${{ secrets.k }}"})))
    saga, other = make_saga(first, keyed, secrets=("k",)), make_saga(make_step("a"))
    log = MemoryLog()
    toolbox = FakeToolbox({"do": lambda _: DONE}, no_secrets={"k": "the variable K is not set"})
    driver = make_driver(log, saga, toolbox)
    driver.create(make_new_run(saga), saga)
    driver.create(make_new_run(other, "run2"), other)
    endings = driver.drive()
    assert (endings["run1"].why, endings["run1"].detail) == (Why.MISSING_SECRET, "k")
    assert endings["run1"].summary.waiting_for == Waiting("missing_secret", "the secret k: the variable K is not set")
    assert endings["run2"].summary.status is RunStatus.SUCCEEDED
    intents = [stored.record for stored in log.read("run1") if isinstance(stored.record, Intent)]
    assert [str(intent.operation) for intent in intents] == ["a"]
    toolbox.no_secrets.clear()
    again = make_driver(log, saga, toolbox)
    again.adopt("run1")
    assert again.drive()["run1"].summary.status is RunStatus.SUCCEEDED
    assert toolbox.calls[-1][1].arguments == {"key": {"$secret": "k"}}


def test_without_waiting_a_run_in_back_off_is_let_go_and_resumable() -> None:
    """A driver that doesn't wait for timers leaves the run waiting; the drawn delay stays as it is (E5)."""
    answers = iter([UNAVAILABLE, DONE])
    saga = make_saga(make_step("a", tool="moody", retry=Retry(2, 1_500, 100, 1_500)))
    toolbox = FakeToolbox({"moody": lambda _: next(answers)})
    log = MemoryLog()
    driver = make_driver(log, saga, toolbox, waits_for_timers=False)
    driver.create(make_new_run(saga), saga)
    assert driver.drive()["run1"].why is Why.WAITING
    again = make_driver(log, saga, toolbox)
    again.adopt("run1")
    assert again.drive()["run1"].summary.status is RunStatus.SUCCEEDED


def test_the_first_interrupt_lets_calls_settle_and_starts_nothing_new() -> None:
    """E17: the running call's outcome is recorded, the next step isn't begun, and the run can be resumed."""
    saga = make_saga(make_step("a", tool="slow"), make_step("b", ("a",)))
    log = MemoryLog()
    toolbox = FakeToolbox({"slow": after(lambda: driver.interrupt(), lambda: time.sleep(0.1)), "do": lambda _: DONE})
    driver = make_driver(log, saga, toolbox)
    driver.create(make_new_run(saga), saga)
    ending = driver.drive()["run1"]
    assert (ending.why, ending.left_in_doubt) == (Why.INTERRUPTED, ())
    assert toolbox.begun() == ["a/action"]
    assert isinstance(list(log.read("run1"))[-1].record, Outcome)
    again = make_driver(log, saga, toolbox)
    again.adopt("run1")
    assert again.drive()["run1"].summary.status is RunStatus.SUCCEEDED
    assert toolbox.begun() == ["a/action", "b/action"]


def test_nothing_is_decided_while_an_orphan_lives() -> None:
    """E14, E17: a command of an earlier driver that can't be ended keeps the run where it is, and the lease free."""
    answers = iter([UNAVAILABLE, DONE])
    saga = make_saga(make_step("a", tool="moody", retry=Retry(2, 1_500, 100, 1_500)))
    toolbox = FakeToolbox({"moody": lambda _: next(answers)})
    log = MemoryLog()
    driver = make_driver(log, saga, toolbox, waits_for_timers=False)
    driver.create(make_new_run(saga), saga)
    driver.drive()
    toolbox.orphans.add("run1")
    again = make_driver(log, saga, toolbox)
    with pytest.raises(BusyError) as caught:
        again.adopt("run1")
    assert (caught.value.code, again.drive(), toolbox.begun()) == ("cannot-end", {}, ["a/action"])
    assert isinstance(list(log.read("run1"))[-1].record, DriverClaimed)
    toolbox.orphans.clear()
    again.adopt("run1")
    assert again.drive()["run1"].summary.status is RunStatus.SUCCEEDED


def test_a_call_that_outlasts_the_grace_is_left_in_doubt_and_named() -> None:
    """E17: after the grace the driver lets go; the call is in doubt for whoever resumes."""
    release = threading.Event()
    saga = make_saga(make_step("a", tool="deaf"))
    toolbox = FakeToolbox({"deaf": after(lambda: driver.interrupt(), lambda: release.wait(60))})
    driver = make_driver(MemoryLog(), saga, toolbox, grace_ms=50)
    driver.create(make_new_run(saga), saga)
    ending = driver.drive()["run1"]
    release.set()
    assert (ending.why, ending.left_in_doubt) == (Why.INTERRUPTED, ("a",))


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_call_without_an_answer_is_in_doubt_though_the_interrupt_waited_for_it(attempts: int) -> None:
    """E17: a call that ran into its deadline meanwhile is recorded as unknown, and so is what is said of it."""
    saga = make_saga(make_step("a", tool="lost", retry=Retry(attempts, 80, 100, 80)))
    toolbox = FakeToolbox({"lost": after(lambda: driver.interrupt(), lambda: time.sleep(0.1), answer=UNKNOWN)})
    driver = make_driver(log := MemoryLog(), saga, toolbox)
    driver.create(make_new_run(saga), saga)
    ending = driver.drive()["run1"]
    outcome = list(log.read("run1"))[-1].record
    assert isinstance(outcome, Outcome)
    assert (ending.why, outcome.kind, ending.left_in_doubt) == (Why.INTERRUPTED, OutcomeKind.UNKNOWN, ("a",))


def test_storage_trouble_stops_before_the_next_effect() -> None:
    """E18: an append that fails is no failure of a step: it goes up, and nothing more is called."""

    def fail_second(_: Sequence[Batch]) -> None:
        if len(log.commits) == 1:
            raise StorageError("disk full")

    saga = make_saga(*_chain(3))
    log = WatchedLog(MemoryLog(), fail_second)
    toolbox = FakeToolbox({"do": lambda _: DONE, "undo": lambda _: DONE})
    driver = make_driver(log, saga, toolbox)
    creation = driver.create(make_new_run(saga), saga)
    with pytest.raises(StorageError):
        driver.drive()
    assert toolbox.begun() == ["s0/action"]
    assert creation.lease is not None
    log.log.release([creation.lease])  # as if the process had ended
    again = make_driver(log.log, saga, toolbox)
    again.adopt("run1")
    assert again.drive()["run1"].summary.status is RunStatus.SUCCEEDED


def test_a_driver_whose_lease_was_taken_stops_and_writes_nothing() -> None:
    """E15, C1: after another claim the old driver's records are refused, and it lets the run go."""
    inner = MemoryLog()

    def steal(_: Sequence[Batch]) -> None:
        if len(log.commits) == 1:
            inner.release(leases)
            inner.claim("run1", holder=HOLDER)

    saga = make_saga(*_chain(3))
    log = WatchedLog(inner, steal)
    toolbox = FakeToolbox({"do": lambda _: DONE})
    driver = make_driver(log, saga, toolbox)
    creation = driver.create(make_new_run(saga), saga)
    leases = [creation.lease] if creation.lease is not None else []
    ending = driver.drive()["run1"]
    assert ending.why is Why.LEASE_LOST
    assert toolbox.begun() == ["s0/action"]
    assert sum(isinstance(stored.record, Outcome) for stored in inner.read("run1")) == 0


def test_a_request_from_elsewhere_is_answered_within_a_second() -> None:
    """E22: a cancel written down by another process turns the run around while it is driven."""
    log = MemoryLog()
    saga = make_saga(make_step("a"), make_step("b", ("a",), tool="slow"))

    def slow(_: Invocation) -> Answer:
        log.ask("run1", Request("q1", Verb.CANCEL, "ana", "changed my mind"))
        time.sleep(0.8)
        return DONE

    toolbox = FakeToolbox({"do": lambda _: DONE, "undo": lambda _: DONE, "slow": slow})
    driver = make_driver(log, saga, toolbox)
    driver.create(make_new_run(saga), saga)
    ending = driver.drive()["run1"]
    assert (ending.summary.status, ending.summary.cause) == (RunStatus.ROLLED_BACK, Cause.CANCELLED)
    assert log.requests(["run1"]) == []


@pytest.mark.parametrize("is_pivot", [False, True])
def test_a_request_made_in_the_last_call_is_heard_before_the_end_and_before_the_pivot(is_pivot: bool) -> None:
    """E22: what was asked before a run ends, or takes its pivot, is answered first, however soon that follows."""
    log = MemoryLog()
    steps = [make_step("a"), make_step("b", ("a",), tool="slow")]
    saga = make_saga(*steps, *([_make_pivot("c", ("b",))] if is_pivot else []))

    def slow(_: Invocation) -> Answer:
        time.sleep(0.05)
        log.ask("run1", Request("q1", Verb.CANCEL, "ana", "changed my mind"))
        return DONE

    toolbox = FakeToolbox({"do": lambda _: DONE, "undo": lambda _: DONE, "slow": slow, "pivot": lambda _: DONE})
    driver = make_driver(log, saga, toolbox)
    driver.create(make_new_run(saga), saga)
    assert driver.drive()["run1"].summary.status is RunStatus.ROLLED_BACK
    assert "c/action" not in toolbox.begun()


def test_an_unknown_outcome_of_a_step_that_asks_leaves_the_run_stuck() -> None:
    """E6: with `on_unknown: ask` a person decides, and the run is at rest until then."""
    saga = make_saga(make_step("a", tool="lost", on_unknown=OnUnknown.ASK))
    log = MemoryLog()
    driver = make_driver(log, saga, FakeToolbox({"lost": lambda _: UNKNOWN}))
    driver.create(make_new_run(saga), saga)
    ending = driver.drive()["run1"]
    assert (ending.summary.status, ending.summary.cause) == (RunStatus.STUCK, Cause.IN_DOUBT)
    assert [letter.operation.step for letter in log.dead_letters(run_id="run1")] == ["a"]


def test_recording_only_answers_requests_and_calls_nothing() -> None:
    """E23: with `only_record` a resolution is written down and the run is not carried on."""
    saga = make_saga(make_step("a", tool="lost", on_unknown=OnUnknown.ASK))
    log = MemoryLog()
    toolbox = FakeToolbox({"lost": lambda _: UNKNOWN})
    driver = make_driver(log, saga, toolbox)
    driver.create(make_new_run(saga), saga)
    driver.drive()
    letter = log.dead_letters(run_id="run1")[0]
    log.ask("run1", Request("q1", Verb.RETRY, "ana", operation=letter.operation))
    again = make_driver(log, saga, toolbox)
    again.adopt("run1")
    again.drive(only_record=True)
    assert toolbox.begun() == ["a/action"]
    assert log.dead_letters(run_id="run1") == []


def test_a_tool_that_changes_its_arguments_changes_nothing_for_the_next_try() -> None:
    """E20, S10: each attempt gets the arguments that were recorded, whatever an earlier one did to its own."""
    seen: list[object] = []

    def meddle(invocation: Invocation) -> Answer:
        seen.append(str(invocation.arguments))
        cast("Any", invocation.arguments)["list"].append("mine")
        return DONE if len(seen) > 1 else UNAVAILABLE

    step = replace(make_step("a", tool="meddle"), action=Call("meddle", parse_template({"list": [1]}), FAST))
    saga = make_saga(step)
    driver = make_driver(MemoryLog(), saga, FakeToolbox({"meddle": meddle}))
    driver.create(make_new_run(saga), saga)
    assert driver.drive()["run1"].summary.status is RunStatus.SUCCEEDED
    assert seen == ["{'list': [1]}"] * 2


def test_a_bug_met_in_one_run_lets_go_of_that_run_only() -> None:
    """V6: what can't be decided for one run doesn't stop the others; its answers are kept, nothing new is called."""
    bad = make_saga(make_step("a"), make_step("b", ("a",), tool="other"))
    good = make_saga(make_step("a"), make_step("b", ("a",)))
    log = MemoryLog()
    toolbox = FakeToolbox({"do": lambda _: DONE, "other": lambda _: DONE})
    toolbox.fails_to_check = "other"
    driver = make_driver(log, bad, toolbox)
    driver.create(make_new_run(bad), bad)
    driver.create(make_new_run(good, "run2"), good)
    endings = driver.drive()
    assert (endings["run1"].why, endings["run2"].summary.status) == (Why.BROKEN, RunStatus.SUCCEEDED)
    assert endings["run1"].error is not None
    assert endings["run1"].error.code == "bug"
    assert [type(stored.record) for stored in log.read("run1")][-1] is Outcome
    toolbox.fails_to_check = ""
    again = make_driver(log, bad, toolbox)
    again.adopt("run1")
    assert again.drive()["run1"].summary.status is RunStatus.SUCCEEDED
