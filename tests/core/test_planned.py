"""A plan as data: read strictly, told apart from any other, and compared in all that it says."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from sagactl.core.canonical import Json, canonical, digest, parse
from sagactl.core.definition import write_definition
from sagactl.core.filled import Filled, fill_in
from sagactl.core.planned import (
    TEXT_LENGTH_MAX,
    TOOLS_NAMED_MAX,
    BadPlanError,
    Planned,
    find_differences,
    make_planned,
    read_planned,
)
from sagactl.core.preview import read_given
from sagactl.core.records import Origin
from sagactl.core.saga import Saga
from tests.core.builders import Plain, saga

ARGUMENTS = {"to": "${{ input.to }}", "key": {"$secret": "KEY"}}
INPUT: dict[str, Json] = {"to": "ana", "xs": [1, 2]}


def make(what: Saga | None = None, value: Json = None, who: str = "an agent") -> Planned:
    """Plan a run as the command does."""
    what = what or saga("a -> f -> c", a={"arguments": ARGUMENTS}, f={"foreach": "${{ input.xs }}"})
    value = INPUT if value is None else value
    scope: Mapping[str, Json] = {"input": value}
    filled = fill_in(what, read_given(what, scope, Plain()), scope, Plain())
    return make_planned(what, value, filled, plan_id="p", planned_by=who)


def test_a_plan_comes_back_from_its_file() -> None:
    """E20: written and read, it is the same plan with the same digest; secrets stand in it as references."""
    planned = make()
    text = canonical(planned.write())
    assert read_planned(parse(text)) == planned
    assert read_planned(parse(text)).digest == planned.digest
    assert '{"$secret":"KEY"}' in text
    assert len(planned.calls) == 4


def test_the_plan_is_the_key_of_a_run_that_has_no_other() -> None:
    """E8: a run of a plan is known by the plan, and so is carried out once; any other has no key of its own."""
    digest_of = make().digest
    assert Origin(plan=digest_of).key == f"plan/{digest_of}"
    assert Origin(forked_from="run1", traceparent="00-x").key is None


def test_each_part_makes_another_digest() -> None:
    """A plan is known by its digest: who planned it, saga, tools, input and calls are all in it."""
    planned = make()
    others = [
        replace(planned, plan_id="another"),
        replace(planned, planned_by="another"),
        replace(planned, file="x.yaml"),
        replace(planned, definition="0" * 64),
        replace(planned, input={"to": "bob"}),
        replace(planned, tools={}),
        replace(planned, calls=planned.calls[:-1]),
    ]
    assert len({each.digest for each in [planned, *others]}) == 8


BAD: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no map": (lambda _: [], "it is no plan: its schema is not sagactl.plan-file/1"),
    "another schema": (lambda body: {**body, "schema": "sagactl.plan/1"}, "its schema is not sagactl.plan-file/1"),
    "a member more": (lambda body: {**body, "hook": "rm"}, "'hook' is unknown"),
    "a member with a long name": (lambda body: {**body, "x" * 90: "rm"}, f"'{'x' * 80}' is unknown"),
    "a member less": (
        lambda body: {name: part for name, part in body.items() if name != "calls"},
        "'calls' is missing",
    ),
    "a number for a text": (lambda body: {**body, "saga": 1}, f"'saga' is no text of at most {TEXT_LENGTH_MAX}"),
    "a text without end": (
        lambda body: {**body, "file": "x" * (TEXT_LENGTH_MAX + 1)},
        f"'file' is no text of at most {TEXT_LENGTH_MAX}",
    ),
    "a version that is no text": (lambda body: {**body, "version": []}, "'version' is no text"),
    "tools that are no map": (lambda body: {**body, "tools": []}, "'tools' is no map"),
    "calls that are no list": (lambda body: {**body, "calls": {}}, "'calls' no list"),
    "another input": (lambda body: {**body, "input": {"to": "eve"}}, "its digest is another"),
    "another digest": (lambda body: {**body, "digest": "0" * 64}, "its digest is another"),
    "another author": (lambda body: {**body, "planned_by": "root"}, "its digest is another"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_plan_is_refused(name: str) -> None:
    """F5: a plan that isn't whole, or was changed, is an error that says what is wrong."""
    change, message = BAD[name]
    with pytest.raises(BadPlanError, match=re.escape(message)):
        read_planned(change(make().write()))


def test_a_plan_may_be_as_long_as_its_limit_and_have_a_version() -> None:
    """Limits: a text of exactly so many characters is one; a version is a text or isn't there."""
    planned = replace(make(), file="x" * TEXT_LENGTH_MAX, version="4")
    assert read_planned(planned.write()) == planned


def test_a_plan_is_the_same_document_in_every_release() -> None:
    """E16: what people have agreed to and kept must be readable, and mean the same, later."""
    what = saga("a -> f", a={"arguments": {"to": "${{ input.to }}"}}, f={"foreach": "${{ input.xs }}", "undo": False})
    data: dict[str, Json] = {"to": "ana", "xs": [1]}
    document = make(what, data).write()
    assert document["calls"] == [
        {"step": "a", "item": None, "tool": "do.a", "arguments": {"to": "ana"}, "undo": "undo.a",
         "undo_arguments": {"id": "${{ output.id }}"}, "refused": None},
        {"step": "f", "item": 0, "tool": "do.f", "arguments": {}, "undo": None, "undo_arguments": None,
         "refused": None},
    ]  # fmt: skip
    definition = write_definition(what)
    tools = definition.pop("tools")
    assert isinstance(tools, dict)
    assert document["tools"] == {name: {"version": "0", "digest": digest(facts)} for name, facts in tools.items()}
    assert document["text_digest"] == digest(definition)
    assert document["definition"] == digest({**definition, "tools": tools})
    assert (document["file"], document["planned_by"], document["saga"]) == ("", "an agent", "test")
    assert (document["input"], document["input_digest"]) == (data, digest(data))


def test_items_are_filled_in_one_by_one() -> None:
    """F9: each with its value, its index and its place; what would refuse it is asked of the very arguments."""
    arguments = {"x": "${{ item }}", "n": "${{ index }}"}
    what = saga("f", f={"foreach": "${{ input.xs }}", "arguments": arguments, "undo": False})
    scope: dict[str, Json] = {"input": {"xs": ["p", "q"]}}
    filled = fill_in(what, read_given(what, scope, Plain()), scope, Watching())["f"]
    assert filled == [
        Filled("f", 0, {"x": "p", "n": 0}),
        Filled("f", 1, {"x": "q", "n": 1}, None, "do.f can't take {'x': 'q', 'n': 1}"),
    ]


class Watching(Plain):
    """An evaluator that takes only the first item."""

    def check_arguments(self, tool: str, arguments: Json) -> str | None:
        """Object to what isn't the first item."""
        return None if arguments == {"x": "p", "n": 0} else f"{tool} can't take {arguments}"


def test_no_damage_gets_through() -> None:
    """A plan from anybody is data: whatever a value in it is replaced by, it is refused or means the same."""
    rng, planned = random.Random(3), make()
    odd: list[Json] = [None, True, 0, -1, "", "x", [], {}, [[]], {"$secret": "X"}, "${{ input.to }}"]
    for _ in range(2_000):
        body = planned.write()
        name = rng.choice(sorted(body))
        body[name] = rng.choice(odd)
        try:
            assert read_planned(body) == planned
        except BadPlanError:
            continue


def _edited(what: Saga) -> Saga:
    return replace(what, description="another")


def test_all_differences_are_named() -> None:
    """E16: a saga file, a tool, an input or a call that is another now, each with its name and versions."""
    planned = make()
    what = saga("a -> f -> c", a={"arguments": ARGUMENTS}, f={"foreach": "${{ input.xs }}"})
    assert find_differences(planned, make(what)) == []
    assert find_differences(planned, make(_edited(what))) == ["the saga file changed"]
    assert find_differences(planned, make(replace(what, version="2"))) == ["the saga file changed (version None -> 2)"]
    newer = replace(what, tools={**what.tools, "do.a": replace(what.tools["do.a"], version="9")})
    assert find_differences(planned, make(newer)) == ["the tool do.a changed (version 0 -> 9)"]
    promise = replace(what, tools={**what.tools, "do.a": replace(what.tools["do.a"], late_safe=True)})
    assert find_differences(planned, make(promise)) == ["the tool do.a changed"]
    more = {**what.tools, "do.z": replace(what.tools["do.a"], name="do.z")}
    assert find_differences(planned, make(replace(what, tools=more))) == ["the tool do.z is new"]
    assert find_differences(make(replace(what, tools=more)), planned) == ["the tool do.z is gone"]
    assert find_differences(planned, make(replace(what, name="other"))) == [
        "it is a plan of saga test, not of other",
        "the saga file changed",
    ]
    assert find_differences(planned, make(value={"to": "ana", "xs": [1, 3, 4]})) == [
        "its input has other defaults now",
        "4 calls were planned, and it would be 5",
        "the call of f[2] would be another",
    ]
    assert find_differences(planned, make(value={"to": "bob", "xs": [1, 2]}))[1:] == ["the call of a would be another"]


def test_tools_that_changed_alike_are_told_together() -> None:
    """E16: a plugin that changed is one difference, whatever number of tools it gives; of many a few are named."""
    what = saga("a -> b -> c")
    planned = make(what)
    newer = {name: replace(facts, version="9") for name, facts in what.tools.items()}
    (told,) = find_differences(planned, make(replace(what, tools=newer)))
    names = sorted(what.tools)
    assert len(names) > TOOLS_NAMED_MAX
    listed = f"{', '.join(names[:TOOLS_NAMED_MAX])} and {len(names) - TOOLS_NAMED_MAX} more"
    assert told == f"the tools {listed} changed (version 0 -> 9)"
    added = {f"do.z{number}": replace(what.tools["do.a"], name=f"do.z{number}") for number in range(2)}
    more = make(replace(what, tools={**what.tools, **added}))
    assert find_differences(planned, more) == ["the tools do.z0, do.z1 are new"]
    assert find_differences(more, planned) == ["the tools do.z0, do.z1 are gone"]


def test_a_plan_with_forged_digests_is_compared_all_the_same() -> None:
    """Whoever computes the digests anew gets nowhere: what is run is made from the saga and must be equal."""
    planned = make()
    forged = replace(planned, calls=[*planned.calls[:-1], {"step": "c", "item": None, "tool": "shell.run"}])
    assert read_planned(forged.write()) == forged
    assert find_differences(forged, planned) == ["the call of c would be another"]
    assert find_differences(replace(planned, definition="0" * 64), planned) == ["its definition has another digest"]


def test_a_call_shows_what_would_refuse_it_and_its_undo_what_is_known() -> None:
    """F3, E21: a plan has each argument as far as it goes, and says of each call why it would be refused."""
    what = saga(
        "a -> b -> c",
        a={
            "arguments": {"to": "${{ input.to }}"},
            "undo_arguments": {"who": "${{ args.to }}", "id": "${{ output.id }}"},
        },
        b={"arguments": {"of": "${{ steps.a.output.id }}"}, "undo_arguments": {"who": "${{ args.of }}"}},
        c={"arguments": {"to": "${{ input.nobody }}"}, "undo": False},
    )
    filled = fill_in(what, {}, {"input": {"to": "ana"}}, Plain({}, {"do.a": "to: no address", "do.b": "never asked"}))
    assert [each for calls in filled.values() for each in calls] == [
        Filled("a", None, {"to": "ana"}, {"who": "${{ args.to }}", "id": "${{ output.id }}"}, "to: no address"),
        Filled("b", None, {"of": "${{ steps.a.output.id }}"}, {"who": "${{ args.of }}"}),
        Filled("c", None, {"to": "${{ input.nobody }}"}, None, "input has no nobody, in input.nobody"),
    ]
    sound = fill_in(what, {}, {"input": {"to": "ana"}}, Plain())["a"]
    assert sound == [Filled("a", None, {"to": "ana"}, {"who": "ana", "id": "${{ output.id }}"})]
