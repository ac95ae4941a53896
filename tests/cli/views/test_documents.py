"""The JSON contract: names, exact numbers, times, and errors."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from decimal import Decimal

import pytest

from sagactl.cli.views.sandbox import write_sandbox
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.tools import write_tool, write_tools
from sagactl.core.canonical import parse
from sagactl.errors import BusyError, InvalidError
from sagactl.log.base import Captured, Finding, Verification
from sagactl.usecases.documents import (
    RUN_SCHEMA,
    write_letter,
    write_letters,
    write_record,
    write_records,
    write_run,
    write_runs,
    write_verification,
)
from sagactl.usecases.errors import write_error, write_problems
from tests.cli.views.plain_values import BROKEN, LEDGER, SYSTEMS, TOOL_ROWS
from tests.cli.views.scripted import RUN_ID, Stage, ok, onboarding
from tests.cli.views.situations import SITUATIONS, in_doubt, left_behind, rolled_back, succeeded, undo_failed


@dataclass(frozen=True)
class PlainProblem:
    """A problem as a loader finds it."""

    code: str
    message: str
    file: str = "sagas/onboarding.yaml"
    line: int = 8
    column: int = 11
    end_column: int = 32
    hint: str | None = None
    severity: str = "error"


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_document_of_a_run_has_what_was_promised(name: str) -> None:
    """`sagactl.run/1` has its fields in every situation, and is JSON."""
    stage = SITUATIONS[name]()
    document = json.loads(spell(write_run(stage.saga, stage.state)))
    run = document["run"]
    assert list(document) == ["schema", "run", "error"]
    assert document["schema"] == "sagactl.run/1"
    assert document["error"] is None
    promised = {"id", "saga", "status", "cause", "error", "input", "output", "steps", "not_undone", "started_at"}
    assert promised | {"ended_at", "direction", "waiting_for", "dead_letters", "definition", "key"} <= run.keys()
    assert run["id"] == RUN_ID
    for step in run["steps"]:
        assert {"id", "item", "status", "attempts", "output", "error"} <= step.keys()


def test_a_rolled_back_run_carries_what_stays() -> None:
    """`rolled_back` always carries `not_undone`, empty or not."""
    stage, left = rolled_back(), left_behind()
    nothing = write_run(stage.saga, stage.state)["run"]
    something = write_run(left.saga, left.state)["run"]
    assert isinstance(nothing, dict)
    assert isinstance(something, dict)
    assert nothing["not_undone"] == []
    assert something["not_undone"] == [{"step": "notice", "item": None, "reason": "a mail can't be unsent"}]
    assert something["error"] == {"type": "card_declined", "message": "402 the card was declined", "step": "deposit"}


def test_a_run_says_how_much_was_done_and_how_much_undone() -> None:
    """`sagactl.run/1`: `steps_done` stays what was done, `steps_undone` says how many of these were undone since."""
    back, forward = rolled_back(), succeeded()
    undone = write_run(back.saga, back.state)["run"]
    done = write_run(forward.saga, forward.state)["run"]
    assert isinstance(undone, dict)
    assert isinstance(done, dict)
    assert [undone[name] for name in ("steps_total", "steps_done", "steps_undone")] == [5, 2, 2]
    assert [done[name] for name in ("steps_total", "steps_done", "steps_undone")] == [5, 5, 0]


def test_numbers_are_exact() -> None:
    """F2: integers of any size and decimals come out digit by digit."""
    big, exact = 2**64 + 1, Decimal("0.10")
    stage = Stage(onboarding(), {"deposit": [ok(charge_id="c", big=big, exact=exact)]}).drive()
    text = spell(write_run(stage.saga, stage.state))
    run = parse(text)
    assert isinstance(run, dict)
    assert f"{big}" in text
    assert '"exact": 0.10' in text


def test_times_are_utc_with_milliseconds() -> None:
    """Times are RFC 3339 in UTC, whatever the machine's zone."""
    stage = succeeded()
    run = write_run(stage.saga, stage.state)["run"]
    assert isinstance(run, dict)
    assert run["started_at"] == "2026-03-04T13:02:11.204Z"


def test_every_record_is_complete() -> None:
    """`log -o jsonl` leaves out no field of any record."""
    for make in SITUATIONS.values():
        for stored in make().stored:
            document = write_record(stored)
            json.loads(spell(document))
            body = document["body"]
            assert isinstance(body, dict)
            lifted = {"at_ms", "operation", "step", "item", "attempt"}
            names = {each.name for each in fields(stored.record)} - lifted
            assert {name.replace("_at", "_ms") for name in body if name.endswith("_at")} <= names
            assert len(body) == len(names)
            assert (document["seq"], document["hash"]) == (stored.seq, stored.hash)


def test_an_operators_record_names_its_operation() -> None:
    """The request within a record is written out as well: who, why, what."""
    stage = SITUATIONS["abandoned"]()
    found = next(each for each in map(write_record, stage.stored) if each["type"] == "operator")
    body = found["body"]
    assert isinstance(body, dict)
    assert (found["step"], found["direction"], body["disposition"]) == ("deposit", "compensation", "accepted")
    assert isinstance(body["request"], dict)
    assert (body["request"]["who"], body["request"]["resolution"]) == ("ana", "abandon")


def test_lists_are_lists_even_when_empty() -> None:
    """An empty list is `[]` with a total, not a sentence."""
    for document in (write_runs([], 0), write_letters([]), write_records([]), write_tools([])):
        assert document["items"] == []
        assert document["total"] == 0
    assert write_runs([succeeded().row()], 143)["total"] == 143


def test_a_dead_letter_has_its_history() -> None:
    """The document of a dead letter has key, arguments and every record of its step, both ways."""
    stage = undo_failed()
    letter = write_letter(stage.saga, stage.state, stage.letters()[0], stage.stored)["dead_letter"]
    assert isinstance(letter, dict)
    assert letter["idempotency_key"] == f"{RUN_ID}/deposit/compensation"
    assert letter["arguments"] == {"charge_id": "ch_8f2"}
    records = letter["records"]
    assert isinstance(records, list)
    assert [each["type"] for each in records if isinstance(each, dict)] == [
        "intent", "outcome", "intent", "outcome", "decision",
    ]  # fmt: skip


def test_doubt_is_told_in_json() -> None:
    """A dead letter in doubt says so, not only by its reason."""
    stage = in_doubt()
    letter = write_letter(stage.saga, stage.state, stage.letters()[0], stage.stored)["dead_letter"]
    assert isinstance(letter, dict)
    assert letter["in_doubt"] is True


def test_errors_have_code_hint_and_exit() -> None:
    """An error is a document of its own, and under the schema of a run it says that there is no run."""
    error = BusyError("run 7kq2m9 is driven by pid 12 on worker-2", hint="sagactl show 7kq2m9")
    assert write_error(error, schema=RUN_SCHEMA) == {
        "schema": "sagactl.run/1",
        "run": None,
        "error": {"code": "busy", "message": error.message, "hint": error.hint, "exit": 5},
    }
    assert "run" not in write_error(error)


def test_errors_of_files_say_where() -> None:
    """F5: an error with problems names file, line and column of the first, and lists all."""
    error = InvalidError("two errors")
    problems = [PlainProblem("deprecated", "old", severity="warning", line=2), PlainProblem("unknown-tool", "no tool")]
    error.problems = problems  # type: ignore[attr-defined]
    body = write_error(error)["error"]
    assert isinstance(body, dict)
    assert (body["file"], body["line"], body["column"]) == ("sagas/onboarding.yaml", 8, 11)
    listed = write_problems(problems, files=1)
    assert (listed["ok"], listed["total"]) == (False, 2)
    assert listed["items"] == body["problems"]
    assert write_problems([PlainProblem("x", "y", line=0)], files=1)["items"] == [
        {"code": "x", "severity": "error", "message": "y", "hint": None, "file": "sagas/onboarding.yaml",
         "line": None, "column": None, "end_column": None},
    ]  # fmt: skip


def test_the_other_documents_are_json() -> None:
    """Tools, verification, sandbox and what was printed have documents too."""
    verification = Verification(1, 2, {RUN_ID: "ab"}, (Finding(RUN_ID, None, "gone"),))
    stage = succeeded()
    operation = stage.state.touched[0]
    run = json.loads(spell(write_run(stage.saga, stage.state, captured=[Captured(operation, 1, "hello")])))["run"]
    assert run["captured"][0]["text"] == "hello"
    assert json.loads(spell(write_verification(verification)))["ok"] is False
    assert json.loads(spell(write_tools(TOOL_ROWS, BROKEN)))["broken"][1]["line"] is None
    assert json.loads(spell(write_tool(TOOL_ROWS[0])))["tool"]["key_retention_ms"] == 86_400_000
    assert json.loads(spell(write_sandbox(SYSTEMS, LEDGER), indent=2))["ledger"][1]["effect"] == "charged"
