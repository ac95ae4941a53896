"""Durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagactl.schemas.durations import BadDurationError, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        *(("200ms", 200), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("1d", 86_400_000)),
        *(("1h30m", 5_400_000), ("1d2h3m4s5ms", 93_784_005), ("0s", 0), ("90s", 90_000), ("1m500ms", 60_500)),
    ],
)
def test_durations_are_read_as_written(text: str, duration_ms: int) -> None:
    """F1: a duration is one or several amounts with a unit, from the large to the small."""
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "1.5h",
        "-5s",
        "5 s",
        "5S",
        "5sec",
        "1m1h",
        "5s5s",
        "100y",
        "1w",
        "s",
        "٣s",
        "5s\n",
        "1e3s",
        "1" * 10 + "s",
    ],
)
def test_everything_else_is_no_duration(text: str) -> None:
    """F1: nothing is guessed about a duration."""
    with pytest.raises(BadDurationError):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**12))
def test_a_written_duration_reads_back(duration_ms: int) -> None:
    """What format_duration writes, parse_duration reads."""
    assert parse_duration(format_duration(duration_ms)) == duration_ms
