"""Tryton, a CRM and ERP: customers, their addresses, and their orders, through its REST API.

`TRYTON_URL` names the server and its database (`https://erp.example.com/production`), the secret `TRYTON_KEY` is the
key of a user's application (in Tryton: Preferences, Applications, `rest`), and `TRYTON_COMPANY` the id of the company
that sells, where the user sees more than one. The modules `party` and `sale` must be active.

Tryton knows no idempotency keys. Each record carries a mark that is made from the key instead:

    party    its code, which is unique: a second one with it is refused, whoever comes first
    address  a contact of the kind "other" that belongs to it, made in the same transaction
    sale     its reference

A party is safe also from two calls at the same instant. Addresses and sales are looked for before they are made, and
again afterwards: of two that were made at once the second is deleted. (On PostgreSQL two transactions may not see each
other, and both stay. sagactl never makes two calls of one operation at once, and an undo takes back whatever carries
the mark.)

What others refer to can't be deleted: it is deactivated, and the output says so. A confirmed sale isn't cancelled
any more: `tryton.confirm_sale` has no undo and makes a good pivot.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypedDict

from sagactl import CallContext, Done, NotDone, Rejected, Unavailable, tool

from ._tryton import ACTIVE_OR_NOT, KEY, Tryton, mark

SELLABLE: Final = ("draft", "quotation")
CONFIRMED: Final = ("confirmed", "processing", "done")

Name = Annotated[str, {"minLength": 1, "maxLength": 200}]
Record = Annotated[int, {"minimum": 1}]


class Party(TypedDict):
    """A customer."""

    party_id: int
    code: str


class Address(TypedDict):
    """One of a customer's addresses."""

    address_id: int


class Sale(TypedDict):
    """An order, not confirmed."""

    sale_id: int


class Confirmation(TypedDict):
    """An order that holds."""

    sale_id: int
    number: str


class Removed(TypedDict):
    """What became of a party or an address; deactivated where something refers to it."""

    status: Literal["deleted", "deactivated", "already_gone"]


class Cancelled(TypedDict):
    """What became of an order; cancelled and kept where something refers to it."""

    status: Literal["deleted", "cancelled", "already_gone"]


@tool(
    "tryton.create_party",
    compensation="tryton.delete_party",
    compensation_with={"party_id": "${{ output.party_id }}"},
    probe="tryton.find_party",
    secrets=(KEY,),
)
def create_party(
    name: Name, context: CallContext, email: Annotated[str | None, {"format": "email", "maxLength": 200}] = None
) -> Party:
    """Create a customer.

    Args:
        name: Of the person or company.
        context: The call.
        email: Where mail goes.
    """
    tryton, code = Tryton(context), mark(context.idempotency_key)
    contacts = [["create", [{"type": "email", "value": email}]]] if email else []
    values = {"name": name, "code": code, "addresses": [], "contact_mechanisms": contacts}
    try:
        made = tryton.create("party.party", values)
    except Rejected:
        found = tryton.find("party.party", [["code", "=", code], ACTIVE_OR_NOT], "active")
        if not found:
            raise
        made = found[0]
        _refuse_if_undone(is_undone=not made["active"])
    return {"party_id": made["id"], "code": code}


@tool("tryton.delete_party", null_safe=True, secrets=(KEY,))
def delete_party(context: CallContext, party_id: int | None = None) -> Removed:
    """Delete a customer, found by its id or the mark of its creation; deactivate it where others refer to it."""
    return _remove(Tryton(context), "party.party", ["code", "=", mark(context.forward_key)], party_id)


@tool("tryton.find_party", read_only=True, secrets=(KEY,))
def find_party(context: CallContext) -> Done | NotDone:
    """Find out whether a customer was created."""
    code = mark(context.forward_key)
    found = Tryton(context).find("party.party", [["code", "=", code]])
    return Done({"party_id": found[0]["id"], "code": code}) if found else NotDone()


@tool(
    "tryton.add_address",
    compensation="tryton.remove_address",
    compensation_with={"address_id": "${{ output.address_id }}"},
    probe="tryton.find_address",
    secrets=(KEY,),
)
def add_address(
    party_id: Record,
    street: Annotated[str, {"minLength": 1, "maxLength": 500}],
    context: CallContext,
    city: Annotated[str, {"maxLength": 200}] = "",
    postal_code: Annotated[str, {"maxLength": 20}] = "",
) -> Address:
    """Add an address to a customer.

    Args:
        party_id: Whose address it is.
        street: With the number; lines are kept.
        context: The call.
        city: The city.
        postal_code: Its code.
    """
    tryton, value = Tryton(context), mark(context.idempotency_key)
    wanted = ["contact_mechanisms.value", "=", value]
    found = tryton.find("party.address", [wanted, ACTIVE_OR_NOT], "active")
    if not found:
        contact = {"party": party_id, "type": "other", "name": "sagactl", "value": value}
        address = {"street": street, "city": city, "postal_code": postal_code}
        values = {**address, "party": party_id, "contact_mechanisms": [["create", [contact]]]}
        return {"address_id": _create_once(tryton, "party.address", wanted, values)}
    _refuse_if_undone(is_undone=not found[0]["active"])
    return {"address_id": found[0]["id"]}


@tool("tryton.remove_address", null_safe=True, secrets=(KEY,))
def remove_address(context: CallContext, address_id: int | None = None) -> Removed:
    """Remove an address, found by its id or the mark of its creation; deactivate it where an order refers to it."""
    wanted = ["contact_mechanisms.value", "=", mark(context.forward_key)]
    return _remove(Tryton(context), "party.address", wanted, address_id)


@tool("tryton.find_address", read_only=True, secrets=(KEY,))
def find_address(context: CallContext) -> Done | NotDone:
    """Find out whether an address was added."""
    found = Tryton(context).find("party.address", [["contact_mechanisms.value", "=", mark(context.forward_key)]])
    return Done({"address_id": found[0]["id"]}) if found else NotDone()


@tool(
    "tryton.create_sale",
    compensation="tryton.cancel_sale",
    compensation_with={"sale_id": "${{ output.sale_id }}"},
    probe="tryton.find_sale",
    secrets=(KEY,),
)
def create_sale(
    party_id: Record,
    address_id: Record,
    description: Name,
    amount: Annotated[int, {"minimum": 0, "maximum": 10**12}],
    context: CallContext,
) -> Sale:
    """Draft an order of one line; its invoice and its shipment are left to people.

    Args:
        party_id: Who buys.
        address_id: Where the invoice goes.
        description: What is sold.
        amount: The price, in cents.
        context: The call.
    """
    tryton, reference = Tryton(context), mark(context.idempotency_key)
    found = tryton.find("sale.sale", [["reference", "=", reference]], "state")
    if found:
        _refuse_if_undone(is_undone=all(each["state"] == "cancelled" for each in found))
        return {"sale_id": next(each["id"] for each in found if each["state"] != "cancelled")}
    company = _find_company(tryton)
    price = {"__class__": "Decimal", "decimal": f"{amount // 100}.{amount % 100:02}"}
    line = {"type": "line", "quantity": 1, "description": description, "unit_price": price}
    values = {
        "company": company["id"],
        "currency": company["currency"],
        "party": party_id,
        "invoice_address": address_id,
        "reference": reference,
        "invoice_method": "manual",
        "shipment_method": "manual",
        "lines": [["create", [line]]],
    }
    return {"sale_id": _create_once(tryton, "sale.sale", ["reference", "=", reference], values)}


@tool("tryton.cancel_sale", null_safe=True, secrets=(KEY,))
def cancel_sale(context: CallContext, sale_id: int | None = None) -> Cancelled:
    """Cancel an order that isn't confirmed and delete it, found by its id or the mark of its creation."""
    tryton = Tryton(context)
    done: list[Literal["deleted", "cancelled"]] = []
    for sale in _gather(tryton, "sale.sale", ["reference", "=", mark(context.forward_key)], sale_id):
        if sale["state"] in CONFIRMED:
            raise Rejected(f"sale {sale['id']} is {sale['state']}: it can't be cancelled", code="confirmed")
        if sale["state"] in SELLABLE:
            _press(tryton, sale["id"], "cancel", "cancelled")
        try:
            done += ["deleted"] if tryton.delete("sale.sale", sale["id"]) else []
        except Rejected:
            done.append("cancelled")  # something refers to it
    return {"status": "already_gone" if not done else "cancelled" if "cancelled" in done else "deleted"}


@tool("tryton.find_sale", read_only=True, secrets=(KEY,))
def find_sale(context: CallContext) -> Done | NotDone:
    """Find out whether an order was drafted."""
    wanted = [["reference", "=", mark(context.forward_key)], ["state", "!=", "cancelled"]]
    found = Tryton(context).find("sale.sale", wanted)
    return Done({"sale_id": found[0]["id"]}) if found else NotDone()


class Listed(TypedDict):
    """Records, by their ids."""

    ids: list[int]


class Orders(TypedDict):
    """Orders, each by its id, and the state it is in."""

    orders: list[str]


@tool("tryton.list_parties", read_only=True, secrets=(KEY,))
def list_parties(name: Name, context: CallContext) -> Listed:
    """List the customers of a name that aren't deactivated, 50 at most."""
    return {"ids": [each["id"] for each in Tryton(context).find("party.party", [["name", "=", name]])]}


@tool("tryton.list_addresses", read_only=True, secrets=(KEY,))
def list_addresses(party_id: Record, context: CallContext) -> Listed:
    """List a customer's addresses that aren't deactivated, 50 at most."""
    return {"ids": [each["id"] for each in Tryton(context).find("party.address", [["party", "=", party_id]])]}


@tool("tryton.list_sales", read_only=True, secrets=(KEY,))
def list_sales(party_id: Record, context: CallContext) -> Orders:
    """List a customer's orders, 50 at most, such as `7 draft`."""
    found = Tryton(context).find("sale.sale", [["party", "=", party_id]], "state")
    return {
        "orders": [f"{each['id']} {'confirmed' if each['state'] in CONFIRMED else each['state']}" for each in found]
    }


@tool("tryton.confirm_sale", probe="tryton.find_confirmation", secrets=(KEY,))
def confirm_sale(sale_id: Record, context: CallContext) -> Confirmation:
    """Confirm an order: from here on it holds, and nothing takes it back.

    Args:
        sale_id: Which order.
        context: The call.
    """
    tryton = Tryton(context)
    sale = _read_sale(tryton, sale_id)
    if sale["state"] == "cancelled":
        raise Rejected(f"sale {sale_id} is cancelled", code="cancelled")
    was_draft = sale["state"] == "draft"
    if was_draft:
        _press(tryton, sale_id, "quote", "quotation", *CONFIRMED)
    if sale["state"] not in CONFIRMED:
        try:
            _press(tryton, sale_id, "confirm", *CONFIRMED)
        except Rejected:
            if was_draft:
                _press(tryton, sale_id, "draft", "draft")
            raise
    return {"sale_id": sale_id, "number": _read_sale(tryton, sale_id)["number"] or ""}


@tool("tryton.find_confirmation", read_only=True, secrets=(KEY,))
def find_confirmation(sale_id: Record, context: CallContext) -> Done | NotDone:
    """Find out whether an order was confirmed, whoever did it."""
    found = Tryton(context).find("sale.sale", [["id", "=", sale_id]], "state", "number")
    if not found or found[0]["state"] not in CONFIRMED:
        return NotDone()
    return Done({"sale_id": sale_id, "number": found[0]["number"] or ""})


def _create_once(tryton: Tryton, model: str, wanted: Sequence[object], values: dict[str, object]) -> int:
    """Make a record and return its id; of one that another call has made just now, instead of it."""
    made: int = tryton.create(model, values)["id"]
    found = tryton.find(model, [wanted])
    first: int = found[0]["id"] if found else made
    if first != made:
        if model == "sale.sale":
            tryton.press(model, made, "cancel")
        tryton.delete(model, made)
    return first


def _gather(
    tryton: Tryton, model: str, wanted: Sequence[object], record_id: int | None, *also: Sequence[object]
) -> list[dict[str, Any]]:
    """Return what carries the mark, and the record of that id, with what state it is in."""
    field = "state" if model == "sale.sale" else "active"
    found = tryton.find(model, [wanted, *also], field)
    if record_id is not None and all(each["id"] != record_id for each in found):
        found += tryton.find(model, [["id", "=", record_id], *also], field)
    return found


def _remove(tryton: Tryton, model: str, wanted: Sequence[object], record_id: int | None) -> Removed:
    done: list[Literal["deleted", "deactivated"]] = []
    for found in _gather(tryton, model, wanted, record_id, ACTIVE_OR_NOT):
        if not found["active"]:
            done.append("deactivated")  # by an earlier try: Tryton shows it to no request that changes anything
            continue
        try:
            done += ["deleted"] if tryton.delete(model, found["id"]) else []
        except Rejected:  # something refers to it
            tryton.deactivate(model, found["id"])
            done.append("deactivated")
    return {"status": "already_gone" if not done else "deactivated" if "deactivated" in done else "deleted"}


def _refuse_if_undone(*, is_undone: bool) -> None:
    """Refuse an action that comes after its undo."""
    if is_undone:
        raise Rejected("it was undone before this call came", code="undone")


def _read_sale(tryton: Tryton, sale_id: int) -> dict[str, Any]:
    found = tryton.find("sale.sale", [["id", "=", sale_id]], "state", "number")
    if not found:
        raise Rejected(f"no sale {sale_id}", code="not_found")
    return found[0]


def _press(tryton: Tryton, sale_id: int, button: str, *goals: str) -> None:
    """Press a button of an order; that it has come to a state of *goals* already is as good."""
    try:
        tryton.press("sale.sale", sale_id, button)
    except Rejected:
        if _read_sale(tryton, sale_id)["state"] not in goals:
            raise


def _find_company(tryton: Tryton) -> dict[str, Any]:
    """Return who sells, with its currency."""
    wanted = os.environ.get("TRYTON_COMPANY", "")
    domain = [["id", "=", int(wanted)]] if wanted.isdecimal() else []
    found = tryton.find("company.company", domain, "currency")
    if len(found) != 1:
        raise Unavailable(f"TRYTON_COMPANY must name one of {len(found)} companies", code="not_configured")
    return found[0]
