"""Opens an image of a disk with the log's own code, and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from sagactl.core.records import Intent
from sagactl.errors import SagactlError
from sagactl.log.sqlite import SqliteLog
from tests.log.disk.images import Image
from tests.log.disk.trace import State, Trace, state_of
from tests.log.disk.work import open_log
from tests.log.samples import HOLDER, Time


@dataclass
class Judgement:
    """How many images were opened, how many held a transaction that nobody was told of, and which are wrong."""

    images: int = 0
    ahead: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)


def put(files: dict[str, bytes], folder: Path) -> Path:
    """Lay an image down in a folder, and return the path of its log."""
    for old in folder.iterdir():
        old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / "log.db"


def judge_all(images: Iterable[Image], trace: Trace, folder: Path, *, wrong_max: int = 20) -> Judgement:
    """Judge images one by one, until too many are wrong."""
    folder.mkdir()
    found = Judgement()
    for image in images:
        found.images += 1
        promised = trace.states_at(image.cut)
        state, problem = _judge(put(image.files, folder), promised, trace.calls_at(image.cut))
        found.ahead += state != promised[0]
        if problem is not None:
            found.wrong.append((image.name, f"image {image.name}: {problem}"))
            if len(found.wrong) >= wrong_max:
                break
    return found


def _judge(path: Path, promised: tuple[State, State], calls: set[str]) -> tuple[State, str | None]:
    """Open an image as the next command does: what was promised is there, verifies, and can be gone on with."""
    time = Time()
    time.pass_ms(120_000)
    state: State = ()
    try:
        with closing(open_log(path, time=time)) as log:
            state = state_of(log)
            if state not in promised:
                return state, f"it holds {state}, promised was {promised}"
            if missing := calls - _intents_of(log, state):
                return state, f"calls were made without an intent: {missing}"
            if problems := log.verify().findings:
                return state, f"verify finds {problems}"
            for run_id in log.unfinished():
                log.claim(run_id, holder=HOLDER)
            problems = log.verify().findings
            return state, f"after a claim verify finds {problems}" if problems else None
    except SagactlError as error:
        return state, f"{type(error).__name__}: {error.message}"


def _intents_of(log: SqliteLog, state: State) -> set[str]:
    """Return the keys of all calls that the log knows of."""
    runs = [run_id for run_id, _, _ in state if not run_id.startswith("tombstone")]
    records = [stored.record for run_id in runs for stored in log.read(run_id)]
    return {each.key for each in records if isinstance(each, Intent)}
