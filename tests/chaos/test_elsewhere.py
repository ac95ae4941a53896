"""Tools that are processes of their own work in the experiment's copy of the world, and never in the project."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from sagactl.tools.mcp.elsewhere import move_server
from sagactl.tools.mcp.settings import Server
from tests.chaos.project import codes_of, run_chaos
from tests.cli.project import Project

SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "server.py"
MCP = """
[chaos]
safe_tools = ["test.*"]
ignore = ["room/started"]

[mcp.test]
command = [PYTHON, "-S", "-I", "server.py"]
cwd = "room"

[mcp.test.tools.put]
compensation = "test.take"
compensation_with = {line = "${{ args.line }}"}
idempotent = true
overrule = ["idempotentHint"]

[mcp.test.tools.take]
idempotent = true
null_safe = true
gone = ["ENOENT"]
"""
SAGA = """
saga: planted
steps:
  - {id: first, tool: test.put, with: {line: one}}
  - {id: last, tool: test.put, with: {line: two}}
"""


def _list_files(folder: Path) -> dict[str, bytes]:
    return {
        str(each): each.read_bytes() for each in folder.rglob("*") if each.is_file() and "plugins" not in each.parts
    }


def test_a_server_that_is_a_program_works_in_the_copy(tmp_path: Path) -> None:
    """`[mcp]`: its folder is that of the world, its program is found where it was, and the project is left alone."""
    pytest.importorskip("mcp", reason="needs the extra `mcp`")
    for folder in ("room", "plugins", "sagas"):
        (tmp_path / folder).mkdir()
    shutil.copy(SERVER, tmp_path / "room" / "server.py")
    (tmp_path / "sagactl.toml").write_text(MCP.replace("PYTHON", json.dumps(sys.executable)))
    (tmp_path / "sagas" / "planted.yaml").write_text(SAGA)
    project = Project(tmp_path)
    assert project.run("tools", "pin", "--yes").code == 0
    before = _list_files(tmp_path)
    result = run_chaos(project, "--only", "first", "--limit", "4", "-o", "json", "--timeout", "60", timeout=300)
    assert codes_of(result.json, "first") == {"left-behind"}, result.err  # an empty file, seen in the copy
    assert "room/world" in str(result.json["findings"])
    assert result.json["experiments"]["made"] >= 4
    assert _list_files(tmp_path) == before


def test_a_command_works_in_the_copy(tmp_path: Path) -> None:
    """`shell.*`: the folder, and the one of `SAGACTL_PROJECT`, is the world's; the project's own files aren't there."""
    (tmp_path / "sagas").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "sagas" / "planted.yaml").write_text("""
saga: planted
steps:
  - id: put
    tool: shell.run_idempotent
    with: {script: 'test ! -e mine; echo "$PWD" > put; : > "$SAGACTL_PROJECT/beside"'}
    compensate: {tool: shell.undo, with: {argv: [rm, -f, put, beside]}}
""")
    project = Project(tmp_path)
    result = run_chaos(project, "--allow-unsafe", "shell.*", "--limit", "8", "-o", "json")
    assert (result.code, result.json["findings"]) == (0, []), result.err
    assert {each.name for each in tmp_path.iterdir()} == {"sagas", "mine"}


def test_a_servers_program_is_found_and_its_files_are_the_copys(tmp_path: Path) -> None:
    """Its program and its script are the project's; what it works on, and what the copy has itself, is the copy's."""
    project, copy = tmp_path / "project", tmp_path / "copy"
    for name in ("bin/serve", "tools/serve.py", "tools/other.py", "data.db"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()

    def move(*command: str, cwd: str = ".") -> tuple[str, ...]:
        return move_server(Server("s", command=command, cwd=cwd), project, copy).command

    assert move("python3", "-u", "tools/serve.py", "data.db") == (
        *("python3", "-u", str(project / "tools/serve.py"), "data.db"),
    )
    assert move("bin/serve", "data.db", "tools/other.py") == (
        *(str(project / "bin/serve"), "data.db", str(project / "tools/other.py")),
    )
    assert move("serve.py", "x", cwd="tools") == ("serve.py", "x")  # looked for on the PATH
    (copy / "tools" / "serve.py").touch()
    assert move("python3", "tools/serve.py") == ("python3", "tools/serve.py")
    outside = Server("s", command=("python3", "x.py"), cwd=str(tmp_path))
    assert move_server(outside, project, copy) == outside
