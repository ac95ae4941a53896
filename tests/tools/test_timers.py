"""The tools that wait: what they answer, and how far they look ahead (E5)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sagactl.core.answer import Answer
from sagactl.core.canonical import Json
from sagactl.core.records import OutcomeKind
from sagactl.tools.timers import WAIT_MS_MAX
from tests.tools.shell.commands import Commands, word_of


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    """Return the built-in tools."""
    return Commands(tmp_path)


def _ask(commands: Commands, tool: str, arguments: dict[str, Json], token: Json = None) -> Answer:
    call = commands.make(tool, arguments, token=token)
    assert commands.toolbox.check_arguments(commands.registry.facts_of(tool), arguments) is None
    return commands.toolbox.call(call)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize(("given", "expected_ms"), [("90s", 90_000), ("1h30m", 5_400_000), ("366d", WAIT_MS_MAX)])
def test_a_sleep_names_its_end_once(commands: Commands, given: str, expected_ms: int) -> None:
    """E5: the first asking fixes the moment, which later ones are handed; one timer covers the whole wait."""
    answer = _ask(commands, "time.sleep", {"for": given})
    assert answer.kind is OutcomeKind.PENDING
    assert answer.after_ms is not None
    assert abs(answer.after_ms - expected_ms) < 2_000
    assert isinstance(answer.token, dict)
    again = _ask(commands, "time.sleep", {"for": given}, answer.token)
    assert again.token == answer.token


def test_a_sleep_whose_end_has_passed_is_over(commands: Commands) -> None:
    """E5: asked again after the moment, however long after, it succeeds and says when it was."""
    answer = _ask(commands, "time.sleep", {"for": "1h"}, {"due_ms": 1_700_000_000_000})
    assert (answer.kind, answer.output) == (OutcomeKind.SUCCEEDED, {"until": "2023-11-14T22:13:20.000+00:00"})
    assert _ask(commands, "time.sleep", {"for": "0s"}).kind is OutcomeKind.SUCCEEDED


def test_a_short_rest_is_waited_for_at_once(commands: Commands) -> None:
    """Less than the shortest poll isn't worth another asking."""
    due_ms = _now_ms() + 60
    assert _ask(commands, "time.sleep", {"for": "1h"}, {"due_ms": due_ms}).kind is OutcomeKind.SUCCEEDED
    assert _now_ms() >= due_ms


@pytest.mark.parametrize("given", ["367d", "999999999d", "1m1h", "d", "5 m"])
def test_no_sleep_is_without_bound_or_sense(commands: Commands, given: str) -> None:
    """A wait of more than 366 days, or of no duration, is rejected before it begins."""
    facts = commands.registry.facts_of("time.sleep")
    is_odd = commands.toolbox.check_arguments(facts, {"for": given}) is not None
    assert is_odd or _ask(commands, "time.sleep", {"for": given}).kind is OutcomeKind.REJECTED


def test_until_waits_for_the_moment_in_its_own_zone(commands: Commands) -> None:
    """A moment is RFC 3339 with an offset: the same instant however it is written."""
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(days=40)
    due = {"due_ms": int(moment.timestamp()) * 1_000}
    for hours in (0, 5, -11):
        text = (moment + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S")
        zone = "Z" if hours == 0 else f"{hours:+03}:00"
        assert _ask(commands, "time.until", {"at": text + zone}).token == due
    assert _ask(commands, "time.until", {"at": text.lower() + zone}).token == due


def test_a_moment_that_has_passed_is_no_wait(commands: Commands) -> None:
    """The past is there already; what is too far ahead is rejected."""
    answer = _ask(commands, "time.until", {"at": "2001-02-03T04:05:06.5+01:00"})
    assert answer.output == {"until": "2001-02-03T03:05:06.500+00:00"}
    assert word_of(_ask(commands, "time.until", {"at": "9999-01-01T00:00:00Z"})) == ("rejected", "too_long")


@pytest.mark.parametrize("given", ["tomorrow", "2026-12-01", "2026-12-01T09:00:00", "2026-13-01T09:00:00Z", ""])
def test_a_moment_without_an_offset_is_none(commands: Commands, given: str) -> None:
    """F5: a date alone, or a time that could be anywhere's, is an error before anything is called."""
    assert commands.toolbox.check_arguments(commands.registry.facts_of("time.until"), {"at": given}) is not None


def test_waits_bound_themselves(commands: Commands) -> None:
    """E5: no step needs a `schedule_to_close_timeout` to wait; the tool says how long it may take at most."""
    for name in ("time.sleep", "time.until"):
        pending_max_ms = commands.registry.facts_of(name).pending_max_ms
        assert pending_max_ms is not None
        assert pending_max_ms > WAIT_MS_MAX


@pytest.mark.parametrize("given", ["1h1h", "1m1h", "", "5", "5w", "-1s"])
def test_what_is_no_duration_is_seen_before_the_run(commands: Commands, given: str) -> None:
    """F5: the schema of the argument alone tells, so a saga that holds it is refused by `validate`."""
    facts = commands.registry.facts_of("time.sleep")
    assert commands.toolbox.check_arguments(facts, {"for": given}) is not None
