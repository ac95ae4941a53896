"""The release saga on real repositories: from every failure and every kill, nothing has happened or everything has."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import Result
from tests.sagas.repositories import Repositories, make_template, read_refs, run_git
from tests.sagas.served import Server

FORWARD = (
    *("git.check", "artefacts.keep", "shell.run_idempotent", "artefacts.stage", "git.tag", "git.push"),
    *("artefacts.publish", "artefacts.announce", "artefacts.forget"),
)
UNDOS = ("git.restore_refs", "git.delete_tag", "artefacts.unstage", "artefacts.put_back", "artefacts.forget")
WHEN = ("before", "after")
BEHIND_THE_PIVOT = {("artefacts.publish", "after"), ("artefacts.announce", "before")}
BACK = [*((tool, when) for tool in FORWARD[:-2] for when in WHEN), ("artefacts.announce", "before")]

OCCUPY = "mkdir -p $BASE/store/1.0.0 && echo theirs > $BASE/store/1.0.0/app.txt"
"""Somebody else publishes the same version: the pivot is rejected, and all that was done is undone."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a project to copy."""
    folder = tmp_path_factory.mktemp("template") / "it"
    make_template(folder)
    return folder


@pytest.fixture
def world(template: Path, tmp_path: Path) -> Repositories:
    """Give a project to release."""
    return Repositories.copy(template, tmp_path / "world")


def _latest(server: Server, world: Repositories) -> dict[str, Any]:
    run: dict[str, Any] = server.run(world.project, "show", "-o", "json").json["run"]
    return run


def _without_theirs(snapshot: dict[str, Any]) -> dict[str, Any]:
    store = {path: what for path, what in snapshot["store"].items() if not path.startswith("1.0.0")}
    return {**snapshot, "store": store}


def _fail_at_publish(world: Repositories) -> None:
    world.build_before()
    world.hook(world.remote, "post-receive", OCCUPY)


def test_a_release_is_built_tagged_pushed_published_and_announced(server: Server, world: Repositories) -> None:
    """The whole of it; and a second `run` of the same version is the same run."""
    before = world.snapshot()
    done = server.run(world.project, *world.arguments(), "-o", "json")
    assert done.code == 0, done.err
    world.check_released(before, former=False)
    assert done.json["run"]["output"]["commit"] == run_git(world.app, "rev-parse", "HEAD")
    after = world.snapshot()
    again = server.run(world.project, *world.arguments(), "-o", "json")
    assert (again.code, again.json["run"]["id"]) == (0, done.json["run"]["id"])
    assert world.snapshot() == after


def test_a_branch_that_is_there_already_only_gets_its_tag(server: Server, world: Repositories) -> None:
    """As in CI, where a commit is pushed first and released then."""
    run_git(world.app, "push", "-q", "origin", "main")
    before = world.snapshot()
    assert server.run(world.project, *world.arguments()).code == 0
    world.check_released(before, former=False)


def _occupy_tag(world: Repositories) -> None:
    run_git(world.remote, "tag", "v1.0.0", "main")


def _make_artefact_a_folder(world: Repositories) -> None:
    (world.app / "dist" / "app.txt").mkdir(parents=True)


def _take_store_away(world: Repositories) -> None:
    (world.store).rmdir()


def _take_identity_away(world: Repositories) -> None:
    run_git(world.app, "config", "user.useConfigOnly", "true")
    world.project.environ = {k: v for k, v in world.project.environ.items() if k.startswith("GIT_CONFIG")}


def _refuse_push(world: Repositories) -> None:
    world.hook(world.remote, "pre-receive", "echo no releases on Fridays >&2; exit 1")


def _move_remote_on(world: Repositories) -> None:
    world.script("during-build", "cd $BASE && git -C remote.git update-ref refs/heads/main $(cat $BASE/other)")
    old = run_git(world.remote, "rev-parse", "main")
    (world.folder / "other").write_text(world.push_as_colleague())
    run_git(world.remote, "update-ref", "refs/heads/main", old)


FAILURES: dict[str, tuple[Callable[[Repositories], None], dict[str, Any], str]] = {
    "before": (_occupy_tag, {}, "tag_exists"),
    "keep": (_make_artefact_a_folder, {}, "not_a_file"),
    "build": (
        lambda world: world.build_before(),
        {"build": ["sh", "-c", "printf half > dist/app.txt; exit 3"]},
        "exit_3",
    ),
    "build, first": (
        lambda _: None,
        {"build": ["sh", "-c", "mkdir dist; printf half > dist/app.txt; exit 3"]},
        "exit_3",
    ),
    "build, nothing": (lambda world: world.build_before(), {"build": ["no-such-program"]}, "command_not_found"),
    "stage": (lambda _: None, {"build": ["true"]}, "no_artefact"),
    "stage, no store": (_take_store_away, {}, "no_store"),
    "tag": (_take_identity_away, {}, "git_refused"),
    "push": (_refuse_push, {}, "remote_refused"),
    "publish": (_fail_at_publish, {}, "release_exists"),
}


@pytest.mark.parametrize("step", FAILURES)
def test_a_step_that_fails_leaves_everything_as_it_was(step: str, server: Server, world: Repositories) -> None:
    """E7, E10, E11: every ref and every file is what it was, whichever step fails."""
    prepare, inputs, code = FAILURES[step]
    prepare(world)
    before = world.snapshot()
    failed = server.run(world.project, *world.arguments(**inputs), "-o", "json")
    assert failed.code == 10, failed.err
    run = failed.json["run"]
    assert (run["status"], run["not_undone"]) == ("rolled_back", [])
    assert run["error"]["type"] == code, run["error"]
    assert _without_theirs(world.snapshot()) == _without_theirs(before)
    assert (world.store / "1.0.0").exists() == (step == "publish")  # theirs stays


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("tool", FORWARD)
def test_a_release_killed_in_any_tool_is_completed(tool: str, when: str, server: Server, world: Repositories) -> None:
    """E1, E6, E17: SIGKILL before and after each effect; `resume` releases, each effect once."""
    world.build_before()
    before = world.snapshot()
    assert server.run(world.project, *world.arguments(), kill={"tool": tool, "when": when}).code == -9
    resumed = server.run(world.project, "resume", "--all", "-q")
    assert resumed.code == 0, resumed.err
    world.check_released(before, former=True)


@pytest.mark.parametrize(("tool", "when"), BACK)
def test_a_release_killed_in_any_tool_is_undone_on_demand(
    tool: str, when: str, server: Server, world: Repositories
) -> None:
    """E7, E13, E22: `rollback` puts back what the killed run has done; behind the pivot it is refused."""
    world.build_before()
    before = world.snapshot()
    assert server.run(world.project, *world.arguments(), kill={"tool": tool, "when": when}).code == -9
    rolled = server.run(world.project, "rollback", _latest(server, world)["id"], "-q", "--reason", "test")
    if (tool, when) in BEHIND_THE_PIVOT:
        assert rolled.code == 6, rolled.err
        assert server.run(world.project, "resume", "--all", "-q").code == 0
        world.check_released(before, former=True)
        return
    assert rolled.code == 0, rolled.err
    assert _latest(server, world)["not_undone"] == []
    assert world.snapshot() == before


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("tool", UNDOS)
def test_a_rollback_killed_in_any_undo_is_completed(tool: str, when: str, server: Server, world: Repositories) -> None:
    """E12, E17: SIGKILL before and after each undo; `resume` ends as if nothing had happened."""
    _fail_at_publish(world)
    before = world.snapshot()
    assert server.run(world.project, *world.arguments(), kill={"tool": tool, "when": when}).code == -9
    resumed = server.run(world.project, "resume", "--all", "-q")
    assert resumed.code == 10, resumed.err
    assert _latest(server, world)["not_undone"] == []
    assert _without_theirs(world.snapshot()) == before


def _count_commits(server: Server, world: Repositories) -> int:
    return int(server.run(world.project, *world.arguments()).err.rsplit("commits ", 1)[1])


@pytest.mark.parametrize("scene", ["released", "rolled back"])
def test_a_release_killed_at_any_commit_ends_in_the_same_place(
    scene: str, server: Server, template: Path, tmp_path: Path
) -> None:
    """E1, E2, E17: SIGKILL around each durable transaction, there, and from where the run turns around."""
    prepare, status = (
        (Repositories.build_before, "succeeded") if scene == "released" else (_fail_at_publish, "rolled_back")
    )
    whole = Repositories.copy(template, tmp_path / "whole")
    prepare(whole)
    count = _count_commits(server, whole)
    first = 2 if scene == "released" else count - len(UNDOS) - 2
    assert count > 8
    for number in range(first, count + 1):
        world = Repositories.copy(template, tmp_path / str(number))
        prepare(world)
        before = world.snapshot()
        when = WHEN[number % 2]
        killed = server.run(world.project, *world.arguments(), kill={"commit": number, "when": when})
        assert killed.code == -9 or number > count - 2  # the last two steps share commits as it happens
        server.run(world.project, "resume", "--all", "-q")
        assert _latest(server, world)["status"] == status
        if scene == "released":
            world.check_released(before, former=True)
        else:
            assert _without_theirs(world.snapshot()) == before


ONCE = "[ -e $BASE/fired ] || { touch $BASE/fired; kill -9 $PID; sleep 0.3; }"
"""The first time, sagactl dies; git outlives it, and what it does lands later."""

MIDST = {
    "half-way through the build": ("during-build", ONCE),
    "before the remote accepts": ("pre-receive", ONCE),
    "between two refs": ("update", f'[ "$1" = refs/heads/main ] || {ONCE}'),
    "when the remote has accepted": ("post-receive", ONCE),
    "before the tag is there": ("reference-transaction", f'[ "$1" = committed ] || {ONCE}'),
    "when the tag is there": ("reference-transaction", f'[ "$1" = prepared ] || {ONCE}'),
}


def _kill_in_the_midst(world: Repositories, place: str) -> None:
    name, script = MIDST[place]
    if name == "during-build":
        world.script(name, script)
    else:
        world.hook(world.app / ".git" if name == "reference-transaction" else world.remote, name, f"{script}; exit 0")


@pytest.mark.parametrize("command", ["resume", "rollback"])
@pytest.mark.parametrize("place", MIDST)
def test_a_release_killed_in_the_midst_of_an_effect(
    place: str, command: str, server: Server, world: Repositories
) -> None:
    """E6, E9: git and the build go on when sagactl is dead, and yet what is done next sees what they have done."""
    world.build_before()
    _kill_in_the_midst(world, place)
    before = world.snapshot()
    assert server.run(world.project, *world.arguments()).code == -9
    run_id = _latest(server, world)["id"]
    done = server.run(world.project, command, run_id, "-q")
    assert done.code == 0, done.err
    if command == "resume":
        world.check_released(before, former=True)
    else:
        time.sleep(0.4)  # nothing lands behind its back
        assert world.snapshot() == before


def test_a_colleague_who_pushes_during_the_build_is_not_overwritten(server: Server, world: Repositories) -> None:
    """The remote isn't where it was: the push is rejected, what was done here is undone, theirs stays."""
    _move_remote_on(world)
    before = world.snapshot()
    failed = server.run(world.project, *world.arguments(), "-o", "json")
    assert (failed.code, failed.json["run"]["error"]["type"]) == (10, "moved_on")
    theirs = (world.folder / "other").read_text()
    assert world.snapshot() == {**before, "remote": {**before["remote"], "refs/heads/main": theirs}}


def test_a_colleague_who_pushes_in_the_very_instant_is_not_overwritten(server: Server, world: Repositories) -> None:
    """Between git's look and its push: the remote compares, and refuses."""
    _move_remote_on(world)
    (world.app / "during-build").rename(world.app / ".git" / "during")
    world.hook(world.app / ".git", "pre-push", "sh $BASE/app/.git/during")
    before = world.snapshot()
    failed = server.run(world.project, *world.arguments(), "-o", "json")
    assert (failed.code, failed.json["run"]["error"]["type"]) == (10, "remote_refused")
    theirs = (world.folder / "other").read_text()
    assert world.snapshot() == {**before, "remote": {**before["remote"], "refs/heads/main": theirs}}


def _push_on_top(server: Server, world: Repositories) -> tuple[dict[str, Any], Result]:
    """Let a colleague build upon what was pushed, and then let the release fail."""
    killed = server.run(world.project, *world.arguments(), kill={"tool": "artefacts.publish", "when": "before"})
    assert killed.code == -9
    world.push_as_colleague()
    (world.store / "1.0.0").mkdir()
    (world.store / "1.0.0" / "app.txt").write_text("theirs")
    seen = world.snapshot()
    return seen, server.run(world.project, "resume", "--all", "-q")


def test_what_a_colleague_built_upon_our_push_is_left_to_a_person(server: Server, world: Repositories) -> None:
    """E12, E23: an undo that would destroy a later push is rejected; the run is stuck and nothing of it is touched."""
    seen, resumed = _push_on_top(server, world)
    assert resumed.code == 11, resumed.err
    assert world.snapshot()["remote"] == seen["remote"]
    letters = server.run(world.project, "dlq", "list", "-o", "json").json
    assert [letter["step"] for letter in letters["items"]] == ["push"], letters
    run = _latest(server, world)
    left = [each["step"] for each in run["not_undone"]]
    assert left == ["push", "tag", "stage", "build", "keep"]  # and not `before`, which only looked
    run_id = run["id"]
    shown = server.run(world.project, "show", run_id).out
    assert "keep: waits for push" in shown
    assert "before: waits" not in shown
    again = server.run(world.project, "dlq", "retry", run_id, "push", "-q")
    assert again.code == 11
    assert world.snapshot()["remote"] == seen["remote"]


def test_a_person_who_took_the_push_back_lets_the_rest_be_undone(server: Server, world: Repositories) -> None:
    """E23: `dlq resolve --done` carries the rollback on, and the tag of our own goes."""
    _, resumed = _push_on_top(server, world)
    assert resumed.code == 11
    old = run_git(world.app, "rev-parse", "main~1")
    run_git(world.remote, "update-ref", "refs/heads/main", old)
    run_git(world.remote, "update-ref", "-d", "refs/tags/v1.0.0")
    run_id = _latest(server, world)["id"]
    done = server.run(world.project, "dlq", "resolve", run_id, "push", "--done", "--reason", "by hand", "-q")
    assert done.code == 10, done.err
    assert read_refs(world.app).keys() & {"refs/tags/v1.0.0"} == set()
    assert not (world.store / ".staging").exists()


def _move_to_another_machine(world: Repositories) -> Repositories:
    """Give a fresh clone with the log and nothing else of the machine that was lost."""
    other = world.folder / "other-machine"
    run_git(world.folder, "clone", "-q", "remote.git", "other-machine")
    for name in ("plugins", "sagas"):
        shutil.copytree(world.app / name, other / name)
    (other / ".sagactl").mkdir(mode=0o700)
    for file in (world.app / ".sagactl").glob("log.db*"):
        shutil.copy2(file, other / ".sagactl" / file.name)
    shutil.rmtree(world.app)
    other.rename(world.app)
    return world


def test_another_machine_with_the_log_completes_what_was_pushed(server: Server, world: Repositories) -> None:
    """The machine is gone between the push and the pivot; the log, the remote and the store are enough."""
    assert server.run(world.project, *world.arguments(), kill={"tool": "git.push", "when": "after"}).code == -9
    _move_to_another_machine(world)
    resumed = server.run(world.project, "resume", "--all", "-q")
    assert resumed.code == 0, resumed.err
    assert (world.store / "1.0.0" / "app.txt").read_text() == "app 1.0.0"
    assert len((world.store / "releases.jsonl").read_text().splitlines()) == 1


def test_another_machine_with_the_log_undoes_what_was_pushed(server: Server, world: Repositories) -> None:
    """Likewise back: the refs of the remote and the store are as they were."""
    before = world.snapshot()
    assert server.run(world.project, *world.arguments(), kill={"tool": "git.push", "when": "after"}).code == -9
    _move_to_another_machine(world)
    rolled = server.run(world.project, "rollback", _latest(server, world)["id"], "-q", "--reason", "machine lost")
    assert rolled.code == 0, rolled.err
    after = world.snapshot()
    assert (after["remote"], after["store"]) == (before["remote"], before["store"])


def test_another_machine_without_the_tag_goes_back(server: Server, world: Repositories) -> None:
    """A tag that was made and not pushed went with the machine: it can't be pushed, so nothing is released."""
    before = world.snapshot()
    run_git(world.app, "push", "-q", "origin", "main")
    moved = world.snapshot()["remote"]
    assert server.run(world.project, *world.arguments(), kill={"tool": "git.push", "when": "before"}).code == -9
    _move_to_another_machine(world)
    resumed = server.run(world.project, "resume", "--all", "-q", "-o", "json")
    assert (resumed.code, resumed.json["items"][0]["run"]["error"]["type"]) == (10, "not_here"), resumed.out
    after = world.snapshot()
    assert (after["remote"], after["store"]) == (moved, before["store"])


def test_a_lost_log_releases_nothing_twice(server: Server, world: Repositories) -> None:
    """Without the log a new run finds the tag and stops before it does anything."""
    assert server.run(world.project, *world.arguments(), kill={"tool": "git.push", "when": "after"}).code == -9
    shutil.rmtree(world.app / ".sagactl")
    seen = world.snapshot()
    failed = server.run(world.project, *world.arguments(), "-o", "json")
    assert (failed.code, failed.json["run"]["error"]["type"]) == (10, "tag_exists")
    assert world.snapshot() == seen


def test_an_announcement_that_fails_is_made_up_for(server: Server, world: Repositories) -> None:
    """E13: behind the pivot nothing goes back; when the feed can be written again, `resume` writes one line."""
    before = world.snapshot()
    (world.store / "releases.jsonl").mkdir()
    waiting = server.run(world.project, *world.arguments(), "--no-wait", "-o", "json")
    assert waiting.code == 12, waiting.err
    (world.store / "releases.jsonl").rmdir()
    resumed = server.run(world.project, "resume", "--all", "-q")
    assert resumed.code == 0, resumed.err
    world.check_released(before, former=False)


def test_a_release_can_be_withdrawn_with_a_reason(server: Server, world: Repositories) -> None:
    """E22: `rollback --past-pivot` takes it out of the store and off the remote; what stays is listed."""
    before = world.snapshot()
    assert server.run(world.project, *world.arguments()).code == 0
    run_id = _latest(server, world)["id"]
    rolled = server.run(world.project, "rollback", run_id, "--past-pivot", "--reason", "it is broken", "--yes", "-q")
    assert rolled.code == 0, rolled.err
    after = world.snapshot()
    assert after["remote"] == before["remote"]
    assert after["local"] == before["local"]
    assert list(after["store"]) == ["releases.jsonl"]
    assert [left["step"] for left in _latest(server, world)["not_undone"]] == ["tidy", "announce"]


def test_real_processes_of_the_command_line_are_killed_alike(world: Repositories) -> None:
    """The same with `python -m sagactl`, so that nothing here rests on how these tests start it."""
    world.build_before()
    before = world.snapshot()
    world.hook(world.remote, "post-receive", ONCE)
    (world.folder / "pid").write_text("")
    process = world.project.start(*world.arguments())
    (world.folder / "pid").write_text(str(process.pid))
    process.communicate(timeout=120)
    assert process.returncode == -9
    resumed = world.project.run("resume", "--all", "-q")
    assert resumed.code == 0, resumed.err
    world.check_released(before, former=True)
    assert json.loads(world.project.run("verify", "-o", "json").out)["error"] is None


def test_a_release_that_is_resumed_on_another_commit_is_put_back(server: Server, world: Repositories) -> None:
    """What is published is what is tagged: the build was killed, and another commit is checked out by now."""
    world.script("during-build", "[ -e $BASE/fired ] || { touch $BASE/fired; kill -9 $PID; sleep 2; }")
    assert server.run(world.project, *world.arguments()).code == -9
    refs = read_refs(world.remote)
    run_git(world.app, "commit", "-q", "--allow-empty", "-m", "later")
    (run_id,) = server.run(world.project, "list", "--ids").out.split()
    resumed = server.run(world.project, "resume", run_id, "-q", "-o", "json")
    assert resumed.code == 10, resumed.err
    assert (resumed.json["run"]["error"]["step"], resumed.json["run"]["error"]["type"]) == ("same", "moved")
    assert read_refs(world.remote) == refs
    assert list(world.store.iterdir()) == []
