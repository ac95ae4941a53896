"""What reaches the SDK: the spans of a project's runs, and the context that tools find themselves in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from sagactl import CallContext, Project, RunStatus, Unavailable, open_project, tool
from sagactl.core.tracing import run_span_id, trace_id
from sagactl.telemetry import tracer as module
from sagactl.telemetry.tracer import Tracer

SAGA = """
saga: trip
input: {type: object, properties: {secret: {type: string, default: x}}}
steps:
  - {id: seat, tool: trip.book, with: {text: "${{ input.secret }}"}, retry: {initial_interval: 1ms}}
  - {id: meals, foreach: "${{ ['a', 'b', 'c'] }}", concurrency: 3, tool: trip.order, needs: []}
"""

seen: dict[str, trace.SpanContext] = {}


@tool("trip.book", compensation="trip.cancel", compensation_with={})
def book(text: str, context: CallContext) -> str:
    """Book a seat, at the second try."""
    with trace.get_tracer("plugin").start_as_current_span("inside") as span:
        assert isinstance(span, trace.Span)
    if context.attempt == 1:
        raise Unavailable("later", retry_after=0)
    seen["book"] = trace.get_current_span().get_span_context()
    seen["told"] = _parse(context.traceparent)
    return text


@tool("trip.order", compensation="trip.cancel", compensation_with={})
async def order(context: CallContext) -> None:
    """Order a meal."""
    await asyncio.sleep(0.001)
    seen[f"order {context.item}"] = trace.get_current_span().get_span_context()
    seen[f"told {context.item}"] = _parse(context.traceparent)


@tool("trip.cancel", null_safe=True)
def cancel() -> None:
    """Undo."""


def _parse(traceparent: str) -> trace.SpanContext:
    _, trace_text, span_text, flags = traceparent.split("-")
    return trace.SpanContext(
        int(trace_text, 16), int(span_text, 16), is_remote=True, trace_flags=trace.TraceFlags(int(flags, 16))
    )


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Give a project whose tools are this module's."""
    seen.clear()
    (tmp_path / "sagas").mkdir()
    (tmp_path / "sagas" / "trip.yaml").write_text(SAGA)
    with open_project(tmp_path, tools=(book, order, cancel)) as opened:
        yield opened


def _run(project: Project) -> tuple[str, list[ReadableSpan]]:
    """Run the saga with spans in memory, and return its id and what was exported."""
    exporter = InMemorySpanExporter()
    project.telling.tracer = Tracer(exporter, service_name="shop")
    with project.driver() as driver:
        run_id = driver.start(project.load("trip"), {"secret": "hush"})
        assert driver.drive()[run_id].status is RunStatus.SUCCEEDED
    project.close()
    return run_id, list(exporter.get_finished_spans())


def test_the_spans_of_a_run_are_what_its_records_say(project: Project) -> None:
    """One trace: the run, each attempt, each item; nothing of what went in or came out."""
    run_id, spans = _run(project)
    names = sorted(span.name for span in spans)
    assert names == ["saga trip", "trip.book seat", "trip.book seat", *["trip.order meals"] * 3]
    contexts = [span.get_span_context() for span in spans]
    assert {f"{context.trace_id:032x}" for context in contexts if context} == {trace_id(run_id)}
    root = next(span for span in spans if span.parent is None)
    assert root.context is not None
    assert f"{root.context.span_id:016x}" == run_span_id(run_id)
    assert all(span.parent is root.context or span.parent == root.context for span in spans if span is not root)
    assert root.resource.attributes["service.name"] == "shop"
    assert "hush" not in "".join(span.to_json() for span in spans)
    failed = next(span for span in spans if not span.status.is_ok)
    assert (failed.status.status_code, failed.attributes and failed.attributes["error.type"]) == (
        StatusCode.ERROR,
        "unavailable",
    )


def test_a_tool_finds_itself_in_its_call(project: Project) -> None:
    """What a plugin's own instrumentation sends joins the trace: on a thread and on the event loop."""
    _run(project)
    assert seen["book"] == seen["told"]
    assert [seen[f"order {item}"] == seen[f"told {item}"] for item in range(3)] == [True] * 3
    assert len({context.span_id for name, context in seen.items() if name.startswith("order")}) == 3
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_trace_is_sampled_as_a_whole_and_tools_are_told(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_TRACES_SAMPLER decides by the id of the trace, so all who drive the run decide alike."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    _, spans = _run(project)
    assert spans == []
    assert not seen["told"].trace_flags.sampled


def test_more_runs_than_are_followed_cost_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of runs in mind is bounded; one that was left out is taken up again by its next driver."""
    from tests.core.builders import Play, saga

    monkeypatch.setattr(module, "RUNS_MAX", 2)
    exporter = InMemorySpanExporter()
    tracer = Tracer(exporter, service_name=None)
    play = Play(saga("a"))
    play.turn()
    for run_id in ("r1", "r2", "r3"):
        tracer.note(run_id, 1, play.records[:2])
    assert list(tracer._traces) == ["r2", "r3"]
    tracer.note("r1", 3, play.records[2:])
    tracer.close()
    assert exporter.get_finished_spans() == ()
