"""Spans of random runs with crashes: however a run is cut into drivers, its trace is the same and complete."""

from __future__ import annotations

from itertools import pairwise

from sagactl.core.records import DriverClaimed, Ended, Intent, Probe, Record
from sagactl.core.tracing import call_span_id, probe_span_id, run_span_id
from sagactl.telemetry.spans import RunTrace, Span, spans_of
from tests.core.simulation.trial import try_seed

SEEDS = 500


def _expected(records: list[Record], run_id: str) -> set[str]:
    """Return the span of every call and probe that the records tell of."""
    calls = {call_span_id(run_id, each.operation, each.attempt) for each in records if isinstance(each, Intent)}
    return calls | {
        probe_span_id(run_id, each.operation, each.number, fence=each.fence, deadline_ms=each.deadline_ms)
        for each in records
        if isinstance(each, Probe) and each.answer is None
    }


def _drive(records: list[Record], *, sends: bool) -> list[Span]:
    """Return what drivers send that each see the log from its beginning; where not *sends*, only the last one lives."""
    starts = [place for place, each in enumerate(records) if isinstance(each, DriverClaimed)]
    sent: list[Span] = []
    for start, end in pairwise([*starts, len(records)]):
        trace = RunTrace()
        known = trace.replay(records[: start + 1])
        live = trace.take(records[start + 1 : end])
        sent += [*known, *live] if sends or end == len(records) else []
    return sent


def _by_id(spans: list[Span]) -> dict[str, Span]:
    return {span.span_id: span for span in spans}


def test_every_call_of_a_storm_is_one_span_and_every_driver_agrees() -> None:
    """E17: each call and probe ends in a span of its own, and all who see the log make the same ones."""
    for seed in range(SEEDS):
        records = list(try_seed(seed)[1].log.records)
        spans = spans_of(records)
        run_id = spans[-1].run_id if spans else ""
        calls = [span for span in spans if span.parent_id is not None]
        ids = [span.span_id for span in calls]
        assert len(set(ids)) == len(ids), seed
        assert all(span.start_ms <= span.end_ms for span in spans), seed
        assert _by_id(_drive(records, sends=True)) == _by_id(spans), seed
        if any(isinstance(each, Ended) for each in records):
            assert set(ids) == _expected(records, run_id), seed
            assert run_span_id(run_id) in _by_id(spans), seed


def test_a_driver_killed_in_a_call_loses_no_span() -> None:
    """E17: of drivers that were killed in the middle of a call, and sent nothing, the next one sends all."""
    checked = 0
    for seed in range(SEEDS):
        records = list(try_seed(seed)[1].log.records)
        starts = [place for place, each in enumerate(records) if isinstance(each, DriverClaimed)]
        kills = [bool(RunTrace().replay(records[: place + 1])) for place in starts[1:]]
        in_order = kills.index(False) + 1 if False in kills else len(starts)
        if in_order > 1:  # all drivers up to there were killed; what the last of them did is looked at
            checked += 1
            seen = records[: starts[in_order]] if in_order < len(starts) else records
            assert _by_id(_drive(seen, sends=False)) == _by_id(spans_of(seen)), seed
    assert checked > 10
