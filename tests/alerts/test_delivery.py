"""Alerts on their way from a run to a receiver, through processes that are killed and channels that are down."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.alerts.receiver import SECRET, Receiver, answer, receiving, take
from tests.cli.project import ROOT, WAIT_SECONDS, Project
from tests.servers.start import DEAD_PORT

STUCK = ("run", "onboarding", "-q", "-i", "email=bob@example.com", "-i", "amount:=1", "-i", "card=limbo")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Return a server that takes everything."""
    with receiving() as found:
        yield found


def make_project(path: Path, url: str, *, more: str = "") -> Project:
    """Return a project with one signed webhook."""
    project = Project.make(path)
    project.environ["HOOK_SECRET"] = SECRET
    (path / "sagactl.toml").write_text(
        f'[[alerts.channel]]\nname = "ops"\nkind = "webhook"\nurl = "{url}"\nsecret = {{env = "HOOK_SECRET"}}\n{more}'
    )
    return project


def change(project: Project, statement: str) -> None:
    """Change the log behind its back."""
    with closing(sqlite3.connect(project.path / ".sagactl" / "log.db")) as connection, connection:
        connection.execute(statement)


def states(project: Project) -> dict[str, str]:
    """Return each message's state at the channel."""
    found = project.run("outbox", "list", "--all", "-o", "json").json["items"]
    return {each["id"]: each["deliveries"][0]["state"] if each["deliveries"] else "" for each in found}


def test_a_stuck_run_is_told_and_then_its_end(tmp_path: Path, receiver: Receiver) -> None:
    """E12: a run that becomes stuck is told by its own process, once; when it ends a second message says so."""
    project = make_project(tmp_path, receiver.url)
    assert project.run(*STUCK).code == 11
    (post,) = receiver.posts
    run_id = post.json["data"]["run"]["id"]
    assert (post.json["type"], post.json["data"]["reason"]) == ("sagactl.alert.raised", "stuck")
    assert post.json["data"]["error"]["step"] == "deposit"
    assert post.json["data"]["commands"][0] == f"sagactl -C {project.path.resolve()} dlq show {run_id} deposit"
    assert project.run("dlq", "resolve", run_id, "--not-done", "--reason", "looked", "-q").code == 10
    assert [each.json["type"] for each in receiver.posts[1:]] == ["sagactl.alert.resolved"]
    assert receiver.posts[1].json["data"]["alert"] == post.id
    assert project.run("outbox", "list", "-o", "json").json["items"] == []
    assert project.run("verify").code == 0


def test_a_run_that_goes_its_way_tells_nobody(tmp_path: Path, receiver: Receiver) -> None:
    """A run that succeeds, or fails and is undone, is no alert."""
    project = make_project(tmp_path, receiver.url)
    assert project.run("run", "onboarding", "-q", "-i", "email=a@example.com", "-i", "amount:=1").code == 0
    failing = ("run", "onboarding", "-q", "-i", "email=refuses@example.com", "-i", "amount:=1")
    assert project.run(*failing).code == 10
    assert receiver.posts == []
    assert project.run("outbox", "list", "--all", "-o", "json").json["items"] == []


def _time_run(project: Project) -> float:
    began = time.monotonic()
    assert project.run(*STUCK).code == 11
    return time.monotonic() - began


def _hang(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(30)


def test_a_dead_channel_changes_no_run(tmp_path: Path, receiver: Receiver) -> None:
    """A run whose channel is down or hangs ends with the same code, within a small bound of the same time."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "down").mkdir()
    (tmp_path / "hang").mkdir()
    plain = _time_run(Project.make(tmp_path / "plain"))
    down = make_project(tmp_path / "down", f"http://127.0.0.1:{DEAD_PORT}/")
    assert _time_run(down) < 3 * plain + 3
    assert list(states(down).values()) == ["not_needed", "waiting"]
    receiver.answer = _hang
    hang = make_project(tmp_path / "hang", receiver.url)
    assert _time_run(hang) < 3 * plain + 8
    assert list(states(hang).values()) == ["not_needed", "waiting"], "others needn't wait for a lease"


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_between_the_record_and_its_delivery(tmp_path: Path, receiver: Receiver, when: str) -> None:
    """A run killed at any commit: an alert is there if its record is, is sent by whoever comes next, and only once."""
    for number in range(1, 30):
        folder = tmp_path / str(number)
        folder.mkdir()
        project = make_project(folder, receiver.url)
        receiver.posts.clear()
        script = str(ROOT / "tests" / "cli" / "kill_at.py")
        result = project.run_python(script, when, str(number), *STUCK)
        if result.code == 11:
            break
        assert result.code == -signal.SIGKILL
        if not (folder / ".sagactl" / "log.db").exists():
            continue
        left = project.run("outbox", "list", "--all", "-o", "json").json["items"]
        assert {each["reason"] for each in left} in (set(), {"dead_letter", "stuck"})
        assert project.run("outbox", "deliver").code == 0
        told = [each["id"] for each in left if each["reason"] == "stuck"]
        assert receiver.ids == told
        assert project.run("outbox", "deliver").code == 0
        assert receiver.ids == told
        assert project.run("verify").code == 0
    else:
        pytest.fail("the run never came to its end")
    assert number > 4


def test_the_next_run_sends_what_an_earlier_one_left(tmp_path: Path, receiver: Receiver) -> None:
    """An alert that couldn't be sent is sent by the next process of the project, whatever that does itself."""
    receiver.answer = answer(503)
    project = make_project(tmp_path, receiver.url)
    assert project.run(*STUCK).code == 11
    assert len(receiver.posts) == 1
    receiver.answer = take
    change(project, "UPDATE deliveries SET due_ms = 1 WHERE state = 'waiting'")
    assert project.run("run", "onboarding", "-q", "-i", "email=a@example.com", "-i", "amount:=1").code == 0
    assert receiver.ids == [receiver.ids[0]] * 2
    assert list(states(project).values()) == ["not_needed", "delivered"]


def test_killed_between_delivery_and_its_mark(tmp_path: Path, receiver: Receiver) -> None:
    """What was sent by somebody who was killed before he wrote it down is sent again at once, under the same id.

    That he is dead is certain on his own host, so nobody waits for his claim to lapse.
    """
    project = make_project(tmp_path, f"http://127.0.0.1:{DEAD_PORT}/")
    assert project.run(*STUCK).code == 11
    text = (tmp_path / "sagactl.toml").read_text()
    (tmp_path / "sagactl.toml").write_text(
        "\n".join(f'url = "{receiver.url}"' if line.startswith("url") else line for line in text.splitlines())
    )
    change(project, "UPDATE deliveries SET due_ms = 0 WHERE state = 'waiting'")
    pids: list[int] = []

    def kill(handler: BaseHTTPRequestHandler) -> None:
        os.kill(pids[0], signal.SIGKILL)

    receiver.answer = kill
    # The pid must be known before anything is sent, so the sender begins when it is told to.
    with project.start_python_after_line("-m", "sagactl", "outbox", "deliver") as sender:
        pids.append(sender.pid)
        sender.communicate("go\n", timeout=WAIT_SECONDS)
    assert sender.returncode == -signal.SIGKILL
    assert len(receiver.posts) == 1
    receiver.answer = take
    assert list(states(project).values()) == ["not_needed", "waiting"]
    assert project.run("outbox", "deliver").code == 0
    assert receiver.ids == [receiver.ids[0]] * 2
    assert receiver.posts[0].body == receiver.posts[1].body
    assert list(states(project).values()) == ["not_needed", "delivered"]


def test_what_failed_is_tried_again_when_it_is_due(tmp_path: Path, receiver: Receiver) -> None:
    """A channel that fails is tried again with growing delays, or when it said; `deliver` tells by its exit code."""
    receiver.answer = answer(429, b"slow down", retry_after="30")
    project = make_project(tmp_path, receiver.url)
    assert project.run(*STUCK).code == 11
    listed = project.run("outbox", "list", "-o", "json").json["items"][0]["deliveries"][0]
    assert (listed["state"], listed["attempts"], listed["error"]) == ("waiting", 1, "answered 429: slow down")
    assert project.run("outbox", "deliver").code == 0, "nothing is due"
    assert len(receiver.posts) == 1
    change(project, "UPDATE deliveries SET due_ms = 0 WHERE state = 'waiting'")
    receiver.answer = answer(500)
    failed = project.run("outbox", "deliver", "-o", "json")
    assert (failed.code, failed.json["items"][0]["failed"]) == (1, 1)
    assert "ops: answered 500; again in 2s" in failed.err
    receiver.answer = take
    time.sleep(2.2)
    done = project.run("outbox", "deliver", "-o", "jsonl")
    assert (done.code, [json.loads(line)["delivered"] for line in done.out.splitlines()]) == (0, [True])
    assert len(set(receiver.ids)) == 1


def test_what_another_process_is_sending_is_left_to_it(tmp_path: Path, receiver: Receiver) -> None:
    """A claim of a process that lives is respected, and `deliver` says whose it is and for how long."""
    project = make_project(tmp_path, f"http://127.0.0.1:{DEAD_PORT}/")
    assert project.run(*STUCK).code == 11
    text = (tmp_path / "sagactl.toml").read_text()
    (tmp_path / "sagactl.toml").write_text(re.sub(r'url = "[^"]*"', f'url = "{receiver.url}"', text))
    change(project, "UPDATE deliveries SET due_ms = 0 WHERE state = 'waiting'")
    may_end = threading.Event()

    def wait(handler: BaseHTTPRequestHandler) -> None:
        may_end.wait(60)
        take(handler)

    receiver.answer = wait
    with project.start("outbox", "deliver") as sender:
        receiver.wait(1)
        other = project.run("outbox", "deliver", extra={"COLUMNS": "200"})
        assert other.code == 0
        assert f"ops: 0 sent, the rest is held by pid {sender.pid} on " in other.out
        assert f"pid {sender.pid} sends it" in project.run("outbox", "list").out
        may_end.set()
        assert sender.wait(timeout=WAIT_SECONDS) == 0
    assert len(receiver.posts) == 1


def test_a_channel_that_hangs_keeps_no_other_waiting(tmp_path: Path, receiver: Receiver) -> None:
    """`deliver --watch` sends to each channel at its own pace, and a signal ends it although one hangs."""
    dead, home = f"http://127.0.0.1:{DEAD_PORT}/", f"http://127.0.0.1:{receiver.port}/"
    pager = f'name = "pager"\nkind = "webhook"\nurl = "{dead}pager"\nsecret = {{env = "HOOK_SECRET"}}\n'
    project = make_project(tmp_path, f"{dead}hangs", more=f"[[alerts.channel]]\n{pager}")
    assert project.run(*STUCK).code == 11
    (tmp_path / "sagactl.toml").write_text((tmp_path / "sagactl.toml").read_text().replace(dead, home))
    change(project, "UPDATE deliveries SET due_ms = 0 WHERE state = 'waiting'")
    may_end = threading.Event()

    def hang(handler: BaseHTTPRequestHandler) -> None:
        if handler.path.endswith("hangs"):
            may_end.wait(60)
        take(handler)

    receiver.answer = hang
    with project.start("outbox", "deliver", "--watch", "-o", "jsonl") as watching:
        told = json.loads(watching.stdout.readline()) if watching.stdout is not None else {}
        assert (told["name"], told["delivered"]) == ("pager", True)
        assert not may_end.is_set()
        watching.send_signal(signal.SIGTERM)
        assert watching.wait(timeout=WAIT_SECONDS) == 143
    may_end.set()


def test_two_that_deliver_at_once_send_each_message_once(tmp_path: Path, receiver: Receiver) -> None:
    """Within its lease a message belongs to one process: six runs' alerts arrive once each from two of them."""
    project = Project.make(tmp_path)
    for number in range(6):
        stuck = [word.replace("bob", f"bob{number}") for word in STUCK]
        assert project.run(*stuck).code == 11
    made = make_project_settings(project, receiver.url)
    with made.start("outbox", "deliver") as one, made.start("outbox", "deliver") as other:
        one.communicate(timeout=WAIT_SECONDS)
        other.communicate(timeout=WAIT_SECONDS)
    assert (one.returncode, other.returncode) == (0, 0)
    assert len(receiver.ids) == len(set(receiver.ids)) == 6


def make_project_settings(project: Project, url: str) -> Project:
    """Give an existing project a webhook."""
    project.environ["HOOK_SECRET"] = SECRET
    (project.path / "sagactl.toml").write_text(
        f'[[alerts.channel]]\nname = "ops"\nkind = "webhook"\nurl = "{url}"\nsecret = {{env = "HOOK_SECRET"}}\n'
    )
    return project


def test_watching_sends_what_comes_until_it_is_stopped(tmp_path: Path, receiver: Receiver) -> None:
    """`outbox deliver --watch` sends the alerts of runs that can't, and ends with the signal's code."""
    project = make_project(tmp_path, receiver.url)
    (tmp_path / "silent").mkdir()
    assert project.run("run", "onboarding", "-q", "-i", "email=a@example.com", "-i", "amount:=1").code == 0
    silent = Project(tmp_path / "silent", {"SAGACTL_LOG": str(tmp_path / ".sagactl" / "log.db")})
    for name in ("plugins", "sagas"):
        (tmp_path / "silent" / name).symlink_to(tmp_path / name)
    with project.start("outbox", "deliver", "--watch") as watching:
        assert silent.run(*STUCK).code == 11
        receiver.wait(1)
        while "delivered" not in states(silent).values():
            assert watching.poll() is None
        time.sleep(0.5)
        watching.send_signal(signal.SIGTERM)
        out, _ = watching.communicate(timeout=WAIT_SECONDS)
    assert (watching.returncode, out) == (143, "ops: 1 sent\n")
    assert len(receiver.posts) == 1


def test_nowhere_to_send_to_is_an_error_with_a_hint(tmp_path: Path) -> None:
    """Without a channel `deliver` says so; a wrong setting stops a run before anything is called."""
    project = Project.make(tmp_path)
    assert project.run(*STUCK).code == 11
    nowhere = project.run("outbox", "deliver", "-o", "json")
    assert (nowhere.code, nowhere.json["error"]["code"]) == (3, "no-channels")
    (tmp_path / "sagactl.toml").write_text("[alerts]\nchanel = []\n")
    wrong = project.run("run", "onboarding", "-q", "-i", "email=x@example.com", "-i", "amount:=1")
    assert wrong.code == 3
    assert "hint: did you mean channel?" in wrong.err
    assert project.run("list", "-o", "json").json["total"] == 1


def test_a_chat_is_told_by_apprise(tmp_path: Path, receiver: Receiver) -> None:
    """What Apprise speaks to is told title and text; its url, a secret, is never shown."""
    project = Project.make(tmp_path)
    project.environ["CHAT_URL"] = f"json://127.0.0.1:{receiver.port}/secret-token-77"
    (tmp_path / "sagactl.toml").write_text(
        '[[alerts.channel]]\nname = "chat"\nkind = "apprise"\nurl = {env = "CHAT_URL"}\nreasons = ["stuck"]\n'
    )
    project.run(*STUCK)
    project.run("outbox", "deliver")
    (post,) = receiver.posts
    assert post.path == "/secret-token-77"
    assert post.json["title"].startswith("onboarding ")
    assert " dlq show " in post.json["message"]
    assert post.json["type"] == "warning"
    receiver.answer = answer(500, b"secret-token-77")
    project.run(*[word.replace("bob", "eve") for word in STUCK])
    change(project, "UPDATE deliveries SET due_ms = 0 WHERE state IN ('waiting', 'sending')")
    failed = project.run("outbox", "deliver", "-o", "json")
    assert (failed.code, failed.json["items"][0]["last_error"]) == (
        1,
        "the service that Apprise knows as json did not take it",
    )
    assert "secret-token" not in failed.out + failed.err + project.run("outbox", "list", "-o", "json").out


APPROVED = """
saga: gated
steps:
  - id: lead
    tool: crm.create_lead
    with: {email: a@example.com}
    approval: true
"""


def test_who_must_approve_is_told_and_when_it_is_over(tmp_path: Path, receiver: Receiver) -> None:
    """A step that waits for an approval is an alert with the commands that answer it; the answer ends it."""
    project = make_project(tmp_path, receiver.url)
    (tmp_path / "sagas" / "gated.yaml").write_text(APPROVED)
    assert project.run("run", "gated", "-q").code == 12
    (post,) = receiver.posts
    data = post.json["data"]
    run_id = data["run"]["id"]
    assert (data["reason"], data["says"]) == ("approval", "lead waits for an approval")
    there = f"sagactl -C {project.path.resolve()}"
    assert data["commands"][:2] == [f"{there} approve {run_id} lead", f'{there} deny {run_id} lead --reason "..."']
    assert project.run("approve", run_id, "lead", "-q").code == 0
    assert [each.json["data"]["says"] for each in receiver.posts[1:]] == [
        "over: lead waits for an approval; the run is running"
    ]
    assert project.run("verify").code == 0


def test_secrets_do_not_leave(tmp_path: Path, receiver: Receiver) -> None:
    """E19: a secret of the settings isn't in a message, even where a tool's error repeats it."""
    project = make_project(tmp_path, receiver.url)
    assert project.run(*STUCK).code == 11
    project.environ["HOOK_SECRET"] = ""
    stuck = [word.replace("bob", "eve") for word in STUCK]
    assert project.run(*stuck).code == 11
    error = project.run("outbox", "list", "-o", "json").json["items"][-1]["deliveries"][0]["error"]
    assert error == "the variable HOOK_SECRET is not set"
    assert all(SECRET.encode() not in post.body for post in receiver.posts)
