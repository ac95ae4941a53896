"""Cloud: virtual machines in a make-believe data centre.

The subnet has eight addresses, 10.0.0.1 to 10.0.0.8: a ninth machine is rejected, `subnet_exhausted`, until one of the
others is gone. A machine whose name begins with `slow-` takes half a second.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypedDict

from sagactl import CallContext, Done, NotDone, Rejected, tool
from sagactl.sandbox.store import Books, vendor

from ._pace import lose_time

ADDRESSES: Final = tuple(f"10.0.0.{number}" for number in range(1, 9))


class Machine(TypedDict):
    """A running machine."""

    vm_id: str
    address: str


class Deallocated(TypedDict):
    """What became of a machine."""

    status: Literal["deallocated", "already_gone"]


@tool(
    "cloud.provision_vm",
    compensation="cloud.deallocate_vm",
    compensation_with={"vm_id": "${{ output.vm_id }}"},
    probe="cloud.find_vm",
    chaos_safe=True,
)
def provision_vm(name: Annotated[str, {"minLength": 1, "maxLength": 63}], context: CallContext) -> Machine:
    """Start a machine on a free address."""

    def start(books: Books) -> Machine:
        taken = {machine["address"] for machine in books.all("vm") if machine["state"] == "running"}
        address = next((each for each in ADDRESSES if each not in taken), None)
        if address is None:
            raise Rejected(f"no address left for {name}, all {len(ADDRESSES)} are taken", code="subnet_exhausted")
        vm_id = books.new_id("vm")
        books.put("vm", vm_id, {"name": name, "address": address, "state": "running"})
        books.note("machine started", {"vm_id": vm_id, "name": name, "address": address})
        return {"vm_id": vm_id, "address": address}

    with vendor("cloud", context) as cloud:
        if name.startswith("slow-"):
            lose_time(context, 0.5)
        return cloud.act({"name": name}, start)


@tool("cloud.deallocate_vm", null_safe=True, late_safe=True, chaos_safe=True)
def deallocate_vm(context: CallContext, vm_id: str | None = None) -> Deallocated:
    """Stop a machine and free its address; a start that comes later is refused."""

    def stop(books: Books) -> Deallocated:
        found_id = vm_id or books.find_id("vm")
        found = books.get("vm", found_id) if found_id else None
        if found_id is None or found is None or found["state"] == "stopped":
            return {"status": "already_gone"}
        books.put("vm", found_id, {**found, "state": "stopped"})
        books.note("machine stopped", {"vm_id": found_id, "address": found["address"]})
        return {"status": "deallocated"}

    with vendor("cloud", context) as cloud:
        return cloud.undo({"vm_id": vm_id}, stop)


@tool("cloud.find_vm", read_only=True, chaos_safe=True)
def find_vm(context: CallContext) -> Done | NotDone:
    """Find out whether a machine was started."""
    with vendor("cloud", context) as cloud, cloud.read() as books:
        vm_id = books.find_id("vm")
        found = books.get("vm", vm_id) if vm_id else None
        return NotDone() if found is None else Done({"vm_id": vm_id, "address": found["address"]})
