"""Events out: every record, in order for each run, at least once, to a file or a signed url."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from tests.alerts.receiver import SECRET, Receiver, answer, receiving, take
from tests.cli.project import ROOT, WAIT_SECONDS, Project

WELL = ("run", "onboarding", "-q", "-i", "amount:=1", "-i", 'servers:=["a", "b"]')


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Return a server that takes everything."""
    with receiving() as found:
        yield found


def make_project(path: Path, settings: str) -> Project:
    """Return a project that publishes events."""
    project = Project.make(path)
    project.environ["HOOK_SECRET"] = SECRET
    (path / "sagactl.toml").write_text(f"[events]\n{settings}\n")
    return project


def to_url(url: str) -> str:
    """Return settings for events to a url."""
    return f'url = "{url}"\nsecret = {{env = "HOOK_SECRET"}}'


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a file; each line must be whole."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_run(events: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return the numbers of each run's events in the order in which they came."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in events:
        found[event["subject"]].append(event["data"]["seq"])
    return found


def heads(project: Project) -> dict[str, int]:
    """Return the last record of each run."""
    return {run["id"]: run["seq"] for run in project.run("list", "--limit", "0", "-o", "json").json["items"]}


def change(project: Project, statement: str) -> None:
    """Change the log behind its back."""
    with closing(sqlite3.connect(project.path / ".sagactl" / "log.db")) as connection, connection:
        connection.execute(statement)


def test_a_file_has_every_record_as_a_cloud_event(tmp_path: Path) -> None:
    """A run publishes its records while it runs: CloudEvents 1.0, one a line, as `log -o jsonl` has them."""
    project = make_project(tmp_path, 'file = "out/events.jsonl"')
    assert project.run(*WELL, "-i", "email=ada@example.com").code == 0
    events = read_events(tmp_path / "out" / "events.jsonl")
    (run_id,) = heads(project)
    logged = [json.loads(line) for line in project.run("log", run_id, "-o", "jsonl").out.splitlines()]
    assert [event["data"] for event in events] == logged
    assert events[0] == {
        "specversion": "1.0",
        "id": f"event_{run_id}_1",
        "source": "/sagactl/onboarding",
        "type": "sagactl.record.run_created",
        "subject": run_id,
        "time": logged[0]["at"],
        "datacontenttype": "application/json",
        "dataschema": "urn:sagactl.record:1",
        "store": project.run("verify", "--head", "-o", "json").json["store"],
        "data": logged[0],
    }
    assert (tmp_path / "out" / "events.jsonl").stat().st_mode & 0o777 == 0o600
    assert project.run("outbox", "deliver", "-o", "json").json["items"][0]["delivered"] == 0


def test_processes_that_share_a_file_keep_each_run_in_order(tmp_path: Path) -> None:
    """Runs of several processes, and one that delivers for all: each event once, whole, after the one before it."""
    project = make_project(tmp_path, 'file = "events.jsonl"')
    assert project.run(*WELL, "-i", "email=first@example.com").code == 0
    with project.start("outbox", "deliver", "--watch") as watching:
        with (
            project.start(*WELL, "-i", "email=a@example.com") as one,
            project.start(*WELL, "-i", "email=refuses@example.com") as other,
        ):
            one.communicate(timeout=WAIT_SECONDS)
            other.communicate(timeout=WAIT_SECONDS)
        assert (one.returncode, other.returncode) == (0, 10)
        time.sleep(1.5)
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=WAIT_SECONDS)
    assert watching.returncode == 130
    assert project.run("outbox", "deliver").code == 0
    found = by_run(read_events(tmp_path / "events.jsonl"))
    assert found == {run_id: list(range(1, head + 1)) for run_id, head in heads(project).items()}
    assert len(found) == 3


def test_what_a_killed_writer_left_of_a_line_is_cut_off(tmp_path: Path) -> None:
    """A line that was torn by a kill is written anew, whole; what was there before stays."""
    project = make_project(tmp_path, 'file = "events.jsonl"')
    assert project.run(*WELL, "-i", "email=a@example.com").code == 0
    file = tmp_path / "events.jsonl"
    before = file.read_text()
    file.write_text(before + '{"torn": "' + "x" * 200_000)
    assert project.run(*WELL, "-i", "email=b@example.com").code == 0
    text = file.read_text()
    assert text.startswith(before)
    assert len(by_run(read_events(file))) == 2
    file.write_text('{"nothing": "whole')
    assert project.run(*WELL, "-i", "email=c@example.com").code == 0
    assert len(by_run(read_events(file))) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_commit_no_event_is_lost(tmp_path: Path, when: str) -> None:
    """A run killed anywhere and resumed: every record comes, none before the one before it; some perhaps twice."""
    script = str(ROOT / "tests" / "cli" / "kill_at.py")
    for number in (2, 4, 6, 8):
        folder = tmp_path / str(number)
        folder.mkdir()
        project = make_project(folder, 'file = "events.jsonl"')
        killed = project.run_python(script, when, str(number), *WELL, "-i", "email=a@example.com")
        assert killed.code == -signal.SIGKILL
        project.run("resume", "--all", "-q")
        change(project, "UPDATE cursors SET due_ms = 0")
        assert project.run("outbox", "deliver").code == 0
        for run_id, numbers in by_run(read_events(folder / "events.jsonl")).items():
            assert sorted(set(numbers)) == list(range(1, heads(project)[run_id] + 1))
            firsts = [number for place, number in enumerate(numbers) if number not in numbers[:place]]
            assert firsts == sorted(firsts)


def test_a_url_gets_each_event_signed_and_in_order(tmp_path: Path, receiver: Receiver) -> None:
    """Events to a url are one POST each, signed, of the media type of CloudEvents."""
    project = make_project(tmp_path, to_url(receiver.url))
    assert project.run(*WELL, "-i", "email=a@example.com").code == 0
    assert project.run("outbox", "deliver").code == 0
    (head,) = heads(project).values()
    assert [post.json["data"]["seq"] for post in receiver.posts] == list(range(1, head + 1))
    assert {post.headers["content-type"] for post in receiver.posts} == {"application/cloudevents+json"}
    assert [post.id for post in receiver.posts] == [post.json["id"] for post in receiver.posts]
    Webhook(SECRET).verify(receiver.posts[-1].body, receiver.posts[-1].headers)


def test_a_url_that_fails_is_gone_on_with_where_it_failed(tmp_path: Path, receiver: Receiver) -> None:
    """Nothing is sent past an event that didn't arrive; later it goes on right there."""

    def fail_at_four(handler: BaseHTTPRequestHandler) -> None:
        (take if len(receiver.posts) < 4 else answer(503))(handler)

    receiver.answer = fail_at_four
    project = make_project(tmp_path, to_url(receiver.url))
    assert project.run(*WELL, "-i", "email=a@example.com").code == 0
    assert {post.json["data"]["seq"] for post in receiver.posts} == {1, 2, 3, 4}
    (behind,) = project.run("outbox", "list", "-o", "json").json["events_behind"]
    assert (behind["seq"], behind["error"]) == (3, "answered 503")
    listed = project.run("outbox", "list").out
    assert "of 1 run not sent yet" in listed
    assert "answered 503" in listed
    receiver.answer = take
    change(project, "UPDATE cursors SET due_ms = 0")
    tried = len(receiver.posts)
    assert project.run("outbox", "deliver").code == 0
    (head,) = heads(project).values()
    assert [post.json["data"]["seq"] for post in receiver.posts[tried:]] == list(range(4, head + 1))


def test_killed_between_an_event_and_its_mark(tmp_path: Path, receiver: Receiver) -> None:
    """Whoever is killed after an event arrived sends it again, under the same id, and then the next."""
    project = Project.make(tmp_path)
    assert project.run(*WELL, "-i", "email=a@example.com").code == 0
    project.environ["HOOK_SECRET"] = SECRET
    (tmp_path / "sagactl.toml").write_text(f"[events]\n{to_url(receiver.url)}\n")
    pids: list[int] = []

    def kill_at_three(handler: BaseHTTPRequestHandler) -> None:
        if len(receiver.posts) == 3:
            os.kill(pids[0], signal.SIGKILL)
        else:
            take(handler)

    receiver.answer = kill_at_three
    with project.start_python_after_line("-m", "sagactl", "outbox", "deliver") as sender:
        pids.append(sender.pid)
        sender.communicate("go\n", timeout=WAIT_SECONDS)
    assert sender.returncode == -signal.SIGKILL
    delivered = project.run("outbox", "deliver")  # at once: he is certainly dead
    (head,) = heads(project).values()
    assert (delivered.code, delivered.out) == (0, f"events: {head} sent\n")
    assert [post.json["data"]["seq"] for post in receiver.posts] == [1, 2, 3, *range(1, head + 1)]
    assert len({post.id for post in receiver.posts}) == head


def test_the_next_run_sends_what_an_earlier_one_left(tmp_path: Path, receiver: Receiver) -> None:
    """What one process could not send, the next one of the project does, beside its own."""
    receiver.answer = answer(503)
    project = make_project(tmp_path, to_url(receiver.url))
    assert project.run(*WELL, "-i", "email=a@example.com").code == 0
    receiver.answer = take
    receiver.posts.clear()
    change(project, "UPDATE cursors SET due_ms = 1")
    assert project.run(*WELL, "-i", "email=b@example.com").code == 0
    assert by_run([post.json for post in receiver.posts]) == {
        run_id: list(range(1, head + 1)) for run_id, head in heads(project).items()
    }


def test_a_file_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    """A target that is broken changes no run: the events wait, and the error is told."""
    project = make_project(tmp_path, 'file = "sagas/events.jsonl/x"')
    (tmp_path / "sagas" / "events.jsonl").write_text("")
    assert project.run(*WELL, "-i", "email=a@example.com").code == 0
    assert "can't be written" in project.run("outbox", "list").out
