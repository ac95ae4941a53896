"""The thin layer over rich: a picture in place of the one before, and lines above it."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Final

from sagactl.cli.views.text import width_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

SIZE_UNKNOWN: Final = os.terminal_size((80, 24))
COLOR: Final = re.compile(r"(\x1b\[[0-9;]*m)")


class Painter:
    """The thin layer over rich: pictures in place of one another, lines above them."""

    def __init__(self, terminal: Terminal, *, color: bool) -> None:
        self._terminal = terminal
        self._console = _make_console(terminal, color=color)
        self._live: Live | None = None
        self._lines: list[str] = []
        self._size = SIZE_UNKNOWN

    def write_above(self, lines: list[str]) -> None:
        """Write *lines* above the picture, where they stay."""
        if lines:
            from rich.text import Text

            self._console.print(Text.from_ansi("\n".join(lines), overflow="fold"))

    def paint(self, lines: list[str], size: os.terminal_size) -> None:
        """Put a picture in the place of the one before."""
        if lines == self._lines and size == self._size:
            return
        from rich.live import Live
        from rich.text import Text

        self._leave_wrapped_lines(size)
        self._console.size = (size.columns, size.lines)
        picture = Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop")
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()
        self._live.update(picture, refresh=True)
        self._lines, self._size = lines, size

    def go_up(self) -> None:
        """Go up a line, back to where the picture ends: somebody has pressed Enter."""
        if self._lines:
            self._terminal.write("\x1b[1A")

    def begin_anew(self) -> None:
        """Go below what is on the screen, by as many lines as the next picture will go up."""
        self._terminal.write("\n" * len(self._lines))
        self._size = SIZE_UNKNOWN

    def _leave_wrapped_lines(self, size: os.terminal_size) -> None:
        """Go up over the rows that a terminal made of lines which were too long when it became narrower."""
        if size.columns >= self._size.columns or not self._lines:
            return
        widths = [width_of(COLOR.sub("", line)) for line in self._lines]
        extra = sum(max(0, (width - 1) // size.columns) for width in widths)
        self._terminal.write("\r" + "\x1b[2K\x1b[1A" * min(extra, size.lines - 1))

    def finish(self, *, gap: bool) -> None:
        """Leave the last picture where it is, and go to the line below."""
        if self._live is not None:
            self._live.stop()
        if gap and self._lines:
            self._terminal.write("\n")


class Terminal:
    """A text stream for rich, each write one write of the terminal; a terminal that has gone away takes anything."""

    def __init__(self, descriptor: int, encoding: str) -> None:
        self._descriptor = descriptor
        self.encoding = encoding

    def write(self, text: str) -> int:
        """Write *text* at once."""
        write_all(self._descriptor, text.encode(self.encoding, "replace"))
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is kept back."""

    def isatty(self) -> bool:
        """Say what it is."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of *data*, as far as there is somebody to take it."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]


def _make_console(terminal: Terminal, *, color: bool) -> Console:
    from rich.console import Console

    class Plain(Console):
        """A console that never hides the cursor."""

        def show_cursor(self, show: bool = True) -> bool:
            return not show

    return Plain(
        file=terminal,  # type: ignore[arg-type]  # all of a text stream that rich asks for
        force_terminal=True,
        force_interactive=True,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        width=SIZE_UNKNOWN.columns,
        height=SIZE_UNKNOWN.lines,
    )
