"""What the README and the manual say of `chaos` is true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

from sagactl.chaos.findings import MEANINGS, Code, Severity
from tests.cli.project import ROOT, Project
from tests.cli.typed import parse_typed
from tests.docs.test_readme import FILES, TRANSCRIPTS, _split

PAGE = (ROOT / "sagactl" / "help" / "chaos.md").read_text()
(TRANSCRIPT,) = [each for each in TRANSCRIPTS if "sagactl chaos" in each]


def _without_counts(text: str) -> str:
    """Blot out how many there are: releases of Python count the lines of a function differently."""
    return re.sub(r"\b\d+\b", "N", re.sub(r" +\d+ +\d+ ", " N ", text)).strip()


def test_the_transcript_of_the_readme_is_true(tmp_path: Path) -> None:
    """The tools of the five minutes pass; with the slip that the README makes they are found out as it shows."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    project = Project(tmp_path)
    (edit, _), (command, expected), _ = _split(TRANSCRIPT)
    words = shlex.split(command)[1:]
    assert project.run(*words).code == 0
    plugin = tmp_path / "plugins" / "parking.py"
    _, old, new, _ = shlex.split(edit)[2].split("|")
    assert old in plugin.read_text()
    plugin.write_text(plugin.read_text().replace(old, new))
    found = project.run(*words)
    assert found.code == 1
    assert _without_counts(found.out) == _without_counts(expected)
    assert not (tmp_path / "tickets").exists()


def test_the_page_names_each_finding_as_what_it_is() -> None:
    """`sagactl help chaos` has a row for each code there is, under `unsafe` or under `note`."""
    unsafe, note = (PAGE[PAGE.index(f"| {word} | means |") :].split("\n\n")[0] for word in ("unsafe", "note"))
    for severity, table in ((Severity.UNSAFE, unsafe), (Severity.NOTE, note)):
        named = set(re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE))
        assert named == {code.value for code in Code if MEANINGS[code].severity is severity}


def test_the_job_for_ci_can_be_pasted() -> None:
    """The page's job is YAML, and its command is one that there is."""
    (text,) = re.findall(r"```yaml\n(name: chaos.*?)```", PAGE, re.DOTALL)
    steps = yaml.safe_load(text)["jobs"]["chaos"]["steps"]
    (command,) = [step["run"] for step in steps if "chaos onboarding" in step.get("run", "")]
    assert parse_typed(command.removeprefix(".venv/bin/").strip()) == ("chaos",)
