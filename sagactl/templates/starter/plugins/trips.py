"""A travel agency to try sagas with: it keeps what was booked in the folder `bookings/`, one file each.

Each tool is a function with `@tool` on it. `sagactl help plugins` says all about them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, TypedDict

from sagactl import CallContext, Done, NotDone, Rejected, tool


class Booking(TypedDict):
    """Something that was booked."""

    booking: str


class Cancelled(TypedDict):
    """What became of a booking."""

    status: Literal["cancelled", "already_gone"]


def _file(context: CallContext, key: str) -> Path:
    """Return the file of the booking that was made under *key*."""
    folder = context.project / "bookings"
    folder.mkdir(exist_ok=True)
    return folder / f"{key.replace('/', '-')}.json"


def _book(context: CallContext, what: dict[str, object]) -> Booking:
    """Write a booking down. The same key is the same file: calling twice books once."""
    file = _file(context, context.idempotency_key)
    file.write_text(json.dumps(what))
    return {"booking": file.stem}


def _cancel(context: CallContext) -> Cancelled:
    """Cancel what the action booked, found by the action's key; nothing there is nothing to do."""
    file = _file(context, context.forward_key)
    if not file.exists():
        return {"status": "already_gone"}
    file.unlink()
    return {"status": "cancelled"}


@tool("trips.book_flight", compensation="trips.cancel_flight", compensation_with={"booking": "${{ output.booking }}"})
def book_flight(traveller: str, city: str, context: CallContext) -> Booking:
    """Book a flight."""
    return _book(context, {"flight": city, "traveller": traveller})


@tool("trips.cancel_flight", null_safe=True)
def cancel_flight(context: CallContext, booking: str | None = None) -> Cancelled:
    """Cancel a flight."""
    context.logger.info("cancelling flight %s", booking)
    return _cancel(context)


@tool("trips.book_hotel", compensation="trips.cancel_hotel", compensation_with={"booking": "${{ output.booking }}"})
def book_hotel(traveller: str, city: str, nights: int, context: CallContext) -> Booking:
    """Book a room."""
    return _book(context, {"hotel": city, "nights": nights, "traveller": traveller})


@tool("trips.cancel_hotel", null_safe=True)
def cancel_hotel(context: CallContext, booking: str | None = None) -> Cancelled:
    """Cancel a room."""
    context.logger.info("cancelling room %s", booking)
    return _cancel(context)


@tool("trips.pay", compensation="trips.refund", probe="trips.find_payment")
def pay(traveller: str, context: CallContext, card: Literal["ok", "declined", "lost"] = "ok") -> Booking:
    """Charge the card: `declined` is refused, of `lost` the answer never arrives."""
    if card == "declined":
        raise Rejected("the card was declined", code="card_declined")  # no effect, and no use in trying again
    paid = _book(context, {"paid by": traveller})
    if card == "lost" and context.attempt == 1:
        raise ConnectionError("the bank hung up before it answered")  # anything else: nobody knows what happened
    return paid


@tool("trips.find_payment", read_only=True)
def find_payment(context: CallContext) -> Done | NotDone:
    """Find out whether a payment went through: what is asked when nobody knows."""
    file = _file(context, context.forward_key)
    return Done({"booking": file.stem}) if file.exists() else NotDone()


@tool("trips.refund", null_safe=True)
def refund(context: CallContext) -> Cancelled:
    """Give the money back."""
    return _cancel(context)


@tool("trips.send_ticket")
def send_ticket(traveller: str, flight: str, context: CallContext) -> Booking:
    """Send the ticket. It can't be unsent, so it has no compensation, and the saga says why."""
    return _book(context, {"ticket": flight, "sent to": traveller})
