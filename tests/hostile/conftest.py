"""A project for each attack, and what a harmless command costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.attack import STRIKES_GOAL, Target
from tests.proof import Prove

PLAIN = "saga: plain\nsteps:\n  - {id: one, tool: trap.take, with: {value: 1}}\n"


@pytest.fixture(scope="session")
def harmless_seconds(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return the processor time of a command that has nothing to refuse."""
    target = Target.make(tmp_path_factory.mktemp("harmless") / "project")
    target.write(PLAIN)
    return min(target.strike("validate", "evil.yaml").cpu_seconds for _ in range(3))


@pytest.fixture
def target(tmp_path: Path, harmless_seconds: float, prove: Prove) -> Target:
    """Return a project of its own for one attack, whose strikes are counted."""
    made = Target.make(tmp_path / "project")
    made.harmless_seconds = harmless_seconds
    made.tell = lambda: prove("hostile inputs", 1, goal=STRIKES_GOAL)
    return made
