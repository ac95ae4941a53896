"""Tools that would take sagactl's process down with them: isolated, each is an outcome, with a clear message."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sagactl.core.answer import Answer
from sagactl.core.records import OutcomeKind
from sagactl.tools.capture import PRINTED_BYTES_MAX
from sagactl.tools.isolated.rules import MEMORY_BYTES_MIN
from tests.tools.isolated.calling import Calling, call_once, write_plugin
from tests.tools.shell.commands import BEATS, has_fallen_silent, message_of, read_beats, wait_until, word_of


@pytest.mark.parametrize(
    ("body", "word", "message"),
    [
        ("os._exit(3)", "exit_3", "the process of shop.run exited with 3 in the middle of the call"),
        ("os._exit(0)", "exit_0", "the process of shop.run exited with 0 in the middle of the call"),
        ("ctypes.string_at(0)", "sigsegv", "the process of shop.run was ended by SIGSEGV in the middle of the call"),
        ("os.abort()", "sigabrt", "the process of shop.run was ended by SIGABRT in the middle of the call"),
        (
            "os.kill(os.getpid(), 9)",
            "sigkill",
            "the process of shop.run was ended by SIGKILL in the middle of the call",
        ),
        ("os.execv('/bin/false', ['false'])", "exit_1", "the process of shop.run exited with 1 in the middle of"),
        (
            "signal.signal(signal.SIGALRM, signal.SIG_DFL); signal.alarm(1); time.sleep(9)",
            "sigalrm",
            "the process of shop.run was ended by SIGALRM in the middle of the call",
        ),
    ],
    ids=["exit", "exit 0", "segfault", "abort", "kill", "exec", "alarm"],
)
def test_a_process_that_dies_leaves_the_call_in_doubt(tmp_path: Path, body: str, word: str, message: str) -> None:
    """E3: a process that ended without a reply may have done anything; the message says how it ended."""
    answer = call_once(tmp_path, f"print('before')\n{body}")
    assert word_of(answer) == ("unknown", word)
    assert message in message_of(answer)
    assert answer.printed.startswith("before\n")


def test_a_crash_shows_where(tmp_path: Path) -> None:
    """What Python knows of a segfault is kept with what the tool printed."""
    answer = call_once(tmp_path, "ctypes.string_at(0)")
    assert "Fatal Python error: Segmentation fault" in answer.printed
    assert "shop.py" in answer.printed


def test_closed_descriptors_lose_no_answer(tmp_path: Path) -> None:
    """A tool that closes every descriptor there is still answers: none of them leads to the reply."""
    answer = call_once(tmp_path, "os.closerange(0, 4096)\nreturn 'answered'")
    assert (answer.kind, answer.output) == (OutcomeKind.SUCCEEDED, "answered")


def test_what_is_written_to_every_descriptor_forges_nothing(tmp_path: Path) -> None:
    """What a tool prints, or writes to any number, is no reply."""
    forged = '[\\"succeeded\\",null,null]\\nfalse\\nnull\\nnull'
    body = f"""
        for number in range(0, 64):
            try:
                os.write(number, b"{forged}")
                os.pwrite(number, b"x" * 4096, 0)
            except OSError:
                pass
        return True
    """
    answer = call_once(tmp_path, body)
    assert (answer.kind, answer.output) == (OutcomeKind.SUCCEEDED, True)
    assert "succeeded" in answer.printed


GARBAGE = """
    for each in gc.get_objects():
        if type(each).__name__ == "Area":
            {write}
    os._exit(0)
"""


@pytest.mark.parametrize(
    "write",
    [
        "each.write_reply(b'garbage')",
        "each.write_reply(b'[\"succeeded\",null,null]')",
        "each.write_reply(b'[\"unknown\",null,null]\\nnull\\nnull\\nnull')",
        "each.write_reply(b'[\"rejected\",7,null]\\nnull\\nnull\\nnull')",
        "each.write_reply(b'[\"pending\",null,-1]\\nnull\\nnull\\nnull')",
        "each.write_reply(b'\\xff\\n\\n\\n')",
        "each.write_reply(b'[\"pending\",null,' + b'9' * 900 + b']\\nnull\\nnull\\nnull')",
        "each.write_reply(b'[\"pending\",null,1]\\nnull\\n\"' + b'x' * 1_200_000 + b'\"\\nnull')",
        "each.write_reply(b'[' * 100_000)",
        "each._memory[each._mark + 1 : each._reply] = b'\\xff' * 8",
        "each._memory[:] = b'\\xff' * len(each._memory)",
    ],
)
def test_garbage_in_place_of_a_reply_is_unknown(tmp_path: Path, write: str) -> None:
    """E3: whatever stands in the memory for the reply, it is read as the text of a stranger."""
    answer = call_once(tmp_path, GARBAGE.format(write=write))
    assert word_of(answer) == ("unknown", "bad_reply")
    assert message_of(answer).startswith("what came back from the process of shop.run is no reply: ")


def test_a_forged_output_is_still_checked(tmp_path: Path) -> None:
    """E3: the caller checks the schema itself."""
    text = GARBAGE.format(write="each.write_reply(b'[\"succeeded\",null,null]\\n7\\nnull\\nnull')")
    write_plugin(tmp_path, f"@tool('shop.run', isolation='process')\ndef run() -> str:\n{text}")
    calling = Calling(tmp_path)
    answer = calling.call("run")
    calling.built_in.close()
    assert (word_of(answer), answer.raw) == (("unknown", "bad_output"), 7)


def test_a_forged_reason_is_bounded(tmp_path: Path) -> None:
    """What is kept of a reason is a word and a line, whoever wrote them."""
    reason = """b'[\"' + b'w' * 999 + b'\",\"' + b'a\\\\n' * 9_999 + b'\"]'"""
    forged = f"""each.write_reply(b'["rejected",' + {reason} + b',null]' + b'\\nnull' * 3)"""
    answer = call_once(tmp_path, GARBAGE.format(write=forged))
    assert answer.kind is OutcomeKind.REJECTED
    assert answer.failure is not None
    assert (len(answer.failure.type), len(answer.failure.message)) == (64, 500)
    assert "\n" not in answer.failure.message


def test_a_flood_is_bounded(tmp_path: Path) -> None:
    """What a tool prints is read to the end and kept up to a bound; it isn't held up."""
    began = time.monotonic()
    answer = call_once(tmp_path, "line = 'x' * 65_536\nfor _ in range(1_600):\n    print(line)\nreturn 'done'")
    assert answer.output == "done"
    assert "bytes cut]" in answer.printed
    assert len(answer.printed) < PRINTED_BYTES_MAX + 100
    assert time.monotonic() - began < 60


def test_memory_is_bounded_where_the_operator_says_so(tmp_path: Path) -> None:
    """`memory_bytes_max`: beyond it the tool gets a MemoryError, and this process none."""
    rules = {"memory_bytes_max": 4 * MEMORY_BYTES_MIN}
    answer = call_once(tmp_path, f"return len(b'x' * {8 * MEMORY_BYTES_MIN})", rules=rules)
    assert word_of(answer) == ("unknown", "MemoryError")
    assert call_once(tmp_path, "return len(b'x' * 1_000_000)", rules=rules).output == 1_000_000


def test_the_smallest_memory_is_enough_to_begin_with(tmp_path: Path) -> None:
    """What the setting takes at least is what a small tool needs."""
    assert call_once(tmp_path, "return 1", rules={"memory_bytes_max": MEMORY_BYTES_MIN}).output == 1


def test_a_child_that_comes_out_of_the_tool_answers_nothing(tmp_path: Path) -> None:
    """E15: after `os.fork()` in a tool there is one answer, the parent's, whoever returns first."""
    answer = call_once(
        tmp_path, "pid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\nreturn 'parent' if pid else 'child'"
    )
    assert (answer.kind, answer.output) == (OutcomeKind.SUCCEEDED, "parent")
    assert "forked, and its child came out of the tool" in answer.printed


def test_changed_handlers_change_nothing_here(tmp_path: Path) -> None:
    """A tool may do to its process what it likes: handlers, folder, environment, streams, threads that never end."""
    body = """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
        os.chdir("/")
        os.environ.clear()
        sys.stdout = sys.stderr = None
        sys.setrecursionlimit(100)
        threading.Thread(target=time.sleep, args=(60,)).start()
        return "answered"
    """
    began = time.monotonic()
    answer = call_once(tmp_path, body)
    assert (answer.kind, answer.output) == (OutcomeKind.SUCCEEDED, "answered")
    assert time.monotonic() - began < 45


def _beat(tmp_path: Path, after: str) -> Answer:
    """Call a tool that starts a process which leaves its session, forks twice, and ignores SIGTERM."""
    program = tmp_path / "beating.py"
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    program.write_text(BEATS.format(before=ignoring, after="pass"))
    body = f"""
        subprocess.Popen([sys.executable, {str(program)!r}, {str(tmp_path / "beats")!r}], env={{}}).wait()
        while not os.path.exists({str(tmp_path / "beats")!r}):
            time.sleep(0.01)
        {after}
    """
    return call_once(tmp_path, body, seconds_left=60.0)


def test_a_daemon_that_keeps_stdout_open_holds_nothing_up(tmp_path: Path) -> None:
    """E9: what a tool leaves running is ended when it has returned, also what left its session and its environment."""
    answer = _beat(tmp_path, "return 'returned'")
    assert (answer.kind, answer.output) == (OutcomeKind.SUCCEEDED, "returned")
    assert read_beats(tmp_path / "beats")
    assert has_fallen_silent(tmp_path / "beats")


def test_what_a_crashed_tool_left_is_ended(tmp_path: Path) -> None:
    """E9: likewise when it crashed."""
    assert word_of(_beat(tmp_path, "os.abort()")) == ("unknown", "sigabrt")
    assert has_fallen_silent(tmp_path / "beats")


def test_an_interpreter_that_dies_before_the_tool_was_entered_did_nothing(tmp_path: Path) -> None:
    """E3: until the function is entered nothing can have happened, so it is unavailable and not unknown."""
    write_plugin(
        tmp_path,
        """
        if os.environ.get("SAGACTL_CALL"):  # in the process of the call only
            os._exit(9)
        @tool("shop.run", isolation="process")
        def run() -> None:
            (1 / 0)
        @tool("shop.find", isolation="process", read_only=True)
        def find() -> None:
            (1 / 0)
        """,
    )
    calling = Calling(tmp_path)
    answer, reply = calling.call("run"), calling.probe("find")
    calling.built_in.close()
    assert word_of(answer) == ("unavailable", "not_started")
    assert message_of(answer) == "the process for shop.run exited with 9 before it entered the tool"
    assert (reply.answer.value, message_of(reply)) == (
        "cannot_tell",
        "the process for shop.find exited with 9 before it entered the tool",
    )


@pytest.mark.parametrize(
    ("text", "word", "message"),
    [
        ("raise RuntimeError('no licence here')", "not_loaded", "no licence here"),
        ("del run", "not_loaded", "has no tool shop.run when another interpreter imports it"),
    ],
)
def test_a_plugin_that_cannot_be_imported_there_did_nothing(tmp_path: Path, text: str, word: str, message: str) -> None:
    """E3: what goes wrong before the call has no effect, and the message says where."""
    write_plugin(
        tmp_path,
        f"""
        if not os.environ.get("SAGACTL_CALL"):
            @tool("shop.run", isolation="process")
            def run() -> None:
                pass
        elif {"licence" in text}:
            {text if "licence" in text else "pass"}
        """,
    )
    calling = Calling(tmp_path)
    answer = calling.call("run")
    calling.built_in.close()
    assert word_of(answer) == ("unavailable", word)
    assert message in message_of(answer)


def test_a_plugin_that_has_changed_is_not_called(tmp_path: Path) -> None:
    """E16: the code that sagactl read and the code that would run are one, also what the plugin shares."""
    (tmp_path / "plugins").mkdir()
    shared = tmp_path / "plugins" / "_shared.py"
    shared.write_text("RATE = 1\n")
    write_plugin(
        tmp_path,
        "from ._shared import RATE\n@tool('shop.run', isolation='process')\ndef run() -> int:\n    return RATE\n",
    )
    calling = Calling(tmp_path)
    assert calling.call("run").output == 1
    shared.write_text("RATE = 1 + 1\n")
    answer = calling.call("run")
    calling.built_in.close()
    assert word_of(answer) == ("unavailable", "changed_tool")
    assert "has changed since sagactl read it" in message_of(answer)
    again = Calling(tmp_path)
    assert again.call("run").output == 2
    again.built_in.close()


def test_only_its_own_plugin_is_imported(tmp_path: Path) -> None:
    """The process of a call imports the one plugin that it needs."""
    write_plugin(tmp_path, "(1 / 0) if os.environ.get('SAGACTL_CALL') else None\n", "other.py")
    answer = call_once(tmp_path, "return sorted(each for each in sys.modules if 'sagactl_plugins' in each)")
    (package, plugin) = answer.output if isinstance(answer.output, list) else ("", "")
    assert plugin == f"{package}.shop"
    wait_until(lambda: not list((tmp_path / "calls").glob("*")))
