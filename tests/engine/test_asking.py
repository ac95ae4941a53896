"""Guards are asked as calls are made: nobody waits for a slow one but its own run, and what came meanwhile is heard."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from sagactl.core.answer import Answer
from sagactl.core.pinned import Guard, Misfit
from sagactl.core.records import (
    Cause,
    Direction,
    Intent,
    Operation,
    Operator,
    Outcome,
    OutcomeKind,
    Request,
    RunStatus,
    Verb,
)
from sagactl.core.saga import Call, Jitter, Retry, Step, StepClass, ToolFacts
from sagactl.core.template import parse_template
from sagactl.engine.clock import SystemClock
from sagactl.engine.driver import Driver
from sagactl.engine.ending import Ending, Why
from sagactl.engine.guards import FRESH_SECONDS, Purpose, Question
from sagactl.engine.settings import Committed
from sagactl.log.base import Batch
from sagactl.log.memory import MemoryLog
from sagactl.tools.base import Invocation
from tests.engine.fakes import (
    DONE,
    FAST,
    FakeToolbox,
    WatchedLog,
    make_driver,
    make_new_run,
    make_saga,
    make_step,
)

SECONDS_MAX = 20.0
UNDO_OF_A = Operation("a", None, Direction.COMPENSATION)


@dataclass
class JumpingClock:
    """The system's clock, which a test may put forward."""

    ahead_seconds: float = 0.0
    real: SystemClock = field(default_factory=SystemClock)

    def now_ms(self) -> int:
        """Return UTC."""
        return self.real.now_ms() + int(self.ahead_seconds * 1_000)

    def monotonic(self) -> float:
        """Return seconds."""
        return self.real.monotonic() + self.ahead_seconds


class SlowGuard:
    """A guard that answers when it is let: `asked` is set once it is asked, `release` lets it answer."""

    def __init__(self) -> None:
        self.asked, self.release = threading.Event(), threading.Event()

    def __call__(self, _: ToolFacts) -> Misfit | None:
        """Say yes, once it may."""
        self.asked.set()
        self.release.wait(SECONDS_MAX)
        return None


def make_action(step_id: str) -> Operation:
    """Return the action of a step."""
    return Operation(step_id, None, Direction.ACTION)


def make_pivot(step_id: str, needs: tuple[str, ...], tool: str) -> Step:
    """Return a step that is the point of no return."""
    return Step(step_id, StepClass.PIVOT, Call(tool, parse_template({})), needs=needs)


def begin(log: MemoryLog | WatchedLog, steps: Sequence[Step], guard: Guard, **options: object) -> Driver:
    """Return a driver that has begun a run of *steps*, whose tool `far` has *guard*."""
    saga = make_saga(*steps, tools=[ToolFacts("do"), ToolFacts("far")])
    functions = {name: lambda _: DONE for name in ("do", "undo", "far")}
    toolbox = FakeToolbox(functions, guards={"far": guard})
    driver = make_driver(log, saga, toolbox, **options)  # type: ignore[arg-type]
    driver.create(make_new_run(saga), saga)
    return driver


def drive(driver: Driver) -> Ending:
    """Drive the one run as far as it goes."""
    return driver.drive()["run1"]


def list_intents(log: MemoryLog | WatchedLog) -> list[Operation]:
    """Return the operations that have intents, in order."""
    return [each.record.operation for each in log.read("run1") if isinstance(each.record, Intent)]  # type: ignore[operator]


def when_asked(guard: SlowGuard, action: Callable[[], object]) -> threading.Thread:
    """Do *action* on another thread once *guard* is asked."""

    def act() -> None:
        assert guard.asked.wait(SECONDS_MAX)
        action()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_an_interrupt_is_heard_while_a_guard_is_asked() -> None:
    """E17: nothing new is started, and nobody waits for the guard's answer either."""
    log, guard = MemoryLog(), SlowGuard()
    driver = begin(log, [make_step("a"), make_step("b", ("a",), tool="far")], guard)
    thread = when_asked(guard, driver.interrupt)
    ending = drive(driver)
    assert not guard.release.is_set()
    assert (ending.why, list_intents(log)) == (Why.INTERRUPTED, [make_action("a")])
    guard.release.set()
    thread.join()


def test_an_interrupt_just_before_the_answer_of_a_guard_counts() -> None:
    """E17: what was asked before the signal and answered after it leads to no call."""
    log, drivers = MemoryLog(), list[Driver]()

    def guard(_: ToolFacts) -> None:
        drivers[0].interrupt()

    drivers.append(begin(log, [make_step("a", tool="far")], guard))
    assert (drive(drivers[0]).why, list_intents(log)) == (Why.INTERRUPTED, [])


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.PAUSE])
def test_a_request_is_heard_while_the_guard_of_a_pivot_is_asked(verb: Verb) -> None:
    """E22, E13: a cancel undoes what was done, a pause holds the run; the pivot gets no intent."""
    log, guard = MemoryLog(), SlowGuard()
    driver = begin(log, [make_step("a"), make_pivot("b", ("a",), "far")], guard)
    thread = when_asked(guard, lambda: log.ask("run1", Request("q1", verb, "ana", "changed my mind")))
    ending = drive(driver)
    assert not guard.release.is_set()
    guard.release.set()
    thread.join()
    if verb is Verb.PAUSE:
        assert (ending.why, ending.status, list_intents(log)) == (
            Why.WAITING,
            RunStatus.WAITING,
            [make_action("a")],
        )
    else:
        assert (ending.status, ending.summary.cause) == (RunStatus.ROLLED_BACK, Cause.CANCELLED)
        assert list_intents(log) == [make_action("a"), UNDO_OF_A]
    assert len([each for each in log.read("run1") if isinstance(each.record, Operator)]) == 1


def test_an_answer_is_not_used_for_another_call_of_the_tool() -> None:
    """E16, E22: asked about an action, then cancelled: the undo by the same tool is asked about for itself."""
    log, asked, cancelled = MemoryLog(), list[str](), threading.Event()

    def guard(pinned: ToolFacts) -> None:
        asked.append(pinned.name)
        if len(asked) == 2:
            log.ask("run1", Request("q1", Verb.CANCEL, "ana", "changed my mind"))
            assert cancelled.wait(SECONDS_MAX)

    first = make_step("a", tool="far")
    assert first.compensation is not None
    steps = [
        Step("a", first.klass, first.action, Call("far", parse_template({}), FAST)),
        make_step("b", ("a",), tool="far"),
    ]
    driver = begin(log, steps, guard)

    def listen(committed: Committed) -> None:
        if any(isinstance(record, Operator) for record in committed.records):
            cancelled.set()

    driver.subscribe(listen)
    ending = drive(driver)
    assert (ending.status, asked) == (RunStatus.ROLLED_BACK, ["far", "far", "far"])
    assert list_intents(log) == [make_action("a"), UNDO_OF_A]


def test_a_guard_is_asked_again_where_another_branch_has_come_to_its_tool() -> None:
    """E16: an answer holds for the calls that it was asked for."""
    log, asked, is_done = MemoryLog(), list[str](), threading.Event()

    def guard(pinned: ToolFacts) -> None:
        asked.append(pinned.name)
        assert is_done.wait(SECONDS_MAX)

    driver = begin(log, [make_step("a", tool="far"), make_step("b"), make_step("c", ("b",), tool="far")], guard)

    def listen(committed: Committed) -> None:
        if any(isinstance(record, Outcome) for record in committed.records):
            is_done.set()

    driver.subscribe(listen)
    assert (drive(driver).status, asked) == (RunStatus.SUCCEEDED, ["far", "far"])
    assert {each.step for each in list_intents(log)} == {"a", "b", "c"}


def test_an_answer_of_a_guard_grows_old() -> None:
    """E16: what was said a while ago is asked anew."""
    mine: frozenset[Purpose] = frozenset([(make_action("a"), False, 0, 0, 0)])
    question = Question("run1", ToolFacts("far"), lambda _: None, mine)
    assert not question.covers(mine, 0.0)
    question.answered_at = 100.0
    assert question.covers(mine, 100.0 + FRESH_SECONDS)
    assert not question.covers(mine, 101.0 + FRESH_SECONDS)
    assert not question.covers(mine | {(make_action("b"), False, 0, 0, 0)}, 100.0)


def test_the_time_that_a_guard_takes_is_not_the_calls() -> None:
    """E14: the intent bears the time when it was written, and the call has all of its time."""
    log, clock, given = MemoryLog(), JumpingClock(), list[float]()

    def guard(_: ToolFacts) -> None:
        clock.ahead_seconds += 9.0

    def far(invocation: Invocation) -> Answer:
        given.append(invocation.seconds_left)
        return DONE

    saga = make_saga(make_step("a", tool="far", start_to_close_ms=4_000))
    driver = make_driver(log, saga, FakeToolbox({"far": far}, guards={"far": guard}), clock=clock, lease_ms=15_000)
    began_ms = clock.now_ms()
    driver.create(make_new_run(saga), saga)
    assert drive(driver).status is RunStatus.SUCCEEDED
    (intent,) = [each.record for each in log.read("run1") if isinstance(each.record, Intent)]
    assert intent.at_ms >= began_ms + 9_000
    assert intent.deadline_ms == intent.at_ms + 4_000
    assert given[0] > 1.0


def test_other_runs_go_on_while_a_guard_is_asked() -> None:
    """E17, H33: a server that is slow to answer holds up no run of the process but its own."""
    log, guard = MemoryLog(), SlowGuard()
    driver = begin(log, [make_step("a", tool="far")], guard)
    other = make_saga(*(make_step(f"s{n}", (f"s{n - 1}",) if n else ()) for n in range(5)))
    ended: list[str] = []

    def listen(committed: Committed) -> None:
        if committed.state.ended is not None:
            ended.append(committed.run_id)
            guard.release.set()

    driver.subscribe(listen)
    driver.create(make_new_run(other, "run2"), other)
    endings = driver.drive()
    assert ended == ["run2", "run1"]
    assert {each.status for each in endings.values()} == {RunStatus.SUCCEEDED}


@pytest.mark.parametrize("calls_max", [1, 2])
def test_guards_are_asked_within_the_slots_for_calls(calls_max: int) -> None:
    """E16: no more at once than there may be calls, and each run has its turn, also with items and branches."""
    log, lock, now, most = MemoryLog(), threading.Lock(), [0], [0]

    def guard(_: ToolFacts) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.002)
        with lock:
            now[0] -= 1

    steps = [make_step("a", tool="far"), make_step("b", tool="near"), make_step("c", ("a", "b"), tool="far")]
    saga = make_saga(*steps)
    functions = {name: lambda _: DONE for name in ("far", "near")}
    driver = make_driver(log, saga, FakeToolbox(functions, guards={"far": guard, "near": guard}), calls_max=calls_max)
    for number in range(12):
        driver.create(make_new_run(saga, f"run{number}"), saga)
    endings = driver.drive()
    assert [each.status for each in endings.values()] == [RunStatus.SUCCEEDED] * 12
    assert most[0] <= calls_max


def test_a_guard_that_fails_lets_go_of_its_run_alone() -> None:
    """V6: a bug in a guard is no other run's trouble, and nothing is called."""
    log = MemoryLog()

    def guard(_: ToolFacts) -> None:
        raise ZeroDivisionError("the guard is broken")

    driver = begin(log, [make_step("a", tool="far")], guard)
    other = make_saga(make_step("a"))
    driver.create(make_new_run(other, "run2"), other)
    endings = driver.drive()
    assert (endings["run1"].why, list_intents(log)) == (Why.BROKEN, [])
    assert endings["run2"].status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_has_no_time_left_is_not_made_and_leaves_no_doubt(is_async: bool) -> None:
    """E14, E3: a commit that outlasts the call's time: nothing was done, so the call is made again, and once."""
    clock, calls, slow = JumpingClock(), list[int](), [True]

    def hold(batches: Sequence[Batch]) -> None:
        is_intent = any(isinstance(record, Intent) for batch in batches for record in batch.records)
        if is_intent and slow:
            slow.clear()
            clock.ahead_seconds += 5.0

    def do(invocation: Invocation) -> Answer:
        calls.append(invocation.attempt)
        return DONE

    log = WatchedLog(MemoryLog(), hold)
    saga = make_saga(make_step("a", start_to_close_ms=4_000, retry=Retry(3, 50, 100, 50, Jitter.NONE)))
    names = frozenset({"do"}) if is_async else frozenset[str]()
    toolbox = FakeToolbox({"do": do}, async_names=names)
    driver = make_driver(log, saga, toolbox, clock=clock, lease_ms=15_000)
    driver.create(make_new_run(saga), saga)
    if is_async:
        driver.subscribe(lambda done: driver.interrupt() if _has_outcome(done) else None)
    ending = driver.drive()["run1"]
    first = next(record for commit in log.commits for record in commit if isinstance(record, Outcome))
    assert first.kind is OutcomeKind.UNAVAILABLE
    assert first.failure is not None
    assert first.failure.type == "not_started"
    if is_async:
        assert (ending.left_in_doubt, toolbox.calls) == ((), [])
    else:
        assert (ending.status, calls) == (RunStatus.SUCCEEDED, [2])


def test_asking_too_late_after_what_is_pending_leaves_it_in_doubt() -> None:
    """E5, E14: a commit outlasts the time of a call that only asks again: what was begun may be done, and is undone."""
    clock = JumpingClock()

    def hold(batches: Sequence[Batch]) -> None:
        records = [record for batch in batches for record in batch.records]
        if any(isinstance(record, Intent) and record.asking == 2 for record in records):
            clock.ahead_seconds += 5.0

    pending = Answer(OutcomeKind.PENDING, after_ms=100)
    log = WatchedLog(MemoryLog(), hold)
    step = make_step("a", start_to_close_ms=2_000, schedule_to_close_ms=3_000)
    saga = make_saga(step)
    toolbox = FakeToolbox({"do": lambda _: pending, "undo": lambda _: DONE})
    driver = make_driver(log, saga, toolbox, clock=clock, lease_ms=15_000)
    driver.create(make_new_run(saga), saga)
    ending = driver.drive()["run1"]
    outcomes = [record for commit in log.commits for record in commit if isinstance(record, Outcome)]
    assert [each.kind for each in outcomes[:2]] == [OutcomeKind.PENDING, OutcomeKind.UNKNOWN]
    assert (ending.status, toolbox.begun()[-1]) == (RunStatus.ROLLED_BACK, "a/compensation")


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_who_cannot_be_asked_after_what_is_pending_leaves_it_in_doubt(is_idempotent: bool) -> None:
    """E5, E3: `unavailable` says that asking did nothing, and not that what was begun is not there."""
    pending, away = Answer(OutcomeKind.PENDING, after_ms=50), Answer(OutcomeKind.UNAVAILABLE)
    answers = [pending, away, away]
    step = make_step("a", schedule_to_close_ms=60_000, retry=Retry(2, 50, 100, 50, Jitter.NONE))
    saga = make_saga(step, tools=[ToolFacts("do", idempotent=is_idempotent), ToolFacts("undo", null_safe=True)])
    log, toolbox = MemoryLog(), FakeToolbox({"do": lambda _: answers.pop(0), "undo": lambda _: DONE})
    driver = make_driver(log, saga, toolbox)
    driver.create(make_new_run(saga), saga)
    ending = driver.drive()["run1"]
    kinds = [each.record.kind for each in log.read("run1") if isinstance(each.record, Outcome)]
    assert kinds[:2] == [OutcomeKind.PENDING, OutcomeKind.UNKNOWN]
    assert (ending.status, toolbox.begun()[-1]) == (RunStatus.ROLLED_BACK, "a/compensation")


def _has_outcome(committed: Committed) -> bool:
    return any(isinstance(record, Outcome) for record in committed.records)
