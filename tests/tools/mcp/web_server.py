"""A server behind a URL for tests, good or bad as its `mode` says; a thread of the test's own process."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOOL = {"name": "put", "description": "Write a line.", "inputSchema": {"type": "object"}}


class WebServer(ThreadingHTTPServer):
    """Answers as the protocol has it, but for calls of the tool, which `mode` spoils; `calls` are those that came."""

    daemon_threads = True

    def __init__(self, certificate: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mode = "good"
        self.calls: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.sessions = 0
        self.sent_bytes = 0
        self.is_flooding = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/mcp"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.url = f"https://localhost:{self.server_address[1]}/mcp"


class _Handler(BaseHTTPRequestHandler):
    server: WebServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Stay silent."""

    def do_GET(self) -> None:
        if self.server.mode not in {"beside", "again"}:
            self._send(405, b"", "text/plain")
            return
        self.close_connection = True
        if self.server.is_flooding.wait(60):
            self._make_noise()

    def do_DELETE(self) -> None:
        if self.server.mode == "never ends":
            time.sleep(60)
        self._send(200, b"", "text/plain")

    def do_POST(self) -> None:
        self.close_connection = True
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, number = message.get("method"), message.get("id")
        if self.server.mode.startswith("refuses "):
            self._send(int(self.server.mode.split()[1]), b'{"error": "invalid_token"}')
        elif number is None:
            self._send(202, b"", "text/plain")
        elif method == "initialize":
            self.server.sessions += 1
            if self.server.mode == "echoes at once":
                self._send_json({"id": "x", "seen": self.headers["Authorization"]})
                return
            about = {"name": "web", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
            self._answer(number, result, **{"Mcp-Session-Id": f"s{self.server.sessions}"})
        elif method == "tools/list":
            self._answer(number, {"tools": [TOOL]})
        elif method == "tools/call":
            self.server.calls.append(message["params"])
            self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
            self._call(number)
        else:
            error = {"code": -32601, "message": "no such method"}
            self._send_json({"jsonrpc": "2.0", "id": number, "error": error})

    def _call(self, number: object) -> None:
        mode = self.server.mode
        if mode.startswith("json "):
            self._send(int(mode.split()[1]), b'{"detail": "sorry"}', "application/json; charset=utf-8")
        elif mode.startswith("error "):
            self._send_error(int(mode.split()[1]), number if mode.endswith("mine") else None)
        elif mode.startswith("status "):
            self._send(int(mode.split()[1]), b"sorry", "text/plain", Location="http://127.0.0.1:1/elsewhere")
        elif mode == "session":
            self.server.mode = "good"
            self._send(404, b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "?"}}')
        elif mode == "closes":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        elif mode == "hangs":
            time.sleep(60)
        elif mode == "drips":
            self._drip()
        elif mode in {"endless", "events"}:
            self._flood(is_events=mode == "events")
        elif mode == "noise":
            self._make_noise()
        elif mode == "beside":
            self.server.is_flooding.set()
            time.sleep(60)
        elif mode == "again":
            self.server.is_flooding.set()
            self._send(200, b"retry: 10\nid: 1\ndata:\n\n", "text/event-stream")
        elif mode == "news":
            self._tell_news()
        elif mode == "packed":
            self._send(200, b"\x1f\x8b", **{"Content-Encoding": "gzip"})
        elif mode == "garbage":
            self._send(200, b"{{{")
        elif mode == "echoes":
            self._send_json({"id": "x", "seen": self.headers["Authorization"]})
        elif mode == "echoes a result":
            self._answer(number, {"content": {"id": "x", "seen": self.headers["Authorization"]}})
        elif mode == "echoes a piece":
            seen = self.headers["Authorization"]
            error = {"code": -32602, "message": f"got '{seen[:14]}...{seen[-20:]}', input_type=str"}
            self._send_json({"jsonrpc": "2.0", "id": number, "error": error})
        else:
            self._answer(number, {"content": [{"type": "text", "text": "done"}]})

    def _send_error(self, status: int, number: object) -> None:
        error = {"code": -32001, "message": "Unauthorized: \x1b[31mno valid token"}
        self._send(status, json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())

    def _drip(self) -> None:
        with contextlib.suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(600):
                self.wfile.write(b" ")
                time.sleep(0.1)

    def _tell_news(self) -> None:
        message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
        event = b"data: " + json.dumps(message).encode() + b"\n\n"
        with contextlib.suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for _ in range(100):
                self.wfile.write(event * 1_000)

    def _make_noise(self) -> None:
        """Send events of a kind that nobody knows, without end; none of them is large."""
        event = b"event: noise\ndata: " + b"x" * 1_000_000 + b"\n\n"
        with contextlib.suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for _ in range(1_000):
                self.wfile.write(event)
                self.server.sent_bytes += len(event)

    def _flood(self, *, is_events: bool) -> None:
        kind = b"text/event-stream" if is_events else b"application/json"
        with contextlib.suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nContent-Length: 200000000\r\n\r\n")
            self.wfile.write(b"data: " if is_events else b'"')
            for _ in range(200):
                self.wfile.write(b"x" * 1_000_000)

    def _answer(self, number: object, result: dict[str, Any], **headers: str) -> None:
        self._send_json({"jsonrpc": "2.0", "id": number, "result": result}, **headers)

    def _send_json(self, message: dict[str, Any], **headers: str) -> None:
        self._send(200, json.dumps(message).encode(), **headers)

    def _send(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Connection": "close",
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def serving(certificate: Path | None = None) -> Iterator[WebServer]:
    """Serve until the block ends, over TLS where there is a certificate."""
    server = WebServer(certificate)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
