"""`stripe.pay` on the project's own fake of PaymentIntents, whose keys are held to those of `stripe-stateful-mock`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from sagactl.core.canonical import Json
from tests.plugins.vendors import REGISTRY, Deed, wait_until, word
from tests.servers import stripe

INTENTS = "POST /v1/payment_intents"


@pytest.fixture(scope="module")
def fake(stripe_server: stripe.Stripe) -> Iterator[stripe.Stripe]:
    """Point the plugin at the fake."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIPE_API_BASE", stripe_server.between.url)
        yield stripe_server


@pytest.fixture
def customer(fake: stripe.Stripe) -> str:
    """Give a customer of its own."""
    made = Deed("stripe.create_customer", {"email": "eve@example.com"}, ENVIRON).done()
    return str(made["customer_id"])


ENVIRON = {"SAGACTL_SECRET_STRIPE_API_KEY": stripe.KEY}


def paying(customer: str, method: str = "pm_card_visa") -> Deed:
    """Return a payment."""
    given: dict[str, Json] = {"amount": 4_900, "currency": "eur", "customer": customer, "payment_method": method}
    return Deed("stripe.pay", given, ENVIRON)


def place(payment: Deed, **more: Json) -> dict[str, Json]:
    """Return the arguments of the undo."""
    return {name: payment.arguments[name] for name in ("amount", "currency", "customer")} | more


def left(customer: str) -> list[Json]:
    """Return what each payment of a customer still holds."""
    listed = Deed("stripe.list_payments", {"customer": customer}, ENVIRON).done()["payments"]
    assert isinstance(listed, list)
    return [each["left"] for each in listed if isinstance(each, dict)]


def test_the_same_key_twice_is_one_payment(fake: stripe.Stripe, customer: str) -> None:
    """E8: making and confirming it are each one request, however often they are made."""
    payment = paying(customer)
    first = payment.done()
    assert payment.act(attempt=2).output == first
    assert payment.find() == ("done", first)
    assert left(customer) == [4_900]


def test_a_payment_is_given_back_once(fake: stripe.Stripe, customer: str) -> None:
    """E12: with the output and without; under the same key the same answer."""
    payment = paying(customer)
    undo = place(payment, payment_id=payment.done()["payment_id"])
    assert payment.undone(undo) == payment.undone(undo) == {"status": "refunded", "amount": 4_900}
    assert left(customer) == []
    assert payment.find()[0] == "cannot_tell"  # taken, and given back


@pytest.mark.parametrize("lost", [f"{INTENTS} ", "/confirm"])
def test_a_payment_in_doubt_is_found_whichever_request_was_lost(fake: stripe.Stripe, customer: str, lost: str) -> None:
    """E4, E6, E7: made but not confirmed is no effect; confirmed is one, and the undo ends either."""
    payment, other = paying(customer), paying(customer)
    for each in (payment, other):
        fake.between.lose(lost)
        assert word(each.act()) == ("unknown", "APIConnectionError")
        assert fake.between.is_spent
        assert each.find()[0] == ("done" if lost == "/confirm" else "not_done")
    assert payment.done()["amount"] == 4_900
    assert payment.undone(place(payment)) == {"status": "refunded", "amount": 4_900}
    word_of_end = other.undone(place(other))["status"]
    assert word_of_end == ("refunded" if lost == "/confirm" else "canceled")
    assert left(customer) == []


@pytest.mark.parametrize("held", [f"{INTENTS} ", "/confirm"])
def test_a_payment_that_comes_after_its_undo_is_refused(fake: stripe.Stripe, customer: str, held: str) -> None:
    """E9: late-safe: the undo has taken its place under the same key, and a canceled payment can't be confirmed."""
    payment = paying(customer)
    answers: list[Any] = []
    event = fake.between.hold(held)
    late = threading.Thread(target=lambda: answers.append(payment.act()))
    late.start()
    wait_until(lambda: fake.between.is_spent)
    assert payment.undone(place(payment))["amount"] == 0
    event.set()
    late.join()
    assert word(answers[0]) == ("rejected", "payment_intent_unexpected_state")
    assert left(customer) == []
    assert payment.find() == ("not_done", None)


def test_the_undo_of_what_never_happened_refuses_it_for_good(fake: stripe.Stripe, customer: str) -> None:
    """E7, E9: it says that nothing was there; another operation pays as before."""
    payment = paying(customer)
    assert payment.undone(place(payment)) == payment.undone(place(payment)) == {"status": "already_gone", "amount": 0}
    assert word(payment.act()) == ("rejected", "payment_intent_unexpected_state")
    assert paying(customer).done()["amount"] == 4_900
    assert left(customer) == [4_900]


def test_a_payment_that_nobody_can_make_needs_no_undo(fake: stripe.Stripe) -> None:
    """E7: where Stripe takes no such payment, none can come later."""
    payment = paying("cus_nobody")
    assert word(payment.act()) == ("rejected", "resource_missing")
    assert payment.undone(place(payment)) == {"status": "already_gone", "amount": 0}


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("pm_card_chargeDeclinedInsufficientFunds", "insufficient_funds"),
        ("pm_card_authenticationRequired", "authentication_required"),
    ],
)
def test_a_decline_is_final(fake: stripe.Stripe, customer: str, method: str, code: str) -> None:
    """E3: rejected, with the code; what is left of the payment is canceled by an undo, if one is asked for."""
    payment = paying(customer, method)
    assert word(payment.act()) == ("rejected", code)
    assert payment.find() == ("not_done", None)
    assert payment.undone(place(payment)) == {"status": "canceled", "amount": 0}


def test_a_payment_confirmed_while_it_is_undone_is_undone_by_another_try(fake: stripe.Stripe, customer: str) -> None:
    """E12: the undo saw it unconfirmed, and comes too late to cancel it: no dead letter, but another look."""
    payment = paying(customer)
    fake.between.lose(f"{INTENTS} ")
    payment.act()
    moved = stripe.fail(400, type="invalid_request_error", code="payment_intent_unexpected_state", message="paid")
    fake.between.reply("/cancel", moved)
    assert word(payment.undo(place(payment))) == ("unavailable", "payment_moved")
    payment.done()
    assert payment.undone(place(payment)) == {"status": "refunded", "amount": 4_900}


def test_only_the_payment_promises_to_refuse_what_comes_late() -> None:
    """E9: the others can't, and the engine waits."""
    promises = {name: REGISTRY.facts_of(name).late_safe for name in REGISTRY.names() if name.startswith("stripe.")}
    assert [name for name, is_late_safe in promises.items() if is_late_safe] == ["stripe.take_back"]


@pytest.mark.parametrize("path", ["/v1/charges", "/v1/payment_intents"])
def test_keys_of_the_fake_are_kept_as_the_mock_keeps_them(fake: stripe.Stripe, customer: str, path: str) -> None:
    """The first is the mock of others, the second our own: one answer for a key, errors too."""

    def post(key: str, token: str = stripe.KEY, **form: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": f"{customer}-{key}"}
        return httpx.post(f"{fake.between.url}{path}", data={"source": "tok_visa", **form}, headers=headers)

    first, again = (post("a", amount="500", currency="eur") for _ in range(2))
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    assert (first.headers.get("idempotent-replayed"), again.headers["idempotent-replayed"]) == (None, "true")
    other = post("a", amount="501", currency="eur")
    assert (other.status_code, other.json()["error"]["type"]) == (400, "idempotency_error")
    assert "can only be used with the same parameters" in other.json()["error"]["message"]
    assert post("b", amount="500", currency="eur").json()["id"] != first.json()["id"]
    bad, worse = (post("c", amount="500") for _ in range(2))
    assert (bad.status_code, bad.json()["error"]["code"]) == (400, "parameter_missing")
    assert (worse.status_code, worse.headers["idempotent-replayed"]) == (400, "true")
    assert post("d", token="rk_wrong_0123456789", amount="500", currency="eur").status_code == 401
    assert post("d", amount="500", currency="eur").status_code == 200
