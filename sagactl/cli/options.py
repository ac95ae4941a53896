"""Options that every command takes, before or after its name, and what they amount to."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import click
import typer

from sagactl.dataclass import dataclass

HEARTBEAT_SECONDS: Final = 30.0
"""How long plain progress is silent before it says what goes on."""

HEARTBEAT_SECONDS_MAX: Final = 86_400


RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's id or a prefix of it.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Why; recorded with your name.")]
NoResumeOption = Annotated[bool, typer.Option("--no-resume", help="Only record it; don't carry the run on.")]
ApprovalArgument = Annotated[
    str | None, typer.Argument(metavar="STEP", help="The step; may be left out if only one waits.")
]


class Output(StrEnum):
    """How the answer on stdout is written."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


@dataclass(slots=True)
class Globals:
    """The values of the shared options."""

    output: Output = Output.TEXT
    log: str | None = None
    directory: Path | None = None
    quiet: int = 0
    verbose: int = 0
    progress: str | None = None
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    color: str = "auto"
    debug: bool = False
    no_input: bool = False
    project: Path | None = None
    """The project of the saga file that was named, where it isn't the one found from here."""

    @property
    def words_of_place(self) -> list[str]:
        """Return the options without which a command typed here would mean another project or another log."""
        directory = self.directory if self.project is None else self.project
        return [
            *([] if directory is None else ["-C", str(directory)]),
            *([] if self.log is None else ["--log", self.log]),
        ]

    @property
    def place(self) -> str:
        """Return these options as a shell reads them."""
        from shlex import join

        return join(self.words_of_place)

    def without_progress(self) -> Globals:
        """Return the same settings, but for progress, which isn't shown."""
        from dataclasses import replace

        return replace(self, progress="none", verbose=0)


def _store(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, _: click.Parameter, value: Any) -> None:
        settings = context.ensure_object(Globals)
        if value is None or value is False or value == 0:
            return
        setattr(settings, name, value)

    return callback


def _as_output(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Globals).output = Output(value)


def _as_heartbeat(context: click.Context, _: click.Parameter, value: float | None) -> None:
    if value is not None:
        context.ensure_object(Globals).heartbeat_seconds = value


def _progress_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["-v", "--verbose"],
            count=True,
            callback=_store("verbose"),
            help="More progress, in plain lines; twice: all that is known.",
            expose_value=False,
        ),
        click.Option(
            ["--progress"],
            type=click.Choice(["live", "plain", "none"]),
            callback=_store("progress"),
            help="How progress is shown; see `sagactl help output`.",
            expose_value=False,
        ),
        click.Option(
            ["--heartbeat"],
            type=click.FloatRange(0, HEARTBEAT_SECONDS_MAX),
            metavar="SECONDS",
            callback=_as_heartbeat,
            help="A sign of life in plain progress; 0: none.",
            expose_value=False,
        ),
    ]


def shared_options(taken: set[str]) -> list[click.Parameter]:
    """Return new click options; their values land in the context's `Globals`, the last one given wins.

    Names in *taken* mean something else to the command: `dlq resolve` has an `--output` of its own, and keeps `-o`.
    """
    shared: dict[str, Any] = {"expose_value": False}
    return [
        click.Option(
            [name for name in ("-o", "--output") if name not in taken],
            type=click.Choice([output.value for output in Output]),
            callback=_as_output,
            help="How the answer is written.",
            **shared,
        ),
        click.Option(["--log"], metavar="TARGET", callback=_store("log"), help="The log: a path.", **shared),
        click.Option(
            ["-C", "--directory"],
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            callback=_store("directory"),
            help="Work as if started there.",
            **shared,
        ),
        click.Option(
            ["-q", "--quiet"], count=True, callback=_store("quiet"), help="No progress; twice: no report.", **shared
        ),
        *_progress_options(),
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            callback=_store("color"),
            help="Colour; NO_COLOR and FORCE_COLOR are respected.",
            **shared,
        ),
        click.Option(
            ["--no-input"], is_flag=True, callback=_store("no_input"), help="Never ask; fail instead.", **shared
        ),
        click.Option(
            ["--debug"], is_flag=True, callback=_store("debug"), help="Show the traceback of an error.", **shared
        ),
    ]


def make_app(help_text: str | None = None) -> typer.Typer:
    """Return the Typer app of one command, or with *help_text* of a group of commands, all in one plain style."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=help_text is not None,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
