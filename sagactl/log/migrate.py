"""Bringing a database to the schema of this release: numbered scripts, forward only, all or nothing.

The scripts are the `.sql` files beside this module; the number of the last one that ran stands in the database as its
`user_version`, and the `application_id` says whose database it is. sqlite-utils does the work, as it does in `verify`;
it is imported in the function that needs it, since opening a log that needs no migration must not pay for it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlite_utils import Database

APPLICATION_ID: Final = 0x53_41_47_41
SCHEMA_VERSION: Final = 3
"""The number of the last script."""

SCRIPTS: Final = Path(__file__).with_name("sql")
_WITH_ALERTS: Final = 2
_STORE_ID_BYTES: Final = 16


def migrate(connection: sqlite3.Connection, *, from_version: int) -> None:
    """Run the scripts that *from_version* lacks, in one transaction; a new database gets an id of its own."""
    database = use_sqlite_utils(connection)
    # sqlite-utils would begin deferred; inside, it makes a savepoint. How space is given back (see `sqlite_prune`) is
    # said before the first page is there, and IMMEDIATE makes it; the gate keeps others out.
    connection.execute("BEGIN" if from_version == 0 else "BEGIN IMMEDIATE")
    try:
        if from_version == 0:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL").close()
        with database.atomic():
            for number, script in read_scripts(from_version):
                for statement in split_script(script):
                    database.execute(statement)
                if 0 < from_version < number:
                    _carry_over(connection, number)
                database.execute(f"PRAGMA user_version = {number}")
            if from_version == 0:
                database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                database.execute("INSERT INTO meta VALUES ('store_id', ?)", [os.urandom(_STORE_ID_BYTES).hex()])
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _carry_over(connection: sqlite3.Connection, number: int) -> None:
    """Fill what script *number* has added with what the records say, as if it had always been there."""
    if number == _WITH_ALERTS:
        from sagactl.log.past_alerts import write_past_alerts

        write_past_alerts(connection)


def use_sqlite_utils(connection: sqlite3.Connection) -> Database:
    """Return *connection* as sqlite-utils sees it, without its plugins and without a change of settings."""
    from sqlite_utils import Database

    return Database(connection, recursive_triggers=False, execute_plugins=False)


def read_scripts(from_version: int) -> Iterator[tuple[int, str]]:
    """Yield number and text of the scripts after *from_version*, in order."""
    for path in sorted(SCRIPTS.glob("[0-9][0-9][0-9][0-9]_*.sql")):
        number = int(path.name[:4])
        if from_version < number <= SCHEMA_VERSION:
            yield number, path.read_text(encoding="utf-8")


def split_script(script: str) -> Iterator[str]:
    """Yield the statements of a script one by one, so that no implicit commit comes between them."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
    assert not statement.strip(), "a script ends with a complete statement"
