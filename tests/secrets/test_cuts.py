"""Where only a part of what a tool said is kept, no part of a secret is left at the cut (E19, X2)."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from sagactl.alerts.sending import ERROR_LENGTH_MAX, SendError
from sagactl.alerts.webhook import ANSWER_BYTES_MAX, post
from sagactl.cli.views.junit import TEXT_LENGTH_MAX, make_error_suite, render_junit
from sagactl.cli.views.markdown import CELL_LENGTH_MAX, quote
from sagactl.conformance.looks import SHOWN_LENGTH_MAX, describe
from sagactl.core.canonical import Json, canonical
from sagactl.engine.calls import BUG_LENGTH_MAX, _reply_for_bug
from sagactl.errors import InternalError
from sagactl.secrets.masking import KNOWN
from sagactl.tools.capture import PRINTED_BYTES_MAX, capturing
from sagactl.tools.convert import LINE_LENGTH_MAX, RAW_BYTES_MAX, bound_line, describe_object, keep_raw
from sagactl.tools.explain import QUOTED_LENGTH_MAX, explain
from sagactl.tools.http.answers import read_raw
from sagactl.tools.http.transport import Received
from sagactl.tools.isolated.reply import read_answer
from sagactl.tools.kind import Unsure
from sagactl.tools.mcp.stdio import LAST_WORDS_BYTES, StdioTransport
from sagactl.tools.sealing import TYPE_LENGTH_MAX
from sagactl.tools.shell.launcher import STDERR, STDOUT
from sagactl.tools.shell.reading import OUTPUT_BYTES_MAX, TAIL_BYTES, TEXT_BYTES_MAX, Written
from sagactl.tools.validate import PROBLEM_LENGTH_MAX, InvalidSchemaError, compile_schema
from tests.alerts.receiver import SECRET, Receiver, receiving

VALUE = "uncut secret of QWERTZ 31415 with blanks"
PIECES = {VALUE[place : place + 6] for place in range(len(VALUE) - 5)}


@pytest.fixture(autouse=True)
def know_value() -> None:
    """Let the process know the value for the time of a test, as if a call had needed it."""
    KNOWN.add(VALUE)


def pieces_in(*texts: object) -> set[str]:
    """Return what is left of the value."""
    return {piece for piece in PIECES for text in texts if piece in str(text)}


@pytest.mark.parametrize("over", range(0, len(VALUE) + 1, 3))
def test_what_a_command_said_is_cut_around_secrets(over: int) -> None:
    """The end of stderr and of stdout, and the beginning of a stdout that is no JSON."""
    written = Written("text")
    written.take(STDERR, b"." * 9_999 + VALUE.encode() + b"x" * (TAIL_BYTES - over))
    written.take(STDOUT, b"." * 9_999 + VALUE.encode() + b"x" * (TEXT_BYTES_MAX - over))
    assert not pieces_in(written.describe_end(), written.read_output())
    broken = Written("json")
    broken.take(STDOUT, b"x" * (TEXT_BYTES_MAX - over) + VALUE.encode() + b"." * 9_999)
    with pytest.raises(Unsure) as caught:
        broken.read_output()
    assert not pieces_in(caught.value.raw, caught.value)
    assert OUTPUT_BYTES_MAX > TEXT_BYTES_MAX


def test_a_line_of_stderr_is_masked_before_its_end_is_taken() -> None:
    """The last 240 characters may begin within a value."""
    for over in range(len(VALUE)):
        written = Written("text")
        written.take(STDERR, VALUE.encode() + b"x" * (240 - over))
        assert not pieces_in(written.describe_end())


@pytest.mark.parametrize("over", range(0, len(VALUE) + 1, 3))
def test_messages_and_raw_replies_are_masked_before_they_are_cut(over: int) -> None:
    """A message, the text of an object, a reply that isn't kept whole, a value quoted by a check."""
    for length_max, cut in (
        (LINE_LENGTH_MAX, bound_line),
        (LINE_LENGTH_MAX, describe_object),
        (RAW_BYTES_MAX // 4, lambda text: keep_raw({text})),
        (RAW_BYTES_MAX, keep_raw),
        (QUOTED_LENGTH_MAX, lambda text: explain("type", "integer", text, hides=False)),
    ):
        assert not pieces_in(cut("x" * (length_max - over) + VALUE + "y" * length_max))


@pytest.mark.parametrize("over", range(0, len(VALUE) + 1, 3))
def test_what_a_server_said_is_masked_where_it_is_cut(over: int) -> None:
    """The beginning of an answer that is no JSON, and the end of what the program of a server wrote to stderr."""
    body = b"x" * (RAW_BYTES_MAX - over) + VALUE.encode() + b"." * 99
    assert not pieces_in(read_raw(Received(500, (), body, None)))
    transport = StdioTransport(None, None)  # type: ignore[arg-type]
    transport._last_words = (VALUE.encode() + b"x" * (LAST_WORDS_BYTES - over))[-LAST_WORDS_BYTES:]
    assert not pieces_in(transport.last_words())


@pytest.mark.parametrize("over", range(0, len(VALUE) + 1, 3))
def test_what_is_kept_of_a_flood_shows_no_half_of_a_secret(over: int) -> None:
    """The beginning and the end of what a call printed are cut like everything else."""
    half = PRINTED_BYTES_MAX // 2
    with capturing() as captured:
        sys.stdout.write("x" * (half - over) + VALUE + "y" * half + VALUE + "z" * (half - over))
    text = captured.text
    assert "bytes cut]" in text
    assert not pieces_in(text)
    assert isinstance(sys.stdout, io.TextIOBase)


def lay_across(place: int, length: int) -> Iterator[str]:
    """Yield texts in which the value begins at each distance before *place*, and goes on behind it."""
    for over in range(len(VALUE) + 1):
        yield "x" * (place - over) + VALUE + "y" * length


def test_one_function_masks_before_it_cuts() -> None:
    """The beginning of a text and its end, at each place of the cut; and of a text that somebody else has cut."""
    for text in lay_across(200, 200):
        shown = KNOWN.shorten(text, 200, dots="…")
        assert not pieces_in(shown, KNOWN.shorten_start(text, 200))
        assert len(shown) <= 200
        assert not pieces_in(KNOWN.shorten(text[:200], 200, is_cut=True))
    for over in range(len(VALUE) + 1):
        assert not pieces_in(KNOWN.shorten_start(VALUE + "x" * (200 - over), 200))


def test_what_a_receiver_said_is_masked_before_it_is_cut(receiver: Receiver) -> None:
    """An error of sending is kept in the log: what a receiver repeats of an address or a key isn't in it."""
    for text in lay_across(ERROR_LENGTH_MAX, 99):
        assert not pieces_in(SendError(text))
    for text in lay_across(80, 99):
        assert not pieces_in(_refused(receiver, text.encode()))
        assert not pieces_in(_refused(receiver, text.encode()[:80], declared=500)), "it hung up within the value"
    for over in range(0, len(VALUE) + 1, 3):
        assert not pieces_in(_refused(receiver, b" " * (ANSWER_BYTES_MAX - over) + VALUE.encode()))


def test_what_a_bug_says_is_masked_before_it_is_cut() -> None:
    """A toolbox never raises; if it does, what it says goes into the log like any other failure."""
    for text in lay_across(BUG_LENGTH_MAX, 99):
        assert not pieces_in(*(_reply_for_bug(RuntimeError(text), is_probe=is_probe) for is_probe in (True, False)))


def test_the_word_of_an_isolated_call_is_masked_before_it_is_cut() -> None:
    """A process that has gone wrong may have written anything, also where a word stands that programs compare."""
    for over in range(len(VALUE) + 1):
        reason: Json = ["x" * (TYPE_LENGTH_MAX - over) + VALUE, "why"]
        head: list[Json] = ["rejected", reason, None]
        failure = read_answer("\n".join([canonical(head), *["null"] * 3]).encode()).failure
        assert failure is not None
        assert not pieces_in(failure.type.replace("_", " "))


def test_reports_are_masked_before_they_are_cut() -> None:
    """What changed in a world, a schema that is none, a cell of a summary, a message of JUnit."""
    for text in lay_across(SHOWN_LENGTH_MAX, 99):
        assert not pieces_in(describe({text: (None, 1), f"{text}!": (1, 2)}))
    for text in lay_across(2 * SHOWN_LENGTH_MAX - len('it from null to "'), 99):
        assert not pieces_in(describe({"it": (1, text)}))
    for text in lay_across(PROBLEM_LENGTH_MAX - 1, 99):
        with pytest.raises(InvalidSchemaError) as caught:
            compile_schema({"type": text})
        assert not pieces_in(caught.value)
    for text in lay_across(CELL_LENGTH_MAX, 99):
        assert not pieces_in(quote(text))
    for text in lay_across(TEXT_LENGTH_MAX, 99):
        assert not pieces_in(render_junit([make_error_suite(InternalError(text))]))


def _refused(receiver: Receiver, body: bytes, declared: int | None = None) -> str:
    """Return what is kept of an answer with *body*, which may be shorter than was declared."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(500)
        handler.send_header("content-length", str(declared or len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = True

    receiver.answer = respond
    with pytest.raises(SendError, match="answered 500") as caught:
        post(receiver.url, b"{}", message_id="1", secret=SECRET)
    return str(caught.value)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Give a receiver of webhooks."""
    with receiving() as receiver:
        yield receiver
