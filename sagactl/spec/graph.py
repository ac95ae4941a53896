"""The graph of a saga: what each step needs, cycles, who is whose ancestor, and the pivot as a barrier (rules F6, F7).

A step without `needs` follows all steps above it. It is enough that it needs those of them that nothing above needs
yet: the rest follows from these, and the number of edges stays about that of the steps. Ancestors are sets of bits in
an integer, so two thousand steps cost half a megabyte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from sagactl.dataclass import dataclass
from sagactl.spec.draft import DraftStep
from sagactl.written.fields import Placed
from sagactl.written.findings import Findings
from sagactl.written.visible import name_odd, quote

_CYCLE_SHOWN_MAX: Final = 6


@dataclass(frozen=True)
class Graph:
    """Steps by their index in the file; `order` has each step behind all that it needs."""

    steps: tuple[DraftStep, ...]
    needs: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    ancestors: tuple[int, ...]
    index: dict[str, int]

    def is_ancestor(self, first: int, second: int) -> bool:
        """Tell whether *first* is certainly finished when *second* starts."""
        return bool(self.ancestors[second] >> first & 1)

    def is_behind_pivot(self, step: int) -> bool:
        """Tell whether a pivot is among the ancestors."""
        return bool(self.ancestors[step] & self.pivots)

    @cached_property
    def pivots(self) -> int:
        """Return the set of the pivots."""
        return sum(1 << position for position, step in enumerate(self.steps) if step.is_pivot)


def build_graph(steps: Sequence[DraftStep], findings: Findings) -> Graph:
    """Work out the graph; unknown needs and cycles are noted and left out of it."""
    index: dict[str, int] = {}
    for position, step in enumerate(steps):
        if step.id is not None:
            index.setdefault(step.id, position)
    wanted = _resolve(steps, index, findings)
    order, needs = _sort(steps, wanted, findings)
    ancestors = [0] * len(steps)
    for position in order:
        for need in needs[position]:
            ancestors[position] |= ancestors[need] | 1 << need
    return Graph(tuple(steps), tuple(map(tuple, needs)), tuple(order), tuple(ancestors), index)


def _resolve(steps: Sequence[DraftStep], index: dict[str, int], findings: Findings) -> list[list[int]]:
    wanted: list[list[int]] = []
    loose: dict[int, None] = {}
    for position, step in enumerate(steps):
        if step.needs is None:
            needs = list(loose)
        else:
            found = [_find(name, step, index, findings) for name in step.needs]
            needs = list(dict.fromkeys(each for each in found if each is not None))
        for need in needs:
            loose.pop(need, None)
        loose[position] = None
        wanted.append(needs)
    return wanted


def _find(name: Placed[str], step: DraftStep, index: dict[str, int], findings: Findings) -> int | None:
    if name.value not in index:
        message = f"{step.label} needs {quote(name.value)}, but there is no such step{name_odd(name.value)}"
        hint = "needs names steps of this file by their id"
        findings.unknown("unknown-step", message, name.span, word=name.value, known=index, hint=hint)
    return index.get(name.value)


def _sort(steps: Sequence[DraftStep], wanted: list[list[int]], findings: Findings) -> tuple[list[int], list[list[int]]]:
    """Return an order, and the needs without those that close a cycle; walks without recursion."""
    needs: list[list[int]] = [[] for _ in steps]
    order: list[int] = []
    path: dict[int, Iterator[int]] = {}
    done: set[int] = set()
    for root in range(len(steps)):
        if root not in done:
            path[root] = iter(wanted[root])
        while path:
            current = next(reversed(path))
            need = next(path[current], None)
            if need is None:
                path.pop(current)
                done.add(current)
                order.append(current)
            elif need in path and findings.is_full:
                continue
            elif need in path:
                _report_cycle(steps, list(path), need, findings)
            else:
                needs[current].append(need)
                if need not in done:
                    path[need] = iter(wanted[need])
    return order, needs


def _report_cycle(steps: Sequence[DraftStep], path: list[int], start: int, findings: Findings) -> None:
    cycle = path[path.index(start) :]
    names = [steps[position].id or steps[position].label for position in [*cycle, start]]
    if len(names) > _CYCLE_SHOWN_MAX:
        names = [*names[: _CYCLE_SHOWN_MAX - 2], f"... ({len(names) - _CYCLE_SHOWN_MAX + 1} more)", names[-1]]
    last = steps[cycle[-1]]
    span = next((need.span for need in last.needs or () if need.value == steps[start].id), last.span)
    if len(cycle) == 1:
        findings.error("cycle", f"{last.label} needs itself", span)
        return
    hint = None if last.needs is not None else "a step without needs follows all steps above it"
    findings.error("cycle", f"{len(cycle)} steps need one another: {' -> '.join(names)}", span, hint=hint)


def check_barrier(graph: Graph, findings: Findings) -> None:
    """Note the steps that are neither before nor behind each pivot (F6)."""
    behind = [0] * len(graph.steps)
    for position in reversed(graph.order):
        for need in graph.needs[position]:
            behind[need] |= behind[position] | 1 << position
    everything = (1 << len(graph.steps)) - 1
    for pivot, step in enumerate(graph.steps):
        if findings.is_full:
            return
        loose = everything & ~graph.ancestors[pivot] & ~behind[pivot] & ~(1 << pivot) if step.is_pivot else 0
        for position, other in enumerate(graph.steps) if loose else ():
            # Of two pivots side by side the first one tells.
            if loose >> position & 1 and not (other.is_pivot and position < pivot):
                _report_loose(other, step, findings)


def _report_loose(step: DraftStep, pivot: DraftStep, findings: Findings) -> None:
    message = f"{step.label} is neither before nor behind the pivot {pivot.id or pivot.label}"
    first, second = step.id or step.label, pivot.id or pivot.label
    hint = (
        f"add {second} to the needs of {first} to put it behind, or {first} to the needs of {second} to put it before"
    )
    findings.error("pivot-order", message, step.span, hint=hint)
