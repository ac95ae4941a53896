"""What is in the shop's database, and on branches of a repository, as numbers that chaos compares."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess

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


@tool("look.branches", read_only=True, chaos_safe=True)
def branches(context: CallContext) -> dict[str, int]:
    """Count the commits of each branch, and what is staged."""

    def ask(*arguments: str) -> list[str]:
        command = ["git", "-C", str(context.project / "app"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()

    names = ask("for-each-ref", "--format=%(refname:short)", "refs/heads")
    commits = {name: len(ask("rev-list", name)) for name in names}
    return {**commits, "staged": len(ask("diff", "--cached", "--name-only"))}
