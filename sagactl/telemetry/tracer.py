"""Sending spans beside a run, with the SDK of OpenTelemetry; imported only where spans are sent.

Spans are handed to the SDK's batch processor, which sends them on a thread of its own: a collector that is down, slow
or odd holds up no run, and the end of a program by `END_SECONDS` at most. What can't be sent is dropped and counted.

Spans are made whole from records and never "started": their ids and times are those of the log (see `spans`). So the
processor gets them when they have ended, as from any tracer.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sagactl.core.tracing import read_traceparent, trace_id
from sagactl.errors import InvalidError
from sagactl.telemetry.settings import Telemetry
from sagactl.telemetry.spans import RunTrace, Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Link, SpanContext

    from sagactl.core.records import Record

SCOPE: Final = "sagactl"
"""The instrumentation scope of our spans."""

END_SECONDS: Final = 2.0
"""How long the end of a program waits for spans that are being sent."""

RUNS_MAX: Final = 10_000
"""How many runs of a process are followed at once; of more, those that nothing happened to for longest are left out."""

MISSING_HINT: Final = "pip install 'sagactl[otel]'"
_NS_PER_MS: Final = 1_000_000


class Tracer:
    """Sends the spans of runs by *exporter*; from any thread."""

    def __init__(self, exporter: SpanExporter, *, service_name: str | None) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        from sagactl import __version__

        self._counting = _Counting(exporter)
        self._processor = BatchSpanProcessor(self._counting.as_exporter())
        self._provider = TracerProvider(resource=_make_resource(service_name), shutdown_on_exit=False)
        self._provider.add_span_processor(self._processor)
        self._scope = InstrumentationScope(SCOPE, __version__)
        self._lock = threading.Lock()
        self._traces: OrderedDict[str, RunTrace] = OrderedDict()
        self._given = 0

    @property
    def provider(self) -> TracerProvider:
        """What other tracers of this process may send by as well."""
        return self._provider

    def note(self, run_id: str, first_seq: int, records: Sequence[Record]) -> None:
        """Take note of records that are durable now; *first_seq* is 1 where a driver has taken the run over."""
        with self._lock:
            for span in self._take(run_id, first_seq, records):
                if self.is_sampled(run_id):
                    self._given += 1
                    self._processor.on_end(self._make_span(span))

    def _take(self, run_id: str, first_seq: int, records: Sequence[Record]) -> list[Span]:
        if first_seq == 1:
            trace = self._traces[run_id] = RunTrace()
            spans = trace.replay(records)
        else:
            found = self._traces.get(run_id)
            if found is None:
                return []
            trace, spans = found, found.take(records)
        self._traces.move_to_end(run_id)
        if trace.is_at_rest or len(self._traces) > RUNS_MAX:
            del self._traces[run_id if trace.is_at_rest else next(iter(self._traces))]
        return spans

    def is_sampled(self, run_id: str) -> bool:
        """Tell whether a run's trace is kept (OTEL_TRACES_SAMPLER): all of it, whoever drives the run, or nothing."""
        from opentelemetry.sdk.trace.sampling import Decision

        found = self._provider.sampler.should_sample(None, int(trace_id(run_id), 16), SCOPE)
        return found.decision is Decision.RECORD_AND_SAMPLE

    @contextmanager
    def attached(self, traceparent: str) -> Iterator[None]:
        """Make the call of that *traceparent* what spans of this thread or task belong to."""
        from opentelemetry import context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        found = TraceContextTextMapPropagator().extract({"traceparent": traceparent}, context.Context())
        token = context.attach(found)
        try:
            yield
        finally:
            context.detach(token)

    def close(self) -> None:
        """Send what is left, for `END_SECONDS` at most, and say what was lost."""
        thread = threading.Thread(target=self._processor.shutdown, name="sagactl telemetry", daemon=True)
        thread.start()
        thread.join(END_SECONDS)
        if thread.is_alive():
            self._counting.stop()
        lost = self._given - self._counting.sent
        if lost > 0:
            message = "telemetry: %d of %d spans could not be sent to the collector (sagactl help telemetry)"
            logging.getLogger("sagactl").warning(message, lost, self._given)

    def _make_span(self, span: Span) -> ReadableSpan:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace.status import Status, StatusCode

        status = Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error)
        return ReadableSpan(
            name=span.name,
            context=_context_of(span.run_id, span.span_id),
            parent=None if span.parent_id is None else _context_of(span.run_id, span.parent_id),
            resource=self._provider.resource,
            attributes=span.attributes,
            events=[Event(each.name, each.attributes, each.at_ms * _NS_PER_MS) for each in span.events],
            links=list(_link(span)),
            status=status,
            start_time=span.start_ms * _NS_PER_MS,
            end_time=span.end_ms * _NS_PER_MS,
            instrumentation_scope=self._scope,
        )


def _link(span: Span) -> Iterator[Link]:
    """Yield what *span* has to do with: of the same trace, or of another one that the run was begun in."""
    from opentelemetry.trace import Link, SpanContext, TraceFlags

    for each in span.links:
        yield Link(_context_of(span.run_id, each))
    remote = None if span.begun_in is None else read_traceparent(span.begun_in)
    if remote is not None:
        flags = TraceFlags(remote.flags)
        context = SpanContext(int(remote.trace_id, 16), int(remote.span_id, 16), is_remote=True, trace_flags=flags)
        yield Link(context, {"sagactl.link": "begun_in"})


class _Counting:
    """An exporter that counts which of our spans have arrived."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._is_stopped = False
        self.sent = 0

    def as_exporter(self) -> Any:
        """Return this as what the processor takes: it is one by its methods."""
        return self

    def export(self, spans: Sequence[ReadableSpan]) -> Any:
        """Send *spans*."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        if self._is_stopped:
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            scopes = [span.instrumentation_scope for span in spans]
            self.sent += sum(scope is not None and scope.name == SCOPE for scope in scopes)
        return result

    def shutdown(self) -> None:
        """Let go of the connection."""
        self._exporter.shutdown()

    def stop(self) -> None:
        """Begin nothing more."""
        self._is_stopped = True

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait for nothing: nothing is held back here."""
        return self._exporter.force_flush(timeout_millis)


def _context_of(run_id: str, span_id: str) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(int(trace_id(run_id), 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(1))


def _make_resource(service_name: str | None) -> Any:
    from opentelemetry.sdk.resources import Resource

    return Resource.create({} if service_name is None else {"service.name": service_name})


def make_tracer(settings: Telemetry) -> Tracer | None:
    """Return what sends spans, or None where it can't be had and only the environment asks for it.

    Raises InvalidError where the project asks for it. What is wrong with the variables of OpenTelemetry is a warning:
    they are often meant for another program.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        if not settings.is_required:
            return None
        message = "telemetry needs a package that is not installed"
        raise InvalidError(message, code="missing-extra", hint=MISSING_HINT) from None
    _keep_quiet()
    try:
        return Tracer(OTLPSpanExporter(endpoint=settings.endpoint), service_name=settings.service_name)
    except Exception as error:  # a variable with a value that the SDK can't read
        logging.getLogger("sagactl").warning("telemetry is off: %s", error)
        return None


def _keep_quiet() -> None:
    """Keep what the SDK says of each failed try from stderr, unless the program has a handler for it."""
    for name in ("opentelemetry", "urllib3"):
        logging.getLogger(name).addHandler(logging.NullHandler())


def set_global(tracer: Tracer) -> None:
    """Let other tracers of this process send the same way, unless the program has decided that for itself."""
    from opentelemetry import trace

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(tracer.provider)
