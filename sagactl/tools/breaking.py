"""What is said of a plugin that can't be imported: what went wrong, where, and which tools are missing for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

from sagactl.tools.convert import bound_line
from sagactl.tools.plugin import BrokenPlugin

SOURCE_BYTES_MAX: Final = 1_048_576
"""How much of a broken plugin's source is searched for the names of its tools."""

_LOADERS: Final = frozenset(str(Path(__file__).with_name(f"{name}.py")) for name in ("loading", "installed", "offered"))
"""Who imports plugins: a frame of theirs is no place in one."""

_MACHINERY: Final = re.compile(r"<frozen |[/\\]importlib[/\\]")
_MENTION: Final = re.compile(r"""\btool\(\s*["']([a-z0-9_.-]{1,128})["']""")


def break_plugin(name: str, source: Path, error: BaseException) -> BrokenPlugin:
    """Return what stands for the plugin of *source* whose import raised *error*."""
    file, line = _place(error, source)
    text = error.msg if isinstance(error, SyntaxError) else _text_of(error)
    message = bound_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    return BrokenPlugin(name, file, line, message, tools=_mentioned_tools(source))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # foreign code
        return ""


def _place(error: BaseException, source: Path) -> tuple[str, int]:
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 1
    # Frames of the import machinery lead to the plugin; they aren't it.
    frames = [frame for frame in _frames(error.__traceback__) if not _MACHINERY.search(frame[0])]
    own = [frame for frame in frames if Path(frame[0]).is_relative_to(source.parent)]
    others = [frame for frame in frames if frame[0] not in _LOADERS]
    return (own or others or [(str(source), 1)])[-1]


def _frames(traceback: TracebackType | None) -> Iterator[tuple[str, int]]:
    while traceback is not None:
        yield traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next


def _mentioned_tools(source: Path) -> tuple[str, ...]:
    """Guess from the text which tools a plugin would have had, for better messages."""
    try:
        with source.open("rb") as file:
            text = file.read(SOURCE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ()
    return tuple(dict.fromkeys(_MENTION.findall(text)))
