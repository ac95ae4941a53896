"""A project's driver as programs use it: start runs, resume them, ask things of them, and be told what became of them.

It stands around the engine's driver, which belongs to the one thread that turns its loop. Here every method may be
called from any thread: while somebody drives, what is asked is done between two turns of the loop, and the caller waits
for it.

Two ways to drive
-----------------
* `drive` stays until all runs rest, and returns how each ended. More runs may be added meanwhile, and afterwards it may
  be called again.
* `serve` stays until `interrupt`, also when there is nothing to do: the thread of a service. `wait` gives the ending of
  one run to whoever started it.

A run that is in the hands of a driver can't be taken over by another one; leaving the `with` of a driver lets go of all
of them, and whoever resumes a run goes on from its log.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar, cast

from sagactl.core.records import AT_REST, Origin, Request, RunStatus, Verb
from sagactl.core.saga import Saga
from sagactl.driving.endings import Endings
from sagactl.driving.listeners import Listeners
from sagactl.engine.ending import Ending, Why
from sagactl.errors import MisuseError, NotFoundError, StorageError, check_argument, check_run_id
from sagactl.identity import who_am_i
from sagactl.requests import make_request

if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import TracebackType

    from sagactl.core.canonical import Json
    from sagactl.engine.calls import CallUnderWay
    from sagactl.engine.driver import Driver as Engine
    from sagactl.engine.settings import Committed
    from sagactl.log.base import Log, NewRun

T = TypeVar("T")


class Home(Protocol):
    """What a driver needs of its project."""

    def log(self) -> Log:
        """Return the log."""
        ...

    def make_run(
        self, saga: Saga, inputs: object, *, key: str | None, requested_by: str, origin: Origin | None = None
    ) -> NewRun:
        """Return what a run begins with; raises InvalidError."""
        ...

    def read(self, run_id: str) -> Committed:
        """Return what the log says of a run."""
        ...


class Driver:
    """Drives runs of one project; see the essay above. A context manager, which lets go of its runs at the end."""

    def __init__(self, home: Home, make_engine: Callable[[], Engine]) -> None:
        self._home = home
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._condition = threading.Condition()
        self._thread: int | None = None
        """Who drives; None while nobody does."""
        self._is_serving = False
        self._is_stopping = False
        self._is_closed = False
        self._pid = os.getpid()
        self._was_stopped = False
        """`serve` was interrupted, and nobody has driven since."""
        self._held: set[str] = set()
        """Runs in our hands: the engine's, as the other threads may know it."""
        self._tasks: list[Future[object]] = []
        self._failure: BaseException | None = None
        self._endings = Endings()
        self._listeners = Listeners(self._endings.watch, is_breaking_off=self._is_breaking_off)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What is to be driven

    def start(
        self,
        saga: Saga,
        inputs: Mapping[str, object] | Json = None,
        *,
        key: str | None = None,
        requested_by: str | None = None,
        origin: Origin | None = None,
    ) -> str:
        """Create a run of *saga*, to be driven here, and return its id.

        A *key* makes a second `start` the same run, for ever: its id is returned, nothing is called, and its ending has
        `why` `EXISTING` (E8). Raises InvalidError where the inputs don't fit, RefusedError where the key belongs to
        other inputs.
        """
        self._check_takes_runs()
        check_argument(saga, Saga, "a saga", hint="`project.load(name)` gives one")
        check_argument(requested_by, (str, type(None)), "requested_by, a text,", hint="leave it out")
        given = {} if inputs is None else inputs
        new = self._home.make_run(saga, given, key=key, requested_by=requested_by or who_am_i(), origin=origin)

        def create(engine: Engine) -> str:
            creation = engine.create(new, saga)
            if creation.is_new:
                self._held.add(creation.run_id)
            elif creation.run_id not in self._held:
                self._note(self._read_ending(creation.run_id, Why.EXISTING))
            return creation.run_id

        return self._do(create)

    def resume(self, run_id: str) -> None:
        """Carry on with a run from its log; one that has ended is only reported, whatever was asked of it since (E22).

        Raises BusyError while another driver has it, NotFoundError.
        """
        self._check_takes_runs()
        check_run_id(run_id)
        log = self._home.log()
        status = log.row(run_id).status
        # What was asked of a run that had ended by then is answered when somebody asks again, never by a resume.
        if status in AT_REST and (status is not RunStatus.STUCK or not log.requests([run_id])):
            with self._condition:
                self._note(self._read_ending(run_id, Why.AT_REST))
            return
        self._do(partial(self._adopt, run_id))

    def rollback(self, run_id: str, *, reason: str | None = None, past_pivot: bool = False) -> None:
        """Undo what a run has done; see `ask`."""
        self.ask(run_id, make_request(Verb.ROLLBACK, reason=reason, past_pivot=past_pivot))

    def cancel(self, run_id: str, *, reason: str | None = None) -> None:
        """Turn a run around before its pivot; see `ask`."""
        self.ask(run_id, make_request(Verb.CANCEL, reason=reason))

    def terminate(self, run_id: str, *, reason: str) -> None:
        """End a run as it stands, with nothing undone; see `ask`."""
        self.ask(run_id, make_request(Verb.TERMINATE, reason=reason))

    def ask(self, run_id: str, request: Request) -> None:
        """Write a request down, to be answered by the rules when the run is driven (E22).

        A refusal is recorded like any answer, and comes as the `error` of the run's ending. Raises NotFoundError, and
        BusyError while another driver has the run: that one will answer.
        """
        self._check_takes_runs()
        check_run_id(run_id)
        check_argument(request.reason, (str, type(None)), "a reason, a text,", hint="leave it out, or say why")
        self._home.log().ask(run_id, request)
        with self._condition:
            self._endings.expect(run_id, request)
        self._do(partial(self._adopt, run_id))

    def _adopt(self, run_id: str, engine: Engine) -> None:
        if run_id in self._held:
            return
        engine.adopt(run_id)
        self._held.add(run_id)

    def subscribe(self, listener: Callable[[Committed], None]) -> Callable[[], None]:
        """Tell *listener* of records once they are durable; return what ends that. Subscribe before runs are added.

        It is called on whichever thread turns the loop, a worker's too, or the one that starts a run, and may start or
        ask things itself. What it raises is logged (logger `sagactl`) and costs no run anything; an exit, such as
        SystemExit, ends the driving. While it works, nothing else happens.
        """
        return self._listeners.add(listener)

    # Driving

    def drive(self, *, only_record: bool = False) -> dict[str, Ending]:
        """Drive all runs until each rests or waits for something that isn't waited for here; return how each ended.

        With *only_record*, answers to requests are made durable and nothing else is begun. Raises StorageError at the
        first trouble with the log, LeaseLostError when leases can't be kept: then nothing more was called, and the runs
        can be resumed.
        """
        self._check_open()
        self._listeners.check_not_within("drive")
        self._turn(is_serving=False, only_record=only_record)
        with self._condition:
            return self._endings.take_round()

    def serve(self) -> None:
        """Drive runs until `interrupt`, and stay while there are none; raises as `drive`. `wait` gives the endings."""
        self._check_open()
        self._listeners.check_not_within("serve")
        self._turn(is_serving=True, only_record=False)

    def wait(self, run_id: str, timeout_seconds: float | None = None) -> Ending:
        """Return the ending of a run that another thread drives.

        Raises TimeoutError, NotFoundError where the run isn't driven here, and whatever ended the driving.
        """
        self._check_process()
        check_run_id(run_id)
        with self._condition:
            if run_id in self._held:
                self._listeners.check_not_within("wait")
            if not self._condition.wait_for(lambda: run_id not in self._held, timeout_seconds):
                raise TimeoutError(f"run {run_id} has not ended within {timeout_seconds} seconds")
            if (ending := self._endings.find(run_id)) is not None:
                return ending
            if self._failure is not None:
                raise self._failure
        raise NotFoundError(f"run {run_id} is not driven here", code="no-such-run", hint=f"sagactl show {run_id}")

    def interrupt(self) -> None:
        """Start nothing new, let running calls settle within the grace, then let go of all runs (E17).

        From any thread or signal handler. `drive` and `serve` return; the runs can be resumed. While nobody drives
        it is kept, so that none is lost that comes just before: the next `drive` or `serve` returns at once.
        """
        self._is_stopping = True
        engine = self._engine
        if engine is not None:
            engine.interrupt()

    def close(self) -> None:
        """Let go of all runs, after whoever drives has returned; from now on no run is taken."""
        if os.getpid() != self._pid:
            return  # the `with` of a forked child: everything is its parent's
        self._listeners.check_not_within("close")
        with self._condition:
            self._is_closed = True
            if self._thread is not None:
                self.interrupt()
                self._condition.wait_for(lambda: self._thread is None)
        self._turn(is_serving=False, only_record=True)  # also what a run that broke off while it was begun has left

    def calls_under_way(self) -> list[CallUnderWay]:
        """Return the calls that were started and have not answered."""
        return [] if self._engine is None else self._engine.calls_under_way()

    # One thread drives, the others leave tasks to it

    def _do(self, action: Callable[[Engine], T]) -> T:
        """Do something with the engine, here or on the thread that drives; raises what it raises."""
        with self._condition:
            engine = self._get_engine()
            if self._thread is None or engine.is_turned_here:
                return action(engine)
            from concurrent.futures import Future

            task: Future[T] = Future()
            self._tasks.append(cast("Future[object]", task))
            engine.post(partial(self._perform, task, action))
        return task.result()

    def _perform(self, task: Future[T], action: Callable[[Engine], T]) -> None:
        with self._condition:
            self._tasks.remove(cast("Future[object]", task))
            try:
                task.set_result(action(self._get_engine()))
            except Exception as error:  # the caller's to handle, whose thread is another one
                task.set_exception(error)

    def _get_engine(self) -> Engine:
        if self._engine is None:
            self._engine = self._make_engine()
            self._engine.subscribe(self._listeners.tell)
        return self._engine

    def _turn(self, *, is_serving: bool, only_record: bool) -> None:
        engine = None
        try:
            with self._condition:
                self._check_free()
                self._was_stopped = False
                if self._engine is None and not is_serving:
                    self._leave()  # nothing was begun here: no engine is made, no plugin imported
                    return
                engine = self._get_engine()
                begins_nothing = only_record or self._is_stopping
                self._thread, self._is_serving, self._failure = threading.get_ident(), is_serving, None
            engine.drive(only_record=begins_nothing, is_over=self._is_over)
        except BaseException as error:
            self._fail(error, engine)
            raise

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            message = "the driver belongs to the process that this one was forked from, and so do its threads and runs"
            raise MisuseError(message, code="forked", hint="open the project again in this process: `open_project(…)`")

    def _check_open(self) -> None:
        self._check_process()
        if self._is_closed:
            raise MisuseError("the driver is closed", code="closed", hint="take another one: `project.driver()`")

    def _check_takes_runs(self) -> None:
        """Raise MisuseError where nobody would drive a run that is added now."""
        self._check_open()
        if self._was_stopped or (self._is_serving and self._is_stopping):
            hint = "`serve` or `drive` first, or take another driver: `project.driver()`"
            raise MisuseError("`serve` was interrupted, and nobody drives", code="interrupted", hint=hint)

    def _check_free(self) -> None:
        if self._thread is not None:
            message = "another thread drives already, and a driver is driven by one"
            raise MisuseError(message, code="already-driving", hint="start runs from any thread, and `wait` for them")

    def _is_over(self, endings: dict[str, Ending]) -> bool:
        with self._condition:
            for run_id in list(endings):
                self._note(endings.pop(run_id))
            if self._held or self._tasks or (self._is_serving and not self._is_stopping):
                return False
            self._leave()
            return True

    def _leave(self) -> None:
        """From now on nobody drives; an engine drives once, so the next one needs another."""
        self._was_stopped = self._was_stopped or (self._is_serving and self._is_stopping)
        self._thread, self._engine, self._is_serving, self._is_stopping = None, None, False, False
        self._condition.notify_all()

    def _fail(self, error: BaseException, engine: Engine | None) -> None:
        with self._condition:
            if engine is not self._engine or self._thread != threading.get_ident():
                return  # it wasn't driven, or let go of all runs: what is here is another's by now
            if isinstance(error, StorageError):
                _name_runs(error, sorted(self._held))
            self._failure = error
            self._held.clear()
            tasks, self._tasks = self._tasks, []
            self._leave()
        for task in tasks:
            task.set_exception(error)

    # What others are told

    def _note(self, ending: Ending) -> None:
        self._held.discard(ending.run_id)
        self._endings.note(ending, is_of_round=not self._is_serving)
        self._condition.notify_all()

    def _read_ending(self, run_id: str, why: Why) -> Ending:
        return Ending(run_id, self._home.read(run_id).summary, why)

    def _is_breaking_off(self) -> bool:
        return self._engine is not None and self._engine.is_breaking_off


_AGAIN: Final = "type the same again"
"""What whoever broke nothing off is told; where runs were broken off, it is their resume that goes on."""


def _name_runs(error: StorageError, run_ids: list[str]) -> None:
    """Say with trouble of the log which runs it broke off, and how they are carried on."""
    if not run_ids:
        return
    whole = f"run {run_ids[0]}" if len(run_ids) == 1 else f"{len(run_ids):,} runs"
    command = f"sagactl resume {run_ids[0]}" if len(run_ids) == 1 else "sagactl resume --all"
    error.message = f"{error.message} ({whole} broken off)"
    hint = error.hint or _AGAIN
    error.hint = hint.replace(_AGAIN, command) if _AGAIN in hint else f"{hint}; then {command}"
