"""E16: tools whose other end may have changed are asked about before an intent, and only where a call is next."""

from __future__ import annotations

from collections.abc import Callable

from sagactl.core.pinned import Guard, Misfit, find_misfit
from sagactl.core.records import Decision, Direction, Intent, Operation, Probe, RunStatus, ToolChange
from sagactl.core.saga import OnUnknown, Saga, ToolFacts
from sagactl.core.summary import Summary
from sagactl.engine.ending import Why
from sagactl.log.memory import MemoryLog
from tests.engine.fakes import DONE, REJECTED, UNKNOWN, FakeToolbox, make_driver, make_new_run, make_saga, make_step

CHANGED = Misfit("is not what the server has", (ToolChange("description", "", "reads", "deletes"),))


def make_guard(asked: list[str], *answers: Misfit | None) -> Guard:
    """Return a guard that notes what it is asked and gives *answers*, the last of them for ever."""
    left = list(answers)

    def guard(pinned: ToolFacts) -> Misfit | None:
        asked.append(pinned.name)
        return left.pop(0) if len(left) > 1 else left[0]

    return guard


def drive(saga: Saga, toolbox: FakeToolbox, log: MemoryLog | None = None) -> tuple[MemoryLog, Why, Summary]:
    """Drive a new run, or the one in *log*, as far as it goes."""
    found = log or MemoryLog()
    driver = make_driver(found, saga, toolbox)
    if log is None:
        driver.create(make_new_run(saga), saga)
    else:
        driver.adopt("run1")
    ending = driver.drive()["run1"]
    return found, ending.why, ending.summary


def list_intents(log: MemoryLog) -> list[str]:
    """Return the operations that have intents, in order."""
    return [str(each.record.operation) for each in log.read("run1") if isinstance(each.record, Intent)]


def test_a_tool_that_is_another_by_now_holds_the_run_up_without_an_intent() -> None:
    """E16, H33: what came before it is done, the reason and the change are on record, and a resume asks again."""
    asked: list[str] = []
    saga = make_saga(make_step("a"), make_step("b", ("a",), tool="far"))
    toolbox = FakeToolbox({"do": lambda _: DONE, "far": lambda _: DONE}, guards={"far": make_guard(asked, CHANGED)})
    log, why, summary = drive(saga, toolbox)
    assert (why, list_intents(log), asked) == (Why.MISSING_TOOL, ["a"], ["far"])
    assert summary.waiting_for is not None
    message = 'the tool far is not what the server has: description was "reads", is "deletes"'
    assert (summary.waiting_for.detail, summary.waiting_for.changes) == (message, CHANGED.changes)
    kept = [each.record for each in log.read("run1") if isinstance(each.record, Decision)]
    assert [each.changes for each in kept] == [CHANGED.changes]
    toolbox.guards["far"] = make_guard(asked, None)
    _, _, summary = drive(saga, toolbox, log)
    assert (summary.status, list_intents(log), asked) == (RunStatus.SUCCEEDED, ["a", "b"], ["far", "far"])


def test_a_guard_is_asked_before_each_call_and_never_for_one_that_does_not_come() -> None:
    """E16: parallel branches aren't held up; a tool behind a failed step is never asked about."""
    asked: list[str] = []
    steps = (make_step("a", tool="far"), make_step("b"), make_step("c", ("a", "b"), tool="far"))
    saga = make_saga(*steps, make_step("d", ("c",), tool="fails"), make_step("e", ("d",), tool="never"))
    guards = {"far": make_guard(asked, None), "never": make_guard(asked, CHANGED)}
    does: dict[str, Callable[..., object]] = {"far": lambda _: DONE, "do": lambda _: DONE, "fails": lambda _: REJECTED}
    toolbox = FakeToolbox({**does, "undo": lambda _: DONE}, guards=guards)  # type: ignore[dict-item]
    log, _, summary = drive(saga, toolbox)
    assert (summary.status, asked) == (RunStatus.ROLLED_BACK, ["far", "far"])
    assert list_intents(log)[:4] == ["b", "a", "c", "d"]


def test_an_undo_and_a_probe_are_asked_about_like_any_call() -> None:
    """E6, E16: the way back waits too, and nothing is believed that another tool says."""
    asked: list[str] = []
    saga = make_saga(make_step("a"), make_step("b", ("a",), tool="fails"))
    guards = {"undo": make_guard(asked, CHANGED, None)}
    toolbox = FakeToolbox({"do": lambda _: DONE, "fails": lambda _: REJECTED, "undo": lambda _: DONE}, guards=guards)
    log, why, summary = drive(saga, toolbox)
    assert (why, summary.status, asked) == (Why.MISSING_TOOL, RunStatus.ROLLING_BACK, ["undo"])
    assert Operation("a", None, Direction.COMPENSATION) not in [
        each.record.operation for each in log.read("run1") if isinstance(each.record, Intent)
    ]
    assert drive(saga, toolbox, log)[2].status is RunStatus.ROLLED_BACK
    probed = make_saga(
        make_step("a", on_unknown=OnUnknown.PROBE),
        tools=[ToolFacts("do", probe="look", late_safe=True), ToolFacts("look", read_only=True)],
    )
    toolbox = FakeToolbox({"do": lambda _: UNKNOWN}, guards={"look": make_guard(asked, CHANGED)})
    log, why, _ = drive(probed, toolbox)
    assert why is Why.MISSING_TOOL
    assert not [each for each in log.read("run1") if isinstance(each.record, Probe)]


def test_the_reason_of_a_tool_that_changed_here_is_on_record() -> None:
    """E16: a plugin that takes a promise back is told from one that is gone."""
    saga = make_saga(make_step("a"), make_step("b", ("a",), tool="far"))
    toolbox = FakeToolbox({"do": lambda _: DONE, "far": lambda _: DONE})
    log = MemoryLog()
    driver = make_driver(log, saga, toolbox)
    toolbox.known["far"] = ToolFacts("far", "2", idempotent=False)
    driver.create(make_new_run(saga), saga)
    summary = driver.drive()["run1"].summary
    expected = find_misfit(saga.tools["far"], toolbox.known["far"])
    assert expected is not None
    assert summary.waiting_for is not None
    assert summary.waiting_for.changes == expected.changes


def test_a_tool_that_needs_another_secret_by_now_is_not_called_without_it() -> None:
    """E19: nobody looked after it when the run began, so it is looked for when the run is taken up."""
    saga = make_saga(make_step("a", tool="far"))
    toolbox = FakeToolbox({"far": lambda _: DONE}, no_secrets={"k": "the variable K is not set"})
    log = MemoryLog()
    driver = make_driver(log, saga, toolbox)
    toolbox.known["far"] = ToolFacts("far", secrets=("k",))
    driver.create(make_new_run(saga), saga)
    ending = driver.drive()["run1"]
    assert ending.why is Why.MISSING_TOOL
    assert ending.summary.waiting_for is not None
    detail = "the tool far needs the secret k by now: the variable K is not set"
    assert (ending.summary.waiting_for.detail, list_intents(log)) == (detail, [])
    toolbox.no_secrets.clear()
    assert drive(saga, toolbox, log)[2].status is RunStatus.SUCCEEDED


def test_a_guard_hides_nothing_else_that_a_run_waits_for() -> None:
    """E19: a guarded tool whose secret is missing isn't asked about, and the run says that it waits for the secret."""
    asked: list[str] = []
    saga = make_saga(make_step("a", tool="far"), tools=[ToolFacts("far", secrets=("k",))])
    guards = {"far": make_guard(asked, None)}
    toolbox = FakeToolbox({"far": lambda _: DONE}, no_secrets={"k": "the variable K is not set"}, guards=guards)
    log, why, _ = drive(saga, toolbox)
    assert (why, list_intents(log), asked) == (Why.MISSING_SECRET, [], [])
    toolbox.no_secrets.clear()
    assert drive(saga, toolbox, log)[2].status is RunStatus.SUCCEEDED
    assert asked == ["far"]


def test_a_guard_keeps_one_branch_back_and_a_secret_another() -> None:
    """E16, E19: each is asked for, one is named, and nothing is called."""
    asked: list[str] = []
    steps = (make_step("a", tool="far"), make_step("b", tool="near"))
    saga = make_saga(*steps, tools=[ToolFacts("far", secrets=("k",)), ToolFacts("near")])
    guards = {"far": make_guard(asked, CHANGED), "near": make_guard(asked, CHANGED)}
    toolbox = FakeToolbox({}, no_secrets={"k": "not set"}, guards=guards)
    log, why, _ = drive(saga, toolbox)
    assert (why, asked, list_intents(log)) == (Why.MISSING_SECRET, ["near"], [])
    toolbox.no_secrets.clear()
    log, why, _ = drive(saga, toolbox, log)
    assert (why, asked, list_intents(log)) == (Why.MISSING_TOOL, ["near", "far", "near"], [])
