"""The composition root: the only place that chooses implementations.

A `Project` is the settings of one project and what is made from them, each thing when it is first asked for: who only
reads the log never imports a plugin. The command line and programs that embed sagactl use the same one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from sagactl.config import STATE_FOLDER, Config, load_config
from sagactl.errors import NotFoundError, check_argument
from sagactl.history import History
from sagactl.inputs import object_to_input, read_run_key
from sagactl.once import once_property
from sagactl.saga_files import find_saga, name_saga, read_saga

if TYPE_CHECKING:
    from sagactl.alerts.lanes import Lane
    from sagactl.checked import Checked
    from sagactl.core.canonical import Json
    from sagactl.core.definition import Snapshot
    from sagactl.core.rebinding import Rebinding
    from sagactl.core.records import Origin
    from sagactl.core.saga import Saga, ToolFacts
    from sagactl.core.template import Scope
    from sagactl.driving.driver import Driver
    from sagactl.engine.driver import Driver as Engine
    from sagactl.engine.run import RunEvaluator
    from sagactl.engine.settings import Settings
    from sagactl.log.base import NewRun
    from sagactl.outgoing import Ways
    from sagactl.spec.cel import CelEvaluator
    from sagactl.spec.load import Loaded
    from sagactl.telling import Telling
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
class Project(History):
    """One project: its sagas, its tools, its log, and drivers for its runs. A context manager that closes the log.

    Every method may be called from any thread.
    """

    config: Config
    tools: tuple[Callable[..., object], ...] = ()
    is_whole_process: bool = False
    """The process is ours, so that what tools do with OpenTelemetry may be set up as well."""
    _snapshot: tuple[Saga, Snapshot] | None = field(default=None, init=False, repr=False)
    _drivers: WeakSet[Driver] = field(default_factory=WeakSet, init=False, repr=False)

    def __enter__(self) -> Self:
        self._check_open()
        return self

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
        if "telling" in vars(self):
            self.telling.close()
        if "toolset" in vars(self):
            self.toolset.close()
        self._close_logs()

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
        self.telling.attach(driver)
        return driver

    @once_property
    def telling(self) -> Telling:
        """What tells of the runs that are driven here."""
        from sagactl.telling import Telling

        return Telling(self.config, self.log, is_whole_process=self.is_whole_process)

    @property
    def ways(self) -> Ways:
        """Where people and programs are told what happens; raises InvalidError."""
        from sagactl.outgoing import read_ways

        return read_ways(self.config)

    def find_mute(self) -> dict[str, str]:
        """Return which of these ways nothing can be sent by from here, and why."""
        from sagactl.outgoing import find_mute

        return find_mute(self.ways, self.config.project)

    def make_lanes(self) -> list[Lane]:
        """Return what sends whatever waits in the log, of all runs."""
        from sagactl.outgoing import make_lanes

        return make_lanes(self.ways, self.log(), self.config.project, is_for_all=True)

    def _make_engine(self, settings: Settings) -> Engine:
        from random import SystemRandom

        from sagactl.core.retry import pick_delay_ms
        from sagactl.engine.driver import Driver as Engine
        from sagactl.log.holder import this_process

        self.toolbox.tracing = self.telling.tracer
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
        from sagactl.inputs import make_run

        return make_run(
            saga,
            inputs,
            self.evaluator(saga),
            definition=self._snapshot_of(saga),
            key=key,
            requested_by=requested_by,
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
