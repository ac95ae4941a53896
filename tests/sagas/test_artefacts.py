"""The plugins `artefacts` and `deploy` called directly: repeated, interrupted and late calls, and what is others'."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sagactl.core.records import OutcomeKind
from tests.plugins.project import Project
from tests.sagas.repositories import read_tree

STAGE = {"path": "app.txt", "store": "store", "version": "1"}
STORE = {"store": "store"}
SITE = {"source": "build", "site": "site", "version": "7"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a project with an artefact, a store and a site."""
    (tmp_path / "app.txt").write_text("app")
    for folder in ("store", "site", "build"):
        (tmp_path / folder).mkdir()
    (tmp_path / "build" / "index.html").write_text("seven")
    return Project(tmp_path)


def test_a_file_that_is_kept_twice_is_the_former_one(project: Project) -> None:
    """E8: another try of `keep` after the build has begun doesn't take the build's file for the former one."""
    kept = project.done("artefacts.keep", {"path": "app.txt"}, key="a")
    (project.path / "app.txt").write_text("half")
    assert project.done("artefacts.keep", {"path": "app.txt"}, key="a", attempt=2) == kept
    for _ in range(2):
        undone = project.done("artefacts.put_back", {"path": "app.txt", **kept}, key="u", forward_key="b")
        assert undone == {"status": "put_back"}
        assert (project.path / "app.txt").read_text() == "app"
    assert project.done("artefacts.forget", key="c", forward_key="a") == {"status": "forgotten"}
    assert project.done("artefacts.forget", key="c", forward_key="a") == {"status": "nothing_kept"}
    assert not (project.path / ".sagactl" / "kept").exists()


def test_folders_that_a_build_made_go_with_it(project: Project) -> None:
    """Where there was nothing there is nothing again; a folder in which somebody else has put something stays."""
    kept = project.done("artefacts.keep", {"path": "out/x/app.txt"}, key="a")
    (project.path / "out" / "x").mkdir(parents=True)
    (project.path / "out" / "x" / "app.txt").write_text("new")
    (project.path / "out" / "theirs").write_text("")
    project.done("artefacts.put_back", {"path": "out/x/app.txt", **kept}, key="u", forward_key="b")
    assert list(read_tree(project.path / "out")) == ["theirs"]


def test_a_staging_that_broke_off_is_begun_anew(project: Project) -> None:
    """What an earlier try has left half is replaced, and the undo leaves the store as it was."""
    staged = project.done("artefacts.stage", STAGE, key="a")
    folder = project.path / "store" / ".staging" / str(staged["staged"])
    (folder / "release.json").unlink()
    (folder / "app.txt").write_text("ha")
    assert project.done("artefacts.stage", STAGE, key="a", attempt=2) == staged
    assert (folder / "app.txt").read_text() == "app"
    assert project.done("artefacts.unstage", STORE, key="u", forward_key="a") == {"status": "removed"}
    assert project.done("artefacts.unstage", STORE, key="u", forward_key="a") == {"status": "nothing_staged"}
    assert read_tree(project.path / "store") == {}


def test_a_release_is_published_once_and_withdrawn_by_its_own_only(project: Project) -> None:
    """E8: the same key again gives the same; what somebody else published is neither replaced nor withdrawn."""
    ours = {"store": "store", "version": "1", "staged": project.done("artefacts.stage", STAGE, key="a")["staged"]}
    theirs = {**ours, "staged": project.done("artefacts.stage", STAGE, key="b")["staged"]}
    first = project.done("artefacts.publish", ours, key="p")
    assert project.done("artefacts.publish", ours, key="p", attempt=2) == first
    assert project.word("artefacts.publish", theirs, key="q") == ("rejected", "release_exists")
    assert project.word("artefacts.stage", STAGE, key="c") == ("rejected", "release_exists")
    withdrawn = project.done("artefacts.withdraw", theirs, key="u", forward_key="q")
    assert withdrawn == {"status": "nothing_of_ours"}
    assert project.done("artefacts.withdraw", ours, key="u", forward_key="p") == {"status": "withdrawn"}
    assert not (project.path / "store" / "1").exists()


def test_an_announcement_is_one_whole_line_after_a_crash(project: Project) -> None:
    """A line that was cut off goes, the same key adds none twice, and the lines of others stay."""
    feed = project.path / "store" / "releases.jsonl"
    feed.write_text('{"version": "0", "text": "é"}\n{"version": "1", "te')
    for attempt in (1, 2):
        arguments = {"store": "store", "version": "1", "text": "new"}
        assert project.call("artefacts.announce", arguments, key="a", attempt=attempt).kind is OutcomeKind.SUCCEEDED
    lines = [json.loads(line) for line in feed.read_text().splitlines()]
    assert [(line["version"], line["text"]) for line in lines] == [("0", "é"), ("1", "new")]


def test_a_release_that_is_in_use_is_not_removed(project: Project) -> None:
    """A link that points to it: somebody has switched since, so a person must look."""
    target = project.done("deploy.install", SITE, key="a")["target"]
    assert project.done("deploy.install", SITE, key="a", attempt=2) == {"target": target}
    (project.path / "site" / "current").symlink_to(str(target))
    remove = {"site": "site", "version": "7"}
    assert project.word("deploy.remove", remove, key="u", forward_key="a") == ("rejected", "in_use")
    (project.path / "site" / "current").unlink()
    assert project.done("deploy.remove", remove, key="u", forward_key="b") == {"status": "nothing_of_ours"}
    assert project.done("deploy.remove", remove, key="u", forward_key="a") == {"status": "removed"}
    assert read_tree(project.path / "site") == {}


def test_a_link_that_somebody_moved_is_left_alone_both_ways(project: Project) -> None:
    """Compare and set: neither direction overwrites what it didn't expect."""
    for version in ("6", "7", "8"):
        (project.path / "site" / "releases" / version).mkdir(parents=True)
    move = {"site": "site", "link": "current", "old": "releases/6", "new": "releases/7"}
    link = project.path / "site" / "current"
    link.symlink_to("releases/8")
    assert project.word("deploy.point", move, key="a") == ("rejected", "moved_on")
    assert project.word("deploy.point_back", move, key="u", forward_key="a") == ("rejected", "moved_on")
    assert str(link.readlink()) == "releases/8"
    link.unlink()
    link.symlink_to("releases/6")
    assert project.done("deploy.point_back", move, key="u", forward_key="a") == {"status": "nothing_to_undo"}
