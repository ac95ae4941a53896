"""PostgreSQL as a participant, with psycopg 3: one transaction, bound to the time of the call."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn

from sagactl import CallContext, Rejected, Unavailable

from ._barrier import TABLE, TABLE_SQL, Result, Value, name_cells

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS_MAX: Final = 10
POLL_SECONDS: Final = 0.1
LOCK_OF_TABLE: Final = 0x5A6A_BA77
"""The advisory lock under which the barrier's table is made: two that make one at once would both fail."""

PASSING_CLASSES: Final = frozenset({"08", "40", "53", "57", "58"})
"""Classes of SQLSTATE that say nothing against the statement: another time it may work."""

PASSING: Final = frozenset({"55P03", "55006"})
PROTOCOL_VIOLATION: Final = "08P01"
"""Of a statement: too few values."""

MAYBE_COMMITTED: Final = frozenset({"08", "57"})
WITHOUT_PERMISSION: Final = re.compile(r"authentication failed|no pg_hba\.conf entry|role .* does not exist")
WITHOUT_DATABASE: Final = re.compile(r"database .* does not exist")

ENDING: Final = re.compile(
    r"(?:abort|begin|call|checkpoint|commit|copy|deallocate|discard|end|execute|listen|load|prepare|release|reset"
    r"|rollback|savepoint|set|start)\b",
    re.IGNORECASE,
)
"""What would end the transaction, change the session, or talk to the client."""


@dataclass(frozen=True)
class PostgresDatabase:
    """A connection within a transaction."""

    connection: psycopg.Connection[tuple[Any, ...]]
    context: CallContext
    rows_max: int

    def run(self, statement: str, values: Sequence[Value] = ()) -> Result:
        """Run one statement; a second one in the same text is refused by the server."""
        import psycopg

        try:
            with psycopg.RawCursor(self.connection) as cursor:
                # a prepared statement is one statement, whatever its text says
                cursor.execute(statement, list(values), prepare=True)
                rows = cursor.fetchmany(self.rows_max + 1) if cursor.description else []
                names = [column.name for column in cursor.description or ()]
                touched = max(cursor.rowcount, 0)
        except (psycopg.Error, ValueError, OverflowError) as error:
            refuse(error)
        return Result(touched, name_cells(names, rows))

    def read(self, statement: str, values: Sequence[Value]) -> list[dict[str, Any]]:
        """Read the rows of one statement one by one, and no more than are wanted."""
        import psycopg

        self._check(statement)
        try:
            with psycopg.RawCursor(self.connection) as cursor:
                rows = list(islice(cursor.stream(statement, list(values)), self.rows_max + 1))
                names = [column.name for column in cursor.description or ()]
        except (psycopg.Error, ValueError, OverflowError) as error:
            refuse(error)
        return name_cells(names, rows)

    def run_given(self, statement: str, values: Sequence[Value]) -> Result:
        """Run one statement of a saga, for as long as the call may still take."""
        self._check(statement)
        milliseconds = max(1, int(self.context.seconds_left() * 1_000))
        self.run("SELECT set_config('statement_timeout', $1, true)", (str(milliseconds),))
        return self.run(statement, values)

    def _check(self, statement: str) -> None:
        found = ENDING.match(_strip_comments(statement))
        if found:
            word = found.group().upper()
            raise Rejected(f"a statement begins with {word}: a call is one transaction as it is", code="bad_statement")


@contextlib.contextmanager
def postgres_transaction(
    context: CallContext, dsn: str, *, rows_max: int, reads_only: bool = False
) -> Iterator[PostgresDatabase]:
    """Begin, and commit at the end; whatever is raised before leaves nothing behind."""
    with _connected(context, dsn) as connection, _watched(context, connection):
        database = PostgresDatabase(connection, context, rows_max)
        if not reads_only:
            _make_table(database)
        _begin(database, reads_only=reads_only)
        try:
            yield database
        except BaseException:
            with contextlib.suppress(Exception):  # a connection that is gone has rolled back
                connection.execute("ROLLBACK")
            raise
        _commit(connection)


@contextlib.contextmanager
def _connected(context: CallContext, dsn: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    try:
        import psycopg
    except ImportError:
        raise Unavailable(
            "PostgreSQL needs psycopg: pip install 'psycopg[binary]>=3.2'", code="missing_library"
        ) from None
    seconds = max(1, min(CONNECT_SECONDS_MAX, int(context.seconds_left())))
    try:
        connection = psycopg.connect(dsn, autocommit=True, connect_timeout=seconds, application_name="sagactl")
    except psycopg.OperationalError as error:
        raise _judge_connecting(_first_line(error)) from None
    except psycopg.Error:  # its text may quote the address, with the password in it
        raise Rejected("the address of the database can't be read", code="bad_address") from None
    try:
        yield connection
    finally:
        connection.close()


def _judge_connecting(said: str) -> Rejected | Unavailable:
    if WITHOUT_PERMISSION.search(said):
        return Rejected(said, code="no_permission")
    if WITHOUT_DATABASE.search(said):
        return Rejected(said, code="no_database")
    return Unavailable(said, code="no_connection")


@contextlib.contextmanager
def _watched(context: CallContext, connection: psycopg.Connection[tuple[Any, ...]]) -> Iterator[None]:
    """Break the connection where the call is over before the server has answered; it then rolls back."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            if context.cancelled.is_set() or context.seconds_left() <= 0:
                with contextlib.suppress(Exception), socket.socket(fileno=connection.fileno()) as line:
                    try:
                        line.shutdown(socket.SHUT_RDWR)
                    finally:
                        line.detach()  # the descriptor is the connection's
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _make_table(database: PostgresDatabase) -> None:
    """Make the barrier's table where there is none, in a transaction of its own."""
    if database.run("SELECT to_regclass($1) IS NOT NULL AS there", (TABLE,)).returned[0]["there"]:
        return
    database.run("BEGIN")
    try:
        database.run("SELECT pg_advisory_xact_lock($1)", (LOCK_OF_TABLE,))
        database.run(TABLE_SQL)
    except Rejected as error:
        database.run("ROLLBACK")
        raise Rejected(f"can't make the table {TABLE}: {error.message}", code="no_barrier") from None
    database.run("COMMIT")


def _begin(database: PostgresDatabase, *, reads_only: bool) -> None:
    database.run("BEGIN READ ONLY" if reads_only else "BEGIN")
    milliseconds = str(max(1, int(database.context.seconds_left() * 1_000)))
    database.run(
        "SELECT set_config('statement_timeout', $1, true) AS one,"
        " set_config('idle_in_transaction_session_timeout', $1, true) AS other",
        (milliseconds,),
    )


def _commit(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    import psycopg

    try:
        connection.execute("COMMIT")
    except psycopg.Error as error:
        # the server says that it has rolled back; otherwise nobody knows, and the probe finds out
        state = error.sqlstate
        if state is None or state[:2] in MAYBE_COMMITTED or state == "40003":
            raise ConnectionError(f"no answer to the commit: {_first_line(error)}") from None
        refuse(error)


def refuse(error: Exception) -> NoReturn:
    """Say what a failure before the commit comes to: the server rolls back, so nothing has happened."""
    state = getattr(error, "sqlstate", None)
    said = _first_line(error)
    if state is None:
        import psycopg

        if isinstance(error, psycopg.OperationalError):
            raise Unavailable(said, code="connection_lost") from None
        raise Rejected(said, code="bad_statement") from None
    if (state[:2] in PASSING_CLASSES and state != PROTOCOL_VIOLATION) or state in PASSING:
        raise Unavailable(said, code=f"sqlstate_{state}") from None
    raise Rejected(said, code=f"sqlstate_{state}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _strip_comments(statement: str) -> str:
    """Return *statement* without the blanks, semicolons and comments, nested ones too, that it begins with."""
    rest = statement
    while True:
        rest = rest.lstrip(" \t\r\n\f\v;(")
        if rest.startswith("--"):
            rest = rest.partition("\n")[2]
        elif rest.startswith("/*"):
            rest = _behind_comment(rest)
        else:
            return rest


def _behind_comment(text: str) -> str:
    depth = 0
    for mark in re.finditer(r"/\*|\*/", text):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return text[mark.end() :]
    return ""
