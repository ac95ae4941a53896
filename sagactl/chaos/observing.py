"""From what the lives of an experiment left behind, a result and a trail, to what the judge is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sagactl.chaos.experiment import Experiment, FaultKind
from sagactl.chaos.forks import Finished, How
from sagactl.chaos.life import TRAIL, Setting
from sagactl.chaos.observed import Close, Observed, OperationEnd, Seen, Sight
from sagactl.chaos.trail import Trail
from sagactl.chaos.traits import Growth, add_up, is_name, keep_steady
from sagactl.core.canonical import Json
from sagactl.core.records import Cause, Direction, Operation, RunStatus
from sagactl.core.transitions import Phase


def list_operations(observed: Observed, direction: Direction) -> tuple[Operation, ...]:
    """Return the operations of one direction in the order of their first calls."""
    found = [seen.operation for seen in observed.trail if seen.sight is Sight.CALL and seen.operation is not None]
    return tuple(dict.fromkeys(operation for operation in found if operation.direction is direction))


def gather_lines(observed: Observed) -> dict[Operation, tuple[str, ...]]:
    """Return the lines that each tool came to, in order."""
    lines: dict[Operation, list[str]] = {}
    for seen in observed.trail:
        if seen.sight is Sight.LINE and seen.operation is not None:
            lines.setdefault(seen.operation, []).append(seen.word)
    return {operation: tuple(dict.fromkeys(found)) for operation, found in lines.items()}


def gather_growth(observed: Observed) -> dict[Operation, Growth]:
    """Return what each operation added to the world."""
    return {seen.operation: seen.growth for seen in observed.trail if seen.operation and seen.sight is Sight.GROWTH}


def compare_growth(
    first: Mapping[Operation, Growth], second: Mapping[Operation, Growth]
) -> tuple[dict[Operation, Growth], bool]:
    """Return what each operation adds in both of two runs, and whether the names of files are the same in both."""
    steady = {operation: keep_steady(growth, second.get(operation, {})) for operation, growth in first.items()}
    names = [trait for growth in (*first.values(), *second.values()) for trait in growth if is_name(trait)]
    known = {trait for growth in steady.values() for trait in growth}
    return dict(steady), all(name in known for name in names)


def find_rest(undone: Observed) -> dict[Operation, Growth]:
    """Return what each action has left although the run was rolled back, unless the run says so itself."""
    growth = gather_growth(undone)
    rest = {
        operation: add_up([grown, growth.get(operation.other, {})])
        for operation, grown in growth.items()
        if operation.direction is Direction.ACTION and (operation.step, operation.item) not in undone.left
    }
    return {operation: grown for operation, grown in rest.items() if grown}


def observe(setting: Setting, experiment: Experiment, finished: Finished, lives: int) -> Observed:
    """Return what was seen of *experiment*, whose last life has *finished*."""
    trail = tuple(Trail(setting.folder / TRAIL).read())
    fired = frozenset(int(seen.word) for seen in trail if seen.sight is Sight.FIRED)
    match finished.how:
        case How.TIMED_OUT:
            return Observed(Close.TIMEOUT, trail=trail, fired=fired, lives=lives)
        case How.DIED:
            return Observed(Close.CRASHED, finished.detail, trail=trail, fired=fired, lives=lives)
        case How.BUSY:
            return Observed(Close.HELD_UP, finished.detail, trail=trail, fired=fired, lives=lives)
        case _:
            observed = _read_result(finished.result, trail, fired, lives)
    is_reached = fired == frozenset(range(len(experiment.faults))) or _is_moot(experiment, fired)
    return observed if is_reached else replace(observed, close=Close.NOT_REACHED)


def _is_moot(experiment: Experiment, fired: frozenset[int]) -> bool:
    """Tell whether the faults that didn't come are mere blindness: a probe that nobody asked."""
    missing = [fault for number, fault in enumerate(experiment.faults) if number not in fired]
    return all(fault.kind is FaultKind.PROBE_BLIND for fault in missing)


def _read_result(result: Json, trail: tuple[Seen, ...], fired: frozenset[int], lives: int) -> Observed:
    assert isinstance(result, dict), "a life ends with a document"
    found: dict[str, object] = dict(result)
    operations = found["operations"]
    assert isinstance(operations, list), "a life ends with a document"
    cause = found["cause"]
    left, growth, telling = found["left"], found["growth"], found["telling"]
    assert isinstance(telling, list), "a life ends with a document"
    assert isinstance(left, list), "a life ends with a document"
    assert isinstance(growth, dict), "a life ends with a document"
    return Observed(
        close=Close(str(found["close"])),
        detail=str(found["detail"]),
        status=RunStatus(str(found["status"])),
        cause=None if cause is None else Cause(str(cause)),
        failure=str(found["failure"]),
        operations=dict(map(_read_operation, operations)),
        left=frozenset((str(step), item) for step, item in left),
        pivot_passed=bool(found["pivot_passed"]),
        growth=growth,
        is_restored=bool(found["is_restored"]),
        changed=str(found["changed"]),
        trail=trail,
        fired=fired,
        telling=tuple(map(_read_place, telling)),
        lives=lives,
    )


def _read_operation(found: dict[str, Json]) -> tuple[Operation, OperationEnd]:
    operation = _read_place(found["operation"])
    cause, attempts = found["cause"], found["attempts"]
    assert isinstance(attempts, int), "a life ends with a document"
    return operation, OperationEnd(
        phase=Phase(str(found["phase"])),
        doubt=bool(found["doubt"]),
        attempts=attempts,
        failure=str(found["failure"]),
        cause=None if cause is None else Cause(str(cause)),
        digest=str(found["digest"]),
    )


def _read_place(value: Json) -> Operation:
    assert isinstance(value, list), "a life ends with a document"
    step, item, direction = value
    return Operation(str(step), item if isinstance(item, int) else None, Direction(str(direction)))
