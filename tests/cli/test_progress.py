"""How a run looks while it runs: on a terminal, in a pipe, and when it is asked to be silent."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

from sagactl.cli.modes import Mode, choose_mode
from sagactl.cli.options import Globals
from sagactl.errors import InvalidError
from tests.cli.project import WAIT_SECONDS, Project, Result
from tests.cli.terminal import HIDE_CURSOR, Terminal, let_go, make_slow_project

TERM = {"TERM": "xterm"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose tools take their time."""
    return make_slow_project(tmp_path)


@pytest.mark.parametrize(
    ("settings", "environ", "mode"),
    [
        (Globals(), TERM, Mode.LIVE),
        (Globals(), {**TERM, "FORCE_COLOR": "1", "NO_COLOR": "1"}, Mode.LIVE),
        (Globals(), {}, Mode.PLAIN),
        (Globals(), {"TERM": "dumb"}, Mode.PLAIN),
        (Globals(), {**TERM, "CI": "true"}, Mode.PLAIN),
        (Globals(), {**TERM, "CI": "true", "SAGACTL_PROGRESS": "live"}, Mode.LIVE),
        (Globals(), {**TERM, "SAGACTL_PROGRESS": "none"}, Mode.NONE),
        (Globals(progress="live"), {**TERM, "SAGACTL_PROGRESS": "none", "CI": "1"}, Mode.LIVE),
        (Globals(progress="live"), {"TERM": "dumb"}, Mode.PLAIN),
        (Globals(progress="plain"), {**TERM, "SAGACTL_PROGRESS": "live"}, Mode.PLAIN),
        (Globals(verbose=1, progress="live"), TERM, Mode.PLAIN),
        (Globals(quiet=1, verbose=2, progress="live"), TERM, Mode.NONE),
    ],
)
def test_a_flag_beats_the_environment_and_that_the_terminal(
    settings: Globals, environ: dict[str, str], mode: Mode
) -> None:
    """What is asked for on the command line counts first, then the variables, then what the terminal can do."""
    assert choose_mode(settings, environ, is_terminal=True) is mode
    assert choose_mode(settings, environ, is_terminal=False) is (Mode.PLAIN if mode is Mode.LIVE else mode)


def test_a_variable_that_means_nothing_is_an_error() -> None:
    """A misspelt setting is never passed over."""
    with pytest.raises(InvalidError, match="SAGACTL_PROGRESS is 'on'"):
        choose_mode(Globals(), {"SAGACTL_PROGRESS": "on"}, is_terminal=True)


def test_a_run_on_a_terminal_is_a_picture_and_then_the_report(project: Project) -> None:
    """Steps in their order with marks and times, the undo below, then the report, and nothing of the work between."""
    with Terminal() as terminal:
        code = terminal.run(project, "run", "trip", "-i", "flight=busy", "-i", "hotel=refuse")
        assert code == 10
        text = re.sub(r"\b\d+(\.\d+)?m?s\b", "T", terminal.text)
        text = re.sub(r"\b[2-9a-hjkmnp-z]{6}\b(?= failed|$| --step)", "RUN", text, flags=re.MULTILINE)
        assert HIDE_CURSOR not in terminal.raw
    assert text.splitlines()[:12] == [
        "trip  run RUN",
        "",
        "  ✓ flight      T  2 attempts",
        "  ✗ hotel       T  full: no room \\x1b]8;;http://evil.example\\x07here",
        "  \u2013 car               not run",
        "",
        "  rolling back, the last first",
        "  ↺ flight      T",
        "",
        "✗ trip RUN failed at hotel and was rolled back",
        "",
        "  error     full: no room \\x1b]8;;http://evil.example\\x07here",
    ]


def test_while_it_runs_the_picture_says_what_is_waited_for(project: Project) -> None:
    """A step that is tried again says which attempt it is and why, one that hasn't begun what it comes after."""
    saga = project.path / "sagas" / "trip.yaml"
    saga.write_text(saga.read_text().replace("initial_interval: 500ms", "initial_interval: 3s"))
    with Terminal() as terminal:
        process = terminal.start(project, "run", "trip", "-i", "flight=busy held", "--color", "never")
        terminal.wait_for(lambda text: re.search(r"attempt 2 of 4 in [0-3]", text) is not None)
        text = terminal.wait_for(lambda text: "attempt 2 of 4; first: come \\x1b[31mback" in text)
        assert "[red]later" in text
        assert "  · hotel             after flight" in text
        assert "  0 of 3 steps done" in text
        assert "Ctrl-C stops safely" in text
        let_go(project)
        process.wait(timeout=WAIT_SECONDS)


def test_what_a_tool_writes_past_us_stands_above_the_picture(project: Project) -> None:
    """H27: descriptor 2 is shared with tools; their bytes can't break the picture."""
    with Terminal() as terminal:
        assert terminal.run(project, "run", "trip", "-i", "hotel=noisy") == 0
        lines = terminal.lines
    assert "raw \\x1b[2J and \ufffd bytes" in lines
    assert sum(line.startswith("trip  run ") for line in lines) == 1


def test_enter_leaves_no_remains_of_a_picture(project: Project) -> None:
    """Somebody who waits presses Enter: each picture still takes the place of the one before, and echo stays on."""
    with Terminal() as terminal:
        process = terminal.start(project, "run", "trip", "-i", "flight=held")
        terminal.wait_for(lambda text: "flight" in text)
        for _ in range(3):
            terminal.type("\r")
            time.sleep(0.4)
            assert termios.tcgetattr(terminal.writer)[3] & termios.ECHO
        let_go(project)
        while process.poll() is None:
            terminal.read()
        heads = [line for line in terminal.lines if line.startswith("trip  run")]
        assert len(heads) == 1, terminal.text
        assert len([line for line in terminal.lines if "flight" in line]) == 1, terminal.text


def test_ctrl_c_on_a_terminal_says_what_is_waited_for_and_how_to_go_on(project: Project) -> None:
    """E17: the first one names the call and how long it may take, and the report has both ways to go on."""
    with Terminal() as terminal:
        process = terminal.start(project, "run", "trip", "-i", "flight=held")
        terminal.wait_for(lambda text: "… flight" in text)
        terminal.type("\x03")
        text = terminal.wait_for(lambda text: "stopping: 1 call in flight (flight up to" in text)
        assert "press Ctrl-C again to leave now; its outcome will then be in doubt" in text
        let_go(project)
        assert process.wait(timeout=WAIT_SECONDS) == 130
        text = terminal.text
    assert re.search(r"interrupted; 1 of 3 steps done, nothing in doubt\n\nhint: sagactl resume (\S+)\n", text)
    assert "hint: sagactl rollback" in text
    assert "stopping:" not in text


def test_the_second_ctrl_c_leaves_a_terminal_as_it_was(project: Project) -> None:
    """E17: the process ends at once, names the run, and the cursor is there."""
    with Terminal() as terminal:
        process = terminal.start(project, "run", "trip", "-i", "flight=held")
        terminal.wait_for(lambda text: "… flight" in text)
        terminal.type("\x03")
        terminal.wait_for(lambda text: "stopping: 1 call in flight" in text)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.6)
        terminal.type("\x03")
        assert process.wait(timeout=WAIT_SECONDS) == 130
        run_id = project.run("list", "--ids").out.strip()
        assert f"left at once\nhint: sagactl resume {run_id}\nhint: sagactl rollback {run_id}" in terminal.text
        assert HIDE_CURSOR not in terminal.raw


def test_a_stopped_process_draws_below_what_others_wrote(project: Project) -> None:
    """After Ctrl-Z and `fg` the old picture and the shell's lines stay, and the run goes on below them."""
    with Terminal() as terminal:
        process = terminal.start(project, "run", "trip", "-i", "flight=held")
        terminal.wait_for(lambda text: "… flight" in text)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.8)
        os.write(terminal.writer, b"\n$ fg\n")
        process.send_signal(signal.SIGCONT)
        let_go(project)
        assert process.wait(timeout=WAIT_SECONDS) == 0
        lines = terminal.lines
    place = lines.index("$ fg")
    assert any("… flight" in line for line in lines[:place])
    assert any("✓ car" in line for line in lines[place:])
    assert sum(line.startswith("trip  run ") for line in lines) == 2


def test_many_runs_are_a_table(project: Project) -> None:
    """`resume --all` shows a line for each run; the reports come after it."""
    for _ in range(3):
        assert project.run("run", "trip", "-i", "flight=busy", "--no-wait", "-q").code == 12
    with Terminal() as terminal:
        process = terminal.start(project, "resume", "--all")
        terminal.wait_for(lambda text: "of 3 runs at rest" in text and text.count("trip") == 3)
        assert process.wait(timeout=WAIT_SECONDS) == 0
        assert len(re.findall(r"^  ✓ \w{6}  trip +[\d.]+s  succeeded$", terminal.text, re.MULTILINE)) == 3
        assert terminal.text.count("\n✓ trip ") == 3


def test_a_terminal_without_abilities_gets_plain_lines(project: Project) -> None:
    """TERM=dumb: no escape sequence at all; ASCII where the encoding has nothing else."""
    with Terminal() as terminal:
        extra = {"TERM": "dumb", "PYTHONIOENCODING": "ascii"}
        assert terminal.run(project, "run", "trip", "-i", "hotel=refuse", extra=extra) == 10
        assert "\x1b" not in terminal.raw
        assert terminal.raw.isascii()
        assert re.search(r"\d\d:\d\d:\d\d FAIL   hotel", terminal.text)
        assert "FAIL trip" in terminal.text


def test_lines_and_report_are_as_wide_as_the_terminal(project: Project) -> None:
    """A wide terminal is used, also by commands that keep descriptors 1 and 2 from tools."""
    with Terminal(columns=150) as terminal:
        assert terminal.run(project, "run", "trip", "-i", "flight=busy", "--progress", "plain") == 0
        (line,) = [line for line in terminal.lines if " retry " in line]
    assert len(line) > 80
    assert line.endswith("[red]later[/red]")


def test_in_a_pipe_nothing_is_cut_unless_a_width_is_given(project: Project) -> None:
    """Output contract: a program that reads a table gets all of it; `COLUMNS` holds in a pipe as well."""
    said = "the desk of the hotel is closed until the day after tomorrow, says the porter of the house next door"
    tools = project.path / "plugins" / "slow.py"
    tools.write_text(
        f"from sagactl import Rejected, tool\n@tool('slow.stay', read_only=True)\ndef stay() -> None:\n"
        f"    raise Rejected({said!r}, code='closed')\n"
    )
    step_id = "a_stay_of_which_the_name_is_longer_than_its_column"
    (project.path / "sagas" / "stay.yaml").write_text(f"saga: stay\nsteps:\n  - {{id: {step_id}, tool: slow.stay}}\n")
    whole = {"COLUMNS": ""}
    run = project.run("run", "stay", extra=whole)
    assert f"closed: {said}" in run.err
    for command in ("show", "log", "list", "tools"):
        shown = project.run(command, extra=whole).out
        assert "…" not in shown
        assert command not in {"show", "log"} or (said in shown and f"  {step_id}  " in shown)
    narrow = project.run("show", extra={"COLUMNS": "60"}).out
    assert said not in narrow
    assert max(map(len, narrow.splitlines())) <= 60


def test_an_ascii_terminal_gets_words_for_marks(project: Project) -> None:
    """Where symbols can't be written, the live picture is ASCII as well."""
    with Terminal() as terminal:
        assert terminal.run(project, "run", "trip", extra={"PYTHONIOENCODING": "ascii"}) == 0
        assert re.sub(r"\x1b\[[0-9;]*m", "", terminal.raw).isascii()
        assert re.search(r"^  ok    flight", terminal.text, re.MULTILINE)


def test_colour_never_means_animation(project: Project) -> None:
    """FORCE_COLOR in a pipe colours plain lines; NO_COLOR takes colours away."""
    colored = project.run("run", "trip", extra={"FORCE_COLOR": "1", "TERM": "xterm"})
    assert "\x1b[32mok" in colored.err
    assert "\x1b[2K" not in colored.err
    assert "\r" not in colored.err
    assert "\x1b" not in project.run("run", "trip", extra={"NO_COLOR": "1", "FORCE_COLOR": "1"}).err


def test_a_silence_ends_with_a_sign_of_life(project: Project) -> None:
    """`--heartbeat`: after so many silent seconds a line says what goes on; 0 means never."""
    said = project.run("run", "trip", "-i", "seconds=1", "--heartbeat", "0.4").err
    assert re.search(r"\d\d:\d\d:\d\d wait   flight \ds, attempt 1 of 4", said)
    assert " wait " not in project.run("run", "trip", "-i", "seconds=1", "--heartbeat", "0").err


def test_quiet_and_verbose_change_stderr_and_never_the_answer(project: Project) -> None:
    """-q keeps the report, -qq only the code; -v and -vv tell more; the JSON is there all the same."""
    assert project.run("run", "trip", "-q").err == ""
    silent = project.run("run", "trip", "-qq")
    assert (silent.out, silent.err, silent.code) == ("", "", 0)
    assert project.run("run", "trip", "-qq", "-o", "json").json["run"]["status"] == "succeeded"
    verbose = project.run("run", "trip", "-v").err
    assert " call   flight, attempt 1: slow.book" in verbose
    debug = project.run("run", "trip", "-vv").err
    assert "what=flight" in debug


def test_without_a_live_display_rich_is_not_imported(project: Project) -> None:
    """A start costs what it needs: a run in plain lines imports nothing of rich, a live one does."""
    script = (
        "import sys, sagactl.__main__ as it\n"
        "sys.argv = ['sagactl', 'run', 'trip']\n"
        "try: it.main()\n"
        "finally: open('modules.txt', 'w').write('\\n'.join(sys.modules))\n"
    )
    assert project.run_python("-c", script).code == 0
    modules = (project.path / "modules.txt").read_text().split()
    assert "sagactl.cli.display" in modules
    assert not [name for name in modules if name.partition(".")[0] in {"rich", "jsonschema", "asyncio"}]
    assert "sagactl.cli.screen" not in modules


def test_a_second_run_with_the_same_key_shows_the_one_that_goes_on(project: Project) -> None:
    """E8: whoever comes second sees what the first one does, and ends as it does."""
    key = ("--idempotency-key", "k1", "-i", "flight=held")
    process = project.start("run", "trip", "-q", *key)
    while not project.run("list", "--ids").out:
        assert process.poll() is None
    second = _follow(project, "0 of 3 steps done", "run", "trip", *key)
    assert second.code == 0
    assert "ok     car" in second.err
    assert end(process) == 0


def end(process: subprocess.Popen[str]) -> int:
    """Wait for the end of a process and return its code."""
    process.communicate(timeout=WAIT_SECONDS)
    return process.returncode


def _follow(project: Project, begun: str, *arguments: str) -> Result:
    """Start what follows a run that is held, which goes on once *begun* stands on stderr; wait for its end."""
    process = project.start(*arguments)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        said = ""
        while begun not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        let_go(project)
        said += process.stderr.read()
        out = process.stdout.read()
    return Result(process.wait(timeout=WAIT_SECONDS), out, said)


def _start_run(project: Project, *inputs: str) -> tuple[subprocess.Popen[str], str]:
    """Start a run in another process and return its id."""
    process = project.start("run", "trip", "-q", *inputs)
    while not (ids := project.run("list", "--status", "running,waiting", "--ids").out.split()):
        assert process.poll() is None
    return process, ids[0]


def test_a_run_of_another_process_can_be_watched(project: Project) -> None:
    """`watch` follows by default the latest run, says which, and ends with its exit code and report."""
    process, run_id = _start_run(project, "-i", "hotel=refuse", "-i", "flight=held")
    watched = _follow(project, "0 of 3 steps done", "watch")
    assert watched.code == 10
    assert f"@latest is run {run_id} of trip" in watched.err
    assert re.search(r"FAIL   hotel", watched.err)
    assert f"trip {run_id[:6]} failed at hotel and was rolled back" in watched.out
    assert end(process) == 10
    again = project.run("watch", run_id, "-o", "json")
    assert again.code == 10
    assert again.json["run"]["id"] == run_id
    assert again.err == ""


def test_a_document_says_who_drives(project: Project) -> None:
    """`show -o json` and `list -o json` name the driver while it lives, and nobody once it is gone or has let go."""
    process, run_id = _start_run(project, "-i", "flight=held")
    shown = project.run("show", run_id, "-o", "json").json["run"]
    assert shown["driver"]["pid"] == process.pid
    assert shown["driver"]["host"] == os.uname().nodename
    assert shown["started_at"] <= shown["driver"]["since"]
    listed = project.run("list", "-o", "json").json["items"][0]
    assert listed["driver"] == {"host": os.uname().nodename, "pid": process.pid}
    process.kill()
    process.communicate()
    assert project.run("show", run_id, "-o", "json").json["run"]["driver"] is None
    assert project.run("list", "-o", "json").json["items"][0]["driver"] is None
    cancelled = project.run("cancel", run_id, "-o", "json").json["run"]
    assert cancelled["driver"] is None


def test_watching_survives_the_driver(project: Project) -> None:
    """A killed driver is said once, with what to type; a run that is resumed elsewhere is followed to its end."""
    process, run_id = _start_run(project, "-i", "flight=held")
    watcher = project.start("watch", run_id)
    follower = project.start("log", run_id, "-f", "-o", "jsonl")
    assert watcher.stderr is not None
    assert watcher.stdout is not None
    assert watcher.stderr.readline()  # it has found the run, and its driver alive
    process.send_signal(signal.SIGKILL)
    process.communicate()
    let_go(project)
    assert project.run("resume", run_id, "-q").code == 0
    with watcher.stdout, watcher.stderr:
        err, out = watcher.stderr.read(), watcher.stdout.read()
    assert watcher.wait(timeout=WAIT_SECONDS) == 0
    assert err.count(f"nobody drives this run: sagactl resume {run_id[:6]}") <= 1
    assert "resumed; " in err
    assert "succeeded" in out
    lines = follower.communicate(timeout=WAIT_SECONDS)[0].splitlines()
    assert follower.returncode == 0
    records = [json.loads(line) for line in lines]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert records[-1]["type"] == "ended"


def test_a_run_that_nobody_drives_is_not_watched_for_ever(project: Project) -> None:
    """Where nobody takes it up, `watch` says so and ends with 12; `--patience` says after how long."""
    process, run_id = _start_run(project, "-i", "flight=held")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    watched = project.run("watch", run_id, "--patience", "0.5")
    assert watched.code == 12
    assert f"note   nobody drives this run: sagactl resume {run_id[:6]}" in watched.err
    assert f"hint: sagactl resume {run_id[:6]}" in watched.out
    table = project.run("watch", "--all", "--patience", "0")
    assert table.code == 12
    assert "1 not at rest, and nobody drives them: sagactl resume --all" in table.out


def test_ctrl_c_stops_watching_and_not_the_run(project: Project) -> None:
    """The run goes on: only the watcher ends, with 130."""
    process, run_id = _start_run(project, "-i", "flight=held")
    with Terminal() as terminal:
        watcher = terminal.start(project, "watch", run_id)
        terminal.wait_for(lambda text: "Ctrl-C stops watching, not the run" in text)
        terminal.type("\x03")
        assert watcher.wait(timeout=WAIT_SECONDS) == 130
        assert "stopped watching; nothing else was stopped" in terminal.text
        assert "in doubt" not in terminal.text
    let_go(project)
    assert end(process) == 0


def test_all_unfinished_runs_are_a_table_that_ends_with_them(project: Project) -> None:
    """`watch --all` tells of each run that begins and ends, and ends when none is left; a JSON value has those."""
    process, run_id = _start_run(project, "-i", "flight=held")
    table = _follow(project, "trip running", "watch", "--all", "-o", "json")
    assert table.code == 0
    assert [row["id"] for row in table.json["items"]] == [run_id]
    assert re.search(rf"run    {run_id[:6]} trip running \d/3", table.err)
    assert re.search(rf"ok     {run_id[:6]} trip succeeded", table.err)
    assert end(process) == 0
    assert project.run("watch", "--all").out == "no run goes on\n"


def test_a_followed_log_ends_when_nobody_reads_it(project: Project) -> None:
    """`log -f | head -1` doesn't stay until the run is over."""
    process, run_id = _start_run(project, "-i", "flight=held", "-i", "seconds=8")
    follower = project.start("log", run_id, "-f", "-o", "jsonl")
    assert follower.stdout is not None
    assert follower.stderr is not None
    follower.stdout.readline()
    follower.stdout.close()
    let_go(project)
    assert follower.wait(timeout=WAIT_SECONDS) == 0
    follower.stderr.close()
    assert process.poll() is None
    process.kill()
    end(process)


def test_a_followed_log_keeps_its_columns_and_ends_with_the_run(project: Project) -> None:
    """`log -f` shows each record when it is durable, and one JSON value isn't a stream."""
    process, run_id = _start_run(project, "-i", "seconds=1")
    followed = project.run("log", "-f")
    assert followed.code == 0
    lines = followed.out.splitlines()
    assert lines[0].startswith(f"trip {run_id[:6]}")
    assert lines[-1].endswith("ended: succeeded")
    calls = [line for line in lines if line.endswith("call 1")]
    assert len(calls) == 3
    assert len({line.index("call 1") for line in calls}) == 1
    assert end(process) == 0
    assert project.run("log", "-f", "-o", "json").code == 2
    filtered = project.run("log", "-f", "--step", "car")
    assert {line.split()[2] for line in filtered.out.splitlines()[2:]} == {"car"}
