"""What holds of a call holds of an isolated one: the same tools, called both ways, come to the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json, parse
from sagactl.core.records import Direction, Operation, OutcomeKind, ProbeAnswer
from sagactl.core.saga import PAYLOAD_BYTES_MAX
from sagactl.secrets.masking import MASK
from sagactl.tools.isolated.rules import IsolationRules
from tests.tools.isolated.calling import EVERYTHING, Calling, write_plugin
from tests.tools.shell.commands import wait_until

PLUGIN = '''
from ._prices import RATE

class Declined(Rejected):
    """A rejection of a plugin's own."""

class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no")

class Receipt(TypedDict):
    id: str
    amount: int

@dataclass
class Line:
    price: Decimal
    names: tuple[str, ...]

VALUES = {
    "nothing": None, "big": 2**100, "exact": Decimal("0.10"), "float": 0.1,
    "text": "gr\\u00fc\\u00df \\U0001f600\\n\\0",
    "line": Line(Decimal("1.10"), ("tea",)), "bytes": b"x", "nan": float("nan"), "set": {1}, "half": "\\ud800",
    "huge": "x" * 2_000_000, "large": "\\u00fc" * 500_000, "object": object(),
}
deep: Any = 1
for _ in range(64):
    deep = [deep]
VALUES["deep"] = deep
VALUES["deeper"] = [deep]

@tool("shop.value")
def value(name: str):
    return VALUES[name]

@tool("shop.price")
def price(amount: Decimal, lines: list[Line], size: Literal["s", "l"] = "s") -> dict[str, Any]:
    return {"total": amount * RATE, "names": lines[0].names, "size": size, "kind": type(amount).__name__}

@tool("shop.receipt")
def receipt() -> Receipt:
    return {"id": 7, "amount": 1}

ERRORS = {
    "rejected": lambda: Rejected("the card is declined", code="card declined"),
    "declined": lambda: Declined("no"),
    "silent": lambda: Rejected(),
    "unavailable": lambda: Unavailable("busy", retry_after=1.001),
    "delta": lambda: Unavailable("busy", retry_after=timedelta(hours=1), code="busy"),
    "odd": lambda: Unavailable("busy", retry_after="soon"),
    "pending": lambda: Pending(after=0.25, token={"job": [1, Decimal("0.10")]}),
    "pending_odd": lambda: Pending(after="soon"),
    "pending_token": lambda: Pending(after=1, token=b"x"),
    "value": lambda: ValueError("two\\nlines \\x1b[31m"),
    "unprintable": Unprintable,
    "long": lambda: RuntimeError("x" * 2_000),
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "memory": MemoryError,
    "cancelled": asyncio.CancelledError,
    "generator": GeneratorExit,
}

@tool("shop.fail")
def fail(name: str):
    raise ERRORS[name]()

@tool("shop.fail_async")
async def fail_async(name: str):
    await asyncio.sleep(0)
    raise ERRORS[name]()

@tool("shop.wait", pending_max="1d")
def wait(context: CallContext):
    if context.token is None:
        return Pending(after=2, token="job-1")
    return {"token": context.token, "raw": context.raw}

@tool("shop.tell")
def tell(context: CallContext) -> dict[str, Any]:
    names = ("idempotency_key", "forward_key", "tool", "run_id", "step", "item", "direction", "attempt", "traceparent")
    told = {name: getattr(context, name) for name in names}
    times = {"begun_at": context.begun_at.isoformat(), "deadline": context.deadline.isoformat()}
    rest = {"project": str(context.project), "token": context.token, "raw": context.raw}
    left = context.seconds_left()
    return {**told, **times, **rest, "cwd": os.getcwd(), "left": 0 < left <= 30, "set": context.cancelled.is_set()}

@tool("shop.tell_async")
async def tell_async(context: CallContext, amount: int = 3) -> dict[str, Any]:
    await asyncio.sleep(0.01)
    print("async")
    return {"key": context.idempotency_key, "amount": amount}

@tool("shop.print")
def speak(context: CallContext) -> None:
    print("one")
    print("two", file=sys.stderr)
    context.logger.info("three %s", context.step)
    sys.stdout.write("four \\ud800 \\u00fc\\n")
    sys.stdout.buffer.write(b"five \\xff\\n")
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()

@tool("shop.pay")
def pay(key: Secret, context: CallContext, keys: dict[str, Secret] | None = None) -> dict[str, Any]:
    print("with", key)
    return {"key": key, "length": len(key), "keys": keys}

@tool("shop.pay_own", secrets=("OWN_KEY",))
def pay_own(context: CallContext) -> str:
    own = context.secrets["OWN_KEY"]
    raise ValueError(f"{own[:4]} {own} {own[::-1]}")

@tool("shop.pay_undeclared", secrets=("OWN_KEY",))
def pay_undeclared(context: CallContext) -> str:
    return context.secrets["ANOTHER"]

@tool("shop.hold")
def hold(context: CallContext) -> str:
    (context.project / "begun").touch()
    context.cancelled.wait(60)
    (context.project / "told").touch()
    return "evidence"

@tool("shop.hold_async")
async def hold_async(context: CallContext) -> str:
    (context.project / "begun").touch()
    try:
        await asyncio.sleep(20)
    finally:
        (context.project / "told").touch()
    return "never"

@tool("shop.slow_async")
async def slow_async() -> None:
    await asyncio.sleep(20)

@tool("shop.order", probe="shop.find")
def order(name: str) -> Receipt:
    return {"id": "r1", "amount": 1}

FOUND = {
    "done": Done({"id": "r1", "amount": 2**80}), "not_done": NotDone(), "cannot": CannotTell("it is down"),
    "mapping": {"answer": "done", "output": {"id": "r2", "amount": 1}}, "none": None, "odd": 7,
    "misfit": Done({"id": 1}), "bytes": Done(b"x"),
}

@tool("shop.find", read_only=True)
def find(name: str, context: CallContext):
    print("looking for", context.forward_key)
    return FOUND[name] if name in FOUND else 1 / 0
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with the plugin, and a module beside it that it shares."""
    folder = tmp_path_factory.mktemp("contract")
    (folder / "plugins").mkdir()
    (folder / "plugins" / "_prices.py").write_text("from decimal import Decimal\nRATE = Decimal('1.50')\n")
    write_plugin(folder, PLUGIN)
    return folder


ENVIRON = {"SAGACTL_SECRET_KEY": "s3cr3t-value-1", "SAGACTL_SECRET_OWN_KEY": "0wn-s3cr3t-value"}


@pytest.fixture(scope="module")
def ways(folder: Path) -> Iterator[tuple[Calling, Calling]]:
    """Return the two ways to call the same tools: in this process, and isolated."""
    ways = Calling(folder, IsolationRules(), ENVIRON), Calling(folder, EVERYTHING, ENVIRON)
    assert {each.isolation is None for each in ways[0].registry.tools.values()} == {True}
    assert {each.isolation is None for each in ways[1].registry.tools.values()} == {False}
    yield ways
    ways[1].built_in.close()
    wait_until(lambda: not list(ways[1].calls.glob("*")))


Ways = tuple[Calling, Calling]


def call_both(ways: Ways, tool: str, arguments: dict[str, Json] | None = None, **facts: Any) -> Answer:
    """Return the answer of both ways, which is one."""
    here, there = (way.call(tool, arguments, **facts) for way in ways)
    assert there == here
    return there


def probe_both(ways: Ways, tool: str, arguments: dict[str, Json] | None = None, **facts: Any) -> ProbeReply:
    """Likewise of a probe."""
    here, there = (way.probe(tool, arguments, **facts) for way in ways)
    assert there == here
    return there


@pytest.mark.parametrize("name", ["nothing", "big", "exact", "float", "text", "line", "deep", "large"])
def test_values_come_back_exactly(ways: Ways, name: str) -> None:
    """E3, F2: integers of any size, decimals, texts and nested values are the output, whichever way."""
    answer = call_both(ways, "value", {"name": name})
    assert (answer.kind, answer.failure) == (OutcomeKind.SUCCEEDED, None)
    exact = {"big": 2**100, "exact": Decimal("0.10"), "float": Decimal("0.1")}
    assert answer.output == exact.get(name, answer.output)


@pytest.mark.parametrize("name", ["bytes", "nan", "set", "half", "huge", "deeper", "object"])
def test_a_value_that_is_no_output_is_unknown(ways: Ways, name: str) -> None:
    """E3: a reply that can't be stored is unknown, with what can be kept of it."""
    here, there = (way.call("value", {"name": name}) for way in ways)
    assert there.kind is OutcomeKind.UNKNOWN
    assert replace(there, raw=None) == replace(here, raw=None)
    assert name == "object" or there.raw == here.raw


def test_an_output_is_checked_against_its_schema_and_kept(ways: Ways) -> None:
    """E3: a reply that doesn't fit is kept as raw."""
    answer = call_both(ways, "receipt")
    assert (answer.kind, answer.raw) == (OutcomeKind.UNKNOWN, {"id": 7, "amount": 1})


def test_arguments_are_converted_to_their_types(ways: Ways) -> None:
    """The function receives what its annotations say, from the plugin's own shared module too."""
    arguments: dict[str, Any] = {"amount": Decimal("0.10"), "lines": [{"price": 1, "names": ["tea"]}]}
    answer = call_both(ways, "price", arguments)
    assert answer.output == {"total": Decimal("0.1500"), "names": ["tea"], "size": "s", "kind": "Decimal"}


@pytest.mark.parametrize("arguments", [{}, {"name": "big", "more": 1}], ids=["too few", "too many"])
def test_arguments_that_do_not_fit_are_rejected(ways: Ways, arguments: dict[str, Json]) -> None:
    """E3: what the function can't be called with was never called."""
    assert call_both(ways, "value", arguments).kind is OutcomeKind.REJECTED


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, OutcomeKind.REJECTED) for name in ("rejected", "declined", "silent")),
        *((name, OutcomeKind.UNAVAILABLE) for name in ("unavailable", "delta", "odd")),
        ("pending", OutcomeKind.PENDING),
        *((name, OutcomeKind.UNKNOWN) for name in ("pending_odd", "pending_token", "value", "unprintable", "long")),
        *((name, OutcomeKind.UNKNOWN) for name in ("exit", "interrupt", "memory", "cancelled", "generator")),
    ],
)
def test_what_a_tool_raises_means_the_same(ways: Ways, name: str, kind: OutcomeKind) -> None:
    """E3: each way to end has its outcome, word, message, line and delay."""
    assert call_both(ways, "fail", {"name": name}).kind is kind


@pytest.mark.parametrize("name", ["declined", "delta", "pending", "value"])
def test_what_an_async_tool_raises_means_the_same(ways: Ways, name: str) -> None:
    """E3: likewise for coroutines."""
    assert call_both(ways, "fail_async", {"name": name}).kind is not OutcomeKind.SUCCEEDED


def test_a_token_comes_back_with_the_next_asking(ways: Ways) -> None:
    """E5: what `Pending` handed over, and a reply that did not fit, reach the tool."""
    first = call_both(ways, "wait")
    assert (first.kind, first.after_ms, first.token) == (OutcomeKind.PENDING, 2_000, "job-1")
    raw: Any = {"half": Decimal("0.50"), "big": 2**70}
    second = call_both(ways, "wait", token=first.token, raw=raw)
    assert second.output == {"token": "job-1", "raw": raw}


def test_the_context_is_the_same(ways: Ways, folder: Path) -> None:
    """All that a tool may know of its call, it knows in either process."""
    operation = Operation("deposit", 2, Direction.COMPENSATION)
    facts: dict[str, Any] = {
        "operation": operation,
        "attempt": 3,
        "forward_key": "fk",
        "begun_ms": 1_800_000_000_123,
        "raw": [1],
    }
    answer = call_both(ways, "tell", deadline_ms=1_900_000_000_000, **facts)
    told: Any = answer.output
    assert (told["direction"], told["item"], told["attempt"], told["project"]) == ("compensation", 2, 3, str(folder))
    assert (told["left"], told["set"], told["begun_at"]) == (True, False, "2027-01-15T08:00:00.123000+00:00")


def test_an_async_tool_answers_and_prints_the_same(ways: Ways) -> None:
    """E3: a coroutine is awaited, its prints are kept."""
    answer = call_both(ways, "tell_async")
    assert (answer.kind, answer.printed) == (OutcomeKind.SUCCEEDED, "async\n")
    here, there = (asyncio.run(way.toolbox.call_async(way.make("tell_async"))) for way in ways)
    assert here == there == answer


def test_what_is_printed_is_kept_in_order(ways: Ways) -> None:
    """Both streams, the logger and raw bytes are one text, in the order in which they were written."""
    printed = call_both(ways, "print").printed
    assert printed.splitlines() == ["one", "two", "INFO three deposit", "four \\ud800 ü", "five �"]


REFERENCE: dict[str, Json] = {"$secret": "KEY"}


def test_secrets_go_in_and_come_out_masked(ways: Ways) -> None:
    """E19: the tool has the value; output, message and printed text haven't."""
    answer = call_both(ways, "pay", {"key": REFERENCE, "keys": {"a": REFERENCE}})
    assert answer.output == {"key": MASK, "length": len(ENVIRON["SAGACTL_SECRET_KEY"]), "keys": {"a": MASK}}
    assert answer.printed == f"with {MASK}\n"


def test_a_tools_own_secrets_go_with_it(ways: Ways) -> None:
    """E19: what the tool declares is in its context, and masked; what it hasn't declared is refused."""
    answer = call_both(ways, "pay_own")
    assert answer.failure is not None
    assert answer.failure.message.startswith(f"0wn- {MASK} eulav-t3rc3s-nw0")
    assert call_both(ways, "pay_undeclared").kind is OutcomeKind.UNKNOWN


def test_a_secret_that_cannot_be_resolved_starts_nothing(ways: Ways) -> None:
    """E19: without its value there is no call."""
    answer = call_both(ways, "pay", {"key": {"$secret": "ABSENT"}})
    assert (answer.kind, answer.failure and answer.failure.type) == (OutcomeKind.UNAVAILABLE, "missing_secret")


@pytest.mark.parametrize("name", ["done", "not_done", "cannot", "mapping", "none", "odd", "misfit", "bytes", "broken"])
def test_a_probe_finds_the_same(ways: Ways, name: str) -> None:
    """E6: done with its output, not done, can't tell; its own failure is that too, also an output that doesn't fit."""
    reply = probe_both(ways, "find", {"name": name, "amount": 3}, forward_key="fk")
    found = {"done": ProbeAnswer.DONE, "mapping": ProbeAnswer.DONE, "not_done": ProbeAnswer.NOT_DONE}
    assert reply.answer is found.get(name, ProbeAnswer.CANNOT_TELL)
    assert reply.printed == "looking for fk\n"
    assert (reply.failure is None) is (name in found)


@pytest.mark.parametrize("way", [0, 1], ids=["in process", "isolated"])
def test_a_call_that_shall_end_is_told(ways: Ways, folder: Path, way: int) -> None:
    """E14: a function finds its event set, and what it still answers is evidence."""
    call = ways[way].make("hold")
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ways[way].toolbox.call(call)))
    thread.start()
    wait_until((folder / "begun").exists)
    call.cancelled.set()
    thread.join(60)
    assert (answers[0].kind, answers[0].output) == (OutcomeKind.SUCCEEDED, "evidence")
    for name in ("begun", "told"):
        (folder / name).unlink()


@pytest.mark.parametrize("way", [0, 1], ids=["in process", "isolated"])
def test_a_coroutine_that_shall_end_is_cancelled(ways: Ways, folder: Path, way: int) -> None:
    """E14: it may clean up; then it is over."""

    async def cancel() -> None:
        call = ways[way].make("hold_async")
        task = asyncio.create_task(ways[way].toolbox.call_async(call))
        while not (folder / "begun").exists():
            await asyncio.sleep(0.01)
        call.cancelled.set()
        if way == 0:  # the engine does both
            task.cancel()
        try:
            answer = await task
        except asyncio.CancelledError:
            return
        assert answer.failure is not None
        assert answer.failure.type == "CancelledError"

    asyncio.run(cancel())
    for name in ("begun", "told"):
        (folder / name).unlink()


def test_a_coroutine_has_its_deadline(ways: Ways) -> None:
    """E14: where nobody else ends it, its time does."""
    with ThreadPoolExecutor() as pool:  # the time is enough to start an interpreter, and passes once for both
        here, there = pool.map(lambda way: way.call("slow_async", seconds_left=8.0), ways)
    assert here.kind is there.kind is OutcomeKind.UNKNOWN
    assert here.failure is not None
    assert here.failure.type == "TimeoutError"


def test_an_output_of_the_greatest_size_fits(ways: Ways) -> None:
    """E3: the bound is the same, to the byte."""
    output = call_both(ways, "value", {"name": "large"}).output
    assert isinstance(output, str)
    assert len(output.encode()) + 2 <= PAYLOAD_BYTES_MAX
    assert parse(f'"{output}"') == output
