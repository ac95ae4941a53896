"""A real HTTP server that takes what is sent and answers as a test wants."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
CERTIFICATE = Path(__file__).with_name("localhost.pem")

Answer = Callable[[BaseHTTPRequestHandler], None]


def take(handler: BaseHTTPRequestHandler) -> None:
    """Answer that it was taken."""
    handler.send_response(204)
    handler.end_headers()


def answer(status: int, body: bytes = b"", **headers: str) -> Answer:
    """Return what answers with *status*."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return send


@dataclass
class Post:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as a value."""
        return json.loads(self.body)

    @property
    def id(self) -> str:
        """The id that it was sent under."""
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """What came, in order, and how the next is answered."""

    port: int = 0
    posts: list[Post] = field(default_factory=list)
    answer: Answer = take
    came: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        """Where to post to."""
        return f"http://127.0.0.1:{self.port}/hook?for=sagactl"

    @property
    def ids(self) -> list[str]:
        """The ids of all that came."""
        return [post.id for post in self.posts]

    def wait(self, count: int, timeout_seconds: float = 60) -> None:
        """Wait until so many have come."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.posts) >= count, timeout_seconds), self.ids


@contextmanager
def receiving(*, tls: bool = False, port: int = 0) -> Iterator[Receiver]:
    """Give a server that listens on this machine for the time of a `with`."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with receiver.came:
                receiver.posts.append(Post(self.path, headers, body))
                receiver.came.notify_all()
            receiver.answer(self)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Say nothing where the other side has gone."""

    server = Server(("127.0.0.1", port), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
