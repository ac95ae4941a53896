"""Branches, commits and merges of the git plugin: known by their key, taken back exactly, nothing of anybody else."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from sagactl.core.canonical import Json
from sagactl.core.records import ProbeAnswer
from tests.plugins.project import REGISTRY, TOOLBOX, Project
from tests.sagas.repositories import IDENTITY, Repositories, make_template, read_refs, run_git

COMMIT: dict[str, Json] = {"branch": "main", "paths": ["new.c", "app.c", "gone.c"], "message": "Change\n\nall of it"}
BACK: dict[str, Json] = {"branch": "main", "paths": ["new.c", "app.c", "gone.c"]}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a project to copy."""
    folder = tmp_path_factory.mktemp("template") / "it"
    make_template(folder)
    app = folder / "app"
    (app / "gone.c").write_text("goes\n")
    (app / "kept.c").write_text("stays\n")
    run_git(app, "add", ".")
    run_git(app, "commit", "-q", "-m", "three")
    return folder


@pytest.fixture
def world(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repositories:
    """Give a work tree with a new, a changed, a deleted file, and one that isn't to be committed."""
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    found = Repositories.copy(template, tmp_path / "world")
    (found.app / "new.c").write_text("new\n")
    (found.app / "app.c").write_text("changed\n")
    (found.app / "gone.c").unlink()
    (found.app / "kept.c").write_text("of somebody else\n")
    return found


def _look(world: Repositories) -> dict[str, Any]:
    """Return all that an undo must put back: refs, index, status, and what lies about in the git folder."""
    return {
        "refs": read_refs(world.app),
        "index": run_git(world.app, "ls-files", "--stage"),
        "status": run_git(world.app, "status", "--porcelain"),
        "left": sorted(path.name for path in (world.app / ".git").glob("sagactl-*")),
    }


def _find(world: Repositories, tool: str, arguments: dict[str, Json], key: str = "a") -> tuple[ProbeAnswer, Json]:
    asked = Project(world.app).invoke(tool, arguments, key=key, forward_key=key)
    reply = TOOLBOX.probe(asked)
    return reply.answer, reply.output


def test_a_commit_has_what_is_named_and_is_taken_back_exactly(world: Repositories) -> None:
    """E7, E8, E12: the same key, the probe, the undo twice; index and work tree are as they were."""
    tools, before = Project(world.app), _look(world)
    assert _find(world, "git.find_commit", BACK)[0] is ProbeAnswer.NOT_DONE
    first = tools.done("git.commit", COMMIT)
    after = _look(world)
    assert tools.done("git.commit", COMMIT, attempt=2) == first
    assert _look(world) == after
    said = run_git(world.app, "show", "--format=%B", "--name-status", "HEAD").splitlines()
    assert [line for line in said if line] == [
        "Change",
        "all of it",
        "Saga-Key: a",
        "M\tapp.c",
        "D\tgone.c",
        "A\tnew.c",
    ]
    assert after["status"] == "M kept.c"  # as `run_git` strips it
    assert _find(world, "git.find_commit", BACK) == (ProbeAnswer.DONE, first)
    assert _find(world, "git.find_commit", BACK, "b")[0] is ProbeAnswer.NOT_DONE
    assert tools.done("git.take_back", BACK, key="u", forward_key="b") == {"status": "nothing_of_ours"}
    assert tools.done("git.take_back", BACK, key="u", forward_key="a") == {"status": "taken_back"}
    assert tools.done("git.take_back", BACK, key="u", forward_key="a") == {"status": "nothing_of_ours"}
    assert _look(world) == before
    assert (world.app / "app.c").read_text() == "changed\n"


def test_a_commit_of_somebody_else_on_top_stays(world: Repositories) -> None:
    """E12: the undo is rejected, nothing moves, and a person decides."""
    tools = Project(world.app)
    tools.done("git.commit", COMMIT)
    run_git(world.app, "commit", "-q", "-m", "theirs", "kept.c")
    before = _look(world)
    assert tools.word("git.take_back", BACK, key="u", forward_key="a") == ("rejected", "moved_on")
    assert _look(world) == before
    assert _find(world, "git.find_commit", BACK)[0] is ProbeAnswer.DONE


CHANGES: dict[str, Any] = {
    "amended with theirs": lambda app: (
        run_git(app, "add", "kept.c"),
        run_git(app, "commit", "-q", "--amend", "--no-edit"),
    ),
    "amended under another message": lambda app: run_git(app, "commit", "-q", "--amend", "-m", "theirs"),
    "renamed": lambda app: run_git(app, "branch", "-m", "main", "trunk"),
    "renamed, and another in its place": lambda app: (
        run_git(app, "branch", "-m", "main", "trunk"),
        run_git(app, "branch", "main", "trunk~1"),
    ),
    "squashed": lambda app: (
        run_git(app, "reset", "-q", "--soft", "HEAD~2"),
        run_git(app, "commit", "-q", "-m", "all"),
    ),
}


@pytest.mark.parametrize("knows", [True, False], ids=["known", "lost"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_commit_that_somebody_has_changed_is_theirs(change: str, knows: bool, world: Repositories) -> None:
    """E12: whatever became of it, the undo is rejected and moves nothing, with the output and where it was lost."""
    tools = Project(world.app)
    made = tools.done("git.commit", COMMIT)["commit"]
    CHANGES[change](world.app)
    before = _look(world)
    told: dict[str, Json] = {**BACK, "made": made} if knows else BACK
    assert tools.word("git.take_back", told, key="u", forward_key="a") == ("rejected", "moved_on")
    assert _look(world) == before


def test_a_commit_that_is_back_already_needs_no_undo(world: Repositories) -> None:
    """E12: an undo that is repeated, also under commits of others by then, and one by hand, have nothing to do."""
    tools = Project(world.app)
    told: dict[str, Json] = {**BACK, "made": tools.done("git.commit", COMMIT)["commit"]}
    undo: dict[str, Any] = {"arguments": told, "key": "u", "forward_key": "a"}
    assert tools.done("git.take_back", **undo) == {"status": "taken_back"}
    assert tools.done("git.take_back", **undo) == {"status": "nothing_of_ours"}
    run_git(world.app, "commit", "-q", "-m", "theirs", "kept.c")
    assert tools.done("git.take_back", **undo) == {"status": "nothing_of_ours"}
    again: dict[str, Json] = {**BACK, "made": tools.done("git.commit", COMMIT, key="b")["commit"]}
    run_git(world.app, "reset", "-q", "HEAD~1")
    before = _look(world)
    assert tools.done("git.take_back", again, key="v", forward_key="b") == {"status": "nothing_of_ours"}
    assert _look(world) == before


@pytest.mark.parametrize(
    ("disturb", "code"),
    [
        (lambda app: run_git(app, "add", "kept.c"), "staged"),
        (lambda app: run_git(app, "checkout", "-q", "-b", "other"), "not_checked_out"),
        (lambda app: (app / ".git" / "MERGE_HEAD").write_text(run_git(app, "rev-parse", "HEAD")), "in_progress"),
        (lambda app: run_git(app, "checkout", "-q", "HEAD", "--", "app.c"), "nothing_to_commit"),
        (lambda app: (app / ".git" / "refs/heads/main.lock").touch(), "busy"),
    ],
)
def test_where_a_commit_would_take_along_more_it_is_refused(disturb: Any, code: str, world: Repositories) -> None:
    """E3: nothing has happened, and nothing lies about."""
    disturb(world.app)
    (world.app / "new.c").unlink()
    before = _look(world)
    kind, found = Project(world.app).word("git.commit", {**COMMIT, "paths": ["app.c"]})
    assert (kind, found) == ("unavailable" if code == "busy" else "rejected", code)
    assert _look(world) == before


GIVEN: dict[str, Json] = {
    **COMMIT,
    "name": "x",
    "tag": "x",
    "revision": "main",
    "commit": "0" * 40,
    "updates": [],
}


@pytest.mark.parametrize("tool", sorted(name for name in REGISTRY.tools if name.startswith("git.")))
def test_no_repository_outside_of_the_project_is_reached(tool: str, world: Repositories) -> None:
    """Whatever the input says, nothing is done beyond the project's folder; a folder of a repository is one."""
    inside = Project(world.app / "src")
    inside.path.mkdir()
    (inside.path / "out").symlink_to(world.app)
    names = TOOLBOX.facts(tool).arguments_schema["properties"]
    assert isinstance(names, dict)
    given = {name: value for name, value in GIVEN.items() if name in names}
    before = _look(world)
    for outside in ("..", str(world.app), "out", "./../src/.."):
        assert inside.word(tool, {**given, "repository": outside}) == ("rejected", "outside")
    assert _look(world) == before
    commit = run_git(world.app, "rev-parse", "HEAD")
    assert inside.done("git.check_head", {"commit": commit, "repository": "."})["commit"] == commit


@pytest.mark.parametrize("paths", [["../outside"], ["*.c"], ["nothing"], ["dist"]])
def test_paths_are_taken_as_they_are_written(paths: list[Json], world: Repositories) -> None:
    """No pattern, nothing outside of the repository, nothing that is ignored."""
    (world.app / "dist").mkdir()
    (world.app / "dist" / "x").touch()
    assert Project(world.app).word("git.commit", {**COMMIT, "paths": paths}) == ("rejected", "git_refused")


def test_an_index_that_was_left_behind_is_brought_along(world: Repositories) -> None:
    """E17: killed between branch and index: the probe completes it, and so does the same key."""
    tools = Project(world.app)
    old = run_git(world.app, "rev-parse", "HEAD")
    tools.done("git.commit", COMMIT)
    whole = _look(world)
    run_git(world.app, "reset", "-q", old, "--", "new.c", "app.c", "gone.c")
    assert _look(world) != whole
    assert _find(world, "git.find_commit", BACK)[0] is ProbeAnswer.DONE
    assert _look(world) == whole
    run_git(world.app, "reset", "-q", old, "--", "new.c", "app.c", "gone.c")
    (world.app / ".git" / "index.lock").touch()
    assert tools.word("git.commit", COMMIT, attempt=2)[0] == "unknown"  # it is committed, so nothing else can be said
    (world.app / ".git" / "index.lock").unlink()
    tools.done("git.commit", COMMIT, attempt=3)
    assert _look(world) == whole


def test_a_branch_is_made_once_and_deleted_where_it_is_ours(world: Repositories) -> None:
    """E7, E8, E12: known by its reflog; with a commit of somebody else on it, or checked out, it stays."""
    tools, before = Project(world.app), _look(world)
    head, old = run_git(world.app, "rev-parse", "HEAD", "HEAD~1").split()
    arguments: dict[str, Json] = {"name": "topic/x", "commit": head}
    undo: dict[str, Any] = {"arguments": arguments, "key": "u", "forward_key": "a"}
    assert tools.done("git.delete_branch", **undo) == {"status": "nothing_of_ours"}
    first = tools.done("git.branch", arguments)
    assert tools.done("git.branch", arguments, attempt=2) == first
    assert _find(world, "git.find_branch", arguments) == (ProbeAnswer.DONE, first)
    assert tools.word("git.branch", arguments, key="b") == ("rejected", "branch_exists")
    assert _find(world, "git.find_branch", arguments, "b")[0] is ProbeAnswer.NOT_DONE
    assert tools.done("git.delete_branch", arguments, key="u", forward_key="b") == {"status": "nothing_of_ours"}
    run_git(world.app, "update-ref", "refs/heads/topic/x", old)
    assert tools.word("git.delete_branch", **undo) == ("rejected", "moved_on")
    run_git(world.app, "update-ref", "refs/heads/topic/x", head)
    run_git(world.app, "worktree", "add", "-q", "../tree", "topic/x")
    assert tools.word("git.delete_branch", **undo) == ("rejected", "checked_out")
    run_git(world.app, "worktree", "remove", "../tree")
    run_git(world.app, "branch", "-m", "topic/x", "other")
    assert tools.word("git.delete_branch", **undo) == ("rejected", "moved_on")
    run_git(world.app, "branch", "-m", "other", "topic/x")
    assert tools.done("git.delete_branch", **undo) == {"status": "deleted"}
    assert tools.done("git.delete_branch", **undo) == {"status": "nothing_of_ours"}
    assert _look(world) == before


def test_a_branch_without_its_reflog_is_not_deleted_and_not_forgotten(world: Repositories) -> None:
    """An undo that can't tell whose it is asks a person, where the action is known to have made it."""
    tools, head = Project(world.app), run_git(world.app, "rev-parse", "HEAD")
    arguments: dict[str, Json] = {"name": "topic", "commit": head}
    tools.done("git.branch", arguments)
    (world.app / ".git" / "logs" / "refs" / "heads" / "topic").unlink()
    known = tools.word("git.delete_branch", {**arguments, "made": head}, key="u", forward_key="a")
    assert known == ("rejected", "not_certain")
    assert run_git(world.app, "rev-parse", "topic") == head


def test_a_merge_is_a_commit_of_its_own_and_is_taken_back(world: Repositories) -> None:
    """E7, E8, E12: on a branch that nobody has checked out, without a conflict, and back to where it was."""
    tools = Project(world.app)
    run_git(world.app, "branch", "side", "HEAD~1")
    arguments: dict[str, Json] = {"branch": "side", "revision": "main"}
    before = _look(world)
    first = tools.done("git.merge", arguments)
    assert tools.done("git.merge", arguments, attempt=2) == first
    assert len(run_git(world.app, "rev-list", "--parents", "-n1", "side").split()) == 3
    assert _find(world, "git.find_commit", {"branch": "side"}) == (ProbeAnswer.DONE, first)
    assert tools.done("git.take_back", {"branch": "side"}, key="u", forward_key="a") == {"status": "taken_back"}
    assert tools.done("git.take_back", {"branch": "side"}, key="u", forward_key="a") == {"status": "nothing_of_ours"}
    assert _look(world) == before
    assert tools.word("git.merge", {"branch": "main", "revision": "side"}) == ("rejected", "checked_out")
    assert tools.word("git.merge", {"branch": "side", "revision": "side~1"}) == ("rejected", "nothing_to_merge")
    assert tools.word("git.merge", {"branch": "side", "revision": "nowhere"}) == ("rejected", "no_commit")


def test_a_conflict_is_rejected_and_names_the_files(world: Repositories) -> None:
    """E3: nothing is half merged."""
    run_git(world.app, "checkout", "-q", "-f", "-b", "side", "HEAD~1")
    (world.app / "app.c").write_text("theirs\n")
    run_git(world.app, "commit", "-q", "-m", "theirs", "app.c")
    run_git(world.app, "checkout", "-q", "-f", "main")
    (world.app / "app.c").write_text("ours\n")
    run_git(world.app, "commit", "-q", "-m", "ours", "app.c")
    before = _look(world)
    answer = Project(world.app).call("git.merge", {"branch": "side", "revision": "main"})
    assert answer.failure is not None
    assert (answer.failure.type, answer.failure.message) == ("conflict", "conflicts in app.c")
    assert _look(world) == before


def test_two_calls_at_once_make_one_commit(world: Repositories) -> None:
    """E15: the second waits for the first and answers as it did."""
    tools, found = Project(world.app), list[Json]()
    threads = [threading.Thread(target=lambda: found.append(tools.done("git.commit", COMMIT))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 3
    assert run_git(world.app, "log", "--format=%s", "-2") == "Change\nthree"
    assert os.environ["GIT_AUTHOR_NAME"] == "Ada"
