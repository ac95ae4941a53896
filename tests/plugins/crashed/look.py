"""What is in the shop's database, as numbers that chaos compares."""

from __future__ import annotations

import contextlib
import sqlite3

from sagactl import CallContext, tool

QUESTIONS = {
    "free": "SELECT free FROM stock WHERE sku = 'a'",
    "orders": "SELECT count(*) FROM orders",
    "paid": "SELECT count(*) FROM orders WHERE note = 'paid'",
}


@tool("look.shop", read_only=True, chaos_safe=True)
def shop(context: CallContext) -> dict[str, int]:
    """Show what is there."""
    with contextlib.closing(sqlite3.connect(context.project / "shop.db")) as connection:
        return {name: int(connection.execute(question).fetchone()[0]) for name, question in QUESTIONS.items()}
