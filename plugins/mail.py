"""Mail: messages to customers, through a make-believe mail service.

A message can't be unsent, so `mail.send` has no compensation: use it behind a pivot, or say why it needs no undo. The
service answers by the address:

    bounces@...   rejected, `bounced`
    busy@...      unavailable, `mail_busy`, twice; then sent
    offline@...   unavailable, `mail_offline`, every time
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from sagactl import CallContext, Done, NotDone, Rejected, Unavailable, tool
from sagactl.sandbox.store import Books, vendor


class Message(TypedDict):
    """A message that was handed over."""

    message_id: str


@tool("mail.send", probe="mail.find_message", chaos_safe=True)
def send(to: Annotated[str, {"format": "email"}], template: str, context: CallContext) -> Message:
    """Send a message.

    Args:
        to: The address.
        template: Name of the text.
        context: The call.
    """

    def post(books: Books) -> Message:
        message_id = books.new_id("msg")
        books.put("message", message_id, {"to": to, "template": template})
        books.note("message sent", {"message_id": message_id, "to": to, "template": template})
        return {"message_id": message_id}

    with vendor("mail", context) as mail:
        if to.startswith("bounces@"):
            raise Rejected(f"{to} doesn't exist", code="bounced")
        if to.startswith("offline@"):
            raise Unavailable("the mail service is offline", code="mail_offline")
        if to.startswith("busy@") and mail.count_try() <= 2:
            raise Unavailable("the mail service is busy", retry_after=0.2, code="mail_busy")
        return mail.act({"to": to, "template": template}, post)


@tool("mail.find_message", read_only=True, chaos_safe=True)
def find_message(context: CallContext) -> Done | NotDone:
    """Find out whether a message was handed over."""
    with vendor("mail", context) as mail, mail.read() as books:
        message_id = books.find_id("message")
        return Done({"message_id": message_id}) if message_id else NotDone()
