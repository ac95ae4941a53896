"""Databases to try the plugin sql on: a file, and a schema of its own in a real PostgreSQL; and a line that breaks."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from sagactl.core.answer import ProbeReply
from sagactl.core.canonical import Json
from tests.plugins.project import TOOLBOX, Project

TABLES = (
    "CREATE TABLE stock (sku TEXT PRIMARY KEY, free INTEGER NOT NULL CHECK (free >= 0))",
    "CREATE TABLE orders (id INTEGER PRIMARY KEY {auto}, sku TEXT NOT NULL, note TEXT)",
    "INSERT INTO stock VALUES ('a', 5), ('b', 5)",
)
RESERVE: list[Json] = [
    {"run": "UPDATE stock SET free = free - $1 WHERE sku = $2 AND free >= $1", "values": [2, "a"], "rows": 1},
    {"run": "INSERT INTO orders (sku, note) VALUES ($1, $2) RETURNING id", "values": ["a", "it's; DROP TABLE stock"]},
]
GIVE_BACK: list[Json] = [
    {"run": "DELETE FROM orders WHERE id = $1", "values": [{"result": 1, "column": "id"}], "rows": 1},
    {"run": "UPDATE stock SET free = free + $1 WHERE sku = $2", "values": [2, "a"], "rows": 1},
]


@dataclass(frozen=True)
class Shop:
    """A database with a stock of 5 and no order, and a project that calls the plugin."""

    kind: str
    address: str
    project: Project
    read: Callable[[str], list[tuple[Any, ...]]]

    def execute(self, statements: list[Json] | None = None, **facts: Any) -> dict[str, Json]:
        """Make a call that must succeed, by default one that takes two of `a` and orders them."""
        return self.project.done("sql.execute", self.arguments(statements), **facts)

    def refuse(self, statements: list[Json] | None = None, **facts: Any) -> tuple[str, str]:
        """Make a call that must fail."""
        return self.project.word("sql.execute", self.arguments(statements), **facts)

    def arguments(self, statements: list[Json] | None = None) -> dict[str, Json]:
        """Return the arguments of sql.execute."""
        return {"database": self.address, "statements": RESERVE if statements is None else statements}

    def undo_arguments(self, **more: Json) -> dict[str, Json]:
        """Return the arguments of sql.undo."""
        return {"database": self.address, "statements": GIVE_BACK, **more}

    def undo(self, key: str = "a", **more: Json) -> dict[str, Json]:
        """Undo the call of a key."""
        return self.project.done("sql.undo", self.undo_arguments(**more), key=f"undo-{key}", forward_key=key)

    def find(self, key: str = "a") -> ProbeReply:
        """Ask the probe."""
        return TOOLBOX.probe(self.project.invoke("sql.find", {"database": self.address}, key=key, forward_key=key))

    def state(self) -> tuple[int, int]:
        """Return how many of `a` are free, and how many orders there are."""
        ((free,),) = self.read("SELECT free FROM stock WHERE sku = 'a'")
        ((orders,),) = self.read("SELECT count(*) FROM orders")
        return free, orders

    def notes(self) -> list[tuple[Any, ...]]:
        """Return what the barrier has noted."""
        return sorted(self.read("SELECT key, direction, made_by FROM saga_barrier"))


def make_file_shop(project: Project) -> Shop:
    """Return a shop in a file."""
    path = project.path / "shop.db"

    def read(statement: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()

    for statement in TABLES:
        read(statement.format(auto=""))
    return Shop("sqlite", "sqlite:shop.db", project, read)


def make_server_shop(server: str, schema: str, project: Project) -> Shop:
    """Return a shop in a schema of its own of a PostgreSQL server."""
    import psycopg

    address = f"{server}?options={quote(f'-c search_path={schema}')}"

    def read(statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    read(f"CREATE SCHEMA {schema}")
    for statement in TABLES:
        read(statement.format(auto="GENERATED ALWAYS AS IDENTITY"))
    return Shop("postgresql", address, project, read)


@dataclass
class Line:
    """A line to a server; where *breaks_at* has been sent through it, the answer is lost, and the line."""

    address: str
    breaks_at: bytes
    before_it_arrives: bool = False
    broken: int = 0
    hangs: bool = False


@contextlib.contextmanager
def laid_line(server: str, breaks_at: bytes, *, before_it_arrives: bool = False, hangs: bool = False) -> Iterator[Line]:
    """Lay a line to a server that breaks once, when something is sent: behind it, or before it; or hangs there."""
    target = urlsplit(server)
    assert target.port is not None
    upstream, threads, ends = ("127.0.0.1", target.port), list[threading.Thread](), list[socket.socket]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        netloc = f"{target.username}:{target.password}@127.0.0.1:{listener.getsockname()[1]}"
        line = Line(target._replace(netloc=netloc).geturl(), breaks_at, before_it_arrives, hangs=hangs)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    server = socket.create_connection(upstream)
                    ends.extend((client, server))
                    is_cut = threading.Event()
                    for carry in (_carry_there, _carry_back):
                        threads.append(threading.Thread(target=carry, args=(line, client, server, is_cut)))
                        threads[-1].start()

        threads.append(threading.Thread(target=serve))
        threads[0].start()
        try:
            yield line
        finally:
            for end in (listener, *ends):
                _shut(end)
            for thread in threads:
                thread.join()
            for end in ends:
                end.close()


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _carry_there(line: Line, client: socket.socket, server: socket.socket, is_cut: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while data := client.recv(65_536):
            if line.breaks_at in data and not line.broken:
                line.broken += 1
                is_cut.set()
                if line.before_it_arrives:
                    _shut(client)
                    break
            server.sendall(data)
    _shut(server)


def _carry_back(line: Line, client: socket.socket, server: socket.socket, is_cut: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while data := server.recv(65_536):
            if is_cut.is_set() and line.hangs:
                return
            if is_cut.is_set():
                break
            client.sendall(data)
    _shut(client)
