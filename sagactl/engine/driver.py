"""The one loop that carries out what the core decides, for any number of runs of one process.

How it turns
------------
1. *Take in* everything that has happened: answers of calls, operators' requests, timers, signals.
2. *Advance* each run that it touched: the core decides, records pile up (see `core.advance`).
3. *Commit* what piled up in all runs in one durable transaction (rule E2): the outcome of a call and the intents of the
   calls that follow it, of all runs together. A run alone pays one commit between two effects and no thread change.
4. *Then* make the calls whose intents are durable now (E1), and let go of runs that rest or only wait.

What it never does
------------------
* It never takes storage trouble for a step's failure: an error of the log goes up at once, nothing more is called, and
  what was under way is in doubt for whoever resumes (E18).
* It never relies on a lease that may have run out: every call is checked at the last moment, on its own thread, and the
  whole driver stops in time for its calls to end before another driver may begin (E15, C3).
* It never lets an answer count twice: an answer is taken only from the call that is under way now.

The loop is turned by one thread at a time: the one that called `drive`, or a worker that it is lent to (`relay`).
Other threads only put events into its inbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Final

from sagactl.core.definition import read_definition
from sagactl.core.operators import answer_request
from sagactl.core.records import Cause, Holder, Record
from sagactl.core.saga import Saga
from sagactl.core.world import AskProbe, EndCalls, MakeCall, Wait
from sagactl.engine.calls import CallStarter, CallUnderWay, judge_reply
from sagactl.engine.clock import Clock, SystemClock
from sagactl.engine.dispatch import Dispatcher
from sagactl.engine.ending import Ending, Why
from sagactl.engine.guards import Question
from sagactl.engine.inbox import Inbox
from sagactl.engine.lease_keeper import LeaseKeeper
from sagactl.engine.parting import Parting, make_ending
from sagactl.engine.run import Evaluate, Run, keep_answers, take_up, take_up_again
from sagactl.engine.settings import Committed, Settings
from sagactl.engine.slots import Slots
from sagactl.engine.timetable import Timetable
from sagactl.engine.translate import make_call, make_hanging, make_record
from sagactl.engine.turning import take_turn
from sagactl.engine.workers import shared_workers
from sagactl.errors import InternalError, LeaseLostError, SagactlError, StorageError
from sagactl.log.base import Captured, Creation, Lease, Log, NewRun
from sagactl.tools.base import Toolbox

CALLS_IN_A_ROW_MAX: Final = 32
"""How many calls a run makes before others that wait for a slot have their turn."""

REQUEST_LOOK_SECONDS: Final = 0.02
REQUEST_POLL_SECONDS: Final = 0.5
"""How often requests from other processes are looked for (E22): between calls at most, and while nothing happens."""


class Driver:
    """Drives runs of one log with the tools of one project; see the essay above."""

    def __init__(
        self,
        log: Log,
        toolbox: Toolbox,
        *,
        evaluate: Evaluate,
        holder: Holder,
        project: Path,
        draw: Callable[[int, int], int],
        clock: Clock | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._log = log
        self._toolbox = toolbox
        self._evaluate = evaluate
        self._holder = holder
        self._project = project
        self._draw = draw
        self._clock = clock or SystemClock()
        self._settings = settings or Settings()
        self._runs: dict[str, Run] = {}
        self._dirty: dict[str, None] = {}
        """Runs that something happened to: to be advanced."""
        self._changed: dict[str, None] = {}
        """Runs that were advanced or folded since the last commit."""
        self._to_ask: list[Question] = []
        self._slots = Slots(self._settings.calls_max)
        self._timetable = Timetable()
        self._parting = Parting(self._clock, self._settings)
        self._definitions: dict[str, Saga] = {}
        self._endings: dict[str, Ending] = {}
        self._listeners: list[Callable[[Committed], None]] = []
        self._last_request_poll = 0.0
        self.is_breaking_off = False
        self._trouble: Exception | None = None
        self._inbox = Inbox()
        self._workers = shared_workers()
        self._keeper = self._make_keeper()
        self._dispatcher = self._make_dispatcher()

    def _make_keeper(self) -> LeaseKeeper:
        return LeaseKeeper(
            self._log,
            self._clock,
            lambda lost: self.post(partial(self._on_lost, lost)),
            self._workers.submit,
            self._end_calls,
            lease_ms=self._settings.lease_ms,
            heartbeat_ms=self._settings.heartbeat_ms,
        )

    def _make_dispatcher(self) -> Dispatcher:
        starter = CallStarter(
            self._toolbox,
            self._workers,
            self._clock,
            may_call=lambda call: self._keeper.seconds_left(call.run_id) > 0,
            answered=lambda call: self.post(partial(self._on_answer, call)),
        )
        return Dispatcher(starter, self._workers)

    # What others call

    def subscribe(self, listener: Callable[[Committed], None]) -> None:
        """Tell *listener* of records once they are durable, on the thread that turns the loop; it must not raise."""
        self._listeners.append(listener)

    def create(self, new: NewRun, saga: Saga) -> Creation:
        """Create a run and take it over; where its key is taken, only say so (E8)."""
        asked_at = self._clock.monotonic()
        creation = self._log.create(new, holder=self._holder)
        if creation.lease is not None:
            self._keeper.hold(creation.lease, asked_at)
            self._take_over(creation.lease, saga, creation.records)
        return creation

    def adopt(self, run_id: str) -> None:
        """Take an existing run over; raises BusyError while another driver has it, NotFoundError."""
        digest = self._log.row(run_id).definition
        if digest not in self._definitions:
            self._definitions[digest] = read_definition(self._log.definition(digest))
        asked_at = self._clock.monotonic()
        lease = self._log.claim(run_id, holder=self._holder)
        self._keeper.hold(lease, asked_at)
        try:
            self._toolbox.end_orphans(run_id)  # E17: before anything is decided
            self._take_over(lease, self._definitions[digest], (stored.record for stored in self._log.read(run_id)))
        except BaseException:  # a signal's too: nothing was called, so nobody has to wait for the lease to run out
            self._runs.pop(run_id, None)
            self._keeper.drop(lease)
            self._log.release([lease])
            raise
        self._answer_requests([run_id])

    def drive(
        self, *, only_record: bool = False, is_over: Callable[[dict[str, Ending]], bool] = lambda _: True
    ) -> dict[str, Ending]:
        """Drive all runs until each rests or waits for something that isn't waited for here; return how each ended.

        With *only_record*, answers to requests are made durable and nothing else is begun. *is_over* is asked in each
        turn, with the endings so far, which it may take out; while it says no, a driver without runs stays for more.
        Raises StorageError at the first trouble with the log, LeaseLostError when its leases can't be kept. Any other
        exception, a signal's or a listener's, comes out once all runs are let go of, as after `interrupt`.
        """
        if only_record:
            self._parting.stop()
        try:
            self._turn_loop(is_over)
        except (StorageError, LeaseLostError):
            raise
        except BaseException:
            self._settle()
            self._turn_loop(lambda endings: is_over(endings) or True)
            raise
        else:
            return self._endings
        finally:
            self._end_calls()
            self._keeper.close()

    def _turn_loop(self, is_over: Callable[[dict[str, Ending]], bool]) -> None:
        self._dispatcher.turn_loop(
            lambda: self._turn(is_over), wait=self._wait, look=self._look, take_answer=self._on_answer
        )

    def _settle(self) -> None:
        """Stop on what the log says: an exception may have left runs half-way, and answers untold."""
        self._parting.stop()
        self.is_breaking_off = True
        for run_id, run in list(self._runs.items()):
            self._runs[run_id] = take_up_again(run, self._log, now_ms=self._clock.now_ms())
            self._changed[run_id] = None
        for call in self.calls_under_way():
            if call.answered_at:
                self.post(partial(self._on_answer, call))
        self._slots.taken = len(self.calls_under_way())

    @property
    def is_turned_here(self) -> bool:
        """Tell whether this very thread turns the loop now, so that it may do with the driver as it likes."""
        return self._dispatcher.turning_thread == get_ident()

    def _turn(self, is_over: Callable[[dict[str, Ending]], bool]) -> bool:
        """Advance, commit, begin calls; return whether there is anything left to drive."""
        self._check_trouble()
        if self._dirty:  # what comes next may be the pivot, or the end: whoever asked before shall be heard before
            self._poll_requests(REQUEST_LOOK_SECONDS)
        self._advance_all()
        self._commit()
        self._let_go()
        self._ask_guards()
        return not is_over(self._endings) or bool(self._runs)

    def _wait(self) -> None:
        self._inbox.take(self._seconds_to_sleep())
        self._tick()

    def _look(self) -> None:
        self._inbox.take_at_once()
        self._tick()

    def interrupt(self) -> None:
        """Start nothing new, let running calls settle within the grace, then let go (E17). From any thread."""
        self.post(self._parting.stop)

    def post(self, event: Callable[[], None]) -> None:
        """Have *event*, which must not raise, run between two turns of the loop. From any thread."""
        self._inbox.put(event)

    def calls_under_way(self) -> list[CallUnderWay]:
        """Return the calls that were started and have not answered. From any thread or signal handler."""
        return [call for run in list(self._runs.values()) for call in list(run.under_way.values())]

    # Taking over and letting go

    def _take_over(self, lease: Lease, saga: Saga, log: Iterable[Record]) -> None:
        records = tuple(log)
        run = take_up(lease, saga, records, self._toolbox, self._evaluate, now_ms=self._clock.now_ms())
        self._runs[lease.run_id] = run
        self._dirty[lease.run_id] = None
        self._endings.pop(lease.run_id, None)
        self._tell(run, 1, records)

    def _let_go(self) -> None:
        touched = self._runs if self._parting.is_stopping else self._changed
        found = [self._runs[run_id] for run_id in touched if run_id in self._runs]
        leaving = [(run, why) for run in found if (why := self._parting.why_leave(run)) is not None]
        self._changed.clear()
        for run, why in leaving:
            self._forget(run, why)
        held = [run.lease for run, _ in leaving if not run.is_released]
        if held:
            self._log.release(held)

    def _forget(self, run: Run, why: Why, *, error: SagactlError | None = None) -> None:
        for call in run.under_way.values():
            call.tell_to_end(self._clock.monotonic())
            self._timetable.forget(call)
        self._slots.taken -= len(run.under_way)
        self._slots.hold(run.run_id, 0)
        self._endings[run.run_id] = make_ending(run, why, error)
        self._keeper.drop(run.lease)
        del self._runs[run.run_id]
        self._dirty.pop(run.run_id, None)

    def _end_calls(self) -> None:
        for call in self.calls_under_way():
            call.tell_to_end(self._clock.monotonic())

    # Advancing

    def _advance_all(self) -> None:
        if self._parting.is_stopping:
            self._dirty.clear()
            return
        dirty, self._dirty = self._dirty, {}
        for run_id in dirty:
            self._advance_one(run_id)
        while (starved := self._slots.next_run()) is not None:
            self._advance_one(starved)

    def _advance_one(self, run_id: str) -> None:
        """A run that has begun goes on before others begin, so that few are half-way; but not for ever."""
        run = self._runs.get(run_id)
        if run is None:
            return
        self._slots.hold(run_id, 0)  # of what it has asked: an answer passes its slot on to the call
        slots = self._slots.free
        if self._slots.are_wanted and run.calls_in_a_row >= CALLS_IN_A_ROW_MAX:
            run.calls_in_a_row = slots = 0
        self._guard(run, partial(self._advance, run, slots))

    def _guard(self, run: Run, action: Callable[[], None]) -> None:
        """Do something that touches one run only; a bug met there lets go of that run, and the others go on (V6).

        The answers that had come in are kept, nothing new is called, and whoever resumes the run begins from there.
        """
        known = len(run.records)
        try:
            action()
        except Exception as error:
            keep_answers(run, self._log, known)
            found = error if isinstance(error, SagactlError) else InternalError(f"{type(error).__name__}: {error}")
            found.__cause__ = error.__cause__ or error
            self._forget(run, Why.BROKEN, error=found)
            self._log.release([run.lease])

    def _advance(self, run: Run, slots: int) -> None:
        turn = take_turn(run, self._now_ms(run), slots, self._draw, now=self._clock.monotonic())
        run.queue(turn)
        self._slots.taken += len(turn.calls)
        self._slots.hold(run.run_id, len(run.questions))
        self._to_ask += [question for question in run.questions.values() if not question.is_begun]
        self._changed[run.run_id] = None
        match turn.then:
            case EndCalls(operations):
                for operation in operations:
                    run.under_way[operation].tell_to_end(self._clock.monotonic(), "not settled in settle_timeout")
            case Wait():
                self._note_wait(run, turn.then)

    def _note_wait(self, run: Run, wait: Wait) -> None:
        if wait.what == "slot":
            self._slots.queue(run.run_id)
        if wait.what in {Cause.MISSING_TOOL, Cause.MISSING_SECRET} and not run.questions:
            self._fold(run, run.hold_up(wait, self._now_ms(run)))
            return
        if wait.until_ms is not None:
            if wait.until_ms == run.wake_ms:
                return
            run.wake_ms = wait.until_ms
            self._timetable.wake(run.run_id, self._clock.monotonic() + (wait.until_ms - self._now_ms(run)) / 1000)
        elif run.is_waiting_for_timer:
            raise InternalError(f"run {run.run_id} has nothing to do and nothing to wait for")

    def _fold(self, run: Run, record: Record) -> None:
        run.fold(record)
        self._changed[run.run_id] = None

    def _now_ms(self, run: Run) -> int:
        return self._clock.now_ms() + run.skew_ms

    # Committing and calling

    def _commit(self) -> None:
        changed = [run for run_id in self._changed if (run := self._runs.get(run_id)) is not None and run.records]
        if not changed:
            return
        refused = self._log.append([run.make_batch(run.records) for run in changed])
        if refused:
            self._on_lost(refused)
        for run in changed:
            if run.run_id not in self._runs:
                continue
            first_seq, records = run.committed_seq + 1, tuple(run.records)
            run.is_released = run.is_finished
            run.committed_seq = run.state.seq
            run.records.clear()
            run.captured.clear()
            to_make, run.to_make = run.to_make, []
            for call in to_make:
                self._start(run, call)
            if self._listeners:
                self._tell(run, first_seq, records)

    def _tell(self, run: Run, first_seq: int, records: tuple[Record, ...]) -> None:
        for listener in self._listeners:
            listener(Committed(run.run_id, run.saga, run.state, first_seq, records))

    def _start(self, run: Run, making: MakeCall | AskProbe) -> None:
        call = make_call(run.run_id, making, self._now_ms(run), self._clock.monotonic(), self._project)
        run.under_way[call.operation] = call
        self._timetable.watch(call, call.deadline)
        self._dispatcher.begin(call, is_alone=self._slots.is_one_taken)

    def _ask_guards(self) -> None:
        questions, self._to_ask = self._to_ask, []
        for question in questions:
            is_wanted = question.run_id in self._runs and not self._parting.is_stopping
            if is_wanted and not question.is_begun:  # a run may have had two turns since
                question.is_begun = True
                self._workers.submit(partial(question.ask, self._clock, self._post_told))

    def _post_told(self, question: Question) -> None:
        self.post(partial(self._on_told, question))

    def _on_told(self, question: Question) -> None:
        """A guard has answered: its run's turn is taken anew, unless it asks for that no more."""
        run = self._runs.get(question.run_id)
        if run is not None and question in run.questions.values():
            self._dirty[question.run_id] = None

    # Events

    def _on_answer(self, call: CallUnderWay) -> None:
        self._dispatcher.note(call)
        run = self._runs.get(call.run_id)
        if call.reply is None:
            self._on_not_called(call)
            return
        if run is None or run.under_way.get(call.operation) is not call:
            return
        del run.under_way[call.operation]
        self._timetable.forget(call)
        self._slots.taken -= 1
        reply = judge_reply(call, call.reply, call.answered_at, call.invocation.seconds_left)
        if reply.printed:
            run.captured.append(Captured(call.operation, call.number, reply.printed))
        record = make_record(call, reply, self._now_ms(run), run.state.fence)
        self._dirty[run.run_id] = None
        self._guard(run, partial(self._fold, run, record))

    def _on_not_called(self, call: CallUnderWay) -> None:
        self._trouble = self._keeper.explain_loss(call.run_id)

    def _on_lost(self, lost: Iterable[Lease]) -> None:
        for lease in lost:
            run = self._runs.get(lease.run_id)
            if run is not None and run.lease == lease:
                self._forget(run, Why.LEASE_LOST)

    def _poll_requests(self, seconds: float) -> None:
        now = self._clock.monotonic()
        if now - self._last_request_poll >= seconds and not self._parting.is_stopping:
            self._last_request_poll = now
            self._answer_requests(list(self._runs))

    def _answer_requests(self, run_ids: list[str]) -> None:
        for run_id, request in self._log.requests(run_ids):
            run = self._runs[run_id]
            if request.id in run.state.answered or request in run.state.deferred:
                continue
            self._fold(run, answer_request(run.saga, run.state, request, self._now_ms(run)))
            self._dirty[run_id] = None

    # Time

    def _tick(self) -> None:
        now = self._clock.monotonic()
        for run_id in self._timetable.take_runs(now):
            self._dirty[run_id] = None
            if run_id in self._runs:
                self._runs[run_id].wake_ms = None
        for call in self._timetable.take_calls(now):
            self._on_deadline(call, now)
        self._poll_requests(REQUEST_POLL_SECONDS)

    def _on_deadline(self, call: CallUnderWay, now: float) -> None:
        """E14: at the deadline the call is told to end; after the grace the run waits for it."""
        run = self._runs.get(call.run_id)
        if run is None or run.under_way.get(call.operation) is not call:
            return
        if call.told_to_end_at is None or now - call.told_to_end_at < self._settings.grace_ms / 1000:
            call.tell_to_end(now)
            self._timetable.watch(call, now + self._settings.grace_ms / 1000)
            return
        self._fold(run, make_hanging(call, self._now_ms(run)))

    def _seconds_to_sleep(self) -> float:
        now = self._clock.monotonic()
        times = [REQUEST_POLL_SECONDS, self._keeper.soonest_seconds_left()]
        next_at = self._timetable.next_at()
        if next_at is not None:
            times.append(next_at - now)
        if self._slots.are_wanted and self._slots.free > 0:
            times.append(0.0)
        return max(0.0, min(times))

    def _check_trouble(self) -> None:
        if self._trouble is not None:
            raise self._trouble
        if self._runs and self._keeper.soonest_seconds_left() <= 0:
            raise self._keeper.explain_loss(next(iter(self._runs)))
