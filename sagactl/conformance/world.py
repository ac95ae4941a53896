"""One case's world: a folder of its own, set up as the check file says, looked at, and torn down."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from sagactl.chaos.world import Check, Looking
from sagactl.conformance.calling import Asked, Caller, HangingError, Identity
from sagactl.conformance.check_file import CheckFile, Observation, Preparation, ToolEntry
from sagactl.conformance.looks import Index, index_look
from sagactl.core.canonical import Json
from sagactl.core.records import OutcomeKind
from sagactl.core.template import Evaluator, ExpressionError, Template, render

NAME: Final = "check"
"""What the saga is called whose run a case stands for."""


class SetUpError(Exception):
    """A world can't be made, torn down or seen; the message says why."""


class World:
    """What the calls of one case act on."""

    def __init__(
        self, folder: Path, caller: Caller, said: tuple[CheckFile, ToolEntry], evaluator: Evaluator, run_id: str
    ) -> None:
        self.folder = folder
        self.caller = caller
        self._file, self._entry = said
        self._evaluator = evaluator
        self._run_id = run_id
        self._steps: dict[str, Json] = {}

    def render(self, template: Template, identity: Identity, more: Mapping[str, object] | None = None) -> Json:
        """Return the value of a template of the check file or of a pair; raises ExpressionError."""
        run: dict[str, Json] = {"id": identity.run_id, "saga": NAME, "key": None}
        scope = {"run": run, "input": dict(self._file.input), "steps": self._steps, **(more or {})}
        return render(template, scope, self._evaluator)

    def arguments(self, template: Template, identity: Identity) -> dict[str, Json]:
        """Return what a template of arguments comes to; raises SetUpError."""
        try:
            value = self.render(template, identity)
        except ExpressionError as error:
            raise SetUpError(f"the arguments can't be made: {error}") from None
        return value if isinstance(value, dict) else {}

    def set_up(self) -> None:
        """Make what there must be before the first call; raises SetUpError."""
        if self._file.world is not None:
            shutil.copytree(self._file.world, self.folder, symlinks=True, dirs_exist_ok=True)
        for name, text in self._file.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for each in (*self._file.set_up, *self._entry.set_up):
            self._prepare(each)

    def tear_down(self) -> list[str]:
        """Take away what was set up, as much as can be, and return what fails."""
        failures = []
        for each in (*self._entry.tear_down, *self._file.tear_down):
            try:
                self._prepare(each)
            except (SetUpError, HangingError) as error:
                failures.append(f"the world isn't torn down: {error}")
        return failures

    def _prepare(self, each: Preparation) -> None:
        identity = Identity(self._run_id, each.id)
        asked = Asked(each.tool, self.arguments(each.arguments, identity), identity, self.folder)
        answer = self.caller.call(asked)
        if answer.kind is not OutcomeKind.SUCCEEDED:
            raise SetUpError(f"{each.id} ({each.tool}) came to {answer.kind}: {answer.failure or ''}")
        self._steps[each.id] = {"output": answer.output, "status": "succeeded"}

    @property
    def is_touched(self) -> bool:
        """Tell whether anything was set up that may have to be torn down."""
        return bool(self._steps)

    def look(self) -> Index:
        """Return what there is now; raises SetUpError where it can't be seen."""
        observations = [*self._file.observe, *self._entry.observe]
        checks: dict[str, Check] = {
            f"{each.tool}" if number == 0 else f"{each.tool} ({number + 1})": partial(self._observe, each)
            for number, each in _number(observations)
        }
        return index_look(self._look_at(checks).look())

    def _look_at(self, checks: dict[str, Check] | None = None) -> Looking:
        return Looking(self.folder, self._run_id, checks, ignored=self._file.ignore)

    def _observe(self, observation: Observation) -> Json:
        identity = Identity(self._run_id, "observe")
        asked = Asked(observation.tool, self.arguments(observation.arguments, identity), identity, self.folder)
        answer = self.caller.call(asked)
        if answer.kind is OutcomeKind.REJECTED:
            return {"rejected": str(answer.failure)}  # such as: there is no such thing
        if answer.kind is not OutcomeKind.SUCCEEDED:
            raise SetUpError(f"{observation.tool} doesn't show what there is: {answer.failure or answer.kind}")
        if observation.show is None:
            return answer.output
        try:
            return self.render(observation.show, identity, {"output": answer.output})
        except ExpressionError as error:
            raise SetUpError(f"what {observation.tool} shows can't be read: {error}") from None

    def measure_files(self) -> dict[str, int]:
        """Return how much there is in each file that counts."""
        return {name.replace(self._run_id, "RUN"): size for name, size in self._look_at().list_sizes()}


def _number(observations: Sequence[Observation]) -> Iterator[tuple[int, Observation]]:
    """Yield each observation with how many of its tool stand before it."""
    seen: dict[str, int] = {}
    for each in observations:
        yield seen.get(each.tool, 0), each
        seen[each.tool] = seen.get(each.tool, 0) + 1


@contextmanager
def make_folder(place: Path) -> Iterator[Path]:
    """Give an empty folder that goes when the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="world-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
