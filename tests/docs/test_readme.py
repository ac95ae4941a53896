"""The README's files and transcripts are true: they are run, and compared but for ids and times."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.project import ROOT, Project

README = (ROOT / "README.md").read_text()
FILES = dict(re.findall(r"<!-- file (\S+) -->\n```\w+\n(.*?)```", README, re.DOTALL))
TRANSCRIPTS = re.findall(r"```console\n(.*?)```", README, re.DOTALL)


def _normalize(text: str) -> str:
    """Blot out what differs from run to run."""
    text = re.sub(r"\d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\b[\d.]+m?s\b", "TOOK", text)
    text = re.sub(r"\b(onboarding|visit|log) (?=[2-9a-z]*\d)[2-9a-hjkmnp-z]{6,13}\b", r"\1 RUN", text)
    text = re.sub(r"\b(onboarding|visit|log) [2-9a-hjkmnp-z]{6}\b", r"\1 RUN", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _split(transcript: str) -> list[tuple[str, str]]:
    """Return each command of a transcript with what it printed."""
    parts = re.split(r"^\$ (.*)$", transcript, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def _play(project: Project, transcript: str) -> None:
    bin_folder = project.path / "bin"
    bin_folder.mkdir(exist_ok=True)
    script = bin_folder / "sagactl"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m sagactl "$@"\n')
    script.chmod(0o755)
    code = 0
    for command, expected in _split(transcript):
        whole = f'PATH="{bin_folder}:$PATH"; (exit {code}); {command}'
        done = subprocess.run(
            ["bash", "-c", whole],
            cwd=project.path,
            env=project.environment({"LC_ALL": "C.UTF-8"}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        code = done.returncode
        assert _normalize(done.stdout) == _normalize(expected), command


def test_the_transcript_of_a_failure_is_true(tmp_path: Path) -> None:
    """The README's first transcript, and the check of the shipped sagas, happen as written."""
    project = Project.make(tmp_path)
    _play(project, TRANSCRIPTS[0])
    _play(project, TRANSCRIPTS[1])


def test_the_first_saga_and_plugin_work_as_written(tmp_path: Path) -> None:
    """The README's five minutes: its plugin and its saga, saved as they stand, fail and are undone as shown."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    project = Project(tmp_path)
    _play(project, TRANSCRIPTS[2])
    assert list((tmp_path / "tickets").iterdir()) == []


def test_every_command_that_the_readme_names_exists() -> None:
    """Nothing in the README or in the help pages names a command that isn't there."""
    from sagactl.cli.commands import COMMANDS

    texts = [README, *(page.read_text() for page in (ROOT / "sagactl" / "help").glob("*.md"))]
    named = {name for text in texts for name in re.findall(r"`sagactl ([a-z]+)", text)}
    assert named <= set(COMMANDS)


@pytest.mark.skipif(shutil.which("awk") is None, reason="the script that reads the README needs awk")
def test_ci_finds_the_commands_of_the_readme() -> None:
    """What CI runs is what the README says."""
    script = ROOT / ".ci" / "readme-command"
    for name, word in (("set-up", "sagactl run onboarding"), ("tests", "pytest")):
        done = subprocess.run(["bash", script, name], capture_output=True, text=True, check=True)
        assert word in done.stdout


def test_the_readme_lists_every_page_of_the_manual() -> None:
    """A page that nothing points to is a page that nobody reads."""
    pages = {file.stem for file in (ROOT / "sagactl" / "help").glob("*.md")}
    table = README[README.index("| `sagactl help …` | tells |") : README.index("## Where things live")]
    assert set(re.findall(r"`([a-z-]+)`", table)) == pages
