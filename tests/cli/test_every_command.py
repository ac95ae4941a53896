"""Every command there is: one JSON value when it works and when it fails, hints that work, and never a question.

`CASES` has a row for each command; a command without one fails `test_every_command_has_a_case`.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from sagactl.cli.commands import COMMANDS
from tests.cli.project import ROOT, Project, Result
from tests.cli.typed import parse_typed
from tests.docs.test_help import LEAVES

ASK = ("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=4900")
APPROVED = """
saga: agreed
steps:
  - {id: lead, tool: crm.create_lead, with: {email: ada@example.com}, approval: true}
"""
PARTED = """
saga: parted
steps:
  - {id: said, tool: shell.run, with: {argv: [date]}, compensate: {none: said is said}}
"""
SHOP = str(ROOT / "tests" / "tools" / "http" / "descriptions" / "shop.yaml")
RUN = "RUN"
"""Stands for the id of the run that the case begins with."""

STATES: dict[str, tuple[str, ...] | None] = {
    "nothing": None,
    "succeeded": ASK,
    "stuck": (*ASK, "-i", "card=limbo"),
    "waiting": (*ASK, "-i", "card=flaky", "--no-wait"),
    "approval": ("run", "agreed", "-q"),
}


@dataclass(frozen=True)
class Case:
    """A command that works in a state, and with which exit code; and one that fails there, with its code."""

    state: str
    good: tuple[str, ...]
    bad: tuple[str, ...]
    bad_code: int
    good_code: int = 0
    before: tuple[str, ...] = ()


CASES = {
    "init": Case("nothing", ("demo",), ("demo", "--example", "nosuch"), 2),
    "validate": Case("nothing", (), ("nosuch",), 4),
    "plan": Case("nothing", ("onboarding",), ("nosuch",), 4),
    "graph": Case("nothing", ("onboarding",), ("nosuch",), 4),
    "chaos": Case("nothing", ("onboarding", *ASK[3:], "--only", "welcome", "--limit", "5"), ("parted",), 2),
    "tools": Case("nothing", (), ("no.such",), 4),
    "tools check": Case("nothing", ("billing", "--rule", "succeeds"), ("nosuch",), 4),
    "tools import": Case("nothing", ("openapi", SHOP), ("openapi", "nosuch.json"), 4),
    "tools pin": Case("nothing", (), ("nosuch",), 4),
    "run": Case("nothing", (*ASK[1:],), ("onboarding",), 3),
    "resume": Case("waiting", (RUN,), ("zzzzzz",), 4),
    "rollback": Case("stuck", (RUN,), ("@latest",), 2),
    "approve": Case("approval", (RUN, "lead"), (RUN, "nosuch"), 4),
    "deny": Case("approval", (RUN, "lead", "--reason", "no"), (RUN, "nosuch"), 4, good_code=10),
    "pause": Case("waiting", (RUN,), ("zzzzzz",), 4),
    "unpause": Case("waiting", (RUN,), (RUN,), 6, before=("pause", RUN)),
    "cancel": Case("waiting", (RUN,), ("zzzzzz",), 4),
    "terminate": Case("stuck", (RUN, "--reason", "x"), (RUN,), 2),
    "dlq list": Case("stuck", (), ("--since", "soon"), 2),
    "dlq show": Case("stuck", (RUN,), (RUN, "lead"), 4),
    "dlq retry": Case("stuck", (RUN,), (RUN, "lead"), 6, good_code=11),
    "dlq resolve": Case("stuck", (RUN, "--not-done", "--reason", "x"), (RUN, "--done"), 2, good_code=10),
    "list": Case("stuck", (), ("--status", "lost"), 2),
    "show": Case("stuck", (), ("zzzzzz",), 4),
    "log": Case("stuck", (), ("--step", "nosuch"), 4),
    "watch": Case("succeeded", (RUN,), ("zzzzzz",), 4),
    "outbox list": Case("stuck", (), ("--run", "zzzzzz"), 4),
    "outbox deliver": Case("stuck", (), ("--nosuch",), 2),
    "verify": Case("succeeded", (), ("zzzzzz",), 4),
    "doctor": Case("succeeded", (), ("--nosuch",), 2),
    "prune": Case("succeeded", ("--older-than", "30d", "--yes"), ("--older-than", "soon"), 2),
    "metrics": Case("stuck", (), ("--nosuch",), 2),
    "config": Case("nothing", (), ("--nosuch",), 2),
    "schema": Case("nothing", (), ("--nosuch",), 2),
    "sandbox show": Case("succeeded", (), ("--nosuch",), 2),
    "sandbox reset": Case("succeeded", (), ("--nosuch",), 2),
    "completion": Case("nothing", ("bash",), ("nosuch",), 2),
    "help": Case("nothing", (), ("nosuch",), 4),
}

QUESTIONS = {
    "rollback": ("succeeded", ("rollback", RUN, "--past-pivot", "--reason", "x")),
    "prune": ("succeeded", ("prune", "--older-than", "0s")),
}
"""What is asked on a terminal: without one it is exit 2 at once, and the message names the option that answers."""

TRACER = "sagactl telemetry"
"""The name of a thread or a library; no command."""

PLACEHOLDERS = frozenset({"FILE", "RUN", "STEP", "TOOL", "TOPIC", "DIR", "SAGA", "NAME"})


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Project, str]]:
    """Return what gives a project of its own with a run in a state, and the run's id; each state is made once."""
    made: dict[str, Path] = {}

    def give(state: str) -> tuple[Project, str]:
        if state not in made:
            made[state] = _make(tmp_path_factory.mktemp(state) / "project", STATES[state])
        folder = tmp_path_factory.mktemp("case") / "project"
        shutil.copytree(made[state], folder, symlinks=True)
        project = Project(folder, {"SAGACTL_SANDBOX_LEDGER": str(folder / "witness.jsonl")})
        ids = project.run("list", "--ids").out.split() if STATES[state] else [""]
        return project, ids[0]

    return give


def _make(folder: Path, command: tuple[str, ...] | None) -> Path:
    folder.mkdir()
    project = Project.make(folder)
    (folder / "sagas" / "agreed.yaml").write_text(APPROVED)
    (folder / "sagas" / "parted.yaml").write_text(PARTED)
    (folder / "sagactl.toml").write_text('[events]\nfile = "events.jsonl"\n')
    if command is not None:
        result = project.run(*command)
        assert result.code in {0, 11, 12}, result.err
    return folder


def _type(project: Project, words: tuple[str, ...], run_id: str) -> Result:
    """Run a command as a script does whose stdin is open and silent: whoever asks there would wait for ever."""
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "sagactl", *(run_id if word == RUN else word for word in words)],
            cwd=project.path,
            env=project.environment(),
            stdin=reader,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    finally:
        os.close(reader)
        os.close(writer)
    return Result(done.returncode, done.stdout, done.stderr)


def test_every_command_has_a_case() -> None:
    """Section 6: a command that is added is tested like all others, or this fails."""
    assert set(CASES) == {" ".join(path) for path, _ in LEAVES}
    assert {name.split()[0] for name in CASES} == set(COMMANDS)


@pytest.mark.parametrize("name", CASES)
def test_what_works_is_one_json_value(name: str, begin: Callable[[str], tuple[Project, str]]) -> None:
    """Section 6: `-o json` is exactly one value on stdout, with its schema, and nobody is asked."""
    case = CASES[name]
    project, run_id = begin(case.state)
    if case.before:
        assert _type(project, case.before, run_id).code == 0
    result = _type(project, (*name.split(), *case.good, "-o", "json"), run_id)
    assert result.code == case.good_code, result.err
    value = json.loads(result.out)
    assert isinstance(value, dict)
    assert value.keys() & {"schema", "$schema"}
    assert "Traceback" not in result.err


@pytest.mark.parametrize("name", CASES)
def test_what_fails_is_one_json_value_with_a_hint_that_works(
    name: str, begin: Callable[[str], tuple[Project, str]]
) -> None:
    """Section 6: an error is one value with code, message, hint and exit code; its hint can be typed as it stands."""
    case = CASES[name]
    project, run_id = begin(case.state)
    result = _type(project, (*name.split(), *case.bad, "-o", "json"), run_id)
    assert result.code == case.bad_code, result.err
    error = json.loads(result.out)["error"]
    assert error["exit"] == case.bad_code
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", error["code"])
    assert error["message"]
    assert re.search(r"^error\[", result.err, re.MULTILINE)
    hint = error["hint"] or ""
    if hint.startswith("sagactl ") and not PLACEHOLDERS & set(shlex.split(hint)):
        typed = _type(project, tuple(shlex.split(hint)[1:]), run_id)
        assert typed.code == 0, f"{hint}: {typed.err}"


@pytest.mark.parametrize("name", QUESTIONS)
def test_without_a_terminal_nobody_is_asked(name: str, begin: Callable[[str], tuple[Project, str]]) -> None:
    """UX 5: a question that nobody can answer is exit 2 at once, and says how it is answered; nothing is done."""
    state, words = QUESTIONS[name]
    project, run_id = begin(state)
    for more in ((), ("--no-input",), ("-o", "json")):
        result = _type(project, (*words, *more), run_id)
        assert result.code == 2, result.err
        assert "--yes" in result.err
    assert project.run("show", run_id, "-o", "json").json["run"]["status"] == "succeeded"


def _printed_commands() -> Iterator[tuple[str, str]]:
    """Yield each command that stands in a text of the package, with an id in the place of what is filled in."""
    for file in sorted((ROOT / "sagactl").rglob("*.py")):
        if "templates" in file.parts:
            continue
        tree = ast.parse(file.read_text())
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if id(node) in inner:
                continue
            text = _spell(node)
            if text is not None and text.startswith("sagactl ") and text != TRACER and "\n" not in text:
                yield f"{file.relative_to(ROOT)}:{node.lineno}", text  # type: ignore[attr-defined]


def _spell(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "7kq2m9" for part in node.values)
    return None


def test_every_command_in_the_texts_of_the_package_can_be_typed() -> None:
    """UX 9: what is printed as a command is one that there is, with options and arguments that it takes."""
    wrong, found = [], 0
    for place, text in _printed_commands():
        line = re.sub(r"\$\(.*?\)", "7kq2m9", text).rstrip(" ,;:")
        if re.match(r"sagactl (7kq2m9|--help)", line) or "views/commands.py" in place:
            continue  # a sentence, or all help there is, or pieces that the golden files have whole
        found += 1
        try:
            parse_typed(line)
        except click.exceptions.Exit:
            continue  # --help of a command
        except (click.ClickException, AssertionError, ValueError) as error:
            wrong.append(f"{place}: {text}: {error}")
    assert found > 20
    assert wrong == []
