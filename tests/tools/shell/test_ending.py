"""How commands end for sure: with everything that they forked, whatever it does to get away (E14, E17)."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sagactl.core.answer import Answer
from sagactl.core.records import OutcomeKind
from sagactl.tools.shell.launcher import TERM_GRACE_SECONDS
from tests.tools.shell.commands import (
    BEATS,
    Commands,
    has_fallen_silent,
    is_alive,
    read_beats,
    wait_until,
    word_of,
)

ROOT = Path(__file__).parents[3]
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)"


def _beating(folder: Path, *, before: str = "pass", after: str = "time.sleep(60)") -> tuple[list[str], Path]:
    """Return a command whose grandchild has left its session, and the file of the grandchild's beats."""
    program, beats = folder / "beating.py", folder / "beats"
    program.write_text(BEATS.format(before=before, after=after))
    return [sys.executable, str(program), str(beats)], beats


def _end_when(commands: Commands, argv: list[str], holds: Callable[[], object]) -> tuple[Answer, float]:
    """Run a command, tell the call to end when *holds*, and return the answer and how long the end took."""
    call = commands.make("shell.run", {"argv": list(argv)})
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(commands.toolbox.call(call)))
    thread.start()
    wait_until(holds)
    began = time.monotonic()
    call.cancelled.set()
    thread.join(60)
    return answers[0], time.monotonic() - began


def test_a_grandchild_that_left_the_session_ends_with_the_call(commands: Commands, tmp_path: Path) -> None:
    """E14: when the call has returned nothing of it runs, also what called setsid and forked twice."""
    argv, beats = _beating(tmp_path)
    answer, _ = _end_when(commands, argv, lambda: read_beats(beats))
    assert word_of(answer) == ("unknown", "sigterm")
    assert not any(map(is_alive, read_beats(beats)))
    assert has_fallen_silent(beats)


def test_what_does_not_hear_sigterm_is_killed_after_the_grace(commands: Commands, tmp_path: Path) -> None:
    """E14: SIGTERM first, and after a short grace SIGKILL for all that is left."""
    argv, beats = _beating(tmp_path, before=DEAF, after=f"{DEAF}; time.sleep(60)")
    answer, took = _end_when(commands, argv, lambda: read_beats(beats))
    assert word_of(answer) == ("unknown", "sigkill")
    assert has_fallen_silent(beats)
    assert TERM_GRACE_SECONDS <= took < TERM_GRACE_SECONDS + 30


def test_a_command_may_clean_up_within_the_grace(commands: Commands, tmp_path: Path) -> None:
    """E14: SIGTERM is sent first so that a program can let go of what it holds."""
    argv = ["sh", "-c", "trap 'echo clean; exit 0' TERM; touch begun; while :; do sleep 0.05; done"]
    answer, _ = _end_when(commands, argv, (tmp_path / "begun").exists)
    assert (answer.kind, answer.output) == (OutcomeKind.SUCCEEDED, "clean")


def test_a_call_ends_by_its_own_deadline(commands: Commands) -> None:
    """E14: a call that nobody tells to end does so when its time is up."""
    began = time.monotonic()
    answer = commands.toolbox.call(commands.make("shell.run", {"argv": ["sleep", "60"]}, seconds_left=2.0))
    assert word_of(answer) == ("unknown", "sigterm")
    assert time.monotonic() - began < 30


def test_what_shall_end_before_it_has_begun_is_not_started(commands: Commands, tmp_path: Path) -> None:
    """E3: told to end before the start, on our side or on the way, nothing happens, and that is certain."""
    others = _find_children("spawner.py")
    call = commands.make("shell.run", {"argv": ["touch", "begun"]})
    call.cancelled.set()
    assert word_of(commands.toolbox.call(call)) == ("unavailable", "not_started")
    assert commands.run("true").kind is OutcomeKind.SUCCEEDED
    (spawner,) = set(_find_children("spawner.py")) - set(others)
    os.kill(spawner, signal.SIGSTOP)
    call = commands.make("shell.run", {"argv": ["touch", "begun"]})
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(commands.toolbox.call(call)))
    thread.start()
    time.sleep(1)
    call.cancelled.set()
    time.sleep(1)
    os.kill(spawner, signal.SIGCONT)
    thread.join(60)
    assert word_of(answers[0]) == ("unavailable", "not_started")
    assert not (tmp_path / "begun").exists()


def _find_children(text: str) -> list[int]:
    return [pid for pid in _find_processes(text) if read_parent(pid) == os.getpid()]


def test_what_a_command_leaves_running_ends_when_it_has_ended(commands: Commands, tmp_path: Path) -> None:
    """E9: nothing of an action may act once its outcome is recorded; the outcome is the command's own."""
    argv, beats = _beating(tmp_path, after="time.sleep(0.2); print('done')")
    answer = commands.run(*argv)
    assert (answer.kind, answer.output) == (OutcomeKind.SUCCEEDED, "done")
    assert read_beats(beats)
    assert has_fallen_silent(beats)


def test_a_stopped_command_can_be_ended(commands: Commands, tmp_path: Path) -> None:
    """E14: what was stopped by SIGSTOP goes on just to end."""
    argv = ["sh", "-c", "touch begun; kill -STOP $$; sleep 60"]
    answer, _ = _end_when(commands, argv, (tmp_path / "begun").exists)
    assert word_of(answer) == ("unknown", "sigterm")


def test_many_generations_are_ended(commands: Commands, tmp_path: Path) -> None:
    """E14: a tree that keeps forking is killed again and again until nothing is left."""
    program = tmp_path / "tree.py"
    program.write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('begun', 'w').close()\n"
        "end = time.monotonic() + 30\n"
        "while time.monotonic() < end:\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            time.sleep(60)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "    time.sleep(0.02)\n"
    )
    answer, _ = _end_when(commands, [sys.executable, str(program)], (tmp_path / "begun").exists)
    assert word_of(answer) == ("unknown", "sigkill")
    assert not _find_processes(str(program))


def _find_processes(text: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_alive(int(entry.name)):
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            found += [int(entry.name)] if text.encode() in line and int(entry.name) != os.getpid() else []
    return found


def test_a_supervisor_that_is_killed_takes_its_command_along(commands: Commands, tmp_path: Path) -> None:
    """E17: the command dies with who watches over it, what it forked is killed, and the outcome is unknown."""
    argv, beats = _beating(tmp_path)
    call = commands.make("shell.run", {"argv": list(argv)})
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(commands.toolbox.call(call)))
    thread.start()
    wait_until(lambda: read_beats(beats))
    os.kill(_read_supervisor(commands), signal.SIGKILL)
    thread.join(60)
    assert word_of(answers[0]) == ("unknown", "supervisor_lost")
    assert has_fallen_silent(beats)
    assert commands.run("echo", "on").output == "on"


def _read_supervisor(commands: Commands) -> int:
    (file,) = commands.calls.glob("*")
    return read_note(file)["supervisor"][0]


def read_note(file: Path) -> dict[str, list[int]]:
    """Return what stands in the note about a call, as pids and start times."""
    note: dict[str, list[int]] = {}
    for line in file.read_text().splitlines():
        note |= json.loads(line)
    return note


def read_parent(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_spawner_that_is_killed_is_replaced(commands: Commands, tmp_path: Path) -> None:
    """E14: commands under way are watched to their end all the same, and the next one gets a new spawner."""
    call = commands.make(
        "shell.run", {"argv": ["sh", "-c", "touch begun; until test -e go; do sleep 0.02; done; echo x"]}
    )
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(commands.toolbox.call(call)))
    thread.start()
    wait_until((tmp_path / "begun").exists)
    spawner = read_parent(_read_supervisor(commands))
    os.kill(spawner, signal.SIGKILL)
    wait_until(lambda: not is_alive(spawner))
    assert commands.run("echo", "on").output == "on"
    (tmp_path / "go").touch()
    thread.join(60)
    assert answers[0].output == "x"


ROOM_MAX = 64
"""A command needs some ten descriptors, and a few more in a process whose tests left threads behind."""


def test_without_descriptors_left_nothing_is_started_and_nothing_leaks(commands: Commands) -> None:
    """E3: what kept a command from starting was on our side, so nothing happened and it can be tried again."""
    commands.run("true")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = _list_descriptors()
    free = sorted(set(range(len(before) + ROOM_MAX)) - before)
    words = []
    try:
        for first_refused in free[1:ROOM_MAX]:  # each time there is room for one more
            resource.setrlimit(resource.RLIMIT_NOFILE, (first_refused, hard))
            words.append(word_of(commands.run("true")))
            if words[-3:] == [("succeeded", "")] * 3:
                break
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert set(words) == {("unavailable", "not_started"), ("succeeded", "")}
    assert words == sorted(words, reverse=True)
    assert _list_descriptors() == before
    assert commands.run("echo", "on").output == "on"


def _list_descriptors() -> set[int]:
    listed = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    return {number for number in listed if Path(f"/proc/self/fd/{number}").exists()}


def test_no_descriptor_of_ours_gets_to_a_command(commands: Commands, tmp_path: Path) -> None:
    """E15: neither log nor lock nor pipe of sagactl is open in a command, inheritable or not."""
    kept = os.open(tmp_path / "kept", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(kept, True)
    try:
        listed = commands.run(sys.executable, "-c", "import os; print(*sorted(os.listdir('/proc/self/fd')))").output
    finally:
        os.close(kept)
    assert listed == "0 1 2 3"  # 3 is what the listing itself has open


def test_a_command_has_its_own_session_and_plain_signals(commands: Commands) -> None:
    """E17: the terminal's signals don't reach it, and what Python ignores is not ignored in it."""
    program = "import os; print(os.getpid() == os.getsid(0) == os.getpgid(0), open('/proc/self/status').read())"
    output = commands.run(sys.executable, "-S", "-c", program).output
    assert isinstance(output, str)
    assert output.startswith("True")
    status = dict(line.split(":\t", 1) for line in output.splitlines()[1:] if ":\t" in line)
    assert int(status["SigBlk"], 16) == 0
    assert commands.run("grep", "-c", "SigIgn:.0000000000000000", "/proc/self/status").output == "1"


def test_a_bound_on_what_is_kept_never_holds_a_command_up(commands: Commands) -> None:
    """E14: 50 MiB on both streams are read to the end; what is kept of them is bounded."""
    program = "import sys\nfor _ in range(400):\n    sys.stdout.write('o' * 65536); sys.stderr.write('e' * 65536)"
    answer = commands.run(sys.executable, "-c", program, output="none")
    assert answer.kind is OutcomeKind.SUCCEEDED
    assert len(answer.printed) < 1_100_000


def test_what_another_process_keeps_open_holds_nothing_up(commands: Commands, tmp_path: Path) -> None:
    """A descriptor of the command's stdout that was handed to a stranger doesn't keep the call from returning."""
    with subprocess.Popen(
        [sys.executable, "-c", _TAKER, str(tmp_path / "socket")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as taker:
        assert taker.stdout is not None
        taker.stdout.readline()
        assert commands.run(sys.executable, "-c", _GIVER, str(tmp_path / "socket")).output == "given"
        taker.communicate(b"")


_TAKER = """
import socket, sys
server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); server.listen()
print(flush=True)
socket.recv_fds(server.accept()[0], 1, 1)
sys.stdin.read()
"""
_GIVER = """
import socket, sys
client = socket.socket(socket.AF_UNIX); client.connect(sys.argv[1])
socket.send_fds(client, [b"x"], [1])
print("given")
"""


def test_commands_run_side_by_side(commands: Commands) -> None:
    """Each call has its own supervisor: one that ends leaves the others alone."""
    answers: list[Answer] = []

    def run(number: int) -> None:
        answers.append(commands.run("sh", "-c", f"sleep 0.{number}; echo {number}"))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(str(answer.output) for answer in answers) == [str(n) for n in range(8)]


DRIVER = """
import sys
from pathlib import Path
from tests.tools.shell.commands import Commands
commands = Commands(Path(sys.argv[1]))
print(commands.run(*sys.argv[2:]).kind, flush=True)
"""


@pytest.mark.parametrize("before", ["pass", DEAF])
def test_a_command_dies_with_its_driver(tmp_path: Path, before: str) -> None:
    """E17: SIGKILL of the process that made the call ends the command and all that it forked, promptly."""
    argv, beats = _beating(tmp_path, before=before)
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path), *argv], cwd=ROOT)
    wait_until(lambda: read_beats(beats))
    driver.kill()
    driver.wait()
    wait_until(lambda: not any(map(is_alive, read_beats(beats))))
    assert has_fallen_silent(beats)
    wait_until(lambda: not list((tmp_path / "state" / "calls").glob("*")))
