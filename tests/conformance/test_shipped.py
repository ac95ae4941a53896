"""The plugins that ship keep the golden rules, or their check files say why they can't."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import ROOT, Project

SANDBOX = ("billing", "crm", "cloud", "mail")
REAL = ("artefacts", "database", "deploy", "files", "git", "sql")
EXCUSED = {("deploy.point", "probe"), ("deploy.point", "undo-never-ran")} | {
    ("git.push", "probe"),
    ("sql.forget", "same-key"),
    ("sql.forget", "at-once"),
    ("git.push", "undo-never-ran"),
}
"""What can't be kept, and is documented."""


def _check(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    shutil.copytree(ROOT / "plugins", folder / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    result = Project(folder).run("tools", "check", *words, "-q", "-o", "json", timeout=600)
    return result.code, result.json


@pytest.mark.parametrize("plugin", [*SANDBOX, *REAL])
def test_a_shipped_plugin_keeps_the_rules(plugin: str, tmp_path: Path) -> None:
    """Every shipped plugin passes, all of it is tried, or what it can't keep is documented in its file."""
    code, document = _check(tmp_path, plugin, "--strict")
    found = {(tool["name"], each["rule"]): each for tool in document["tools"] for each in tool["rules"]}
    wrong = {place: each["seen"] for place, each in found.items() if each["verdict"] in {"broken", "untried"}}
    assert (code, wrong) == (0, {})
    excused = {place for place, each in found.items() if each["verdict"] == "excused"}
    assert excused == {place for place in EXCUSED if place[0].startswith(f"{plugin}.")}
    assert document["counts"]["holds"] >= 7


def test_the_project_is_not_touched(tmp_path: Path) -> None:
    """A check acts in worlds of its own: the project's sandbox, log and folder are as they were."""
    assert _check(tmp_path, "billing", "artefacts", "--rule", "same-key")[0] == 0
    assert {each.name for each in tmp_path.iterdir()} == {"plugins"}
