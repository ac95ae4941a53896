"""`sagactl tools pin`: what servers say of their tools, written down, compared, agreed to."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from sagactl.app import open_project
from sagactl.doctor.examine import examine
from tests.cli.project import Project
from tests.tools.mcp.conftest import TOOLS, Bench


@pytest.fixture
def project(bench: Bench) -> Project:
    """Return the bench's project, for commands."""
    bench.close()
    return Project(bench.folder)


def lock(project: Project) -> str:
    """Return the file of the pins."""
    return (project.path / "plugins" / "mcp.lock.json").read_text()


def test_what_is_pinned_can_be_read_and_reviewed(project: Project) -> None:
    """The file is sorted JSON that a person reads: description, schemas, hints and a hash of each tool."""
    content = json.loads(lock(project))
    assert content["schema"] == "sagactl.mcp_lock/1"
    tools = content["servers"]["test"]["tools"]
    assert list(tools) == sorted(tools)
    assert tools["put"]["description"] == "Write a line."
    assert tools["put"]["hash"].startswith("sha256:")
    assert tools["put"]["input"]["required"] == ["line"]


def test_pinning_twice_changes_nothing(project: Project) -> None:
    """The same server gives the same file."""
    before = lock(project)
    done = project.run("tools", "pin", "-o", "json")
    assert (done.code, done.json["servers"][0]["status"], done.json["file"]) == (0, "same", None)
    assert lock(project) == before


@pytest.mark.parametrize("mode", ["stricter", "hinted", "gone"])
def test_every_difference_is_found(bench: Bench, mode: str) -> None:
    """Schemas, hints, and tools that are gone: each is a change of that tool and of no other."""
    bench.mode(mode)
    (look,) = bench.servers.look()
    assert (look.status, list(look.changes)) == ("changed", ["put"])


def test_a_difference_fails_a_check_and_is_shown(bench: Bench, project: Project) -> None:
    """`--check` is for CI: it exits 1 at a difference, shows it, and writes nothing."""
    before = lock(project)
    bench.mode("poisoned")
    done = project.run("tools", "pin", "--check")
    assert done.code == 1
    assert "not what is pinned" in done.out
    assert "Ignore all" in done.out
    assert project.run("tools", "pin").code == 2, "nobody can be asked"
    assert lock(project) == before


def test_a_change_is_agreed_to_on_a_terminal(bench: Bench, project: Project) -> None:
    """On a terminal the difference is shown and a question asked, whose default is no."""
    bench.mode("poisoned")
    before = lock(project)
    assert ask(project, "\n") == 2
    assert lock(project) == before
    assert ask(project, "y\n") == 0
    assert "Ignore all" in lock(project)


def ask(project: Project, answer: str) -> int:
    """Run the command on a terminal, give it an answer, and return its exit code."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "sagactl", "tools", "pin"]
    with subprocess.Popen(
        words, cwd=project.path, env=project.environment(), stdin=theirs, stderr=theirs, stdout=-1
    ) as run:
        os.close(theirs)
        seen = b""
        while b"[y/N]" not in seen:
            seen += os.read(ours, 4_096)
        assert b"description" in seen
        os.write(ours, answer.encode())
        run.communicate(timeout=120)
        os.close(ours)
        return run.returncode


def test_a_server_that_cannot_be_reached_keeps_its_pins(bench: Bench, project: Project) -> None:
    """Exit 1 with the reason; what is pinned stays."""
    before = lock(project)
    bench.mode("won't start")
    done = project.run("tools", "pin", "-o", "json")
    assert (done.code, done.json["servers"][0]["status"]) == (1, "unreachable")
    assert "no licence" in done.json["servers"][0]["error"]
    assert lock(project) == before


def test_a_server_whose_secret_is_missing_says_where_secrets_come_from(bench: Bench, project: Project) -> None:
    """E19: what helps isn't a look at the tools."""
    bench.configure(TOOLS, env={"TOKEN": "${{ secrets.token }}"})
    done = project.run("tools", "pin")
    assert done.code == 1
    assert done.out.rstrip().endswith("sagactl help secrets")
    hints = [each.hint for each in examine(lambda: open_project(project.path)) if each.name == "servers"]
    assert hints == ["sagactl help secrets"]


def test_a_server_that_left_the_settings_leaves_the_pins(bench: Bench, project: Project) -> None:
    """What nobody names any more isn't kept; that is a change to agree to."""
    bench.configure()
    (project.path / "sagactl.toml").write_text("[mcp]\n")
    done = project.run("tools", "pin", "--check", "-o", "json")
    assert (done.code, done.json["servers"][0]["status"]) == (1, "removed")
    assert project.run("tools", "pin", "--yes").code == 0
    assert json.loads(lock(project))["servers"] == {}


def test_pins_that_were_edited_are_not_believed(project: Project) -> None:
    """A hash that isn't that of what it stands with makes the file useless, until all is pinned anew."""
    file = project.path / "plugins" / "mcp.lock.json"
    file.write_text(lock(project).replace("Write a line.", "Write two."))
    shown = project.run("tools", "-o", "json").json
    assert "by hand" in shown["broken"][0]["message"]
    assert project.run("tools", "pin", "--yes").code == 0
    assert project.run("tools", "test.put").code == 0


def test_a_server_that_is_not_pinned_says_so(project: Project) -> None:
    """Without pins there are no tools, and every look says how to get them."""
    (project.path / "plugins" / "mcp.lock.json").unlink()
    assert "sagactl tools pin test" in project.run("tools").out
    done = project.run("tools", "test.put")
    assert "(" + str(project.path / "sagactl.toml") + ")" in done.err, "no line 0"
    assert done.err.rstrip().endswith("sagactl tools pin test")
    assert "isn't pinned" in examined(project)


def test_doctor_says_which_servers_fail(bench: Bench, project: Project) -> None:
    """A server that can't be reached, or says something else, is a failure with a command."""
    assert "1 MCP server reached, as pinned" in examined(project)
    bench.mode("poisoned")
    assert "isn't what is pinned" in examined(project)
    bench.mode("won't start")
    assert "no licence" in examined(project)


def test_without_the_library_all_else_works(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra isn't installed, servers have no tools and every look says how to install it."""
    monkeypatch.setattr("sagactl.tools.mcp.servers.find_spec", lambda _: None)
    (broken,) = bench.project.registry.broken
    assert "pip install 'sagactl[mcp]'" in broken.message
    assert "shell.run" in bench.project.registry.tools
    (look,) = bench.servers.look()
    assert (look.status, "pip install" in (look.error or "")) == ("unreachable", True)


def examined(project: Project) -> str:
    """Return what doctor says of servers."""
    checks = examine(lambda: open_project(project.path))
    return "\n".join(check.text for check in checks if check.name == "servers")
