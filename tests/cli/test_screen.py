"""The screen of a live display: one picture in place of the other, lines above, and no trace of the work."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from sagactl.cli.screen import Draw, Screen, make_safe
from tests.cli.terminal import HIDE_CURSOR, Terminal


@contextmanager
def screen(terminal: Terminal, draw: Draw, *, color: bool = False, gap: bool = False) -> Iterator[TextIO]:
    """Give a screen on a terminal, and the stream that everybody else writes to."""
    with os.fdopen(os.dup(terminal.writer), "w", buffering=1) as stream, Screen(stream, draw, color=color, gap=gap):
        yield stream


def counting() -> Draw:
    """Make a picture that grows, changes and shrinks again."""
    count = 0

    def draw(size: os.terminal_size, is_last: bool) -> list[str]:
        nonlocal count
        count += 1
        if is_last:
            return ["the last picture", "stays"]
        return [f"picture {count} of width {size.columns}", *["a line"] * (count % 4), "footer"]

    return draw


def test_one_picture_takes_the_place_of_the_other() -> None:
    """Pictures of different heights leave nothing behind, the last one stays, and the cursor is below it."""
    with Terminal() as terminal:
        with screen(terminal, counting()) as stream:
            terminal.wait_for(lambda text: "picture 9 " in text)
            stream.flush()
        terminal.read()
        assert terminal.lines == ["the last picture", "stays"]
        os.write(terminal.writer, b"prompt")
        assert terminal.lines[2:] == ["prompt"]


def test_the_cursor_is_never_hidden() -> None:
    """Whatever kills the process, the terminal needs no mending afterwards."""
    with Terminal() as terminal:
        with screen(terminal, counting()):
            terminal.wait_for(lambda text: "picture" in text)
        terminal.read()
        assert HIDE_CURSOR not in terminal.raw


def test_what_ends_at_once_is_written_once_without_rich() -> None:
    """A picture that ends within a moment is written as it stands, and an empty line follows where that was asked."""
    for _ in range(10):  # a machine that is held up between two lines of a test makes a moment long
        with Terminal() as terminal:
            with screen(terminal, counting(), gap=True):
                pass
            os.write(terminal.writer, b"report")
            assert terminal.lines == ["the last picture", "stays", "", "report"]
            if "\x1b" not in terminal.raw:
                break
    assert "\x1b" not in terminal.raw


def test_what_others_write_stands_above_and_obeys_nothing() -> None:
    """H27: text written to stderr meanwhile stays above the picture, whole, tamed, whoever writes it and however."""
    with Terminal() as terminal:
        with screen(terminal, counting()) as stream:
            terminal.wait_for(lambda text: "picture" in text)
            stream.write("a warning\n")
            stream.flush()
            os.write(stream.fileno(), b"raw \x1b[2J\x1b[A\r\x9b bytes \xff\n")
            terminal.wait_for(lambda text: "raw" in text)
            stream.write("the end has no newline")
            stream.flush()
        assert terminal.lines == [
            "a warning",
            "raw \\x1b[2J\\x1b[A\\r\ufffd bytes \ufffd",
            "the end has no newline",
            "the last picture",
            "stays",
        ]


def test_a_flood_of_text_is_neither_lost_nor_in_the_way() -> None:
    """More text than a pipe holds comes out above, in order, and the writer only waits for its turn."""
    with Terminal(rows=50) as terminal:
        with screen(terminal, lambda _, __: ["picture"]) as stream:
            terminal.wait_for(lambda text: "picture" in text)
            for number in range(3_000):
                stream.write(f"line {number} {'x' * 40}\n")
                if number % 100 == 0:
                    terminal.read()
            until = time.monotonic() + 60
            while len(terminal.lines) < 3_001 and time.monotonic() < until:
                time.sleep(0.02)
        found = [line for line in terminal.lines if line.startswith("line ")]
        assert [int(line.split()[1]) for line in found] == list(range(3_000))
        assert terminal.lines[-1] == "picture"


def test_colours_pass_and_nothing_else() -> None:
    """Colours of our own lines are kept, and end with their line."""
    assert make_safe("\x1b[31mred\x1b[0m\x1b[2Jx") == "\x1b[31mred\x1b[0m\\x1b[2Jx\x1b[0m"
    assert make_safe("plain") == "plain"


def test_a_narrower_terminal_leaves_no_remains() -> None:
    """Lines that a terminal wraps when it becomes narrower are all taken back, and the next picture has its width."""

    def draw(size: os.terminal_size, is_last: bool) -> list[str]:
        return ["last"] if is_last else ["w" * size.columns, "x" * (size.columns - 1), f"{size.columns} columns"]

    with Terminal(columns=80) as terminal:
        with screen(terminal, draw):
            terminal.wait_for(lambda text: text.endswith("80 columns"))
            terminal.resize(50, 24)
            terminal.wait_for(lambda text: text.endswith("50 columns"))
            assert terminal.lines == ["w" * 50, "x" * 49, "50 columns"]
            terminal.resize(100, 24)
            terminal.wait_for(lambda text: text.endswith("100 columns"))
            assert len(terminal.lines) == 3
        assert terminal.lines == ["last"]


def test_a_picture_that_breaks_breaks_nothing_else() -> None:
    """A mistake of ours in a picture is a warning: stderr is what it was, and what is shown goes on."""

    def draw(size: os.terminal_size, is_last: bool) -> list[str]:
        raise ValueError("no \x1b[2J picture")

    with Terminal() as terminal:
        with screen(terminal, draw) as stream:
            terminal.wait_for(lambda text: "warning" in text)
            stream.write("said afterwards\n")
        assert terminal.lines == [
            "",
            "warning: the live display ended: ValueError: no \\x1b[2J picture",
            "said afterwards",
        ]


def test_a_terminal_that_goes_away_breaks_nothing() -> None:
    """A closed window is no failure of a run."""
    terminal = Terminal()
    with screen(terminal, counting()):
        terminal.wait_for(lambda text: "picture" in text)
        terminal.stop()
        time.sleep(0.3)
    os.close(terminal.writer)


def _count_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_the_descriptor_is_what_it_was() -> None:
    """After the display stderr leads where it led, and no descriptor is left open."""
    with Terminal() as terminal, os.fdopen(os.dup(terminal.writer), "w", buffering=1) as stream:
        there = os.fstat(stream.fileno()).st_rdev
        open_before = _count_descriptors()
        with Screen(stream, counting(), color=False, gap=False):
            terminal.wait_for(lambda text: "picture" in text)
            assert os.fstat(stream.fileno()).st_rdev != there
            assert not os.get_inheritable(stream.fileno())
        assert os.fstat(stream.fileno()).st_rdev == there
        assert not os.get_inheritable(stream.fileno())
        assert _count_descriptors() == open_before
