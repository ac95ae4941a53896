"""A fresh project for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a project with an empty sandbox."""
    return Project(tmp_path)
