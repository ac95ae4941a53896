"""Commands and timers as a user meets them: another process, killed, interrupted, resumed (E5, E14, E17)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sagactl import open_project
from sagactl.core.records import Timer
from tests.cli.project import WAIT_SECONDS, Project
from tests.tools.shell.commands import BEATS, has_fallen_silent, is_alive, read_beats, wait_until

SHELL = """
saga: shell
defaults: {{start_to_close_timeout: {timeout}}}
steps:
  - id: work
    tool: {tool}
    with: {{argv: {argv}, output: none}}
    on_unknown: {on_unknown}
    compensate: {{tool: shell.undo, with: {{argv: [touch, undone]}}}}
"""
NAP = """
saga: nap
steps:
  - id: nap
    tool: time.sleep
    with: {{for: {length}}}
  - id: after
    tool: shell.run_idempotent
    read_only: true
    with: {{argv: [touch, after]}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project without plugins."""
    (tmp_path / "sagas").mkdir()
    return Project(tmp_path)


def _write_beating(
    project: Project,
    *,
    tool: str = "shell.run",
    on_unknown: str = "ask",
    after: str = "time.sleep(60)",
    timeout: str = "30s",
) -> Path:
    """Write a saga whose step has a grandchild that left its session; return the file of the grandchild's beats."""
    (project.path / "beating.py").write_text(BEATS.format(before="pass", after=after))
    argv = f'["{sys.executable}", beating.py, beats]'
    text = SHELL.format(argv=argv, tool=tool, on_unknown=on_unknown, timeout=timeout)
    (project.path / "sagas" / "shell.yaml").write_text(text)
    return project.path / "beats"


def _start(project: Project, beats: Path) -> subprocess.Popen[str]:
    process = project.start("run", "shell", "-q")
    wait_until(lambda: read_beats(beats) or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process


def test_a_killed_run_takes_its_command_and_all_that_it_forked_along(project: Project) -> None:
    """E17: SIGKILL of `sagactl run` ends the command's whole tree; the run is in doubt, and a person is asked."""
    beats = _write_beating(project)
    process = _start(project, beats)
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(is_alive, read_beats(beats))))
    assert has_fallen_silent(beats)
    resumed = project.run("resume", project.latest()["id"], "-o", "json", "-q")
    assert (resumed.code, resumed.json["run"]["cause"]) == (11, "in_doubt")


def test_resume_ends_an_orphan_before_it_decides_anything(project: Project) -> None:
    """E17: with every watcher killed the grandchild lives on; resume ends it, and only then runs the command again."""
    beats = _write_beating(project, tool="shell.run_idempotent", on_unknown="retry", after="time.sleep(0.5)")
    process = _start(project, beats)
    (note,) = (project.path / ".sagactl" / "calls").glob("*")
    supervisor = int(note.read_text().split('"supervisor": [')[1].split(",")[0])
    spawner = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
    for pid in (spawner, supervisor, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    orphan = read_beats(beats)[-1]
    assert is_alive(orphan)
    resumed = project.run("resume", project.latest()["id"], "-o", "json", "-q")
    assert resumed.code == 0, resumed
    assert resumed.json["run"]["steps"][0]["attempts"] == 2
    written = read_beats(beats)
    assert orphan not in written[len(written) - written[::-1].index(orphan) :]
    assert written[-1] != orphan
    assert not is_alive(orphan)
    assert has_fallen_silent(beats)
    assert not list((project.path / ".sagactl" / "calls").iterdir())


def test_a_timeout_ends_the_whole_tree_before_the_step_goes_on(project: Project) -> None:
    """E14: at `start_to_close_timeout` all is ended for sure, and only then the compensation is called."""
    beats = _write_beating(project, on_unknown="compensate", timeout="3s")
    done = project.run("run", "shell", "-o", "json", "-q")
    assert done.code == 10, done
    assert done.json["run"]["steps"][0]["error"]["type"] == "timeout"
    assert (project.path / "undone").stat().st_mtime >= beats.stat().st_mtime
    assert has_fallen_silent(beats)


def test_the_first_interrupt_lets_a_command_settle(project: Project) -> None:
    """E17: Ctrl-C in a terminal goes to sagactl alone: the command is not interrupted, and its outcome is recorded."""
    beats = _write_beating(project, after="time.sleep(4); open('settled', 'w').close()")
    process = subprocess.Popen(
        [sys.executable, "-m", "sagactl", "run", "shell", "-q"],
        cwd=project.path,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: read_beats(beats))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everything in the foreground
    process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130
    assert (project.path / "settled").exists()
    assert project.latest()["steps"][0]["status"] == "succeeded"


def test_what_a_command_wrote_is_shown_with_its_run(project: Project) -> None:
    """What a command writes is kept, bounded, and shown tamed where the prints of tools are."""
    argv = "[sh, -c, \"echo to stdout; printf '\\\\033[31mred\\\\n' >&2; exit 3\"]"
    text = SHELL.format(argv=argv, tool="shell.run", on_unknown="ask", timeout="30s")
    (project.path / "sagas" / "shell.yaml").write_text(text)
    done = project.run("run", "shell")
    assert done.code == 11
    assert r"exit_3: sh exited with 3: \x1b[31mred (if 3 means that nothing was done" in " ".join(done.out.split())
    shown = project.run("show", "--printed").out
    assert "to stdout" in shown
    assert r"\x1b[31mred" in shown
    assert "\x1b" not in shown + done.out + done.err


def test_a_sleep_outlasts_a_kill_and_is_not_begun_anew(project: Project) -> None:
    """E5, E17: a run killed while it waits goes on at the moment that was fixed before, not later and not sooner."""
    (project.path / "sagas" / "nap.yaml").write_text(NAP.format(length="8s"))
    process = project.start("run", "nap", "-q")
    wait_until(lambda: _has_timer(project))
    process.kill()
    process.communicate()
    due = project.latest()["waiting_for"]["until"]
    time.sleep(1)
    resumed = project.run("resume", project.latest()["id"], "-o", "json", "-q")
    assert resumed.code == 0, resumed
    step = resumed.json["run"]["steps"][0]
    assert step["attempts"] == 1
    assert step["output"]["until"][:20] == due[:20]
    assert (project.path / "after").stat().st_mtime >= _seconds_of(step["output"]["until"])


def _has_timer(project: Project) -> bool:
    """Look from this process: a command that looks may take as long to start as the timer runs."""
    with open_project(project.path) as opened:
        stored = [each for run_id in opened.unfinished() for each in opened.records(run_id)]
    return any(isinstance(each.record, Timer) for each in stored)


def _seconds_of(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_without_waiting_a_sleep_ends_with_12_and_says_until_when(project: Project) -> None:
    """Exit codes: `--no-wait` doesn't stay for a timer; a resume after the moment goes on at once."""
    (project.path / "sagas" / "nap.yaml").write_text(NAP.format(length="6h"))
    done = project.run("run", "nap", "--no-wait", "-o", "json")
    assert done.code == 12
    assert "nap waits for " in done.err
    assert "nap goes on at " in project.run("show").out
    (project.path / "sagas" / "nap.yaml").write_text(NAP.format(length="4s"))
    done = project.run("run", "nap", "--no-wait", "-o", "json")
    assert done.code == 12
    until = done.json["run"]["waiting_for"]["until"]
    wait_until(lambda: time.time() > _seconds_of(until))
    assert project.run("resume", done.json["run"]["id"], "--no-wait", "-q").code == 0


def test_a_wait_needs_no_boilerplate(project: Project) -> None:
    """E5, F4: no timeout, no compensation and no mark is asked for, and a default for others doesn't cut it short."""
    step = "steps: [{id: nap, tool: time.sleep, with: {for: 1s}}, {id: t, tool: time.until, with: {at: '%s'}}]"
    text = "saga: wait\n" + step % "2001-01-01T00:00:00Z"
    (project.path / "sagas" / "wait.yaml").write_text(text)
    checked = project.run("validate", "wait", "--strict")
    assert checked.code == 0, checked.out
    text += "\ndefaults: {start_to_close_timeout: 300ms, schedule_to_close_timeout: 400ms}"
    (project.path / "sagas" / "wait.yaml").write_text(text)
    assert project.run("run", "wait", "-q").code == 0


def test_a_run_that_sleeps_can_be_cancelled(project: Project) -> None:
    """E22: a wait is no call, so nothing keeps a cancel; it is read-only, so nothing is undone."""
    (project.path / "sagas" / "nap.yaml").write_text(NAP.format(length="30d"))
    run_id = project.run("run", "nap", "--no-wait", "-o", "json").json["run"]["id"]
    assert project.run("cancel", run_id, "-q").code == 0
    assert (project.latest()["status"], project.latest()["not_undone"]) == ("rolled_back", [])


def test_a_secret_may_stand_in_a_variable_and_nowhere_else(project: Project) -> None:
    """F3: the values of `env` are marked for secrets; the words of a command are seen by everybody on the machine."""
    text = """
saga: secret
secrets: [TOKEN]
defaults: {start_to_close_timeout: 5s}
steps:
  - id: one
    tool: shell.run_idempotent
    read_only: true
    with: {%s}
"""
    for given, code in (('argv: [env], env: {A: "${{ secrets.TOKEN }}"}', 0), ('argv: ["${{ secrets.TOKEN }}"]', 3)):
        (project.path / "sagas" / "secret.yaml").write_text(text % given)
        checked = project.run("validate", "secret")
        assert checked.code == code, checked.out
        assert ("secret-place" in checked.out + checked.err) is (code == 3)


def test_built_in_tools_are_always_listed(project: Project) -> None:
    """`sagactl tools` lists them in any project, and shows one with all its arguments in full."""
    listed = project.run("tools").out
    assert all(name in listed for name in ("shell.run", "shell.undo", "time.sleep", "time.until"))
    shown = project.run("tools", "shell.run").out
    assert "rejected_exit_codes" in shown
    assert "…" not in shown


LOOKS = """saga: looks
input: {type: object, properties: {how: {type: string}}}
defaults: {start_to_close_timeout: 10s}
steps:
  - id: ask
    tool: shell.run_idempotent
    with: {script: "echo 3"HOW}
    compensate:
      tool: shell.undo
      with: {argv: [echo, "${{ UNDO }}"]}
  - id: use
    tool: shell.run_idempotent
    with: {argv: [echo, "${{ ACTION }}"]}
    compensate: {none: "nothing to undo"}
"""


@pytest.mark.parametrize(
    ("how", "undo", "action", "problems"),
    [
        ("", "output.id", "steps.ask.output.id", 2),
        (", output: text", "output.id", "steps.ask.output", 1),
        (", output: none", "args.script", "steps.ask.output.id", 1),
        (", output: json", "output.id", "steps.ask.output.id", 0),
        (', output: "${{ input.how }}"', "output.id", "steps.ask.output.id", 0),
        ("", "output", "steps.ask.output", 0),
    ],
)
def test_looking_into_printed_text_is_a_load_error(
    project: Project, how: str, undo: str, action: str, problems: int
) -> None:
    """F5: fields of what a command printed are there with `output: json` only; the load check says what to write."""
    saga = LOOKS.replace("HOW", how).replace("UNDO", undo).replace("ACTION", action)
    (project.path / "sagas" / "looks.yaml").write_text(saga)
    found = project.run("validate", "looks", "-o", "json")
    told = [each for each in found.json["items"] if each["severity"] == "error"]
    assert [each["code"] for each in told] == ["unknown-field"] * problems, found.out
    if "none" not in how:
        assert all("output: json" in each["hint"] for each in told)
