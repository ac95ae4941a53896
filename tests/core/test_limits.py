"""Limits and answers: the numbers that everything else relies on, and what an answer says when nobody said more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.limits import CALLS_MAX, CALLS_MAX_LIMIT, SHOWN_MS_MAX
from sagactl.core.records import OutcomeKind, ProbeAnswer


def test_the_last_time_that_is_shown_has_a_date_in_every_zone() -> None:
    """UX: the last day of the year 9999 begins there; a day later no calendar goes on."""
    last = datetime.fromtimestamp(SHOWN_MS_MAX / 1000, UTC)
    assert last == datetime(9999, 12, 31, tzinfo=UTC)
    assert last.astimezone(timezone(timedelta(hours=14))).year == 9999
    with pytest.raises(OverflowError):
        last + timedelta(days=1)


def test_a_driver_may_be_told_to_make_more_calls_but_not_any_number() -> None:
    """E10: eight calls at once unless it is told otherwise, and a bound to what it may be told."""
    assert (CALLS_MAX, CALLS_MAX_LIMIT) == (8, 1_000)


def test_an_answer_says_no_more_than_it_was_told() -> None:
    """E3, E6: without an output, a reason, a delay or a text there is none, and none is made up."""
    assert Answer(OutcomeKind.SUCCEEDED) == Answer(OutcomeKind.SUCCEEDED, None, None, None, None, None, "")
    assert ProbeReply(ProbeAnswer.CANNOT_TELL) == ProbeReply(ProbeAnswer.CANNOT_TELL, None, None, "")
