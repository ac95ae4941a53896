"""What stands between a plugin and a server: it lets requests pass, loses answers, holds them back, or gives its own.

A reply is lost after the server has acted, so that nobody can tell from the outside whether it did.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
WAIT_SECONDS = 90.0


@dataclass(frozen=True)
class Reply:
    """An answer that the server behind never gave."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """What is asked; the names of headers are in small letters."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]


Answering = Callable[[Request], "Reply | None"]
"""Answers a request, or None where the server behind shall."""


@dataclass
class Between:
    """A server that hands on what it is asked; `url` is where to ask."""

    url: str
    seen: list[tuple[str, str]] = field(default_factory=list)
    """The method and path of each request that came through, in order."""
    _lost: list[str] = field(default_factory=list)
    _held: list[tuple[str, threading.Event]] = field(default_factory=list)
    _replies: list[tuple[str, Reply]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lose(self, what: str, times: int = 1) -> None:
        """Lose the answer to the next requests whose `METHOD path` contains *what*: the connection is closed."""
        with self._lock:
            self._lost += [what] * times

    def hold(self, what: str) -> threading.Event:
        """Hold back the next request whose `METHOD path` contains *what* until the event is set, then hand it on."""
        event = threading.Event()
        with self._lock:
            self._held.append((what, event))
        return event

    def reply(self, what: str, reply: Reply, times: int = 1) -> None:
        """Answer the next requests whose `METHOD path` contains *what* with *reply*; the server sees none of them."""
        with self._lock:
            self._replies += [(what, reply)] * times

    @property
    def is_spent(self) -> bool:
        """Tell whether everything that was to be lost, held back or answered here came."""
        return not self._lost and not self._held and not self._replies

    def _take_reply(self, line: str) -> Reply | None:
        with self._lock:
            found = next((each for each in self._replies if each[0] in line), None)
            if found is None:
                return None
            self._replies.remove(found)
            return found[1]

    def _take_loss(self, line: str) -> bool:
        with self._lock:
            found = next((what for what in self._lost if what in line), None)
            if found is not None:
                self._lost.remove(found)
            return found is not None

    def _take_hold(self, line: str) -> threading.Event | None:
        with self._lock:
            found = next((each for each in self._held if each[0] in line), None)
            if found is None:
                return None
            self._held.remove(found)
            return found[1]


@contextlib.contextmanager
def standing_before(
    upstream: str, answering: Answering = lambda *_: None, naming: Callable[[bytes], str] = lambda _: ""
) -> Iterator[Between]:
    """Stand before the server at *upstream*, such as `http://127.0.0.1:8000`, until the block ends.

    *answering* is asked first: it may have what the server lacks. What *naming* makes of the body stands behind
    `METHOD path`, for servers whose paths don't say what is asked.
    """
    target = urlsplit(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def _pass_on(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else None
            line = f"{self.command} {self.path} {naming(body or b'')}"
            held = between._take_hold(line)
            if held is not None:
                held.wait(WAIT_SECONDS)
            given = {name.lower(): value for name, value in self.headers.items()}
            reply = between._take_reply(line) or answering(Request(self.command, self.path, body or b"", given))
            if reply is not None:
                between.seen.append((self.command, self.path))
                self._give(line, reply)
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_HEADERS}
            assert target.hostname is not None
            connection = http.client.HTTPConnection(target.hostname, target.port, timeout=WAIT_SECONDS)
            with contextlib.closing(connection):
                between.seen.append((self.command, self.path))
                connection.request(self.command, self.path, body, {**headers, "Host": target.netloc})
                answer = connection.getresponse()
                content = answer.read()
            self._give(line, Reply(answer.status, content, dict(answer.getheaders())))

        def _give(self, line: str, reply: Reply) -> None:
            if between._take_loss(line):
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                if name.lower() not in {*HOP_HEADERS, "date", "server"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(reply.body)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _pass_on  # noqa: N815

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing: who asked may have been killed, which is what such a test is about."""

    with Quiet(("127.0.0.1", 0), Handler) as server:
        between = Between(f"http://127.0.0.1:{server.server_port}{target.path}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield between
        finally:
            for _, event in between._held:
                event.set()
            server.shutdown()
            thread.join()
