"""`sagactl doctor`: every trouble that it looks for is found, named and mended by its hint, and nothing is changed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sagactl.doctor.check import Level
from sagactl.doctor.machine import EXTRAS, _check_sqlite, check_clock
from tests.alerts.receiver import SECRET, answer, receiving
from tests.cli.project import ROOT, Project

ADA = ("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=4900")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with a run that succeeded, without the saga whose tools need keys of accounts."""
    made = Project.make(tmp_path / "p")
    made.environ["XDG_STATE_HOME"] = str(tmp_path / "state")
    (made.path / "sagas" / "onboarding-live.yaml").unlink(missing_ok=True)
    assert made.run(*ADA).code == 0
    return made


def _items(project: Project, code: int = 0, *options: str) -> dict[str, Any]:
    found = project.run("doctor", "-o", "json", *options)
    assert (found.code, found.json["schema"]) == (code, "sagactl.doctor/1"), found.out
    assert found.json["ok"] == (code == 0)
    return {each["name"]: each for each in found.json["items"]}


def test_a_sound_project_has_nothing_to_mend(project: Project) -> None:
    """Exit 0, every check made, and the log afterwards as it was."""
    items = _items(project)
    assert {each["level"] for each in items.values()} == {"ok"}
    assert {"python", "sqlite", "extras", "settings", "file system", "disk", "permissions", "log", "size"} <= set(items)
    assert {"unfinished", "stuck", "clock", "plugins", "sagas", "completion"} <= set(items)
    text = project.run("doctor")
    assert "nothing to mend" in text.out
    assert project.run("verify").code == 0


def test_an_empty_folder_is_sound_and_stays_empty(tmp_path: Path) -> None:
    """Looking makes nothing: no log, no folder."""
    project = Project(tmp_path, {"XDG_STATE_HOME": str(tmp_path / "state")})
    assert _items(project)["log"]["text"].startswith("none yet")
    assert list(tmp_path.iterdir()) == []


def test_runs_that_wait_for_somebody_are_told_with_what_to_do(project: Project) -> None:
    """An unfinished run without a driver, a stuck one with its dead letter; both hints work as printed."""
    assert project.run(*ADA[:3], "-i", "email=eve@example.com", "-i", "amount:=1", "-i", "card=limbo").code == 11
    flaky = ("-i", "email=bob@example.com", "-i", "amount:=1", "-i", "card=flaky", "--no-wait")
    assert project.run(*ADA[:3], *flaky).code == 12
    items = _items(project)
    assert (items["stuck"]["level"], items["stuck"]["hint"]) == ("warn", "sagactl dlq list")
    assert "1 stuck run, 1 dead letter" in items["stuck"]["text"]
    assert (items["unfinished"]["level"], items["unfinished"]["hint"]) == ("warn", "sagactl resume --all")
    for name, code in (("stuck", 0), ("unfinished", 0)):
        assert project.run(*shlex.split(items[name]["hint"])[1:], "-q").code == code
    assert _items(project)["unfinished"]["level"] == "ok"


def test_broken_plugins_and_sagas_are_named(project: Project) -> None:
    """Exit 3 names what can't be used, and every other check is made all the same."""
    (project.path / "plugins" / "bad.py").write_text("raise RuntimeError('no')\n")
    (project.path / "sagas" / "worse.yaml").write_text("saga: worse\nsteps: 3\n")
    items = _items(project, 3)
    assert "bad" in items["plugins"]["text"]
    assert "worse" in items["sagas"]["text"]
    assert (items["plugins"]["hint"], items["sagas"]["hint"]) == ("sagactl tools", "sagactl validate")
    assert items["log"]["level"] == "ok"


def test_a_secret_that_no_run_could_have_is_told_before_one_needs_it(project: Project) -> None:
    """E19: a run would do what comes first and then wait; it is a warning, as the secret may be there elsewhere."""
    saga = "saga: payout\nsecrets: [bank_key]\nsteps:\n  - id: note\n    tool: shell.run_idempotent\n"
    saga += "    with: {argv: [env], env: {KEY: '${{ secrets.bank_key }}'}}\n    compensate: {none: it only looks}\n"
    (project.path / "sagas" / "payout.yaml").write_text(saga)
    told = _items(project)["secrets"]
    assert (told["level"], told["hint"]) == ("warn", "sagactl help secrets")
    assert "1 secret can't be had here: bank_key: " in told["text"]
    there = Project(project.path, {**project.environ, "SAGACTL_SECRET_BANK_KEY": "a-long-enough-value"})
    assert "secrets" not in _items(there)


def test_wrong_settings_are_one_failure_among_the_checks(project: Project) -> None:
    """Section 6: a configuration that can't be read ends with 3, and the machine is checked all the same."""
    (project.path / "sagactl.toml").write_text("nothing = 1")
    items = _items(project, 3)
    assert (items["settings"]["level"], items["python"]["level"]) == ("fail", "ok")


def test_a_channel_that_no_run_would_start_with_is_told(project: Project) -> None:
    """E20: what every `run` would refuse is found before the first one, with the setting's name."""
    (project.path / "sagactl.toml").write_text(
        '[alerts.channels.ops]\nkind = "webhook"\nurl = "https://example.com/"\n'
    )
    assert project.run(*ADA, "-q").code == 3
    assert _items(project, 3)["alerts"]["level"] == "fail"


def test_a_log_that_cannot_be_read_ends_with_1(project: Project) -> None:
    """Section 6: 1 where the log can't be read."""
    (project.path / ".sagactl" / "log.db").write_bytes(b"no database" * 1000)
    assert _items(project, 1)["log"]["level"] == "fail"


def test_a_log_that_others_may_read_is_told(project: Project) -> None:
    """Section 5: folder 0700, files 0600; the hint mends it."""
    log = project.path / ".sagactl" / "log.db"
    log.chmod(0o644)
    found = _items(project)["permissions"]
    assert (found["level"], found["hint"]) == ("warn", f"chmod 600 {log}")
    log.chmod(0o600)
    log.parent.chmod(0o755)
    assert _items(project)["permissions"]["hint"] == f"chmod 700 {log.parent}"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root: NOT RUN")
def test_a_log_that_cannot_be_written_fails(project: Project) -> None:
    """E18: no run could begin or go on, so it is no warning; told for a log that isn't there yet as well."""
    commands = [
        'mount --bind "$1" "$1"',
        'mount -o remount,bind,ro "$1"',
        'cd "$1"',
        f"{sys.executable} -m sagactl doctor -o json",
    ]
    for folder in (project.path / ".sagactl", project.path):
        if folder == project.path:
            shutil.rmtree(project.path / ".sagactl")
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", " && ".join(commands), "sh", str(folder)],
            env=project.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        found = {each["name"]: each for each in json.loads(done.stdout)["items"]}["permissions"]
        assert (done.returncode, found["level"]) == (3, "fail"), done.stderr
        assert "can't be written: no run can begin or go on" in found["text"]
        assert found["hint"].startswith("its file system is mounted read-only: mount it to be written to")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root: NOT RUN")
def test_a_full_disk_is_not_mended_by_pruning(project: Project) -> None:
    """E18: on a disk without room the hint names the disk, since pruning needs some itself."""
    commands = ['mount -t tmpfs -o size=8m none "$1"', 'cd "$1/.."', f"{sys.executable} -m sagactl doctor -o json"]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", " && ".join(commands), "sh", str(project.path / ".sagactl")],
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    found = {each["name"]: each for each in json.loads(done.stdout)["items"]}["disk"]
    assert (found["level"], found["hint"]) == ("fail", f"free space on the disk of {project.path / '.sagactl'}")


def test_a_channel_that_can_not_be_used_from_here_is_told(project: Project) -> None:
    """A25: a reference without a value mutes its channel: a warning, as the value may be there elsewhere."""
    settings = '[[alerts.channel]]\nname = "ops"\nkind = "webhook"\nurl = "https://example.com/"\n'
    (project.path / "sagactl.toml").write_text(f'{settings}secret = {{env = "HOOK"}}\n')
    told = _items(project)["alerts"]
    assert (told["level"], told["hint"]) == ("warn", "sagactl help alerts")
    assert "1 channel, no events; nothing can be sent from here: ops: " in told["text"]
    assert "HOOK" in told["text"]
    there = Project(project.path, {**project.environ, "HOOK": "whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"})
    assert _items(there)["alerts"]["level"] == "ok"


def test_an_alert_that_nobody_took_is_told(project: Project) -> None:
    """A25: what a channel refused for good, of a run that is stuck still, stands in doctor and in the list."""
    with receiving() as receiver:
        receiver.answer = answer(410)
        settings = f'[[alerts.channel]]\nname = "ops"\nkind = "webhook"\nurl = "{receiver.url}"\n'
        (project.path / "sagactl.toml").write_text(f'{settings}secret = {{env = "HOOK"}}\n')
        project.environ["HOOK"] = SECRET
        assert project.run(*ADA[:3], "-i", "email=eve@example.com", "-i", "amount:=1", "-i", "card=limbo").code == 11
        project.run("outbox", "deliver")
    told = _items(project)["outbox"]
    assert (told["level"], told["hint"]) == ("warn", "sagactl outbox list --all")
    assert told["text"] == "1 alert given up: nobody was told of what still stands"
    listed = project.run("outbox", "list")
    assert "1 alert given up: nobody was told of what still stands" in listed.out
    assert "hint: sagactl outbox list --all" in listed.out + listed.err


def test_a_state_folder_that_can_not_be_written_is_told(project: Project) -> None:
    """N9: without the far witness nobody notices a folder that was put back, so who looks is told."""
    mute = Project(project.path, {**project.environ, "XDG_STATE_HOME": "/proc/nope"})
    told = _items(mute)["witness"]
    assert (told["level"], told["hint"]) == ("warn", "sagactl help storage")
    assert "would be noticed: /proc/nope/sagactl/witnesses can't be written to" in told["text"]
    assert "witness" not in _items(project)


def test_a_bundle_has_nothing_of_any_run(project: Project) -> None:
    """`--bundle` writes versions and checks with paths masked: no input, output or secret; nothing is overwritten."""
    file = project.path / "report.json"
    assert project.run("doctor", "--bundle", str(file)).code == 0
    text = file.read_text()
    assert json.loads(text)["versions"]["sagactl"]
    assert str(project.path) not in text
    assert "ada" not in text.lower()
    again = project.run("doctor", "--bundle", str(file), "-o", "json")
    assert (again.code, again.json["error"]["code"]) == (2, "exists")


def test_a_clock_that_was_turned_back_is_told() -> None:
    """A record can't lie in the future, and no clock stands before sagactl was made."""
    assert check_clock(1_800_000_000_000, now_ms=1_800_000_000_000 - 3_600_000).level is Level.WARN
    assert check_clock(1_800_000_000_000, now_ms=1_800_000_000_000 - 30_000).level is Level.OK
    assert check_clock(None, now_ms=5).level is Level.FAIL


@pytest.mark.parametrize(
    ("version", "is_sound"),
    [((3, 51, 3), True), ((3, 52, 0), True), ((3, 50, 7), True), ((3, 51, 2), False), ((3, 40, 1), False)],
)
def test_the_guard_against_an_old_sqlite_is_named(version: tuple[int, int, int], is_sound: bool) -> None:
    """Section 5: before 3.51.3 (and its branches) the gate keeps the WAL race out, and doctor says so."""
    assert ("gate" not in _check_sqlite(version).text) is is_sound


def test_every_extra_is_looked_for() -> None:
    """The extras that doctor names are those of the package, those for tests and linters left out."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"test", "lint", "servers"}
