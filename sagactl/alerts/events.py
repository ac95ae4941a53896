"""Events: every record of every run as a CloudEvent, to a file or to a URL.

Why a cursor and not the outbox
-------------------------------
An alert has a row of its own, for it may be the only trace of what a person must hear, it is one of few, and each
channel takes it in its own time. An event is another matter: there is one for every record, and the record is there,
durable, numbered and in order. A row for each would write everything twice, in the transaction between two effects; a
number for each target and run costs nothing there. The target has seen the run up to that number, and the next event
is the next record. So an event is sent only after the one before it of the same run, at least once, under an id made
of run and number; and a target that is added later, or was away for a week, begins where it is.

A run is published by one process at a time (the cursor has a lease, as a message has). A file is written under a lock
and synced before the cursor moves; what a crash left of a line is cut off by whoever writes next.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

from sagactl.alerts.sending import SendError
from sagactl.alerts.settings import Resolve, Target
from sagactl.alerts.webhook import post
from sagactl.core.canonical import Json, canonical
from sagactl.core.outbox import EventPage
from sagactl.documents import RECORD_SCHEMA, write_record_at, write_time

CONTENT_TYPE: Final = "application/cloudevents+json"
FILE_MODE: Final = 0o600
_TAIL_BYTES: Final = 65_536

Mask = Callable[[dict[str, Json]], dict[str, Json]]
Publish = Callable[[EventPage], Iterator[int]]
"""Sends the events of a page in order, and yields the number of each that is safely there; raises SendError."""


Write = Callable[[EventPage, int], dict[str, Json]]


def write_event(page: EventPage, place: int, *, store: str, mask: Mask) -> dict[str, Json]:
    """Return the CloudEvent of one record; *store* is the log that has it."""
    seq, record, hash_ = page.records[place]
    data = write_record_at(page.run_id, seq, record, hash_)
    return {
        "specversion": "1.0",
        "id": f"event_{page.run_id}_{seq}",
        "source": f"/sagactl/{quote(page.saga, safe='')}",
        "type": f"sagactl.record.{data['type']}",
        "subject": page.run_id,
        "time": write_time(record.at_ms),
        "datacontenttype": "application/json",
        "dataschema": f"urn:{RECORD_SCHEMA.replace('/', ':')}",
        "store": store,
        "data": mask(data),
    }


def make_publish(target: Target, mask: Mask, resolve: Resolve, *, store: str) -> Publish:
    """Return what sends events of the log *store* to *target*."""
    write = partial(write_event, store=store, mask=mask)
    if target.file is not None:
        file = target.file
        return lambda page: _write_lines(file, page, write)
    assert target.url is not None, "a target is a file or a url"
    assert target.secret is not None, "a url has a secret"
    url, secret = target.url, target.secret
    return lambda page: _post_each(resolve(url), resolve(secret), page, write)


def _post_each(url: str, secret: str, page: EventPage, write: Write) -> Iterator[int]:
    for place, (seq, _, _) in enumerate(page.records):
        event = write(page, place)
        post(url, canonical(event).encode(), message_id=str(event["id"]), secret=secret, content_type=CONTENT_TYPE)
        yield seq


def _write_lines(path: Path, page: EventPage, write: Write) -> Iterator[int]:
    lines = "".join(canonical(write(page, place)) + "\n" for place in range(len(page.records)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE), "rb+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _cut_torn_line(file)
            _write_all(file, lines.encode())
            os.fsync(file.fileno())
    except OSError as error:
        raise SendError(f"{path} can't be written: {error.strerror}") from error
    yield page.records[-1][0]


def _write_all(file: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _cut_torn_line(file: IO[bytes]) -> None:
    """Go to the end of the file; what a killed writer left of a line there is cut off: it is written anew."""
    end = file.seek(0, os.SEEK_END)
    whole = end
    while whole > 0:
        start = max(0, whole - _TAIL_BYTES)
        file.seek(start)
        found = file.read(whole - start).rfind(b"\n")
        if found >= 0:
            whole = start + found + 1
            break
        whole = start
    if whole < end:
        file.truncate(whole)
    file.seek(whole)
