"""How views look: marks, colours, and what the terminal can do."""

from __future__ import annotations

from enum import Enum
from typing import Final

from sagactl.cli.views.place import complete
from sagactl.cli.views.text import fit, safe, width_of
from sagactl.dataclass import dataclass

WIDTH_MIN: Final = 40
"""Narrower than that nothing can be laid out; lines are then as for this width."""


WIDTH_UNLIMITED: Final = 100_000
"""So wide that nothing is cut or wrapped: for readers that aren't terminals."""


class Hue(Enum):
    """What a colour says; the value is the ANSI code that switches it on."""

    PLAIN = ""
    GOOD = "32"
    BAD = "31"
    ODD = "33"
    COMMAND = "36"
    DIM = "2"
    STRONG = "1"


class Mark(Enum):
    """A symbol, what stands for it in ASCII, and its colour."""

    DONE = ("✓", "ok", Hue.GOOD)
    FAILED = ("✗", "FAIL", Hue.BAD)
    UNDONE = ("↺", "undo", Hue.ODD)
    STUCK = ("!", "STUCK", Hue.BAD)
    RUNNING = ("…", "run", Hue.PLAIN)
    WAITING = ("·", "wait", Hue.ODD)
    NOT_RUN = ("–", "skip", Hue.DIM)  # noqa: RUF001 - the dash is meant

    @property
    def hue(self) -> Hue:
        """Return the colour of the mark."""
        return self.value[2]


@dataclass(frozen=True, slots=True)
class Style:
    """Whether there is colour, whether symbols can be shown, how many columns there are, and what commands name."""

    color: bool = False
    unicode: bool = True
    width: int = 80
    place: str = ""
    """The options that name the project and the log which whoever reads this has typed a command about."""

    @property
    def columns(self) -> int:
        """Return the width that lines are made for."""
        return max(WIDTH_MIN, self.width)

    @property
    def is_unlimited(self) -> bool:
        """Tell whether nothing is to be cut."""
        return self.width >= WIDTH_UNLIMITED

    @property
    def ellipsis(self) -> str:
        """Return what stands for text that was cut."""
        return "…" if self.unicode else "..."

    def symbol(self, mark: Mark) -> str:
        """Return the mark as it can be shown here, without colour."""
        symbol, word, _ = mark.value
        return symbol if self.unicode else word

    def paint(self, text: str, hue: Hue) -> str:
        """Put colour on text that is safe and laid out."""
        return f"\x1b[{hue.value}m{text}\x1b[0m" if self.color and hue is not Hue.PLAIN and text else text

    def complete(self, text: str) -> str:
        """Return safe text with commands of ours as they work where the reader is."""
        return complete(text, self.show(self.place))

    def command(self, text: str) -> str:
        """Return a command that is safe, as it works where the reader is, in its colour."""
        return self.paint(self.complete(text), Hue.COMMAND)

    def show(self, text: str) -> str:
        """Make foreign text safe for this terminal."""
        return safe(text if self.unicode else text.replace("…", "..."), is_ascii=not self.unicode)

    def fit(self, text: str, columns: int) -> str:
        """Cut safe text to *columns*."""
        return fit(text, columns, ellipsis=self.ellipsis)


def mark_width(style: Style) -> int:
    """Return the columns of the widest mark."""
    return max(width_of(style.symbol(mark)) for mark in Mark)
