"""How calls get secrets: at the last moment, in their places, and masked in what comes back (E19)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import pytest

from sagactl import CallContext, Done, Secret, tool
from sagactl.core.canonical import Json
from sagactl.core.records import OutcomeKind, ProbeAnswer
from sagactl.errors import PluginError
from sagactl.secrets.vault import Vault
from sagactl.tools.invoke import PluginToolbox
from sagactl.tools.registry import Registry
from tests.tools.building import describe, invocation

VALUE = "told to tools alone 161803"
REFERENCE: Json = {"$secret": "k"}


def make_toolbox(*functions: Callable[..., Any], **environ: str) -> PluginToolbox:
    """Return a toolbox whose secrets are in *environ*."""
    tools = [describe(function) for function in functions]
    registry = Registry({each.facts.name: each for each in tools})
    return PluginToolbox(registry, secrets=Vault({}, environ=environ))


@tool("shop.pay")
def pay(key: Secret, keys: dict[str, Secret]) -> list[object]:
    """Tell what came."""
    return [isinstance(key, str), key == keys["a"] == VALUE, key]


@tool("shop.pay_later")
async def pay_later(key: Secret) -> list[object]:
    """Tell what came, after a while."""
    await asyncio.sleep(0)
    print(key)  # noqa: T201 - what is looked for
    return [key == VALUE, key]


@tool("shop.look", read_only=True)
def look(key: Secret) -> Done:
    """Find out."""
    return Done([key == VALUE, key])


@tool("shop.strict")
def strict(key: Annotated[Secret, {"maxLength": 10}]) -> None:
    """Take little."""
    raise AssertionError("never called")


def test_a_tool_gets_the_value_as_a_text_wherever_the_reference_stands() -> None:
    """E19: the invocation itself goes on to hold the reference."""
    asked = invocation("shop.pay", {"key": REFERENCE, "keys": {"a": REFERENCE}})
    answer = make_toolbox(pay, SAGACTL_SECRET_K=VALUE).call(asked)
    assert answer.output == [True, True, "***"]
    assert asked.arguments == {"key": REFERENCE, "keys": {"a": REFERENCE}}


def test_an_async_tool_and_a_probe_get_it_too() -> None:
    """E19: whatever way a call is made, the value is there and what comes back is masked."""
    box = make_toolbox(pay_later, look, SAGACTL_SECRET_K=VALUE)
    answer = asyncio.run(box.call_async(invocation("shop.pay_later", {"key": REFERENCE})))
    assert (answer.output, answer.printed) == ([True, "***"], "***\n")
    assert box.call(invocation("shop.pay_later", {"key": REFERENCE})).output == [True, "***"]
    reply = box.probe(invocation("shop.look", {"key": REFERENCE, "other": REFERENCE}))
    assert (reply.answer, reply.output) == (ProbeAnswer.DONE, [True, "***"])


@pytest.mark.parametrize("name", ["shop.pay", "shop.pay_later"])
def test_a_secret_that_is_gone_at_the_last_moment_is_unavailable(name: str) -> None:
    """E3, E19: nothing was called, so the call is worth another try; the message says what to set."""
    box = make_toolbox(pay, pay_later)
    asked = invocation(name, {"key": REFERENCE})
    for answer in (box.call(asked), asyncio.run(box.call_async(asked))):
        assert answer.kind is OutcomeKind.UNAVAILABLE
        assert answer.failure is not None
        assert answer.failure.type == "missing_secret"
        assert "SAGACTL_SECRET_K is not set" in answer.failure.message
    reply = make_toolbox(look).probe(invocation("shop.look", {"key": REFERENCE}))
    assert (reply.answer, reply.failure and reply.failure.type) == (ProbeAnswer.CANNOT_TELL, "missing_secret")


def test_a_value_that_the_schema_of_the_tool_refuses_is_unavailable_and_not_quoted() -> None:
    """E3, E19: an operator can put it right, so it is no rejection."""
    answer = make_toolbox(strict, SAGACTL_SECRET_K=VALUE).call(invocation("shop.strict", {"key": REFERENCE}))
    assert answer.kind is OutcomeKind.UNAVAILABLE
    assert answer.failure is not None
    assert answer.failure.type == "bad_secret"
    assert "key: must have at most 10 characters" in answer.failure.message
    assert "told" not in answer.failure.message


def test_without_anything_that_resolves_secrets_all_are_missing() -> None:
    """E19: a toolbox of its own, without settings, makes no call with a reference in place of a value."""
    box = PluginToolbox(Registry({"shop.pay": describe(pay)}))
    assert box.missing_secrets(["k"]).keys() == {"k"}
    answer = box.call(invocation("shop.pay", {"key": REFERENCE, "keys": {}}))
    assert answer.kind is OutcomeKind.UNAVAILABLE


@tool("shop.ship", secrets=("SHIP_KEY", "SHIP_USER", "SHIP_KEY"))
def ship(context: CallContext) -> list[object]:
    """Tell what the context has."""
    found = context.secrets
    return [sorted(found), found["SHIP_KEY"] == VALUE, found["SHIP_USER"], repr(context), f"{found} {found!r}"]


@tool("shop.ship_later", secrets=("SHIP_KEY",))
async def ship_later(context: CallContext) -> str:
    """Give it away."""
    return context.secrets["SHIP_KEY"]


@tool("shop.shipped", read_only=True, secrets=("SHIP_KEY",))
def shipped(context: CallContext) -> Done:
    """Look with it."""
    return Done([context.secrets["SHIP_KEY"] == VALUE, context.secrets["SHIP_KEY"]])


@tool("shop.forgets", secrets=("SHIP_KEY",))
def forgets(context: CallContext) -> str:
    """Ask for what it has not declared."""
    return context.secrets["OTHER"]


@tool("shop.silent", secrets=("SHIP_KEY",))
def silent() -> None:
    """Need a secret and take no context."""


SHIP = {"SAGACTL_SECRET_SHIP_KEY": VALUE, "SAGACTL_SECRET_SHIP_USER": "another one 271828"}


def test_a_tool_reads_the_secrets_that_it_declared_in_its_context() -> None:
    """E19: each by its name; nothing that shows a context shows a value, and what the tool gives back is masked."""
    box = make_toolbox(ship, ship_later, shipped, **SHIP)
    assert box.facts("shop.ship").secrets == ("SHIP_KEY", "SHIP_USER")
    output = box.call(invocation("shop.ship")).output
    assert isinstance(output, list)
    assert output[:3] == [["SHIP_KEY", "SHIP_USER"], True, "***"]
    assert "secrets" not in str(output[3])
    assert output[4] == " ".join(["ToolSecrets(SHIP_KEY, SHIP_USER)"] * 2)
    asked = invocation("shop.ship_later")
    assert asyncio.run(box.call_async(asked)).output == box.call(asked).output == "***"
    assert box.probe(invocation("shop.shipped")).output == [True, "***"]


@pytest.mark.parametrize("name", ["shop.ship", "shop.ship_later", "shop.silent"])
def test_a_declared_secret_that_is_gone_at_the_last_moment_is_unavailable(name: str) -> None:
    """E3, E19: also for a tool that would not look at it: nothing was called, and the message says what to set."""
    box = make_toolbox(ship, ship_later, silent)
    asked = invocation(name)
    for answer in (box.call(asked), asyncio.run(box.call_async(asked))):
        assert answer.kind is OutcomeKind.UNAVAILABLE
        assert answer.failure is not None
        assert (answer.failure.type, "SHIP_KEY is not set" in answer.failure.message) == ("missing_secret", True)
    assert PluginToolbox(Registry({"shop.ship": describe(ship)})).call(invocation("shop.ship")).kind is (
        OutcomeKind.UNAVAILABLE
    )


def test_a_secret_that_was_not_declared_is_named_with_the_way_to_declare_it() -> None:
    """E19: nobody looked after it before the call, so it isn't to be had in it."""
    answer = make_toolbox(forgets, **SHIP).call(invocation("shop.forgets"))
    assert answer.failure is not None
    assert answer.failure.message.startswith(
        "the tool shop.forgets has not declared the secret OTHER: @tool('shop.forgets', secrets=('OTHER',))"
    )


def test_a_context_made_by_hand_has_the_secrets_that_a_test_gives_it() -> None:
    """E19: the author of a plugin tries a tool without a run; what isn't given is missed in the same words."""
    context = CallContext("k", tool="shop.ship", secrets={"SHIP_KEY": "s"})
    assert (context.secrets["SHIP_KEY"], context.secrets.get("SHIP_USER"), len(context.secrets)) == ("s", None, 1)
    with pytest.raises(KeyError, match="has not declared the secret SHIP_USER"):
        context.secrets["SHIP_USER"]
    assert CallContext("k").secrets == {}


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("no-name",), "secrets: 'no-name' can't be the name of a secret"),
        ((1,), "secrets: 1 can't be the name of a secret"),
        (tuple(f"k{number}" for number in range(101)), "it declares 101 secrets; at most 100 are allowed"),
    ],
)
def test_names_that_can_be_no_secret_break_the_tool(names: Any, problem: str) -> None:
    """E19: found when the plugin is loaded."""
    with pytest.raises(PluginError, match=problem):
        describe(tool("shop.odd", secrets=names)(lambda: None))


def test_a_single_name_may_be_given_as_a_text() -> None:
    """E19: it is not taken for a list of letters."""
    assert make_toolbox(tool("shop.one", secrets="ONE")(lambda: None)).facts("shop.one").secrets == ("ONE",)
