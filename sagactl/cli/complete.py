"""What could stand at the cursor: shells ask with `_SAGACTL_COMPLETE`, and are answered before anything heavy.

A shell asks at each press of a key, so ids of runs, steps, sagas and commands come from the log, the folders and the
table of commands, without Typer. Options and tools are rarer; for them the command line or the plugins are imported.
Where nothing is found, nothing is said, and the shell offers files.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sagactl.app import Project, open_project
from sagactl.cli.commands import COMMANDS, WITH_VALUE, Entry

if TYPE_CHECKING:
    import click

RUNS_SHOWN_MAX: Final = 100
_OPEN: Final = ("running", "waiting", "rolling_back", "stuck")
_OPENED: Final = ("resume", "cancel", "pause", "unpause", "approve", "deny", "terminate", "watch")
_STATUSES: Final = {**dict.fromkeys(_OPENED, _OPEN), "dlq": ("stuck",)}
"""Which runs a command is meant for, where not for all."""

Candidate = tuple[str, str]
"""A word, and what it is."""


class Line(NamedTuple):
    """The words before the cursor, understood."""

    command: str
    below: tuple[str, ...]
    """The commands below it that are named."""
    arguments: list[str]
    options: dict[str, str]
    pending: str
    """An option that waits for its value; empty where there is none."""


def complete(shell: str, words: list[str]) -> None:
    """Write what could stand for the last of *words*, a line for each, as *shell* takes it. Never fails."""
    *before, word = words or [""]
    spell = _SPELLINGS.get(shell, _spell_bash)
    try:
        lines = [spell(*candidate) for candidate in find_candidates(before, word, splits=shell == "bash")]
    except Exception:  # a prompt is no place for an error
        return
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def find_candidates(before: list[str], word: str, *, splits: bool = False) -> list[Candidate]:
    """Return the words that could stand for *word*; *splits* where the shell takes `--step=x` apart at the `=`."""
    if splits and before and before[-1] == "=":
        before = before[:-1]
    if splits and word == "=":
        word = ""
    lead, sign, rest = word.partition("=")
    if sign and lead.startswith("--"):
        found = find_candidates([*before, lead], rest)
        return [(f"{lead}={value}", about) for value, about in found]
    return [each for each in _find(read_line(before), word) if each[0].startswith(word)]


def read_line(before: Iterable[str]) -> Line:
    """Tell commands, arguments, options and their values apart."""
    words: list[str] = []
    options: dict[str, str] = {}
    pending = ""
    for word in before:
        name, sign, value = word.partition("=")
        if pending:
            options[pending], pending = word, ""
        elif sign and name in WITH_VALUE:
            options[name] = value
        elif word in WITH_VALUE:
            pending = word
        elif not word.startswith("-"):
            words.append(word)
    entry, depth = _resolve(words)
    path = words[: depth + (entry is not None and entry.is_group)]
    return Line(path[0] if path else "", tuple(path[1:]), words[len(path) :], options, pending)


def _resolve(words: Sequence[str]) -> tuple[Entry | None, int]:
    """Return what the table has of the command that *words* begin with, and how many of them name it."""
    entry = COMMANDS.get(words[0]) if words else None
    depth = 1
    while entry is not None and depth < len(words) and words[depth] in entry.commands:
        entry = entry.commands[words[depth]]
        depth += 1
    return entry, depth


def _find(line: Line, word: str) -> Iterable[Candidate]:
    if line.pending:
        find = _VALUES.get(line.pending)
        return find(line, word) if find else _find_choices(line)
    if word.startswith("-"):
        return _find_options(line)
    if not line.command:
        return [(name, entry.help) for name, entry in COMMANDS.items()]
    entry, depth = _resolve([line.command, *line.below])
    if entry is not None and entry.is_group and depth == 1 + len(line.below):
        return _find_subcommands(line)
    below = [] if entry is None or line.arguments else [(name, each.help) for name, each in entry.commands.items()]
    find = _ARGUMENTS.get(_next_argument(line))
    return [*below, *(find(line, word) if find else [])]


def _next_argument(line: Line) -> str:
    """Return the name of the argument that comes next; a name with `…` stands for any number of them."""
    entry, _ = _resolve([line.command, *line.below])
    names = entry.arguments if entry is not None else ()
    given = len(line.arguments)
    if given < len(names):
        return names[given]
    return names[-1] if names and names[-1].endswith("…") else ""


def _open(line: Line) -> Project:
    directory = line.options.get("-C") or line.options.get("--directory")
    return open_project(directory, log=line.options.get("--log"))


def _find_runs(line: Line, word: str) -> Iterator[Candidate]:
    from sagactl.cli.views.times import show_ago

    now_ms = time.time_ns() // 1_000_000
    statuses = _STATUSES.get(line.command, ())
    for run in _open(line).glance_runs(word, statuses=statuses, limit=RUNS_SHOWN_MAX):
        yield run.run_id, f"{run.saga}, {run.status.replace('_', ' ')}, {show_ago(run.created_at_ms, now_ms)}"


def _find_steps(line: Line, word: str) -> Iterator[Candidate]:
    del word
    run = line.arguments[0] if line.arguments else ""
    for step in _open(line).glance_steps("" if run.startswith("@") else run):
        yield step, "step"


def _find_sagas(line: Line, word: str) -> Iterator[Candidate]:
    del word
    folder = _open(line).config.project / "sagas"
    names = sorted(path.stem for path in folder.glob("*.y*ml")) if folder.is_dir() else []
    yield from ((name, "saga") for name in names if name not in line.arguments)


def _find_steps_of_saga(line: Line, word: str) -> Iterator[Candidate]:
    del word
    project = _open(line)
    saga = project.load_saga(project.find_saga(line.arguments[0] if line.arguments else "")).saga
    yield from ((step.id, step.action.tool) for step in saga.steps)


def _find_known_sagas(line: Line, word: str) -> Iterator[Candidate]:
    del word
    yield from ((name, "saga") for name in _open(line).glance_sagas())


def _find_tools(line: Line, word: str) -> Iterator[Candidate]:
    del word
    registry = _open(line).registry
    for name in registry.names():
        yield name, registry.tool(name).description


def _find_rules(line: Line, word: str) -> Iterator[Candidate]:
    del line, word
    from sagactl.conformance.rules import MEANINGS

    yield from ((rule.value, meaning.asks) for rule, meaning in MEANINGS.items())


def _find_topics(line: Line, word: str) -> Iterator[Candidate]:
    del line, word
    folder = Path(__file__).parents[1] / "help"
    yield from ((name.removesuffix(".md"), "topic") for name in sorted(os.listdir(folder)))  # noqa: PTH208 - names


def _find_shells(line: Line, word: str) -> list[Candidate]:
    del line, word
    return [(shell, "shell") for shell in _SPELLINGS]


def _find_statuses(line: Line, word: str) -> Iterator[Candidate]:
    del line
    from sagactl.core.records import RunStatus

    given, comma, _ = word.rpartition(",")
    yield from ((f"{given}{comma}{status}", "status") for status in RunStatus)


def _find_choices(line: Line) -> Iterator[Candidate]:
    from click import Choice

    for parameter in _parameters(line):
        if line.pending in parameter.opts and isinstance(parameter.type, Choice):
            yield from ((str(choice), parameter.help or "") for choice in parameter.type.choices)


def _find_options(line: Line) -> Iterator[Candidate]:
    for parameter in _parameters(line):
        if not parameter.hidden and (parameter.multiple or not set(parameter.opts) & line.options.keys()):
            yield max(parameter.opts, key=len), parameter.help or ""
    yield "--help", "Show this message and exit."


def _find_subcommands(line: Line) -> Iterator[Candidate]:
    from click import Group

    command = _command(line)
    if isinstance(command, Group):
        yield from ((name, each.get_short_help_str()) for name, each in command.commands.items())


def _parameters(line: Line) -> Iterator[click.Option]:
    from click import Option

    command = _command(line)
    yield from (parameter for parameter in command.params if isinstance(parameter, Option))


def _command(line: Line) -> click.Command:
    from click import Context, Group

    from sagactl.cli.main import make_group

    command = make_group()
    for name in (line.command, *line.below):
        found = command.get_command(Context(command), name) if isinstance(command, Group) and name else None
        command = found or command
    return command


def _spell_bash(value: str, about: str) -> str:
    del about
    return value


def _spell_zsh(value: str, about: str) -> str:
    return value.replace(":", "\\:") + ":" + _tame(about)


def _spell_fish(value: str, about: str) -> str:
    return f"{value}\t{_tame(about)}"


def _tame(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)


_SPELLINGS: Final[dict[str, Callable[[str, str], str]]] = {"bash": _spell_bash, "zsh": _spell_zsh, "fish": _spell_fish}
_ARGUMENTS: Final[dict[str, Callable[[Line, str], Iterable[Candidate]]]] = {
    "RUN": _find_runs,
    "STEP": _find_steps,
    "FILE": _find_sagas,
    "FILE…": _find_sagas,
    "TOOL": _find_tools,
    "TOOL…": _find_tools,
    "TOPIC": _find_topics,
    "SHELL": _find_shells,
}
_VALUES: Final[dict[str, Callable[[Line, str], Iterable[Candidate]]]] = {
    "--allow-unsafe": _find_tools,
    "--only": _find_steps_of_saga,
    "--replay": _find_runs,
    "--rule": _find_rules,
    "--run": _find_runs,
    "--step": _find_steps,
    "--saga": _find_known_sagas,
    "--status": _find_statuses,
}
