"""Hostile inputs of the store: modes of files, an edited record, a disk that fails, a damaged log."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.project import Project

LOOK = """
import json, os
from pathlib import Path
from sagactl import CallContext, tool

@tool("look.modes", read_only=True)
def look_at_modes(context: CallContext) -> None:
    found = {}
    for folder, _, names in os.walk(context.project / ".sagactl"):
        for path in [folder, *(os.path.join(folder, name) for name in names)]:
            found[os.path.relpath(path, context.project)] = os.lstat(path).st_mode
    Path(context.project / "modes.json").write_text(json.dumps(found))
"""
LOOK_SAGA = "saga: look\nsteps:\n  - {id: look, tool: look.modes, read_only: true}\n"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a disk needs root: NOT RUN"
)


def _ask(who: str) -> tuple[str, ...]:
    return ("run", "onboarding", "-q", "-i", f"email={who}@example.com", "-i", "amount:=4900")


@pytest.mark.parametrize("umask", ["000", "022", "077"])
def test_h39_files_of_the_log_are_private_whatever_the_umask(umask: str, tmp_path: Path) -> None:
    """H39: while the first run runs, and after it: database, WAL, index, gate and all else 0600, folders 0700."""
    project = Project(tmp_path)
    for name, text in (("plugins/look.py", LOOK), ("sagas/look.yaml", LOOK_SAGA)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    (tmp_path / "sagactl.toml").write_text('[events]\nfile = ".sagactl/events.jsonl"\n')
    command = 'umask "$1"; shift; exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", command, "sh", umask, sys.executable, "-m", "sagactl", "run", "look", "-q"],
        cwd=tmp_path,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    during = json.loads((tmp_path / "modes.json").read_text())
    after = {str(path.relative_to(tmp_path)): path.lstat().st_mode for path in (tmp_path / ".sagactl").rglob("*")}
    assert {".sagactl", ".sagactl/log.db", ".sagactl/log.db-wal", ".sagactl/log.db-shm"} <= during.keys()
    assert {".sagactl/log.db-gate", ".sagactl/events.jsonl"} <= after.keys()
    for name, mode in {**during, **after}.items():
        if name != ".sagactl/.gitignore":
            assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), name


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with a run that is stuck and one that waits, its log closed."""
    project = Project.make(tmp_path_factory.mktemp("stuck") / "p")
    assert project.run(*_ask("ada"), "-i", "card=limbo").code == 11
    assert project.run(*_ask("bob"), "-i", "card=flaky", "--no-wait").code == 12
    return project.path


@pytest.fixture
def project(stuck: Path, tmp_path: Path) -> Project:
    """Return a copy of it."""
    shutil.copytree(stuck, tmp_path / "p", symlinks=True)
    return Project(tmp_path / "p", {"SAGACTL_SANDBOX_LEDGER": str(tmp_path / "p" / "witness.jsonl")})


def _edit(path: Path, old: bytes, new: bytes) -> None:
    """Change bytes in a file, as a hex editor does."""
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def test_h41_a_byte_of_a_recorded_amount_is_missed_and_named(project: Project) -> None:
    """H41: `verify` ends with 1 and names run and record; `resume` and `rollback` refuse, and call nothing."""
    run_id = project.latest()["id"]
    before = project.witness()
    with closing(sqlite3.connect(project.path / ".sagactl" / "log.db")) as log:
        (seq,) = log.execute(
            "SELECT seq FROM records WHERE run_id = ? AND type = 'intent' AND body LIKE '%4900%'", (run_id,)
        ).fetchone()
        log.execute(
            "UPDATE records SET body = replace(body, '4900', '4901') WHERE run_id = ? AND seq = ?", (run_id, seq)
        )
        log.commit()
    verified = project.run("verify", "-o", "json")
    assert verified.code == 1
    assert [(each["run_id"], each["seq"]) for each in verified.json["findings"]] == [(run_id, seq)]
    for command in (["resume", run_id], ["rollback", run_id, "--yes"], ["show", run_id]):
        refused = project.run(*command)
        assert refused.code == 1, command
        assert f"record {seq}" in refused.err, command
    assert project.witness() == before


def flip(folder: Path) -> None:
    """Flip a bit in the root page of the table of records."""
    with closing(sqlite3.connect(folder / "log.db")) as log:
        (page,) = log.execute("SELECT rootpage FROM sqlite_master WHERE name = 'records'").fetchone()
        (size,) = log.execute("PRAGMA page_size").fetchone()
    content = bytearray((folder / "log.db").read_bytes())
    content[(page - 1) * size] ^= 0x10
    (folder / "log.db").write_bytes(content)


def cut(folder: Path) -> None:
    """Cut the tail of the database."""
    os.truncate(folder / "log.db", (folder / "log.db").stat().st_size // 2 // 4096 * 4096)


def empty(folder: Path) -> None:
    """Leave an empty file."""
    os.truncate(folder / "log.db", 0)


def remove(folder: Path) -> None:
    """Remove the database and leave the rest."""
    (folder / "log.db").unlink()


def replace_header(folder: Path) -> None:
    """Overwrite the first bytes of the database."""
    _edit(folder / "log.db", b"SQLite format 3", b"SQLite format 9")


def set_back(folder: Path) -> None:
    """Put yesterday's database in the place of today's: without the last record that was durable."""
    with closing(sqlite3.connect(folder / "log.db")) as log:
        log.execute("DELETE FROM records WHERE rowid = (SELECT max(rowid) FROM records)")
        log.commit()


def swap(folder: Path) -> None:
    """Put the log of another project there."""
    other = Project.make(folder.parent.parent / "other")
    assert other.run(*_ask("eve")).code == 0
    shutil.copy(other.path / ".sagactl" / "log.db", folder / "log.db")


DAMAGES: tuple[Callable[[Path], None], ...] = (flip, cut, empty, remove, replace_header, set_back, swap)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: str(each.__name__))
def test_h59_a_damaged_log_is_refused_and_never_begun_anew(damage: Callable[[Path], None], project: Project) -> None:
    """H59: `verify`, `resume` and a new `run` end with 1 and a hint; nothing is called, and no new log is made."""
    damage(project.path / ".sagactl")
    before = project.witness()
    verified = project.run("verify", "-o", "json")
    assert verified.code == 1, verified.err
    resumed = project.run("resume", "--all", "-o", "json")
    assert resumed.code == 1, resumed.err
    error = resumed.json["error"]
    assert error is None or error["hint"]
    if damage is not flip:  # what lies in a page that a new run doesn't read is `verify`'s to find
        begun = project.run(*_ask("cyd"), "-o", "json")
        assert begun.code == 1, begun.err
        assert begun.json["error"]["code"] == "damaged-log"
    assert project.witness() == before
    assert (project.path / ".sagactl" / "log.db").exists() is (damage is not remove)


@pytest.mark.parametrize("which", ["deleted", "foreign"])
def test_h59_a_wal_that_is_not_its_own(which: str, project: Project) -> None:
    """H59: a WAL that was deleted, or is another log's: what was durable in it is missed, and nothing is called."""
    killed = project.run(*_ask("cyd"), extra={"SAGACTL_SANDBOX_KILL": "billing.charge:after_effect:1"})
    assert killed.code == -9
    wal = project.path / ".sagactl" / "log.db-wal"
    assert wal.stat().st_size > 0
    if which == "foreign":
        other = Project.make(project.path.parent / "other")
        assert other.run(*_ask("eve"), extra={"SAGACTL_SANDBOX_KILL": "crm.create_lead:before_effect:1"}).code == -9
        shutil.copy(other.path / ".sagactl" / "log.db-wal", wal)
    else:
        wal.unlink()
    before = project.witness()
    for command in (["verify"], ["resume", "--all"], ["list"], _ask("cyd")):
        refused = project.run(*command)
        assert refused.code == 1, (command, refused.out)
        assert "hint:" in refused.err + refused.out
    assert project.witness() == before


TURN = """
import fcntl, os, resource, struct
from sagactl import CallContext, tool

@tool("disk.turn", compensation="disk.back", compensation_with={})
def turn(context: CallContext, how: str) -> None:
    with open(context.project / "calls", "a") as file:
        file.write(context.step + "\\n")
    if os.path.exists(context.project / "turned"):
        return
    if how == "full":
        open(context.project / "turned", "w").close()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    if how == "gone":
        open(context.project / "turned", "w").close()
        fcntl.ioctl(os.open(context.project / "disk", os.O_RDONLY), 0x8004587D, struct.pack("I", 2))

@tool("disk.back", null_safe=True)
def back() -> None:
    pass
"""
TURN_SAGA = """
saga: turn
steps:
  - {id: a, tool: disk.turn, with: {how: none}}
  - {id: b, tool: disk.turn, with: {how: HOW}}
  - {id: c, tool: disk.turn, with: {how: none}}
"""


def _write(folder: Path, how: str) -> None:
    for name, text in (("plugins/disk.py", TURN), ("sagas/turn.yaml", TURN_SAGA.replace("HOW", how))):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)


def _check_stop_and_resume(project: Project, remount: Callable[[], None]) -> None:
    """Check that the run stops before the call after the trouble, and goes on once it is over."""
    calls = project.path / "calls"
    broken = project.run("run", "turn", "-o", "json")
    assert broken.code == 1, broken.err
    error = broken.json["error"]
    assert error["code"] in {"storage", "disk-full", "read-only"}
    assert error["hint"]
    assert calls.read_text().split() == ["a", "b"]
    remount()
    resumed = project.run("resume", "--all")
    assert resumed.code == 0, resumed.err
    assert calls.read_text().split() == ["a", "b", "b", "c"], "b was in doubt, and is called again by its key"
    assert project.run("verify").code == 0


def test_h57_a_log_whose_file_can_not_grow_stops_before_the_next_call(tmp_path: Path) -> None:
    """H57, E18: no file can grow from some call on: exit 1, no further call, and the resume ends as without it.

    `test_straced_errors` fails the single writes and syncs of a run, `test_io_errors` all of them.
    """
    _write(tmp_path, "full")
    _check_stop_and_resume(Project(tmp_path), lambda: None)


@needs_root
def test_h57_a_disk_that_goes_away_in_mid_run(tmp_path: Path) -> None:
    """H57, E18: the file system shuts down during a call, as it does for a lost disk, and is mounted again later."""
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True)
    mount = ["mount", "-o", "loop", str(image), str(place)]
    subprocess.run(mount, check=True)

    def remount() -> None:
        subprocess.run(["umount", str(place)], check=True)
        subprocess.run(mount, check=True)

    try:
        _write(tmp_path, "gone")
        _check_stop_and_resume(Project(tmp_path, {"SAGACTL_LOG": str(place / "log.db")}), remount)
    finally:
        subprocess.run(["umount", str(place)], check=True)


@needs_root
def test_h57_a_disk_that_is_mounted_read_only_says_so(tmp_path: Path) -> None:
    """H57: a log on a read-only disk: what writes ends with 1, `read-only` and a hint; what reads works."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], check=True)
    try:
        _write(tmp_path, "none")
        project = Project(tmp_path, {"SAGACTL_LOG": str(place / "log.db")})
        assert project.run("run", "turn").code == 0
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        refused = project.run("run", "turn", "-o", "json")
        assert (refused.code, refused.json["error"]["code"]) == (1, "read-only"), refused.err
        assert refused.json["error"]["hint"]
        assert (tmp_path / "calls").read_text().split() == ["a", "b", "c"]
        assert [each.code for each in project.run_several(["list"], ["show"], ["verify"])] == [0, 0, 0]
    finally:
        subprocess.run(["umount", str(place)], check=True)
