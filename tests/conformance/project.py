"""A project with planted mistakes, and `sagactl tools check` run in it as an author of tools would."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.chaos.project import PLANTED as OF_CHAOS
from tests.cli.project import Project, Result

PLANTED = Path(__file__).parent / "planted"
SECRET = "hunter2-hunter2"


def make_project(folder: Path) -> Project:
    """Return a project with all planted tools and their check files."""
    for source in (OF_CHAOS, PLANTED):
        shutil.copytree(source, folder / "plugins", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return Project(folder, {"SAGACTL_SECRET_API_KEY": SECRET})


def check(project: Project, *words: str, timeout: float = 240) -> Result:
    """Run it."""
    return project.run("tools", "check", "-q", *words, timeout=timeout)


def verdicts_of(document: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the verdicts by tool and rule."""
    return {tool["name"]: {each["rule"]: each["verdict"] for each in tool["rules"]} for tool in document["tools"]}


def broken_of(document: dict[str, Any]) -> dict[str, set[str]]:
    """Return the broken rules of each tool that breaks one."""
    found = {
        name: {rule for rule, verdict in rules.items() if verdict == "broken"}
        for name, rules in verdicts_of(document).items()
    }
    return {name: rules for name, rules in found.items() if rules}
