"""The text of a file: decoded strictly, and every offset as line and column."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import Final, Literal, TypeAlias

from sagactl.core.saga import FILE_BYTES_MAX
from sagactl.dataclass import dataclass

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""What YAML doesn't allow, a byte order mark but at the start of the file, and what only some take for line ends."""

Noun: TypeAlias = Literal["saga file", "data file", "tool file"]
"""What a file is called in a message."""

_SMALLER: Final[dict[Noun, str]] = {
    "saga file": "split the saga, or move data out of it",
    "data file": "keep large data elsewhere",
    "tool file": "put the tools into several files",
}
_OTHER_ENCODINGS: Final = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"), (b"\x00\x00\xfe\xff", "UTF-32"))
_BOM: Final = "\ufeff"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the text by its offsets in characters; `end` is the first one behind it."""

    start: int
    end: int


@dataclass(frozen=True)
class Source:
    """A file that could be decoded; the byte order mark at its start, if any, is no part of `text`."""

    file: str
    text: str
    noun: Noun = "saga file"

    @cached_property
    def line_starts(self) -> list[int]:
        """List the offset at which each line begins."""
        return line_starts(self.text)

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column, both from 1."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def place_span(self, span: Span) -> tuple[int, int, int]:
        """Return line, column and end column of the first line of *span*; at least one column wide."""
        line, column = self.place(span.start)
        end = min(span.end, self.line_starts[line] if line < len(self.line_starts) else len(self.text))
        shown = self.text[span.start : end].rstrip()
        return line, column, column + max(1, len(shown))

    def line(self, number: int) -> str:
        """Return the text of line *number* without its end."""
        return line_at(self.text, self.line_starts, number)


def line_starts(text: str) -> list[int]:
    """List the offset at which each line of *text* begins."""
    return [0, *(found.end() for found in _LINE_END.finditer(text))]


def line_at(text: str, starts: list[int], number: int) -> str:
    """Return line *number* (from 1) of *text* without its end, given where the lines start."""
    if not 1 <= number <= len(starts):
        return ""
    end = starts[number] if number < len(starts) else len(text)
    return text[starts[number - 1] : end].rstrip("\r\n")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why there is no text to read: a code, a message, a hint, and where."""

    code: str
    message: str
    hint: str | None
    span: Span


def decode(raw: bytes | str, file: str, noun: Noun = "saga file") -> tuple[Source, Unreadable | None]:
    """Return the text of a file and what makes it unreadable, if anything does."""
    size = len(raw) if isinstance(raw, bytes) else len(raw.encode("utf-8", "surrogatepass"))
    if size > FILE_BYTES_MAX:
        message = f"the file has more than {FILE_BYTES_MAX} bytes"
        hint = _SMALLER[noun]
        return Source(file, "", noun), Unreadable("file-too-large", message, hint, Span(0, 0))
    if isinstance(raw, str):
        return _examine(Source(file, raw.removeprefix(_BOM), noun))
    for mark, name in _OTHER_ENCODINGS:
        if raw.startswith(mark):
            unreadable = Unreadable("bad-encoding", f"the file is {name}", "save it as UTF-8", Span(0, 0))
            return Source(file, "", noun), unreadable
    try:
        return _examine(Source(file, raw.decode("utf-8").removeprefix(_BOM), noun))
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8").removeprefix(_BOM)
        source = Source(file, before + raw[error.start :].decode("utf-8", "replace"), noun)
        message = f"the byte 0x{raw[error.start]:02x} is no UTF-8"
        place = Span(len(before), len(before) + 1)
        return source, Unreadable("bad-encoding", message, "save the file as UTF-8", place)


def _examine(source: Source) -> tuple[Source, Unreadable | None]:
    found = _FORBIDDEN.search(source.text)
    if found is None:
        return source, None
    message = f"the character U+{ord(found.group()):04X} may not stand in a YAML file"
    hint = 'write it as an escape in double quotes, such as "\\u0007", or leave it out'
    return source, Unreadable("bad-character", message, hint, Span(found.start(), found.end()))
