"""Dead letters from the command line: found, shown whole, decided; each decision does what was said (E12, E23)."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from sagactl.cli.views.dlq import HISTORY_MAX, render_letter
from sagactl.cli.views.style import Style
from tests.cli.project import Project
from tests.cli.views.situations import SITUATIONS

ASK = ("run", "onboarding", "-q", "-i", "amount:=4900", "-i", 'servers:=["web"]')
STUCK = {
    "in_doubt": ("-i", "email=ada@example.com", "-i", "card=limbo"),
    "undo_failed": ("-i", "email=refuses@example.com", "-i", "card=unrefundable"),
    "behind_pivot": ("-i", "email=bounces@example.com"),
}
OUTPUTS = {"deposit": '{"charge_id": "ch_1", "amount": 4900}', "welcome": '{"message_id": "m1"}'}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with the shipped plugins and sagas."""
    return Project.make(tmp_path)


def _get_stuck(project: Project, kind: str) -> str:
    result = project.run(*ASK, *STUCK[kind], "-o", "json")
    assert result.code == 11, result.err
    run_id: str = result.json["run"]["id"]
    return run_id


def _show(project: Project, run_id: str) -> dict[str, Any]:
    letter: dict[str, Any] = project.run("dlq", "show", run_id, "-o", "json").json["dead_letter"]
    return letter


def test_a_dead_letter_shows_all_that_a_person_needs(project: Project) -> None:
    """E23, UX 7.7: since when, where, tool, key, what was sent, each answer, the probe's, and what to type."""
    run_id = _get_stuck(project, "in_doubt")
    text, letter = project.run("dlq", "show", run_id).out, _show(project, run_id)
    for part in (
        "means     nobody knows whether billing.charge took effect",
        f"key       {run_id}/deposit/action",
        "tool      billing.charge",
        "undo      billing.refund",
        "card=limbo",
        "probe 4 can't tell",
        f"process {letter['last_call']['pid']}, call 1",
        "then: rolls back 1 step: lead; ends rolled back",
    ):
        assert part in text
    assert letter["arguments"]["card"] == "limbo"
    assert letter["compensation_tool"] == "billing.refund"
    assert [each["means"] for each in letter["decisions"]] == ["call it again", "it happened", "it did not happen"]


@pytest.mark.parametrize("kind", STUCK)
def test_every_decision_works_as_typed_and_does_what_was_said(tmp_path: Path, kind: str) -> None:
    """E23: each command that is printed is accepted as it stands, and what it would lead to is what it leads to."""
    first = Project.make(tmp_path / "look")
    count = len(_show(first, _get_stuck(first, kind))["decisions"])
    assert count >= 2
    for place in range(count):
        project = Project.make(tmp_path / str(place))
        run_id = _get_stuck(project, kind)
        letter = _show(project, run_id)
        decision = letter["decisions"][place]
        words = shlex.split(decision["command"])[1:]
        if "JSON" in words:
            refused = project.run(*words, "-o", "json")
            assert (refused.code, refused.json["error"]["code"]) == (3, "invalid-input"), "a placeholder is no fact"
            assert project.run(*shlex.split(refused.json["error"]["hint"])[1:]).code == 0
            words[words.index("JSON")] = OUTPUTS[letter["step"]]
        before = len(project.witness())
        done = project.run(*words, "-q", "-o", "json")
        assert done.code in {0, 10, 11, 13}, done.err
        _compare(decision["then"], done.json["run"], [each["tool"] for each in project.witness()[before:]])


def _compare(then: str, run: dict[str, Any], tools: list[str]) -> None:
    """Hold what was said of a decision against what came of it; a call that fails again ends where it was."""
    if run["status"] == "stuck":
        assert then.startswith(("goes on with", "rolls back"))
        return
    if then.startswith(("goes on", "succeeds")):
        assert run["status"] == "succeeded"
        return
    undone = [step["id"] for step in run["steps"] if step["status"] == "compensated"]
    named = re.search(r"^rolls back \d+ steps?: ([^;]*)", then)
    for place in named[1].split(", ") if named else ():
        assert place.partition("[")[0] in undone
    assert f"ends {run['status'].replace('_', ' ')}" in then
    left = re.search(r"left behind: (.*)$", then)
    assert [each["step"] for each in run["not_undone"]] == (left[1].split(", ") if left else [])
    assert tools or not named


def test_decisions_and_refusals_are_recorded_with_who_and_why(project: Project) -> None:
    """E22, E23: whoever decides is in the log with the reason, also where it was refused, and the letter shows it."""
    run_id = _get_stuck(project, "in_doubt")
    reason = ("--reason", "the bank says no")
    codes = [
        project.run("dlq", "resolve", run_id, "deposit", "--skip", *reason).code,
        project.run("dlq", "retry", run_id, "lead", *reason).code,
        project.run("dlq", "resolve", run_id, "--not-done", *reason, "-q").code,
        project.run("dlq", "retry", run_id, *reason).code,
        project.run("dlq", "retry", run_id, "deposit", *reason).code,
    ]
    assert codes == [6, 6, 10, 6, 6]
    records = [json.loads(line) for line in project.run("log", "-o", "jsonl").out.splitlines()]
    asked = [each["body"] for each in records if each["type"] == "operator"]
    assert [each["disposition"] for each in asked] == ["refused", "refused", "accepted", "refused", "refused"]
    assert all(each["request"]["who"] and each["request"]["reason"] == "the bank says no" for each in asked)
    shown = project.run("dlq", "show", run_id).out
    assert "it is closed: nothing is to be decided" in shown
    assert shown.count("the bank says no") + shown.count("dlq resolve --skip") >= 2


def test_what_is_not_there_is_said(project: Project) -> None:
    """Section 6: 4 for a step or letter that isn't there, 2 where a step must be named, each with a hint that works."""
    run_id = _get_stuck(project, "in_doubt")
    project.run("run", "diamond", "-q", "-i", "email=ada@example.com")
    other = project.latest()["id"]
    for arguments, code, word in (
        (("show", run_id, "nosuch"), 4, "no-such-step"),
        (("show", other), 4, "no-dead-letter"),
        (("retry", run_id, "nosuch"), 4, "no-such-step"),
        (("retry", run_id, "deposit[7]"), 6, "refused"),
        (("list", "--since", "soon"), 2, "bad-time"),
        (("list", "--run", "zzzzzz"), 4, "no-such-run"),
    ):
        result = project.run("dlq", *arguments, "-o", "json")
        assert (result.code, result.json["error"]["code"]) == (code, word), result.err
        hint = result.json["error"]["hint"]
        if hint.startswith("sagactl "):
            assert project.run(*shlex.split(hint)[1:]).code == 0, hint


def test_the_list_is_narrowed_and_says_how_many_there_are(project: Project) -> None:
    """`--saga`, `--since` and `--limit` choose; the total is told; JSON has it, JSON lines are the letters."""
    for number in range(3):
        project.run(*ASK, "-i", f"email=a{number}@example.com", "-i", "card=limbo")
    limited, lines, text, none, old = project.run_several(
        ["dlq", "list", "--limit", "2", "-o", "json"],
        ["dlq", "list", "-o", "jsonl"],
        ["dlq", "list", "--limit", "1"],
        ["dlq", "list", "--saga", "nosuch", "-o", "json"],
        ["dlq", "list", "--since", "2999-01-01"],
    )
    assert (len(limited.json["items"]), limited.json["total"]) == (2, 3)
    assert [json.loads(line)["step"] for line in lines.out.splitlines()] == ["deposit"] * 3
    assert "1 of 3 dead letters, --limit 0 for all" in text.out
    assert (none.json["items"], none.json["total"]) == ([], 0)
    assert old.out.strip() == "no dead letters that fit"


def test_a_long_history_is_cut_in_the_middle() -> None:
    """A dead letter with hundreds of calls shows how it began and how it ended, and counts the others."""
    stage = SITUATIONS["undo_used_up"]()
    (letter,) = stage.letters()
    text = render_letter(stage.scene(Style()), letter, stage.stored * 30)
    rows = [line for line in text.splitlines() if re.match(r" +\d+  \d\d:", line)]
    assert len(rows) == HISTORY_MAX
    assert " more between, see the log" in text
    assert "dead letter" in rows[-1]
