"""Where experiments are made: a folder of their own with logs, worlds and trails, gone when they are over.

Everything is loaded once, in this process, which calls no tool. What calls tools is forked from it, a process for each
life of a run. The project's log, its sandbox and what it keeps beside them are never opened.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sagactl.chaos.beside import Earlier, act_alike
from sagactl.chaos.choosing import IS_UNDONE, SUCCEEDS
from sagactl.chaos.enumerating import Reference, turn_around
from sagactl.chaos.experiment import Experiment, name_operation
from sagactl.chaos.findings import Finding
from sagactl.chaos.forks import Crew, Finished, How, Work
from sagactl.chaos.judge import Trial, judge, judge_reference
from sagactl.chaos.life import WORLD, Setting, live, read_again
from sagactl.chaos.observed import STUCK_PHASES, Close, Observed, Sight
from sagactl.chaos.observing import compare_growth, find_rest, gather_growth, gather_lines, list_operations, observe
from sagactl.chaos.recorded import RecordedTools, Target
from sagactl.chaos.report import World
from sagactl.chaos.settings import ChaosSettings
from sagactl.chaos.tracing_lines import Sources
from sagactl.chaos.world import WORLD_BYTES_MAX, Looking, is_too_large
from sagactl.core.canonical import Json
from sagactl.core.records import Direction, Operation, RunStatus
from sagactl.core.saga import Saga
from sagactl.core.transitions import Phase
from sagactl.dataclass import dataclass
from sagactl.errors import RefusedError
from sagactl.identity import make_run_id

if TYPE_CHECKING:
    from sagactl.app import Project
    from sagactl.tools.base import Toolbox

LIVES_MAX: Final = 8
"""How often the process of one experiment may die before it counts as never ending."""

TIMEOUT_SECONDS: Final = 20.0
"""How long one life may take."""

SUCCESS: Final = Experiment(SUCCEEDS, None, ())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one experiment."""

    experiment: Experiment
    observed: Observed
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class Laboratory:
    """Makes experiments on one saga with one input; `open_laboratory` gives one."""

    project: Project
    saga: Saga
    input: Json
    folder: Path
    settings: ChaosSettings
    outputs: Mapping[Operation, Json] | None = None
    """What each operation has returned in a former run; with it no tool is called."""
    jobs: int = 1
    timeout_seconds: float = TIMEOUT_SECONDS
    crew: Crew = field(default_factory=Crew, init=False)
    earlier: Earlier | None = field(default=None, init=False)
    """The run whose world the others begin with."""
    took_ms: Counter[str] = field(default_factory=Counter, init=False)
    """How long each experiment took, by its name."""
    _number: int = field(default=0, init=False)

    @property
    def world(self) -> World:
        """Return what the experiments act on."""
        return World.TOOLS if self.outputs is None else World.RECORDED

    def refer(self) -> tuple[Reference, list[Outcome]]:
        """Make the runs without a fault; raises RefusedError where the saga doesn't succeed."""
        setting, done = self._make_one(SUCCESS)
        if done.close is not Close.REST or done.status is not RunStatus.SUCCEEDED:
            reason = done.failure or done.detail or str(done.status or done.close)
            message = f"without any fault {self.saga.name} doesn't succeed: {_name_failed(done)}{reason}"
            raise RefusedError(message, code="no-reference", hint="give inputs with which the saga succeeds")
        growth, is_steady = compare_growth(gather_growth(done), gather_growth(self._succeed_again(setting, done)))
        faults, asked = turn_around(self.saga)
        undoing = Experiment(IS_UNDONE, None, faults, asked)
        _, undone = self._make_one(undoing)
        actions = list_operations(done, Direction.ACTION)
        reference = Reference(
            actions=actions,
            compensations=list_operations(undone, Direction.COMPENSATION),
            lines={**gather_lines(undone), **gather_lines(done)},
            growth=growth,
            is_steady=is_steady,
            failing=frozenset(each for each, end in undone.operations.items() if end.phase in STUCK_PHASES),
            rest=find_rest(undone),
        )
        trial = Trial(self.saga, reference, SUCCESS, done)
        first = Outcome(SUCCESS, done, (*judge(trial), *(judge_reference(trial) if self.outputs is None else ())))
        return reference, [first, self._judge(reference, undoing, undone)]

    def _succeed_again(self, first: Setting, done: Observed) -> Observed:
        """Make the run that succeeds once more: beside the first one, as all that follows, where that changes nothing.

        What others have made beside it is something that an undo can take.
        """
        if self.outputs is None and not is_too_large(first.world):
            self.earlier = Earlier(first.world, first.run_id)
            with suppress(OSError, RefusedError):  # what its tools have left can't be copied, or is too much for two
                _, beside = self._make_one(SUCCESS)
                if act_alike(done, beside):
                    return beside
            self.earlier = None
        return self._make_one(SUCCESS)[1]

    def make(self, reference: Reference, experiments: Sequence[Experiment]) -> Iterator[Outcome]:
        """Make the experiments and yield what came of each, as it comes."""
        known: dict[int, tuple[Experiment, Setting]] = {}
        lives: dict[int, int] = {}

        def prepare() -> Iterator[Work]:
            for experiment in experiments:
                setting = self._set_up(is_reference=False)
                known[self._number], lives[self._number] = (experiment, setting), 1
                yield Work(self._number, setting.folder, partial(live, setting, experiment))

        def again(work: Work, finished: Finished) -> Work | None:
            self.took_ms[known[work.number][0].name] += finished.took_ms
            if finished.how is not How.DIED or lives[work.number] >= LIVES_MAX:
                return None
            lives[work.number] += 1
            return work

        for work, finished in self.crew.carry_out(
            prepare(), jobs=self.jobs, timeout_seconds=self.timeout_seconds, again=again
        ):
            experiment, setting = known.pop(work.number)
            _refuse_failure(experiment, finished)
            observed = observe(setting, experiment, finished, lives.pop(work.number))
            shutil.rmtree(setting.folder, ignore_errors=True)
            yield self._judge(reference, experiment, observed)

    def _make_one(self, experiment: Experiment) -> tuple[Setting, Observed]:
        """Make a reference run, and have whatever a life needs loaded and made here for the processes to come."""
        setting = self._set_up(is_reference=True)
        work = Work(self._number, setting.folder, partial(live, setting, experiment))
        ((_, finished),) = self.crew.carry_out([work], jobs=1, timeout_seconds=3 * self.timeout_seconds)
        self.took_ms[experiment.name] += finished.took_ms
        _refuse_failure(experiment, finished)
        _import_all(finished.result)
        observed = observe(setting, experiment, finished, 1)
        if finished.how is How.RETURNED:
            read_again(setting)
        return setting, observed

    def _judge(self, reference: Reference, experiment: Experiment, observed: Observed) -> Outcome:
        trial = Trial(self.saga, reference, experiment, observed)
        return Outcome(experiment, observed, tuple(judge(trial)))

    def _set_up(self, *, is_reference: bool) -> Setting:
        self._number += 1
        folder = self.folder / str(self._number)
        folder.mkdir(mode=0o700)
        world = self.settings.world if self.earlier is None else self.earlier.world
        if world is None:
            (folder / WORLD).mkdir(mode=0o700)
        else:
            shutil.copytree(world, folder / WORLD, symlinks=True)
        return Setting(
            project=self.project,
            saga=self.saga,
            input=self.input,
            folder=folder,
            run_id=make_run_id(),  # a target elsewhere may know the keys of experiments that others have made
            make_tools=self._make_tools,
            make_world=self._make_world,
            sources_of=self._sources_of,
            is_reference=is_reference,
        )

    def _make_tools(self, folder: Path) -> Toolbox:
        if self.outputs is None:
            self.project.toolset.move_servers(folder / WORLD)
            return self.project.toolbox
        return RecordedTools(self.project.toolbox, Target(folder / "target.jsonl"), self.outputs)

    def _make_world(self, folder: Path, run_id: str, tools: Toolbox) -> Looking:
        if self.outputs is not None:
            return Looking(folder, run_id, ledger=Target(folder.parent / "target.jsonl").list_effects)
        checks = {name: partial(self._check, name, folder, run_id, tools) for name in self.settings.check}
        earlier = None if self.earlier is None else self.earlier.run_id
        return Looking(folder, run_id, dict(checks), ignored=self.settings.ignore, earlier=earlier)

    def _check(self, name: str, folder: Path, run_id: str, tools: Toolbox) -> Json:
        """Ask a tool what there is; raises RefusedError where it doesn't say."""
        from sagactl.chaos.checking import ask_tool

        return ask_tool(tools, name, folder, run_id)

    def _sources_of(self, tool: str) -> Sources | None:
        if self.outputs is not None or tool.startswith(("shell.", "time.")):
            return None
        folder = (self.project.config.project / "plugins").resolve()  # as its modules are imported
        return Sources(self.project.registry.tool(tool).place.file, str(folder))


@contextmanager
def open_laboratory(
    project: Project,
    saga: Saga,
    value: Json,
    settings: ChaosSettings,
    *,
    outputs: Mapping[Operation, Json] | None = None,
    jobs: int = 1,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Iterator[Laboratory]:
    """Give a laboratory whose folder goes when the block ends; *project* is one that `isolate` gave."""
    _check_world(settings.world)
    folder = Path(project.config.log).parent
    is_shared = bool(settings.check)  # what a check shows, other experiments may change at the same time
    jobs = 1 if is_shared else jobs
    laboratory = Laboratory(project, saga, value, folder, settings, outputs, jobs, timeout_seconds)
    try:
        yield laboratory
    finally:
        laboratory.crew.close()


@contextmanager
def isolate(project: Project) -> Iterator[Project]:
    """Give the same project with a log in a folder of its own, and nobody who is told of anything."""
    from sagactl.app import Project as AppProject

    folder = Path(tempfile.mkdtemp(prefix="sagactl-chaos-", dir=_find_place()))
    try:
        config = replace(
            project.config, log=str(folder / "log.db"), alerts=None, events=None, telemetry=None, has_project=False
        )
        with AppProject(config, project.tools) as isolated:
            yield isolated
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_place() -> str | None:
    """Return where files cost no disk, unless somebody has said where temporary files go."""
    memory = "/dev/shm"  # noqa: S108 - the folder in it is made safely, and is our own
    if os.environ.get("TMPDIR") or not os.access(memory, os.W_OK | os.X_OK):
        return None
    return memory


def _name_failed(observed: Observed) -> str:
    """Name the operation whose failure is the run's, else the one that was called last, which may never have ended.

    A run that was rolled back has called others since.
    """
    failed = [
        operation
        for operation, end in observed.operations.items()
        if end.phase is not Phase.SUCCEEDED and end.failure and end.failure == observed.failure
    ]
    called = [seen.operation for seen in observed.trail if seen.sight is Sight.CALL and seen.operation is not None]
    blamed = [*failed, *reversed(called)]
    return f"{name_operation(blamed[0])}: " if blamed else ""


def _refuse_failure(experiment: Experiment, finished: Finished) -> None:
    """Raise RefusedError where an experiment wasn't made, for a reason that is none of the saga's."""
    if finished.how is How.FAILED:
        message = f"experiment {experiment.name} can't be made: {finished.detail}"
        raise RefusedError(message, code="no-experiment", hint="sagactl help chaos")


def _import_all(result: Json) -> None:
    """Import here what a life has imported: from now on every process begins with it."""
    names = result.get("imported") if isinstance(result, dict) else None
    for name in names if isinstance(names, list) else ():
        with suppress(Exception):  # whatever it is, a life can import it by itself
            import_module(str(name))


def _check_world(world: Path | None) -> None:
    if world is None:
        return
    if not world.is_dir():
        raise RefusedError(f"the folder {world} of [chaos] isn't there", code="no-world", hint="sagactl help chaos")
    if is_too_large(world):
        message = f"the folder {world} has more than {WORLD_BYTES_MAX:,} bytes"
        raise RefusedError(message, code="world-too-large", hint="sagactl help chaos")
