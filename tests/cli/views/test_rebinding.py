"""What `resume --definition` shows before it does anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from sagactl.cli.views.rebinding import CHANGES_SHOWN_MAX, Proposal, render_rebinding, write_rebinding
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.style import Style
from sagactl.cli.views.text import width_of
from sagactl.core.rebinding import plan_rebinding
from sagactl.core.saga import Approval, Retry, Saga
from sagactl.core.template import parse_template
from tests.cli.views.scripted import RUN_ID, SHORT_ID, onboarding, step
from tests.cli.views.test_golden import GOLDEN, STYLES, _compare, _stage

Change = Callable[[Saga], Saga]


def _edit(saga: Saga, step_id: str, **fields: object) -> Saga:
    steps = tuple(replace(each, **fields) if each.id == step_id else each for each in saga.steps)  # type: ignore[arg-type]
    return replace(saga, steps=steps)


def _same(saga: Saga) -> Saga:
    """A file that means the same."""
    return replace(saga, source="sagas/elsewhere.yaml")


def _welcome(saga: Saga) -> Saga:
    """What is still to come changes: another mail, one more, and more patience with it."""
    welcome = saga.by_id["welcome"]
    call = replace(
        welcome.action,
        arguments=parse_template({"to": "${{ input.email }}", "template": "hello"}),
        retry=Retry(40, 5_000, 200, 600_000),
        start_to_close_ms=90_000,
    )
    changed = _edit(saga, "welcome", action=call, approval=Approval(by=("ana",)), description="a friendlier one")
    return replace(changed, version="4", steps=(*changed.steps, step("survey", "mail.send", needs=("welcome",))))


def _forbidden(saga: Saga) -> Saga:
    """What has happened would change in every way."""
    lead = saga.by_id["lead"]
    call = replace(lead.action, arguments=parse_template({"email": "someone@else.example"}))
    changed = _edit(saga, "lead", action=call, compensation=None, not_undoable_reason="it stays")
    deposit = changed.by_id["deposit"]
    changed = replace(changed, steps=tuple(each for each in changed.steps if each.id != "deposit"), version="5")
    changed = _edit(changed, "servers", needs=("lead",))
    tools = dict(changed.tools)
    tools["crm.create_lead"] = replace(tools["crm.create_lead"], version="9", idempotent=False)
    assert deposit.id not in changed.by_id
    return replace(changed, tools=tools)


def _odd(saga: Saga) -> Saga:
    """Text that no terminal should be given as it is."""
    call = replace(saga.by_id["welcome"].action, arguments=parse_template({"to": "\x1b[2Jgone\n", "long": "x" * 500}))
    return _edit(saga, "welcome", action=call, description="\u202eback")


CHANGES: dict[str, Change] = {function.__name__[1:]: function for function in (_same, _welcome, _forbidden, _odd)}


def _propose(name: str) -> Proposal:
    stage = _stage("undo_failed" if name == "ended" else "waiting_for_timer")
    new = CHANGES[name](stage.saga)
    found = plan_rebinding(stage.saga, new, [stored.record for stored in stage.stored])
    return Proposal(RUN_ID, SHORT_ID, "onboarding", "3f8a12c0" * 8, "b71d99e4" * 8, str(new.source), found)


@pytest.mark.parametrize("kind", STYLES)
def test_each_rebinding_is_as_it_was_reviewed(kind: str) -> None:
    """The changes read as the golden file says: those that are refused first, the reasons below."""
    parts = [
        f"==== {name}: {change.__doc__}\n{render_rebinding(_propose(name), STYLES[kind])}\n"
        for name, change in CHANGES.items()
    ]
    _compare(GOLDEN / f"rebinding{kind}.txt", "\n".join(parts))


@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """It fits, whatever the width, and colour changes nothing but colour."""
    for name in CHANGES:
        plain = render_rebinding(_propose(name), Style(width=width))
        assert max(width_of(line) for line in plain.splitlines()) <= width, name
        colored = render_rebinding(_propose(name), Style(color=True, width=width))
        assert re.sub(r"\x1b\[\d+m", "", colored) == plain
        assert "\x1b" not in plain


def test_the_document_has_every_change_with_its_reason() -> None:
    """`sagactl.rebinding/1`: what, of what, before, after, and why it is refused."""
    document = json.loads(spell(write_rebinding(_propose("forbidden"), None)))["rebinding"]
    assert (document["from"], document["to"]) == ("3f8a12c0" * 8, "b71d99e4" * 8)
    gone = next(each for each in document["changes"] if each["what"] == "step_gone")
    assert (gone["step"], gone["before"], gone["after"]) == ("deposit", "billing.charge", None)
    assert gone["refused"] in document["refused"]
    assert [each["refused"] for each in document["changes"] if each["refused"]] == document["refused"]


def test_a_long_list_is_cut_in_text_and_whole_in_json() -> None:
    """Hundreds of new steps are counted; the JSON has each."""
    saga = onboarding()
    more = tuple(step(f"s{n}", "mail.send", needs=("welcome",)) for n in range(CHANGES_SHOWN_MAX + 40))
    stage = _stage("waiting_for_timer")
    found = plan_rebinding(saga, replace(saga, steps=(*saga.steps, *more)), [each.record for each in stage.stored])
    proposal = Proposal(RUN_ID, SHORT_ID, "onboarding", "a" * 64, "b" * 64, "x.yaml", found)
    assert "... and 40 changes more" in render_rebinding(proposal, Style())
    assert len(json.loads(spell(write_rebinding(proposal, None)))["rebinding"]["changes"]) == CHANGES_SHOWN_MAX + 40
