"""The sandbox itself: durable, private, shown and reset; the witness sees what it sees."""

from __future__ import annotations

import json
import signal
import sqlite3
import stat
import time
from pathlib import Path

import pytest

from sagactl import CallContext
from sagactl.errors import StorageError
from sagactl.sandbox.database import sandbox_path, transaction
from sagactl.sandbox.show import SandboxState, read_sandbox, reset_sandbox
from sagactl.sandbox.store import vendor
from tests.plugins.project import Project


def test_unused_sandbox_is_empty_and_not_made_by_looking(tmp_path: Path) -> None:
    """Showing or resetting a sandbox that was never used makes no file."""
    path = sandbox_path(tmp_path)
    assert read_sandbox(path) == SandboxState()
    assert reset_sandbox(path) == 0
    assert not path.parent.exists()


def test_state_shows_objects_and_effects_in_order(project: Project) -> None:
    """What `sandbox show` reads: objects by system, and all effects with their keys."""
    lead = project.done("crm.create_lead", {"email": "ada@example.com"}, key="one")
    charged = project.done("billing.charge", {**lead, "amount": 5}, key="two")
    state = project.state()
    assert list(state.systems) == ["billing", "crm"]
    (found,) = state.systems["billing"]
    assert (found.kind, found.id) == ("charge", charged["charge_id"])
    assert found.body == {**lead, "amount": 5, "card": "ok", "state": "charged"}
    assert [(entry.seq, entry.system, entry.effect, entry.key) for entry in state.ledger] == [
        (1, "crm", "lead created", "one"),
        (2, "billing", "charged", "two"),
    ]
    assert state.ledger[1].detail == charged


def test_reset_forgets_everything(project: Project) -> None:
    """After a reset nothing is left: objects, answers, tombstones, counts, and the ledger starts at 1."""
    project.done("crm.archive_lead", key="u", forward_key="a")
    project.done("crm.create_lead", {"email": "ada@example.com"}, key="b")
    assert reset_sandbox(sandbox_path(project.path)) == 1
    assert project.state() == SandboxState()
    project.done("crm.create_lead", {"email": "ada@example.com"})
    assert project.ledger()[0].seq == 1


def test_files_are_private(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """H39: the sandbox is 0600 in a folder 0700, whatever the umask."""
    import os

    before = os.umask(0)
    try:
        project.done("crm.create_lead", {"email": "ada@example.com"})
    finally:
        os.umask(before)
    path = sandbox_path(project.path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_link_in_its_place_is_refused(project: Project, tmp_path: Path) -> None:
    """H39: a symbolic link where the sandbox should be isn't followed."""
    path = sandbox_path(project.path)
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    assert project.word("crm.create_lead", {"email": "ada@example.com"})[0] == "unknown"
    assert not (tmp_path / "elsewhere").exists()


def test_damaged_file_is_an_error_with_a_way_out(project: Project) -> None:
    """A file that is no sandbox is a storage error that names the reset, and the reset works."""
    path = sandbox_path(project.path)
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageError) as caught:
        read_sandbox(path)
    assert caught.value.hint == "sagactl sandbox reset"
    assert reset_sandbox(path) == 0
    assert project.state() == SandboxState()


def test_file_of_a_newer_release_is_refused(project: Project) -> None:
    """A sandbox that a newer release made is neither read nor changed; a reset makes room."""
    path = sandbox_path(project.path)
    with transaction(path):
        pass
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StorageError, match="newer"):
        read_sandbox(path)
    reset_sandbox(path)
    assert project.state() == SandboxState()


def test_failure_within_a_call_leaves_nothing(tmp_path: Path) -> None:
    """Effect, answer and ledger line are one transaction: all of it or nothing."""
    context = CallContext("k", project=tmp_path)

    def fail(books: object) -> dict[str, object]:
        books.put("thing", "1", {})  # type: ignore[attr-defined]  # a Books
        books.note("made", {})  # type: ignore[attr-defined]  # likewise
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"), vendor("shop", context) as shop:
        shop.act({}, fail)
    assert read_sandbox(sandbox_path(tmp_path)) == SandboxState()


def test_witness_sees_begin_effect_and_end(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The witness's file has a line for the beginning, the effect and the end of each call; a replay has no effect."""
    witness = tmp_path / "witness.jsonl"
    monkeypatch.setenv("SAGACTL_SANDBOX_LEDGER", str(witness))
    for card in ("ok", "ok", "declined"):
        project.call("billing.charge", {"lead_id": "l", "amount": 1, "card": card}, key=card)
    lines = [json.loads(line) for line in witness.read_text().splitlines()]
    assert [line["phase"] for line in lines] == ["begin", "effect", "end", "begin", "end", "begin", "end"]
    assert [line.get("outcome") for line in lines if line["phase"] == "end"] == ["returned", "returned", "Rejected"]
    assert {"tool": "billing.charge", "key": "ok", "direction": "action", "attempt": 1}.items() <= lines[0].items()


def test_kill_counts_arrivals_over_processes(project: Project) -> None:
    """`SAGACTL_SANDBOX_KILL` counts over processes: the n-th arrival dies, those before and after don't."""
    order = {"SAGACTL_SANDBOX_KILL": "mail.send:before_effect:9, crm.create_lead:after_effect:2"}
    codes = []
    for n in range(3):
        child = project.start(("crm.create_lead", f"k{n}", f"k{n}", {"email": "ada@example.com"}), **order)
        child.communicate(timeout=60)
        codes.append(child.returncode)
    assert codes == [0, -9, 0]
    assert project.effects() == ["lead created"] * 3


def test_kill_at_any_moment_leaves_a_sound_sandbox(project: Project) -> None:
    """SIGKILL at any instant: what was acknowledged is there, each effect once, object and ledger together."""
    acknowledged = 0
    for turn in range(6):
        calls = [("crm.create_lead", f"{turn}/{n}", f"{turn}/{n}", {"email": "ada@example.com"}) for n in range(200)]
        child = project.start(*calls)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.005 * turn)
        child.send_signal(signal.SIGKILL)
        rest, _ = child.communicate(timeout=60)
        acknowledged += 1 + rest.count("succeeded")
    state = project.state()
    keys = [entry.key for entry in state.ledger]
    assert len(keys) == len(set(keys)) == len(state.systems["crm"])
    assert acknowledged <= len(keys) <= acknowledged + 6
