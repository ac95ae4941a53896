"""Which dead letter is meant, and whether what a person says of it can stand in the log (rule E23)."""

from __future__ import annotations

import re
import shlex
from typing import Final, NamedTuple

from sagactl.app import Project
from sagactl.core.canonical import Json
from sagactl.core.needed import find_objections
from sagactl.core.records import Direction, Operation
from sagactl.core.saga import Saga
from sagactl.errors import InvalidError, NotFoundError, UsageError
from sagactl.log.base import DeadLetter, Log, RunRow

_STEP: Final = re.compile(r"([a-z][a-z0-9_]*)(?:\[(\d{1,6})\])?", re.ASCII)


class Matter(NamedTuple):
    """What a decision is about."""

    operation: Operation | None
    letter: DeadLetter | None
    """None where the operation has no open dead letter: it is asked all the same, as the refusal is recorded (E22)."""


def find_matter(project: Project, row: RunRow, step: str | None) -> Matter:
    """Return what a decision is about, by `step` or `step[3]`, or the run's only open dead letter.

    Raises NotFoundError, and UsageError where several are meant.
    """
    letters = project.log().dead_letters(run_id=row.run_id)
    match = None if step is None else _STEP.fullmatch(step)
    if match is None or match[1] not in project.saga_of(row).by_id:
        letter = None if step is None and not letters else _find(letters, row, step)
        return Matter(None if letter is None else letter.operation, letter)
    item = int(match[2]) if match[2] else None
    place = (match[1], item)
    letter = next((each for each in letters if (each.operation.step, each.operation.item) == place), None)
    if letter is None and item is None and any(each.operation.step == match[1] for each in letters):
        return Matter(None, _find(letters, row, step))  # an item is to be named: this says which
    return Matter(Operation(*place, Direction.ACTION) if letter is None else letter.operation, letter)


def find_letter(log: Log, row: RunRow, step: str | None) -> DeadLetter:
    """Return the open dead letter that is meant, or the last one of those that are settled; raises as `find_matter`."""
    letters = log.dead_letters(run_id=row.run_id)
    settled = [each for each in reversed(log.dead_letters(run_id=row.run_id, is_open=False)) if each not in letters]
    if not letters and not settled:
        message = f"run {row.run_id} has no dead letter"
        raise NotFoundError(message, code="no-dead-letter", hint=f"sagactl show {row.run_id}")
    if step is None:
        return _find(letters or settled[:1], row, None)
    return _find([*letters, *settled], row, step)


def _find(letters: list[DeadLetter], row: RunRow, step: str | None) -> DeadLetter:
    if step is None:
        if len(letters) == 1:
            return letters[0]
        names = ", ".join(letter.operation.place for letter in letters)
        hint = f"sagactl dlq list --run {row.run_id}"
        raise UsageError(f"run {row.run_id} has several dead letters: {names}; name the step", hint=hint)
    match = _STEP.fullmatch(step)
    for letter in letters:
        item = letter.operation.item
        if match and letter.operation.step == match[1] and item == (int(match[2]) if match[2] else None):
            return letter
    names = ", ".join(letter.operation.place for letter in letters) or "none"
    message = f"no dead letter of {step} in run {row.run_id}, there are: {names}"
    raise NotFoundError(message, code="no-such-step", hint=f"sagactl dlq list --run {row.run_id} --all")


def check_output(project: Project, row: RunRow, letter: DeadLetter, output: Json) -> None:
    """Raise InvalidError where *output* can't stand for what the action of a dead letter has returned.

    It must fit the tool's output schema, and have what the undo and later steps read of it; else they would be refused,
    and the run stuck.
    """
    saga = project.saga_of(row)
    tool = saga.tools[saga.by_id[letter.operation.step].action.tool]
    objection = project.toolbox.check_output(tool, output)
    if objection is not None:
        message = f"--output doesn't fit what {tool.name} returns: {objection}"
        raise InvalidError(message, code="invalid-input", hint=f"sagactl tools {tool.name}")
    _check_needs(project, saga, letter, output)


def _check_needs(project: Project, saga: Saga, letter: DeadLetter, output: Json) -> None:
    state = project.read(letter.run_id).state
    if letter.operation not in state.dead:
        return  # settled meanwhile: the refusal says so
    objections = list(find_objections(saga, state, letter.operation, output, project.evaluator(saga)))
    if objections:
        name = letter.operation.place
        message = f"--output can't stand for what {name} has returned: {'; '.join(objections)}"
        hint = shlex.join(["sagactl", "dlq", "show", letter.run_id, name])
        raise InvalidError(message, code="invalid-input", hint=hint)
