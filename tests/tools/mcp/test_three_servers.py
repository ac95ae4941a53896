"""One saga over three servers that nobody here wrote: files, a memory, a repository; undone, and killed and resumed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.project import ROOT, Project
from tests.servers.start import find_node_program, find_python_program
from tests.tools.mcp.conftest import wait_until

SETTINGS = """
[mcp.files]
command = ["{files}", "room"]

[mcp.files.tools.write_file]
probe = "files.find_written"

[mcp.files.tools.find_written]
tool = "get_file_info"
with = {{path = "${{{{ args.path }}}}"}}
not_done = ["ENOENT"]
done_output = {{content = "written"}}

[mcp.files.tools.move_file]
compensation = "files.move_back"
compensation_with = {{source = "${{{{ args.destination }}}}", destination = "${{{{ args.source }}}}"}}
probe = "files.find_moved"
rejected = ["ENOENT"]

[mcp.files.tools.move_back]
tool = "move_file"
idempotent = true
overrule = ["idempotentHint"]
null_safe = true
gone = ["ENOENT"]

[mcp.files.tools.find_moved]
tool = "get_file_info"
with = {{path = "${{{{ args.destination }}}}"}}
not_done = ["ENOENT"]
done_output = {{content = "moved"}}

[mcp.memory]
command = ["{memory}"]
env = {{MEMORY_FILE_PATH = "{folder}/memory.jsonl"}}

[mcp.memory.tools.create_entities]
compensation = "memory.delete_entities"
compensation_with = {{entityNames = ["${{{{ args.entities[0].name }}}}"]}}
probe = "memory.find_entity"

[mcp.memory.tools.delete_entities]
idempotent = true
null_safe = true

[mcp.memory.tools.find_entity]
tool = "open_nodes"
with = {{names = ["${{{{ args.entities[0].name }}}}"]}}
found = "${{{{ output.entities }}}}"
done_output = {{entities = "${{{{ output.entities }}}}"}}

[mcp.git]
command = ["{git}"]

[mcp.git.tools.git_create_branch]
name = "git.create_branch"
probe = "git.find_branch"
rejected = ["already exists"]

[mcp.git.tools.find_branch]
tool = "git_show"
with = {{repo_path = "${{{{ args.repo_path }}}}", revision = "${{{{ args.branch_name }}}}"}}
not_done = ["did not resolve", "unknown revision"]
done_output = "created"
"""

SAGA = """
saga: report
input:
  type: object
  required: [folder]
  properties: {folder: {type: string}}
defaults: {start_to_close_timeout: 60s}
steps:
  - id: branch
    tool: git.create_branch
    with: {repo_path: "${{ input.folder }}/repo", branch_name: report}
    compensate: {tool: shell.undo, with: {argv: [git, -C, repo, branch, -D, report]}}
  - id: known
    tool: memory.create_entities
    with: {entities: [{name: report, entityType: document, observations: [drafted]}]}
  - id: draft
    tool: files.write_file
    with: {path: "${{ input.folder }}/room/draft.txt", content: Hello}
    compensate:
      tool: files.move_back
      with: {source: "${{ args.path }}", destination: "${{ input.folder }}/room/put-away.txt"}
  - id: moved
    tool: files.move_file
    with: {source: "${{ input.folder }}/room/draft.txt", destination: "${{ input.folder }}/room/report.txt"}
  - id: pause
    tool: shell.run_idempotent
    with: {script: "test -e go || { touch here; sleep 600; }"}
    compensate: {none: it only waits}
  - id: last
    tool: shell.run
    with: {argv: ["false"], rejected_exit_codes: all}
    compensate: {none: it does nothing}
"""


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project that has the three servers pinned."""
    folder = tmp_path_factory.mktemp("three")
    programs = {"files": find_node_program("mcp-server-filesystem"), "memory": find_node_program("mcp-server-memory")}
    git = find_python_program("mcp-server-git")
    (folder / "room").mkdir()
    (folder / "sagas").mkdir()
    (folder / "sagas" / "report.yaml").write_text(SAGA)
    (folder / "sagactl.toml").write_text(SETTINGS.format(**programs, git=git, folder=folder))
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for words in (["init", "-q", "repo"], ["-C", "repo", *settings, "commit", "-q", "--allow-empty", "-m", "Begin"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    done = Project(folder).run("tools", "pin", "-o", "json")
    assert done.code == 0, done.out + done.err
    assert [(each["name"], each["status"]) for each in done.json["servers"]] == [
        ("files", "new"),
        ("git", "new"),
        ("memory", "new"),
    ]
    return folder


@pytest.fixture
def project(pinned: Path) -> Iterator[Project]:
    """Yield the project as it was when it was pinned."""
    yield Project(pinned)
    for name in ("go", "here", "memory.jsonl"):
        (pinned / name).unlink(missing_ok=True)
    for file in (pinned / "room").iterdir():
        file.unlink()


def branches(folder: Path) -> list[str]:
    """Return the branches of the repository beside the first."""
    done = subprocess.run(
        ["git", "-C", "repo", "branch", "--list", "report", "--format=%(refname:short)"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def entities(folder: Path) -> list[str]:
    """Return the names that the memory holds."""
    file = folder / "memory.jsonl"
    return [json.loads(line)["name"] for line in file.read_text().splitlines() if line] if file.exists() else []


def test_a_saga_over_three_servers_is_undone_in_all_of_them(project: Project) -> None:
    """A failure at the end undoes what files, memory and repository were made to do, in reverse."""
    (project.path / "go").touch()
    done = project.run("run", "report", "-i", f"folder={project.path}", "-o", "json", timeout=300)
    assert done.code == 10, done.out + done.err
    statuses = {each["id"]: each["status"] for each in done.json["run"]["steps"]}
    assert {statuses[name] for name in ("branch", "known", "draft", "moved")} == {"compensated"}
    assert branches(project.path) == []
    assert entities(project.path) == []
    assert [file.name for file in (project.path / "room").iterdir()] == ["put-away.txt"]


def test_killed_in_the_middle_it_is_resumed_and_undone(project: Project) -> None:
    """E17: after kill -9 no server is left, and another process carries on from the log, with servers of its own."""
    words = [sys.executable, "-m", "sagactl", "run", "report", "-i", f"folder={project.path}", "-q"]
    with subprocess.Popen(words, cwd=project.path, env=project.environment(), stderr=subprocess.DEVNULL) as driver:
        wait_until((project.path / "here").exists, 60)
        assert (branches(project.path), entities(project.path)) == (["report"], ["report"])
        servers = servers_of(project.path)
        assert len(servers) == 3
        os.kill(driver.pid, signal.SIGKILL)
    wait_until(lambda: not servers_of(project.path))
    (project.path / "go").touch()
    done = project.run("resume", "--all", "-q", timeout=300)
    assert done.code == 10, done.out + done.err
    assert (branches(project.path), entities(project.path)) == ([], [])
    assert [file.name for file in (project.path / "room").iterdir()] == ["put-away.txt"]


def test_the_readme_connects_a_server(tmp_path: Path) -> None:
    """The README's settings, saga and commands, as they stand but for the program, move a file and move it back."""
    text = (ROOT / "README.md").read_text()
    section = text[text.index("## Call the tools of an MCP server") :].split("\n## ")[0]
    settings, saga, commands = (
        re.findall(rf"```{kind}\n(.*?)```", section, re.DOTALL)[0] for kind in ("toml", "yaml", "sh")
    )
    program = '"npx", "-y", "@modelcontextprotocol/server-filesystem"'
    assert program in settings
    (tmp_path / "sagas").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "sagactl.toml").write_text(settings.replace(program, f'"{find_node_program("mcp-server-filesystem")}"'))
    (tmp_path / "sagas" / "publish.yaml").write_text(saga)
    (tmp_path / "shared" / "draft.md").write_text("Nothing yet")
    done = [Project(tmp_path).run(*shlex.split(line, comments=True)[1:]) for line in commands.splitlines()]
    assert [each.code for each in done] == [0, 0, 10]
    (run_id,) = Project(tmp_path).run("list", "--ids").out.split()
    run = Project(tmp_path).run("show", run_id, "-o", "json").json["run"]
    assert {each["id"]: each["status"] for each in run["steps"]} == {"moved": "compensated", "complete": "failed"}
    assert [file.name for file in (tmp_path / "shared").iterdir()] == ["draft.md"]


def servers_of(folder: Path) -> list[str]:
    """Return the commands of servers that run in a folder."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().decode().split("\0")
            if "mcp-server" in " ".join(words) and (process / "cwd").readlink() == folder:
                found.append(" ".join(words))
        except OSError:
            continue
    return found
