"""The git plugin called directly: what each failure of git comes to, and that nothing of it outlives a call."""

from __future__ import annotations

import http.server
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sagactl.core.canonical import Json
from sagactl.core.records import ProbeAnswer
from tests.plugins.project import TOOLBOX, Project
from tests.sagas.repositories import IDENTITY, Repositories, make_template, read_refs, run_git


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a project to copy."""
    folder = tmp_path_factory.mktemp("template") / "it"
    make_template(folder)
    return folder


@pytest.fixture
def world(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repositories:
    """Give a repository with a remote; git in this process has an identity and no configuration."""
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    found = Repositories.copy(template, tmp_path / "world")
    (found.folder / "pid").write_text("0")
    return found


def _tools(world: Repositories) -> Project:
    return Project(world.app)


def _push_arguments(world: Repositories, **facts: Any) -> dict[str, Any]:
    head, old = run_git(world.app, "rev-parse", "HEAD", "main~1").split()
    update = {"ref": "refs/heads/main", "old": old, "new": head}
    return {"updates": [update, {"ref": "refs/heads/new", "old": None, "new": head}], **facts}


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers every request with the status in its path."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.split("/")[1]))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
        """Say nothing."""


@pytest.fixture
def web_port() -> Iterator[int]:
    """Give the port of a server that refuses."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("remote", "word"),
    [
        ("git://127.0.0.1:1/x.git", ("unavailable", "no_network")),
        ("http://127.0.0.1:1/x.git", ("unavailable", "no_network")),
        ("http://127.0.0.1:{port}/503/x.git", ("unavailable", "no_network")),
        ("http://127.0.0.1:{port}/401/x.git", ("rejected", "no_permission")),
        ("http://127.0.0.1:{port}/403/x.git", ("rejected", "no_permission")),
        ("http://127.0.0.1:{port}/404/x.git", ("rejected", "no_permission")),
        ("../nowhere/x.git", ("rejected", "no_permission")),
        ("nowhere", ("rejected", "no_remote")),
        ("ext::sh -c touch% owned", ("rejected", "no_remote")),
        ("ext::sh -c touch% ./owned", ("rejected", "no_permission")),
        ("--upload-pack=touch ./owned", ("rejected", "bad_name")),
    ],
)
def test_what_a_failure_to_reach_the_remote_comes_to(
    remote: str, word: tuple[str, str], world: Repositories, web_port: int
) -> None:
    """E3: no line is worth another try, no permission is not, and no remote makes git run a command."""
    arguments = _push_arguments(world, remote=remote.format(port=web_port))
    assert _tools(world).word("git.push", arguments) == word
    assert not (world.app / "owned").exists()


@pytest.mark.parametrize("scheme", ["git", "http"])
def test_a_password_in_a_url_is_not_told(scheme: str, world: Repositories) -> None:
    """What git says goes to the log; a password that stands in the remote's URL does not."""
    arguments = _push_arguments(world, remote=f"{scheme}://ada:s3cret@127.0.0.1:1/x.git")
    answer = _tools(world).call("git.push", arguments)
    assert answer.failure is not None
    assert "127.0.0.1" in answer.failure.message
    assert "s3cret" not in answer.failure.message


@pytest.mark.parametrize("name", ["-d", "--list", "a..b", "a b", "a/-b", "a.lock", "@{", ""])
def test_names_that_git_would_misread_are_refused(name: str, world: Repositories) -> None:
    """A name is never an option, and always one that git allows."""
    head = run_git(world.app, "rev-parse", "HEAD")
    kind, code = _tools(world).word("git.tag", {"name": name, "commit": head})
    assert (kind, code in {"bad_arguments", "bad_name"}) == ("rejected", True)
    assert run_git(world.app, "tag") == ""


def test_a_tag_is_known_by_its_key(world: Repositories) -> None:
    """E7, E8: the same key gives the same tag; another's tag of that name is neither taken for ours nor deleted."""
    tools, head = _tools(world), run_git(world.app, "rev-parse", "HEAD")
    made = tools.done("git.tag", {"name": "v1", "commit": head}, key="a")
    assert tools.done("git.tag", {"name": "v1", "commit": head}, key="a", attempt=2) == made
    assert tools.word("git.tag", {"name": "v1", "commit": head}, key="b") == ("rejected", "tag_exists")
    assert tools.done("git.delete_tag", {"name": "v1"}, key="c", forward_key="b") == {"status": "nothing_of_ours"}
    assert tools.done("git.delete_tag", {"name": "v1"}, key="c", forward_key="a") == {"status": "deleted"}
    assert tools.done("git.delete_tag", {"name": "v1"}, key="c", forward_key="a") == {"status": "nothing_of_ours"}
    run_git(world.app, "tag", "v1")
    assert tools.done("git.delete_tag", {"name": "v1"}, key="c", forward_key="a") == {"status": "nothing_of_ours"}
    assert run_git(world.app, "tag") == "v1"


def test_a_push_moves_all_refs_or_none(world: Repositories) -> None:
    """One ref that may not be moved keeps the others back, and the outcome is certain."""
    world.hook(world.remote, "update", '[ "$1" = refs/heads/main ]')
    before = read_refs(world.remote)
    assert _tools(world).word("git.push", _push_arguments(world)) == ("rejected", "remote_refused")
    assert read_refs(world.remote) == before


def test_a_line_that_broke_when_the_push_was_taken_leaves_doubt(world: Repositories) -> None:
    """E3: whatever the remote's hook printed, the push may have arrived; here it has, and the probe says so."""
    world.hook(
        world.remote, "post-receive", "echo 'Permission denied, connection refused' >&2; sleep 0.2; kill -9 $PPID"
    )
    arguments = _push_arguments(world)
    kind, _ = _tools(world).word("git.push", arguments, key="a")
    assert kind == "unknown"
    asked = _tools(world).invoke("git.find_push", arguments, key="a", forward_key="a")
    assert TOOLBOX.probe(asked).answer is ProbeAnswer.DONE


def test_a_push_back_and_forth_twice(world: Repositories) -> None:
    """E8, E12: each a second time changes nothing."""
    tools, before = _tools(world), read_refs(world.remote)
    arguments = _push_arguments(world)
    first = tools.done("git.push", arguments, key="a")
    after = read_refs(world.remote)
    assert tools.done("git.push", arguments, key="a", attempt=2) == first
    assert read_refs(world.remote) == after != before
    assert tools.done("git.restore_refs", arguments, key="c", forward_key="a") == {"status": "restored"}
    assert read_refs(world.remote) == before
    assert tools.done("git.restore_refs", arguments, key="c", forward_key="a") == {"status": "nothing_to_restore"}
    assert read_refs(world.remote) == before


def test_a_branch_is_only_pushed_forward(world: Repositories) -> None:
    """A commit that doesn't follow the remote's would throw commits away: rejected."""
    head, old = run_git(world.app, "rev-parse", "HEAD", "main~1").split()
    run_git(world.app, "push", "-q", "origin", "main")
    update: dict[str, Json] = {"ref": "refs/heads/main", "old": head, "new": old}
    assert _tools(world).word("git.push", {"updates": [update]}) == ("rejected", "not_forward")


def test_a_call_that_is_over_ends_git_and_all_that_it_started(world: Repositories) -> None:
    """E14: a remote that hangs: git and the hook are killed, the outcome is unknown, and the probe can tell."""
    world.hook(world.remote, "pre-receive", "echo $$ > $BASE/hook; exec sleep 120")
    arguments = _push_arguments(world)
    started = time.monotonic()
    assert _tools(world).word("git.push", arguments, key="a", seconds_left=10.0) == ("unknown", "TimeoutError")
    assert time.monotonic() - started < 90
    hook = int((world.folder / "hook").read_text())
    for _ in range(1_000):
        if not Path(f"/proc/{hook}").exists() or "Z" in Path(f"/proc/{hook}/stat").read_text().split(") ")[1][:1]:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the hook is still there")
    asked = _tools(world).invoke("git.find_push", arguments, key="a", forward_key="a")
    assert TOOLBOX.probe(asked).answer is ProbeAnswer.NOT_DONE


def test_a_hook_that_starts_sagactl_does_not_lead_it_astray(
    world: Repositories, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git tells its hooks which repository they are in; another one is meant here."""
    head = run_git(world.remote, "rev-parse", "main")
    commit = run_git(world.app, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(world.remote))
    monkeypatch.setenv("GIT_INDEX_FILE", os.devnull)
    found = _tools(world).done("git.check", {"branch": "main", "tag": "v1"})
    assert (found["commit"], found["branch"]) == (commit, head)


def test_uncommitted_changes_are_not_released(world: Repositories) -> None:
    """What is built must be what is tagged."""
    (world.app / "app.c").write_text("changed")
    assert _tools(world).word("git.check", {"branch": "main", "tag": "v1"}) == ("rejected", "not_committed")
