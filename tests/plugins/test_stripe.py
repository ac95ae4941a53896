"""The plugin `stripe` on a fake of Stripe that keeps keys and refuses second refunds; it isn't the real Stripe."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import httpx
import pytest

from sagactl.core.canonical import Json
from tests.plugins.vendors import REGISTRY, Deed, wait_until, word
from tests.servers import stripe
from tests.servers.between import Reply
from tests.servers.start import find_free_port


@pytest.fixture(scope="module")
def fake(stripe_server: stripe.Stripe) -> Iterator[stripe.Stripe]:
    """Point the plugin at the fake."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIPE_API_BASE", stripe_server.between.url)
        yield stripe_server


def deed(tool: str, key: str = stripe.KEY, **arguments: Json) -> Deed:
    """Return an action with the key of the fake."""
    return Deed(tool, arguments, {"SAGACTL_SECRET_STRIPE_API_KEY": key})


charging = partial(deed, "stripe.charge", amount=4_900, currency="eur", source="tok_visa")
enrolling = partial(deed, "stripe.create_customer", email="ada@example.com", name="Ada")


def test_the_same_key_twice_is_one_charge_and_the_same_answer(fake: stripe.Stripe) -> None:
    """E8: Stripe gets the operation's key, so a second try is the first one."""
    payment = charging()
    first = payment.done()
    assert payment.act(attempt=2).output == first
    assert first == {"charge_id": first["charge_id"], "amount": 4_900, "currency": "eur"}
    assert fake.balance(payment.key) == [4_900]
    assert payment.find() == ("done", first)


def test_a_refund_twice_is_one_refund_and_the_same_answer(fake: stripe.Stripe) -> None:
    """E12: the undo has a key of its own; under another one the second finds nothing left and succeeds."""
    payment = charging()
    charge_id = payment.done()["charge_id"]
    assert payment.undone({"charge_id": charge_id}) == {"status": "refunded", "amount": 4_900}
    assert payment.undone({"charge_id": charge_id}) == {"status": "refunded", "amount": 4_900}
    stranger = charging()
    assert stranger.undone({"charge_id": charge_id}) == {"status": "already_gone", "amount": 0}
    assert fake.balance(payment.key) == [0]
    assert payment.find()[0] == "cannot_tell"  # it was taken, and given back: to go on as if paid would be wrong


def test_a_refund_gives_back_what_is_left(fake: stripe.Stripe) -> None:
    """E12: part of it was given back by hand, on Stripe's own pages."""
    payment = charging()
    charge_id = payment.done()["charge_id"]
    by_hand = httpx.post(
        f"{fake.url}/v1/refunds",
        data={"charge": str(charge_id), "amount": "900"},
        headers={"Authorization": f"Bearer {stripe.KEY}"},
    )
    assert by_hand.status_code == 200
    assert payment.undone({"charge_id": charge_id}) == {"status": "refunded", "amount": 4_000}
    assert fake.balance(payment.key) == [0]


def test_the_undo_of_what_never_happened_says_so(fake: stripe.Stripe) -> None:
    """E7: null-safe: without an output it looks by the forward key, and finding nothing is a success."""
    payment, customer = charging(), enrolling()
    assert payment.find() == customer.find() == ("not_done", None)
    assert payment.undone({}) == {"status": "already_gone", "amount": 0}
    assert customer.undone({}) == {"status": "already_gone"}


def test_a_lost_answer_is_in_doubt_and_found_by_its_key(fake: stripe.Stripe) -> None:
    """E4, E6, E7: the charge is there though nobody was told; probe and undo find it by the key in its metadata."""
    payment = charging()
    fake.between.lose("POST /v1/charges")
    assert word(payment.act()) == ("unknown", "APIConnectionError")
    assert fake.between.is_spent
    assert fake.balance(payment.key) == [4_900]
    state, output = payment.find()
    assert state == "done"
    assert output == payment.act(attempt=2).output
    assert payment.undone({}) == {"status": "refunded", "amount": 4_900}
    assert fake.balance(payment.key) == [0]


def test_a_refund_whose_answer_was_lost_is_tried_again_with_its_key(fake: stripe.Stripe) -> None:
    """E12: the same key, the same refund."""
    payment = charging()
    charge_id = payment.done()["charge_id"]
    fake.between.lose("POST /v1/refunds")
    assert payment.undo({"charge_id": charge_id}).kind.value == "unknown"
    assert payment.undone({"charge_id": charge_id}) == {"status": "refunded", "amount": 4_900}
    assert fake.balance(payment.key) == [0]


def test_a_charge_that_lands_after_its_undo_is_found(fake: stripe.Stripe) -> None:
    """E9: the plugin doesn't claim to be late-safe: the charge lands, and the probe and another undo see it."""
    payment = charging()
    held = fake.between.hold("POST /v1/charges")
    late = threading.Thread(target=payment.act)
    late.start()
    wait_until(lambda: fake.between.is_spent)
    assert payment.undone({}) == {"status": "already_gone", "amount": 0}
    held.set()
    late.join()
    assert payment.find()[0] == "done"
    assert payment.undone({}) == {"status": "refunded", "amount": 4_900}
    assert fake.balance(payment.key) == [0]


@pytest.mark.parametrize(
    ("source", "code"),
    [("tok_chargeDeclined", "generic_decline"), ("tok_chargeDeclinedInsufficientFunds", "insufficient_funds")],
)
def test_a_decline_is_final_and_no_effect(fake: stripe.Stripe, source: str, code: str) -> None:
    """E3: rejected, with the code of the decline; the failed charge that Stripe keeps isn't taken for one."""
    payment = charging(source=source)
    assert word(payment.act()) == ("rejected", code)
    assert payment.find() == ("not_done", None)
    assert payment.undone({}) == {"status": "already_gone", "amount": 0}
    assert fake.charges(payment.key) == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"amount": 1}, "amount_too_small"),
        ({"currency": "xxx"}, "invalid_request"),
        ({"source": None, "customer": "cus_nobody"}, "resource_missing"),
        ({"source": None}, "no_payer"),
    ],
)
def test_a_bad_request_is_final(fake: stripe.Stripe, arguments: dict[str, Json], code: str) -> None:
    """E3: what Stripe doesn't take had no effect and never will."""
    payment = charging()
    given = {**payment.arguments, **arguments}
    payment.arguments = {name: value for name, value in given.items() if value is not None}
    assert word(payment.act()) == ("rejected", code)
    assert fake.charges(payment.key) == []


def test_too_many_requests_had_no_effect_and_may_be_tried_again(fake: stripe.Stripe) -> None:
    """E3: unavailable, after as long as Stripe asks for; Stripe keeps no answer of that kind under the key."""
    fake.between.reply("POST /v1/charges", Reply(429, b'{"error": {"message": "slow down"}}', {"Retry-After": "7"}))
    payment = charging()
    answer = payment.act()
    assert (*word(answer), answer.after_ms) == ("unavailable", "rate_limit", 7_000)
    assert word(charging(source="tok_429").act()) == ("unavailable", "rate_limit")
    assert payment.done()["amount"] == 4_900


def test_an_error_of_stripes_own_is_in_doubt(fake: stripe.Stripe) -> None:
    """E3: a 500 may have had an effect; Stripe keeps it under the key, so the probe must tell."""
    payment = charging(source="tok_500")
    assert word(payment.act()) == ("unknown", "APIError")
    assert payment.find() == ("not_done", None)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(
            stripe.fail(409, type="idempotency_error", code="idempotency_key_in_use", message="busy"), id="409"
        ),
        pytest.param(Reply(200, b"<html>"), id="no JSON"),
        pytest.param(Reply(200, b"{" + b" " * 9_000_000), id="9 MB"),
        pytest.param(Reply(302, b"", {"Location": "http://127.0.0.1:1/"}), id="redirect"),
        pytest.param(Reply(200, b'{"id": "ch_1", "object": "charge"}'), id="half a charge"),
    ],
)
def test_what_stripe_never_says_is_in_doubt(fake: stripe.Stripe, reply: Reply) -> None:
    """E3: the effect may be there, so neither `rejected` nor `unavailable`; a redirect isn't followed."""
    fake.between.reply("POST /v1/charges", reply)
    assert charging().act().kind.value == "unknown"
    assert fake.between.is_spent


def test_a_key_used_with_other_parameters_is_in_doubt(fake: stripe.Stripe) -> None:
    """E8, E20: ours are the same in every try, so somebody else has used the key: the probe says with what."""
    payment = charging()
    payment.done()
    payment.arguments["amount"] = 5_000
    assert word(payment.act(attempt=2)) == ("unknown", "IdempotencyError")
    state, why = payment.find()
    assert state == "cannot_tell"
    assert "is of 4900 eur" in str(why)
    assert fake.balance(payment.key) == [4_900]


def test_a_wrong_key_is_final_for_an_action_and_waited_out_by_an_undo(fake: stripe.Stripe) -> None:
    """E3, E12: nothing happened in either; a rejected undo would be a dead letter at once. The key isn't shown."""
    payment = charging(key="rk_live_wrong_1234567890")
    answer = payment.act()
    assert word(answer) == ("rejected", "authentication")
    assert answer.failure is not None
    assert "wrong_12345" not in answer.failure.message
    assert not re.search("rk_|7890", answer.failure.message), answer.failure.message
    assert word(payment.undo({"charge_id": "ch_1"})) == ("unavailable", "authentication")
    assert payment.find()[0] == "cannot_tell"


@pytest.mark.parametrize(
    "hidden",
    ["rk_live_*********7890", "********7890", "rk_live_***", "sk_test_4eC39H***********************p7dc", "**90"],
)
@pytest.mark.parametrize("status", [400, 401, 402, 403, 429])
def test_no_part_of_a_key_is_passed_on(status: int, hidden: str, fake: stripe.Stripe) -> None:
    """E19: whatever Stripe refuses, and however it hides the key that it quotes, no character of it is told."""
    said = f"Invalid API Key provided: {hidden}, see https://stripe.com/docs"
    fake.between.reply("POST /v1/charges", stripe.fail(status, type="x", code="x", message=said))
    answer = charging().act()
    assert answer.failure is not None
    assert answer.failure.message == "Invalid API Key provided: ***, see https://stripe.com/docs"


def test_a_server_that_is_down_had_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """E3: where no connection came about nothing was sent."""
    monkeypatch.setenv("STRIPE_API_BASE", f"http://127.0.0.1:{find_free_port()}")
    assert word(charging().act()) == ("unavailable", "unreachable")


@pytest.mark.parametrize("address", ["http://192.0.2.1", "http://stripe.example", "ftp://127.0.0.1", "127.0.0.1:80"])
def test_the_key_goes_nowhere_in_plain_text(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """E19: without TLS the key is sent to this machine alone."""
    monkeypatch.setenv("STRIPE_API_BASE", address)
    assert word(charging().act()) == ("rejected", "bad_setting")


def test_a_server_that_is_slow_is_given_up_before_the_call_ends(fake: stripe.Stripe) -> None:
    """E14: a request takes no longer than its call may, and what became of it is found later."""
    payment = charging()
    payment.seconds = 2.0
    held = fake.between.hold("POST /v1/charges")
    began = time.monotonic()
    assert payment.act().kind.value == "unknown"
    assert time.monotonic() - began < 60  # it is held back for 90
    held.set()
    payment.seconds = 20.0
    wait_until(lambda: payment.find()[0] == "done")
    assert fake.balance(payment.key) == [4_900]


def test_a_customer_is_made_once_found_and_deleted_once(fake: stripe.Stripe) -> None:
    """E7, E8, E12: the golden rules for customers, with and without the answer."""
    ada = enrolling()
    fake.between.lose("POST /v1/customers")
    assert ada.act().kind.value == "unknown"
    state, output = ada.find()
    assert (state, ada.done()) == ("done", output)
    assert ada.undone({}) == {"status": "deleted"}
    assert isinstance(output, dict)
    assert ada.undone(output) == ada.undone({}) == {"status": "already_gone"}
    assert ada.find() == ("not_done", None)
    assert word(ada.undo({"customer_id": "cus_of_another_account"})) == ("rejected", "resource_missing")


def test_a_customers_card_is_charged(fake: stripe.Stripe) -> None:
    """E6: the card that a customer was made with; the probe reads that customer's charges alone."""
    customer_id = enrolling(source="tok_visa").done()["customer_id"]
    payment = deed("stripe.charge", amount=700, currency="eur", customer=customer_id)
    first = payment.done()
    assert payment.find() == ("done", first)
    assert f"customer={customer_id}" in fake.between.seen[-1][1]
    listing = deed("stripe.list_charges", customer=customer_id)
    assert listing.done() == {"charges": [{**first, "left": 700}]}
    assert payment.undone({"charge_id": first["charge_id"]}) == {"status": "refunded", "amount": 700}
    assert listing.done() == {"charges": []}
    stranger = deed("stripe.charge", amount=700, currency="eur", customer=enrolling().done()["customer_id"])
    assert word(stranger.act())[0] == "rejected"
    assert stranger.find() == ("not_done", None)


def test_nothing_is_found_that_was_made_under_another_key(fake: stripe.Stripe) -> None:
    """E6, E7: the probe and the undo of one operation leave those of others alone."""
    one, other = charging(), charging()
    one.done()
    assert other.find() == ("not_done", None)
    assert other.undone({}) == {"status": "already_gone", "amount": 0}
    assert fake.balance(one.key) == [4_900]


def test_lists_are_read_to_their_end(fake: stripe.Stripe, monkeypatch: pytest.MonkeyPatch) -> None:
    """E6: "not done" is said only when everything since the action began was looked at."""
    payment = charging()
    first = payment.done()
    for _ in range(4):
        charging().done()
    own = cast("Any", REGISTRY.tool("stripe.charge").function).__globals__["find_marked"].__globals__
    monkeypatch.setitem(own, "PAGE", 2)
    assert payment.find() == ("done", first)
    monkeypatch.setitem(own, "PAGES_MAX", 1)
    state, why = payment.find()
    assert (state, "more than 2 objects" in str(why)) == ("cannot_tell", True)
