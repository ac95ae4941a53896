"""G17: what any release wrote is read for ever: folded to where it stood, verified, and brought to its right end.

The logs of each release are kept in `stored/golden_RELEASE.sql`, with what is known of their runs beside them, a line
each. `SAGACTL_KEEP_GOLDEN_LOGS=1 pytest tests/log/test_golden_logs.py` writes those of this release; files of earlier
releases are never written again. A release whose records are spelled as before may do with a short file.
"""

from __future__ import annotations

import os
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from sagactl import __version__
from sagactl.core.canonical import Json, canonical, parse
from sagactl.core.definition import read_definition
from sagactl.core.evolve import replay
from sagactl.log.sqlite import SqliteLog
from tests.log.golden import describe, go_on, restore, write
from tests.log.samples import HOLDER, Time
from tests.proof import Prove

STORED = Path(__file__).with_name("stored")
BYTES_MAX = 500_000
RUNS_MIN = 40
KEEP = "SAGACTL_KEEP_GOLDEN_LOGS"


def releases() -> list[str]:
    """Return the releases whose logs are kept."""
    return sorted(path.stem.removeprefix("golden_") for path in STORED.glob("golden_*.sql"))


@cache
def known_of(release: str) -> tuple[dict[str, Json], ...]:
    """Return what is known of the runs of a release."""
    text = (STORED / f"golden_{release}.jsonl").read_text(encoding="utf-8")
    found = tuple(parse(line) for line in text.splitlines())
    assert all(isinstance(each, dict) for each in found)
    return found  # type: ignore[return-value]


def open_kept(release: str, folder: Path) -> tuple[SqliteLog, Time]:
    """Return the log of a release, brought up to date, after the driver of its runs has died."""
    path = folder / "state" / "log.db"
    restore((STORED / f"golden_{release}.sql").read_text(encoding="utf-8"), path)
    time = Time(dead={HOLDER})
    return SqliteLog(path, lease_clock=time.clock()), time


def fits(now: Json, kept: Json) -> bool:
    """Tell whether all that was known is so; later releases may know more."""
    if isinstance(kept, dict):
        return isinstance(now, dict) and all(fits(now.get(name), value) for name, value in kept.items())
    return now == kept


@pytest.mark.skipif(KEEP not in os.environ, reason=f"{KEEP} writes the logs of this release")
def test_the_logs_of_this_release_are_kept(tmp_path: Path) -> None:
    """G17: written under a virtual clock, twice the same."""
    text, known = write(tmp_path)
    (tmp_path / "again").mkdir()
    assert write(tmp_path / "again") == (text, known)
    (STORED / f"golden_{__version__}.sql").write_text(text, encoding="utf-8")
    lines = "".join(f"{canonical(each)}\n" for each in known)
    (STORED / f"golden_{__version__}.jsonl").write_text(lines, encoding="utf-8")


def test_each_release_has_its_logs_and_they_stay_small() -> None:
    """G17: who makes a release keeps its logs, and what is kept for ever is bounded."""
    assert __version__ in releases(), f"{KEEP}=1 pytest tests/log/test_golden_logs.py"
    assert sum(path.stat().st_size for path in STORED.iterdir()) <= BYTES_MAX


@pytest.mark.parametrize("release", releases())
def test_a_kept_log_is_sound_and_folds_to_where_its_runs_stood(release: str, tmp_path: Path, prove: Prove) -> None:
    """G17, L1, L4: chains, rows, letters and alerts verify, and each run stands where it was left."""
    log, _ = open_kept(release, tmp_path)
    with closing(log):
        found = log.verify()
        assert (found.findings, found.runs) == ((), len(known_of(release)))
        wrong = [
            each["scene"] for each in known_of(release) if not fits(describe(log, str(each["run"])), each["stands"])
        ]
    assert wrong == []
    prove("golden logs of all releases (runs)", len(known_of(release)), goal=RUNS_MIN)


@pytest.mark.parametrize("release", releases())
def test_every_prefix_of_a_kept_log_is_a_log(release: str, tmp_path: Path) -> None:
    """L4, L5: whichever record a crash left as the last one, this release can go on from it."""
    log, _ = open_kept(release, tmp_path)
    with closing(log):
        for each in known_of(release):
            row = log.row(str(each["run"]))
            saga = read_definition(log.definition(row.definition))
            records = [stored.record for stored in log.read(row.run_id)]
            assert all(replay(saga, records[:kept]).seq == kept for kept in range(1, len(records) + 1))


@pytest.mark.parametrize("release", releases())
def test_a_run_of_a_kept_log_comes_to_its_right_end(release: str, tmp_path: Path) -> None:
    """G17, E16: taken up by this release, with the calls and the end that the release that wrote it would have had."""
    log, time = open_kept(release, tmp_path)
    with closing(log):
        ends = {str(each["scene"]): go_on(log, time, str(each["run"])) for each in known_of(release)}
        assert ends == {str(each["scene"]): each["ends"] for each in known_of(release)}
        assert log.verify().findings == ()
