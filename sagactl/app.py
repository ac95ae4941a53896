"""The composition root: the only place that chooses implementations.

An `App` is the settings of one project and what is made from them, each thing when it is first asked for: a command
that only reads the log never imports a plugin.
"""

from __future__ import annotations

import getpass
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sagactl.config import Config
from sagactl.core.canonical import Json, canonical
from sagactl.core.definition import read_definition, write_definition
from sagactl.core.keys import RUN_ALPHABET
from sagactl.core.records import Holder
from sagactl.core.retry import pick_delay_ms
from sagactl.core.saga import Saga, ToolFacts
from sagactl.core.template import ExpressionError, Scope, render
from sagactl.engine.clock import SystemClock
from sagactl.engine.driver import Driver
from sagactl.engine.run import RunEvaluator
from sagactl.engine.settings import Settings
from sagactl.errors import InvalidError, NotFoundError
from sagactl.log.base import Creation, Log, NewRun, RunRow

if TYPE_CHECKING:
    from sagactl.spec.cel import CelEvaluator
    from sagactl.spec.load import Loaded
    from sagactl.tools.invoke import PluginToolbox
    from sagactl.tools.registry import Registry

RUN_ID_LENGTH = 13
SAGA_SUFFIXES = (".yaml", ".yml")
REQUEST_ID_BYTES = 12
KEY_LENGTH_MAX = 255
INPUT_PROBLEMS_SHOWN_MAX = 20


@dataclass
class App:
    """One project: its log, its tools, its sagas, and drivers for its runs."""

    config: Config
    settings: Settings = field(default_factory=Settings)
    _logs: dict[bool, Log] = field(default_factory=dict)

    def log(self, *, read_only: bool = False) -> Log:
        """Return the log, opened once; raises StorageError, or NotFoundError where there is none to read."""
        if False in self._logs:
            return self._logs[False]
        if read_only not in self._logs:
            from sagactl.log.open import open_log

            self._logs[read_only] = open_log(self.config.log, read_only=read_only)
        return self._logs[read_only]

    @cached_property
    def registry(self) -> Registry:
        """All tools that the project and the installed plugins provide."""
        from sagactl.tools.registry import collect_tools

        folder = self.config.project / "plugins"
        return collect_tools(folder if folder.is_dir() else None, allowed=self.config.plugins)

    @cached_property
    def toolbox(self) -> PluginToolbox:
        """The tools as the engine calls them."""
        from sagactl.tools.invoke import PluginToolbox

        return PluginToolbox(self.registry)

    @property
    def tool_facts(self) -> Mapping[str, ToolFacts]:
        """The facts of every tool that can be called, by name."""
        return {name: self.registry.facts_of(name) for name in self.registry.names()}

    def find_saga(self, name: str) -> Path:
        """Return the file that FILE means: a path, or the name of a saga in `sagas/`; raises NotFoundError."""
        if Path(name).is_file():
            return Path(name)
        folder = self.config.project / "sagas"
        if "/" not in name:
            for suffix in ("", *SAGA_SUFFIXES):
                if (folder / f"{name}{suffix}").is_file():
                    return folder / f"{name}{suffix}"
        known = sorted(path.stem for path in folder.glob("*.y*ml")) if folder.is_dir() else []
        hint = f"sagas here: {', '.join(known[:10])}" if known else "give the path of a saga file"
        raise NotFoundError(f"no saga {name}", code="no-such-saga", hint=hint)

    def load_saga(self, file: Path) -> Loaded:
        """Read and check a saga file against the tools; raises InvalidSagaError with all problems."""
        from sagactl.spec.load import load_saga

        try:
            text = file.read_bytes()
        except OSError as error:
            raise NotFoundError(f"{file} can't be read: {error.strerror}", code="no-such-saga") from error
        return load_saga(text, file=self._name_file(file), tools=self.tool_facts, why_missing=self._why_missing)

    def _why_missing(self, tool: str) -> str | None:
        """Return what keeps *tool* from being used: its plugin is broken, or two give it."""
        for broken in self.registry.broken:
            if tool in broken.tools or (not broken.tools and broken.name == tool.partition(".")[0]):
                return str(broken)
        return None

    def _name_file(self, file: Path) -> str:
        """Return how *file* is called in messages and in the run: the same wherever the project lies."""
        whole = file.resolve()
        if whole.is_relative_to(self.config.project):
            return str(whole.relative_to(self.config.project))
        return str(file)

    def saga_of(self, row: RunRow) -> Saga:
        """Return the saga that a run is bound to."""
        return read_definition(self.log(read_only=True).definition(row.definition))

    def evaluator(self, saga: Saga) -> RunEvaluator:
        """Return what evaluates the expressions of *saga*."""
        return RunEvaluator(saga.tools, self.toolbox, evaluate_cel)

    def driver(self, *, waits_for_timers: bool = True) -> Driver:
        """Return a new driver over the log, with this process as holder."""
        from sagactl.log.holder import this_process

        draw = random.SystemRandom()
        settings = Settings(
            calls_max=self.config.calls_max,
            grace_ms=self.settings.grace_ms,
            lease_ms=self.settings.lease_ms,
            heartbeat_ms=self.settings.heartbeat_ms,
            waits_for_timers=waits_for_timers,
        )
        return Driver(
            self.log(),
            self.toolbox,
            evaluate=evaluate_cel,
            holder=this_process(),
            project=self.config.project,
            draw=lambda floor_ms, ceiling_ms: pick_delay_ms(floor_ms, ceiling_ms, draw.random()),
            clock=SystemClock(),
            settings=settings,
        )

    def start(self, driver: Driver, saga: Saga, value: Json, *, key: str | None, who: str) -> Creation:
        """Create a run of *saga* with the checked input *value* in the hands of *driver* (E8)."""
        own_key = self._run_key(saga, value) if key is None else None
        new = NewRun(
            run_id=make_run_id(),
            saga=saga.name,
            definition=write_definition(saga),
            input=value,
            requested_by=who,
            key=key if key is not None else own_key,
            key_is_explicit=key is not None,
            deadline_ms=None if saga.run_timeout_ms is None else SystemClock().now_ms() + saga.run_timeout_ms,
        )
        return driver.create(new, saga)

    def _run_key(self, saga: Saga, value: Json) -> str | None:
        if saga.run_key is None:
            return None
        scope: Scope = {"input": value}
        try:
            key = render(saga.run_key, scope, self.evaluator(saga))
        except ExpressionError as error:
            raise InvalidError(f"run_key: {error}", code="invalid-input") from error
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise InvalidError(f"run_key came out as {canonical(key)}, not as a text", code="invalid-input")
        check_key(str(key), "run_key")
        return str(key)

    def close(self) -> None:
        """Close the log."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()


def check_key(key: str, name: str) -> None:
    """Raise InvalidError unless *key* is 1 to `KEY_LENGTH_MAX` printable characters."""
    if not (0 < len(key) <= KEY_LENGTH_MAX and key.isprintable()):
        message = f"{name} takes 1 to {KEY_LENGTH_MAX} printable characters, and this has {len(key)}"
        raise InvalidError(message, code="bad-key")


def evaluate_cel(expression: str, scope: Scope) -> Json:
    """Return the value of a CEL expression; the engine behind it is imported when it is first needed."""
    return _cel().evaluate(expression, scope)


@cache
def _cel() -> CelEvaluator:
    from sagactl.spec.cel import CelEvaluator

    return CelEvaluator()


def check_input(saga: Saga, value: Json) -> Json:
    """Return *value* with the defaults of the saga's input schema; raises InvalidError naming all that is wrong."""
    from sagactl.spec.inputs import check_input as check

    checked, problems = check(saga.input_schema, value)
    if problems:
        wrong = "; ".join(problem.message for problem in problems[:INPUT_PROBLEMS_SHOWN_MAX])
        hint = problems[0].hint or f"the input of saga {saga.name} stands in its file under `input`"
        raise InvalidError(wrong, code="invalid-input", hint=hint)
    return checked


def guard_stdout() -> None:
    """Keep stdout for the answer: whatever tools and their children write there goes to stderr from now on."""
    from sagactl.tools.capture import protect_stdout

    protect_stdout()


def make_run_id(choose: Callable[[Sequence[str]], str] = secrets.choice) -> str:
    """Return a new run id: 13 random characters without look-alikes, some 63 bits."""
    return "".join(choose(RUN_ALPHABET) for _ in range(RUN_ID_LENGTH))


def make_request_id() -> str:
    """Return a new id for an operator's request."""
    return secrets.token_hex(REQUEST_ID_BYTES)


def is_dead(holder: Holder) -> bool:
    """Tell whether the process that drives a run is certainly gone."""
    from sagactl.log.holder import is_dead as is_certainly_dead

    return is_certainly_dead(holder)


def who_am_i() -> str:
    """Return who is recorded for what is asked here."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"
