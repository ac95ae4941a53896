"""`sagactl init` makes a project that works as it says, without a network, and overwrites nothing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sagactl.cli.init import EXAMPLES
from sagactl.config import load_config
from tests.cli.project import Project

HEAVY = ("yaml", "jsonschema", "rich", "sqlite3", "asyncio", "sagactl.engine", "sagactl.tools", "sagactl.log")


def _init(tmp_path: Path, *arguments: str) -> Project:
    made = Project(tmp_path).run("init", "demo", *arguments)
    assert made.code == 0, made.err
    return Project(tmp_path / "demo")


def _type(project: Project, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as it stands in a shell where `sagactl` is on the path."""
    bin_folder = project.path.parent / "bin"
    bin_folder.mkdir(exist_ok=True)
    script = bin_folder / "sagactl"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m sagactl "$@"\n')
    script.chmod(0o755)
    whole = f'PATH="{bin_folder}:$PATH"; {command}'
    environ = project.environment()
    return subprocess.run(
        ["bash", "-c", whole], cwd=project.path, env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_command_that_is_printed_works_as_printed(tmp_path: Path, name: str) -> None:
    """Each command does what the line under it says: 0, or 10 with everything undone."""
    project = _init(tmp_path, "--example", name)
    for command, words in EXAMPLES[name].commands:
        done = _type(project, command)
        expected = 10 if "exit 10" in words else 0
        assert done.returncode == expected, f"{command}: {done.stderr}"
        if expected == 10:
            run = project.latest()
            assert (run["status"], run["not_undone"]) == ("rolled_back", [])


def test_the_starter_leaves_no_booking_behind(tmp_path: Path) -> None:
    """The example's failure and its rollback undo what they must: only the ticket, which can't be unsent, stays."""
    project = _init(tmp_path)
    assert project.run("run", "trip", "-q", "-i", "traveller=Ada", "-i", "card=declined").code == 10
    assert list((project.path / "bookings").iterdir()) == []
    assert project.run("run", "trip", "-q", "-i", "traveller=Ada", "-i", "card=lost").code == 0
    assert len(list((project.path / "bookings").iterdir())) == 4
    run = project.latest()
    payment = next(each for each in run["steps"] if each["id"] == "payment")
    assert payment["attempts"] == 1, "the probe found it, so it isn't paid twice"
    assert project.run("rollback", run["id"], "--yes", "-q").code == 0
    left = [path.name for path in (project.path / "bookings").iterdir()]
    assert len(left) == 1
    assert "-ticket-" in left[0]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_have_nothing_to_mend(tmp_path: Path, name: str) -> None:
    """F5: no example has an error or a warning, and each saga names a schema for editors that is there."""
    project = _init(tmp_path, "--example", name)
    assert project.run("validate", "--strict").code == 0
    for saga in (project.path / "sagas").iterdir():
        found = re.match(r"# yaml-language-server: \$schema=(\S+)\n", saga.read_text())
        assert found is not None
        assert (saga.parent / found[1]).read_text().rstrip() == project.run("schema").out.rstrip()


def test_the_settings_are_all_there_and_right_when_uncommented(tmp_path: Path) -> None:
    """Each setting that there is stands in `sagactl.toml` as a comment that can be switched on."""
    project = _init(tmp_path)
    file = project.path / "sagactl.toml"
    assert tomllib.loads(file.read_text()) == {}
    file.write_text(re.sub(r"^# (?=\w+ = )", "", file.read_text(), flags=re.MULTILINE))
    switched = tomllib.loads(file.read_text())
    config = load_config(cwd=project.path, environ={"XDG_CONFIG_HOME": str(tmp_path / "none")})
    found = {key.partition(".")[0] for key, origin in config.origins.items() if origin == "project"}
    assert found == set(switched)
    file.write_text("no_such_setting = 1\n")
    known = re.search(r"hint: known are (.*)", project.run("list").err)
    assert known is not None
    assert set(known[1].split(", ")) == set(switched)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A folder in which a file is in the way is left as it is; a `.gitignore` is kept, and said so."""
    project = Project(tmp_path)
    (tmp_path / "sagas").mkdir()
    mine = tmp_path / "sagas" / "trip.yaml"
    mine.write_text("mine")
    refused = project.run("init", "-o", "json")
    assert (refused.code, refused.json["error"]["code"]) == (2, "exists")
    assert [path.name for path in tmp_path.iterdir()] == ["sagas"]
    assert mine.read_text() == "mine"
    mine.unlink()
    (tmp_path / ".gitignore").write_text("mine too\n")
    made = project.run("init", ".", "-o", "json")
    assert made.code == 0
    assert made.json["init"]["kept"] == [".gitignore"]
    assert (tmp_path / ".gitignore").read_text() == "mine too\n"
    assert project.run("init", ".").code == 2
    assert project.run("init", "sagactl.toml").code == 2


def test_the_examples_are_listed(tmp_path: Path) -> None:
    """`--list` names them and makes nothing; a name that isn't there is told the ones that are."""
    project = Project(tmp_path)
    assert [line.split()[0] for line in project.run("init", "--list").out.splitlines()] == list(EXAMPLES)
    assert project.run("init", "--list", "-o", "json").json["total"] == len(EXAMPLES)
    refused = project.run("init", "--example", "nothing")
    assert (refused.code, "starter, agent" in refused.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_it_starts_without_what_it_does_not_need(tmp_path: Path) -> None:
    """Start-up is a feature: a project is made without the engine, the log or YAML."""
    script = (
        "import sys; from sagactl.cli.main import run_command_line; run_command_line(['init', 'x']);"
        f"sys.exit(str([name for name in {HEAVY} if name in sys.modules] or 'none'))"
    )
    done = Project(tmp_path).run_python("-c", script)
    assert done.err.strip() == "none"
