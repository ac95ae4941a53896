"""`sagactl init [DIR]`: make a project whose example runs, fails and rolls back without a network."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Final

import typer

from sagactl.cli.options import Globals, Output, make_app
from sagactl.cli.session import style_of
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.init import Example, render_examples, render_made, write_examples, write_made
from sagactl.cli.views.spelling import spell
from sagactl.config import STATE_FOLDER
from sagactl.core.canonical import Json
from sagactl.dataclass import dataclass
from sagactl.errors import ExitCode, StorageError, UsageError

app = make_app()

EXAMPLES: Final = {
    each.name: each
    for each in (
        Example(
            "starter",
            "a trip: two bookings side by side, a payment, a ticket",
            (
                ("sagactl validate", "check it"),
                ("sagactl plan trip -i traveller=Ada", "see each call before it is made"),
                ("sagactl run trip -i traveller=Ada", "it succeeds"),
                ("sagactl run trip -i traveller=Ada -i card=declined", "it fails, and all is undone: exit 10"),
                ("sagactl log", "what was recorded"),
                (
                    "sagactl rollback $(sagactl list --status succeeded --limit 1 --ids) --yes",
                    "undo the one that succeeded",
                ),
            ),
        ),
        Example(
            "agent",
            "a complaint: an agent proposes, rules decide, a pivot",
            (
                ("sagactl plan complaint", "see each call before it is made"),
                ('sagactl run complaint -i order=A-1 -i text="too late"', "the proposal is within the limit"),
                (
                    'sagactl run complaint -i order=A-2 -i text="I am furious"',
                    "it isn't: exit 10, the case is withdrawn",
                ),
                ('sagactl run complaint -i order=A-1 -i text="too late"', "asked again: the same run, no call"),
            ),
        ),
    )
}
"""Each example of the package with the commands that show what it does; a test types them."""

_STORED_NAMES: Final = {"gitignore": ".gitignore"}
"""Files that would mean something where they are stored, and their real names."""

KEPT: Final = frozenset({".gitignore", "schema.json"})
"""Files that are left as they are where there are some; any other in the way is refused."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A file to be made."""

    path: Path
    content: bytes


@app.command()
def init(
    context: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Where; made if it isn't there.")] = ".",
    example: Annotated[str, typer.Option("--example", metavar="NAME", help="Which example to begin with.")] = "starter",
    lists: Annotated[bool, typer.Option("--list", help="Only list the examples.")] = False,
) -> int:
    """Make a project with an example that succeeds, fails and rolls back, without a network. Nothing is overwritten.

    Examples:
      sagactl init demo

      sagactl init agent-demo --example agent

      sagactl init --list
    """
    settings = context.ensure_object(Globals)
    if lists:
        return _answer(settings, render_examples(list(EXAMPLES.values())), write_examples(list(EXAMPLES.values())))
    if example not in EXAMPLES:
        hint = f"sagactl init {folder} --example {next(iter(EXAMPLES))}"
        raise UsageError(f"no example {example}; there are {', '.join(EXAMPLES)}", code="no-such-example", hint=hint)
    target = (settings.directory or Path()) / folder
    parts = [_Part(target / name, content) for name, content in _read_parts(example)]
    kept = _refuse_existing(target, parts)
    _make(part for part in parts if part.path not in kept)
    made = [str(part.path.relative_to(target)) for part in parts if part.path not in kept]
    chosen = EXAMPLES[example]
    return _answer(
        settings,
        render_made(str(target), made, chosen, [path.name for path in kept], style=style_of(answer_stream(), settings)),
        write_made(str(target.resolve()), made, chosen, [path.name for path in kept]),
    )


def _answer(settings: Globals, text: str, document: Json) -> int:
    if settings.output is Output.TEXT:
        write_line(answer_stream(), text)
    else:
        write_line(answer_stream(), spell(document))
    return ExitCode.OK


def _read_parts(example: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a project by their paths in it."""
    package = files("sagactl")
    yield from _walk(package / "templates" / "common")
    yield from _walk(package / "templates" / example)
    yield f"{STATE_FOLDER}/.gitignore", b"*\n"
    yield f"{STATE_FOLDER}/schema.json", (package / "spec" / "schema.json").read_bytes()


def _walk(folder: Traversable, within: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        path = f"{within}{_STORED_NAMES.get(entry.name, entry.name)}"
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _walk(entry, f"{path}/")
        elif entry.is_file():
            yield path, entry.read_bytes()


def _refuse_existing(target: Path, parts: list[_Part]) -> set[Path]:
    """Return what is there and stays as it is; raises UsageError where anything else is in the way."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is no folder", code="exists", hint="sagactl init NEW_FOLDER")
    there = [part.path for part in parts if part.path.is_symlink() or part.path.exists()]
    in_the_way = [str(path.relative_to(target)) for path in there if path.name not in KEPT]
    if in_the_way:
        message = f"{target} has {', '.join(in_the_way)} already, and nothing is overwritten"
        raise UsageError(message, code="exists", hint="sagactl init NEW_FOLDER")
    return set(there)


def _make(parts: Iterator[_Part]) -> None:
    for part in parts:
        try:
            part.path.parent.mkdir(parents=True, exist_ok=True)
            with part.path.open("xb") as file:
                file.write(part.content)
            if part.path.parent.name == STATE_FOLDER:
                part.path.parent.chmod(0o700)  # the log will lie there
        except OSError as error:
            raise StorageError(f"{part.path} can't be written: {error.strerror}", code="not-writable") from error
