"""Stripe: customers, charges and refunds, with Stripe's own library (`pip install 'sagactl[plugins]'`).

    stripe.create_customer  and its undo stripe.delete_customer, which Stripe does for good
    stripe.pay              takes money from a customer's card (a PaymentIntent); its undo stripe.take_back
    stripe.charge           takes money from a card by the older charges API; its undo stripe.refund
    stripe.list_customers, stripe.list_payments, stripe.list_charges  only look

Both undos give back what is left of the money.

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

stripe.take_back is late-safe. A payment is made in two requests: one that takes no money, under the operation's key,
and one that confirms it. The undo makes the first one too, under the same key, and so has the payment, whether it was
there before or not; canceled, it can't be confirmed any more by a call that comes late. The others aren't late-safe:
Stripe takes no order to refuse a key. So sagactl undoes those steps only when no call of theirs can be under way.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypedDict, cast

from sagactl import CallContext, CannotTell, Done, NotDone, Rejected, Unavailable, tool

from ._reach import name_effect
from ._stripe import API_KEY, KEY_LENGTH_MAX, METADATA_KEY, ask, find_marked, list_all, mark, under_key

RETENTION: Final = "24h"
PAID_STATUSES: Final = frozenset({"succeeded", "processing"})
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


class Payment(TypedDict):
    """Money that was taken."""

    payment_id: str
    amount: int
    currency: str


class HeldPayment(Payment):
    """A payment that wasn't given back whole; `left` is what wasn't."""

    left: int


class Payments(TypedDict):
    """Those of one customer that hold money, the latest first."""

    payments: list[HeldPayment]


class TakenBack(TypedDict):
    """What became of a payment; `amount` is what this undo gave back."""

    status: Literal["refunded", "canceled", "already_gone"]
    amount: int


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
    given = [_refund_one(context, {"charge": each}, reason) for each in found]
    amount = sum(each for each in given if each is not None)
    return {"status": "already_gone" if all(each is None for each in given) else "refunded", "amount": amount}


def _refund_one(context: CallContext, what: dict[str, str], reason: str | None) -> int | None:
    """Give back what is left of one charge or payment; None where nothing is."""
    params = _leave_out_none(**what, reason=reason, metadata=mark(context))
    (name,) = what.values()
    options = under_key(context, f"/{name}")
    try:
        made = ask(context, lambda api: api.v1.refunds.create(params, options))
    except Rejected as error:
        if error.code == "charge_already_refunded":
            return None
        raise
    if made.status in {"failed", "canceled"}:
        raise Rejected(f"the refund of {name} is {made.status}", code="refund_failed")
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


@tool(
    "stripe.pay",
    compensation="stripe.take_back",
    compensation_with={
        **{name: f"${{{{ args.{name} }}}}" for name in ("amount", "currency", "customer")},
        "payment_id": "${{ output.payment_id }}",
    },
    probe="stripe.find_payment",
    key_retention=RETENTION,
    secrets=(API_KEY,),
)
def pay(context: CallContext, *, amount: Amount, currency: Currency, customer: str, payment_method: str) -> Payment:
    """Take money from a customer's card, without the customer there; one that must agree in person is declined.

    Args:
        context: The call.
        amount: How much.
        currency: Of what.
        customer: Who pays.
        payment_method: The customer's card, such as `pm_…`.
    """
    made = _begin_payment(context, amount, currency, customer)
    params = {"payment_method": payment_method, "off_session": True}
    options = under_key(context, "/confirm")
    paid = ask(context, lambda api: api.v1.payment_intents.confirm(made.id, cast("Any", params), options))
    if paid.status not in PAID_STATUSES:
        raise RuntimeError(f"the payment {paid.id} is {paid.status}")
    return _tell_payment(paid)


def _begin_payment(context: CallContext, amount: int, currency: str, customer: str) -> Any:
    """Make the payment of the action, or get the one that was made: the same request, in the action and in its undo."""
    key = name_effect(context.forward_key, KEY_LENGTH_MAX)
    params: Any = {
        "amount": amount,
        "currency": currency,
        "customer": customer,
        "payment_method_types": ["card"],
        "metadata": {METADATA_KEY: key, "sagactl_run": context.run_id},
    }
    return ask(context, lambda api: api.v1.payment_intents.create(params, {"idempotency_key": key}))


@tool("stripe.take_back", null_safe=True, late_safe=True, secrets=(API_KEY,))
def take_back(
    context: CallContext, *, amount: int, currency: str, customer: str, payment_id: str | None = None
) -> TakenBack:
    """Give a payment back, or cancel it, found by its id or by its key; one that comes later is refused."""
    found = [payment_id] if payment_id else [each.id for each in _find_payments(context, customer)]
    claimed = [] if found else _claim_payment(context, amount, currency, customer)
    ended = [_end_payment(context, each) for each in [*found, *claimed]]
    given = sum(each for _, each in ended)
    was_there = any(found and word != "already_gone" for word, _ in ended)
    return {"status": "refunded" if given else "canceled" if was_there else "already_gone", "amount": given}


def _claim_payment(context: CallContext, amount: int, currency: str, customer: str) -> list[str]:
    """Take the place of a payment that may come yet; none where Stripe takes no such payment, from nobody."""
    try:
        return [_begin_payment(context, amount, currency, customer).id]
    except Rejected:
        return []


def _end_payment(context: CallContext, payment_id: str) -> tuple[str, int]:
    """End one payment, however far it came; return what that was, and how much was given back."""
    payment: Any = ask(context, lambda api: api.v1.payment_intents.retrieve(payment_id))
    if payment.status == "canceled":
        return "already_gone", 0
    if payment.status == "succeeded":
        given = _refund_one(context, {"payment_intent": payment_id}, None)
        return ("already_gone", 0) if given is None else ("refunded", given)
    if payment.status == "processing":
        raise Unavailable(f"the payment {payment_id} is neither made nor refused yet", code="processing")
    options = under_key(context, f"/{payment_id}/cancel")
    try:
        ask(context, lambda api: api.v1.payment_intents.cancel(payment_id, {}, options))
    except Rejected as error:
        if error.code != "payment_intent_unexpected_state":
            raise
        raise Unavailable(f"the payment {payment_id} was confirmed just now", code="payment_moved") from None
    return "canceled", 0


@tool("stripe.find_payment", read_only=True, secrets=(API_KEY,))
def find_payment(context: CallContext, customer: str) -> Done | NotDone | CannotTell:
    """Find out whether a payment went through."""
    found = _find_payments(context, customer)
    begun = [each for each in found if each.status in PAID_STATUSES]
    if len(begun) > 1:
        return CannotTell(f"{len(begun)} payments have this key: {', '.join(each.id for each in begun)}")
    if not begun:
        return NotDone()
    (paid,) = begun
    if paid.status == "processing":
        return CannotTell(f"{paid.id} is neither made nor refused yet")
    if paid.latest_charge.amount_refunded:
        return CannotTell(f"{paid.id} was made, and {paid.latest_charge.amount_refunded} of it given back")
    return Done(_tell_payment(paid))


@tool("stripe.list_payments", read_only=True, secrets=(API_KEY,))
def list_payments(context: CallContext, customer: str) -> Payments:
    """List the payments of a customer that hold money: taken, and not given back whole."""
    found = list_all(context, _read_payments, customer=customer, expand=["data.latest_charge"])
    paid = ((each, each.amount - each.latest_charge.amount_refunded) for each in found if each.status == "succeeded")
    return {"payments": [{**_tell_payment(each), "left": amount} for each, amount in paid if amount]}


def _find_payments(context: CallContext, customer: str) -> list[Any]:
    """Return the payments of the action, whatever became of them."""
    only = {"customer": customer, "expand": ["data.latest_charge"]}
    return find_marked(context, lambda api, params: _read_payments(api, {**params, **only}))


def _read_payments(api: Any, params: dict[str, Any]) -> Any:
    return api.v1.payment_intents.list(params)


def _tell_payment(paid: Any) -> Payment:
    return {"payment_id": paid.id, "amount": paid.amount, "currency": paid.currency}


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
