"""A shop whose shelves are files: what the planted tools act on, some of them wrongly."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from sagactl import CallContext


def shelf(context: CallContext) -> Path:
    """Return the folder where things stand."""
    folder = context.project / "shop"
    folder.mkdir(exist_ok=True)
    return folder


def books(context: CallContext) -> Path:
    """Return the folder that is for keys and marks, which the project has said not to look at."""
    folder = context.project / "marks"
    folder.mkdir(exist_ok=True)
    return folder


def name_of(key: str) -> str:
    """Return a file's name for a key."""
    return key.replace("/", "-")


def put(context: CallContext, key: str, *, suffix: str = "") -> str:
    """Put a thing on the shelf under *key*; the same key is the same thing."""
    name = name_of(key) + suffix
    (shelf(context) / name).write_text("thing")
    return name


def put_another(context: CallContext) -> str:
    """Put a thing on the shelf, whatever stands there."""
    return put(context, context.idempotency_key, suffix=f"-{uuid4().hex[:8]}")


def find(context: CallContext) -> list[Path]:
    """Return the things that the action has put there."""
    return sorted(shelf(context).glob(f"{name_of(context.forward_key)}*"))


def take(context: CallContext) -> int:
    """Take all of them away, and return how many there were."""
    things = find(context)
    for thing in things:
        thing.unlink()
    return len(things)


def note(context: CallContext, word: str) -> bool:
    """Write *word* down for this key, and tell whether it stood there already."""
    mark = books(context) / f"{word}-{name_of(context.idempotency_key)}"
    if mark.exists():
        return True
    mark.write_text(str(os.getpid()))
    return False


def answer(name: str) -> Mapping[str, str]:
    """Return what an action returns."""
    return {"thing": name}
