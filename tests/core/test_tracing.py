"""A run is one trace, whoever drives it: ids are worked out and never drawn."""

from __future__ import annotations

import re

import pytest

from sagactl.core.records import Direction, Operation
from sagactl.core.tracing import (
    TRACEPARENT_LENGTH_MAX,
    Remote,
    call_span_id,
    probe_span_id,
    read_traceparent,
    run_span_id,
    trace_id,
    write_traceparent,
)

RUN = "run2345678abc"
STEP = Operation("deposit", None, Direction.ACTION)


def test_ids_are_the_same_in_every_release() -> None:
    """A run that another release resumes goes on in the same trace, so these are for ever."""
    assert trace_id(RUN) == "e7b9e800502f2f4599ac381d9baf39ef"
    assert run_span_id(RUN) == "5c6f969462b5365a"
    assert call_span_id(RUN, STEP, 2) == "11dea8242868df09"
    assert probe_span_id(RUN, STEP, 1, fence=2, deadline_ms=1_700_000_000_000) == "814f6a1dbd5ccafe"


def test_every_call_has_an_id_of_its_own() -> None:
    """No two of run, step, item, direction, attempt and probe share a span."""
    operations = [Operation("a", item, direction) for item in (None, 0, 1, 11) for direction in Direction]
    ids = [call_span_id(RUN, operation, attempt) for operation in operations for attempt in (1, 2, 11)]
    ids += [
        probe_span_id(RUN, operation, number, fence=fence, deadline_ms=at)
        for operation in operations
        for number in (1, 2)
        for fence in (1, 2)
        for at in (1, 2)
    ]
    ids += [run_span_id(RUN), run_span_id("run2345678abd"), call_span_id("run2345678abd", operations[0], 1)]
    assert len(set(ids)) == len(ids)


def test_a_traceparent_is_one_by_the_standard() -> None:
    """W3C Trace Context: version, trace, parent, flags, in lower-case digits."""
    pattern = r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]"
    assert re.fullmatch(pattern, write_traceparent(RUN, run_span_id(RUN)))
    assert write_traceparent(RUN, run_span_id(RUN)).endswith("-01")
    assert write_traceparent(RUN, run_span_id(RUN), is_sampled=False).endswith("-00")


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (f"00-{TRACE}-{SPAN}-01", 1),
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f"cc-{TRACE}-{SPAN}-01", 1),
        (f"00-{TRACE}-{SPAN}-1f", 31),
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later", 1),
        (f"cc-{TRACE}-{SPAN}-01-".ljust(TRACEPARENT_LENGTH_MAX, "x"), 1),
        (f"cc-{TRACE}-{SPAN}-01-".ljust(TRACEPARENT_LENGTH_MAX + 1, "x"), None),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}", None),
        (f"00-{TRACE}-{SPAN}-01\n", None),
        (f" 00-{TRACE}-{SPAN}-01", None),
        (f"cc-{TRACE}-{SPAN}-01-{'x' * 300}", None),
        ("", None),
    ],
)
def test_a_traceparent_from_outside_is_checked(text: str, flags: int | None) -> None:
    """W3C Trace Context: what is of the form names a span; of a later version only its beginning counts."""
    assert read_traceparent(text) == (None if flags is None else Remote(TRACE, SPAN, flags))
