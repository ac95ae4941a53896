"""Where only a part of what a tool said is kept, no part of a secret is left at the cut (E19, X2)."""

from __future__ import annotations

import io
import sys

import pytest

from sagactl.secrets.masking import KNOWN
from sagactl.tools.capture import PRINTED_BYTES_MAX, capturing
from sagactl.tools.convert import LINE_LENGTH_MAX, RAW_BYTES_MAX, bound_line, describe_object, keep_raw
from sagactl.tools.explain import QUOTED_LENGTH_MAX, explain
from sagactl.tools.http.answers import read_raw
from sagactl.tools.http.transport import Received
from sagactl.tools.kind import Unsure
from sagactl.tools.mcp.stdio import LAST_WORDS_BYTES, StdioTransport
from sagactl.tools.shell.launcher import STDERR, STDOUT
from sagactl.tools.shell.reading import OUTPUT_BYTES_MAX, TAIL_BYTES, TEXT_BYTES_MAX, Written

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
