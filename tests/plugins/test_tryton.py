"""The plugin `tryton`, tried on a server of Tryton: the golden rules, lost answers, restarts, and what it refuses."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json
from sagactl.core.records import OutcomeKind, ProbeAnswer
from sagactl.secrets.vault import Vault
from sagactl.tools.invoke import PluginToolbox
from sagactl.tools.registry import collect_tools
from tests.plugins.project import PLUGINS, Project
from tests.plugins.test_pay_check import check
from tests.servers.between import Between, Reply, standing_before
from tests.servers.start import DEAD_PORT
from tests.servers.tryton import Tryton, serving

REGISTRY = collect_tools(PLUGINS, entry_points=())
ADDRESS = {"street": "1 Main Street", "city": "Paris", "postal_code": "75001"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tryton]:
    """Give a server that this module's tests share: each makes what it needs."""
    with serving(tmp_path_factory.mktemp("tryton") / "server") as tryton:
        yield tryton


@dataclass(frozen=True)
class Erp:
    """Tryton, called as the engine calls it, and looked at from outside."""

    server: Tryton
    project: Project
    name: str

    def call(self, tool: str, arguments: Mapping[str, Json] | None = None, *, key: str = "a", **more: Any) -> Answer:
        """Call a tool with a key of this test's own; `of` is the key of the action, for an undo."""
        mine, forward = f"{self.name}/{key}", f"{self.name}/{more.pop('of', key)}"
        box = PluginToolbox(REGISTRY, lambda _: None, self._vault(more.pop("secret", self.server.key)))
        given = {name: value for name, value in (arguments or {}).items() if value is not None}
        return box.call(self.project.invoke(f"tryton.{tool}", given, key=mine, forward_key=forward, **more))

    def done(self, tool: str, arguments: Mapping[str, Json] | None = None, **more: Any) -> dict[str, Any]:
        """Call a tool that must succeed, and return its output."""
        answer = self.call(tool, arguments, **more)
        assert answer.kind is OutcomeKind.SUCCEEDED, answer.failure
        assert isinstance(answer.output, dict)
        return answer.output

    def word(self, tool: str, arguments: Mapping[str, Json] | None = None, **more: Any) -> tuple[str, str]:
        """Call a tool that must not succeed, and return what it came to and why."""
        answer = self.call(tool, arguments, **more)
        assert answer.failure is not None
        return answer.kind.value, answer.failure.type

    def probe(self, tool: str, arguments: Mapping[str, Json] | None = None, *, key: str = "a") -> ProbeReply:
        """Ask a probe about the action of a key."""
        name = f"{self.name}/{key}"
        box = PluginToolbox(REGISTRY, lambda _: None, self._vault(self.server.key))
        return box.probe(self.project.invoke(f"tryton.{tool}", arguments or {}, key=name, forward_key=name))

    def party(self, key: str = "party") -> int:
        """Make a party to work with."""
        found: int = self.done("create_party", {"name": self.name}, key=key)["party_id"]
        return found

    def count(self, model: str, *wanted: object) -> int:
        """Count what is there for this test, those that were deactivated too."""
        domain: list[object] = list(wanted)
        if model != "sale.sale":
            domain.append(["active", "in", [True, False]])
        return len(self.server.find(model, domain))

    def counts(self, party_id: int) -> tuple[int, int, int]:
        """Return how many parties, addresses and sales there are of this test's party."""
        return (
            self.count("party.party", ["name", "=", self.name]),
            self.count("party.address", ["party", "=", party_id]),
            self.count("sale.sale", ["party", "=", party_id]),
        )

    def _vault(self, key: str) -> Vault:
        return Vault({}, environ={"SAGACTL_SECRET_TRYTON_KEY": key})


@pytest.fixture
def erp(server: Tryton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Erp:
    """Give the server to one test, under a name that no other test uses."""
    monkeypatch.setenv("TRYTON_URL", server.url)
    monkeypatch.delenv("TRYTON_COMPANY", raising=False)
    return Erp(server, Project(tmp_path), f"test-{secrets.token_hex(6)}")


@pytest.fixture
def between(server: Tryton, erp: Erp, monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    """Stand between the plugin and the server."""
    with standing_before(server.url) as found:
        monkeypatch.setenv("TRYTON_URL", found.url)
        yield found
        assert found.is_spent, "what was to be lost never came"


@dataclass(frozen=True)
class Effect:
    """An action with its undo and probe, and what it needs."""

    action: str
    undo: str
    probe: str
    key: str

    def arguments(self, erp: Erp) -> dict[str, Json]:
        """Make what the action needs, and return its arguments."""
        if self.action == "create_party":
            return {"name": erp.name, "email": "ada@example.com"}
        party_id = erp.party()
        if self.action == "add_address":
            return {"party_id": party_id, **ADDRESS}
        address_id = erp.done("add_address", {"party_id": party_id, **ADDRESS}, key="address")["address_id"]
        return {"party_id": party_id, "address_id": address_id, "description": "Servers", "amount": 4900}

    def count(self, erp: Erp, arguments: Mapping[str, Json]) -> int:
        """Count the effects that there are."""
        match self.action:
            case "create_party":
                return erp.count("party.party", ["name", "=", erp.name])
            case "add_address":
                return erp.count("party.address", ["party", "=", arguments["party_id"]])
            case _:
                return erp.count("sale.sale", ["party", "=", arguments["party_id"]])


EFFECTS = {
    effect.action: effect
    for effect in (
        Effect("create_party", "delete_party", "find_party", "party_id"),
        Effect("add_address", "remove_address", "find_address", "address_id"),
        Effect("create_sale", "cancel_sale", "find_sale", "sale_id"),
    )
}


@pytest.fixture(params=EFFECTS)
def effect(request: pytest.FixtureRequest) -> Effect:
    """Give each action that can be undone."""
    return EFFECTS[request.param]


def test_the_same_key_twice_has_one_effect_and_the_same_answer(erp: Erp, effect: Effect) -> None:
    """E6: a retry with the same key is harmless, and another key is another effect."""
    arguments = effect.arguments(erp)
    first = erp.done(effect.action, arguments)
    assert erp.done(effect.action, arguments) == first
    assert effect.count(erp, arguments) == 1
    assert erp.done(effect.action, arguments, key="b") != first
    assert effect.count(erp, arguments) == 2


def test_an_undo_twice_is_one_undo(erp: Erp, effect: Effect) -> None:
    """E12: the second undo succeeds and says that nothing was there; what is another's stays."""
    arguments = effect.arguments(erp)
    done, others = erp.done(effect.action, arguments), erp.done(effect.action, arguments, key="b")
    undo = {effect.key: done[effect.key]}
    assert erp.done(effect.undo, undo, key="u", of="a") == {"status": "deleted"}
    assert erp.done(effect.undo, undo, key="u", of="a") == {"status": "already_gone"}
    assert effect.count(erp, arguments) == 1
    assert erp.probe(effect.probe, key="b").output == others


def test_an_undo_of_what_never_ran_does_no_harm(erp: Erp, effect: Effect) -> None:
    """E7: without an output and without an effect the undo succeeds."""
    arguments = effect.arguments(erp)
    before = erp.counts(0)
    assert erp.done(effect.undo, key="u", of="a") == {"status": "already_gone"}
    assert (erp.counts(0), effect.count(erp, arguments)) == (before, 0)


def test_the_probe_tells_the_truth(erp: Erp, effect: Effect) -> None:
    """E6: not done, then done with the same output, and not done once it was undone; by its own key alone."""
    arguments = effect.arguments(erp)
    assert erp.probe(effect.probe).answer is ProbeAnswer.NOT_DONE
    done = erp.done(effect.action, arguments)
    assert (erp.probe(effect.probe).answer, erp.probe(effect.probe).output) == (ProbeAnswer.DONE, done)
    assert erp.probe(effect.probe, key="b").answer is ProbeAnswer.NOT_DONE
    erp.done(effect.undo, {effect.key: done[effect.key]}, key="u", of="a")
    assert erp.probe(effect.probe).answer is ProbeAnswer.NOT_DONE


def test_a_lost_answer_is_in_doubt_and_can_be_undone(erp: Erp, effect: Effect, between: Between) -> None:
    """E3, E7: nobody knows; a retry gives the same answer, and an undo finds the effect by the forward key alone."""
    arguments = effect.arguments(erp)
    between.lose("POST ")
    assert erp.word(effect.action, arguments) == ("unknown", "RemoteProtocolError")
    assert effect.count(erp, arguments) == 1
    found = erp.probe(effect.probe).output
    assert found == erp.done(effect.action, arguments)
    between.lose("DELETE ")
    assert erp.word(effect.undo, key="u", of="a")[0] == "unknown"
    assert erp.done(effect.undo, key="u", of="a") == {"status": "already_gone"}
    assert effect.count(erp, arguments) == 0


def test_a_late_action_is_found_by_the_probe_and_undone(erp: Erp, effect: Effect, between: Between) -> None:
    """E9: nothing refuses an action that arrives after its undo, and none of the undos says so; the probe finds it."""
    assert not REGISTRY.facts_of(f"tryton.{effect.undo}").late_safe
    arguments = effect.arguments(erp)
    let_go = between.hold("POST ")
    late = threading.Thread(target=erp.call, args=(effect.action, arguments))
    late.start()
    assert erp.done(effect.undo, key="u", of="a") == {"status": "already_gone"}
    assert erp.probe(effect.probe).answer is ProbeAnswer.NOT_DONE
    let_go.set()
    late.join()
    assert erp.probe(effect.probe).answer is ProbeAnswer.DONE
    assert erp.done(effect.undo, key="u", of="a") == {"status": "deleted"}
    assert effect.count(erp, arguments) == 0


def test_two_calls_at_once_have_one_effect(erp: Erp, effect: Effect) -> None:
    """E6: a party's code is unique, and of two addresses or orders that were made at once one is deleted again."""
    arguments = effect.arguments(erp)
    answers: list[Json] = []
    threads = [threading.Thread(target=lambda: answers.append(erp.done(effect.action, arguments))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 3
    assert all(each == answers[0] for each in answers)
    assert effect.count(erp, arguments) == 1


def test_what_others_refer_to_is_deactivated(erp: Erp) -> None:
    """A party that has an order of somebody else's can't be deleted: it is hidden, and says so; later it is refused."""
    party_id = erp.party()
    address_id = erp.done("add_address", {"party_id": party_id, **ADDRESS}, key="address")["address_id"]
    sale = {"party_id": party_id, "address_id": address_id, "description": "x", "amount": 1}
    erp.done("create_sale", sale, key="sale")
    for _ in range(2):
        undone = erp.done("delete_party", {"party_id": party_id}, key="u", of="party")
        assert undone == {"status": "deactivated"}
    assert erp.server.find("party.party", [["name", "=", erp.name]]) == []
    assert erp.probe("find_party", key="party").answer is ProbeAnswer.NOT_DONE
    assert erp.word("create_party", {"name": erp.name}, key="party") == ("rejected", "undone")


def _draft(erp: Erp) -> int:
    arguments = EFFECTS["create_sale"].arguments(erp)
    found: int = erp.done("create_sale", arguments, key="sale")["sale_id"]
    return found


def _states(erp: Erp, sale_id: int) -> list[str]:
    return [each["state"] for each in erp.server.find("sale.sale", [["id", "=", sale_id]], ["state"])]


def test_a_confirmed_order_stays(erp: Erp) -> None:
    """E13: confirmed once however often it is asked, found by the probe, and refused to an undo."""
    sale_id = _draft(erp)
    assert erp.probe("find_confirmation", {"sale_id": sale_id}).answer is ProbeAnswer.NOT_DONE
    done = erp.done("confirm_sale", {"sale_id": sale_id})
    assert done["number"]
    assert erp.done("confirm_sale", {"sale_id": sale_id}) == done
    assert erp.probe("find_confirmation", {"sale_id": sale_id}).output == done
    assert erp.word("cancel_sale", {"sale_id": sale_id}, key="u", of="sale") == ("rejected", "confirmed")
    assert _states(erp, sale_id)[0] in {"confirmed", "processing"}


@pytest.mark.parametrize("button", ["quote", "confirm"])
def test_a_lost_answer_to_a_confirmation_is_found_out(erp: Erp, between: Between, button: str) -> None:
    """E3, E6: after each of its two requests the outcome is unknown, the probe is right, and a retry completes it."""
    sale_id = _draft(erp)
    between.lose(f"/{button}?")
    assert erp.word("confirm_sale", {"sale_id": sale_id})[0] == "unknown"
    expected = {"quote": ProbeAnswer.NOT_DONE, "confirm": ProbeAnswer.DONE}[button]
    assert erp.probe("find_confirmation", {"sale_id": sale_id}).answer is expected
    assert erp.done("confirm_sale", {"sale_id": sale_id})["number"]


def test_an_order_that_was_cancelled_in_tryton_is_not_confirmed(erp: Erp) -> None:
    """E3: somebody cancelled it by hand: rejected, nothing happens; its undo removes it."""
    sale_id = _draft(erp)
    erp.server.ask("POST", f"sale.sale/{sale_id}/cancel", {}, f="id")
    assert erp.word("confirm_sale", {"sale_id": sale_id}) == ("rejected", "cancelled")
    assert _states(erp, sale_id) == ["cancelled"]
    assert erp.word("create_sale", EFFECTS["create_sale"].arguments(erp), key="sale") == ("rejected", "undone")
    assert erp.done("cancel_sale", key="u", of="sale") == {"status": "deleted"}
    assert erp.word("confirm_sale", {"sale_id": sale_id}) == ("rejected", "not_found")


def test_a_confirmation_that_tryton_refuses_leaves_a_draft(erp: Erp) -> None:
    """E3: rejected means no effect: an order without an address gets no quotation and stays as it was."""
    sale_id = _draft(erp)
    erp.server.ask("PUT", f"sale.sale/{sale_id}", {"invoice_address": None}, f="id")
    answer = erp.call("confirm_sale", {"sale_id": sale_id})
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (OutcomeKind.REJECTED, "refused")
    assert "invoice address" in answer.failure.message
    assert _states(erp, sale_id) == ["draft"]


def test_a_server_that_restarts_is_unavailable_and_then_knows_all(tmp_path: Path, erp: Erp) -> None:
    """E3: where nothing listens nothing happened; the same key goes on when the server is there again."""
    with serving(tmp_path / "own") as own:
        own_erp = replace(erp, server=own)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRYTON_URL", own.url)
            done = own_erp.done("create_party", {"name": erp.name})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRYTON_URL", own.url)
        assert own_erp.word("create_party", {"name": erp.name}) == ("unavailable", "unreachable")
        assert own_erp.probe("find_party").answer is ProbeAnswer.CANNOT_TELL
        with own.serve():
            assert own_erp.done("create_party", {"name": erp.name}) == done
            assert own_erp.done("delete_party", {"party_id": done["party_id"]}, key="u", of="a")["status"] == "deleted"


def test_a_wrong_key_fails_an_action_and_lets_an_undo_wait(erp: Erp) -> None:
    """E3, E19: nothing happens; an undo is tried again, with the key as it is by then; no message has a key in it."""
    wrong = "wrong-key-of-nobody"
    assert erp.word("create_party", {"name": erp.name}, secret=wrong) == ("rejected", "unauthorized")
    done = erp.done("create_party", {"name": erp.name})
    refused = erp.call("delete_party", {"party_id": done["party_id"]}, key="u", of="a", secret=wrong)
    assert refused.failure is not None
    assert (refused.kind, refused.failure.type) == (OutcomeKind.UNAVAILABLE, "unauthorized")
    assert wrong not in str(refused)
    assert erp.server.key not in str(erp.call("create_party", {"name": erp.name}, key="b"))


def test_what_tryton_refuses_is_rejected_in_its_words(erp: Erp) -> None:
    """E3: a name of two lines is none, and nothing happens."""
    answer = erp.call("create_party", {"name": f"{erp.name}\nLtd"})
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (OutcomeKind.REJECTED, "refused")
    assert "Name" in answer.failure.message
    assert erp.count("party.party", ["name", "like", f"{erp.name}%"]) == 0


def test_without_an_address_of_the_server_nothing_is_called(erp: Erp, monkeypatch: pytest.MonkeyPatch) -> None:
    """E3: a setting that is missing or wrong is unavailable: another process may have it."""
    for url in ("", "ftp://example.com/x", "localhost"):
        monkeypatch.setenv("TRYTON_URL", url)
        assert erp.word("create_party", {"name": erp.name}) == ("unavailable", "not_configured")
    monkeypatch.setenv("TRYTON_URL", f"http://127.0.0.1:{DEAD_PORT}/crm")
    assert erp.word("create_party", {"name": erp.name}) == ("unavailable", "unreachable")
    monkeypatch.setenv("TRYTON_URL", f"{erp.server.url}-of-nobody")
    assert erp.word("create_party", {"name": erp.name}) == ("rejected", "not_found")


BAD = {
    "an error of the server": (Reply(500, b"<p>'code'</p>"), ("unknown", "TrytonError")),
    "a busy database": (Reply(503, b"{}"), ("unknown", "TrytonError")),
    "a redirect": (Reply(302, b"", {"Location": "http://169.254.169.254/"}), ("unknown", "TrytonError")),
    "no JSON": (Reply(200, b"<html>"), ("unknown", "JSONDecodeError")),
    "other JSON": (Reply(200, b"[1]"), ("unknown", "TrytonError")),
    "too much": (Reply(200, b" " * 2_000_000), ("unknown", "TrytonError")),
    "too many requests": (Reply(429, b"{}", {"Retry-After": "7"}), ("unavailable", "too_many_requests")),
}


@pytest.mark.parametrize("what", BAD)
def test_an_answer_that_proves_nothing_is_unknown(erp: Erp, between: Between, what: str) -> None:
    """E3: only what Tryton itself refused is certain; no redirect is followed, and no more than 1 MiB is read."""
    reply, expected = BAD[what]
    between.reply("POST ", reply)
    answer = erp.call("create_party", {"name": erp.name})
    assert answer.failure is not None
    assert (answer.kind.value, answer.failure.type) == expected
    assert answer.after_ms == (7_000 if what == "too many requests" else None)
    assert [line for line in between.seen if "party.party" not in line[1]] == []


BOUNDED = {("unknown", "ReadTimeout"), ("unknown", "TimeoutError")}
"""The library's bound of each wait, and ours of the whole: they come at the same moment."""


def test_a_server_that_never_answers_ends_with_the_call(erp: Erp, between: Between) -> None:
    """E14: a request ends before its call does."""
    let_go = between.hold("POST ")
    assert erp.word("create_party", {"name": erp.name}, seconds_left=2.0) in BOUNDED
    let_go.set()


def test_the_tools_keep_the_rules(server: Tryton, tmp_path: Path) -> None:
    """`sagactl tools check tryton`: every rule holds, but that no undo refuses what comes late, which none claims.

    An order is confirmed whoever did it, so a probe of that says done under any key: the check file says why.
    """
    environ = {"TRYTON_URL": server.url, "SAGACTL_SECRET_TRYTON_KEY": server.key}
    found = check(tmp_path, environ, "tryton")
    late = {(f"tryton.{action}", "late"): "not_promised" for action in EFFECTS}
    assert found == {**late, ("tryton.confirm_sale", "probe"): "excused"}
