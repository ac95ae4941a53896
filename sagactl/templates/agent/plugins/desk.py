"""A help desk where an agent proposes what is to be done, and the saga does it: safely, or not at all.

The agent here is a few rules, so that the example needs no network. Put a model in the place of `propose`: it is a tool
that only reads, so its answer is recorded once and the same in every retry and resume. What it may do is decided by
`check_policy` and by the saga, never by the agent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, TypedDict

from sagactl import CallContext, tool

VOUCHER_CENTS = 500


class Proposal(TypedDict):
    """What the agent wants done."""

    refund: int
    vouchers: list[int]
    reply: str


class Verdict(TypedDict):
    """Whether the desk's rules allow it."""

    is_allowed: bool
    why: str


class Entry(TypedDict):
    """Something that was written into the desk's books."""

    entry: str


class Removed(TypedDict):
    """What became of an entry."""

    status: Literal["removed", "already_gone"]


@tool("desk.propose", read_only=True)
def propose(complaint: str) -> Proposal:
    """Read a complaint and propose what to do (this is where a model goes)."""
    is_furious = "furious" in complaint.lower()
    return {
        "refund": 90_000 if is_furious else 1_500,
        "vouchers": [VOUCHER_CENTS, VOUCHER_CENTS],
        "reply": "We are very sorry." if is_furious else "Thank you for telling us.",
    }


@tool("desk.check_policy", read_only=True)
def check_policy(refund: int, limit: int) -> Verdict:
    """Judge a proposal by the rules of the desk."""
    is_allowed = refund <= limit
    return {"is_allowed": is_allowed, "why": "within the limit" if is_allowed else f"{refund} is more than {limit}"}


def _file(context: CallContext, key: str) -> Path:
    folder = context.project / "books"
    folder.mkdir(exist_ok=True)
    return folder / f"{key.replace('/', '-')}.json"


def _write(context: CallContext, what: dict[str, object]) -> Entry:
    """Write an entry. The same key is the same file: calling twice has one effect."""
    file = _file(context, context.idempotency_key)
    file.write_text(json.dumps(what))
    return {"entry": file.stem}


def _remove(context: CallContext) -> Removed:
    """Remove the entry of the action, found by its key."""
    file = _file(context, context.forward_key)
    if not file.exists():
        return {"status": "already_gone"}
    file.unlink()
    return {"status": "removed"}


@tool("desk.open_case", compensation="desk.withdraw_case")
def open_case(order: str, context: CallContext) -> Entry:
    """Open a case for an order."""
    return _write(context, {"case": order})


@tool("desk.withdraw_case", null_safe=True)
def withdraw_case(context: CallContext) -> Removed:
    """Withdraw a case."""
    return _remove(context)


@tool("desk.refund", compensation="desk.charge_back")
def refund(order: str, amount: int, context: CallContext) -> Entry:
    """Refund an amount, in cents."""
    return _write(context, {"refund": amount, "order": order})


@tool("desk.charge_back", null_safe=True)
def charge_back(context: CallContext) -> Removed:
    """Take a refund back."""
    return _remove(context)


@tool("desk.issue_voucher", compensation="desk.void_voucher")
def issue_voucher(amount: int, context: CallContext) -> Entry:
    """Issue a voucher."""
    return _write(context, {"voucher": amount})


@tool("desk.void_voucher", null_safe=True)
def void_voucher(context: CallContext) -> Removed:
    """Void a voucher."""
    return _remove(context)


@tool("desk.send_reply")
def send_reply(order: str, text: str, context: CallContext) -> Entry:
    """Send the reply: from here on there is no way back."""
    return _write(context, {"reply": text, "order": order})


@tool("desk.close_case")
def close_case(order: str, context: CallContext) -> Entry:
    """Close the case."""
    return _write(context, {"closed": order})
