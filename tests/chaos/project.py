"""A project with planted mistakes, and `sagactl chaos` run in it as a user would."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.cli.project import Project, Result

PLANTED = Path(__file__).parent / "planted"

BEFORE_PIVOT = """
saga: planted
steps:
  - {{id: first, tool: good.put}}
  - {{id: wrong, tool: {tool}{more}}}
  - {{id: contract, tool: good.sign, pivot: true}}
"""
WITHOUT_PIVOT = """
saga: planted
steps:
  - {{id: first, tool: good.put}}
  - {{id: wrong, tool: {tool}{more}}}
  - {{id: last, tool: good.put}}
"""
BEHIND_PIVOT = """
saga: planted
steps:
  - {{id: contract, tool: good.sign, pivot: true}}
  - {{id: wrong, tool: {tool}, compensate: {{none: it stays}}}}
"""


def make_project(folder: Path, saga: str, settings: str = "") -> Project:
    """Return a project with the planted tools, one saga, and *settings* for its experiments."""
    write_settings(folder, settings)
    shutil.copytree(PLANTED, folder / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "sagas").mkdir()
    (folder / "sagas" / "planted.yaml").write_text(saga)
    return Project(folder)


def write_settings(folder: Path, settings: str) -> None:
    """Put *settings* into the table `[chaos]`."""
    (folder / "sagactl.toml").write_text(f'[chaos]\nignore = ["marks/*"]\n{settings}\n')


def run_chaos(project: Project, *arguments: str, timeout: float = 240) -> Result:
    """Run it, one process at a time: the tests have the other core."""
    return project.run("chaos", "planted", "-q", "--jobs", "2", *arguments, timeout=timeout)


def codes_of(document: dict[str, Any], step: str = "wrong") -> set[str]:
    """Return what was found about a step, unsafe or noted."""
    return {found["code"] for found in document["findings"] if found["step"] == step}
