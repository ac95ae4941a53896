"""Billing: deposits on cards, and their refunds, in a make-believe bank.

The bank honours idempotency keys and answers by the card:

    ok            charged
    declined      rejected, `card_declined`: no effect, and no use in trying again
    flaky         unavailable, `bank_busy`, twice; then charged
    slow          charged after two seconds
    hang          no answer at all, no charge
    timeout       charged, but the first answer is lost: only the probe or another attempt can tell
    limbo         charged, every answer is lost, and the probe can't tell either: a person must look
    unrefundable  charged, and a refund is rejected, `refund_refused`: a rollback gets stuck
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from sagactl import CallContext, CannotTell, Done, NotDone, Rejected, Unavailable, tool
from sagactl.sandbox.store import Books, vendor

from ._pace import lose_time

Card = Literal["ok", "declined", "flaky", "slow", "hang", "timeout", "limbo", "unrefundable"]


class Charge(TypedDict):
    """A deposit that was taken."""

    charge_id: str
    amount: int


class Refund(TypedDict):
    """What became of a deposit."""

    status: Literal["refunded", "already_gone"]


@tool(
    "billing.charge",
    compensation="billing.refund",
    compensation_with={"charge_id": "${{ output.charge_id }}"},
    probe="billing.find_charge",
    chaos_safe=True,
)
def charge(lead_id: str, amount: Annotated[int, {"minimum": 1}], context: CallContext, card: Card = "ok") -> Charge:
    """Charge a deposit.

    Args:
        lead_id: Who pays.
        amount: In cents.
        context: The call.
        card: How the bank behaves; `ok` charges.
    """
    with vendor("billing", context) as bank:
        if card == "declined":
            raise Rejected("the card was declined", code="card_declined")
        if card == "flaky" and bank.count_try() <= 2:
            raise Unavailable("the bank is busy", retry_after=1, code="bank_busy")
        if card == "slow":
            lose_time(context, 2)
        if card == "hang":
            lose_time(context, context.seconds_left() + 60)
            raise TimeoutError("the bank never answered")

        def book(books: Books) -> Charge:
            charge_id = books.new_id("ch")
            books.put("charge", charge_id, {"lead_id": lead_id, "amount": amount, "card": card, "state": "charged"})
            books.note("charged", {"charge_id": charge_id, "amount": amount})
            return {"charge_id": charge_id, "amount": amount}

        charged = bank.act({"lead_id": lead_id, "amount": amount, "card": card}, book)
        if card == "limbo" or (card == "timeout" and bank.count_try() == 1):
            raise ConnectionError("the bank hung up before it answered")
        return charged


@tool("billing.refund", null_safe=True, late_safe=True, chaos_safe=True)
def refund(context: CallContext, charge_id: str | None = None) -> Refund:
    """Refund a deposit, found by its id or by the key of the charge; a charge that comes later is refused."""

    def book(books: Books) -> Refund:
        found_id = charge_id or books.find_id("charge")
        found = books.get("charge", found_id) if found_id else None
        if found_id is None or found is None or found["state"] == "refunded":
            return {"status": "already_gone"}
        if found["card"] == "unrefundable":
            raise Rejected(f"{found_id} can't be refunded to this card", code="refund_refused")
        books.put("charge", found_id, {**found, "state": "refunded"})
        books.note("refunded", {"charge_id": found_id, "amount": found["amount"]})
        return {"status": "refunded"}

    with vendor("billing", context) as bank:
        return bank.undo({"charge_id": charge_id}, book)


@tool("billing.find_charge", read_only=True, chaos_safe=True)
def find_charge(context: CallContext) -> Done | NotDone | CannotTell:
    """Find out whether a charge went through."""
    with vendor("billing", context) as bank, bank.read() as books:
        charge_id = books.find_id("charge")
        found = books.get("charge", charge_id) if charge_id else None
        if found is None:
            return NotDone()
        if found["card"] == "limbo":
            return CannotTell("the bank's own records disagree")
        return Done({"charge_id": charge_id, "amount": found["amount"]})
