"""The trail of an experiment: a file that outlives its processes, a line for all that happens around the tools."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Collection, Sequence
from decimal import Decimal
from pathlib import Path

from sagactl.chaos.experiment import Fault, FaultKind
from sagactl.chaos.observed import Seen, Sight
from sagactl.core.canonical import Json, canonical, parse
from sagactl.core.records import Direction, Operation


class Trail:
    """Lines that are there as soon as they are written, also when the process is killed in the next moment."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def note(self, seen: Seen) -> None:
        """Add a line."""
        operation = seen.operation
        place: Json = None if operation is None else [operation.step, operation.item, operation.direction.value]
        line: Json = {
            "sight": seen.sight.value,
            "operation": place,
            "word": seen.word,
            "digest": seen.digest,
            "growth": dict(seen.growth),
        }
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, (canonical(line) + "\n").encode())
        finally:
            os.close(descriptor)

    def read(self) -> list[Seen]:
        """Return all lines; one that the end of a process has cut off is left out."""
        if not self._file.exists():
            return []
        whole = self._file.read_text(encoding="utf-8").rpartition("\n")[0]
        return [_read_line(parse(line)) for line in whole.splitlines()]


def _read_line(line: Json) -> Seen:
    assert isinstance(line, dict), "the trail is ours"
    growth = line["growth"]
    assert isinstance(growth, dict), "the trail is ours"
    return Seen(
        Sight(str(line["sight"])),
        _read_operation(line["operation"]),
        str(line["word"]),
        str(line["digest"]),
        {trait: much for trait, much in growth.items() if isinstance(much, int | Decimal)},
    )


def _read_operation(value: Json) -> Operation | None:
    if not isinstance(value, list):
        return None
    step, item, direction = value
    return Operation(str(step), item if isinstance(item, int) else None, Direction(str(direction)))


class Plan:
    """The faults that are still to come; those that the trail tells of have come."""

    def __init__(self, faults: Sequence[Fault], trail: Trail) -> None:
        self._faults = faults
        self._trail = trail
        self._fired = Counter(int(seen.word) for seen in trail.read() if seen.sight is Sight.FIRED)

    def take(self, operation: Operation | None, kinds: Collection[FaultKind], line: str | None = None) -> Fault | None:
        """Return the fault that comes now, if any, and note that it has come; one that kills does so here."""
        for number, fault in enumerate(self._faults):
            is_here = fault.kind in kinds and fault.operation == operation and fault.line == line
            if is_here and self._is_due(number):
                return self._fire(number)
        return None

    def is_watching(self, operation: Operation) -> bool:
        """Tell whether the process is to die at a line of the tool that *operation* calls."""
        return any(
            fault.line is not None and fault.operation == operation and self._is_due(number)
            for number, fault in enumerate(self._faults)
        )

    def _is_due(self, number: int) -> bool:
        """Faults that come once come in their order."""
        if self._faults[number].always:
            return True
        before = [each for each in range(number) if not self._faults[each].always]
        return not self._fired[number] and all(self._fired[each] for each in before)

    def _fire(self, number: int) -> Fault:
        fault = self._faults[number]
        self._trail.note(Seen(Sight.FIRED, fault.operation, str(number)))
        self._fired[number] += 1
        if fault.is_kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return fault
