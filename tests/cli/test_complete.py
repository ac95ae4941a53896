"""Completion in the shells: what is offered where, in real shells, from the log alone and before anything heavy."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sagactl.cli.commands import COMMANDS, WITH_VALUE, Entry
from sagactl.cli.main import Branch, LazyGroup, make_group
from tests.cli.project import WAIT_SECONDS, Project

HEAVY = {"typer", "click", "yaml", "rich", "jsonschema", "sagactl.core.records", "sagactl.log.base", "asyncio"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Give a project with a run that succeeded, one that is stuck, and `sagactl` in its `bin/`."""
    made = Project.make(tmp_path_factory.mktemp("project"))
    made.run("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=1")
    made.run("run", "onboarding", "-q", "-i", "email=bob@example.com", "-i", "amount:=1", "-i", "card=limbo")
    script = made.path / "bin" / "sagactl"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m sagactl "$@"\n')
    script.chmod(0o755)
    made.environ["PATH"] = f"{script.parent}:{os.environ['PATH']}"
    return made


def _ids(project: Project, *which: str) -> list[str]:
    return project.run("list", "--ids", *which).out.split()


def _ask(project: Project, *words: str, shell: str = "bash") -> list[str]:
    result = project.run(*words, extra={"_SAGACTL_COMPLETE": shell})
    assert (result.code, result.err) == (0, "")
    return result.out.splitlines()


def test_ids_are_offered_newest_first(project: Project) -> None:
    """Where a run is taken its whole id is offered: all of them, or those that the command is meant for."""
    both = _ids(project)
    assert len(both) == 2
    assert _ask(project, "show", "") == both
    assert _ask(project, "rollback", both[1][:7]) == [both[1]]
    assert _ask(project, "resume", "") == _ask(project, "dlq", "show", "") == _ids(project, "--status", "stuck")
    assert _ask(project, "show", both[0], "") == []


def test_descriptions_say_saga_status_and_age(project: Project) -> None:
    """Zsh and fish show beside an id what it is."""
    stuck = _ids(project, "--status", "stuck")[0]
    [zsh], [fish] = (_ask(project, "resume", "", shell=shell) for shell in ("zsh", "fish"))
    assert re.fullmatch(rf"{stuck}:onboarding, stuck, (now|\d+\w ago)", zsh)
    assert re.fullmatch(rf"{stuck}\tonboarding, stuck, (now|\d+\w ago)", fish)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["di"], ["diamond"]),
        (["onb"], ["onboarding", "onboarding-live"]),
        (["-q", "onb"], ["onboarding", "onboarding-live"]),
        (["-o", "json", "onb"], ["onboarding", "onboarding-live"]),
        (["--output=json", "onb"], ["onboarding", "onboarding-live"]),
        (["-o", "json"], ["json", "jsonl"]),
        (["--col"], ["--color"]),
        (["sagas/onb"], []),
    ],
)
def test_sagas_options_and_their_values_are_offered(project: Project, words: list[str], expected: list[str]) -> None:
    """After `run`: names of sagas; options and their fixed values; nothing for a path: shells offer files."""
    assert _ask(project, "run", *words) == expected


def test_commands_steps_tools_and_topics_are_offered(project: Project) -> None:
    """The other words that a command line takes."""
    run_id = _ids(project)[0]
    assert _ask(project, "") == list(COMMANDS)
    assert _ask(project, "dlq", "re") == ["retry", "resolve"]
    assert _ask(project, "log", run_id, "--step", "con") == ["contract"]
    assert _ask(project, "log", "--step=con", shell="zsh") == ["--step=contract:step"]
    assert _ask(project, "log", "--step", "=", "con") == ["contract"]
    assert _ask(project, "dlq", "show", run_id, "wel") == ["welcome"]
    assert _ask(project, "tools", "billing.ch") == ["billing.charge"]
    assert _ask(project, "tools", "che") == ["check"]
    assert _ask(project, "tools", "check", "billing.ch") == ["billing.charge"]
    assert _ask(project, "tools", "check", "--rule", "undo-t") == ["undo-twice"]
    assert _ask(project, "tools", "-q", "check", "--stri") == ["--strict"]
    assert "semantics" in _ask(project, "help", "")
    assert _ask(project, "list", "--status", "stuck,wait") == ["stuck,waiting"]
    assert _ask(project, "list", "--saga", "") == ["onboarding"]
    assert _ask(project, "nonsense", "") == []


def _walk_table(group: LazyGroup) -> Iterator[tuple[str, Entry, click.Command]]:
    for name, entry in group.table.items():
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield name, entry, command
        if isinstance(command, Branch):
            yield from _walk_table(command)


def test_table_of_commands_is_what_commands_take() -> None:
    """What completion knows of arguments and options without importing them is true."""
    group = make_group()
    assert isinstance(group, LazyGroup)
    with_value: set[str] = set()
    flags: set[str] = set()
    for name, entry, command in _walk_table(group):
        assert isinstance(command, click.Group) == (entry.is_group or bool(entry.commands))
        leaves = list(command.commands.values()) if entry.is_group and isinstance(command, click.Group) else [command]
        for leaf in [each.own if isinstance(each, Branch) else each for each in leaves]:
            names = tuple((each.metavar or each.name or "") for each in leaf.params if isinstance(each, click.Argument))
            assert not names or tuple(each.upper() for each in names) == entry.arguments, name
            for each in leaf.params:
                if isinstance(each, click.Option):
                    (flags if each.is_flag or each.count else with_value).update(each.opts)
    assert with_value == WITH_VALUE
    assert not flags & WITH_VALUE


@pytest.mark.parametrize("words", [["show", ""], ["log", "--step", ""], ["run", ""], [""], ["help", ""]])
def test_frequent_answers_import_nothing_heavy(project: Project, words: list[str]) -> None:
    """A shell asks at each press of a key: ids, steps, sagas and commands come without Typer, YAML or plugins."""
    script = (
        "import sys; from sagactl.__main__ import main; main(); "
        "print(*sorted({m for name in sys.modules for m in (name, name.split('.')[0])}), file=sys.stderr)"
    )
    result = project.run_python("-c", script, *words, extra={"_SAGACTL_COMPLETE": "bash"})
    assert result.out
    assert not set(result.err.split()) & HEAVY


def test_no_log_is_no_answer_and_none_is_made(tmp_path: Path) -> None:
    """Where there is no log, or one that can't be read, nothing is offered, said or made."""
    empty = Project.make(tmp_path)
    assert _ask(empty, "show", "") == []
    assert not (tmp_path / ".sagactl").exists()
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database" * 100)
    assert _ask(empty, "--log", str(broken), "show", "") == []
    assert _ask(empty, "-C", str(tmp_path / "nowhere"), "log", "--step", "") == []


def test_text_of_a_hostile_log_is_tamed(tmp_path: Path) -> None:
    """Names in a log that somebody else wrote can't write to the terminal, nor offer what a shell would take apart."""
    log = tmp_path / "evil.db"
    with sqlite3.connect(log) as connection:
        connection.execute("CREATE TABLE runs (number, run_id, saga, status, created_at_ms)")
        rows = [(1, "aaaaaaa", "x\x1b[2Jy\nz", "stuck", 0), (2, "$(reboot)", "x", "stuck", 0)]
        connection.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", rows)
    connection.close()
    project = Project(tmp_path)
    for shell, mark in (("zsh", ":"), ("fish", "\t")):
        [line] = _ask(project, "--log", str(log), "show", "", shell=shell)
        assert line.startswith(f"aaaaaaa{mark}x?[2Jy?z, stuck, ")


def _script(project: Project, shell: str) -> Path:
    file = project.path / f"completion.{shell}"
    file.write_text(project.run("completion", shell).out)
    return file


def _capture(project: Project, *command: str) -> list[str]:
    done = subprocess.run(
        command,
        cwd=project.path,
        env=project.environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    return done.stdout.splitlines()


def test_bash_completes(project: Project) -> None:
    """The script for bash, in bash: ids, and a value after `=`, which bash takes for a word of its own."""
    script = _script(project, "bash")

    def press_tab(*words: str) -> list[str]:
        line = 'COMP_WORDS=(sagactl "$@"); COMP_CWORD=$#; _sagactl sagactl; printf "%s\\n" "${COMPREPLY[@]}"'
        return _capture(project, "bash", "--norc", "-c", f"source {script}; {line}", "bash", *words)

    assert press_tab("show", "") == _ids(project)
    assert press_tab("log", "--step", "=", "con") == ["contract"]
    assert press_tab("run", "onb") == ["onboarding", "onboarding-live"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not here; its protocol is tested above")
def test_fish_completes(project: Project) -> None:
    """The script for fish, in fish: ids with what they are, and files where nothing else fits."""
    script = _script(project, "fish")

    def press_tab(line: str) -> list[str]:
        return _capture(project, "fish", "--no-config", "-c", f"source {script}; complete -C '{line}'")

    assert [line.split("\t")[0] for line in press_tab("sagactl show ")] == _ids(project)
    assert any("onboarding, stuck" in line for line in press_tab("sagactl resume "))
    assert [line.split("\t")[0] for line in press_tab("sagactl log --step=con")] == ["--step=contract"]
    assert any(line.startswith("sagas/onboarding.yaml") for line in press_tab("sagactl run sagas/onb"))


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not here; its protocol is tested above")
def test_zsh_completes(project: Project) -> None:
    """The script for zsh, in zsh on a terminal: one candidate is put into the line when Tab is pressed."""
    script = _script(project, "zsh")
    stuck = _ids(project, "--status", "stuck")[0]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(project.path)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**project.environment(), "TERM": "dumb", "PS1": "ready> "})
    try:
        os.write(terminal, f"autoload -Uz compinit; compinit -u -D; source {script}; echo load''ed\n".encode())
        _read_until(terminal, "loaded")
        os.write(terminal, b"sagactl resume \t")
        assert stuck in _read_until(terminal, stuck)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def _read_until(terminal: int, text: str) -> str:
    seen, until = "", time.monotonic() + WAIT_SECONDS
    while text not in seen and time.monotonic() < until:
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 65_536).decode(errors="replace")
    return seen
