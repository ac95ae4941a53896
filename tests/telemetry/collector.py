"""A collector of OpenTelemetry for tests: a real server for OTLP over HTTP, which may be out of order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Received:
    """A span as it arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    scope: str
    error: str | None
    attributes: dict[str, Any]
    events: list[str]
    links: list[str]
    linked_traces: list[str]
    resource: dict[str, Any]


@dataclass
class Collector:
    """What has arrived; `status` is what each request is answered with, `hangs` keeps them waiting until it is set."""

    url: str = ""
    status: int = 200
    hangs: threading.Event | None = None
    spans: list[Received] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        """Take note of a request."""
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans += [_read(span, scope.scope.name, resource.resource) for span in scope.spans]

    def named(self, name: str) -> list[Received]:
        """Return the spans of one name, in order of their start."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_ns)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead here."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url}


def _read(span: Any, scope: str, resource: Any) -> Received:
    return Received(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        scope,
        span.status.message if span.status.code == 2 else None,
        _values(span.attributes),
        [event.name for event in span.events],
        [link.span_id.hex() for link in span.links],
        [link.trace_id.hex() for link in span.links],
        _values(resource.attributes),
    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def collecting(status: int = 200, hangs: threading.Event | None = None) -> Iterator[Collector]:
    """Give a collector that listens on this machine."""
    collector = Collector(status=status, hangs=hangs)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if collector.hangs is not None:
                collector.hangs.wait(60)
            assert self.path == "/v1/traces"
            if collector.status == 200:
                collector.take(body)
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        if hangs is not None:
            hangs.set()
        server.shutdown()
        server.server_close()
        thread.join()
