"""Fixtures of the tests of what disks do to a log."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory where there is one: what matters here is what files hold."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else tmp_path))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def image(pytestconfig: pytest.Config) -> str | None:
    """Return the one image of a power cut that was asked for."""
    found: str | None = pytestconfig.getoption("--image")
    return found
