"""What somebody did to a log is noticed, or is named as what can't be noticed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sagactl.core.definition import spell_snapshot
from sagactl.core.records import RunStatus
from sagactl.errors import DamagedLogError
from sagactl.log.base import Lease, Log, Verification
from sagactl.log.chain import Link, chain_hash, genesis_hash
from sagactl.log.memory import MemoryLog
from sagactl.log.open import open_log
from sagactl.log.sqlite import SqliteLog
from tests.log.samples import ITEM, Time, add, answered, dead, ended, intent, new_run, outcome, rollback, start

LENGTH = 9
LAST = next(each for each in (spell_snapshot({"n": n}) for n in range(100)) if each.digest > "f")
"""A definition whose digest comes last."""


@contextmanager
def tampering(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database of a log behind its back."""
    with closing(sqlite3.connect(path)) as connection:
        yield connection
        connection.commit()


@pytest.fixture(scope="module")
def sound_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log of one run of nine records, and of another one, closed."""
    path = tmp_path_factory.mktemp("sound") / "log.db"
    with closing(SqliteLog(path, lease_clock=Time().clock())) as log:
        lease = start(log, key="k")
        add(log, lease, intent(), outcome(), dead(), answered("q"), dead(ITEM), rollback())
        add(log, lease, ended(RunStatus.ROLLED_BACK), status=RunStatus.ROLLED_BACK)
        add(log, start(log, "run2", definition=LAST), intent())
    return path


@pytest.fixture
def log_path(sound_log: Path, tmp_path: Path) -> Path:
    """Return a copy of the sound log, with its gate."""
    for name in ("log.db", "log.db-gate"):
        shutil.copy(sound_log.with_name(name), tmp_path / name)
    return tmp_path / "log.db"


def verify(path: Path) -> Verification:
    """Verify a log from a new process's point of view, the witness beside it left out."""
    path.with_name("log.db-gate").unlink(missing_ok=True)
    with closing(open_log(path, read_only=True)) as log:
        return log.verify()


def read_links(connection: sqlite3.Connection, run_id: str = "run1") -> list[Link]:
    """Return the records as they lie there."""
    query = f"SELECT {', '.join(Link._fields)} FROM records WHERE run_id = ? ORDER BY seq"
    return [Link._make(row) for row in connection.execute(query, (run_id,))]


def rehash(connection: sqlite3.Connection, *, with_row: bool, run_id: str = "run1") -> None:
    """Compute all hashes of a run anew, as whoever can write can."""
    head = genesis_hash(run_id)
    links = read_links(connection, run_id)
    for each in links:
        head = chain_hash(head, run_id, *each[1:8])
        connection.execute("UPDATE records SET hash = ? WHERE run_id = ? AND seq = ?", (head, run_id, each.seq))
    if with_row:
        connection.execute(
            "UPDATE runs SET head = ?, seq = ? WHERE run_id = ?", (head, links[-1].seq if links else 0, run_id)
        )


def test_an_untouched_log_has_no_findings(log_path: Path) -> None:
    """A sound log verifies, and says how much it read."""
    found = verify(log_path)
    assert found.findings == ()
    assert (found.runs, found.records) == (2, LENGTH + 3)


@pytest.mark.parametrize("seq", range(1, LENGTH + 1))
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE records SET body = replace(body, '\"v\":1', '\"v\": 1') WHERE run_id = 'run1' AND seq = :seq",
        "UPDATE records SET at_ms = at_ms + 1 WHERE run_id = 'run1' AND seq = :seq",
        "UPDATE records SET step = 'other' WHERE run_id = 'run1' AND seq = :seq",
        "UPDATE records SET item = 7 WHERE run_id = 'run1' AND seq = :seq",
        "UPDATE records SET attempt = 7 WHERE run_id = 'run1' AND seq = :seq",
        "UPDATE records SET type = 'ended' || type WHERE run_id = 'run1' AND seq = :seq",
        "UPDATE records SET hash = upper(hash) WHERE run_id = 'run1' AND seq = :seq",
        "UPDATE records SET body = CAST(body AS BLOB) WHERE run_id = 'run1' AND seq = :seq",
        "DELETE FROM records WHERE run_id = 'run1' AND seq = :seq",
        "DELETE FROM records WHERE run_id = 'run1' AND seq >= :seq",
    ],
)
def test_every_change_of_a_record_is_noticed(log_path: Path, seq: int, change: str) -> None:
    """H41, L1: a record edited, removed or cut off is named by run and number, and a reader stops there."""
    with tampering(log_path) as connection:
        connection.execute(change, {"seq": seq})
    first = verify(log_path).findings[0]
    assert first.run_id == "run1"
    assert first.seq in {seq, None}
    with closing(open_log(log_path, read_only=True)) as log, pytest.raises(DamagedLogError, match="run1"):
        list(log.read("run1"))


@pytest.mark.parametrize("seq", range(1, LENGTH))
def test_swapped_records_are_noticed(log_path: Path, seq: int) -> None:
    """L1: two records that changed places are noticed at the first of them."""
    with tampering(log_path) as connection:
        for now, then in ((seq, -1), (seq + 1, seq), (-1, seq + 1)):
            connection.execute("UPDATE records SET seq = ? WHERE run_id = 'run1' AND seq = ?", (then, now))
    assert (verify(log_path).findings[0].run_id, verify(log_path).findings[0].seq) == ("run1", seq)


@pytest.mark.parametrize("seq", range(2, LENGTH + 1))
def test_a_record_taken_out_and_closed_up_is_noticed(log_path: Path, seq: int) -> None:
    """L1: a record that was removed from the middle, with those behind it moved up, breaks the chain there."""
    with tampering(log_path) as connection:
        connection.execute("DELETE FROM records WHERE run_id = 'run1' AND seq = ?", (seq,))
        for later in range(seq + 1, LENGTH + 1):
            connection.execute("UPDATE records SET seq = seq - 1 WHERE run_id = 'run1' AND seq = ?", (later,))
    first = verify(log_path).findings[0]
    assert (first.run_id, first.seq) == ("run1", seq)


@pytest.mark.parametrize("seq", range(1, LENGTH + 1))
def test_rehashing_without_the_row_is_noticed(log_path: Path, seq: int) -> None:
    """L1: who changes a record and computes the chain anew must also change the row's head."""
    with tampering(log_path) as connection:
        connection.execute("UPDATE records SET at_ms = at_ms + 1 WHERE run_id = 'run1' AND seq = ?", (seq,))
        rehash(connection, with_row=False)
    assert "another head" in verify(log_path).findings[0].problem


ADD_SECOND_CREATION = """
INSERT INTO records SELECT run_id, 10, at_ms, type, step, item, attempt, body, hash FROM records
  WHERE seq = 1 AND run_id = 'run1'
"""


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE records SET body = replace(body, '1200', '9999') WHERE seq = 1 AND run_id = 'run1'",
        "UPDATE records SET body = replace(body, 'onboarding', 'other') WHERE seq = 1 AND run_id = 'run1'",
        "UPDATE records SET body = replace(body, 'run1', 'run9') WHERE seq = 1 AND run_id = 'run1'",
        "UPDATE records SET body = replace(body, '\"k\"', '\"j\"') WHERE seq = 1 AND run_id = 'run1'",
        "UPDATE records SET body = replace(body, '\"fence\":1', '\"fence\":3') WHERE seq = 2 AND run_id = 'run1'",
        "UPDATE records SET body = replace(body, '\"fence\":1', '\"fence\":0') WHERE seq = 2 AND run_id = 'run1'",
        "UPDATE records SET body = replace(body, 'the bank is closed', 'x') WHERE seq = 5 AND run_id = 'run1'",
        "UPDATE records SET body = replace(body, 'accepted', 'refused') WHERE seq = 6 AND run_id = 'run1'",
        "UPDATE records SET body = replace(body, 'rolled_back', 'succeeded') WHERE seq = 9 AND run_id = 'run1'",
        "UPDATE records SET body = replace(body, '\"v\":1', ' \"v\":1') WHERE seq = 3 AND run_id = 'run1'",
        "UPDATE records SET body = replace(body, '\"v\":1', '\"v\":2') WHERE seq = 3 AND run_id = 'run1'",
        "UPDATE records SET type = 'probe' WHERE seq = 3 AND run_id = 'run1'",
        ADD_SECOND_CREATION,
        "DELETE FROM records WHERE run_id = 'run1'",
    ],
)
def test_rehashing_does_not_hide_what_contradicts_the_tables(log_path: Path, change: str) -> None:
    """L5, L6: a chain that was computed anew, row included, must still fit the row, the lease and the dead letters."""
    with tampering(log_path) as connection:
        connection.execute(change)
        rehash(connection, with_row=True)
    assert {finding.run_id for finding in verify(log_path).findings} == {"run1"}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE runs SET head = 'x' WHERE run_id = 'run1'",
        "UPDATE runs SET seq = 4 WHERE run_id = 'run1'",
        "UPDATE runs SET seq = 40 WHERE run_id = 'run1'",
        "UPDATE runs SET status = 'succeeded' WHERE run_id = 'run1'",
        "UPDATE runs SET status = 'running' WHERE run_id = 'run1'",
        "UPDATE runs SET status = 'dancing' WHERE run_id = 'run1'",
        "UPDATE runs SET failure = '{' WHERE run_id = 'run1'",
        "UPDATE runs SET saga = 'other' WHERE run_id = 'run1'",
        "UPDATE runs SET definition = (SELECT max(digest) FROM definitions) WHERE run_id = 'run1'",
        "UPDATE runs SET key = 'other' WHERE run_id = 'run1'",
        "UPDATE runs SET input_digest = 'other' WHERE run_id = 'run1'",
        "UPDATE runs SET created_at_ms = 1 WHERE run_id = 'run1'",
        "DELETE FROM dead_letters WHERE seq = 7",
        "UPDATE dead_letters SET closed_at_ms = NULL WHERE seq = 7",
        "UPDATE dead_letters SET reason = 'why not' WHERE seq = 7",
        "UPDATE dead_letters SET direction = 'upwards' WHERE seq = 7",
        "UPDATE leases SET fence = 8 WHERE run_id = 'run1'",
        "DELETE FROM leases WHERE run_id = 'run1'",
    ],
)
def test_a_table_that_does_not_follow_from_the_records_is_noticed(log_path: Path, change: str) -> None:
    """L6: rows, leases and dead letters are compared with the records, one by one."""
    with tampering(log_path) as connection:
        connection.execute(change)
    assert {finding.run_id for finding in verify(log_path).findings} == {"run1"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE definitions SET body = replace(body, 'charge', 'refund')", "definition"),
        ("UPDATE definitions SET body = '{'", "definition"),
        ("UPDATE definitions SET body = x'00'", "definition"),
        ("DELETE FROM definitions", "no row of definitions"),
        ("DELETE FROM runs WHERE run_id = 'run1'", "no row of runs"),
    ],
)
def test_what_belongs_to_no_run_is_noticed(log_path: Path, change: str, problem: str) -> None:
    """E16: an altered or missing definition, and records whose run is gone, are findings about the whole log."""
    with tampering(log_path) as connection:
        connection.execute(change)
    findings = verify(log_path).findings
    assert any(finding.run_id == "" and problem in finding.problem for finding in findings)


def test_an_altered_definition_is_not_used(log_path: Path) -> None:
    """E16: a definition that isn't what was recorded is refused where it would be used."""
    with tampering(log_path) as connection:
        connection.execute("UPDATE definitions SET body = replace(body, 'charge', 'refund')")
    with closing(open_log(log_path, read_only=True)) as log, pytest.raises(DamagedLogError):
        log.definition(log.row("run1").definition)


def cut_tail(connection: sqlite3.Connection) -> None:
    """Cut the last record and set everything else back to match."""
    connection.execute("DELETE FROM records WHERE run_id = 'run2' AND seq = 3")
    connection.execute(
        "UPDATE runs SET seq = 2, head = (SELECT hash FROM records WHERE run_id = 'run2' AND seq = 2)"
        " WHERE run_id = 'run2'"
    )


def remove_run(connection: sqlite3.Connection) -> None:
    """Remove a run and all that belongs to it."""
    for table in ("leases", "records", "runs"):
        connection.execute(f"DELETE FROM {table} WHERE run_id = 'run2'")


def rewrite(connection: sqlite3.Connection) -> None:
    """Change a record that no table repeats, and compute all hashes anew."""
    connection.execute(
        "UPDATE records SET body = replace(body, 'billing', 'killing') WHERE run_id = 'run2' AND seq = 3"
    )
    rehash(connection, with_row=True, run_id="run2")


@pytest.mark.parametrize("change", [cut_tail, remove_run, rewrite])
def test_what_only_a_kept_head_tells(log_path: Path, change: Callable[[sqlite3.Connection], None]) -> None:
    """L7: three careful changes fit together and verify; the heads that were kept elsewhere tell each of them."""
    kept = verify(log_path).heads
    with tampering(log_path) as connection:
        change(connection)
    found = verify(log_path)
    assert found.findings == ()
    assert found.heads != kept


@pytest.mark.parametrize("change", [cut_tail, remove_run, rewrite])
def test_the_witness_tells_what_was_done_to_the_newest_run(
    log_path: Path, change: Callable[[sqlite3.Connection], None]
) -> None:
    """L7, H59: the log beside its gate can't be set back behind the last record that was durable."""
    with tampering(log_path) as connection:
        change(connection)
    for read_only in (True, False):
        with pytest.raises(DamagedLogError, match="older copy"):
            open_log(log_path, read_only=read_only)


def test_a_flipped_bit_in_a_page_is_noticed(log_path: Path) -> None:
    """H59: a bit that flips anywhere in the file is noticed by somebody, never taken for an empty log."""
    content = log_path.read_bytes()
    noticed = 0
    for place in range(4096 + 40, len(content), 997):
        log_path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        try:
            with closing(open_log(log_path, read_only=True)) as log:
                found = log.verify()
                noticed += bool(found.findings)
                assert found.findings or found.records == LENGTH + 3
        except DamagedLogError:
            noticed += 1
    assert noticed > 0


def test_verify_sees_a_live_run_as_it_is(path: Path, time: Time) -> None:
    """A log that is written to while it is verified has no findings for that."""
    with (
        closing(SqliteLog(path, lease_clock=time.clock())) as log,
        closing(SqliteLog(path, lease_clock=time.clock())) as writer,
    ):
        lease = start(writer)
        for _ in range(20):
            add(writer, lease, intent(), outcome())
            assert log.verify().findings == ()


def tampered(log: MemoryLog, lease: Lease) -> None:
    """Change a record of a memory log."""
    links = log._runs[lease.run_id].links
    links[1] = links[1]._replace(at_ms=5)


def test_the_log_in_memory_verifies_as_well(time: Time) -> None:
    """The log without a disk has the same chain and the same audit."""
    log: Log = MemoryLog(lease_clock=time.clock())
    lease = start(log)
    assert isinstance(log, MemoryLog)
    tampered(log, lease)
    log.create(new_run("run2"), holder=None)
    assert [(finding.run_id, finding.seq) for finding in log.verify().findings] == [("run1", 2)]
    with pytest.raises(DamagedLogError, match="record 2"):
        list(log.read("run1"))


@pytest.mark.parametrize("word", [b"CREATE TABLE records", b"CREATE TABLE runs", b"CREATE INDEX"])
def test_a_schema_whose_text_is_damaged_is_damage(log_path: Path, word: bytes) -> None:
    """H59: what SQLite says of such a schema Python can't even read; it is a damaged log all the same."""
    data = log_path.read_bytes()
    log_path.write_bytes(data.replace(word, word[:-3] + b"\x80\xff\x80"))
    with pytest.raises(DamagedLogError):
        verify(log_path)
