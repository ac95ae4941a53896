"""The composition root: the only place that chooses implementations.

A `Project` is the settings of one project and what is made from them, each thing when it is first asked for: who only
reads the log never imports a plugin. The command line and programs that embed sagactl use the same one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from sagactl.config import STATE_FOLDER, Config, load_config
from sagactl.errors import MisuseError, NotFoundError, check_argument, check_run_id
from sagactl.inputs import as_json, check_input, object_to_input, read_run_key
from sagactl.once import once_property
from sagactl.saga_files import find_saga, name_saga, read_saga

if TYPE_CHECKING:
    from sagactl.alerts.courier import Courier
    from sagactl.alerts.lanes import Lane
    from sagactl.checked import Checked
    from sagactl.core.canonical import Json
    from sagactl.core.counts import Counts
    from sagactl.core.definition import Snapshot
    from sagactl.core.rebinding import Rebinding
    from sagactl.core.records import Origin
    from sagactl.core.saga import Saga, ToolFacts
    from sagactl.core.template import Scope
    from sagactl.driving.driver import Driver
    from sagactl.engine.driver import Driver as Engine
    from sagactl.engine.run import RunEvaluator
    from sagactl.engine.settings import Committed, Settings
    from sagactl.log.base import Log, NewRun, PruneFilter, RunFilter, RunRow, Runs, StoredRecord
    from sagactl.log.glance import Glance
    from sagactl.log.pruning import Pruned
    from sagactl.outgoing import Ways
    from sagactl.spec.cel import CelEvaluator
    from sagactl.spec.load import Loaded
    from sagactl.telemetry.tracer import Tracer
    from sagactl.tools.invoke import PluginToolbox
    from sagactl.tools.registry import Registry
    from sagactl.toolset import ToolSet


def open_project(
    directory: str | Path | None = None,
    *,
    file: str | Path | None = None,
    log: str | Path | None = None,
    tools: Iterable[Callable[..., object]] = (),
) -> Project:
    """Open the project that *directory*, by default the current one, lies in.

    Its settings are those of the command line there: `sagactl.toml`, the environment, the user's. Nothing is read or
    made until it is needed. Raises InvalidError where a setting is wrong.

    Args:
        directory: Where to look for the project, upwards.
        file: A saga file; the project it lies in comes first.
        log: Another log than the project's: a path.
        tools: Functions with `@tool` that belong to the program itself, beside those of `plugins/`. A run that is
            resumed needs them again.
    """
    for name, path in (("directory", directory), ("file", file), ("log", log)):
        check_argument(path, (str, os.PathLike, type(None)), f"{name}, a path,", hint="sagactl help embedding")
    start = Path.cwd() if directory is None else Path(directory)
    if not start.is_dir():
        raise NotFoundError(f"no folder {start}", code="no-such-folder", hint="name a folder that is there")
    config = load_config(cwd=start, file=None if file is None else Path(file), log=None if log is None else str(log))
    if tools == ():
        return Project(config)
    from sagactl.tools.given import check_given

    return Project(config, check_given(tools))


@dataclass
class Project:
    """One project: its sagas, its tools, its log, and drivers for its runs. A context manager that closes the log.

    Every method may be called from any thread.
    """

    config: Config
    tools: tuple[Callable[..., object], ...] = ()
    is_whole_process: bool = False
    """The process is ours, so that what tools do with OpenTelemetry may be set up as well."""
    passes_witnesses: bool = False
    """The log is a copy that was put back, and isn't accepted yet (see `sagactl.doctor.restored`)."""
    _logs: dict[bool, Log] = field(default_factory=dict, init=False, repr=False)
    _snapshot: tuple[Saga, Snapshot] | None = field(default=None, init=False, repr=False)
    _courier: Courier | None = field(default=None, init=False, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)
    _drivers: WeakSet[Driver] = field(default_factory=WeakSet, init=False, repr=False)
    _is_closed: bool = field(default=False, init=False, repr=False)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def _check_open(self) -> None:
        if self._is_closed:
            raise MisuseError("the project is closed", code="closed", hint="open it again: `open_project(…)`")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its drivers; send what waits, for a moment at most; close the log, and let go of what tools needed."""
        try:
            for driver in list(self._drivers):
                driver.close()
        finally:
            self._is_closed = True
            self._close()

    def _close(self) -> None:
        if self._courier is not None:
            self._courier.close()
            self._courier = None
        if (tracer := vars(self).pop("tracer", None)) is not None:
            tracer.close()
        if "toolset" in vars(self):
            self.toolset.close()
        with self._lock:
            for log in self._logs.values():
                log.close()
            self._logs.clear()

    # Sagas and tools

    def load(self, name: str | Path) -> Saga:
        """Return a saga, checked against the tools: a file, or the name of one in `sagas/`.

        Raises InvalidSagaError with all problems, NotFoundError.
        """
        self._check_open()
        check_argument(name, (str, os.PathLike), "a saga, by name or path,", hint="name a file, or a saga in sagas/")
        return self.load_to_run(self.find_saga(str(name))).saga

    @once_property
    def toolset(self) -> ToolSet:
        """The tools of the program, the project and the installed plugins."""
        from sagactl.toolset import ToolSet

        return ToolSet(self.config, self.tools)

    @property
    def registry(self) -> Registry:
        """All tools, and all that is wrong with them."""
        return self.toolset.registry

    @property
    def toolbox(self) -> PluginToolbox:
        """The tools as the engine calls them."""
        return self.toolset.toolbox

    @property
    def tool_facts(self) -> Mapping[str, ToolFacts]:
        """The facts of every tool that can be called, by name."""
        return self.registry.facts

    def find_saga(self, name: str) -> Path:
        """Return the file that FILE means: a path, or the name of a saga in `sagas/`; raises NotFoundError."""
        return find_saga(name, self.config.project)

    def load_to_run(self, file: Path) -> Checked:
        """Return the saga in *file*, checked anew only if it or a tool of it has changed; raises as `load_saga`."""
        from sagactl.checked import Checked, CheckedSagas

        text, name, kept = read_saga(file), name_saga(file, self.config.project), CheckedSagas(self.config.checked)
        checked = kept.find(text, name, self.registry.facts_of)
        if checked is None:
            loaded = self._load(text, name)
            checked = Checked(loaded.saga, len(loaded.warnings))
            kept.keep(text, name, checked)
        return checked

    def load_saga(self, file: Path) -> Loaded:
        """Read and check a saga file against the tools; raises InvalidSagaError with all problems."""
        return self._load(read_saga(file), name_saga(file, self.config.project))

    def _load(self, text: bytes, name: str) -> Loaded:
        from sagactl.spec.load import load_saga

        return load_saga(text, file=name, tools=self.tool_facts, why_missing=self.toolset.why_missing)

    def write_state(self, name: str, text: str) -> Path:
        """Put a file into the project's own folder, whole or not at all, and return its path; raises StorageError."""
        from sagactl.log.file_system import make_private_folder, replace_file

        path = self.config.project / STATE_FOLDER / name
        make_private_folder(path.parent)
        replace_file(path, text)
        return path

    # Runs and their log

    def log(self, *, read_only: bool = False) -> Log:
        """Return the log, opened once; raises StorageError, or NotFoundError where there is none to read."""
        self._check_open()
        with self._lock:
            read_only = read_only and not self.passes_witnesses
            if False in self._logs:
                return self._logs[False]
            if read_only not in self._logs:
                from sagactl.log.open import open_log

                self._logs[read_only] = open_log(
                    self.config.log, read_only=read_only, passes_witnesses=self.passes_witnesses
                )
            return self._logs[read_only]

    def runs(self, which: RunFilter | None = None) -> Runs:
        """Return the runs that fit, newest first, by default the last 20; their `total` is without the limit."""
        from sagactl.log.base import RunFilter, Runs

        check_argument(which, (RunFilter, type(None)), "RunFilter(…)", hint="from sagactl import RunFilter")
        log = self._find_log()
        rows, total = ([], 0) if log is None else log.rows(which or RunFilter())
        return Runs(tuple(rows), total)

    def unfinished(self) -> list[str]:
        """Return the ids of all runs that are not at rest, oldest first: those that a driver may `resume`.

        Runs of other projects in the same log aren't among them, as long as their projects are there (E16).
        """
        from sagactl.other_projects import leave_out_others

        log = self._find_log()
        return [] if log is None else leave_out_others(log, self.config.project, log.unfinished())

    def _find_log(self) -> Log | None:
        """Return the log to read; None where there is none yet, which is no error unless somebody named it."""
        try:
            return self.log(read_only=True)
        except NotFoundError:
            if self.config.origins.get("log") != "default":
                raise
            return None

    def prune(self, which: PruneFilter, *, pruned_by: str | None = None) -> Pruned:
        """Delete ended runs for good and give their space back; their ids and keys stay taken (E8)."""
        from sagactl.identity import who_am_i
        from sagactl.log.pruning import prune_all

        return prune_all(self.log(), which, pruned_by=pruned_by or who_am_i())

    def count(self, now_ms: int) -> Counts:
        """Return how much of everything there is in the log."""
        from sagactl.core.counts import Counts

        log = self._find_log()
        return Counts() if log is None else log.count(now_ms)

    def row(self, run_id: str) -> RunRow:
        """Return where a run stands, in one row; raises NotFoundError."""
        check_run_id(run_id)
        return self.log(read_only=True).row(run_id)

    def records(self, run_id: str, *, after_seq: int = 0) -> Iterator[StoredRecord]:
        """Yield what the log holds of a run, in order; raises DamagedLogError, NotFoundError."""
        check_run_id(run_id)
        return self.log(read_only=True).read(run_id, after_seq=after_seq)

    def read(self, run_id: str) -> Committed:
        """Return a run as its whole log makes it: saga, state, summary and steps; raises as `records`."""
        from sagactl.core.evolve import replay
        from sagactl.engine.settings import Committed

        records = tuple(stored.record for stored in self.records(run_id))
        saga = self.saga_of(self.row(run_id))  # after the records: a later definition fits them, an earlier may not
        return Committed(run_id, saga, replay(saga, records), 1, records)

    # Quick looks for completion: without opening the log, and nothing where it can't be read at once

    def glance_runs(self, prefix: str, *, statuses: Sequence[str] = (), limit: int) -> list[Glance]:
        """Return runs whose id begins with *prefix*, newest first."""
        from sagactl.log.glance import glance_runs

        return glance_runs(self.config.log, prefix, statuses=statuses, limit=limit)

    def glance_steps(self, prefix: str) -> list[str]:
        """Return the steps of the run whose id begins with *prefix*."""
        from sagactl.log.glance import glance_steps

        return glance_steps(self.config.log, prefix)

    def glance_sagas(self) -> list[str]:
        """Return the names of the sagas that have runs."""
        from sagactl.log.glance import glance_sagas

        return glance_sagas(self.config.log)

    def saga_of(self, row: RunRow) -> Saga:
        """Return the saga that a run is bound to."""
        from sagactl.core.definition import read_definition

        return read_definition(self.log(read_only=True).definition(row.definition))

    # Driving

    @property
    def settings(self) -> Settings:
        """How drivers behave unless told otherwise."""
        from sagactl.engine.settings import Settings

        return Settings(calls_max=self.config.calls_max)

    def driver(self, settings: Settings | None = None) -> Driver:
        """Return a new driver for runs of this project."""
        from sagactl.driving.driver import Driver
        from sagactl.engine.settings import Settings

        self._check_open()
        chosen = self.settings if settings is None else settings
        check_argument(chosen, Settings, "Settings(…)", hint="from sagactl import Settings")
        driver = Driver(self, lambda: self._make_engine(chosen))
        self._drivers.add(driver)
        if self.config.alerts is not None or self.config.events is not None:
            self._listen(driver)
        if (tracer := self.tracer) is not None:
            driver.subscribe(lambda committed: tracer.note(committed.run_id, committed.first_seq, committed.records))
        return driver

    @once_property
    def tracer(self) -> Tracer | None:
        """What sends runs as traces of OpenTelemetry, or None; raises InvalidError where it is asked for in vain."""
        if self.config.telemetry is None and not any(name.startswith("OTEL_") for name in os.environ):
            return None
        from sagactl.telemetry.begin import begin_tracing

        return begin_tracing(self.config.telemetry, os.environ, is_whole_process=self.is_whole_process)

    def _listen(self, driver: Driver) -> None:
        """Have what *driver* does told where the settings say so."""
        from sagactl.outgoing import make_courier, read_ways

        ways = read_ways(self.config)
        with self._lock:
            if self._courier is None and ways:
                self._courier = make_courier(ways, self.log(), self.config.project)
            courier = self._courier
        if courier is not None:
            driver.subscribe(lambda committed: courier.note(committed.run_id, committed.records))

    @property
    def ways(self) -> Ways:
        """Where people and programs are told what happens; raises InvalidError."""
        from sagactl.outgoing import read_ways

        return read_ways(self.config)

    def make_lanes(self) -> list[Lane]:
        """Return what sends whatever waits in the log, of all runs."""
        from sagactl.outgoing import make_lanes

        return make_lanes(self.ways, self.log(), self.config.project, is_for_all=True)

    def _make_engine(self, settings: Settings) -> Engine:
        from random import SystemRandom

        from sagactl.core.retry import pick_delay_ms
        from sagactl.engine.driver import Driver as Engine
        from sagactl.log.holder import this_process

        self.toolbox.tracing = self.tracer
        draw = SystemRandom()
        return Engine(
            self.log(),
            self.toolbox,
            evaluate=evaluate_cel,
            holder=this_process(),
            project=self.config.project,
            draw=lambda floor_ms, ceiling_ms: pick_delay_ms(floor_ms, ceiling_ms, draw.random()),
            settings=settings,
        )

    def evaluator(self, saga: Saga) -> RunEvaluator:
        """Return what evaluates the expressions of *saga*."""
        from sagactl.engine.run import RunEvaluator

        return RunEvaluator(saga.tools, self.toolbox, evaluate_cel)

    def make_run(
        self, saga: Saga, inputs: object, *, key: str | None, requested_by: str, origin: Origin | None = None
    ) -> NewRun:
        """Return what a run of *saga* begins with; raises InvalidError where the inputs or the key don't fit (E8)."""
        from sagactl.core.records import NO_ORIGIN
        from sagactl.engine.clock import SystemClock
        from sagactl.identity import check_key, make_run_id
        from sagactl.log.base import NewRun

        value = check_input(saga, as_json(inputs))
        if key is not None:
            check_key(key, "an idempotency key")
        origin = origin or NO_ORIGIN
        return NewRun(
            run_id=make_run_id(),
            saga=saga.name,
            definition=self._snapshot_of(saga),
            input=value,
            requested_by=requested_by,
            key=key if key is not None else self.run_key(saga, value) or origin.key,
            key_is_explicit=key is not None,
            deadline_ms=None if saga.run_timeout_ms is None else SystemClock().now_ms() + saga.run_timeout_ms,
            origin=origin,
            project=self.config.project_name,
        )

    def plan_rebinding(self, run_id: str, saga: Saga) -> Rebinding:
        """Return what going on under *saga* would change for a run, and all that forbids it; writes nothing (E16)."""
        from sagactl.core.rebinding import plan_rebinding

        known = self.read(run_id)
        problem = object_to_input(saga, known.state.created.input if known.state.created else None)
        return plan_rebinding(known.saga, saga, known.records, input_problem=problem)

    def rebind(self, run_id: str, saga: Saga, *, reason: str | None = None) -> Rebinding:
        """Bind a run that isn't at its end to another definition, and return what that changes (E16).

        Raises RefusedError where the run has come too far for it, BusyError while a driver has the run, NotFoundError.
        """
        from sagactl.core.records import Verb
        from sagactl.engine.clock import SystemClock
        from sagactl.engine.rebind import rebind, refuse_objections
        from sagactl.log.holder import this_process
        from sagactl.requests import make_request

        row, plan = self.row(run_id), self.plan_rebinding(run_id, saga)
        refuse_objections(run_id, plan)
        if plan.changes:
            snapshot = self._snapshot_of(saga)
            request = make_request(Verb.REBIND, reason=reason, digest=snapshot.digest, replaces=row.definition)
            rebind(self.log(), run_id, saga, snapshot, request, holder=this_process(), clock=SystemClock())
        return plan

    def _snapshot_of(self, saga: Saga) -> Snapshot:
        """Return the snapshot of *saga*, taken once for all runs that begin with the same object."""
        from sagactl.core.definition import take_snapshot

        if self._snapshot is None or self._snapshot[0] is not saga:
            self._snapshot = saga, take_snapshot(saga)
        return self._snapshot[1]

    def run_key(self, saga: Saga, value: Json) -> str | None:
        """Return the key that *saga* gives a run with the checked input *value*, or None; raises InvalidError."""
        return read_run_key(saga, value, self.evaluator(saga))


def evaluate_cel(expression: str, scope: Scope) -> Json:
    """Return the value of a CEL expression; the engine behind it is imported when it is first needed."""
    return _cel().evaluate(expression, scope)


@cache
def _cel() -> CelEvaluator:
    from sagactl.spec.cel import CelEvaluator

    return CelEvaluator()


def guard_stdout() -> None:
    """Keep stdout for the answer: whatever tools and their children write there goes to stderr from now on."""
    from sagactl.tools.capture import protect_stdout

    protect_stdout()
