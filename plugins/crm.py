"""CRM: leads and the contracts that they sign, in a make-believe system.

A lead whose address begins with `refuses@` doesn't sign: `crm.sign_contract` is rejected, `contract_refused`.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from sagactl import CallContext, Done, NotDone, Rejected, tool
from sagactl.sandbox.store import Books, vendor


class Lead(TypedDict):
    """A customer to be."""

    lead_id: str


class Archived(TypedDict):
    """What became of a lead."""

    status: Literal["archived", "already_gone"]


class Contract(TypedDict):
    """A signature: nothing takes it back, so `crm.sign_contract` has no compensation and makes a good pivot."""

    contract_id: str


@tool(
    "crm.create_lead",
    compensation="crm.archive_lead",
    compensation_with={"lead_id": "${{ output.lead_id }}"},
    probe="crm.find_lead",
    chaos_safe=True,
)
def create_lead(email: Annotated[str, {"format": "email"}], context: CallContext, name: str = "") -> Lead:
    """Create a lead."""

    def write(books: Books) -> Lead:
        lead_id = books.new_id("lead")
        books.put("lead", lead_id, {"email": email, "name": name, "state": "open"})
        books.note("lead created", {"lead_id": lead_id, "email": email})
        return {"lead_id": lead_id}

    with vendor("crm", context) as crm:
        return crm.act({"email": email, "name": name}, write)


@tool("crm.archive_lead", null_safe=True, late_safe=True, chaos_safe=True)
def archive_lead(context: CallContext, lead_id: str | None = None) -> Archived:
    """Archive a lead, found by its id or by the key of its creation; a creation that comes later is refused."""

    def write(books: Books) -> Archived:
        found_id = lead_id or books.find_id("lead")
        found = books.get("lead", found_id) if found_id else None
        if found_id is None or found is None or found["state"] == "archived":
            return {"status": "already_gone"}
        books.put("lead", found_id, {**found, "state": "archived"})
        books.note("lead archived", {"lead_id": found_id})
        return {"status": "archived"}

    with vendor("crm", context) as crm:
        return crm.undo({"lead_id": lead_id}, write)


@tool("crm.find_lead", read_only=True, chaos_safe=True)
def find_lead(context: CallContext) -> Done | NotDone:
    """Find out whether a lead was created."""
    with vendor("crm", context) as crm, crm.read() as books:
        lead_id = books.find_id("lead")
        return Done({"lead_id": lead_id}) if lead_id else NotDone()


@tool("crm.sign_contract", probe="crm.find_contract", chaos_safe=True)
def sign_contract(lead_id: str, context: CallContext) -> Contract:
    """Let a lead sign the contract."""

    def sign(books: Books) -> Contract:
        lead = books.get("lead", lead_id)
        if lead is None or lead["state"] == "archived":
            raise Rejected(f"no lead {lead_id}", code="lead_not_found")
        if str(lead["email"]).startswith("refuses@"):
            raise Rejected("the customer refused to sign", code="contract_refused")
        contract_id = books.new_id("contract")
        books.put("contract", contract_id, {"lead_id": lead_id})
        books.note("contract signed", {"contract_id": contract_id, "lead_id": lead_id})
        return {"contract_id": contract_id}

    with vendor("crm", context) as crm:
        return crm.act({"lead_id": lead_id}, sign)


@tool("crm.find_contract", read_only=True, chaos_safe=True)
def find_contract(context: CallContext) -> Done | NotDone:
    """Find out whether a contract was signed."""
    with vendor("crm", context) as crm, crm.read() as books:
        contract_id = books.find_id("contract")
        return Done({"contract_id": contract_id}) if contract_id else NotDone()
