"""PaymentIntents, which `stripe-stateful-mock` lacks: a small and strict fake that stands before it.

Money is moved by charges and refunds of the server behind, so its rules hold here too. Idempotency keys are kept as it
keeps them, which a test compares. By Stripe's description an intent is made, confirmed, and then succeeded; or canceled
while it isn't. This isn't the real Stripe.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from tests.servers.between import Reply, Request

KEY = "sk_test_4eC39HqLyjWDarjtT1zdp7dc"
INTENTS = "/v1/payment_intents"
REFUNDS = "/v1/refunds"
UNPAID = ("requires_payment_method", "requires_confirmation", "requires_action")
FORGOTTEN = {401, 429}
"""What isn't kept under a key: nothing was begun."""

Form = dict[str, str]


@dataclass
class Payments:
    """The intents, and what was answered under each key; `url` is the server behind."""

    url: str
    intents: dict[str, dict[str, Any]] = field(default_factory=dict)
    _kept: dict[tuple[str, str], tuple[bytes, Reply]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Reply | None:
        """Answer what is asked of intents, and the refund of one; None for all else."""
        parts, form = urlsplit(request.path), dict(parse_qsl(request.body.decode()))
        if parts.path == REFUNDS and "payment_intent" in form:
            return self._refund(request, form)
        if not parts.path.startswith(INTENTS):
            return None
        if not request.headers.get("authorization", "").startswith("Bearer sk_test_"):
            return fail(401, type="invalid_request_error", message="Invalid API Key provided")
        with self._lock:
            if request.method == "GET":
                return self._read(parts.path, dict(parse_qsl(parts.query)))
            return self._keep(request, parts.path, form)

    def _keep(self, request: Request, path: str, form: Form) -> Reply:
        place = (path, request.headers.get("idempotency-key", uuid.uuid4().hex))
        if place in self._kept:
            body, reply = self._kept[place]
            if body == request.body:
                return Reply(reply.status, reply.body, {**reply.headers, "Idempotent-Replayed": "true"})
            message = (
                "Keys for idempotent requests can only be used with the same parameters they were first used with."
            )
            return fail(400, type="idempotency_error", message=message)
        reply = self._act(path, form)
        if reply.status not in FORGOTTEN:
            self._kept[place] = (request.body, reply)
        return reply

    def _act(self, path: str, form: Form) -> Reply:
        if path == INTENTS:
            return self._create(form)
        name, _, verb = path.removeprefix(f"{INTENTS}/").partition("/")
        intent = self.intents.get(name)
        if intent is None:
            return fail(404, type="invalid_request_error", code="resource_missing", message=f"No such intent: '{name}'")
        if intent["status"] not in UNPAID:
            message = f"This PaymentIntent has a status of {intent['status']}."
            return fail(400, type="invalid_request_error", code="payment_intent_unexpected_state", message=message)
        if verb == "cancel":
            intent["status"] = "canceled"
            return say(intent)
        return self._confirm(intent, form)

    def _create(self, form: Form) -> Reply:
        for name in ("amount", "currency"):
            if name not in form:
                message = f"Missing required param: {name}."
                return fail(400, type="invalid_request_error", code="parameter_missing", message=message)
        customer = form.get("customer")
        if customer is not None:
            found = httpx.get(f"{self.url}/v1/customers/{customer}", headers=_authorize())
            if found.status_code != 200:
                return Reply(400, found.content, {"Content-Type": "application/json"})
        intent = {
            "id": f"pi_{uuid.uuid4().hex[:24]}",
            "object": "payment_intent",
            "amount": int(form["amount"]),
            "currency": form["currency"],
            "customer": customer,
            "created": int(time.time()),
            "latest_charge": None,
            "metadata": {name[9:-1]: value for name, value in form.items() if name.startswith("metadata[")},
            "status": "requires_payment_method",
        }
        self.intents[str(intent["id"])] = intent
        return say(intent)

    def _confirm(self, intent: dict[str, Any], form: Form) -> Reply:
        token = form.get("payment_method", "").replace("pm_card_", "tok_")
        if token == "tok_authenticationRequired":
            message = "Your card was declined. This transaction requires authentication."
            return fail(402, type="card_error", code="authentication_required", message=message)
        asked = {"amount": str(intent["amount"]), "currency": intent["currency"], "source": token}
        charged = httpx.post(f"{self.url}/v1/charges", data=asked, headers=_authorize())
        if charged.status_code != 200:
            return Reply(charged.status_code, charged.content, {"Content-Type": "application/json"})
        intent["status"] = "succeeded"
        intent["latest_charge"] = charged.json()["id"]
        return say(intent)

    def _read(self, path: str, query: Form) -> Reply:
        if path != INTENTS:
            intent = self.intents.get(path.removeprefix(f"{INTENTS}/"))
            missing = fail(404, type="invalid_request_error", code="resource_missing", message="No such payment_intent")
            return missing if intent is None else say(self._expand(intent, query))
        found = [each for each in self.intents.values() if query.get("customer") in {None, each["customer"]}]
        found = [each for each in found if each["created"] >= int(query.get("created[gte]", 0))]
        return say(
            {"object": "list", "data": [self._expand(each, query) for each in reversed(found)], "has_more": False}
        )

    def _expand(self, intent: dict[str, Any], query: Form) -> dict[str, Any]:
        is_wanted = any(name.startswith("expand[") and "latest_charge" in value for name, value in query.items())
        if intent["latest_charge"] is None or not is_wanted:
            return intent
        charge = httpx.get(f"{self.url}/v1/charges/{intent['latest_charge']}", headers=_authorize()).json()
        return {**intent, "latest_charge": charge}

    def _refund(self, request: Request, form: Form) -> Reply:
        """Hand the refund on, of the charge that is behind the intent, under the same key."""
        intent = self.intents.get(form.pop("payment_intent"), {"latest_charge": None})
        headers = {name: request.headers[name] for name in ("authorization", "idempotency-key")}
        done = httpx.post(
            f"{self.url}{REFUNDS}", data={**form, "charge": str(intent["latest_charge"])}, headers=headers
        )
        return Reply(done.status_code, done.content, {"Content-Type": "application/json"})


def _authorize() -> dict[str, str]:
    return {"Authorization": f"Bearer {KEY}"}


def say(body: object) -> Reply:
    """Return an answer."""
    return Reply(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


def fail(status: int, **error: str) -> Reply:
    """Return an error as Stripe words one."""
    return Reply(status, json.dumps({"error": error}).encode(), {"Content-Type": "application/json"})
