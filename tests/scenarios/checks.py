"""What holds at the end of every scenario, from three witnesses: the ledger, the log, and what the commands said.

The tenth of the common checks, the same on PostgreSQL, has nothing to stand on: this release has one kind of log.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sagactl.cli.views.spelling import spell as spell_json
from sagactl.core.evolve import replay
from sagactl.core.records import Intent, Operator
from sagactl.core.saga import Saga
from sagactl.engine.settings import Committed
from sagactl.usecases.documents import write_run
from tests.scenarios.scene import Scene, spell

AT_REST = {"succeeded": 0, "rolled_back": 10, "stuck": 11, "terminated": 13}
RECORDS_A_CALL = 12
RECORDS_MAX = 60
"""A run's log is bounded by its calls: a loop that turns in vain is found by its records."""

SECRET = "s3cr3t-0123456789-abcdef"


def check_all(
    scene: Scene, *, overlaps: bool = False, net: Mapping[str, set[int]] | None = None, looks: bool = True
) -> None:
    """Check every run of the scene; *overlaps*: a stopped process may still have been in a call (scenario's own check).

    *net* says, by step, what stays of a run that nothing can be said of otherwise; without *looks* what `show` prints
    is made in this process.
    """
    scene.is_checked = True
    with scene.app() as app:
        findings = app.log(read_only=True).verify(None).findings
        assert findings == (), findings  # 6
        rows = {row.run_id: row for row in app.runs()}
        runs = [app.read(run_id) for run_id in rows]
    for run in runs:
        run_id = run.run_id
        lines = scene.ledger(run=run_id)
        shown = scene.show(run_id) if looks else json.loads(spell_json(write_run(run.saga, run.state)))["run"]
        assert replay(run.saga, run.records) == run.state  # 6
        assert (rows[run_id].status, shown["status"]) == (run.summary.status, run.summary.status)
        problems = [
            *_conserve(run, shown, lines, net or {}),
            *_order(run.saga, [line for line in lines if not overlaps or line["phase"] != "end"]),
            *([] if overlaps else _overlap(lines, scene.dead)),
            *_bound(run, shown, lines),
            *_intents(run, lines),
        ]
        assert problems == [], problems
        _check_second_resume(scene, run_id, shown)
    _check_operators(scene, runs)
    _check_secrets(scene)


def _conserve(run: Committed, shown: Any, lines: list[dict[str, Any]], net: Mapping[str, set[int]]) -> Iterable[str]:
    """1: what stands in the world is what the run says that stands."""
    stands: dict[tuple[str, Any], int] = defaultdict(int)
    for line in lines:
        if line["phase"] == "effect":
            stands[line["step"], line["item"]] += -1 if line["direction"] == "compensation" else 1
    left = {(each["step"], each["item"]) for each in shown["not_undone"]}
    done = {(each["id"], each["item"]) for each in shown["steps"] if each["status"] == "succeeded"}
    open_ = {(each["id"], each["item"]) for each in shown["steps"] if each["status"] in {"in_doubt", "stuck"}}
    for place, count in stands.items():
        wanted = _wanted(shown["status"], place, left if shown["status"] == "rolled_back" else left | open_, done)
        if place[0] in net:
            wanted = net[place[0]]
        if count not in wanted:
            yield f"1: run {shown['id']} is {shown['status']}, and of {place} {count} stand, not {wanted}"
    if shown["status"] == "succeeded":
        called = {(line["step"], line["item"]) for line in lines if line["phase"] == "begin"}
        for place in sorted((done & called) - {place for place, count in stands.items() if count == 1}, key=str):
            yield f"1: {place} succeeded without an effect"


def _wanted(status: str, place: tuple[str, Any], left: set[Any], done: set[Any]) -> set[int]:
    if status == "succeeded":
        return {1} if place in done else {0}
    if status == "rolled_back":
        return {1} if place in left else {0}
    return {0, 1} if place in left or status in {"waiting", "running", "rolling_back"} else {1 if place in done else 0}


def _order(saga: Saga, lines: list[dict[str, Any]]) -> Iterable[str]:
    """2: nothing is done after its undo, and each step is undone after all that needed it."""
    ends: dict[str, int] = {}
    for place, line in enumerate(lines):
        name = spell(line)
        if line["phase"] == "effect" and line["direction"] == "action" and f"{name}'" in ends:
            yield f"2: {name} has an effect after its undo"
        if line["direction"] == "compensation" and line["phase"] in {"begin", "effect", "mark", "end"}:
            ends[name] = place
    begins = {line["step"]: place for place, line in reversed(list(enumerate(lines))) if _is_undo(line)}
    for each in saga.steps:
        for need in each.needs:
            last = max((place for place, line in enumerate(lines) if _is_undo(line, step=each.id)), default=-1)
            if need in begins and begins[need] < last:
                yield f"2: {need} was undone before {each.id}"


def _is_undo(line: dict[str, Any], step: str | None = None) -> bool:
    return line["direction"] == "compensation" and line["phase"] != "look" and step in {None, line["step"]}


def _overlap(lines: list[dict[str, Any]], dead: set[int]) -> Iterable[str]:
    """3: calls of one step and item never overlap; those of a process that is gone have ended with it."""
    is_open: dict[tuple[str, Any], int] = {}
    for line in lines:
        place = line["step"], line["item"]
        if line["phase"] == "begin":
            if place in is_open and is_open[place] not in dead:
                yield f"3: {spell(line)} began while a call of {place} was under way"
            is_open[place] = line["pid"]
        elif line["phase"] == "end" and is_open.get(place) == line["pid"]:
            del is_open[place]


def _bound(run: Committed, shown: Any, lines: list[dict[str, Any]]) -> Iterable[str]:
    """4: it rests, or says what it waits for, and came there without turning in vain."""
    calls = sum(line["phase"] in {"begin", "look"} for line in lines)
    most = RECORDS_MAX + RECORDS_A_CALL * (calls + len(run.saga.steps))
    if len(run.records) > most:
        yield f"4: {len(run.records)} records for {calls} calls"
    if shown["status"] not in AT_REST and shown["waiting_for"] is None:
        yield f"4: it is {shown['status']}, and nobody knows what it waits for"


def _intents(run: Committed, lines: list[dict[str, Any]]) -> Iterable[str]:
    """S1, S3: no call without an intent, and one key for all calls of an operation."""
    keys = {(intent.operation, intent.key) for intent in run.records if isinstance(intent, Intent)}
    known = {key for _, key in keys}
    if len(known) != len(keys) or len({operation for operation, _ in keys}) != len(keys):
        yield "S3: an operation has two keys, or two have one"
    for line in lines:
        if line["phase"] in {"begin", "effect"} and line["key"] not in known:
            yield f"S1: {spell(line)} was called without an intent"
    digests: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        if line["phase"] == "begin":
            digests[line["key"]].add(line["digest"])
    yield from (f"S10: {key} was called with different arguments" for key, found in digests.items() if len(found) > 1)


def _check_second_resume(scene: Scene, run_id: str, shown: Any) -> None:
    """5, 9: resuming what has ended calls nothing, writes nothing, and ends with the code of the run."""
    if shown["status"] not in AT_REST:
        return
    ledger, records = scene.ledger(), scene.records(run_id)
    again = scene.do("resume", run_id)
    assert again.code == AT_REST[shown["status"]], again
    assert (scene.ledger(), scene.records(run_id)) == (ledger, records)


def _check_operators(scene: Scene, runs: list[Committed]) -> None:
    """8: who asked for something, why, and what became of it."""
    found = [record.request for run in runs for record in run.records if isinstance(record, Operator)]
    assert all(request.who for request in found)
    reasons = {request.reason for request in found}
    assert set(scene.asked) <= reasons, set(scene.asked) - reasons


def _check_secrets(scene: Scene) -> None:
    """7: not one occurrence of the secret's bytes, in any file but those that hold it for the test."""
    for path in scene.path.rglob("*"):
        if path.is_file() and path.name != "secret":
            assert SECRET.encode() not in path.read_bytes(), path
