"""One warm process for all scenarios of a module, a project for each, and the count of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof import Prove
from tests.scenarios.scene import Scene, Warm

SCENARIOS_GOAL = 120


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """Give the process that commands are forked from, and end it."""
    made = Warm()
    yield made
    made.close()


@pytest.fixture
def scene(tmp_path: Path, warm: Warm) -> Iterator[Scene]:
    """Give a project with the probe plugin; whoever makes a run in it makes the common checks too."""
    made = Scene.make(tmp_path / "project", warm)
    yield made
    assert made.is_checked or not (made.path / ".sagactl" / "log.db").exists(), "the common checks were forgotten"


@pytest.fixture(autouse=True)
def _count(request: pytest.FixtureRequest, prove: Prove) -> None:
    """Count what is named after a scenario."""
    if re.match(r"test_[bx]\d\d_", request.node.name):
        prove("scenarios of other engines' failures", 1, goal=SCENARIOS_GOAL)
