"""Sagas kept as they were checked: never another saga than the file says, and never missed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sagactl import open_project
from sagactl.checked import KEPT_MAX, CheckedSagas
from sagactl.core.saga import Saga
from sagactl.written.problem import InvalidSagaError
from tests.cli.project import Project as CommandLine

PLUGIN = '''"""A tool."""

from sagactl import tool


@tool("do.it", read_only={read_only})
def do_it(text: str) -> dict[str, str]:
    """Do it."""
    return {{"text": text}}
'''
SAGA = "saga: x\nsteps:\n  - {id: a, tool: do.it, read_only: true, with: {text: hello}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a project with a plugin, a saga, and a log's folder."""
    for name in ("plugins", "sagas", ".sagactl"):
        (tmp_path / name).mkdir()
    (tmp_path / "plugins" / "do.py").write_text(PLUGIN.format(read_only=True))
    (tmp_path / "sagas" / "x.yaml").write_text(SAGA)
    return tmp_path


def _load(folder: Path) -> Saga:
    with open_project(folder) as project:
        return project.load("x")


def _check(folder: Path) -> Saga:
    """Return the saga as it is read without anything kept."""
    with open_project(folder) as project:
        return project.load_saga(folder / "sagas" / "x.yaml").saga


def _is_kept(folder: Path) -> bool:
    with open_project(folder) as project:
        text = (folder / "sagas" / "x.yaml").read_bytes()
        return CheckedSagas(project.config.checked).find(text, "sagas/x.yaml", project.registry.facts_of) is not None


def test_what_is_kept_is_what_the_file_says(folder: Path) -> None:
    """E16: the kept definition is that of the file, down to the lines that errors name."""
    assert not _is_kept(folder)
    assert _load(folder) == _check(folder)
    assert _is_kept(folder)
    kept = _load(folder)
    assert kept == _check(folder)
    assert (kept.source, kept.steps[0].line) == ("sagas/x.yaml", _check(folder).steps[0].line)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "sagas" / "x.yaml").write_text(SAGA.replace("hello", "bye")),
        lambda folder: (folder / "sagas" / "x.yaml").write_text(SAGA + "# a comment\n"),
        lambda folder: next((folder / ".sagactl" / "checked").iterdir()).write_bytes(b"0" * 64 + b"\n{}"),
        lambda folder: next((folder / ".sagactl" / "checked").iterdir()).write_bytes(b""),
        lambda folder: os.truncate(next((folder / ".sagactl" / "checked").iterdir()), 200),
        lambda folder: next((folder / ".sagactl" / "checked").iterdir()).chmod(0),
    ],
)
def test_whatever_changed_is_checked_anew(folder: Path, change: Callable[[Path], object]) -> None:
    """F5: another text, or a kept file that isn't what was kept, means reading the saga again."""
    _load(folder)
    change(folder)
    assert _load(folder) == _check(folder)


def test_a_tool_that_changed_means_checking_anew(folder: Path) -> None:
    """F4, F5: what was right with the tool as it was may be wrong by now, and is found."""
    _load(folder)
    (folder / "plugins" / "do.py").write_text(PLUGIN.format(read_only=False).replace("text: str", "number: int"))
    assert not _is_kept(folder)
    with pytest.raises(InvalidSagaError):
        _load(folder)
    (folder / "plugins" / "do.py").unlink()
    with pytest.raises(InvalidSagaError):
        _load(folder)


def test_a_folder_that_cant_be_written_costs_nothing(folder: Path) -> None:
    """What can't be kept is read again; it is no error."""
    (folder / ".sagactl" / "checked").write_text("in the way")
    assert _load(folder) == _check(folder)


def test_few_are_kept(folder: Path) -> None:
    """`KEPT_MAX` bounds the folder, whatever happens to the file."""
    with open_project(folder) as project:
        for number in range(KEPT_MAX + 5):
            (folder / "sagas" / "x.yaml").write_text(SAGA.replace("hello", f"hello {number}"))
            project.load("x")
    assert len(list((folder / ".sagactl" / "checked").iterdir())) == KEPT_MAX


def test_only_run_keeps_a_saga_and_then_needs_no_yaml(folder: Path) -> None:
    """`validate` and `plan` write nothing; a second `run` imports neither YAML nor the loader."""
    shell = CommandLine(folder)
    for command in ("validate", "plan"):
        assert shell.run(command, "x").code == 0
    assert not (folder / ".sagactl" / "checked").exists()
    assert shell.run("run", "x", "-q").code == 0
    script = (
        "import sys; from sagactl.__main__ import main\n"
        "try: main()\n"
        "finally: print({'yaml', 'sagactl.spec.load'} & set(sys.modules), file=sys.stderr)"
    )
    again = shell.run_python("-c", script, "run", "x", "-qq")
    assert (again.code, again.err.strip()) == (0, "set()")
