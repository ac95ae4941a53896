"""One warm process for all scenarios of a module, and a project for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.scene import Scene, Warm


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """Give the process that commands are forked from, and end it."""
    made = Warm()
    yield made
    made.close()


@pytest.fixture
def scene(tmp_path: Path, warm: Warm) -> Scene:
    """Give a project with the probe plugin."""
    return Scene.make(tmp_path / "project", warm)
