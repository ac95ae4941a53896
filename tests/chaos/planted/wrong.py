"""Tools with one mistake each that a check of single tools finds; `tests/conformance` asks whether each is named."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sagactl import CallContext, Done, NotDone, Rejected, Secret, tool

from ._shop import answer, books, find, name_of, note, put, put_another, shelf, take

Thing = Mapping[str, str]


@tool("race.put", compensation="wrong.take", chaos_safe=True)
def put_if_there_is_none(context: CallContext) -> Thing:
    """Look first, and act later: two at once both find nothing."""
    things = find(context)
    time.sleep(0.6)
    return answer(things[0].name if things else put_another(context))


@tool("wrong.take", null_safe=True, chaos_safe=True)
def take_soundly(context: CallContext) -> Mapping[str, int]:
    """Take it away, found by its key."""
    return {"taken": take(context)}


@tool("wide.put", compensation="wide.take", chaos_safe=True)
def put_unless_closed(context: CallContext) -> Thing:
    """Put a thing there, unless anybody's was taken away."""
    if (books(context) / "closed").exists():
        raise Rejected("it was taken away already", code="taken")
    return answer(put(context, context.idempotency_key))


@tool("wide.take", null_safe=True, late_safe=True, chaos_safe=True)
def take_and_close(context: CallContext) -> Mapping[str, int]:
    """Leave a mark that refuses everybody."""
    (books(context) / "closed").touch()
    return {"taken": take(context)}


@tool("shared.put", compensation="wrong.take", probe="shared.find", chaos_safe=True)
def put_for_all(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("shared.find", read_only=True, chaos_safe=True)
def find_anybodys(context: CallContext) -> Done | NotDone:
    """Find whatever stands there, whose key it is doesn't matter."""
    things = sorted(path for path in shelf(context).iterdir() if path.name != "of-somebody-else")
    return Done({"thing": things[0].name}) if things else NotDone()


@tool("eager.put", compensation="wrong.take", chaos_safe=True)
def put_eagerly(context: CallContext, word: str = "thing") -> Thing:
    """Put a thing there, and then look whether that is allowed."""
    name = put(context, context.idempotency_key)
    if word == "forbidden":
        raise Rejected("that is forbidden", code="forbidden")
    return answer(name)


@tool("lax.put", compensation="wrong.take", chaos_safe=True)
def put_anything(context: CallContext, word: str = "thing") -> Thing:
    """Allow everything."""
    del word
    return answer(put(context, context.idempotency_key))


@tool("odd.put", compensation="wrong.take", output_schema={"type": "object", "required": ["place"]}, chaos_safe=True)
def put_oddly(context: CallContext) -> Thing:
    """Return what the schema doesn't say."""
    return answer(put(context, context.idempotency_key))


@tool("endless.put", compensation="wrong.take", chaos_safe=True)
def put_for_ever(context: CallContext) -> Thing:
    """Wait for something that doesn't come, whoever says that the time is over."""
    del context
    time.sleep(60)
    return answer("nothing")


LOOSE = {"type": "object", "properties": {"word": {}}}


@tool("loose.put", compensation="wrong.take", arguments_schema=LOOSE, chaos_safe=True)
def put_words(word: str, context: CallContext) -> Thing:
    """Need what the schema doesn't ask for, and fail over what it takes."""
    return answer(put(context, context.idempotency_key, suffix=word.upper()))


@tool("peeking.put", compensation="wrong.take", probe="peeking.find", chaos_safe=True)
def put_and_be_watched(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("peeking.find", read_only=True, chaos_safe=True)
def find_and_write(context: CallContext) -> Done | NotDone:
    """Find it, and write down that somebody has asked."""
    with (shelf(context) / "questions").open("a") as file:
        file.write("asked\n")
    things = find(context)
    return Done({"thing": things[0].name}) if things else NotDone()


@tool("fickle.put", compensation="wrong.take", chaos_safe=True)
def put_and_count(context: CallContext) -> Thing:
    """Have one effect, and another answer each time."""
    put(context, context.idempotency_key)
    return answer(str(time.monotonic_ns()))


@tool("blank.put", compensation="blank.take", compensation_with={"thing": "${{ output.thing }}"}, chaos_safe=True)
def put_blankly(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("blank.take", null_safe=True, chaos_safe=True)
def take_if_named(context: CallContext, thing: str | None = None) -> Mapping[str, bool]:
    """Be declared null_safe, and find nothing without a name."""
    if thing is not None:
        (shelf(context) / thing).unlink(missing_ok=True)
    return {"taken": thing is not None}


@tool("refund.put", compensation="refund.take", chaos_safe=True)
def put_for_money(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("refund.take", null_safe=True, chaos_safe=True)
def take_and_pay(context: CallContext) -> Mapping[str, int]:
    """Pay back each time."""
    with (shelf(context) / "paid").open("a") as file:
        file.write(f"{name_of(context.forward_key)}\n")
    return {"taken": take(context)}


@tool("open.put", compensation="wrong.take", chaos_safe=True)
def put_openly(key: Secret, context: CallContext) -> Thing:
    """Return what it was trusted with."""
    put(context, context.idempotency_key)
    return answer(f"made with {key}")


@tool("torn.read", read_only=True, chaos_safe=True)
def read_and_write(context: CallContext) -> Mapping[str, bool]:
    """Only read, it says, and note that it was here."""
    return {"again": note_on_shelf(context)}


def note_on_shelf(context: CallContext) -> bool:
    """Leave a trace where it is seen."""
    is_known = note(context, "read")
    (shelf(context) / f"read-{name_of(context.idempotency_key)}").touch()
    return is_known


@tool("fatal.put", compensation="wrong.take", chaos_safe=True)
def put_and_die(context: CallContext) -> Thing:
    """Put a thing there, and end the process that it was called in."""
    put(context, context.idempotency_key)
    os._exit(3)


@tool("mortal.put", compensation="mortal.take", chaos_safe=True)
def put_mortally(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("mortal.take", null_safe=True, chaos_safe=True)
def take_and_die(context: CallContext) -> Mapping[str, int]:
    """Die of it, as a library in C does."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return {"taken": take(context)}


@tool("log.put", compensation="log.take", chaos_safe=True)
def put_and_log(context: CallContext) -> Thing:
    """Look first, then write a long thing that is the same for both, and a short line for each."""
    place = shelf(context) / name_of(context.idempotency_key)
    if not place.exists():
        time.sleep(0.6)
        place.write_text("thing" * 20)
        with _beside(context).open("a") as file:
            file.write("x")
    return answer(place.name)


@tool("tidy.put", compensation="tidy.take", chaos_safe=True)
def put_in_the_book(context: CallContext) -> Thing:
    """Keep all things in one file, each under its key: no mistake."""
    with _open_book(context) as things:
        things[context.idempotency_key] = "thing"
    return answer(name_of(context.idempotency_key))


@tool("tidy.take", null_safe=True, chaos_safe=True)
def take_out_of_the_book(context: CallContext) -> Mapping[str, bool]:
    """Take one of them out of it."""
    with _open_book(context) as things:
        return {"taken": things.pop(context.forward_key, None) is not None}


@tool("sweeping.put", compensation="sweeping.take", chaos_safe=True)
def put_with_others(context: CallContext) -> Thing:
    """Keep all things in one file."""
    return put_in_the_book(context)


@tool("sweeping.take", null_safe=True, chaos_safe=True)
def sweep_the_book(context: CallContext) -> Mapping[str, bool]:
    """Take out all of them, if its own is among them."""
    with _open_book(context) as things:
        is_known = context.forward_key in things
        if is_known:
            things.clear()
    return {"taken": is_known}


@contextmanager
def _open_book(context: CallContext) -> Iterator[dict[str, str]]:
    """Give what stands in the file, and write it back; without anything in it there is none."""
    file = context.project / "book.json"
    with (books(context) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        things: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        yield things
        if things:
            file.write_text(json.dumps(things, sort_keys=True))
        else:
            file.unlink(missing_ok=True)


@tool("tally.put", compensation="log.take", chaos_safe=True)
def put_and_tally(context: CallContext) -> Thing:
    """Look first, and count in a file that keeps its size."""
    place = shelf(context) / name_of(context.idempotency_key)
    if not place.exists():
        time.sleep(0.6)
        place.write_text("thing")
        with _beside(context).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            number = int(_beside(context).read_text() or 0) + 1
            _beside(context).write_text(str(number))
    return answer(place.name)


@tool("log.take", null_safe=True, chaos_safe=True)
def take_with_what_is_beside(context: CallContext) -> Mapping[str, int]:
    """Take it away, and what was written about it."""
    _beside(context).unlink(missing_ok=True)
    return {"taken": take(context)}


def _beside(context: CallContext) -> Path:
    return context.project / f"beside-{name_of(context.forward_key)}"
