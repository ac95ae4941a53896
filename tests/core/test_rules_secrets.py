"""Secrets in the core: references in what is recorded, and no intent for what can't be resolved (E19)."""

from __future__ import annotations

from typing import Any

import pytest

from sagactl.core.canonical import Json
from sagactl.core.records import RunStatus
from sagactl.core.secrets import fill_secrets, secrets_in, secrets_named
from sagactl.core.template import parse_template
from sagactl.core.world import MakeCall, Wait
from tests.core.builders import Play, operation, saga

KEY: Json = {"$secret": "k"}


def make_play(**steps: Any) -> Play:
    """Return a run of two steps of which k can't be resolved."""
    play = Play(saga("a -> b", saga_fields={"secrets": ("k",)}, **steps))
    play.no_secrets = frozenset({"k"})
    return play


def test_a_missing_secret_makes_the_run_wait_without_an_intent() -> None:
    """E19: the step whose secret isn't there has no intent, what needs none goes on, and so does the run later."""
    play = make_play(b={"arguments": {"key": "${{ secrets.k }}"}})
    play.turn()
    assert play.answer("a", "ok").then == Wait("missing_secret", None, "k")
    assert play.state.operations[operation("b")].attempts == 0
    play.no_secrets = frozenset()
    assert play.run().status is RunStatus.SUCCEEDED
    assert play.state.operations[operation("b")].arguments == {"key": KEY}


def test_a_secret_that_goes_missing_holds_up_the_next_attempt() -> None:
    """E19, E20: what was recorded says which secret the next attempt needs."""
    play = make_play(a={"arguments": {"env": {"KEY": "${{ secrets.k }}"}}, "attempts": 2})
    play.no_secrets = frozenset()
    play.turn()
    play.answer("a", "retry")
    play.no_secrets = frozenset({"k"})
    play.now = 5_000
    assert play.turn().then == Wait("missing_secret", None, "k")
    assert play.state.operations[operation("a")].attempts == 1


@pytest.mark.parametrize("key", ["${{ secrets.k }}", "${{ args.who }}"])
def test_a_missing_secret_holds_up_an_undo(key: str) -> None:
    """E19: an undo waits for the secret it names, be it by way of the action's arguments; others aren't asked about."""
    arguments = {"who": "${{ secrets.k }}", "id": "x"}
    play = make_play(a={"arguments": arguments, "undo_arguments": {"key": key}})
    play.no_secrets = frozenset()
    play.turn()
    play.answer("a", "ok")
    play.no_secrets = frozenset({"k"})
    play.answer("b", "reject")
    assert play.last is not None
    assert play.last.then == Wait("missing_secret", None, "k")
    play.no_secrets = frozenset()
    play.turn()
    assert [each.arguments for each in play.under_way.values() if isinstance(each, MakeCall)] == [{"key": KEY}]


def test_an_undo_that_needs_no_secret_does_not_wait_for_the_one_of_its_action() -> None:
    """E19: only what a call needs holds it up."""
    arguments = {"who": "${{ secrets.k }}", "id": "x"}
    play = make_play(a={"arguments": arguments, "undo_arguments": {"id": "${{ args.id }}"}})
    play.no_secrets = frozenset()
    play.turn()
    play.answer("a", "ok")
    play.no_secrets = frozenset({"k"})
    play.answer("b", "reject")
    assert play.calls == ["a", "b", "a'"]


@pytest.mark.parametrize(("argument", "is_held_up"), [("who", True), ("other", False)])
def test_a_probe_waits_for_a_secret_that_it_is_handed(argument: str, is_held_up: bool) -> None:
    """E6, E19: a probe gets the call's arguments that it knows by name, and waits for the secrets in those alone."""
    play = make_play(a={"arguments": {argument: "${{ secrets.k }}"}, "probe": True})
    play.no_secrets = frozenset()
    play.turn()
    play.no_secrets = frozenset({"k"})
    play.answer("a", "lost")
    play.now = 10_000
    found = play.turn().then
    assert (found == Wait("missing_secret", None, "k")) is is_held_up


@pytest.mark.parametrize("fields", [{"own_secrets": ("j", "k")}, {"own_secrets": ("k",), "arguments": {"x": 1}}])
def test_a_secret_that_the_tool_itself_needs_holds_up_its_call(fields: dict[str, Any]) -> None:
    """E19: whatever the saga gives it; the run waits without an intent, and goes on when the secret is there."""
    play = make_play(b=fields)
    play.turn()
    assert play.answer("a", "ok").then == Wait("missing_secret", None, "k")
    assert play.state.operations[operation("b")].attempts == 0
    play.no_secrets = frozenset()
    assert play.run().status is RunStatus.SUCCEEDED


def test_the_secret_of_an_undo_or_a_probe_holds_up_that_alone() -> None:
    """E6, E19: the action before it is called; an undo and a probe wait, each for its own."""
    play = make_play(a={"undo_own_secrets": ("k",)})
    play.turn()
    play.answer("a", "ok")
    assert play.answer("b", "reject").then == Wait("missing_secret", None, "k")
    assert play.calls == ["a", "b"]
    play = make_play(a={"probe": True, "probe_own_secrets": ("k",)})
    play.turn()
    play.answer("a", "lost")
    play.now = 60_000
    assert play.turn().then == Wait("missing_secret", None, "k")
    assert play.calls == ["a"]


def test_a_secret_of_a_tool_holds_up_its_second_attempt_too() -> None:
    """E5, E19: the recorded arguments don't name it, and it is needed all the same."""
    play = make_play(a={"own_secrets": ("k",), "attempts": 2})
    play.no_secrets = frozenset()
    play.turn()
    play.answer("a", "retry")
    play.no_secrets = frozenset({"k"})
    play.now = 5_000
    assert play.turn().then == Wait("missing_secret", None, "k")


def test_a_saga_needs_its_own_secrets_and_those_of_its_tools() -> None:
    """E19: each once, so that all are looked after before the first call."""
    what = saga("a", saga_fields={"secrets": ("k", "m")}, a={"own_secrets": ("z", "k"), "undo_own_secrets": ("b",)})
    assert what.secrets_needed == ("k", "m", "z", "b")


def test_the_secrets_of_a_value_are_found_at_any_depth_and_only_in_our_form() -> None:
    """E19: `{"$secret": NAME}` and nothing else is a reference."""
    value: Json = [{"a": KEY, "b": [{"$secret": "j"}]}, {"$secret": 1}, {"$secret": "x", "y": 1}, "$secret"]
    assert list(secrets_in(value)) == ["k", "j"]
    template = parse_template({"a": "${{ args.env.K }}", "b": "${{ secrets.z }}", "c": "${{ args.none[3].x }}"})
    assert list(secrets_named(template, {"env": {"K": KEY}})) == ["k", "z"]
    assert list(secrets_named(parse_template({"e": "${{ args }}"}), {"env": {"K": KEY}})) == ["k"]


def test_a_secret_is_found_wherever_an_undo_reaches_into_the_arguments() -> None:
    """E19: through lists and past the secret itself; other roots, and places that aren't there, name none."""
    args: Json = {"list": ["x", {"key": KEY}], "who": "ana"}
    paths = {
        "args.list[1].key": ["k"],
        "args.list[1].key.deeper": ["k"],
        "args.list[1]": ["k"],
        "args.list": ["k"],
        "args.list[0]": [],
        "args.list[2]": [],
        "args.list.key": [],
        "args.who[0]": [],
        "input.list[1].key": [],
    }
    found = {path: list(secrets_named(parse_template(f"${{{{ {path} }}}}"), args)) for path in paths}
    assert found == paths


def test_references_are_filled_at_any_depth_and_only_in_our_form() -> None:
    """E19: what isn't a reference stays as it is."""
    value: Json = {"a": [KEY, {"$secret": 1}], "b": {"c": KEY}, "d": 1}
    assert fill_secrets(value, str.upper) == {"a": ["K", {"$secret": 1}], "b": {"c": "K"}, "d": 1}
