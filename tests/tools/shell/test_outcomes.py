"""What a command's end comes to, and what becomes of its output (E3)."""

from __future__ import annotations

import os
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from sagactl.core.answer import Answer
from sagactl.core.canonical import Json
from sagactl.core.records import Direction, Operation, OutcomeKind, ProbeAnswer
from sagactl.core.tracing import call_span_id, write_traceparent
from sagactl.tools.shell.reading import OUTPUT_BYTES_MAX, TEXT_BYTES_MAX
from sagactl.tools.shell.request import ARGUMENTS_MAX, COMMAND_BYTES_MAX
from tests.tools.shell.commands import Commands, message_of, word_of

TOOLS = {"shell.run", "shell.run_idempotent", "shell.run_probed", "shell.undo", "shell.probe"}


def test_the_promises_of_each_tool_stand_in_its_facts(commands: Commands) -> None:
    """F4: which command may be repeated, probed, or called without an output is said by the tool that a step names."""
    facts = {name: commands.registry.facts_of(name) for name in commands.registry.names()}
    assert set(facts) == TOOLS | {"time.sleep", "time.until"}
    assert not commands.registry.broken
    assert {name for name in TOOLS if facts[name].idempotent} == TOOLS - {"shell.run", "shell.run_probed"}
    assert {name for name in TOOLS if facts[name].null_safe} == {"shell.undo"}
    assert {name: facts[name].probe for name in TOOLS if facts[name].probe} == {"shell.run_probed": "shell.probe"}
    assert {name for name in facts if facts[name].read_only} == {"shell.probe", "time.sleep", "time.until"}


@pytest.mark.parametrize(
    ("code", "lists", "expected"),
    [
        (0, {}, ("succeeded", "")),
        (1, {}, ("unknown", "exit_1")),
        (127, {}, ("unknown", "exit_127")),
        (75, {}, ("unavailable", "exit_75")),
        (75, {"unavailable_exit_codes": []}, ("unknown", "exit_75")),
        (3, {"unavailable_exit_codes": [3]}, ("unavailable", "exit_3")),
        (2, {"rejected_exit_codes": [1, 2]}, ("rejected", "exit_2")),
        (200, {"rejected_exit_codes": "all"}, ("rejected", "exit_200")),
        (75, {"rejected_exit_codes": "all"}, ("unavailable", "exit_75")),
    ],
)
def test_an_exit_code_means_what_the_step_says(
    commands: Commands, code: int, lists: dict[str, Json], expected: tuple[str, str]
) -> None:
    """E3: a code tells nothing about effects, so one that isn't listed is unknown; 75 is the one convention."""
    assert word_of(commands.script(f"exit {code}", **lists)) == expected


def test_an_unknown_code_is_told_with_the_last_lines_and_the_way_to_declare_it(commands: Commands) -> None:
    """E3: the message has what the program said last, tamed and on one line, and says what can be declared."""
    answer = commands.script(r"echo first >&2; printf 'no \033[31mroute\n\n' >&2; exit 4", shell=["bash", "-c"])
    assert message_of(answer) == (
        r"bash exited with 4: first / no \x1b[31mroute (if 4 means that nothing was done, say rejected_exit_codes: [4])"
    )
    assert len(message_of(commands.script("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 4"))) <= 500


def test_a_cut_goes_through_no_word_and_no_line(commands: Commands) -> None:
    """E19: secrets are masked where they stand whole, so nothing is cut in the midst of one."""
    secret = "s3cret-" * 20
    answer = commands.script(
        'i=0; while [ $i -lt 60 ]; do printf "%s " "$A" >&2; i=$((i+1)); done; exit 4', env={"A": secret}
    )
    shown = message_of(answer).split(" (if")[0].removeprefix("/bin/sh exited with 4: ... ")
    assert set(shown.split()) == {secret}
    program = f"print(('{secret}' + chr(10)) * 1000)"
    output = commands.run(sys.executable, "-c", program).output
    assert isinstance(output, str)
    assert set(output.splitlines()[1:]) == {secret}


def test_a_signal_is_unknown(commands: Commands) -> None:
    """E3: whoever was killed may have done anything before."""
    assert word_of(commands.script("kill -9 $$")) == ("unknown", "sigkill")


def test_a_command_that_can_not_be_started_is_rejected(commands: Commands, tmp_path: Path) -> None:
    """E3: where our own exec failed nothing happened, and trying again is no use."""
    (tmp_path / "plain").write_text("no program")
    answer = commands.run("no-such-program")
    assert word_of(answer) == ("rejected", "command_not_found")
    assert message_of(answer) == "no-such-program can't be run: No such file or directory"
    assert word_of(commands.run("./plain")) == ("rejected", "command_not_allowed")
    assert word_of(commands.run("true", cwd="nowhere")) == ("rejected", "folder_not_found")


@pytest.mark.parametrize(
    "arguments",
    [
        {"argv": ["true"], "script": "true"},
        {},
        {"argv": ["true"], "shell": ["sh", "-c"]},
        {"argv": [""]},
        {"argv": ["echo", "a\0b"]},
        {"argv": ["true"], "env": {"SAGACTL_STEP": "mine"}},
        {"argv": ["true"], "env": {"A=B": "c"}},
        {"argv": ["echo", *["x" * 65_000] * (COMMAND_BYTES_MAX // 65_000 + 1)]},
    ],
)
def test_what_no_command_can_be_made_of_is_rejected(commands: Commands, arguments: dict[str, Json]) -> None:
    """E3: nothing was run, and it is said why."""
    answer = commands.toolbox.call(commands.make("shell.run", arguments))
    assert answer.kind is OutcomeKind.REJECTED, answer


def test_limits_stand_in_the_schema(commands: Commands) -> None:
    """F5: more words than a command may have are an error before anything is called."""
    facts = commands.registry.facts_of("shell.run")
    assert commands.toolbox.check_arguments(facts, {"argv": ["x"] * ARGUMENTS_MAX}) is None
    assert commands.toolbox.check_arguments(facts, {"argv": ["x"] * (ARGUMENTS_MAX + 1)}) is not None
    assert commands.toolbox.check_arguments(facts, {"argv": []}) is not None
    assert commands.toolbox.check_arguments(facts, {"argv": ["x"], "rejected_exit_codes": [0]}) is not None
    objection = commands.toolbox.check_arguments(facts, {"argv": ["x"], "env": {"A": ["12345"]}})
    assert objection is not None
    assert "12345" not in objection
    assert commands.toolbox.check_arguments(facts, {"argv": ["x", True]}) is not None
    assert commands.toolbox.check_arguments(facts, {"argv": ["x", Decimal("1.5")]}) is not None


def test_an_integer_is_a_word(commands: Commands) -> None:
    """F2: a whole number has one spelling, so it needs no quotes; fractions, booleans and null have several."""
    given: dict[str, Json] = {"argv": ["sh", "-c", 'echo "$1 $A"', "sh", 10**20], "env": {"A": -7}}
    assert commands.toolbox.check_arguments(commands.registry.facts_of("shell.run"), given) is None
    answer = commands.toolbox.call(commands.make("shell.run", given))
    assert answer.output == "100000000000000000000 -7"


def test_text_is_what_stdout_holds_without_the_last_newlines(commands: Commands) -> None:
    """The output of a step is a string, as `$(...)` gives it; what isn't UTF-8 is shown as such."""
    assert commands.script("echo ' two\nlines '; echo").output == " two\nlines "
    assert commands.run("printf", r"\377x").output == "�x"
    assert commands.run("echo", "hidden", output="none").output is None


def test_text_keeps_its_end_and_says_what_was_cut(commands: Commands) -> None:
    """A command that writes a lot succeeds all the same; the end of it is the output."""
    answer = commands.run(sys.executable, "-c", "print('x' * 3_000_000 + 'end')")
    assert answer.kind is OutcomeKind.SUCCEEDED
    assert isinstance(answer.output, str)
    assert answer.output.startswith(f"[{3_000_004 - TEXT_BYTES_MAX} bytes cut]\nxxx")
    assert answer.output.endswith("xend")


def test_json_is_exact(commands: Commands) -> None:
    """F2: integers of any size and decimals come out as they were written."""
    written = '{"a": 12e9, "b": [1.10, 123456789012345678901234567890], "c": null}'
    answer = commands.run("printf", "%s", written, output="json")
    assert answer.output == {"a": Decimal("12e9"), "b": [Decimal("1.10"), 123456789012345678901234567890], "c": None}


@pytest.mark.parametrize(
    "written",
    [
        "NaN",
        '{"a": Infinity}',
        '{"a": 1, "a": 2}',
        "",
        "hello",
        "1 2",
        "[1,]",
        "[" * 100 + "]" * 100,
        "1e99999",
        '"\\ud800"',
    ],
)
def test_what_is_no_strict_json_is_unknown_and_kept(commands: Commands, written: str) -> None:
    """E3: the command has run, so a stdout that can't be taken leaves doubt; what came is kept for a compensation."""
    answer = commands.run("printf", "%s", written, output="json")
    assert word_of(answer) == ("unknown", "bad_output")
    assert answer.raw == written


def test_json_that_is_too_large_is_unknown(commands: Commands) -> None:
    """E3: nothing larger than a payload is taken, and the command isn't held up by it."""
    answer = commands.run(sys.executable, "-c", f"print('\"' + 'x' * {OUTPUT_BYTES_MAX} + '\"')", output="json")
    assert word_of(answer) == ("unknown", "bad_output")
    assert isinstance(answer.raw, str)
    assert len(answer.raw) <= TEXT_BYTES_MAX


@pytest.mark.parametrize(
    ("stdin", "expected"), [("text\n", "text"), ({"b": 1, "a": [Decimal("0.10")]}, '{"a":[0.10],"b":1}'), (None, "")]
)
def test_stdin_is_text_or_json(commands: Commands, stdin: Json, expected: str) -> None:
    """A text comes as it is, anything else as JSON, and nothing where nothing is given."""
    assert commands.run("cat", stdin=stdin).output == expected


def test_a_stdin_that_nobody_reads_holds_nothing_up(commands: Commands) -> None:
    """What a command reads lies in memory, so nobody waits to hand it over."""
    assert commands.run("true", stdin="x" * 1_000_000).kind is OutcomeKind.SUCCEEDED


def _environment(answer: Answer) -> dict[str, str]:
    assert isinstance(answer.output, str)
    return dict(line.split("=", 1) for line in answer.output.splitlines() if "=" in line)


def test_the_environment_is_a_known_base_and_what_the_step_gives(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret of sagactl's own environment doesn't get to a command unless the step names it."""
    monkeypatch.setenv("PASSED", "p")
    monkeypatch.setenv("KEPT", "k")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    seen = _environment(commands.run("env", env={"GIVEN": "a b\nc", "HOME": "/elsewhere"}, pass_env=["PASSED"]))
    assert (seen["PASSED"], seen["GIVEN"], seen["HOME"], seen["LC_ALL"]) == ("p", "a b", "/elsewhere", "C.UTF-8")
    assert "KEPT" not in seen
    known = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"}
    mine = {"PASSED", "GIVEN", "TRACEPARENT"}
    assert {name for name in seen if not name.startswith(("LC_", "SAGACTL_"))} <= known | mine


def test_a_passed_variable_that_is_not_set_means_try_later(commands: Commands) -> None:
    """E3: nothing was run, and whoever resumes may have the variable."""
    assert word_of(commands.run("true", pass_env=["SURELY_NOT_SET"])) == ("unavailable", "missing_variable")


def test_a_command_knows_its_call(commands: Commands, tmp_path: Path) -> None:
    """E8: the keys, the attempt and the place of the call are in its environment, and it runs in the project."""
    seen = _environment(commands.run("env"))
    told = {name.removeprefix("SAGACTL_"): value for name, value in seen.items() if name.startswith("SAGACTL_")}
    assert len(told.pop("CALL")) == 32
    assert told == {
        "RUN_ID": "run2345678abc",
        "STEP": "deposit",
        "DIRECTION": "action",
        "ATTEMPT": "1",
        "IDEMPOTENCY_KEY": "run2345678abc/deposit/action",
        "FORWARD_KEY": "run2345678abc/deposit/action",
        "PROJECT": str(tmp_path),
    }
    (tmp_path / "sub").mkdir()
    assert commands.run("pwd").output == os.path.realpath(tmp_path)
    assert commands.run("pwd", cwd="sub").output == os.path.realpath(tmp_path / "sub")


def test_a_command_knows_its_place_in_the_trace_unless_the_step_says_another(commands: Commands) -> None:
    """What a command sends to a collector itself joins the trace of the run: `TRACEPARENT` is its own call's."""
    operation = Operation("deposit", None, Direction.ACTION)
    mine = write_traceparent("run2345678abc", call_span_id("run2345678abc", operation, 1))
    assert _environment(commands.run("env"))["TRACEPARENT"] == mine
    assert _environment(commands.run("env", env={"TRACEPARENT": "x"}))["TRACEPARENT"] == "x"


def test_a_script_stops_at_the_first_failure(commands: Commands) -> None:
    """The shell is `/bin/sh -eu`: what comes after a failing line, or an unset variable, isn't run."""
    assert commands.script("false; echo on").kind is OutcomeKind.UNKNOWN
    assert commands.script("echo $UNSET_IN_HERE; echo on").kind is OutcomeKind.UNKNOWN
    assert commands.script('echo "$0 $A"', shell=["bash", "-c"], env={"A": "$(id)"}).output == "bash $(id)"


def test_what_a_command_writes_is_kept_with_the_call(commands: Commands) -> None:
    """Both streams are kept as they come, whatever the output is."""
    answer = commands.script("echo out; sleep 0.1; echo err >&2; sleep 0.1; echo more", output="none")
    assert answer.printed == "out\nerr\nmore\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo found", ProbeAnswer.DONE),
        ("exit 1", ProbeAnswer.NOT_DONE),
        ("exit 4", ProbeAnswer.NOT_DONE),
        ("exit 2", ProbeAnswer.CANNOT_TELL),
        ("exit 75", ProbeAnswer.CANNOT_TELL),
        ("kill -9 $$", ProbeAnswer.CANNOT_TELL),
    ],
)
def test_a_probe_answers_by_its_exit_code(commands: Commands, script: str, expected: ProbeAnswer) -> None:
    """E6: 0 is done, a listed code not done, and its own failure means that it can't tell."""
    reply = commands.probe("sh", "-c", script, not_done_exit_codes=[1, 4])
    assert reply.answer is expected
    assert reply.output == ("found" if expected is ProbeAnswer.DONE else None)


def test_a_probe_that_can_not_be_run_can_not_tell(commands: Commands) -> None:
    """E6: that a program isn't there says nothing about what it was to look for."""
    assert commands.probe("no-such-program", not_done_exit_codes=[1]).answer is ProbeAnswer.CANNOT_TELL


def test_a_probe_is_asked_in_the_place_of_its_command(commands: Commands) -> None:
    """E6: it gets those of the command's arguments that say where, and the output is read alike."""
    reply = commands.probe(
        "sh", "-c", 'echo "{\\"a\\": \\"$A\\"}"', not_done_exit_codes=[1], env={"A": "b"}, output="json"
    )
    assert reply.output == {"a": "b"}
