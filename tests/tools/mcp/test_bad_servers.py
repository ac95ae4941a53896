"""Servers that die, hang, flood, lie or change: each is an outcome with a clear message, and nothing is left behind."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sagactl.core.records import OutcomeKind
from sagactl.tools.mcp.session import CLOSE_SECONDS
from tests.tools.mcp.conftest import TOOLS, Bench, is_running, wait_until

IN_A_CALL = {
    "dies": ("server_lost", "exit code 3"),
    "dies before": ("server_lost", "exit code 3"),
    "noise": ("server_lost", "no message"),
    "huge": ("server_lost", "more than 8388608 bytes"),
    "flood": ("server_lost", "nobody asked for"),
    "no result": ("bad_answer", "not of the protocol"),
    "misfit": ("bad_output", "lines"),
    "unstructured": ("bad_output", "can't be taken"),
    "big": ("bad_output", "bytes"),
    "fails": ("tool_error", "E1 it went wrong"),
    "error": ("tool_error", "not today"),
}


@pytest.mark.parametrize("mode", IN_A_CALL)
def test_what_goes_wrong_in_a_call_leaves_it_in_doubt(bench: Bench, mode: str) -> None:
    """E3: once a call has left, only the operator's marks say that it did nothing."""
    bench.mode(mode)
    answer = bench.call()
    word, part = IN_A_CALL[mode]
    assert answer.kind is OutcomeKind.UNKNOWN
    assert answer.failure is not None
    assert answer.failure.type == word, answer.failure
    assert part in answer.failure.message
    assert answer.failure.message.isprintable()
    bench.mode("good")
    assert bench.call().kind is OutcomeKind.SUCCEEDED, "a new connection is made"


def test_the_last_words_of_a_server_that_died_are_told(bench: Bench) -> None:
    """The end of its stderr says why."""
    bench.mode("dies")
    answer = bench.call()
    assert answer.failure is not None
    assert "out of memory" in answer.failure.message


NOT_REACHED = {
    "won't start": "no licence",
    "mute": "didn't answer within",
    "old": "protocol version",
    "endless": "pages",
}


@pytest.mark.parametrize("mode", NOT_REACHED)
def test_a_server_that_cannot_be_had_leaves_no_doubt(bench: Bench, mode: str) -> None:
    """Nothing was sent, so the call is `unavailable` and may be tried again."""
    bench.configure(TOOLS, connect_timeout="2s" if mode == "mute" else "60s")
    bench.mode(mode)
    answer = bench.call()
    assert answer.kind is OutcomeKind.UNAVAILABLE, answer
    assert answer.failure is not None
    assert NOT_REACHED[mode] in answer.failure.message, answer.failure
    assert bench.lines() == []


def test_a_program_that_is_not_there_is_named(bench: Bench) -> None:
    """The message says what can't be started."""
    bench.configure(TOOLS, command=["/nowhere/server"])
    answer = bench.call()
    assert answer.kind is OutcomeKind.UNAVAILABLE
    assert answer.failure is not None
    assert "/nowhere/server" in answer.failure.message


def test_a_server_may_greet(bench: Bench) -> None:
    """A line on stdout that is no message is passed over."""
    bench.mode("greets")
    assert bench.call().kind is OutcomeKind.SUCCEEDED


def test_a_call_that_hangs_is_ended_with_its_server(bench: Bench) -> None:
    """E14: at its deadline the call is ended for sure: the process is gone when the answer is there."""
    bench.mode("deaf")
    begun = time.monotonic()
    answer = bench.call(seconds=1.0)
    assert (answer.kind, answer.failure and answer.failure.type) == (OutcomeKind.UNKNOWN, "timeout")
    assert not is_running(bench.started()[-1])
    assert time.monotonic() - begun < 60
    bench.mode("good")
    assert bench.call().kind is OutcomeKind.SUCCEEDED


def test_a_call_that_hangs_takes_no_other_with_it(bench: Bench) -> None:
    """E14: its server is ended once the calls beside it are over; they have their answers, new ones another process."""
    assert bench.call(line="first").kind is OutcomeKind.SUCCEEDED
    server = bench.started()[-1]
    bench.mode("half deaf")
    with ThreadPoolExecutor() as threads:
        hanging = threads.submit(bench.call, seconds=0.5)
        time.sleep(0.2)
        beside = threads.submit(bench.call, "test.send_letter")
        assert beside.result().kind is OutcomeKind.SUCCEEDED
        assert hanging.result().kind is OutcomeKind.UNKNOWN
    assert not is_running(server)
    bench.mode("good")
    assert bench.call().kind is OutcomeKind.SUCCEEDED


def test_a_server_that_is_still_being_reached_is_given_up_at_once_at_the_end(bench: Bench) -> None:
    """E17: nobody waits for the end of a connection that never was one, and its process is ended."""
    bench.configure(TOOLS, connect_timeout="5m")
    bench.mode("mute")
    before = len(bench.started())
    with ThreadPoolExecutor() as threads:
        calling = threads.submit(bench.call, seconds=120.0)
        wait_until(lambda: len(bench.started()) > before, 60)
        begun = time.monotonic()
        bench.close()
        assert time.monotonic() - begun < CLOSE_SECONDS
        assert calling.result().kind is OutcomeKind.UNAVAILABLE
    assert not is_running(bench.started()[-1])


def test_calls_at_once_share_a_start(bench: Bench) -> None:
    """Calls that come while a server is being started wait for that start and make no other."""
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: bench.call(line=str(number)), range(8)))
    assert {answer.kind for answer in answers} == {OutcomeKind.SUCCEEDED}
    assert len(bench.lines()) == 8
    assert len(bench.started()) <= 2, "one for the pins, perhaps, and one for the calls"


def test_a_server_that_will_not_end_is_ended(bench: Bench) -> None:
    """A server that ignores the end of its stdin and SIGTERM, and a child of it that left its session, are killed."""
    bench.mode("stubborn")
    assert bench.call().kind is OutcomeKind.SUCCEEDED
    wait_until(lambda: bool((bench.room / "child").exists() and (bench.room / "child").read_text()))
    child, server = int((bench.room / "child").read_text()), bench.started()[-1]
    assert is_running(child)
    begun = time.monotonic()
    bench.close()
    wait_until(lambda: not is_running(server) and not is_running(child))
    assert time.monotonic() - begun < 60


def test_nobody_answers_for_a_model(bench: Bench) -> None:
    """What a server asks of its client, such as a model's answer, is refused."""
    bench.mode("asks")
    answer = bench.call()
    assert isinstance(answer.output, dict), answer
    assert answer.output["reply"]


def test_text_that_is_too_deep_to_be_read_stays_text(bench: Bench) -> None:
    """What looks like JSON and nests without end is no danger, and no output that could be one later."""
    bench.mode("deep")
    answer = bench.call("test.send_letter")
    assert isinstance(answer.output, str), answer


CHANGED = {
    "poisoned": "description",
    "stricter": "input.required",
    "hinted": "annotations",
    "gone": "put",
}


@pytest.mark.parametrize("mode", CHANGED)
def test_a_tool_that_is_not_what_was_pinned_is_not_called(bench: Bench, mode: str) -> None:
    """H33: a changed description, schema or hint, or a tool that is gone: nothing is called, the difference is told."""
    bench.mode(mode)
    answer = bench.call()
    assert (answer.kind, answer.failure and answer.failure.type) == (OutcomeKind.UNAVAILABLE, "tool_changed")
    assert answer.failure is not None
    assert CHANGED[mode] in answer.failure.message
    assert bench.lines() == []


def test_news_of_other_tools_is_looked_into_before_the_next_call(bench: Bench) -> None:
    """H33: a server that changes its tools while it is connected is found out."""
    bench.mode("news")
    assert bench.call(line="a").kind is OutcomeKind.SUCCEEDED
    answer = bench.call(line="b")
    assert (answer.failure and answer.failure.type, bench.lines()) == ("tool_changed", ["a"])


def test_a_change_that_nobody_tells_is_found_at_the_next_connection(bench: Bench) -> None:
    """H33: as `help mcp` says, a server is asked when the connection is made, and not before each call."""
    assert bench.call(line="a").kind is OutcomeKind.SUCCEEDED
    bench.mode("poisoned")
    assert bench.call(line="b").kind is OutcomeKind.SUCCEEDED
    bench.close()
    answer = bench.call(line="c")
    assert (answer.failure and answer.failure.type, bench.lines()) == ("tool_changed", ["a", "b"])
