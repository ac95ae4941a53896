"""The pure parts of `chaos`: which experiments there are, what has come or gone, and what can be seen at all."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from sagactl.chaos.enumerating import Reference, list_experiments, list_pairs
from sagactl.chaos.experiment import Asked, Fault, FaultKind
from sagactl.chaos.observed import Seen, Sight
from sagactl.chaos.trail import Plan, Trail
from sagactl.chaos.traits import find_difference, measure_growth, name_trait
from sagactl.chaos.world import Looking
from sagactl.core.records import Direction, Operation
from tests.core.builders import saga

A = Operation("a", None, Direction.ACTION)
B = Operation("b", None, Direction.ACTION)
POINTS = {kind for kind in FaultKind if kind.startswith("killed") and "start" not in kind and "end" not in kind}


def test_every_operation_is_crashed_at_each_point_in_both_directions() -> None:
    """The five points of a call, forward and back; a pivot and what is behind it is never rolled back."""
    found = list_experiments(
        saga("a -> b* -> c"), Reference((A, B, Operation("c", None, Direction.ACTION)), (A.other,))
    )
    names = [each.name for each in found]
    assert len(set(names)) == len(names)
    for place in (A, B, A.other):
        assert {each.faults[-1].kind for each in found if each.place == place} >= POINTS
    rolled = {each.place for each in found if each.asked is Asked.AFTER_CRASH}
    assert rolled == {A}
    backward = [each for each in found if each.place == A.other]
    assert all(each.faults[0] == Fault(FaultKind.REJECTED, B) for each in backward)


def test_lines_of_a_tool_are_tried_once() -> None:
    """Each line that a tool comes to is a point; another operation with the same tool has the plain one."""
    items = [Operation("a", number, Direction.ACTION) for number in (0, 1)]
    lines = dict.fromkeys(items, ("shop.py:3", "shop.py:4"))
    found = list_experiments(saga("a"), Reference(tuple(items), (), lines))
    killed = [
        (each.place, each.faults[-1].line)
        for each in found
        if each.asked is Asked.NEVER and each.faults[-1].kind is FaultKind.KILLED_IN_EFFECT
    ]
    assert killed == [(items[0], "shop.py:3"), (items[0], "shop.py:4"), (items[1], None)]


def test_pairs_are_crashes_that_can_follow_each_other() -> None:
    """After a rollback was asked no action is called, so the second crash is in a compensation."""
    singles = list_experiments(saga("a -> b"), Reference((A, B), (A.other, B.other)))
    pairs = list(list_pairs(singles))
    assert pairs
    for pair in pairs:
        kills = [fault for fault in pair.faults if fault.is_kill]
        assert len(kills) == 2
        if pair.asked is Asked.AFTER_CRASH:
            assert kills[1].operation is not None
            assert kills[1].operation.direction is Direction.COMPENSATION


@pytest.mark.parametrize(
    ("before", "after", "growth"),
    [
        ({"things": []}, {"things": [{"id": 7}]}, {"things[]": 1, "things[].id": 1}),
        ({"things": [{"id": 7}]}, {"things": [{"id": 8}]}, {}),
        ({"balance": 100}, {"balance": Decimal("50.5")}, {"balance": Decimal("-49.5")}),
        ({"state": "open"}, {"state": "closed"}, {"state=closed": 1, "state=open": -1}),
        ({}, {"on": True}, {"on=True": 1}),
    ],
)
def test_things_are_counted_and_totals_added_up(before: object, after: object, growth: object) -> None:
    """The page's words about checks: lists by shape, numbers outside of lists by sum, other values by themselves."""
    assert measure_growth(before, after) == growth  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trait", "told"),
    [
        ("paths.shop/RUN-a=True", "shop/RUN-a"),
        ("files[]", "a file whose name is another each time"),
        ("files[].content", "a file whose name is another each time"),
        ("effects.lead", ""),
        ("crm.snapshot.leads[]", "crm.snapshot.leads[]"),
    ],
)
def test_what_is_left_is_named_as_people_know_it(trait: str, told: str) -> None:
    """A file by its name, also where it has none that lasts; a check tool's answer by its place."""
    assert name_trait(trait) == told


def test_a_look_at_a_folder_sees_files_links_and_what_is_no_file(tmp_path: Path) -> None:
    """Names and contents without the run's id; a pipe is seen, not read; what is ignored isn't there."""
    folder = tmp_path / "world"
    (folder / "shop").mkdir(parents=True)
    look = Looking(folder, "7kq2m9x4hb3tz", ignored=["*.log"]).look
    before = look()
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("nowhere")
    (folder / "noise.log").write_text("now")
    (folder / "shop" / "7kq2m9x4hb3tz-a").write_text("by 7kq2m9x4hb3tz")
    after = look()
    assert isinstance(after, dict)
    assert after["paths"] == {"link": True, "pipe": True, "shop/RUN-a": True}
    assert find_difference(before, after) == "link"
    assert find_difference(after, after) == ""


def test_faults_come_once_in_their_order_also_over_several_lives(tmp_path: Path) -> None:
    """What has come is told by the trail, so a process that follows one that died doesn't meet it again."""
    faults = [
        Fault(FaultKind.REJECTED, A),
        Fault(FaultKind.UNAVAILABLE, B),
        Fault(FaultKind.PROBE_BLIND, A, always=True),
    ]
    trail = Trail(tmp_path / "trail.jsonl")
    first = Plan(faults, trail)
    assert first.take(B, {FaultKind.UNAVAILABLE}) is None
    assert first.take(A, {FaultKind.REJECTED}) == faults[0]
    second = Plan(faults, trail)
    assert second.take(A, {FaultKind.REJECTED}) is None
    assert second.take(B, {FaultKind.UNAVAILABLE}) == faults[1]
    assert [second.take(A, {FaultKind.PROBE_BLIND}) for _ in range(2)] == [faults[2]] * 2
    assert [seen.word for seen in trail.read()] == ["0", "1", "2", "2"]


def test_a_line_that_death_has_cut_off_is_left_out(tmp_path: Path) -> None:
    """The trail is read up to its last whole line."""
    trail = Trail(tmp_path / "trail.jsonl")
    trail.note(Seen(Sight.CALL, A))
    with (tmp_path / "trail.jsonl").open("a") as file:
        file.write('{"sight": "ret')
    assert trail.read() == [Seen(Sight.CALL, A)]
