"""The commands that views name: they exist, and the run accepts them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sagactl.cli.commands import COMMANDS
from sagactl.cli.views.commands import list_decisions, type_letter, type_rollback
from sagactl.core.operators import answer_request
from sagactl.core.records import Direction, Disposition, Operation, Request, Resolution, Verb
from sagactl.core.saga import Saga
from sagactl.core.state import RunState
from tests.cli.typed import parse_typed
from tests.cli.views.scripted import SHORT_ID
from tests.cli.views.situations import SITUATIONS

GOLDEN = Path(__file__).parent / "golden"


def _commands_in(text: str) -> list[str]:
    """Return each command that is the whole rest of its line, as one copies it."""
    return re.findall(r"(sagactl [a-z].*)$", text, re.MULTILINE)


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.txt")), ids=lambda file: file.stem)
def test_every_command_on_screen_exists(file: Path) -> None:
    """A hint names a command that there is, with arguments and options that it takes, in a form that a shell takes."""
    for command in _commands_in(file.read_text(encoding="utf-8")):
        assert parse_typed(command)[0] in COMMANDS


def _is_accepted(saga: Saga, state: RunState, operation: Operation, command: str) -> bool:
    words = shlex.split(command)
    verb = Verb.RETRY if words[2] == "retry" else Verb.RESOLVE
    flags = {f"--{each.value.replace('_', '-')}": each for each in Resolution}
    resolution = next((flags[word] for word in words if word in flags), None)
    reason = words[words.index("--reason") + 1] if "--reason" in words else None
    request = Request("r", verb, "ana", reason, operation, resolution)
    return answer_request(saga, state, request, 0).disposition is Disposition.ACCEPTED


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_is_offered_is_accepted(name: str) -> None:
    """E23: each decision that a dead letter offers is one that its run accepts."""
    stage = SITUATIONS[name]()
    for operation in stage.state.dead:
        decisions = list_decisions(stage.saga, stage.state, SHORT_ID, operation, stage.now_ms)
        assert decisions
        for _, command in decisions:
            assert _is_accepted(stage.saga, stage.state, operation, command), command


def test_a_doubtful_undo_is_not_offered_a_retry() -> None:
    """E23: where nobody knows whether there is anything to undo, only a person's word helps."""
    stage = SITUATIONS["undo_in_doubt"]()
    (operation,) = stage.state.dead
    words = [
        command.split()[2] for _, command in list_decisions(stage.saga, stage.state, SHORT_ID, operation, stage.now_ms)
    ]
    assert words == ["resolve"] * 3


def test_a_call_that_is_not_idempotent_is_offered_again_last() -> None:
    """A retry that could happen twice is never the first thing to type."""
    risky, safe = SITUATIONS["crashed_in_doubt"](), SITUATIONS["in_doubt"]()
    for stage, place in ((risky, -1), (safe, 0)):
        (operation,) = stage.state.dead
        decisions = list_decisions(stage.saga, stage.state, SHORT_ID, operation, stage.now_ms)
        assert decisions[place][1].startswith("sagactl dlq retry")


def test_items_are_quoted_for_the_shell() -> None:
    """F9: the brackets of an item are no pattern of the shell."""
    command = type_letter("retry", SHORT_ID, Operation("servers", 2, Direction.ACTION))
    assert command == f"sagactl dlq retry {SHORT_ID} 'servers[2]'"
    assert shlex.split(command)[-1] == "servers[2]"


@pytest.mark.parametrize(
    ("name", "is_offered"),
    [("interrupted", True), ("in_doubt", True), ("terminated", True), ("interrupted_backward", False),
     ("forward_stuck", False), ("pivot_in_doubt", False), ("rolled_back", False), ("undo_failed", False)],
)  # fmt: skip
def test_a_rollback_is_offered_where_it_would_do_something(name: str, is_offered: bool) -> None:
    """E22: `rollback` is named only where the run would turn back by it without more options."""
    stage = SITUATIONS[name]()
    assert bool(type_rollback(stage.state, SHORT_ID)) is is_offered
