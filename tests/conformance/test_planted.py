"""One mistake planted in each kind of tool: `tools check` must name the rule that it breaks, and blame no sound one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.project import SECRET, broken_of, check, make_project, verdicts_of
from tests.proof import Prove

PLANTED = {
    "double.put": {"same-key", "at-once"},
    "half.put": {"undo", "undo-twice", "undo-lost-output"},
    "silent.put": {"reads-only"},
    "strict.put": {"undo-never-ran"},
    "greedy.put": {"undo-never-ran"},
    "once.put": {"undo-twice"},
    "locked.put": {"undo", "undo-lost-output"},
    "wild.put": {"undo", "undo-lost-output"},
    "bold.put": {"undo-lost-output", "undo-never-ran"},
    "denied.put": {"probe", "late"},
    "claimed.put": {"probe"},
    "misread.put": {"probe"},
    "late.put": {"late"},
    "proud.put": {"same-key"},
    "loud.put": {"secrets"},
    "race.put": {"at-once"},
    "wide.put": {"other-key"},
    "shared.put": {"probe"},
    "eager.put": {"rejects"},
    "lax.put": {"rejects"},
    "odd.put": {"succeeds"},
    "loose.put": {"schema"},
    "peeking.put": {"reads-only", "undo"},  # what its probe writes isn't undone
    "fickle.put": {"same-key", "at-once"},
    "blank.put": {"undo-lost-output"},
    "refund.put": {"undo-twice"},
    "open.put": {"secrets"},
    "torn.read": {"reads-only"},
    "log.put": {"at-once"},
    "tally.put": {"at-once"},
    "sweeping.put": {"undo-lost-output"},
    "fatal.put": {"succeeds"},
    "mortal.put": {"undo"},
}
"""By tool, the rules that it breaks: no more and no fewer."""

SOUND = ("good.put", "good.sign", "forgetful.put", "tidy.put")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the check says of all planted tools but the one that never ends."""
    project = make_project(tmp_path_factory.mktemp("planted"))
    result = check(project, *PLANTED, *SOUND, "blind.put", "needy.put", "far.put", "shop.put", "-o", "json")
    assert result.code == 1, result.err
    assert SECRET not in result.out + result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


@pytest.mark.parametrize("tool", PLANTED)
def test_a_planted_mistake_is_named(tool: str, document: dict[str, Any], prove: Prove) -> None:
    """Each mistake breaks just the rules that it breaks; a breach says what was seen and how to see it again."""
    assert broken_of(document).get(tool) == PLANTED[tool]
    (found,) = [each for each in document["tools"] if each["name"] == tool]
    for rule in found["rules"]:
        if rule["verdict"] == "broken":
            assert rule["seen"]
            assert rule["change"]
            assert rule["again"] == f"sagactl tools check {tool} --rule {rule['rule']}"
    prove("planted mistakes that tools check names", 1, goal=len(PLANTED))


def test_a_tool_that_ends_its_process_ends_no_other_check(document: dict[str, Any]) -> None:
    """It is named with how the process ended and what may be left; what was found of others is kept."""
    seen = {each["name"]: [rule["seen"] for rule in each["rules"]] for each in document["tools"]}
    assert set(seen["fatal.put"]) == {"fatal.put has ended its process (exit code 3)"}
    assert set(seen["mortal.put"]) == {"mortal.take has ended its process (signal 11)"}
    assert "fatal.put: fatal.put has ended its process (exit code 3): what it has made" in " ".join(document["notes"])


@pytest.mark.parametrize("tool", SOUND)
def test_a_sound_tool_breaks_nothing(tool: str, document: dict[str, Any]) -> None:
    """A tool without a mistake isn't blamed."""
    assert tool not in broken_of(document)
    assert verdicts_of(document)[tool]["same-key"] == "holds"


def test_a_call_that_never_ends_is_a_breach_and_the_command_ends(tmp_path: Path) -> None:
    """Each call ends within its deadline; one that doesn't is left behind, and nothing more is tried with its tool."""
    result = check(make_project(tmp_path), "endless.put", "--timeout", "0.3", "-o", "json", timeout=120)
    assert result.code == 1
    found = verdicts_of(result.json)["endless.put"]
    assert found["deadline"] == "broken"
    assert found["undo"] == "untried"


def test_what_a_tool_does_not_promise_is_no_breach(document: dict[str, Any]) -> None:
    """A tool that isn't idempotent, or whose undo needs an output, says so itself; what the engine does is told."""
    verdicts = verdicts_of(document)
    assert verdicts["blind.put"]["same-key"] == verdicts["blind.put"]["at-once"] == "not_promised"
    assert verdicts["needy.put"]["undo-never-ran"] == verdicts["needy.put"]["undo-lost-output"] == "not_promised"
    assert verdicts["race.put"]["late"] == "not_promised"
    seen = [each["seen"] for tool in document["tools"] for each in tool["rules"] if each["verdict"] == "not_promised"]
    assert all(seen)


def test_what_is_not_seen_is_not_passed(document: dict[str, Any]) -> None:
    """Without any way to see an effect the rules about effects are untried, and it is said why."""
    found = verdicts_of(document)["far.put"]
    assert {rule for rule, verdict in found.items() if verdict == "untried"} >= {
        *("same-key", "at-once", "undo", "undo-lost-output", "late", "other-key")
    }
    assert found["succeeds"] == "holds"


def test_what_nobody_has_marked_as_safe_is_not_called(document: dict[str, Any], tmp_path: Path) -> None:
    """A tool that isn't marked is untried; where all of them aren't, that is exit 2 and names the option."""
    assert set(verdicts_of(document)["shop.put"].values()) == {"untried"}
    project = make_project(tmp_path)
    refused = check(project, "shop.put")
    assert refused.code == 2
    assert "--allow-unsafe 'shop.*'" in refused.err
    allowed = check(project, "shop.put", "--allow-unsafe", "shop.*", "--allow-unsafe", "plain.*", "-o", "json")
    assert broken_of(allowed.json) == {"shop.put": {"same-key", "at-once"}}
