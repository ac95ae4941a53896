"""`sagactl metrics` in a project: it only reads, it is quick, and what it says is what there is."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from sagactl.core.counts import RECENT_RECORDS_MAX
from sagactl.log.sqlite import SqliteLog
from tests.cli.project import Project
from tests.log.samples import add, ended, intent, outcome, start

RUNS: Final = 100_000
SECONDS_MAX: Final = 2.0
"""Ten times what it takes, as other things go on."""


def _samples(text: str, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        if family.name == name
        for sample in family.samples
    }


def test_metrics_say_what_there_is_and_change_nothing(tmp_path: Path) -> None:
    """Runs, what waits for a person, and the calls by what they came to; no file is made or changed."""
    project = Project.make(tmp_path)
    assert project.run("metrics").code == 0
    assert not (tmp_path / ".sagactl").exists()
    inputs = ("-q", "-i", "amount:=1", "-i")
    project.run("run", "onboarding", *inputs, "email=ada@example.com", "-i", "card=flaky")
    project.run("run", "onboarding", *inputs, "email=bob@example.com", "-i", "card=limbo")
    project.run("run", "onboarding", *inputs, "email=refuses@example.com")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / ".sagactl").iterdir()}
    found = project.run("metrics")
    assert (found.code, found.err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / ".sagactl").iterdir()} == before
    runs = _samples(found.out, "sagactl_runs")
    assert runs == {("onboarding", status): 1 for status in ("succeeded", "stuck", "rolled_back")}
    assert _samples(found.out, "sagactl_dead_letters") == {("onboarding", "action", "in_doubt"): 1}
    calls = _samples(found.out, "sagactl_recent_calls")
    assert calls["billing.charge", "action", "unavailable"] == 2
    assert calls["billing.charge", "action", "unknown"] == 1
    assert calls["billing.refund", "compensation", "succeeded"] == 1
    assert _samples(found.out, "sagactl_recent_retries")["billing.charge", "action"] == 2
    assert _samples(found.out, "sagactl_log_bytes")["db",] == (tmp_path / ".sagactl" / "log.db").stat().st_size
    assert "example.com" not in found.out
    document = project.run("metrics", "-o", "json").json
    assert (document["schema"], document["error"]) == ("sagactl.metrics/1", None)
    assert len(project.run("metrics", "-o", "jsonl").out.splitlines()) == document["total"]
    assert project.run("metrics", "--log", "nowhere.db", "-o", "json").json["error"]["code"] == "no-log"


def test_metrics_of_a_hundred_thousand_runs_are_quick(tmp_path: Path) -> None:
    """They cost what an index costs, and so many records at most, also where records are large."""
    path = tmp_path / "log.db"
    with closing(SqliteLog(path)) as log:
        at_ms = time.time_ns() // 1_000_000
        add(log, start(log), *(each for n in range(1, 9) for each in (intent(n, at_ms=at_ms), outcome(n, at_ms=at_ms))))
        add(log, start(log, "run2"), intent(at_ms=at_ms), outcome(at_ms=at_ms), ended())
    with closing(sqlite3.connect(path)) as connection, connection:
        _multiply(connection)
    with closing(SqliteLog(path, read_only=True)) as log:
        began = time.process_time()
        counts = log.count(at_ms)
        seconds = time.process_time() - began
    assert sum(each.total for each in counts.runs) == RUNS
    assert 0 < counts.recent.records <= RECENT_RECORDS_MAX
    assert seconds < SECONDS_MAX


def _multiply(connection: sqlite3.Connection) -> None:
    """Make many runs of the two there are, as rows; nobody reads their chains here."""
    connection.execute("PRAGMA foreign_keys = OFF")
    columns = [row[1] for row in connection.execute("PRAGMA table_info(runs)") if row[1] not in {"number", "run_id"}]
    names = ", ".join(columns)
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        f" INSERT INTO runs (run_id, {names}) SELECT 'm' || i, {names} FROM n, runs"
        " WHERE runs.run_id = 'run' || (1 + i % 2)",
        (RUNS,),
    )
    connection.execute(
        "INSERT INTO records (run_id, seq, at_ms, type, step, item, attempt, body, hash)"
        " SELECT runs.run_id, records.seq, at_ms, type, step, item, attempt, body, hash FROM runs, records"
        " WHERE records.run_id = 'run1' AND runs.run_id LIKE 'm%' AND runs.number < 10000"
    )
