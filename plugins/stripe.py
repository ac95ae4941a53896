"""Stripe: customers, charges and refunds, with Stripe's own library (`pip install 'sagactl[plugins]'`).

    stripe.create_customer  and its undo stripe.delete_customer, which Stripe does for good
    stripe.charge           takes money from a card (the charges API); its undo stripe.refund gives back what is left
    stripe.list_customers, stripe.list_charges  only look

The key is the secret STRIPE_API_KEY (see `sagactl help secrets`): the tools need it, and no saga mentions it. The
variable STRIPE_API_BASE names another address than Stripe's, such as that of a fake for tests.

Each request carries the operation's idempotency key, which Stripe remembers for 24 hours (`key_retention`): later, what
is in doubt is probed and never blindly repeated. Each object carries the key in its metadata as `sagactl_key` too, and
is found by it where the answer was lost. A refund needs no such time: a charge can't be given back twice.

What Stripe says, and what it comes to:

    a decline (402)           rejected, with the decline code, such as `insufficient_funds`
    a bad request (400, 404)  rejected, with Stripe's code
    a wrong key (401, 403)    rejected; in an undo unavailable, so that it waits for the right one
    too many requests (429)   unavailable, and so is a Stripe that can't be reached at all
    409, 5xx, no answer, the same key with other parameters: in doubt, and probed

Neither undo is late-safe: Stripe takes no order to refuse a key. So sagactl undoes a step whose call may still be under
way only when it can't be any more.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypedDict

from sagactl import CallContext, CannotTell, Done, NotDone, Rejected, tool

from ._stripe import API_KEY, ask, find_marked, list_all, mark, under_key

RETENTION: Final = "24h"
LIVE_STATUSES: Final = frozenset({"succeeded", "pending"})
"""A charge that was declined exists too, and is no effect."""

Amount = Annotated[int, {"minimum": 1, "maximum": 99_999_999}, "In the smallest unit of the currency, such as cents."]
Currency = Annotated[str, {"pattern": "^[a-z]{3}$"}, "Three small letters, such as `eur`."]


class Customer(TypedDict):
    """A customer in Stripe."""

    customer_id: str


class Charge(TypedDict):
    """Money that was taken."""

    charge_id: str
    amount: int
    currency: str


class Customers(TypedDict):
    """Those of one address."""

    customers: list[Customer]


class HeldCharge(Charge):
    """A charge that wasn't given back whole; `left` is what wasn't."""

    left: int


class Charges(TypedDict):
    """Those of one customer that hold money, the latest first."""

    charges: list[HeldCharge]


class Deleted(TypedDict):
    """What became of a customer."""

    status: Literal["deleted", "already_gone"]


class Refunded(TypedDict):
    """What became of a charge; `amount` is what this refund gave back."""

    status: Literal["refunded", "already_gone"]
    amount: int


@tool(
    "stripe.create_customer",
    compensation="stripe.delete_customer",
    compensation_with={"customer_id": "${{ output.customer_id }}"},
    probe="stripe.find_customer",
    key_retention=RETENTION,
    secrets=(API_KEY,),
)
def create_customer(
    context: CallContext,
    *,
    email: str,
    name: str | None = None,
    description: str | None = None,
    source: str | None = None,
) -> Customer:
    """Create a customer.

    Args:
        context: The call.
        email: Its address; Stripe allows any number of customers with one.
        name: What it is called.
        description: What you want to see beside it.
        source: A token of the card that it is charged with.
    """
    params = _leave_out_none(email=email, name=name, description=description, source=source, metadata=mark(context))
    return {"customer_id": ask(context, lambda api: api.v1.customers.create(params, under_key(context))).id}


@tool("stripe.delete_customer", null_safe=True, secrets=(API_KEY,))
def delete_customer(context: CallContext, customer_id: str | None = None) -> Deleted:
    """Delete a customer, found by its id or by the key of its creation; Stripe keeps its charges."""
    found = [customer_id] if customer_id else [each.id for each in find_marked(context, _read_customers)]
    deleted = [_delete_one(context, each) for each in found]
    return {"status": "deleted" if any(deleted) else "already_gone"}


def _delete_one(context: CallContext, customer_id: str) -> bool:
    """Delete a customer and tell whether it was there; one that this account never had is a mistake."""
    customer: Any = ask(context, lambda api: api.v1.customers.retrieve(customer_id))
    if getattr(customer, "deleted", False):
        return False
    ask(context, lambda api: api.v1.customers.delete(customer_id))
    return True


@tool("stripe.find_customer", read_only=True, secrets=(API_KEY,))
def find_customer(context: CallContext, email: str | None = None) -> Done | NotDone | CannotTell:
    """Find out whether a customer was created."""
    found = find_marked(context, lambda api, params: _read_customers(api, {**params, **_leave_out_none(email=email)}))
    if len(found) > 1:
        return CannotTell(f"{len(found)} customers have this key")
    return Done({"customer_id": found[0].id}) if found else NotDone()


@tool("stripe.list_customers", read_only=True, secrets=(API_KEY,))
def list_customers(context: CallContext, email: str) -> Customers:
    """List the customers of an address, the latest first."""
    found = list_all(context, _read_customers, email=email)
    return {"customers": [{"customer_id": each.id} for each in found]}


def _read_customers(api: Any, params: dict[str, Any]) -> Any:
    return api.v1.customers.list(params)


@tool(
    "stripe.charge",
    compensation="stripe.refund",
    compensation_with={"charge_id": "${{ output.charge_id }}"},
    probe="stripe.find_charge",
    key_retention=RETENTION,
    secrets=(API_KEY,),
)
def charge(
    context: CallContext,
    *,
    amount: Amount,
    currency: Currency,
    source: str | None = None,
    customer: str | None = None,
    description: str | None = None,
) -> Charge:
    """Charge a card.

    Args:
        context: The call.
        amount: How much.
        currency: Of what.
        source: A token of a card, or one of the customer's cards.
        customer: Whose default card is charged where there is no source.
        description: What the customer sees.
    """
    if source is None and customer is None:
        raise Rejected("a charge needs a source or a customer", code="no_payer")
    params = _leave_out_none(
        amount=amount,
        currency=currency,
        source=source,
        customer=customer,
        description=description,
        metadata=mark(context),
    )
    charged = ask(context, lambda api: api.v1.charges.create(params, under_key(context)))
    if charged.status not in LIVE_STATUSES:
        raise Rejected(charged.failure_message or "the charge failed", code=charged.failure_code or "charge_failed")
    return _tell_charge(charged)


@tool("stripe.refund", null_safe=True, secrets=(API_KEY,))
def refund(
    context: CallContext,
    charge_id: str | None = None,
    reason: Literal["duplicate", "fraudulent", "requested_by_customer"] | None = None,
) -> Refunded:
    """Give back what is left of a charge, found by its id or by the key of the charge."""
    found = [charge_id] if charge_id else [each.id for each in _find_charges(context)]
    given = [_refund_one(context, each, reason) for each in found]
    amount = sum(each for each in given if each is not None)
    return {"status": "already_gone" if all(each is None for each in given) else "refunded", "amount": amount}


def _refund_one(context: CallContext, charge_id: str, reason: str | None) -> int | None:
    """Refund what is left of one charge; None where nothing is."""
    params = _leave_out_none(charge=charge_id, reason=reason, metadata=mark(context))
    options = under_key(context, f"/{charge_id}")
    try:
        made = ask(context, lambda api: api.v1.refunds.create(params, options))
    except Rejected as error:
        if error.code == "charge_already_refunded":
            return None
        raise
    if made.status in {"failed", "canceled"}:
        raise Rejected(f"the refund of {charge_id} is {made.status}", code="refund_failed")
    return int(made.amount)


@tool("stripe.find_charge", read_only=True, secrets=(API_KEY,))
def find_charge(
    context: CallContext, amount: int, currency: str, customer: str | None = None
) -> Done | NotDone | CannotTell:
    """Find out whether a charge went through."""
    found = _find_charges(context, **_leave_out_none(customer=customer))
    if len(found) > 1:
        return CannotTell(f"{len(found)} charges have this key: {', '.join(each.id for each in found)}")
    if not found:
        return NotDone()
    told = _tell_charge(found[0])
    if (told["amount"], told["currency"]) != (amount, currency):
        return CannotTell(f"{told['charge_id']} has this key and is of {told['amount']} {told['currency']}")
    if found[0].amount_refunded:
        return CannotTell(f"{told['charge_id']} was charged, and {found[0].amount_refunded} of it given back")
    return Done(told)


@tool("stripe.list_charges", read_only=True, secrets=(API_KEY,))
def list_charges(context: CallContext, customer: str) -> Charges:
    """List the charges of a customer that hold money: taken, and not given back whole."""
    found = [each for each in list_all(context, _read_charges, customer=customer) if each.status in LIVE_STATUSES]
    left = ((each, each.amount - each.amount_refunded) for each in found)
    return {"charges": [{**_tell_charge(each), "left": amount} for each, amount in left if amount]}


def _read_charges(api: Any, params: dict[str, Any]) -> Any:
    return api.v1.charges.list(params)


def _find_charges(context: CallContext, **only: Any) -> list[Any]:
    """Return the charges of an action that took money, whether it was given back since or not."""
    found = find_marked(context, lambda api, params: _read_charges(api, {**params, **only}))
    return [each for each in found if each.status in LIVE_STATUSES]


def _tell_charge(charged: Any) -> Charge:
    return {"charge_id": charged.id, "amount": charged.amount, "currency": charged.currency}


def _leave_out_none(**params: Any) -> Any:
    return {name: value for name, value in params.items() if value is not None}
