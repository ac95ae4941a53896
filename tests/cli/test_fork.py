"""A tool that forks: its child never becomes a second driver of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.project import Project

PLUGIN = """
import os
from sagactl import tool


@tool("twin.{name}", compensation="twin.undo", compensation_with={{}})
{kind} {name}() -> dict[str, bool]:
    pid = os.fork()
    {ends}
    return {{"is_child": pid == 0}}


@tool("twin.after", compensation="twin.undo", compensation_with={{}})
def after() -> None:
    with open("after.txt", "a") as file:
        file.write("called\\n")


@tool("twin.undo", null_safe=True)
def undo() -> None:
    pass
"""


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("ends", ["pass", "if pid == 0: raise SystemExit(3)"])
def test_child_of_a_tool_that_forks_ends_there(tmp_path: Path, kind: str, ends: str) -> None:
    """E15: the child that comes out of the tool, by returning or raising, ends with a word; the run goes on once."""
    for folder in ("plugins", "sagas"):
        (tmp_path / folder).mkdir()
    (tmp_path / "plugins" / "twin.py").write_text(PLUGIN.format(name="split", kind=kind, ends=ends))
    steps = "  - {id: split, tool: twin.split}\n  - {id: after, tool: twin.after}\n"
    (tmp_path / "sagas" / "twins.yaml").write_text(
        f"saga: twins\nsteps:\n{steps}output: ${{{{ steps.split.output }}}}\n"
    )
    project = Project(tmp_path)
    result = project.run("run", "twins", "-o", "json")
    assert (result.code, result.json["run"]["output"]) == (0, {"is_child": False})
    assert "tool twin.split forked, and its child came out of the tool; the child ends here" in result.err
    assert (tmp_path / "after.txt").read_text() == "called\n"
    assert project.run("verify").code == 0
