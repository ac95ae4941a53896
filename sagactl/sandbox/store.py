"""One system of a third party, as far as sagas are concerned: it honours idempotency keys and remembers what it did.

The rules are those that a good payment service keeps:

* the same key gives the stored answer again, and no second effect;
* the same key with another request is refused;
* an undo leaves a tombstone under the forward key, whether or not it found something; an action that arrives after it
  is refused (that is what `late_safe` promises);
* effect, answer and ledger line are one transaction.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias, TypeVar, cast

from sagactl.core.canonical import Json, canonical, parse
from sagactl.sandbox.database import count_up, sandbox_path, transaction
from sagactl.sandbox.witness import die_if_told, testify
from sagactl.tools.api import CallContext, Rejected

ID_DIGITS: Final = 12

Body: TypeAlias = dict[str, Json]
Answer = TypeVar("Answer", bound=Mapping[str, object])


class Books:
    """The objects of one system within one transaction."""

    def __init__(self, connection: sqlite3.Connection, system: str, context: CallContext) -> None:
        self._connection = connection
        self._system = system
        self._context = context

    def new_id(self, prefix: str) -> str:
        """Return an id for what this call makes; the same in each attempt."""
        digest = hashlib.sha256(f"{self._system}/{self._context.idempotency_key}".encode()).hexdigest()
        return f"{prefix}_{digest[:ID_DIGITS]}"

    def get(self, kind: str, identity: str) -> Body | None:
        """Return one object."""
        row = self._connection.execute(
            "SELECT body FROM objects WHERE system = ? AND kind = ? AND id = ?", (self._system, kind, identity)
        ).fetchone()
        return None if row is None else _load(row[0])

    def find_id(self, kind: str) -> str | None:
        """Return the id of the object that the action of this operation made, found by the forward key."""
        row = self._connection.execute(
            "SELECT id FROM objects WHERE system = ? AND kind = ? AND forward_key = ?",
            (self._system, kind, self._context.forward_key),
        ).fetchone()
        return None if row is None else str(row[0])

    def all(self, kind: str) -> list[Body]:
        """Return all objects of a kind, by id."""
        rows = self._connection.execute(
            "SELECT body FROM objects WHERE system = ? AND kind = ? ORDER BY id", (self._system, kind)
        )
        return [_load(body) for (body,) in rows]

    def put(self, kind: str, identity: str, body: Mapping[str, Json]) -> None:
        """Add or replace an object; who made it stays as it was."""
        self._connection.execute(
            "INSERT INTO objects VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (system, kind, id) DO UPDATE SET body = excluded.body",
            (self._system, kind, identity, self._context.forward_key, canonical(dict(body))),
        )

    def note(self, effect: str, detail: Mapping[str, Json]) -> None:
        """Add an effect to the ledger: something that a customer would see."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        key, forward_key = self._context.idempotency_key, self._context.forward_key
        self._connection.execute(
            "INSERT INTO ledger (at, system, effect, key, forward_key, detail) VALUES (?, ?, ?, ?, ?, ?)",
            (at, self._system, effect, key, forward_key, canonical(dict(detail))),
        )


@dataclass(frozen=True, slots=True)
class Vendor:
    """A system under one name, called in one context; `vendor` makes it."""

    system: str
    context: CallContext
    path: Path

    def act(self, request: Mapping[str, Json], work: Callable[[Books], Answer]) -> Answer:
        """Let *work* happen once for this key; raises Rejected for another request under it, and after an undo."""
        return self._do_once(request, self._refuse_late, work)

    def undo(self, request: Mapping[str, Json], work: Callable[[Books], Answer]) -> Answer:
        """Let *work* undo once for this key, and refuse the action from now on."""
        return self._do_once(request, self._bury, work)

    def _do_once(
        self,
        request: Mapping[str, Json],
        prepare: Callable[[sqlite3.Connection], None],
        work: Callable[[Books], Answer],
    ) -> Answer:
        die_if_told(self.path, self.context, "before_effect")
        with transaction(self.path) as connection:
            answer = self._recall(connection, request)
            is_new = answer is None
            if is_new:
                prepare(connection)
                answer = self._work(connection, request, work)
        if is_new:
            testify(self.context, "effect")
        die_if_told(self.path, self.context, "after_effect")
        return cast("Answer", answer)

    @contextlib.contextmanager
    def read(self) -> Iterator[Books]:
        """Look at the objects without changing them."""
        die_if_told(self.path, self.context, "before_effect")
        with transaction(self.path) as connection:
            yield Books(connection, self.system, self.context)

    def count_try(self) -> int:
        """Return how often this key has asked, this time included; survives the transaction's failure."""
        with transaction(self.path) as connection:
            return count_up(connection, f"try {self.system} {self.context.idempotency_key}")

    def _recall(self, connection: sqlite3.Connection, request: Mapping[str, Json]) -> Body | None:
        row = connection.execute(
            "SELECT request, answer FROM answers WHERE system = ? AND key = ?",
            (self.system, self.context.idempotency_key),
        ).fetchone()
        if row is None:
            return None
        if row[0] != self._spell(request):
            raise Rejected(f"key {self.context.idempotency_key} was used for another request", code="key_reused")
        return _load(row[1])

    def _refuse_late(self, connection: sqlite3.Connection) -> None:
        buried = connection.execute(
            "SELECT 1 FROM tombstones WHERE system = ? AND forward_key = ?", (self.system, self.context.forward_key)
        ).fetchone()
        if buried is not None:
            raise Rejected(f"{self.context.forward_key} was undone already", code="already_undone")

    def _bury(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            "INSERT OR IGNORE INTO tombstones VALUES (?, ?, ?)",
            (self.system, self.context.forward_key, self.context.idempotency_key),
        )

    def _work(
        self, connection: sqlite3.Connection, request: Mapping[str, Json], work: Callable[[Books], Answer]
    ) -> Body:
        answer = cast("Body", dict(work(Books(connection, self.system, self.context))))
        connection.execute(
            "INSERT INTO answers VALUES (?, ?, ?, ?)",
            (self.system, self.context.idempotency_key, self._spell(request), canonical(answer)),
        )
        return answer

    def _spell(self, request: Mapping[str, Json]) -> str:
        return canonical([self.context.tool, dict(request)])


@contextlib.contextmanager
def vendor(system: str, context: CallContext) -> Iterator[Vendor]:
    """Open a system of the project's sandbox for the length of one call."""
    testify(context, "begin")
    outcome = "returned"
    try:
        yield Vendor(system, context, sandbox_path(context.project))
    except BaseException as error:
        outcome = type(error).__name__
        raise
    finally:
        testify(context, "end", outcome=outcome)


def _load(text: str) -> Body:
    return cast("Body", parse(text))
