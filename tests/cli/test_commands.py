"""The command line as a script sees it: exit codes, streams, one JSON value, selectors, and every state x command."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.project import WAIT_SECONDS, Project, Result

ASK = ("run", "onboarding", "-i", "amount:=4900")
ADA = (*ASK, "-i", "email=ada@example.com")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with the shipped plugins and sagas."""
    return Project.make(tmp_path)


def _error(result: Result) -> str:
    """Return the code of the error that stdout's one JSON value carries."""
    code: str = json.loads(result.out)["error"]["code"]
    return code


@pytest.mark.parametrize(
    ("options", "code", "status"),
    [
        ((), 0, "succeeded"),
        (("-i", "card=declined"), 10, "rolled_back"),
        (("-i", "card=limbo"), 11, "stuck"),
        (("-i", "card=flaky", "--no-wait"), 12, "waiting"),
    ],
)
def test_the_exit_code_says_what_became_of_the_run(
    project: Project, options: tuple[str, ...], code: int, status: str
) -> None:
    """Section 6: 0, 10, 11 and 12 tell the end apart, and stdout is exactly one JSON value that agrees."""
    result = project.run(*ADA, *options, "-o", "json")
    assert (result.code, result.json["run"]["status"]) == (code, status)
    assert result.json["schema"] == "sagactl.run/1"
    assert result.json["error"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("run", "nosuch"), 4, "no-such-saga"),
        (("run", "onboarding", "-i", "email=ada@example.com"), 3, "invalid-input"),
        (("run", "onboarding", "-i", "email"), 2, "bad-input"),
        (("run", "onboarding", "-i", "amount:={", "-i", "email=a@b.c"), 3, "invalid-input"),
        ((*ADA, "-i", "colour=red"), 3, "invalid-input"),
        (("run", "onboarding", "-i", "email=a@b.cc", "-i", "amount=4900"), 3, "invalid-input"),
        ((*ADA, "--log", "plugins"), 1, "unsafe-path"),
        ((*ADA, "--log", "ftp://x"), 3, "invalid-config"),
        (("show", "zzzzzz"), 4, "no-such-run"),
        (("show", "../x"), 4, "no-such-run"),
        (("resume", "@latest"), 2, "usage"),
        (("resume",), 2, "usage"),
        (("list", "--status", "lost"), 2, "bad-status"),
        (("list", "--nosuch"), 2, "usage"),
        (("nosuch",), 2, "usage"),
        (("list", "--nosuch", "-o", "json"), 2, "usage"),
        ((*ADA, "-i", "amount:=1", "-i", "amount:=2"), 2, "bad-input"),
        ((*ADA, "--idempotency-key", ""), 3, "bad-key"),
        (("terminate", "abc"), 2, "usage"),
        (("help", "nosuch"), 4, "no-such-topic"),
        (("help", "run"), 4, "no-such-topic"),
        (("help", "tools", "pin"), 4, "no-such-topic"),
        (("tools", "no.such"), 4, "missing-tool"),
    ],
)
def test_every_failure_has_its_code_and_one_json_value(
    project: Project, arguments: tuple[str, ...], code: int, word: str
) -> None:
    """Section 6: what sagactl itself can't do ends with 1 to 6, in two lines on stderr and one value on stdout."""
    assert project.run(*ADA, "-q").code == 0
    result = project.run("-o", "json", *arguments)
    assert (result.code, _error(result)) == (code, word), result.err
    assert "Traceback" not in result.err
    text = project.run(*(argument for argument in arguments if argument not in {"-o", "json"}))
    assert text.out == ""
    assert text.err.startswith("error[")


def test_whoever_takes_a_command_for_a_topic_is_shown_its_help(project: Project) -> None:
    """A hint is a command that works as printed: here the help of that command, not the list of topics."""
    assert "hint: sagactl run --help" in project.run("help", "run").err
    assert project.run("run", "--help").code == 0


def test_whoever_does_not_say_how_to_settle_a_letter_is_shown_the_ways(project: Project) -> None:
    """E23: the hint, typed as printed, shows each way as a whole command."""
    stuck = project.run("run", "onboarding", "-i", "email=eve@example.com", "-i", "amount:=1", "-i", "card=limbo", "-q")
    assert stuck.code == 11
    run = project.run("list", "--ids").out.strip()
    for given in ((), ("--done",), ("--done", "--skip", "--reason", "x")):
        refused = project.run("dlq", "resolve", run, "deposit", *given)
        assert (refused.code, f"hint: sagactl dlq show {run} deposit" in refused.err) == (2, True), refused.err
    assert f"sagactl dlq resolve {run[:6]} deposit --done" in project.run("dlq", "show", run, "deposit").out


def test_progress_goes_to_stderr_and_the_answer_to_stdout(project: Project) -> None:
    """Decision: stdout carries the answer alone, also where tools print; -q silences progress, twice the report."""
    loud, quiet, silent = (project.run(*ADA, *options) for options in ((), ("-q",), ("-qq",)))
    assert loud.out.startswith("✓ onboarding")
    assert " ok     lead " in loud.err
    assert (quiet.out != "", silent.out) == (True, "")
    assert project.run("show", "-q").out != ""


def test_a_second_run_with_the_same_key_is_the_same_run(project: Project) -> None:
    """E8: a second `run` returns the first one's outcome without a call; other input is refused; rollback frees it."""
    first = project.run(*ADA, "-q", "-o", "json")
    calls = len(project.witness())
    again = project.run(*ADA, "-o", "json")
    assert again.json["run"]["id"] == first.json["run"]["id"]
    assert len(project.witness()) == calls
    other = project.run("run", "onboarding", "-i", "email=ada@example.com", "-i", "amount:=1", "-o", "json")
    assert (other.code, _error(other)) == (6, "key-taken")
    bob = ("-i", "email=bob@example.com", "-i", "card=declined")
    codes = [project.run(*ASK, *bob, "-q", "-o", "json") for _ in range(2)]
    assert [result.code for result in codes] == [10, 10]
    assert codes[0].json["run"]["id"] != codes[1].json["run"]["id"]


def test_an_explicit_key_stays_taken_after_a_rollback(project: Project) -> None:
    """E8: a run that was rolled back gives a `run_key` free again, an explicit key not."""
    command = (*ASK, "-i", "email=bob@example.com", "-i", "card=declined", "--idempotency-key", "k1", "-o", "json")
    first, second = project.run(*command), project.run(*command)
    assert (first.code, second.code) == (10, 10)
    assert first.json["run"]["id"] == second.json["run"]["id"]


def test_a_changed_definition_is_named_in_a_warning(project: Project) -> None:
    """E8: the same key with a changed saga shows the run as it is, and warns."""
    assert project.run(*ADA, "-q").code == 0
    saga = project.path / "sagas" / "onboarding.yaml"
    saga.write_text(saga.read_text().replace("template: welcome", "template: hello"))
    again = project.run(*ADA)
    assert "another definition" in again.err
    assert again.code == 0


def test_runs_are_found_by_prefix_and_by_latest(project: Project) -> None:
    """Section 6: a unique prefix, @latest and @latest:SAGA; what is printed is accepted."""
    project.run(*ADA, "-q")
    project.run("run", "diamond", "-q", "-i", "email=ada@example.com")
    ids = project.run("list", "--ids").out.split()
    prefix, latest, of_saga, unknown = project.run_several(
        ["show", ids[1][:6], "-o", "json"],
        ["show", "@latest", "-o", "json"],
        ["show", "@latest:onboarding", "-o", "json"],
        ["show", "@latest:nosuch"],
    )
    assert [result.json["run"]["id"] for result in (prefix, latest, of_saga)] == [ids[1], ids[0], ids[1]]
    assert unknown.code == 4


def test_the_empty_project_has_an_empty_list(project: Project) -> None:
    """Section 6: no runs is an empty list and exit 0, never an error; reading makes no log."""
    as_json, as_text = project.run("list", "-o", "json"), project.run("list")
    assert (as_json.code, as_json.json["items"], as_json.json["total"]) == (0, [], 0)
    assert as_text.code == 0
    assert not (project.path / ".sagactl" / "log.db").exists()


def test_looking_changes_nothing(project: Project) -> None:
    """Scenario B87: commands that only look leave every byte of the log as it is, and call nothing."""
    project.run(*ADA, "-q", "-i", "card=limbo")
    log = project.path / ".sagactl" / "log.db"
    before, calls = log.read_bytes(), len(project.witness())
    looks = (["list"], ["show"], ["log"], ["log", "--detail"], ["dlq", "list"], ["dlq", "show", "@latest"], ["tools"])
    for result in project.run_several(*looks, ["validate"], ["verify"], ["schema"], ["help", "semantics"]):
        assert result.code == 0
    assert log.read_bytes() == before
    assert len(project.witness()) == calls


def test_every_record_is_given_as_json_lines(project: Project) -> None:
    """`log -o jsonl` gives every record, in order and without a gap; `run -o jsonl` ends with the result."""
    streamed = [json.loads(line) for line in project.run(*ADA, "-q", "-o", "jsonl").out.splitlines()]
    logged = [json.loads(line) for line in project.run("log", "-o", "jsonl").out.splitlines()]
    assert [record["seq"] for record in logged] == list(range(1, len(logged) + 1))
    assert streamed[:-1] == logged
    assert streamed[-1]["run"]["status"] == "succeeded"


def test_a_stuck_run_stays_stuck_until_a_person_decides(project: Project) -> None:
    """E23: resume without a decision calls nothing and ends with 11; retry, resolve and abandon carry the run on."""
    project.run(*ASK, "-q", "-i", "email=refuses@example.com", "-i", "card=unrefundable")
    run_id = project.latest()["id"]
    calls = len(project.witness())
    assert project.run("resume", run_id, "-q").code == 11
    assert len(project.witness()) == calls
    assert project.run("dlq", "retry", run_id, "-q", "--reason", "again").code == 11
    assert project.run("dlq", "resolve", run_id, "deposit", "--skip", "--reason", "x", "-q").code == 6
    assert project.run("dlq", "resolve", run_id, "deposit", "--abandon", "-q").code == 2
    ended = project.run("dlq", "resolve", run_id, "deposit", "--abandon", "--reason", "a gift", "-q", "-o", "json")
    assert (ended.code, ended.json["run"]["status"]) == (13, "terminated")
    assert [left["step"] for left in ended.json["run"]["not_undone"]] == ["deposit"]
    records = [json.loads(line) for line in project.run("log", "-o", "jsonl").out.splitlines()]
    asked = [r["body"]["disposition"] for r in records if r["type"] == "operator"]
    assert asked == ["accepted", "refused", "accepted"]


def test_a_person_says_that_an_action_in_doubt_happened(project: Project) -> None:
    """E23: `--done --output JSON` is checked against the tool's output and the run goes on with it."""
    project.run(*ADA, "-q", "-i", "card=limbo")
    run_id = project.latest()["id"]
    command = ("dlq", "resolve", run_id, "deposit", "--done", "--reason", "seen", "-q", "-o", "json")
    assert _error(project.run(*command, "--output", '{"charge_id": 1}')) == "invalid-input"
    done = project.run(*command, "--output", '{"charge_id": "ch_1", "amount": 4900}')
    assert (done.code, done.json["run"]["status"]) == (0, "succeeded")


def test_no_resume_only_records_the_decision(project: Project) -> None:
    """E23: with `--no-resume` the decision is durable and nothing is called."""
    project.run(*ADA, "-q", "-i", "card=limbo")
    run_id = project.latest()["id"]
    calls = len(project.witness())
    result = project.run("dlq", "resolve", run_id, "--not-done", "--reason", "x", "--no-resume", "-q")
    assert result.code == 0
    assert len(project.witness()) == calls
    assert project.run("resume", run_id, "-q").code == 10


STATES = {
    "succeeded": (*ASK, "-q", "-i", "email=ada@example.com"),
    "rolled_back": (*ASK, "-q", "-i", "email=ada@example.com", "-i", "card=declined"),
    "stuck": (*ASK, "-q", "-i", "email=ada@example.com", "-i", "card=limbo"),
    "waiting": (*ASK, "-q", "-i", "email=ada@example.com", "-i", "card=flaky", "--no-wait"),
}
COMMANDS = {
    "resume": {"succeeded": 0, "rolled_back": 10, "stuck": 11, "waiting": 0},
    "cancel": {"succeeded": 6, "rolled_back": 6, "stuck": 0, "waiting": 0},
    "terminate": {"succeeded": 6, "rolled_back": 6, "stuck": 0, "waiting": 0},
    "rollback": {"succeeded": 6, "rolled_back": 6, "stuck": 0, "waiting": 0},
    "retry": {"succeeded": 6, "rolled_back": 6, "stuck": 11, "waiting": 6},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_state_answers_every_command(project: Project, state: str, command: str) -> None:
    """E22, scenario B97: allowed or refused with a reason, never a traceback, and refusals are recorded."""
    project.run(*STATES[state])
    run = project.latest()
    assert run["status"] == state
    arguments = {
        "resume": ("resume", run["id"]),
        "cancel": ("cancel", run["id"]),
        "terminate": ("terminate", run["id"], "--reason", "x"),
        "rollback": ("rollback", run["id"], "--yes"),
        "retry": ("dlq", "retry", run["id"]),
    }[command]
    result = project.run(*arguments, "-q", "-o", "json")
    assert result.code == COMMANDS[command][state], result.err
    assert "Traceback" not in result.err
    assert json.loads(result.out)
    if result.code == 6:
        records = [json.loads(line) for line in project.run("log", "-o", "jsonl").out.splitlines()]
        assert records[-1]["body"]["disposition"] == "refused", "a run isn't driven on by what was refused"


def test_a_rollback_of_what_succeeded_asks_first(project: Project) -> None:
    """Section 6: without a terminal nobody is asked: exit 2, and the option that answers."""
    project.run(*ADA, "-q")
    run_id = project.latest()["id"]
    assert project.run("rollback", run_id).code == 6, "it would be refused, so nobody is asked"
    assert project.run("rollback", run_id, "--yes", "--past-pivot").code == 2
    asked = project.run("rollback", run_id, "--past-pivot", "--reason", "void")
    assert (asked.code, "with 2 calls" in asked.err) == (2, True)
    hint = asked.err.strip().splitlines()[-1].removeprefix("hint: sagactl ")
    done = project.run(*shlex.split(hint), "-q", "-o", "json")
    assert (done.code, done.json["run"]["status"]) == (0, "rolled_back")
    assert {left["step"] for left in done.json["run"]["not_undone"]} == {"contract", "welcome"}


@pytest.mark.parametrize("options", [("-i", "card=declined"), ("-i", "card=limbo"), ("--no-wait", "-i", "card=flaky")])
def test_every_hint_works_as_printed(project: Project, options: tuple[str, ...]) -> None:
    """Every hint of a report is a command that can be pasted."""
    result = project.run(*ADA, *options)
    hints = re.findall(r"^hint: (sagactl .*)$", result.out, re.MULTILINE)
    assert hints
    looks = [shlex.split(hint)[1:] for hint in hints if " rollback " not in hint and " resume " not in hint]
    for line, looked in zip(looks, project.run_several(*looks), strict=True):
        assert looked.code == 0, line


def test_a_broken_pipe_changes_nothing_about_the_run(project: Project) -> None:
    """Scenario B79: who reads stdout may go away; the run ends as it would."""
    process = project.start(*ADA, "-o", "jsonl")
    assert process.stdout is not None
    process.stdout.close()
    process.communicate(timeout=WAIT_SECONDS)
    assert project.latest()["status"] == "succeeded"


def test_ascii_terminals_get_ascii(project: Project) -> None:
    """Scenario B83: a stream that can't hold our symbols gets plain ones; exit and run are as ever."""
    result = project.run(*ADA, extra={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert result.code == 0
    assert result.out.isascii()
    assert result.out.startswith("ok onboarding")


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_streams_are_no_trouble(project: Project, closed: str) -> None:
    """Scenario B79: whoever closes our streams gets no answer there; run, log and exit code are right."""
    command = f"exec {sys.executable} -m sagactl {shlex.join(ADA)} {closed}"
    done = subprocess.run(["bash", "-c", command], cwd=project.path, env=project.environment(), check=False)
    assert done.returncode == 0
    assert project.latest()["status"] == "succeeded"
    assert project.run("verify").code == 0


def test_a_stream_that_breaks_never_changes_a_run(project: Project) -> None:
    """Scenario B79, E18: a reader that goes away, or a full disk behind a stream, is no trouble of a run."""
    for number, sink in enumerate(("2> >(head -1 >/dev/null)", "2>/dev/full", ">/dev/full", "2>&1 | head -1")):
        command = shlex.join([sys.executable, "-m", "sagactl", *ASK, "-i", f"email=a{number}@example.com"])
        whole = f"set -o pipefail; {command} -o jsonl {sink}"
        done = subprocess.run(
            ["bash", "-c", whole], cwd=project.path, env=project.environment(), check=False, capture_output=True
        )
        assert (done.returncode, project.latest()["status"]) == (0, "succeeded"), sink
        assert b"Traceback" not in done.stderr


def test_a_mistyped_log_or_step_is_no_empty_answer(project: Project) -> None:
    """Section 6: what was named and isn't there is exit 4, not an empty list."""
    project.run(*ADA, "-q")
    assert project.run("list", "--log", "typo.db").code == 4
    assert project.run("log", "--step", "nosuch").code == 4
    assert project.run("log", "--step", "servers").code == 0


def test_a_saga_that_needs_a_broken_plugin_is_told_what_is_broken(project: Project) -> None:
    """Scenario B75: one broken plugin costs only the sagas that need it, and they name plugin, file and line."""
    (project.path / "plugins" / "parking.py").write_text("def reserve(:\n")
    (project.path / "sagas" / "parking.yaml").write_text(
        "saga: parking\nsteps:\n  - {id: a, tool: parking.reserve, read_only: true}\n"
    )
    refused, listed, ran = project.run("validate", "parking"), project.run("tools"), project.run(*ADA, "-q")
    assert refused.code == 3
    assert "parking.py:1" in refused.out + refused.err
    assert "parking.py:1" in listed.out
    assert ran.code == 0


@pytest.mark.parametrize(
    "command", [("list",), ("show",), ("log", "-o", "jsonl"), ("tools", "-o", "json"), ("schema",)]
)
def test_an_answer_that_a_full_disk_swallows_is_no_success(project: Project, command: tuple[str, ...]) -> None:
    """Section 6: 1 where sagactl could not do it, and the answer is what it was asked for; stderr says why."""
    assert project.run(*ADA, "-q").code == 0
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sagactl", *command],
            cwd=project.path,
            env=project.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "the answer can't be written: No space left on device" in done.stderr


def test_a_refused_request_is_no_reason_to_carry_a_run_on(project: Project) -> None:
    """E22: the refusal is recorded, and not one call more is made."""
    result = project.run(*ASK, "-i", "email=offline@example.com", "--no-wait", "-o", "json")
    assert result.code == 12
    run_id = result.json["run"]["id"]
    calls = len((project.path / "witness.jsonl").read_text().splitlines())
    refused = project.run("cancel", run_id, "-o", "json")
    assert (refused.code, refused.json["error"]["code"]) == (6, "refused")
    assert len((project.path / "witness.jsonl").read_text().splitlines()) == calls
    assert '"disposition": "refused"' in project.run("log", run_id, "-o", "jsonl").out


@pytest.mark.parametrize("text", ["", " \n", "# nothing\n", "{", "- : ["])
def test_inputs_that_are_none_are_named_as_what_they_are(project: Project, text: str) -> None:
    """F5: what `--inputs` can't use is an error of the input, which names where it came from, and calls nothing."""
    file = project.path / "input.yaml"
    file.write_text(text)
    answers = [("input.yaml", project.run("run", "onboarding", "--inputs", "input.yaml", "-o", "json"))]
    if not text:
        answers.append(("stdin", project.run("run", "onboarding", "--inputs", "-", "-o", "json")))
    for name, result in answers:
        assert (result.code, result.json["error"]["code"]) == (3, "invalid-input")
        assert name in result.json["error"]["message"]
    assert project.run("list", "--ids").out.split() == []
