"""What every command begins with: the shared options, the project's settings, and how to write."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from datetime import datetime, tzinfo
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import typer

from sagactl.app import Project, open_project
from sagactl.cli.options import Globals, Output
from sagactl.cli.streams import answer_stream, supports_unicode
from sagactl.cli.views.place import complete
from sagactl.cli.views.style import WIDTH_MIN, WIDTH_UNLIMITED, Style
from sagactl.config import find_project
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError

if TYPE_CHECKING:
    from sagactl.core.saga import Saga
    from sagactl.written.problem import Problem

ROOM_BYTES_LOW: Final = 64 * 1024 * 1024
"""When less is free on the log's disk, who begins or carries on a run is warned."""

WIDTH_UNKNOWN: Final = 80
"""What a terminal is taken for that doesn't say how wide it is."""


@dataclass(slots=True)
class Session:
    """One command at work."""

    settings: Globals
    app: Project
    _warned: set[str] = field(default_factory=set, init=False, repr=False)

    @property
    def output(self) -> Output:
        """How the answer is written."""
        return self.settings.output

    @property
    def style(self) -> Style:
        """How text on stdout looks."""
        return style_of(answer_stream(), self.settings)

    @property
    def progress_style(self) -> Style:
        """How text on stderr looks."""
        return style_of(sys.stderr, self.settings)

    @property
    def shows_progress(self) -> bool:
        """Tell whether progress goes to stderr."""
        return self.settings.quiet == 0

    def warn_of_room(self) -> None:
        """Say how little room the log's disk has: a run that can't write stops before its next call (E18)."""
        try:
            disk = os.statvfs(Path(self.app.config.log).expanduser().absolute().parent)
        except OSError:
            return  # nothing is there yet
        room = disk.f_bavail * disk.f_frsize
        if room < ROOM_BYTES_LOW:
            self.say(f"warning: the log's disk has room for {room // 1024:,} KiB; a run that can't write stops")

    def warn_of_lost_log(self) -> None:
        """Say that a log was kept where none lies now: the one that is made there knows no run and no key of it."""
        if (told := self.app.tell_lost_log()) is not None:
            self.say(f"warning: {self.progress_style.show(told)}; the new one knows no run and no key of it")

    def warn_of_secrets(self, saga: Saga) -> None:
        """Say which secrets that *saga* or a tool of it needs can't be had here, and what is wrong with the others."""
        if not saga.secrets_needed:
            return
        vault = self.app.toolset.vault
        warnings = vault.warn(saga.secrets_needed)
        missing = vault.missing(saga.secrets_needed)
        waits = "can't be had here, so a call that needs it would wait"
        for line in (*warnings, *(f"the secret {name} {waits}: {reason}" for name, reason in missing.items())):
            if line not in self._warned:  # several sagas may need it
                self._warned.add(line)
                self.say(f"warning: {line}")
        if warnings and "GITHUB_ACTIONS" in os.environ:
            from sagactl.cli.ci import tell_warnings

            tell_warnings(self.settings, warnings, saga.source, self.app.config.project)

    def tell_problems(self, problems: Sequence[Problem]) -> None:
        """Tell a runner of CI where in its files a saga is wrong or odd, while it is known where the project lies."""
        if problems and "GITHUB_ACTIONS" in os.environ:
            from sagactl.cli.ci import tell_problems

            tell_problems(self.settings, problems, self.app.config.project)

    def say(self, text: str) -> None:
        """Write a line of the conversation to stderr, its commands as they work where the user is."""
        from sagactl.cli.streams import write_line

        if self.settings.quiet < 2:
            write_line(sys.stderr, complete(text, self.settings.place))


def find_file(name: str | None) -> Path | None:
    """Return the file that *name* is the path of, or None: a name that no file can have is the path of none."""
    try:
        return Path(name) if name is not None and Path(name).is_file() else None
    except (OSError, ValueError):
        return None


@contextmanager
def open_session(context: typer.Context, file: Path | None = None) -> Iterator[Session]:
    """Give the session of a command; *file* is the saga that helps to find the project."""
    settings = context.ensure_object(Globals)
    with open_project(settings.directory, log=settings.log, file=file) as project:
        project.is_whole_process = True
        start = (settings.directory or Path()).resolve()
        if file is not None and (find_project(start) or start) != project.config.project:
            settings.project = project.config.project
        project.toolset.watch_import = lambda name: _watch_import(settings, name)
        session = Session(settings, project)
        try:
            yield session
        except InvalidError as error:
            session.tell_problems(getattr(error, "problems", ()))
            raise


def _watch_import(settings: Globals, name: str) -> AbstractContextManager[None]:
    from sagactl.cli.slow import SlowImports

    return SlowImports(settings).watch(name)


def style_of(stream: IO[str], settings: Globals) -> Style:
    """Return how text on *stream* looks: colour by flag, then environment, then terminal."""
    return Style(_has_color(stream, settings), supports_unicode(stream), _measure(stream), settings.place)


def _measure(stream: IO[str]) -> int:
    """Return the columns that `COLUMNS` gives, or those of the terminal behind *stream*.

    Descriptors 1 and 2 may lead elsewhere by now. In a pipe or a file nothing is cut unless `COLUMNS` says so.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and len(columns) < 5 and int(columns) > 0:
        return max(WIDTH_MIN, int(columns))
    if not stream.isatty():
        return WIDTH_UNLIMITED
    try:
        found = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        found = 0
    return max(WIDTH_MIN, found or WIDTH_UNKNOWN)


def _has_color(stream: IO[str], settings: Globals) -> bool:
    if settings.color != "auto":
        return settings.color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def now_ms() -> int:
    """Return UTC in milliseconds, for ages on the screen."""
    return time.time_ns() // 1_000_000


def local_zone() -> tzinfo:
    """Return the zone in which times are shown."""
    zone = datetime.now().astimezone().tzinfo
    assert zone is not None, "an aware time has a zone"
    return zone
