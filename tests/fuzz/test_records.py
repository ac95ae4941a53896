"""G16: whatever lies in the log, it is a record as it was written or damage, and `verify` names what was changed."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from sagactl.core.records import Record, Request, RunStatus, Verb
from sagactl.errors import DamagedLogError, StorageError
from sagactl.log.codec import Encoded, decode, decode_failure, decode_request, encode, encode_request
from sagactl.log.sqlite import SqliteLog
from tests.fuzz.rounds import Fuzzer
from tests.log.samples import (
    ITEM,
    Time,
    add,
    alert,
    answered,
    approval_asked,
    dead,
    ended,
    intent,
    outcome,
    rollback,
    start,
    stuck,
)

RECORDS: list[Record] = [
    intent(),
    outcome(),
    dead(),
    rollback(),
    stuck(),
    alert(),
    approval_asked(),
    ended(),
    answered("q"),
]
WORDS = st.sampled_from(["v", "kind", "plan", "operation", "request", "output", "arguments", "step", "item", "at_ms"])
ODD = st.sampled_from([1.5, "succeeded", "action", "rollback"])
LEAVES = st.none() | st.booleans() | st.integers(-2, 2**70) | st.text(max_size=4) | ODD
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=5
)


@st.composite
def damaged(draw: st.DrawFn) -> Encoded:
    """Give a stored record of which one column or one part of the body is something else."""
    encoded = encode(draw(st.sampled_from(RECORDS)))
    column = draw(st.sampled_from([*Encoded._fields, "body", "body", "body"]))
    if column != "body":
        changed: Any = encoded._asdict() | {column: draw(LEAVES)}
        return Encoded(**changed)
    body: Any = json.loads(encoded.body)
    how = draw(st.sampled_from(["key", "drop", "text", "tree"]))
    if how == "key":
        body[draw(st.sampled_from(sorted(body)) | WORDS)] = draw(TREES)
    elif how == "drop":
        body.pop(draw(st.sampled_from(sorted(body))))
    elif how == "tree":
        body = draw(TREES)
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if how == "text":
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.text(max_size=3)) + text[place + draw(st.integers(0, 5)) :]
    return encoded._replace(body=text)


def test_stored_records(fuzz: Fuzzer) -> None:
    """H41: a damaged record is damage, or a record that is written and read back as it is."""

    def check(encoded: Encoded) -> None:
        try:
            record = decode(encoded)
        except DamagedLogError:
            return
        assert decode(encode(record)) == record

    fuzz.try_all(damaged(), check)


def test_stored_requests(fuzz: Fuzzer) -> None:
    """H41: so it is with requests and failures."""
    texts = [encode_request(Request("q", Verb.CANCEL, "me", "because")), '{"message":"no","type":"x"}']

    def check(text: str) -> None:
        for read in (decode_request, decode_failure):
            with suppress(DamagedLogError):
                read(text)

    trees = TREES.map(json.dumps)
    pieces = st.tuples(st.sampled_from(texts), st.integers(0, 60), st.text(max_size=3))
    cuts = pieces.map(lambda piece: piece[0][: piece[1]] + piece[2])
    fuzz.try_all(trees | cuts | st.text(max_size=10), check)


COLUMNS = ("seq", "at_ms", "type", "step", "item", "attempt", "body", "hash")


def test_a_changed_log(fuzz: Fuzzer, tmp_path: Path) -> None:
    """H41, H59: a row or a byte that is changed is found by `verify`, or the log is refused; nothing else is raised."""
    good = tmp_path / "good" / "log.db"
    good.parent.mkdir()
    with closing(SqliteLog(good, lease_clock=Time().clock())) as log:
        lease = start(log, key="k")
        add(log, lease, intent(), outcome(), dead(), answered("q"), dead(ITEM), rollback())
        add(log, lease, ended(RunStatus.ROLLED_BACK), status=RunStatus.ROLLED_BACK)
    length = 9
    bad = tmp_path / "bad"

    def check(change: tuple[str, Any]) -> None:
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(good.parent, bad)
        file = bad / "log.db"
        is_changed = _damage(file, *change)
        try:
            with closing(SqliteLog(file, lease_clock=Time().clock())) as opened:
                found = opened.verify()
        except StorageError:
            return
        assert found.findings or not is_changed, change

    rows = st.tuples(st.just("row"), st.tuples(st.integers(1, length), st.sampled_from(COLUMNS), LEAVES))
    files = st.tuples(st.just("byte"), st.tuples(st.integers(0, good.stat().st_size - 1), st.integers(0, 255)))
    fuzz.try_all(rows | files, check)


def _damage(file: Path, how: str, what: Any) -> bool:
    """Change the file; tell whether a record is certainly another one now."""
    if how == "byte":
        place, byte = what
        data = bytearray(file.read_bytes())
        data[place] = byte
        file.write_bytes(data)
        return False
    seq, column, value = what
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        before = database.execute("SELECT * FROM records ORDER BY seq").fetchall()
        try:
            database.execute(f"UPDATE records SET {column} = ? WHERE seq = ?", (value, seq))
        except (sqlite3.Error, OverflowError):
            return False
        return bool(database.execute("SELECT * FROM records ORDER BY seq").fetchall() != before)
