"""Servers that do what a test wants, byte by byte: real sockets, on this machine alone."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

REQUEST_BYTES_MAX = 8_388_608


@dataclass
class Asked:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def target(self) -> str:
        """Path and query."""
        return self.line.split(" ")[1]


Act = Callable[[socket.socket, Asked], None]


@dataclass
class Server:
    """A server that runs; `connections` counts those that were opened."""

    port: int
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serve(act: Act, *, certificate: Path | None = None) -> Iterator[Server]:
    """Run a server that has *act* answer each request of a connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(listener.getsockname()[1])
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    thread = threading.Thread(target=_accept, args=(listener, server, act, context), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def _accept(listener: socket.socket, server: Server, act: Act, context: ssl.SSLContext | None) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        server.connections += 1
        threading.Thread(target=_talk, args=(connection, server, act, context), daemon=True).start()


def _talk(connection: socket.socket, server: Server, act: Act, context: ssl.SSLContext | None) -> None:
    with contextlib.suppress(OSError, ValueError):
        if context is not None:
            connection = context.wrap_socket(connection, server_side=True)
        with connection:
            while (asked := _read_request(connection)) is not None:
                server.asked.append(asked)
                act(connection, asked)


def _read_request(connection: socket.socket) -> Asked | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65_536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    line, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65_536)
    return Asked(line, headers, body)


def say(status: int, body: bytes = b"", **headers: str) -> bytes:
    """Return a whole answer."""
    given = {"content-length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode() + body


def say_json(status: int, value: object, **headers: str) -> bytes:
    """Return a whole answer of JSON."""
    return say(status, json.dumps(value).encode(), content_type="application/json", **headers)


def always(answer: bytes) -> Act:
    """Return what gives the same answer to everybody."""
    return lambda connection, _: connection.sendall(answer)
