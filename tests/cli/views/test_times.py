"""Times and ids as people read them."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagactl.cli.views.ids import shorten_ids
from sagactl.cli.views.times import (
    show_ago,
    show_clock_ms,
    show_due,
    show_duration,
    show_moment,
    show_offset,
)
from sagactl.documents import write_time
from tests.cli.views.scripted import START_MS, TZ


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [(-5, "0ms"), (0, "0ms"), (99, "99ms"), (100, "0.1s"), (800, "0.8s"), (59_949, "59.9s"), (59_999, "1m00s"),
     (125_000, "2m05s"), (3_599_600, "1h00m"), (3_840_000, "1h04m"), (86_400_000, "1d00h"), (183_600_000, "2d03h")],
)  # fmt: skip
def test_durations_have_the_unit_that_matters(duration_ms: int, shown: str) -> None:
    """A duration is told in one or two units, and never as 60 of a smaller one."""
    assert show_duration(duration_ms) == shown


def test_times_are_local_and_say_so() -> None:
    """A time is shown in the viewer's zone with its offset, and written for programs in UTC."""
    assert show_moment(START_MS, TZ) == "2026-03-04 14:02:11 +01:00"
    assert show_clock_ms(START_MS, TZ) == "14:02:11.204"
    assert write_time(START_MS) == "2026-03-04T13:02:11.204Z"
    assert write_time(None) is None
    assert show_offset(START_MS, UTC) == "+00:00"


def test_the_offset_is_that_of_the_day() -> None:
    """Summer time shifts what is shown, not what is written."""
    july_ms = START_MS + 130 * 86_400_000
    assert show_offset(july_ms, ZoneInfo("Europe/Berlin")) == "+02:00"


def test_another_day_is_named() -> None:
    """A time that isn't today's has its date."""
    assert show_due(START_MS + 1000, START_MS, TZ) == "14:02:12"
    assert show_due(START_MS + 86_400_000, START_MS, TZ) == "2026-03-05 14:02:11"


@pytest.mark.parametrize("at_ms", [-1, 0, 2**63, 10**30])
def test_no_time_is_out_of_range(at_ms: int) -> None:
    """A time that a damaged log could hold is shown as the nearest that a calendar knows."""
    assert show_moment(at_ms, TZ)
    assert write_time(at_ms)


@pytest.mark.parametrize(
    ("age_ms", "shown"), [(-9, "now"), (999, "now"), (1000, "1s ago"), (120_000, "2m ago"), (10**9, "11d ago")]
)
def test_ages_are_rough(age_ms: int, shown: str) -> None:
    """Lists say how long ago something was in its largest unit."""
    assert show_ago(START_MS, START_MS + age_ms) == shown


@given(st.sets(st.text(alphabet="23ab", min_size=13, max_size=13), max_size=12))
def test_short_ids_mean_one_run_each(run_ids: set[str]) -> None:
    """Each id is shown by the shortest prefix, of six letters at least, that no other run has."""
    short_ids = shorten_ids(run_ids)
    for run_id, short in short_ids.items():
        assert [other for other in run_ids if other.startswith(short)] == [run_id]
        assert len(short) >= 6
        is_shorter_shared = any(other.startswith(short[:-1]) for other in run_ids if other != run_id)
        assert len(short) == 6 or is_shorter_shared
