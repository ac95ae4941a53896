"""A saga's file, or its tools, that aren't what a run was begun with: the run keeps its definition (E16)."""

from __future__ import annotations

from dataclasses import replace

from sagactl.cli.session import Session
from sagactl.core.saga import Saga
from sagactl.errors import SagactlError
from sagactl.log.base import RunRow


def is_same(one: Saga, other: Saga) -> bool:
    """Tell whether two definitions mean the same; a plugin's version alone changes nothing about a saga."""
    first, second = (
        replace(each, tools={name: replace(facts, version="") for name, facts in each.tools.items()})
        for each in (one, other)
    )
    return first == second


def tell_of_changed_file(session: Session, row: RunRow) -> None:
    """Say it where the saga isn't what the run was begun with: what was mended there isn't in the run (E16).

    What a file means hangs on its tools too (their pairs, schemas, promises), so the words blame neither alone.
    """
    try:
        path = session.app.find_saga(row.saga)
        now = session.app.load_to_run(path).saga
    except SagactlError:  # gone, or broken: this run needs no file
        return
    if not is_same(session.app.saga_of(row), now):
        whole, project = path.resolve(), session.app.config.project
        file = str(whole.relative_to(project)) if whole.is_relative_to(project) else str(path)
        other = f"{file}, or a tool of it, is another than run {row.run_id} was begun with"
        session.say(f"note: {other}, which keeps its definition")
        session.say(f"hint: sagactl resume {row.run_id} --definition {row.saga} --dry-run")
