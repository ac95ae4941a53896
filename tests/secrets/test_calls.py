"""How calls get secrets: at the last moment, in their places, and masked in what comes back (E19)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import pytest

from sagactl import Done, Secret, tool
from sagactl.core.canonical import Json
from sagactl.core.records import OutcomeKind, ProbeAnswer
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
