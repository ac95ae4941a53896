"""One life of a run within an experiment: what a forked process does until the run rests, or it dies.

The first life starts the run, every other resumes it, or asks for a rollback where the experiment says so. Whoever must
agree to a step agrees. Delays cost no time: each is drawn as nothing, and recorded so; nothing else about time is
changed, so a deadline of a call is what it is. One call is made at a time, so that an experiment is the same each time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sagactl.chaos.experiment import Asked, Experiment
from sagactl.chaos.faulty_tools import FaultyTools
from sagactl.chaos.observed import Close, Seen, Sight
from sagactl.chaos.tracing_lines import Sources
from sagactl.chaos.trail import Plan, Trail
from sagactl.chaos.traits import find_difference, measure_growth
from sagactl.chaos.watched_log import watch
from sagactl.chaos.world import Looking
from sagactl.core.canonical import Json, canonical, digest, parse
from sagactl.core.evolve import replay
from sagactl.core.records import Cause, Direction, Operation, Origin, RunStatus, Verb
from sagactl.core.saga import Saga
from sagactl.core.state import RunState
from sagactl.core.summary import summarize
from sagactl.dataclass import dataclass
from sagactl.driving.driver import Driver
from sagactl.engine.driver import Driver as Engine
from sagactl.engine.ending import Ending, Why
from sagactl.engine.settings import Committed, Settings
from sagactl.errors import RefusedError
from sagactl.requests import make_request
from sagactl.secrets.masking import MASK
from sagactl.tools.base import Toolbox

if TYPE_CHECKING:
    from sagactl.app import Project
    from sagactl.log.base import Log, NewRun

APPROVALS_MAX: Final = 1_000
SETTINGS: Final = Settings(calls_max=1)
TRAIL: Final = "trail.jsonl"
WORLD: Final = "world"
"""The folder, in that of an experiment, that tools are given as their project."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where an experiment takes place.

    `folder` holds all of it, `world` in it is what tools are given as their project; `make_world` and `make_tools` are
    called in the process that needs them. `lines` says that it is a reference: lines and growth are noted.
    """

    project: Project
    saga: Saga
    input: Json
    folder: Path
    run_id: str
    make_tools: Callable[[Path], Toolbox]
    make_world: Callable[[Path, str, Toolbox], Looking]
    sources_of: Callable[[str], Sources | None] = field(default=lambda _: None)
    is_reference: bool = False

    @property
    def world(self) -> Path:
        """Return the folder that tools are given as their project."""
        return self.folder / WORLD


@dataclass(frozen=True, slots=True)
class _Home:
    """What a driver needs of its project: the experiment's own log, and a run under the experiment's own id."""

    setting: Setting
    the_log: Log

    def log(self) -> Log:
        return self.the_log

    def make_run(
        self, saga: Saga, inputs: object, *, key: str | None, requested_by: str, origin: Origin | None = None
    ) -> NewRun:
        made = self.setting.project.make_run(saga, inputs, key=key, requested_by=requested_by, origin=origin)
        return replace(made, run_id=self.setting.run_id)

    def read(self, run_id: str) -> Committed:
        records = tuple(stored.record for stored in self.the_log.read(run_id))
        saga = self.setting.saga
        return Committed(run_id, saga, replay(saga, records), 1, records)


def live(setting: Setting, experiment: Experiment) -> dict[str, Json]:
    """Carry the run on as far as it goes, and return what became of it and of the world."""
    from sagactl.log.open import open_log
    from sagactl.sandbox.witness import KILL_VARIABLE, LEDGER_VARIABLE

    for name in (KILL_VARIABLE, LEDGER_VARIABLE):  # what they ask of the sandbox isn't meant for this one
        os.environ.pop(name, None)
    known = set(sys.modules)
    tools = setting.make_tools(setting.folder)
    world = setting.make_world(setting.world, setting.run_id, tools)
    before = _look_before(setting, world)
    if setting.is_reference:
        _refuse_restless(before, world.look())
    trail = Trail(setting.folder / TRAIL)
    plan = Plan(experiment.faults, trail)
    log = open_log(setting.folder / "log.db", is_lasting=False)
    try:
        home = _Home(setting, watch(log, plan))
        faulty = FaultyTools(tools, plan, trail, setting.sources_of, world.look if setting.is_reference else None)
        with Driver(home, lambda: _make_engine(home, faulty)) as driver:
            ending = _Course(setting, experiment, home, driver, trail).run()
        state = home.read(setting.run_id).state
        described = _describe(setting, ending, state, before, world.look(), telling=_list_telling(setting, log))
        # As they were imported: `_asyncio` before `asyncio`, say, would be imported twice, and each know its own tasks.
        imported: list[Json] = [name for name in list(sys.modules) if name not in known]
        return {**described, "imported": imported if setting.is_reference else []}
    finally:
        log.close()


def read_again(setting: Setting) -> None:
    """Do in this process what a life does without a thread or a call: the processes to come begin with it done."""
    from sagactl.log.open import open_log

    log = open_log(setting.folder / "log.db", read_only=True, is_lasting=False)
    try:
        home = _Home(setting, log)
        summarize(setting.saga, home.read(setting.run_id).state)
        home.make_run(setting.saga, setting.input, key=None, requested_by="chaos")
    finally:
        log.close()


def _refuse_restless(before: Json, again: Json) -> None:
    """Raise RefusedError where two looks differ though nothing happened: each step would be blamed for it."""
    changed = find_difference(before, again)
    if changed:
        message = f"two looks at the world differ, and nothing happened between them: {changed}"
        raise RefusedError(message, code="restless-world", hint="sagactl help chaos")


def _look_before(setting: Setting, world: Looking) -> Json:
    kept = setting.folder / "before.json"
    if not kept.exists():
        kept.write_text(canonical(world.look()), encoding="utf-8")
    return parse(kept.read_text(encoding="utf-8"))


def _make_engine(home: _Home, tools: Toolbox) -> Engine:
    from sagactl.app import evaluate_cel
    from sagactl.log.holder import this_process

    return Engine(
        home.the_log,
        tools,
        evaluate=evaluate_cel,
        holder=this_process(),
        project=home.setting.world,
        draw=lambda *_: 0,
        settings=SETTINGS,
    )


@dataclass(slots=True)
class _Course:
    """The way of a run through its lives."""

    setting: Setting
    experiment: Experiment
    home: _Home
    driver: Driver
    trail: Trail

    def run(self) -> Ending:
        self._begin()
        ending = self._drive()
        for _ in range(APPROVALS_MAX):
            if ending.why is Why.WAITING and self._agree():
                ending = self._drive()
            elif self._wants_rollback(ending):
                self._ask_rollback()
                ending = self._drive()
            else:
                break
        return ending

    def _drive(self) -> Ending:
        return self.driver.drive()[self.setting.run_id]

    def _begin(self) -> None:
        if self.setting.run_id not in self.home.log().unfinished() and not self._is_known():
            self.driver.start(self.setting.saga, self.setting.input, requested_by="chaos")
        elif self.experiment.asked is Asked.AFTER_CRASH and not self._has_asked():
            self._ask_rollback()
        else:
            self.driver.resume(self.setting.run_id)

    def _is_known(self) -> bool:
        return bool(self.home.log().find(self.setting.run_id))

    def _has_asked(self) -> bool:
        return any(seen.sight is Sight.ASKED for seen in self.trail.read())

    def _wants_rollback(self, ending: Ending) -> bool:
        summary = ending.summary
        if self.experiment.asked is Asked.AT_END:
            return summary.status is RunStatus.SUCCEEDED and not self._has_asked()
        is_in_doubt = summary.status is RunStatus.STUCK and summary.cause is Cause.IN_DOUBT
        return self.experiment.asked is Asked.WHEN_STUCK and is_in_doubt and not self._has_asked()

    def _ask_rollback(self) -> None:
        self.trail.note(Seen(Sight.ASKED))
        self.driver.rollback(self.setting.run_id, reason="chaos")

    def _agree(self) -> bool:
        """Agree to each step that waits for somebody, and tell whether there was one."""
        awaiting = dict(self.home.read(self.setting.run_id).state.awaiting)
        for step_id, awaited in awaiting.items():
            approval = self.setting.saga.by_id[step_id].approval
            operation = Operation(step_id, None, Direction.ACTION)
            request = make_request(Verb.APPROVE, reason="chaos", operation=operation, digest=awaited.digest)
            who = approval.by[0] if approval is not None and approval.by else request.who
            self.driver.ask(self.setting.run_id, replace(request, who=who))
        return bool(awaiting)


def _list_telling(setting: Setting, log: Log) -> list[Operation]:
    """Return the operations whose tools have printed a secret: where one did, the log has the mask in its place."""
    if not setting.saga.secrets_needed:
        return []
    found = [each.operation for each in log.captured(setting.run_id) if MASK in each.text]
    return list(dict.fromkeys(found))


def _describe(
    setting: Setting, ending: Ending, state: RunState, before: Json, after: Json, *, telling: list[Operation]
) -> dict[str, Json]:
    summary = summarize(setting.saga, state)
    growth: Mapping[str, Json] = measure_growth(before, after)
    operations: list[Json] = [
        {
            "operation": _spell(operation),
            "phase": op.phase.value,
            "doubt": op.doubt,
            "attempts": op.attempts,
            "failure": "" if op.failure is None else _name_files(setting, str(op.failure)),
            "cause": None if op.cause is None else op.cause.value,
            "digest": "" if op.output is None else digest(op.output),
        }
        for operation, op in state.operations.items()
    ]
    return {
        "close": (Close.REST if summary.is_at_rest else Close.HELD_UP).value,
        "detail": ending.detail or ("" if ending.error is None else ending.error.message),
        "status": summary.status.value,
        "cause": None if summary.cause is None else summary.cause.value,
        "failure": "" if summary.failure is None else _name_files(setting, str(summary.failure)),
        "operations": operations,
        "left": [[each.step, each.item] for each in summary.not_undone],
        "pivot_passed": state.pivot_passed,
        "growth": dict(growth),
        "is_restored": canonical(before) == canonical(after),
        "changed": find_difference(before, after),
        "telling": [_spell(operation) for operation in telling],
    }


def _name_files(setting: Setting, message: str) -> str:
    """Return *message* with files of the world by their names in it: folder and run are others each time."""
    return message.replace(f"{setting.world}/", "").replace(setting.run_id, "RUN")


def _spell(operation: Operation) -> Json:
    return [operation.step, operation.item, operation.direction.value]
