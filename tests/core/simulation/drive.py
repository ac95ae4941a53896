"""Simulated drivers that turn the core's crank against a durable log with a fence and a world of targets.

Everything happens on one queue of events in virtual time. A driver decides, commits, and only then makes its calls; it
may die before a commit, after it, or at any moment in between, and it may lose its lease and live on, with calls that
land when nobody expects them any more. Whoever drives next folds the log and claims the run with a higher fence.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sagactl.core.advance import Turn, advance
from sagactl.core.canonical import Json, canonical
from sagactl.core.evolve import evolve, replay
from sagactl.core.operators import answer_request
from sagactl.core.records import (
    Direction,
    DriverClaimed,
    Failure,
    Holder,
    Operation,
    Outcome,
    OutcomeKind,
    Probe,
    ProbeAnswer,
    Record,
    Request,
    Resolution,
    RunCreated,
    RunStatus,
    Verb,
)
from sagactl.core.saga import GRACE_MS, Call, Saga
from sagactl.core.state import RunState
from sagactl.core.summary import Summary, summarize
from sagactl.core.world import AskProbe, EndCalls, MakeCall, Rest, Wait
from sagactl.core.world import World as Outlook
from tests.core.simulation.drivers import Driver, Evaluator, SimLog, make_outcome
from tests.core.simulation.generate import ANSWERS, Plan
from tests.core.simulation.people import attend, decide_letter
from tests.core.simulation.world import Job, World

EVENTS_MAX = 4_000
HOLDER = Holder("sim", 1, "then", "boot")


class SpinError(AssertionError):
    """The run neither ends nor waits for anything."""


class Simulation:
    """One seed from its first record to its rest."""

    def __init__(self, plan: Plan, *, rng: random.Random | None = None) -> None:
        self.plan = plan
        self.saga: Saga = plan.saga
        self.rng = rng or random.Random(plan.seed + 1_000_003)
        self.world = World(plan.traits)
        self.log = SimLog()
        self.evaluator = Evaluator()
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.order = 0
        self.jobs = 0
        self.crashes_left = plan.trouble.crashes
        self.driver: Driver | None = None
        self.missing: frozenset[str] = frozenset()
        self.requests: list[Request] = []
        self.seen: list[tuple[int, Summary]] = []
        self.happened: Counter[str] = Counter()
        self.is_fold_equal = True
        self.operator_acts = 0
        self.has_asked_after_end = False
        self.weights = plan.trouble.weights
        self.undo_weights = plan.trouble.undo_weights

    # -- time -----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Return the virtual time."""
        return self.world.now_ms

    def at(self, when_ms: int, what: Callable[[], None]) -> None:
        """Let *what* happen at *when_ms*."""
        self.order += 1
        heapq.heappush(self.events, (max(when_ms, self.now), self.order, what))

    def run(self) -> None:
        """Drive the run from its creation to its rest."""
        trouble = self.plan.trouble
        self.log.fence = 1
        self.log.keep([self._first_record(), DriverClaimed(0, 1, HOLDER, calls_ended=True)], 1)
        for at_ms, verb, is_past_pivot in trouble.requests:
            self.at(at_ms, partial(self.submit, Verb(verb), is_past_pivot=is_past_pivot))
        for at_ms in trouble.pauses:
            self.at(at_ms, partial(self.submit, Verb.PAUSE))
        if trouble.missing_until_ms:
            self.missing = frozenset({trouble.missing_tool or ""})
            self.at(trouble.missing_until_ms, self._find_tool)
        for _ in range(trouble.crashes):
            self.at(int(self.rng.expovariate(1 / 4_000)), self._fail_sometime)
        self.driver = Driver(1, replay(self.saga, self.log.records), base=len(self.log.records))
        self._sync()
        self.pump()
        self.drain()

    def _first_record(self) -> RunCreated:
        return RunCreated(0, "r1", "sim", "digest", self.plan.data, "me", None, self.plan.trouble.deadline_ms)

    def drain(self) -> None:
        """Let events happen until there are none; too many are a spin (V2)."""
        for _ in range(EVENTS_MAX):
            if not self.events:
                return
            when_ms, _, what = heapq.heappop(self.events)
            self.world.now_ms = max(when_ms, self.now)
            what()
        raise SpinError(f"V2: {EVENTS_MAX} events and no end; waits: {self.driver and self.driver.then}")

    def _sync(self) -> None:
        self.world.durable = len(self.log.records)

    def _find_tool(self) -> None:
        self.missing = frozenset()
        self.happened["missing tool"] += 1
        self.pump()

    # -- drivers --------------------------------------------------------------------------------------------------

    def claim(self, *, calls_ended: bool) -> None:
        """Let a new driver fold the log and take the run over."""
        state = replay(self.saga, self.log.records)
        fence = self.log.fence + 1
        record = DriverClaimed(self.now, fence, HOLDER, calls_ended)
        evolve(self.saga, state, record)
        self.log.fence = fence
        self.log.keep([record], fence)
        state = self.settle_in(state)
        self._sync()
        self.driver = Driver(fence, state, base=len(self.log.records))
        self.happened["claimed, calls ended" if calls_ended else "claimed, calls may land"] += 1
        self.pump()

    def settle_in(self, state: RunState) -> RunState:
        """Do what a new driver does before it decides anything: nothing, but for `rebinding`."""
        return state

    def _fail_sometime(self) -> None:
        """A fault at a random moment: the driver dies, or loses its lease and lives on."""
        driver = self.driver
        if driver is None or not driver.is_alive or self.crashes_left <= 0:
            return
        self.crashes_left -= 1
        if self.rng.random() < 0.5:
            self.happened["died between events"] += 1
            self.die(driver)
        else:
            self.lose_lease(driver)

    def die(self, driver: Driver) -> None:
        """SIGKILL: the process and its calls are gone; somebody notices later, and may or may not know that."""
        driver.is_alive = False
        for job in driver.flight.values():
            self.world.end(job)
        is_known = self.rng.random() < 0.7
        self.at(self.now + self.rng.choice([0, 50, 4_000, 30_000]), lambda: self._take_over(driver, is_known))

    def lose_lease(self, driver: Driver) -> None:
        """The lease is lost, the driver and its calls live on: they land as late as they may."""
        self.happened["lost its lease"] += 1
        driver.has_lease = False
        for job in driver.flight.values():
            self._let_land_late(driver, job)
        self.at(self.now + self.rng.choice([0, 0, 100, 2_000]), lambda: self._take_over(driver, False))

    def _let_land_late(self, driver: Driver, job: Job) -> None:
        def land() -> None:
            if job.has_ended:
                return
            if not job.is_probe and self.rng.random() < 0.7:
                before = len(self.world.ledger)
                job.answer["output"] = self.world.act(job)
                self.happened["late call landed"] += len(self.world.ledger) > before
            self.world.end(job)
            self._try_to_record(driver, job)

        last_ms = job.deadline_ms + GRACE_MS - 1
        self.at(self.rng.randint(min(self.now, last_ms), max(self.now, last_ms)), land)

    def _try_to_record(self, driver: Driver, job: Job) -> None:
        """A driver that lost its lease hears an answer and wants to write it down."""
        if driver is self.driver or not driver.is_alive or job.is_probe:
            return
        op = Operation(job.step, job.item, Direction(job.direction))
        word = "ok" if job.answer.get("output") is not None else self.rng.choice(["reject", "retry", "lost_clean"])
        is_taken = self.log.append([make_outcome(self.now, self.rng, op, job, word)], driver.fence, driver.base)
        self._sync()
        self.happened["refused by the fence"] += not is_taken
        driver.is_alive = is_taken

    def _take_over(self, lost: Driver, calls_ended: bool) -> None:
        if self.driver is lost:
            self.claim(calls_ended=calls_ended)

    def pump(self) -> None:
        """Let the driver decide, commit, and make its calls, until it waits."""
        driver = self.driver
        while driver is not None and driver.is_alive and driver.has_lease and driver is self.driver:
            self._answer_requests(driver)
            turn = self._advance(driver)
            if not self.commit(driver, turn) or not self._start(driver, turn):
                return
            driver.then = turn.then
            if not isinstance(turn.then, EndCalls):
                self._go_to_sleep(driver, turn.then)
                return
            self._end_calls(driver, turn.then)

    def _advance(self, driver: Driver) -> Turn:
        slots = self.plan.trouble.slots - len(driver.flight)
        outlook = Outlook(self.now, slots, self.evaluator, self.missing)
        return advance(self.saga, driver.state, outlook, self.rng.randint)

    def _answer_requests(self, driver: Driver) -> None:
        state = driver.state
        for request in self.requests:
            if request.id not in state.answered and request not in state.deferred:
                self._fold(driver, answer_request(self.saga, state, request, self.now))

    def _fold(self, driver: Driver, record: Record) -> None:
        evolve(self.saga, driver.state, record)
        driver.queued.append(record)

    def commit(self, driver: Driver, turn: Turn) -> bool:
        """Make durable what was folded; False where the driver died or lost its lease over it."""
        batch = [*driver.queued, *turn.records]
        driver.queued.clear()
        if not batch:
            return True
        if self._strikes():
            self.happened["died before a commit"] += 1
            self.die(driver)
            return False
        if not self.log.append(batch, driver.fence, driver.base):
            self.happened["refused by the fence"] += 1
            driver.is_alive = False
            return False
        driver.base += len(batch)
        self._sync()
        self.seen.append((len(self.log.records), summarize(self.saga, driver.state)))
        if self._strikes():
            self.happened["died after a commit"] += 1
            self.die(driver)
            return False
        return True

    def _strikes(self) -> bool:
        if self.crashes_left <= 0 or self.rng.random() >= self.plan.trouble.crash_chance:
            return False
        self.crashes_left -= 1
        return True

    def _go_to_sleep(self, driver: Driver, then: Wait | EndCalls | Rest) -> None:
        if isinstance(then, Rest):
            self._come_to_rest(driver, then.status)
            return
        assert isinstance(then, Wait)
        if then.what in {"approval", "paused"}:
            attend(self, driver, then)
        if then.until_ms is not None:
            assert then.until_ms > self.now, f"V2: told to wait until {then.until_ms} at {self.now}"
            self.at(then.until_ms, lambda: self.wake(driver))

    def wake(self, driver: Driver) -> None:
        """Let *driver* look again, if it still drives."""
        if driver is self.driver and driver.is_alive:
            self.pump()

    # -- calls ----------------------------------------------------------------------------------------------------

    def _start(self, driver: Driver, turn: Turn) -> bool:
        for call in turn.calls:
            if self._strikes():
                self.happened["died before a call"] += 1
                self.die(driver)
                return False
            job = self._make_job(call)
            op = call.intent.operation if isinstance(call, MakeCall) else call.probe.operation
            driver.flight[op] = job
            if isinstance(call, MakeCall):
                self._script_call(driver, op, job)
            else:
                self._script_probe(driver, op, job, call)
        return True

    def _make_job(self, call: MakeCall | AskProbe) -> Job:
        self.jobs += 1
        record = call.intent if isinstance(call, MakeCall) else call.probe
        op = record.operation
        arguments = call.arguments
        effect_id = str(arguments["id"]) if isinstance(arguments, dict) and "id" in arguments else None
        return Job(
            number=self.jobs,
            step=op.step,
            item=op.item,
            direction=op.direction.value,
            attempt=call.intent.attempt if isinstance(call, MakeCall) else 0,
            asking=call.intent.asking if isinstance(call, MakeCall) else 0,
            fence=record.fence,
            key=call.intent.key if isinstance(call, MakeCall) else call.key,
            forward_key=call.forward_key,
            arguments=canonical(arguments),
            has_output=effect_id is not None,
            effect_id=effect_id,
            deadline_ms=record.deadline_ms,
            is_probe=isinstance(call, AskProbe),
        )

    def _script_call(self, driver: Driver, op: Operation, job: Job) -> None:
        rng = self.rng
        word = self.choose_word(op, job)
        self.happened[f"{job.direction} {word}"] += 1
        begin_ms = self.now + rng.choice([0, 0, 5])
        effect_ms = begin_ms + rng.choice([0, 1, 20, 300, 3_000])
        answer_ms = effect_ms + rng.choice([0, 1, 30, 900, 3_000])
        self.at(begin_ms, lambda: self._if_running(driver, job, lambda: self.world.begin(job)))
        if word in {"ok", "lost", "misfit", "hang", "pending_done"}:
            self.at(effect_ms, lambda: self._if_running(driver, job, lambda: self._act(job)))
        if word not in {"hang", "hang_clean"}:
            self.at(answer_ms, lambda: self.deliver(driver, op, job, word))
            if rng.random() < 0.1:
                self.at(answer_ms + rng.choice([0, 1, 5_000]), lambda: self.deliver(driver, op, job, word))
        self.at(job.deadline_ms, lambda: self._time_out(driver, op, job))

    def choose_word(self, op: Operation, job: Job) -> str:
        """Draw what the call will come to."""
        weights = self.weights if job.direction == "action" else self.undo_weights
        word = self.rng.choices(ANSWERS, weights=weights)[0]
        call = self.saga.by_id[op.step].action if op.direction is Direction.ACTION else self._undo_of(op)
        if call.schedule_to_close_ms is not None and self.rng.random() < 0.3:
            word = self.rng.choice(["pending", "pending_done"])
        if job.asking > 1 and word not in {"ok", "pending"} and self._has_acted(job):
            return "lost"  # a target that has acted doesn't say that it has not
        return word

    def _has_acted(self, job: Job) -> bool:
        return job.key in self.world.answered if job.direction != "action" else self.world.is_there(job.forward_key)

    def _undo_of(self, op: Operation) -> Call:
        undo = self.saga.by_id[op.step].compensation
        assert undo is not None
        return undo

    def _if_running(self, driver: Driver, job: Job, what: Callable[[], None]) -> None:
        if driver.has_lease and not job.has_ended:
            what()

    def _act(self, job: Job) -> None:
        job.answer["output"] = self.world.act(job)

    def _is_awaited(self, driver: Driver, op: Operation, job: Job) -> bool:
        return driver.flight.get(op) is job and driver.is_alive and driver.has_lease and not job.has_ended

    def deliver(self, driver: Driver, op: Operation, job: Job, word: str) -> None:
        """Bring an answer to its driver, who may have lost the lease, timed out, or heard it before."""
        if not self._is_awaited(driver, op, job):
            self.happened["answer ignored"] += 1
            return
        self.world.end(job)
        if self._strikes():
            self.happened["died between effect and record"] += 1
            self.die(driver)
            return
        self._take_answer(driver, op, make_outcome(self.now, self.rng, op, job, word))

    def _take_answer(self, driver: Driver, op: Operation, record: Record) -> None:
        del driver.flight[op]
        self._fold(driver, record)
        self.pump()

    def _script_probe(self, driver: Driver, op: Operation, job: Job, call: AskProbe) -> None:
        self.world.begin(job)
        word = self.rng.choices(["truth", "dunno", "hang"], weights=[7, 2, 1])[0]
        if word != "hang":
            self.at(self.now + self.rng.choice([1, 40]), lambda: self._answer_probe(driver, op, job, call, word))
        self.at(job.deadline_ms, lambda: self._answer_probe(driver, op, job, call, "dunno"))

    def _answer_probe(self, driver: Driver, op: Operation, job: Job, call: AskProbe, word: str) -> None:
        if not self._is_awaited(driver, op, job):
            return
        self.world.end(job)
        answer, output = self._ask_world(job) if word == "truth" else (ProbeAnswer.CANNOT_TELL, None)
        self.happened[f"probe {job.direction} {answer}"] += 1
        asked = call.probe
        common = (op, asked.number, asked.fence, asked.tool, asked.deadline_ms)
        self._take_answer(driver, op, Probe(self.now, *common, answer=answer, output=output))

    def _ask_world(self, job: Job) -> tuple[ProbeAnswer, Json]:
        if job.direction == "compensation":
            return (ProbeAnswer.DONE if job.key in self.world.answered else ProbeAnswer.NOT_DONE), None
        found = self.world.tell_output(job.forward_key)
        if self.world.traits[job.step].is_read_only:
            return ProbeAnswer.NOT_DONE, None
        return (ProbeAnswer.DONE, {"id": found}) if found is not None else (ProbeAnswer.NOT_DONE, None)

    def _time_out(self, driver: Driver, op: Operation, job: Job) -> None:
        if not self._is_awaited(driver, op, job):
            return
        self.world.end(job)
        self.happened["timed out"] += 1
        failure = Failure("timeout", f"{op} gave no answer at {job.attempt}")
        self._take_answer(driver, op, Outcome(self.now, op, job.attempt, OutcomeKind.UNKNOWN, failure=failure))

    def _end_calls(self, driver: Driver, then: EndCalls) -> None:
        for op in then.operations:
            job = driver.flight.pop(op)
            self.world.end(job)
            self.happened["ended a call"] += 1
            failure = Failure("ended", f"{op} did not settle")
            if job.is_probe:
                asked = next(
                    record
                    for record in reversed(self.log.records)
                    if isinstance(record, Probe) and record.operation == op
                )
                probe = replace(asked, at_ms=self.now, answer=ProbeAnswer.CANNOT_TELL)
                self._fold(driver, probe)
            else:
                self._fold(driver, Outcome(self.now, op, job.attempt, OutcomeKind.UNKNOWN, failure=failure))

    # -- people ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        verb: Verb,
        op: Operation | None = None,
        how: Resolution | None = None,
        output: Json = None,
        *,
        is_past_pivot: bool = False,
        digest: str | None = None,
    ) -> None:
        """Ask something of the run; where nobody drives it, the command takes the lease itself (E22)."""
        name = f"q{len(self.requests) + 1}"
        has_reason = verb is not Verb.RETRY or len(self.requests) % 2 == 0
        reason = f"because of {name}" if has_reason else None
        request = Request(name, verb, "eva", reason, op, how, output, is_past_pivot, digest)
        self.requests.append(request)
        self.happened[f"asked {verb}"] += 1
        driver = self.driver
        if driver is not None and driver.is_alive and driver.has_lease:
            if isinstance(driver.then, Rest):
                self.claim(calls_ended=True)
            else:
                self.pump()

    def _come_to_rest(self, driver: Driver, status: RunStatus) -> None:
        self.is_fold_equal &= replay(self.saga, self.log.records) == driver.state
        self.happened[f"rest {status}"] += 1
        trouble = self.plan.trouble
        if status is RunStatus.STUCK:
            if trouble.is_operator_patient and self.operator_acts < 12:
                self.at(self.now + self.rng.choice([10, 5_000, 60_000]), partial(decide_letter, self))
            return
        if trouble.after_end is not None and not self.has_asked_after_end:
            self.has_asked_after_end = True
            verb, is_past = Verb(trouble.after_end), self.rng.random() < 0.6
            self.at(self.now + 1_000, lambda: self.submit(verb, is_past_pivot=is_past))

    # -- the end --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Resume a run at rest once more: nothing may be called or decided (C5)."""
        assert self.driver is not None
        if isinstance(self.driver.then, Rest) and self.driver.is_alive:
            self.claim(calls_ended=True)
            self.drain()

    @property
    def is_at_rest(self) -> bool:
        """Tell whether the run came to rest."""
        return self.driver is not None and isinstance(self.driver.then, Rest)
