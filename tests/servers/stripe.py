"""A fake of Stripe that others wrote, and what it lacks.

`stripe-stateful-mock` keeps idempotency keys and refuses a second refund, as Stripe does. It deletes no customer,
forgets whose charge a charge was, and knows no PaymentIntents: that is done here, before it, by Stripe's description.
Neither is the real Stripe: the words of its errors and the shape of its objects are what they were in 2020.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from tests.servers.between import Between, Reply, Request, standing_before
from tests.servers.start import HERE, find_free_port, find_node_program, is_listening, lack, running
from tests.servers.stripe_payments import KEY, Payments, fail, say

START = "require('stripe-stateful-mock').createExpressApp().listen(Number(process.argv[1]), '127.0.0.1')"
"""Started by its own program it would listen on all addresses."""

CUSTOMERS = "/v1/customers"
CHARGES = "/v1/charges"


__all__ = ["KEY", "Stripe", "fail", "serving"]


@dataclass
class Stripe:
    """The fake: asked at `between`, where answers can be lost; `url` is what stands behind."""

    url: str
    between: Between
    payments: Payments

    def ask(self, path: str, **params: str) -> Any:
        """Return what the fake says, past everything that may get lost."""
        return _read(f"{self.url}{path}", params)

    def customers(self, email: str) -> list[Any]:
        """Return the customers of an address that weren't deleted."""
        found: list[Any] = _read(f"{self.between.url}{CUSTOMERS}", {"email": email})["data"]
        return found

    def charges(self, key: str) -> list[Any]:
        """Return the charges that took money under the key of an action."""
        listed = self.ask("/v1/charges")["data"]
        return [each for each in listed if each["metadata"].get("sagactl_key") == key and each["status"] == "succeeded"]

    def balance(self, key: str) -> list[int]:
        """Return what each charge of an action has left."""
        return [each["amount"] - each["amount_refunded"] for each in self.charges(key)]


def _read(url: str, params: dict[str, str]) -> Any:
    answer = httpx.get(url, params=params, headers={"Authorization": f"Bearer {KEY}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


@dataclass
class _Mending:
    """The deletion of customers, for good, found by its id as deleted, and no longer listed; and whose charges are."""

    url: str
    deleted: set[str] = field(default_factory=set)

    def answer(self, request: Request) -> Reply | None:
        method, parts = request.method, urlsplit(request.path)
        if parts.path == CHARGES and method == "GET":
            return self._list_charges(parts.query)
        name = parts.path.removeprefix(f"{CUSTOMERS}/")
        if parts.path == CUSTOMERS and method == "GET":
            return self._list(parts.query)
        if name == parts.path or "/" in name:
            return None
        if name in self.deleted:
            gone = fail(
                404, type="invalid_request_error", code="resource_missing", message=f"No such customer: '{name}'"
            )
            return _tell_deleted(name) if method == "GET" else gone
        return self._delete(name) if method == "DELETE" else None

    def _delete(self, name: str) -> Reply:
        found = self._get(f"{CUSTOMERS}/{name}")
        if found.status_code != 200:
            return Reply(found.status_code, found.content, {"Content-Type": "application/json"})
        self.deleted.add(name)
        return _tell_deleted(name)

    def _list(self, query: str) -> Reply | None:
        wanted = parse_qs(query)
        if "starting_after" in wanted:
            return None
        found = self._get(f"{CUSTOMERS}?{urlencode(wanted, doseq=True)}").json()
        found["data"] = [each for each in found["data"] if each["id"] not in self.deleted]
        return say(found)

    def _list_charges(self, query: str) -> Reply | None:
        wanted = parse_qs(query)
        if "customer" not in wanted:
            return None
        found = self._get(CHARGES).json()
        found["data"] = [each for each in found["data"] if each["source"]["customer"] == wanted["customer"][0]]
        return say(found)

    def _get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers={"Authorization": f"Bearer {KEY}"})


def _tell_deleted(name: str) -> Reply:
    return say({"id": name, "object": "customer", "deleted": True})


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Stripe]:
    """Run the fake until the block ends."""
    find_node_program("stripe-stateful-mock")
    node = shutil.which("node")
    if node is None:
        lack("stripe-stateful-mock needs Node.js")
    assert node is not None
    port = find_free_port()
    command = [node, "-e", START, str(port)]
    with running(command, is_ready=lambda: is_listening(port), log=folder / "stripe.log", cwd=HERE):
        url = f"http://127.0.0.1:{port}"
        payments, mending = Payments(url), _Mending(url)
        with standing_before(url, lambda request: payments.answer(request) or mending.answer(request)) as between:
            yield Stripe(url, between, payments)
