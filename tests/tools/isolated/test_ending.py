"""How isolated calls end for sure, whatever the tool does, and whoever is killed (E14, E15, E17)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sagactl.core.answer import Answer
from sagactl.log.holder import read_boot_id
from sagactl.tools.shell.launcher import TERM_GRACE_SECONDS
from sagactl.tools.shell.orphans import CallFiles
from tests.tools.building import invocation
from tests.tools.isolated.calling import EVERYTHING, Calling, write_plugin
from tests.tools.shell.commands import has_fallen_silent, is_alive, message_of, wait_until, word_of
from tests.tools.shell.test_ending import ROOT, read_note, read_parent

RUN = invocation("shop.hang").run_id
PLUGIN = """
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
BEAT = '''
import os, sys, time
while True:
    with open(sys.argv[1], "a") as file:
        file.write(str(os.getpid()) + chr(10))
    time.sleep(0.02)
'''

def beat(file, deaf):
    "Start a process that leaves session, group and environment, and writes its pid for ever."
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-c", (DEAF if deaf else "") + BEAT, str(file)], {})
        os._exit(0)
    os.wait()
    while not os.path.exists(file):
        time.sleep(0.01)

@tool("shop.hang")
def hang(context: CallContext, deaf: bool = True):
    "Sleep in C code that hears no signal, with a process left beside it."
    beat(context.project / "beats", deaf)
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (context.project / "begun").touch()
    while True:
        ctypes.CDLL(None).sleep(60)

@tool("shop.spin")
def spin(context: CallContext):
    "Hold the interpreter in C code: no handler of Python ever runs."
    (context.project / "begun").touch()
    while True:
        ctypes.PyDLL(None).sleep(60)

@tool("shop.spin_async")
async def spin_async(context: CallContext):
    "Hold up the event loop."
    (context.project / "begun").touch()
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

@tool("shop.flee")
def flee(context: CallContext) -> str:
    "Leave a process that is another one every few milliseconds, without a mark, and never where it was looked for."
    if os.fork() == 0:
        os.setsid()
        while True:
            (context.project / "beats").open("a").write("1 ")
            time.sleep(0.002)
            if os.fork():
                os._exit(0)
    while not (context.project / "beats").exists():
        time.sleep(0.01)
    return "fled"

@tool("shop.parent")
def parent() -> list[int]:
    return [os.getpid(), os.getppid()]

@tool("shop.quick")
def quick(number: int = 1) -> int:
    time.sleep(0.2)
    return number
"""


SWEPT = replace(EVERYTHING, has_pid_namespace=False)


@pytest.fixture(params=[EVERYTHING, SWEPT], ids=["namespace", "swept"])
def calling(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Calling]:
    """Return the tools, with and without a namespace; every call has left nothing behind at the end."""
    write_plugin(tmp_path, PLUGIN)
    calling = Calling(tmp_path, request.param)
    yield calling
    calling.built_in.close()
    wait_until(lambda: not list(calling.calls.glob("*")))


def _start(calling: Calling, tool: str, **arguments: bool) -> tuple[Callable[[], None], Callable[[], Answer]]:
    """Begin a call; return what tells it to end, and what waits for its answer."""
    call = calling.make(tool, dict(arguments))
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(calling.toolbox.call(call)))
    thread.start()
    wait_until((calling.folder / "begun").exists)

    def join() -> Answer:
        thread.join(60)
        return answers[0]

    return call.cancelled.set, join


@pytest.mark.parametrize("tool", ["hang", "spin", "spin_async"])
def test_no_tool_outlives_its_call(calling: Calling, tool: str) -> None:
    """E14: deaf to SIGTERM, asleep in C, holding interpreter or loop: killed after the grace, with all below it."""
    end, join = _start(calling, tool)
    began = time.monotonic()
    end()
    answer = join()
    assert word_of(answer) == ("unknown", "ended")
    assert message_of(answer) == f"the process of shop.{tool} was ended by SIGKILL, for the call had to end"
    assert TERM_GRACE_SECONDS <= time.monotonic() - began < TERM_GRACE_SECONDS + 30
    assert tool != "hang" or has_fallen_silent(calling.folder / "beats")


def test_a_call_ends_by_its_own_deadline(calling: Calling) -> None:
    """E14: a call that nobody tells to end does so when its time is up."""
    answer = calling.call("hang", seconds_left=8.0)
    assert word_of(answer) == ("unknown", "ended")
    assert has_fallen_silent(calling.folder / "beats")


def test_without_time_nothing_starts(calling: Calling) -> None:
    """E3: told to end before it began, nothing happens, and that is certain."""
    assert word_of(calling.call("hang", seconds_left=0.0)) == ("unavailable", "not_started")
    assert not (calling.folder / "begun").exists()


def test_isolated_calls_run_side_by_side(calling: Calling) -> None:
    """Each has its own process, token and note; answers don't mix."""
    answers: dict[int, object] = {}

    def run(number: int) -> None:
        answers[number] = calling.call("quick", {"number": number}).output

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == {number: number for number in range(8)}


def test_a_supervisor_that_is_killed_takes_the_call_along(calling: Calling) -> None:
    """E17: the call is in doubt, and nothing of it runs when that is said."""
    _, join = _start(calling, "hang")
    os.kill(_read_supervisor(calling.calls), signal.SIGKILL)
    answer = join()
    assert word_of(answer) == ("unknown", "supervisor_lost")
    assert message_of(answer) == "who watched over shop.hang was killed; all of it was ended"
    assert has_fallen_silent(calling.folder / "beats")
    assert calling.call("quick").output == 1


def _read_supervisor(calls: Path) -> int:
    (file,) = calls.glob("*")
    return read_note(file)["supervisor"][0]


DRIVER = """
import sys
from pathlib import Path
from tests.tools.isolated.calling import Calling
print(Calling(Path(sys.argv[1])).call(sys.argv[2]).kind, flush=True)
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Return another process that is in the middle of an isolated call."""
    write_plugin(tmp_path, PLUGIN)
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path), "hang"], cwd=ROOT) as process:
        wait_until((tmp_path / "begun").exists)
        yield process
        process.kill()


def test_a_call_dies_with_its_driver(driver: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """E17: SIGKILL of the process that made the call ends it, and all that it forked, without anybody's help."""
    driver.kill()
    driver.wait()
    wait_until(lambda: not list((tmp_path / "calls").glob("*")))
    assert has_fallen_silent(tmp_path / "beats")


def test_a_resume_waits_until_the_call_of_a_killed_driver_is_over(
    driver: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """E17: nothing is decided before the orphan has ended, however soon the resume comes."""
    driver.kill()
    CallFiles(tmp_path / "calls", read_boot_id).end_orphans(RUN)
    assert not list((tmp_path / "calls").glob("*"))
    assert has_fallen_silent(tmp_path / "beats")


def _has_namespace(folder: Path) -> bool:
    calling = Calling(folder)
    parent = calling.call("parent").output
    calling.built_in.close()
    return isinstance(parent, list) and parent[1] == 1


def test_a_process_that_flees_by_forking_is_caught(tmp_path: Path) -> None:
    """E14: in a namespace nothing outruns its end, however fast it forks."""
    write_plugin(tmp_path, PLUGIN)
    if not _has_namespace(tmp_path):
        pytest.skip("the kernel gives nobody here a pid namespace")
    calling = Calling(tmp_path)
    assert calling.call("flee").output == "fled"
    assert has_fallen_silent(tmp_path / "beats")
    calling.built_in.close()


def test_a_process_in_a_namespace_has_a_number_of_its_own(tmp_path: Path) -> None:
    """Names that tools make of their pid stay different: inside it is the number that the call has outside."""
    write_plugin(tmp_path, PLUGIN)
    if not _has_namespace(tmp_path):
        pytest.skip("the kernel gives nobody here a pid namespace")
    calling = Calling(tmp_path)
    pids = [pid[0] for _ in range(3) if isinstance(pid := calling.call("parent").output, list)]
    calling.built_in.close()
    assert len(set(pids)) == 3
    assert min(map(int, map(str, pids))) > 10


def test_a_call_whose_watchers_were_all_killed_is_ended(driver: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """E17: driver, spawner and supervisor killed at once, with a process that bears no mark of ours: all is ended."""
    (file,) = (tmp_path / "calls").glob("*")
    note = read_note(file)
    supervisor = note["supervisor"][0]
    if not _has_namespace(tmp_path):
        pytest.skip("the kernel gives nobody here a pid namespace")
    for pid in (read_parent(supervisor), supervisor, driver.pid):
        os.kill(pid, signal.SIGKILL)
    driver.wait()
    CallFiles(tmp_path / "calls", read_boot_id).end_orphans(RUN)
    assert not is_alive(note["command"][0])
    assert has_fallen_silent(tmp_path / "beats")
