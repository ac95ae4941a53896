"""The table that the suite ends with: what was tried, how much of it, and how much was asked for.

A test that proves something by the number of cases says so with the fixture `prove`. Parts of one measure may be
counted in several tests and several processes: they are added up. The whole suite fails if a measure falls short of its
goal; a chosen part of it only prints what it found.

What is asked for stands in `sagactl help guarantees` too, and a test that asks for something else fails. A goal of one
says only that a thing happened at all, and isn't on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PROPERTY = "proof"
PAGE = Path(__file__).parent.parent / "sagactl" / "help" / "guarantees.md"
Prove = Callable[..., None]


@dataclass(frozen=True)
class Measure:
    """What was counted under one name, and what is asked for: at least so many, or exactly none."""

    name: str
    found: int
    goal: int

    @property
    def reached(self) -> bool:
        """Tell whether it is enough; a goal of zero asks for exactly zero."""
        return self.found == 0 if self.goal == 0 else self.found >= self.goal


def add_up(reports: Iterable[pytest.TestReport]) -> list[Measure]:
    """Return the measures of all reports in the order of their names, each added up over all tests that count it."""
    found: dict[str, Measure] = {}
    for report in reports:
        for key, value in report.user_properties:
            if key == PROPERTY and isinstance(value, list):
                name, count, goal = value
                before = found.get(name, Measure(name, 0, goal))
                found[name] = Measure(name, before.found + count, max(before.goal, goal))
    return [found[name] for name in sorted(found)]


def lines_of(measures: list[Measure]) -> list[str]:
    """Return the table as lines: the measure, what was found, what was asked for."""
    width = max(len(each.name) for each in measures)
    asked = [f"{each.goal:,} or more" if each.goal else "none" for each in measures]
    return [
        f"{each.name:<{width}}  {each.found:>12,}  {goal:<18}{'' if each.reached else '  SHORT'}".rstrip()
        for each, goal in zip(measures, asked, strict=True)
    ]


@cache
def read_goals() -> dict[str, str]:
    """Return what the manual says that is asked for, by measure."""
    section = PAGE.read_text(encoding="utf-8").partition("## How much is tried")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {name.strip(): goal.strip() for name, goal in rows[1:]}


@pytest.fixture
def prove(request: pytest.FixtureRequest) -> Prove:
    """Return what counts: `prove("name of the measure", found, goal=…)`; a goal of zero asks for none at all."""

    def count(name: str, found: int, *, goal: int) -> None:
        if goal != 1:
            assert read_goals().get(name) == (f"{goal:,}" if goal else "none"), f"{PAGE.name} says otherwise of: {name}"
        request.node.user_properties.append((PROPERTY, [name, found, goal]))

    return count
