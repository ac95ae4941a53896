"""Heads that are kept elsewhere tell what no log can tell of itself."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sagactl.core.records import RunStatus
from sagactl.documents import write_record_at
from sagactl.errors import InvalidError
from sagactl.log.base import Log
from sagactl.log.heads import KEPT_BYTES_MAX, Head, compare, list_heads, read_heads
from sagactl.log.memory import MemoryLog
from sagactl.log.sqlite import SqliteLog
from tests.log.samples import OTHER, Time, add, ended, intent, outcome, start

KEY = b"sixteen bytes or more"
OTHER_KEY = b"another key of the same kind"


@pytest.fixture(params=["sqlite", "memory"])
def log(request: pytest.FixtureRequest, path: Path, time: Time) -> Iterator[Log]:
    """Return a log of two runs, one of them ended."""
    made: Log = (
        SqliteLog(path, lease_clock=time.clock()) if request.param == "sqlite" else MemoryLog(lease_clock=time.clock())
    )
    with closing(made):
        lease = start(made)
        add(made, lease, intent(), outcome(), ended(), status=RunStatus.SUCCEEDED)
        made.release([lease])
        add(made, start(made, "run2"), intent())
        yield made


def export(log: Log, key: bytes | None = None) -> str:
    """Return the heads of a whole log, as they are printed."""
    return "\n".join(str(head) for head in list_heads(log.store_id, log.verify(), key, is_whole=True))


def problems(log: Log, kept: str, key: bytes | None = None) -> list[str]:
    """Return what the log, or the heads themselves, are found to lack."""
    return [finding.problem for finding in compare(log, read_heads(kept, log.store_id), key)]


def test_heads_hold_as_long_as_the_log_only_grows(log: Log, time: Time) -> None:
    """L7: kept heads hold at once, after more records and runs, and after their run was pruned."""
    kept = export(log)
    assert len(kept.splitlines()) == 3
    assert problems(log, kept) == []
    time.pass_ms(60_000)
    lease = log.claim("run2", holder=OTHER)
    add(log, lease, outcome(), ended(), status=RunStatus.SUCCEEDED)
    start(log, "run3")
    assert problems(log, kept) == []
    later = export(log)
    log.prune(["run1"], pruned_by="ada")
    assert problems(log, kept) == []
    assert problems(log, later) == []
    buried = export(log)
    assert ":tombstones:1:" in buried
    assert problems(log, buried) == []
    log.release([lease])
    log.prune(["run2"], pruned_by="ada")
    assert problems(log, buried) == []
    assert problems(log, kept) == []


@pytest.mark.parametrize("change", ["hash", "number", "run"])
def test_a_head_that_the_log_lacks_is_named(log: Log, change: str) -> None:
    """L7: another hash, a record that was cut off, a run that is gone: each is named by run and record."""
    head = read_heads(export(log), log.store_id)[0]
    other = {
        "hash": Head(head.store, "run1", head.number, "f" * 64),
        "number": Head(head.store, "run1", head.number + 1, head.hash),
        "run": Head(head.store, "run7", head.number, head.hash),
    }[change]
    (finding,) = compare(log, [other], None)
    assert (finding.run_id, finding.seq) == (other.what, other.number)
    assert "gone" in finding.problem


def test_a_tombstone_that_is_gone_is_named(log: Log) -> None:
    """L7: so is a pruning that was taken back."""
    log.prune(["run1"], pruned_by="ada")
    kept = export(log)
    assert problems(log, kept.replace(":tombstones:1:", ":tombstones:2:").rpartition("\n")[0]) == [
        "tombstone 2 is gone or another: the log was set back"
    ]


def test_heads_of_another_log_prove_nothing(log: Log) -> None:
    """L7: heads of another store are told as such."""
    assert "another log" in problems(log, export(log).replace(log.store_id, "0" * 32))[0]


def test_heads_of_two_logs_in_one_file_are_told_apart(log: Log) -> None:
    """L7: those of this log are compared, the others are named as such: they are no damage, and prove nothing."""
    kept = export(log)
    other = kept.replace(log.store_id, "0" * 32)
    for text in (f"{other}\n{kept}", f"{kept}\n{other}"):
        (problem,) = problems(log, text)
        assert problem.startswith("3 of 6 heads are those of another log (store 00000000, this is ")
    cut = Head(log.store_id, "run1", 9, "f" * 64)
    assert [each.split(":")[0] for each in problems(log, f"{other}\n{cut}")] == [
        f"3 of 4 heads are those of another log (store 00000000, this is {log.store_id[:8]})",
        "record 9 is gone or another",
    ]


def test_a_run_that_is_gone_is_told_from_one_of_another_log(log: Log) -> None:
    """L7: an event names its log; a bare record doesn't, so of a run that isn't there both are said."""
    stored = list(log.read("run1"))[-1]
    record = write_record_at("run7", stored.seq, stored.record, stored.hash)
    event = {"data": record, "store": log.store_id}
    assert problems(log, json.dumps(event)) == ["the run is gone: taken out, or the log was set back"]
    assert "or it is one of another log" in problems(log, json.dumps(record))[0]
    assert "another log (store 0000" in problems(log, json.dumps({**event, "store": "0" * 32}))[0]
    log.prune(["run1"], pruned_by="ada")
    assert problems(log, str(Head(log.store_id, "run1", 99, "f" * 64))) == [
        "record 99 is gone or another: cut off, rewritten or set back"
    ]
    with pytest.raises(InvalidError, match="line 1 is none"):
        read_heads(json.dumps({**event, "store": "x:run1"}), log.store_id)


def test_a_run_with_a_damaged_row_is_not_gone(path: Path, time: Time) -> None:
    """L7: its head is compared all the same, and the damage is told once, by the verification."""
    with closing(SqliteLog(path, lease_clock=time.clock())) as made:
        start(made)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE runs SET cause = 'odd'")
        (problem,) = problems(made, str(Head(made.store_id, "run1", 9, "f" * 64)))
    assert problem.startswith("record 9 is gone or another")


@pytest.mark.parametrize("lost", [0, 1])
def test_a_head_that_was_taken_out_of_the_list_is_missed(log: Log, lost: int) -> None:
    """L7: the last line counts the others, so a run can't vanish from the log and the list at once."""
    lines = export(log).splitlines()
    del lines[lost]
    assert problems(log, "\n".join(lines)) == ["the kept heads are not the 2 that were written"]
    assert problems(log, "\n".join([lines[0], lines[0], lines[1]])) == [
        "the kept heads are not the 2 that were written"
    ]


def test_lists_one_after_the_other_are_read_as_such(log: Log) -> None:
    """A file to which heads are appended again and again is one to compare with."""
    kept = export(log)
    start(log, "run3")
    assert problems(log, f"{kept}\n{export(log)}\n") == []


def test_signed_heads_can_not_be_made_up(log: Log) -> None:
    """L7, N8: with a key only signed heads count; unsigned, altered or otherwise signed ones are findings."""
    kept = export(log, KEY)
    assert problems(log, kept, KEY) == []
    assert problems(log, kept) == []
    assert len(problems(log, export(log), KEY)) == 3
    assert "has no signature" in problems(log, export(log), KEY)[0]
    assert "another signature" in problems(log, export(log, OTHER_KEY), KEY)[0]
    lines = kept.splitlines()
    moved = lines[0].replace(":run1:", ":run2:")
    assert len(problems(log, moved, KEY)) == 1
    assert "another signature" in problems(log, moved, KEY)[0]


def test_events_are_heads(log: Log) -> None:
    """L7: a file of events is compared by the last record of each run, bare or in its envelope."""
    lines = [
        json.dumps(write_record_at(run_id, stored.seq, stored.record, stored.hash))
        for run_id in ("run1", "run2")
        for stored in log.read(run_id)
    ]
    enveloped = [json.dumps({"specversion": "1.0", "data": json.loads(line)}) for line in lines]
    for text in ("\n".join(lines), "\n".join(enveloped), "\n".join(reversed(lines))):
        heads = read_heads(text, log.store_id)
        assert sorted((head.what, head.number) for head in heads) == [("run1", 5), ("run2", 3)]
        assert compare(log, heads, None) == []
    changed = lines[-1].replace(json.loads(lines[-1])["hash"], "e" * 64)
    assert [finding.run_id for finding in compare(log, read_heads(changed, log.store_id), None)] == ["run2"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n \n",
        "sagactl-head-1",
        "sagactl-head-1:x:run1:1:y",
        "sagactl-head-1:" + "a" * 32 + ":run1:-1:" + "b" * 64,
        "sagactl-head-1:" + "a" * 32 + ":run1:1:" + "b" * 64 + ":c",
        "sagactl-head-2:" + "a" * 32 + ":run1:1:" + "b" * 64,
        "{",
        "{}",
        '{"schema": "sagactl.record/1", "run_id": "run1", "seq": true, "hash": 1}',
        '{"schema": "sagactl.record/1", "run_id": "run1", "seq": 1e999, "hash": "f"}',
        '{"schema": "sagactl.heads/1", "heads": [{}]}',
        '{"schema": "sagactl.heads/1", "heads": 7}',
        '{"data": ' * 5_000,
        "\x1b[31m" + "é" * 10,
    ],
)
def test_what_is_no_head_is_refused(log: Log, text: str) -> None:
    """Anything else is an error that names the line and shows nothing of it."""
    with pytest.raises(InvalidError, match="no heads that sagactl wrote") as caught:
        read_heads(text, log.store_id)
    assert caught.value.message.isascii()


def test_what_is_kept_is_bounded(log: Log) -> None:
    """Limits: more than the limit isn't taken apart."""
    with pytest.raises(InvalidError, match="characters"):
        read_heads(" " * (KEPT_BYTES_MAX + 1), log.store_id)
