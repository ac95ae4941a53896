"""One mistake planted in each kind of tool: `chaos` must call it by its name, and a sound saga safe."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.chaos.project import BEFORE_PIVOT, BEHIND_PIVOT, WITHOUT_PIVOT, codes_of, make_project, run_chaos
from tests.proof import Prove


class Planted(NamedTuple):
    """A tool with a mistake: what it must be called, where it stands, and what is known of it besides."""

    tool: str
    code: str
    saga: str = BEFORE_PIVOT
    more: str = ""
    severity: str = "unsafe"
    options: tuple[str, ...] = ()
    also: frozenset[str] = frozenset()
    """What follows from the mistake."""


SECRET_SAGA = BEFORE_PIVOT.replace("steps:", "secrets: [api_key]\nsteps:")

PLANTED = {
    "no key": Planted("double.put", "double-effect"),
    "key before effect": Planted("forgetful.put", "lost-effect"),
    "key before effect, below": Planted("deep.put", "lost-effect"),
    "half an undo": Planted("half.put", "left-behind"),
    "half an action": Planted("torn.put", "left-behind"),
    "half an action probed": Planted("cut.put", "probe-lies"),
    "read_only that isn't": Planted("silent.put", "not-undone-without-word", more=", read_only: true"),
    "null_safe that isn't": Planted("strict.put", "compensation-not-null-safe"),
    "null_safe that harms": Planted("greedy.put", "compensation-not-null-safe"),
    "undo works once": Planted("once.put", "compensation-not-idempotent", also=frozenset({"undo-needs-output"})),
    "undo never works": Planted("locked.put", "compensation-fails"),
    "undo harms others": Planted("wild.put", "compensation-does-harm"),
    "undo by output": Planted("needy.put", "undo-needs-output"),
    "undo takes no null": Planted("bold.put", "undo-needs-output"),
    "probe finds nothing": Planted("denied.put", "probe-lies"),
    "probe finds all": Planted("claimed.put", "probe-lies", WITHOUT_PIVOT),
    "probe finds another": Planted("misread.put", "probe-lies"),
    "no tombstone": Planted("late.put", "late-effect-after-undo"),
    "wrong before the pivot": Planted("claimed.put", "pivot-before-doubt", also=frozenset({"probe-lies"})),
    "refuses behind the pivot": Planted("proud.put", "stuck-on-retry", saga=BEHIND_PIVOT),
    "lock outlives": Planted("hanging.put", "never-ends", options=("--timeout", "10")),
    "nobody can tell": Planted("blind.put", "asks-a-person", severity="note"),
    "refuses a known key": Planted("proud.put", "key-refused", severity="note"),
    "unseen": Planted("far.put", "effect-not-seen", severity="note"),
    "changes in place": Planted("switch.put", "effect-not-seen", severity="note"),
    "changes in place for ever": Planted("stuck.put", "left-behind", also=frozenset({"effect-not-seen"})),
    "prints its secret": Planted(
        "loud.put", "secret-printed", SECRET_SAGA, more=', with: {key: "${{ secrets.api_key }}"}', severity="note"
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_called_by_its_name(name: str, tmp_path: Path, prove: Prove) -> None:
    """Each kind of finding: a tool with that mistake and no other is found, and nothing is said of sound steps."""
    planted = PLANTED[name]
    saga = planted.saga.format(tool=planted.tool, more=planted.more)
    project = make_project(tmp_path, saga, 'world = "world"')
    project.environ["SAGACTL_SECRET_API_KEY"] = "hunter2-hunter2"
    world = tmp_path / "world" / "shop"
    world.mkdir(parents=True)
    (world / "of-somebody-else").write_text("theirs")
    (world.parent / "switch").write_text("0")
    result = run_chaos(project, "--only", "wrong", "-o", "json", *planted.options)
    document = result.json
    assert codes_of(document) == {planted.code, *planted.also}, document["findings"]
    severities = {each["code"]: each["severity"] for each in document["findings"]}
    assert severities[planted.code] == planted.severity
    assert {each["step"] for each in document["findings"]} == {"wrong"}, document["findings"]
    assert result.code == (1 if "unsafe" in severities.values() else 0)
    assert document["experiments"]["not_reached"] == []
    prove("planted mistakes that chaos names", 1, goal=len(PLANTED))
