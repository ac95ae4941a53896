"""What each way to end makes of a call (E3), and what a probe's answers mean (E6)."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest

from sagactl import CallContext, CannotTell, Done, NotDone, Pending, Rejected, Unavailable, tool
from sagactl.core.canonical import Json, canonical
from sagactl.core.records import Direction, Operation, OutcomeKind, ProbeAnswer
from sagactl.core.saga import INTERVAL_MS_MAX, PAYLOAD_BYTES_MAX
from sagactl.core.tracing import call_span_id, probe_span_id, write_traceparent
from sagactl.tools.convert import LINE_LENGTH_MAX, RAW_BYTES_MAX
from tests.tools.building import call, describe, invocation, probe, toolbox


class Charge(TypedDict):
    """An output."""

    charge_id: str
    amount: int


@dataclass
class Receipt:
    """An output as a dataclass."""

    total: Decimal
    lines: tuple[str, ...]


class CardDeclined(Rejected):
    """A rejection of a plugin's own."""


class HTTPTimeout(Unavailable):
    """Likewise."""


class Unprintable(Exception):  # noqa: N818 - a nuisance, no mistake
    """Raises when it is shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def raising(error: BaseException) -> Callable[..., object]:
    """Return a tool that raises *error*."""

    @tool("shop.order")
    def order() -> None:
        raise error

    return order


def returning(value: object, **facts: Any) -> Callable[..., object]:
    """Return a tool that returns *value*."""

    @tool("shop.order", **facts)
    def order():  # type: ignore[no-untyped-def]  # its output may be anything
        return value

    return order


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (None, None),
        ({"a": 1}, {"a": 1}),
        ((1, [2]), [1, [2]]),
        (0.1, Decimal("0.1")),
        (2.0, Decimal("2.0")),
        (1e300, Decimal("1e300")),
        (2**100, 2**100),
        (Receipt(Decimal("1.10"), ("tea",)), {"total": Decimal("1.10"), "lines": ["tea"]}),
        (OutcomeKind.UNKNOWN, "unknown"),
        (Direction.ACTION, "action"),
        ({OutcomeKind.UNKNOWN: timedelta.min.days}, {"unknown": -999999999}),
    ],
)
def test_return_value_is_output(value: object, output: object) -> None:
    """E3: what a tool returns is its output; fractions are exact as Python prints them."""
    answer = call(returning(value))
    assert (answer.kind, answer.output, answer.failure) == (OutcomeKind.SUCCEEDED, output, None)
    assert not any(isinstance(each, float) for each in [answer.output])


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        b"x",
        {1, 2},
        object(),
        {1: 2},
        "\ud800",
        {"a": [b""]},
        CYCLE,
        10**1000,
        Decimal("sNaN"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_reply_without_json_form_is_unknown(value: object) -> None:
    """E3: an output that can't be stored is unknown, with what can be kept of it."""
    answer = call(returning(value))
    assert answer.kind is OutcomeKind.UNKNOWN
    assert answer.failure is not None
    assert answer.failure.type == "bad_output"
    assert isinstance(answer.raw, str)
    canonical(answer.raw)


def test_reply_that_does_not_fit_is_unknown_and_kept() -> None:
    """E3: an output that breaks the schema is unknown, and kept as `raw` for probe and compensation."""

    @tool("shop.order")
    def order() -> Charge:
        return {"charge_id": 7, "amount": True}  # type: ignore[typeddict-item]  # the mistake itself

    answer = call(order)
    assert (answer.kind, answer.output, answer.raw) == (OutcomeKind.UNKNOWN, None, {"charge_id": 7, "amount": True})
    assert answer.failure is not None
    assert "charge_id: must be a string, not 7" in answer.failure.message


def test_reply_that_is_too_large_is_unknown_and_cut() -> None:
    """E3: an output over the limit is unknown, and of its text only the beginning is kept."""
    answer = call(returning({"text": "x" * PAYLOAD_BYTES_MAX}))
    assert answer.kind is OutcomeKind.UNKNOWN
    assert len(canonical(answer.raw)) <= RAW_BYTES_MAX + 100
    assert call(returning({"text": "x" * (PAYLOAD_BYTES_MAX - 100)})).kind is OutcomeKind.SUCCEEDED


@pytest.mark.parametrize(
    ("error", "kind", "word", "message"),
    [
        (Rejected("no money"), OutcomeKind.REJECTED, "rejected", "no money"),
        (Rejected("no money", code="no_money"), OutcomeKind.REJECTED, "no_money", "no money"),
        (Rejected(), OutcomeKind.REJECTED, "rejected", "rejected"),
        (CardDeclined("no"), OutcomeKind.REJECTED, "card_declined", "no"),
        (Unavailable("later"), OutcomeKind.UNAVAILABLE, "unavailable", "later"),
        (Unavailable("later", code="a b\n"), OutcomeKind.UNAVAILABLE, "a_b_", "later"),
        (HTTPTimeout("slow"), OutcomeKind.UNAVAILABLE, "httptimeout", "slow"),
    ],
)
def test_definite_failures(error: BaseException, kind: OutcomeKind, word: str, message: str) -> None:
    """E3: only `Rejected` and `Unavailable` say that nothing happened; the type is the code or the class in words."""
    answer = call(raising(error))
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type, answer.failure.message) == (kind, word, message)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        ConnectionError("cut"),
        TimeoutError(),
        MemoryError(),
        RecursionError(),
        KeyboardInterrupt(),
        SystemExit(0),
        GeneratorExit(),
        asyncio.CancelledError(),
        StopIteration(3),
        ExceptionGroup("both", [Rejected("a")]),
        Unprintable(),
        AssertionError("x" * 100_000 + "\n\x1b[31m"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_other_exception_is_unknown(error: BaseException) -> None:
    """E3: every exception but the two is unknown; its line is bounded, printable, and says where it was raised."""
    answer = call(raising(error))
    assert answer.kind is OutcomeKind.UNKNOWN
    assert answer.failure is not None
    assert answer.failure.type == type(error).__name__
    assert len(answer.failure.message) <= LINE_LENGTH_MAX
    assert answer.failure.message.isprintable()
    assert "test_invoke.py:" in answer.failure.message or isinstance(error, AssertionError)


@pytest.mark.parametrize(
    ("given", "after_ms"),
    [
        (0.25, 250),
        (3, 3_000),
        (timedelta(minutes=1), 60_000),
        (None, None),
        (-5, 0),
        (float("nan"), None),
        (float("inf"), INTERVAL_MS_MAX),
        (10**400, None),
        ("soon", None),
    ],
)
def test_unavailable_may_name_the_delay(given: Any, after_ms: int | None) -> None:
    """E5: the tool may name the next delay, within the limits; nonsense names none."""
    assert call(raising(Unavailable("later", retry_after=given))).after_ms == after_ms


@pytest.mark.parametrize("make", [returning, raising])
def test_pending_may_be_returned_or_raised(make: Callable[[Pending], Callable[..., object]]) -> None:
    """E5: `Pending` is no outcome yet; delay and token go to the log."""
    answer = call(make(Pending(after=2, token={"job": (1, 2.5)})))
    assert (answer.kind, answer.after_ms) == (OutcomeKind.PENDING, 2_000)
    assert answer.token == {"job": [1, Decimal("2.5")]}


@pytest.mark.parametrize("pending", [Pending(after=1, token=object()), Pending(after=float("nan"))])
def test_pending_that_cannot_be_recorded_is_unknown(pending: Pending) -> None:
    """E3: a token without JSON form, or a delay that is none, leaves the call unknown."""
    assert call(returning(pending)).kind is OutcomeKind.UNKNOWN


def test_arguments_that_cannot_be_bound_are_rejected_without_a_call() -> None:
    """E3: where the function was never entered nothing happened, and it is said so."""
    called = []

    @tool("shop.order")
    def order(item: float) -> None:
        called.append(item)

    bad: list[dict[str, Json]] = [{}, {"item": "x"}, {"item": 1, "more": 2}, {"item": 10**400}]
    for arguments in bad:
        answer = call(order, arguments)
        assert answer.kind is OutcomeKind.REJECTED
        assert answer.failure is not None
        assert answer.failure.type == "bad_arguments"
    assert not called


def test_unknown_tool_is_an_answer_too() -> None:
    """A call of a tool that isn't there has no effect and doesn't raise."""
    answer = toolbox().call(invocation("shop.order"))
    assert answer.kind is OutcomeKind.REJECTED


def test_context_tells_what_the_call_is() -> None:
    """A parameter annotated `CallContext` receives keys, place in the run, deadline, token and raw."""
    seen: list[CallContext] = []

    @tool("shop.cancel")
    def cancel(*, context: CallContext, why: str = "") -> None:
        seen.append(context)

    cancelled = threading.Event()
    answer = call(
        cancel,
        {"why": "x"},
        operation=Operation("deposit", 3, Direction.COMPENSATION),
        idempotency_key="r/deposit/3/compensation",
        forward_key="r/deposit/3/action",
        attempt=2,
        token=[1],
        raw="half",
        cancelled=cancelled,
        begun_ms=500,
        deadline_ms=1_000,
        seconds_left=500.0,
        project=Path("/srv"),
    )
    assert answer.failure is None
    (context,) = seen
    assert (context.tool, context.step, context.item, context.direction) == (
        "shop.cancel",
        "deposit",
        3,
        "compensation",
    )
    assert (context.idempotency_key, context.forward_key) == ("r/deposit/3/compensation", "r/deposit/3/action")
    assert (context.attempt, context.token, context.raw, context.project) == (2, [1], "half", Path("/srv"))
    assert context.cancelled is cancelled
    assert context.begun_at.isoformat() == "1970-01-01T00:00:00.500000+00:00"
    assert context.deadline.isoformat() == "1970-01-01T00:00:01+00:00"
    assert 400 < context.seconds_left() <= 500


def test_context_made_by_hand_needs_a_key_only() -> None:
    """A plugin's own tests make a context from a key; its forward key is then the same."""
    context = CallContext("k")
    assert context.forward_key == "k"
    assert 0 < context.seconds_left() <= 30


def test_async_tool_is_awaited() -> None:
    """An async tool is called on a thread as well as from a loop, with the same outcomes."""

    @tool("shop.order")
    async def order(item: str) -> str:
        await asyncio.sleep(0)
        if item == "none":
            raise Rejected("sold out")
        print("async words")  # noqa: T201 - to be kept
        return item

    box = toolbox(order)
    assert box.is_async("shop.order")
    for item, kind in (("tea", OutcomeKind.SUCCEEDED), ("none", OutcomeKind.REJECTED)):
        asked = invocation("shop.order", {"item": item})
        direct, awaited = box.call(asked), asyncio.run(box.call_async(asked))
        assert direct == awaited
        assert direct.kind is kind


def test_async_tool_called_where_a_loop_runs_is_an_answer() -> None:
    """A call that can't be made from within a loop still raises nothing."""

    @tool("shop.order")
    async def order() -> None:
        """Do nothing."""

    async def within() -> OutcomeKind:
        return toolbox(order).call(invocation("shop.order")).kind

    assert asyncio.run(within()) is OutcomeKind.UNKNOWN


def test_async_call_ends_at_its_deadline_where_nobody_else_can_end_it() -> None:
    """E14: an async tool on a thread is cancelled at its deadline, and the outcome is unknown."""

    @tool("shop.order")
    async def order() -> None:
        await asyncio.sleep(60)

    started = time.monotonic()
    answer = call(order, seconds_left=0.05)
    assert time.monotonic() - started < 30
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (OutcomeKind.UNKNOWN, "TimeoutError")


def test_cancelling_the_task_ends_an_async_call() -> None:
    """E14: the engine ends an async call by cancelling its task; a tool's own cancellation is an outcome."""

    @tool("shop.wait")
    async def wait() -> None:
        await asyncio.sleep(60)

    @tool("shop.give_up")
    async def give_up() -> None:
        raise asyncio.CancelledError

    async def cancel() -> bool:
        task = asyncio.create_task(toolbox(wait).call_async(invocation("shop.wait")))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(cancel())
    answer = asyncio.run(toolbox(give_up).call_async(invocation("shop.give_up")))
    assert answer.kind is OutcomeKind.UNKNOWN


def test_plain_tool_may_be_awaited() -> None:
    """Awaiting a plain tool runs it on a thread."""
    assert asyncio.run(toolbox(returning(1)).call_async(invocation("shop.order"))).output == 1


def test_coroutine_from_a_plain_function_is_awaited() -> None:
    """A wrapper that hides an async function changes nothing."""

    async def inner() -> int:
        return 5

    hiding = tool("shop.order")(lambda: inner())
    assert call(hiding).output == 5


@pytest.mark.parametrize(
    ("reply", "answer", "output"),
    [
        (Done({"id": (1,)}), ProbeAnswer.DONE, {"id": [1]}),
        (Done(), ProbeAnswer.DONE, None),
        (NotDone(), ProbeAnswer.NOT_DONE, None),
        (CannotTell("odd"), ProbeAnswer.CANNOT_TELL, None),
        ({"answer": "done", "output": {"id": 1}}, ProbeAnswer.DONE, {"id": 1}),
        ({"answer": "not_done"}, ProbeAnswer.NOT_DONE, None),
        ({"answer": "cannot_tell", "reason": "odd"}, ProbeAnswer.CANNOT_TELL, None),
        (None, ProbeAnswer.CANNOT_TELL, None),
        (False, ProbeAnswer.CANNOT_TELL, None),
        ({}, ProbeAnswer.CANNOT_TELL, None),
        ({"answer": "nope"}, ProbeAnswer.CANNOT_TELL, None),
        ({"answer": ["done"]}, ProbeAnswer.CANNOT_TELL, None),
        ({"answer": "not_done", "charge": 1}, ProbeAnswer.CANNOT_TELL, None),
        (Done(object()), ProbeAnswer.CANNOT_TELL, None),
        (Done("x" * PAYLOAD_BYTES_MAX), ProbeAnswer.CANNOT_TELL, None),
        (Pending(after=1), ProbeAnswer.CANNOT_TELL, None),
    ],
)
def test_probe_answers(reply: object, answer: ProbeAnswer, output: object) -> None:
    """E6: a probe says done, not done or can't tell; whatever else it returns means that it can't tell."""
    found = probe(returning(reply))
    assert (found.answer, found.output) == (answer, output)
    assert (found.failure is not None) == (answer is ProbeAnswer.CANNOT_TELL)


@pytest.mark.parametrize("error", [Rejected("x"), Unavailable("x"), ValueError("x"), SystemExit(), Unprintable()])
def test_probe_that_fails_cannot_tell(error: BaseException) -> None:
    """E6: a probe's own failure means that it can't tell, never that nothing was done."""
    assert probe(raising(error)).answer is ProbeAnswer.CANNOT_TELL


def test_probe_takes_only_the_arguments_it_knows() -> None:
    """E6: a probe is handed the action's arguments and takes those that it has parameters for."""

    @tool("shop.find")
    def find(item: str) -> Done:
        return Done(item)

    assert probe(find, {"item": "tea", "count": 3}).output == "tea"


def test_done_with_an_output_that_fits_no_action_cannot_tell() -> None:
    """E6: the output of `Done` must be what the action would have returned."""

    @tool("shop.order", probe="shop.find")
    def order() -> Charge:
        raise NotImplementedError

    @tool("shop.find")
    def find(what: Literal["good", "bad"]) -> Done:
        return Done({"charge_id": "c", "amount": 1} if what == "good" else {"charge_id": 7})

    box = toolbox(order, find)
    assert box.probe(invocation("shop.find", {"what": "good"})).answer is ProbeAnswer.DONE
    assert box.probe(invocation("shop.find", {"what": "bad"})).answer is ProbeAnswer.CANNOT_TELL


def test_async_probe_is_awaited() -> None:
    """A probe may be async."""

    @tool("shop.find")
    async def find() -> NotDone:
        return NotDone()

    assert probe(find).answer is ProbeAnswer.NOT_DONE


def test_arguments_are_checked_by_the_pinned_schema() -> None:
    """E16: arguments are checked by the facts that the run keeps, whatever the plugin says by now."""
    facts = describe(returning(1, arguments_schema={"type": "object", "required": ["a"]})).facts
    box = toolbox()
    assert box.check_arguments(facts, {}) == "`a` is missing"
    assert box.check_arguments(facts, {"a": 1}) is None


def test_tools_that_need_no_library_import_none(tmp_path: Path) -> None:
    """Calling a usual tool imports neither the schema library nor asyncio."""
    import subprocess

    script = (
        "import sys\nfrom tests.tools.building import call\nfrom sagactl import tool\n"
        "def f(a: int, b: str | None = None) -> list[str]: return []\n"
        "assert call(tool('a.b')(f), {'a': 1}).output == []\n"
        "assert not {'jsonschema', 'asyncio', 'logging', 'importlib.metadata'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_context_has_the_place_of_the_call_in_the_trace() -> None:
    """`traceparent` is the span of this very attempt or probe, and a context made by hand has one too."""
    seen: list[str] = []

    @tool("shop.order")
    def order(context: CallContext) -> None:
        seen.append(context.traceparent)

    asked = invocation("shop.order", attempt=2, deadline_ms=5, fence=3)
    toolbox(order).call(asked)
    toolbox(order).probe(asked)
    run_id, operation = asked.run_id, asked.operation
    assert seen == [
        write_traceparent(run_id, call_span_id(run_id, operation, 2)),
        write_traceparent(run_id, probe_span_id(run_id, operation, 2, fence=3, deadline_ms=5)),
    ]
    by_hand = CallContext("key", run_id=run_id, step="deposit", attempt=2)
    assert by_hand.traceparent == seen[0]
