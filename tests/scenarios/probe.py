"""Tools that do as a scenario tells them, before a target that keeps an ordered ledger of its own.

Copied into the `plugins/` of a test's project. The ledger is a file that no log knows of, a JSON line for each thing
that happened: a call began, had its effect, ended; whoever is killed leaves a line out. The target honours keys: a
key has one effect, however often it is used. Only the tools of `late` leave a mark that
refuses what arrives after the undo.

A `word` says what a call does, its phrases separated by commas: `wait 0.2`; `busy 0.2` (deaf to being told to end);
`hang`; `retry 2` (unavailable, that many times); `error` (always unavailable); `failed TYPE` (unavailable of that
type); `reject TEXT`; `mended FILE` (rejected until it is there); `effect`; `lost 2` (an effect and no answer, that many
times; `lost` alone: always); `gone` (no effect and no answer); `kill`; `killed 2` (the first two times); `print TEXT`;
`await FILE`; `timely` (no effect after the deadline). What isn't said otherwise has its effect and returns it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sagactl import CallContext, CannotTell, Done, NotDone, Rejected, Secret, Unavailable, tool

KNOWS_ALWAYS = 10**9


class Target:
    """What stands outside of the process: the ledger, under a lock, and what follows from it."""

    def __init__(self, context: CallContext) -> None:
        self.path = Path(os.environ.get("PROBE_LEDGER") or context.project / "ledger.jsonl")
        self.context = context

    def lines(self) -> list[dict[str, Any]]:
        """Return what has happened so far."""
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def note(self, phase: str, **more: Any) -> None:
        """Write a line."""
        self.change(lambda _: {"phase": phase, **more})

    def change(self, decide: Callable[[list[dict[str, Any]]], dict[str, Any] | None]) -> None:
        """Write the line that *decide* makes of what has happened so far, with nothing between the two."""
        with self.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            line = decide(self.lines())
            if line is not None:
                file.write(json.dumps({**self._identity(), **line}) + "\n")

    def _identity(self) -> dict[str, Any]:
        context = self.context
        return {
            "run": context.run_id,
            "step": context.step,
            "item": context.item,
            "direction": context.direction,
            "key": context.idempotency_key,
            "forward_key": context.forward_key,
            "attempt": context.attempt,
            "pid": os.getpid(),
            "at": time.monotonic(),
        }


class Call:
    """One call at work."""

    def __init__(self, context: CallContext, arguments: dict[str, Any], *, is_late_safe: bool = False) -> None:
        self.context, self.target, self.is_late_safe = context, Target(context), is_late_safe
        digest = hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:16]
        self.target.note("begin", digest=digest, arguments=arguments)
        mine = [line for line in self.target.lines() if line["key"] == context.idempotency_key]
        self.number = sum(line["phase"] == "begin" for line in mine)
        """How often this key was called, this call included."""

    def perform(self, word: str) -> None:
        """Do what *word* says, the effect included."""
        self.stop("entered")
        try:
            for phrase in filter(None, (each.strip() for each in word.split(","))):
                verb, _, rest = phrase.partition(" ")
                getattr(self, f"do_{verb}")(rest)
            self.do_effect("")
            self.stop("effect")
        finally:
            self.target.note("end")

    def stop(self, point: str) -> None:
        """Get the signal that the test has ordered for this very point."""
        order = os.environ.get("PROBE_STOP")
        if order is None:
            return
        step, direction, where, number, signum = order.split("/")
        context = self.context
        is_meant = number in {"any", str(self.number)}
        if is_meant and (step, direction, where) == (context.step, context.direction, point):
            os.kill(os.getpid(), int(signum))
            time.sleep(0.05)

    # Phrases

    def do_ok(self, _: str) -> None:
        """Do nothing special."""

    def do_wait(self, seconds: str) -> None:
        """Take time, and end at once when told to."""
        if self.context.cancelled.wait(float(seconds)):
            raise TimeoutError("told to end")

    def do_busy(self, seconds: str) -> None:
        """Take time, whatever one is told."""
        time.sleep(float(seconds))

    def do_hang(self, _: str) -> None:
        """Come back only when told to end."""
        self.context.cancelled.wait(120)
        raise TimeoutError("told to end")

    def do_timely(self, _: str) -> None:
        """Have no effect after the deadline, as a request with a time limit hasn't."""
        if self.context.seconds_left() <= 0:
            raise TimeoutError("too late")

    def do_retry(self, times: str) -> None:
        """Be unavailable a few times."""
        if self.number <= int(times):
            raise Unavailable("not now")

    def do_error(self, _: str) -> None:
        """Be unavailable for ever."""
        raise Unavailable("not now, not later")

    def do_failed(self, kind: str) -> None:
        """Be unavailable for a reason that has a name."""
        raise Unavailable("no", code=kind)

    def do_reject(self, text: str) -> None:
        """Refuse for good."""
        self.stop("effect")
        raise Rejected(text or "no")

    def do_mended(self, name: str) -> None:
        """Refuse until somebody has made a file of that name."""
        if not (self.context.project / name).exists():
            raise Rejected(f"{name} is broken")

    def do_lost(self, times: str) -> None:
        """Have the effect, and lose the answer."""
        self.do_effect("")
        self.stop("effect")
        if self.number <= int(times or KNOWS_ALWAYS):
            raise ConnectionError("the answer was lost")

    def do_gone(self, _: str) -> None:
        """Have no effect, and no answer."""
        raise ConnectionError("nobody knows")

    def do_kill(self, _: str) -> None:
        """End the driver's process."""
        os.kill(os.getpid(), signal.SIGKILL)

    def do_killed(self, times: str) -> None:
        """End the driver's process the first few times."""
        if self.number <= int(times):
            self.do_kill("")

    def do_print(self, text: str) -> None:
        """Talk."""
        for stream in (sys.stdout, sys.stderr):
            stream.write(f"{text}\n")

    def do_await(self, name: str) -> None:
        """Wait for a file of the project."""
        until = time.monotonic() + 60
        while not (self.context.project / name).exists() and time.monotonic() < until:
            if self.context.cancelled.wait(0.01):
                raise TimeoutError("told to end")

    def do_effect(self, _: str) -> None:
        """Change the world, once for a key; an undo changes it only where there is something to undo."""
        self.target.change(self._undo if self.context.direction == "compensation" else self._act)

    def _act(self, lines: list[dict[str, Any]]) -> dict[str, Any] | None:
        mine = [line for line in lines if line["forward_key"] == self.context.idempotency_key]
        if any(line["phase"] == "effect" and line["direction"] == "action" for line in mine):
            return None
        if self.is_late_safe and any(line["phase"] in {"effect", "mark"} for line in mine):
            raise Rejected("undone already")
        return {"phase": "effect"}

    def _undo(self, lines: list[dict[str, Any]]) -> dict[str, Any] | None:
        mine = [line for line in lines if line["forward_key"] == self.context.forward_key]
        if any(line["phase"] in {"effect", "mark"} and line["direction"] == "compensation" for line in mine):
            return None
        is_there = any(line["phase"] == "effect" for line in mine)
        return {"phase": "effect" if is_there else "mark"}


def _act(context: CallContext, word: str, value: Any, more: dict[str, Any], *, is_late_safe: bool = False) -> Any:
    Call(context, {"word": word, "value": value, **more}, is_late_safe=is_late_safe).perform(word)
    return {"id": context.idempotency_key if value is None else value}


def _undo(context: CallContext, word: str, id: Any) -> None:  # noqa: A002 - the word of the scenarios
    Call(context, {"word": word, "id": id}).perform(word)


PAIRED = {"id": "${{ output.id }}", "word": "${{ args.undo }}"}


@tool("probe.do", compensation="probe.undo", compensation_with=PAIRED)
def do(context: CallContext, word: str, undo: str = "ok", value: Any = None) -> dict[str, Any]:
    """Do as told; a second time with the same key changes nothing."""
    return dict(_act(context, word, value, {"undo": undo}))


@tool("probe.undo", null_safe=True)
def undo_it(context: CallContext, word: str = "ok", id: Any = None) -> None:  # noqa: A002
    """Undo as told, also what never happened."""
    _undo(context, word, id)


@tool("probe.strict", compensation="probe.strict_undo", compensation_with=PAIRED)
def strict(context: CallContext, word: str, undo: str = "ok", value: Any = None) -> dict[str, Any]:
    """Do as told; its undo needs the output."""
    return dict(_act(context, word, value, {"undo": undo}))


@tool("probe.strict_undo")
def strict_undo(context: CallContext, word: str, id: Any) -> None:  # noqa: A002
    """Undo as told; copes with nothing else."""
    _undo(context, word, id)


@tool("probe.asked", compensation="probe.undo", compensation_with=PAIRED, probe="probe.look")
def asked(context: CallContext, word: str, undo: str = "ok", value: Any = None) -> dict[str, Any]:
    """Do as told; its target can be asked."""
    return dict(_act(context, word, value, {"undo": undo}))


@tool("probe.asked_strict", compensation="probe.strict_undo", compensation_with=PAIRED, probe="probe.look")
def asked_strict(context: CallContext, word: str, undo: str = "ok", value: Any = None) -> dict[str, Any]:
    """Do as told; its target can be asked, and its undo needs the output."""
    return dict(_act(context, word, value, {"undo": undo}))


@tool("probe.look", read_only=True)
def look(context: CallContext, value: Any = None) -> Done | NotDone | CannotTell:
    """Look into the ledger for the effect of the forward key."""
    target = Target(context)
    target.note("look")
    if any(line["phase"] == "effect" and line["key"] == context.forward_key for line in target.lines()):
        return Done({"id": context.forward_key if value is None else value})
    return NotDone()


@tool("probe.once", compensation="probe.undo", compensation_with=PAIRED, idempotent=False)
def once(context: CallContext, word: str, undo: str = "ok", value: Any = None) -> dict[str, Any]:
    """Do as told; nothing is promised about a second time."""
    return dict(_act(context, word, value, {"undo": undo}))


@tool("probe.late", compensation="probe.late_undo", compensation_with=PAIRED)
def late(context: CallContext, word: str, undo: str = "ok", value: Any = None) -> dict[str, Any]:
    """Do as told; what arrives after its undo is refused by the target."""
    return dict(_act(context, word, value, {"undo": undo}, is_late_safe=True))


@tool("probe.late_undo", null_safe=True, late_safe=True)
def late_undo(context: CallContext, word: str = "ok", id: Any = None) -> None:  # noqa: A002
    """Undo as told, and leave a mark."""
    _undo(context, word, id)


@tool("probe.sign")
def sign(context: CallContext, word: str, value: Any = None) -> dict[str, Any]:
    """Do as told, for good: a pivot, or what comes after one."""
    return dict(_act(context, word, value, {}))


@tool(
    "probe.tell", compensation="probe.untell", compensation_with={"key": "${{ args.key }}", "word": "${{ args.undo }}"}
)
def tell(context: CallContext, key: Secret, word: str = "ok", undo: str = "ok") -> dict[str, Any]:
    """Take a secret, and carelessly give it back."""
    Call(context, {"word": word, "key_length": len(key)}).perform(word)
    return {"said": f"key={key}", "deep": [{"key": key}]}


@tool("probe.untell", null_safe=True)
def untell(context: CallContext, key: Secret, word: str = "ok") -> None:
    """Undo with the same secret."""
    Call(context, {"word": word, "key_length": len(key)}).perform(word)
