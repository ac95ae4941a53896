"""What tools print is kept with their call, and stdout carries the answer alone."""

# ruff: noqa: T201 - printing is what is tested

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from sagactl import CallContext, tool
from sagactl.core.records import OutcomeKind
from sagactl.tools.capture import PRINTED_BYTES_MAX, capturing
from sagactl.tools.descriptors import SHOWN_BYTES_MAX, show_controls
from tests.tools.building import call, invocation, toolbox


def test_prints_are_kept_with_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    """B77: print, stderr, binary writes, log lines and odd characters are kept; nothing of it gets out."""

    @tool("shop.order")
    def order(context: CallContext) -> None:
        print("to stdout")
        sys.stderr.write("to stderr\n")
        sys.stdout.buffer.write(b"bytes \xff\n")
        sys.stdout.writelines(["a", "b\n"])
        print("half \ud800", flush=True)
        context.logger.info("logged %d", 7)
        context.logger.debug("too quiet")

    answer = call(order)
    assert answer.printed.splitlines() == [
        "to stdout",
        "to stderr",
        "bytes \ufffd",
        "ab",
        "half \\ud800",
        "INFO logged 7",
    ]
    assert capsys.readouterr() == ("", "")


def test_prints_are_kept_when_the_call_fails() -> None:
    """What a tool printed before it failed is kept too."""

    @tool("shop.order")
    def order() -> None:
        print("last words")
        raise ValueError("x")

    answer = call(order)
    assert (answer.kind, answer.printed) == (OutcomeKind.UNKNOWN, "last words\n")


def test_outside_calls_streams_are_what_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    """The program's own prints go where they went before."""
    call(tool("shop.order")(lambda: print("inside")))
    print("outside")
    print("error", file=sys.stderr)
    assert capsys.readouterr() == ("outside\n", "error\n")


def test_tool_may_not_close_our_streams(capsys: pytest.CaptureFixture[str]) -> None:
    """A tool that closes stdout closes nothing of ours."""
    call(tool("shop.order")(lambda: sys.stdout.close()))
    print("still here")
    assert capsys.readouterr().out == "still here\n"


def test_flood_is_cut_in_the_middle() -> None:
    """H49: of a hundred mebibytes the first and last half mebibyte are kept, and the cut is marked."""

    @tool("shop.flood")
    def flood() -> None:
        print("beginning")
        for _ in range(100):
            print("x" * 1_048_575)
        print("end")

    answer = call(flood)
    assert answer.kind is OutcomeKind.SUCCEEDED
    assert answer.printed.startswith("beginning\n")
    assert answer.printed.endswith("end\n")
    assert "bytes cut]" in answer.printed
    assert len(answer.printed.encode()) < PRINTED_BYTES_MAX + 100


def test_calls_side_by_side_keep_their_own_words() -> None:
    """Two calls at once, on threads or in one loop, don't mix what they print."""
    barrier = threading.Barrier(2, timeout=60)

    @tool("shop.order")
    def order(name: str) -> None:
        print(name)
        barrier.wait()
        print(name)

    printed: dict[str, str] = {}

    def run(name: str) -> None:
        printed[name] = call(order, {"name": name}).printed

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert printed == {"a": "a\na\n", "b": "b\nb\n"}

    @tool("shop.later")
    async def later(name: str) -> None:
        print(name)
        await asyncio.sleep(0.01)
        await asyncio.create_task(_say(name))

    async def both() -> list[str]:
        box = toolbox(later)
        answers = await asyncio.gather(*(box.call_async(invocation("shop.later", {"name": name})) for name in "ab"))
        return [answer.printed for answer in answers]

    assert asyncio.run(both()) == ["a\na\n", "b\nb\n"]


async def _say(text: str) -> None:
    print(text)


def test_thread_that_outlives_its_call_never_reaches_a_protected_stdout() -> None:
    """B77: a thread that prints after its call has ended reaches stderr, never the stdout of a command."""
    done = run_script("""
        import threading
        from sagactl.tools.capture import capturing, protect_stdout

        protect_stdout()
        go = threading.Event()

        def ramble() -> None:
            print("during", flush=True)
            go.wait(60)
            print("afterwards", flush=True)

        def call_and_drive() -> None:
            thread = threading.Thread(target=ramble)
            with capturing():
                thread.start()
            go.set()
            thread.join()
            print("an event")

        driving = threading.Thread(target=call_and_drive)
        driving.start()
        driving.join()
        print("the answer")
    """)
    assert done.stdout == "an event\nthe answer\n"
    assert "afterwards" in done.stderr


def test_threads_of_a_program_that_embeds_us_print_where_they_did() -> None:
    """A program that has tools called keeps its stdout: for its threads, its child processes and itself."""
    done = run_script("""
        import os, subprocess, threading
        from sagactl.tools.capture import capturing

        with capturing() as captured:
            print("a tool")
        works = [lambda: print("a thread"), lambda: os.write(1, b"bytes\\n"), lambda: subprocess.run(["echo", "x"])]
        for work in works:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        print("itself", captured.text.strip(), flush=True)
    """)
    assert sorted(done.stdout.splitlines()) == ["a thread", "bytes", "itself a tool", "x"]
    assert done.stderr == ""


def test_task_that_outlives_its_call_never_reaches_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """B77: a task that prints after its call has ended reaches stderr, never stdout."""

    async def main() -> None:
        tasks = []
        with capturing() as captured:
            tasks.append(asyncio.create_task(_say("too late")))
        await tasks[0]
        assert captured.text == ""

    asyncio.run(main())
    out, err = capsys.readouterr()
    assert (out, err) == ("", "too late\n")


def run_script(body: str) -> subprocess.CompletedProcess[str]:
    """Run a small program of its own process, with its streams on pipes."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)], capture_output=True, text=True, check=True, timeout=120
    )


def test_descriptor_of_stdout_is_protected() -> None:
    """B77: with `protect_stdout`, C code and child processes of a tool can't write into the answer."""
    done = run_script("""
        import os, subprocess, sys
        from sagactl import tool
        from sagactl.tools.capture import protect_stdout
        from tests.tools.building import call

        protect_stdout()
        protect_stdout()

        @tool("shop.order")
        def order() -> str:
            os.write(1, b"raw write\\n")
            os.write(2, b"\\x1b]0;t\\x07 \\xe2\\x80\\xae \\xff \\r\\n")
            subprocess.run(["echo", "child"], check=True)
            subprocess.run(["echo", "child by fileno"], stdout=sys.stdout, check=True)
            return "ok"

        print("before")
        print(call(order).output)
    """)
    assert done.stdout == "before\nok\n"
    assert set(done.stderr.split("\n")) == {
        "",
        "raw write",
        "\\x1b]0;t\\x07 \\u202e \ufffd \\r",
        "child",
        "child by fileno",
    }


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain é 漢\n", "plain é 漢\n"),
        ("\x1b[2J\r\x9b\t", "\\x1b[2J\\r\\x9b\\t"),
        ("\u202e\u200b\u2028\U000e0001", "\\u202e\\u200b\\u2028\\U000e0001"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(raw: str, shown: str) -> None:
    """H27: of what isn't printable nothing but newlines gets through as it is."""
    assert show_controls(raw) == shown


def test_flood_by_descriptor_is_bounded() -> None:
    """H49: of a flood past Python one mebibyte is shown, one line says so, and the tool isn't held up."""
    done = run_script("""
        import os
        from sagactl.tools.capture import protect_stdout

        protect_stdout()
        for _ in range(800):
            os.write(1, b"x" * 65_535 + b"\\n")
        print("answer")
    """)
    assert done.stdout == "answer\n"
    assert done.stderr.count("the rest is dropped") == 1
    assert SHOWN_BYTES_MAX < len(done.stderr) < SHOWN_BYTES_MAX + 200


def test_end_waits_for_the_pipe_but_not_for_children() -> None:
    """B77: what was written last still comes out, and a child that keeps the pipe open delays no exit."""
    started = time.monotonic()
    done = run_script("""
        import os, subprocess
        from sagactl.tools.capture import protect_stdout

        protect_stdout()
        child = subprocess.Popen(["sleep", "100"])
        os.write(1, b"y" * 60_000 + b"last words")
        print(child.pid)
    """)
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.stderr.endswith("last words")
    assert time.monotonic() - started < 60


def test_reader_of_stderr_that_stops_holds_no_tool_up() -> None:
    """H49: where nobody reads stderr, text past Python is dropped and the tool goes on."""
    reader, writer = os.pipe()
    body = """
        import os
        from sagactl.tools.capture import protect_stdout

        protect_stdout()
        for _ in range(40):
            os.write(1, b"x" * 65_535 + b"\\n")
        print("done")
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(body)],
            stdout=subprocess.PIPE,
            stderr=writer,
            check=True,
            timeout=120,
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert done.stdout == b"done\n"


def test_secrets_are_masked_in_all_that_passes_the_streams() -> None:
    """E19, X2: past Python, in pieces, from what a tool left behind, in tracebacks that nobody asked for: no value."""
    done = run_script("""
        import asyncio, logging, os, subprocess, sys, threading, time
        from sagactl.secrets.masking import KNOWN
        from sagactl.tools.capture import capturing, protect_stdout

        protect_stdout()
        value = "sk_live_" + "51HxYz93Qq"
        KNOWN.add(value)
        KNOWN.add("345678")
        os.write(2, b"1 " + value.encode() + b"\\n")
        for character in "2 " + value + "\\n":
            os.write(1, character.encode())
        subprocess.run(["printf", "3 %s\\\\n", value])

        def ramble() -> None:
            print("4 ", end="")
            print(value[:5], end="")
            print(value[5:])
            sys.stderr.buffer.write(value.encode() + b"\\n")
            raise ValueError("5 " + value)

        with capturing() as captured:
            print(value[:5], end="")
            print(value[5:])
            thread = threading.Thread(target=ramble)
        thread.start()
        thread.join()
        logging.getLogger("anything").error("6 %s", value)
        print("7", value, file=sys.stderr)
        print("an answer with 1234567890")
        print(captured.text, end="")
        os.write(2, b"8 " + value[:9].encode())
        time.sleep(2)
        os.write(2, b"\\n9 plain\\n")
    """)
    assert done.stdout == "an answer with 1234567890\n***\n"
    assert "sk_live_51HxYz93Qq" not in done.stderr
    lines = done.stderr.splitlines()
    assert {
        "1 ***",
        "2 ***",
        "3 ***",
        "4 ***",
        "***",
        "ValueError: 5 ***",
        "6 ***",
        "7 ***",
        "8 sk_live_5",
        "9 plain",
    } <= set(lines)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure(closed: str, tmp_path: Path) -> None:
    """B77: with stdout or stderr closed, writing fails nowhere, and no file opened later gets their numbers."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import os, sys
        from sagactl.tools.capture import protect_stdout

        protect_stdout()
        with open(sys.argv[1], "w") as file:
            assert file.fileno() > 2 or file.fileno() == 0
            os.write(1, b"raw")
            os.write(2, b"raw")
        print("answer", flush=True)
        print("word", file=sys.stderr)
        sys.exit(7)
    """)
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = f'exec "{sys.executable}" "{script}" "{tmp_path / "file"}" {closed}'
    assert subprocess.run(["sh", "-c", command], check=False, timeout=120, env=environment).returncode == 7
    assert (tmp_path / "file").read_bytes() == b""


def test_memory_of_a_flood_is_bounded() -> None:
    """H49: a tool that prints 300 MiB in small pieces costs a few mebibytes."""
    done = run_script("""
        from sagactl import tool
        from tests.memory import read_peak_mib
        from tests.tools.building import call

        @tool("shop.flood")
        def flood() -> None:
            for _ in range(4_800):
                print("x" * 65_535)

        call(tool("a.b")(lambda: print("x" * 65_535)))
        before = read_peak_mib()
        call(flood)
        print(read_peak_mib() - before)
    """)
    assert int(done.stdout) < 20


def test_writing_is_quick() -> None:
    """A tool that prints in many small pieces isn't slowed down beyond reason."""

    @tool("shop.chat")
    def chat() -> None:
        for _ in range(20_000):
            sys.stdout.write("word ")

    started = time.process_time()
    call(chat)
    assert time.process_time() - started < 2
