"""A server of Tryton, a CRM and ERP that others wrote, with a company and no customers, on a database of its own.

Tryton is GPL: it is a process of its own, talked to by HTTP, and nothing of it is imported here. Setting up a database
takes some 15 seconds of work, so it is done once for each set of versions and kept beside this file; a server gets a
copy of it, with a key of its own.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import secrets
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.servers.start import find_free_port, find_python_program, is_listening, lack, running

KEPT = Path(__file__).parent / ".tryton"
MODULE = "sale"
DATABASE = "crm"
PASSWORD = "for-tests-on-this-machine-only"
SET_UP = 1
"""The number of the way in which databases are set up here; another one makes them anew."""
SET_UP_SECONDS = 1_200
CENT = {"__class__": "Decimal", "decimal": "0.01"}


@dataclass(frozen=True)
class Tryton:
    """A server that runs, and the folder of its database."""

    url: str
    key: str
    port: int
    folder: Path

    def ask(self, method: str, path: str, body: object = None, **query: str | Sequence[str]) -> Any:
        """Send a request as the owner of the key; return the JSON that came, or None where nothing did."""
        headers = {"Authorization": f"bearer {self.key}"}
        answer = httpx.request(
            method, f"{self.url}/rest/model/{path}", json=body, params=query, headers=headers, timeout=120
        )
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def find(self, model: str, domain: Sequence[object] = (), fields: Sequence[str] = ("id",)) -> list[dict[str, Any]]:
        """Return the records of *model*, those that aren't active too where *domain* says so."""
        packed = base64.urlsafe_b64encode(json.dumps(list(domain)).encode()).decode()
        found: list[dict[str, Any]] = self.ask("GET", model, d=packed, f=list(fields))
        return found

    def serve(self) -> AbstractContextManager[object]:
        """Let the server run within the block; afterwards it can be let run again, with what it knew."""
        return _serve(self.folder, self.port)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Tryton]:
    """Run a server in *folder* until the block ends: a company, and nothing else."""
    tryton = prepare(folder)
    with tryton.serve():
        yield tryton


def prepare(folder: Path) -> Tryton:
    """Return a server that may be let run, with a database and a key of its own in *folder*."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = folder / f"{DATABASE}.sqlite"
    shutil.copyfile(find_set_up(), database)
    key = secrets.token_hex(32)
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        changed = connection.execute("UPDATE res_user_application SET key = ?", (key,))
        assert changed.rowcount == 1
    port = find_free_port()
    return Tryton(f"http://127.0.0.1:{port}/{DATABASE}", key, port, folder)


def find_set_up(say: Callable[[str], None] = lambda _: None) -> Path:
    """Return the database that copies are made of, set up on first use; *say* is told that this takes a while."""
    ours = sorted(
        f"{found.metadata['Name']} {found.version}"
        for found in importlib.metadata.distributions()
        if found.metadata["Name"].startswith("trytond")
    )
    if not any(name.replace("_", "-").startswith(f"trytond-{MODULE} ") for name in ours):
        lack("trytond-sale isn't installed: pip install --editable '.[servers]'")
    digest = hashlib.sha256(json.dumps([SET_UP, *ours]).encode()).hexdigest()[:16]
    place = KEPT / f"{digest}.sqlite"
    KEPT.mkdir(mode=0o700, exist_ok=True)
    with (KEPT / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            say("setting up a database of Tryton, once: some 20 seconds")
            with tempfile.TemporaryDirectory(dir=KEPT) as folder:
                _set_up(Path(folder)).replace(place)
    return place


def _set_up(folder: Path) -> Path:
    """Make a database in *folder*: the module, a currency, a company, and a key for the REST API."""
    database = folder / f"{DATABASE}.sqlite"
    database.touch()
    command = [find_python_program("trytond-admin"), "-c", _configure(folder, port=0), "-d", DATABASE]
    command += ["-u", MODULE, "--activate-dependencies", "--no-indexes", "--email", "admin@example.com"]
    (folder / "password").write_text(PASSWORD)
    done = subprocess.run(
        command,
        env={**os.environ, "TRYTONPASSFILE": str(folder / "password")},
        capture_output=True,
        text=True,
        timeout=SET_UP_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    port = find_free_port()
    with _serve(folder, port):
        _fill(f"http://127.0.0.1:{port}/{DATABASE}/rpc/")
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the file alone is copied
    return database


def _fill(url: str) -> None:
    """Make what every customer needs to be there, as the administrator: once, by JSON-RPC."""
    with httpx.Client(timeout=240) as client:

        def call(method: str, *arguments: object) -> Any:
            answer = client.post(url, json={"id": 1, "method": method, "params": list(arguments)})
            assert answer.status_code == 200, answer.text
            body = answer.json()
            assert "error" not in body, body["error"]
            return body["result"]

        user, session, *_ = call("common.db.login", "admin", {"password": PASSWORD}, "en")
        token = base64.b64encode(f"admin:{user}:{session}".encode()).decode()
        client.headers["Authorization"] = f"Session {token}"

        def create(model: str, values: Mapping[str, object]) -> int:
            made: int = call(f"model.{model}.create", [dict(values)], {})[0]
            return made

        euro = {"name": "Euro", "code": "EUR", "symbol": "€", "digits": 2, "rounding": CENT}
        currency = create("currency.currency", euro)
        party = create("party.party", {"name": "Example Ltd", "code": "EXAMPLE", "addresses": []})
        company = create("company.company", {"party": party, "currency": currency})
        call("model.res.user.write", [user], {"companies": [["add", [company]]], "company": company}, {})
        create("res.user.application", {"user": user, "application": "rest"})


def _serve(folder: Path, port: int) -> AbstractContextManager[object]:
    command = [find_python_program("trytond"), "-c", _configure(folder, port), "-d", DATABASE]
    return running(command, is_ready=lambda: is_listening(port), log=folder / "trytond.log")


def _configure(folder: Path, port: int) -> str:
    """Write the settings of a server, on this machine only, and return the path of the file."""
    place = folder / "trytond.conf"
    place.write_text(f"[database]\nuri = sqlite://\npath = {folder}\n\n[web]\nlisten = 127.0.0.1:{port}\n")
    return str(place)
