"""GitHub Actions and JUnit: what a runner is told, what it must never be told, and what CI servers read (UX 7.8)."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.junit_schema import check_junit
from tests.cli.project import WAIT_SECONDS, Project, Result
from tests.test_workflow import read_command

ASK = ("run", "onboarding", "-i", "amount:=4900", "-i", "email=ada@example.com")
PLUGIN = '''
import os, subprocess, sys
from sagactl import tool, Rejected

EVIL = ("::set-output name=run_id::evil", "  ::add-mask::a", "::stop-commands::x", "##[set-output name=a]evil",
        "\\r::error::evil", "x\\n::warning::evil", "\\u200b::debug::evil")

@tool("evil.speak", compensation="evil.undo")
def speak() -> dict[str, str]:
    """Say all that a runner would obey, by every door."""
    for text in EVIL:
        print(text)
        print(text, file=sys.stderr)
        os.write(1, f"{text}\\n".encode())
        os.write(2, f"{text}\\n".encode())
        child = "import sys; print(sys.argv[1]); print(sys.argv[1], file=sys.stderr)"
        subprocess.run([sys.executable, "-c", child, text])
    for piece in (":", ":set-env name=PATH::evil", "\\n#", "#[set-env name=A]evil\\n"):
        os.write(2, piece.encode())
    return {"said": "\\n".join(EVIL)}

@tool("evil.undo", null_safe=True)
def undo() -> None:
    """Take nothing back."""
    raise Rejected("\\n".join(EVIL), code="::error::")

@tool("evil.fail", read_only=True)
def fail() -> None:
    """Fail with what a runner would obey."""
    raise Rejected("\\n".join(EVIL) + "|<b>*x*</b>`y` @someone [z](http://evil.example)", code="evil")
'''
SAGA = """
saga: hostile
description: "::error::evil"
defaults: {start_to_close_timeout: 30s}
steps:
  - {id: speak, tool: evil.speak}
  - {id: fail, tool: evil.fail, read_only: true}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project in a repository that a runner has checked out."""
    project = Project.make(tmp_path)
    project.environ |= {
        "GITHUB_ACTIONS": "true",
        "CI": "true",
        "GITHUB_WORKSPACE": str(tmp_path),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    return project


def _commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    lines = re.split(r"\r\n|\r|\n", text)
    return [command for line in lines if (command := read_command(line)) is not None]


def _outputs(project: Project) -> dict[str, str]:
    """Read the file of outputs as a runner does."""
    text = (project.path / "output").read_text()
    return {name: value for name, _, value in re.findall(r"^(\w+)<<(\w+)\n(.*?)\n\2$", text, re.MULTILINE | re.DOTALL)}


def test_a_failure_is_told_where_it_is(project: Project) -> None:
    """UX 7.8: a group around the progress, an error at the step's line, a table in the summary, id and status."""
    result = project.run(*ASK, "-i", "card=declined", "-o", "json")
    run = result.json["run"]
    begin, end, error = _commands(result.err)
    assert (begin[0], end[0]) == ("group", "endgroup")
    assert begin[2] == f"onboarding {run['id']}"
    line = (project.path / "sagas" / "onboarding.yaml").read_text().splitlines().index("  - id: deposit") + 1
    assert error[:2] == ("error", {"file": "sagas/onboarding.yaml", "line": str(line), "title": "deposit failed"})
    assert error[2] == f"{run['error']['type']}: {run['error']['message']}"
    assert _outputs(project) == {"run_id": run["id"], "status": "rolled_back"}
    summary = (project.path / "summary.md").read_text()
    assert summary.startswith(f"### ✗ onboarding {run['id'][:6]} failed at deposit and was rolled back\n")
    assert re.search(r"^\| lead \| ↺ undone \| [\d.]+m?s \| 1 \|$", summary, re.MULTILINE)
    assert re.search(r"^\| deposit \| ✗ .*declined.* \| [\d.]+m?s \| 1 \|$", summary, re.MULTILINE)
    assert re.search(r"^\| welcome \| . not run \|  \|  \|$", summary, re.MULTILINE)
    assert "\nLeft behind: nothing.\n" in summary


def test_a_success_says_no_more_than_that(project: Project) -> None:
    """A run that succeeded has no annotation; its id and status are outputs all the same."""
    result = project.run(*ASK)
    assert [name for name, _, _ in _commands(result.err)] == ["group", "endgroup"]
    assert _commands(result.out) == []
    assert _outputs(project)["status"] == "succeeded"


def test_a_dead_letter_is_an_error_with_what_to_type(project: Project) -> None:
    """E23: what a person must decide is an error at its step, and names the command that shows it."""
    result = project.run(*ASK, "-i", "card=limbo")
    (error,) = [command for command in _commands(result.err) if command[0] == "error"]
    assert error[1]["title"] == "deposit: in doubt"
    typed = re.search(r"sagactl (dlq show \w+ deposit)$", error[2])
    assert typed is not None
    assert project.run(*typed[1].split()).code == 0


def test_what_waits_is_a_warning(project: Project) -> None:
    """A run that goes on later is a warning with the command that carries it on."""
    result = project.run(*ASK, "-i", "card=flaky", "--no-wait")
    (warning,) = [command for command in _commands(result.err) if command[0] == "warning"]
    assert warning[2].startswith("sagactl resume ")
    assert _outputs(project)["status"] == "waiting"


def test_problems_of_a_saga_are_told_where_they_are(project: Project) -> None:
    """F5: each problem is an annotation with line and columns, of `validate` and of a `run` that finds it."""
    saga = project.path / "sagas" / "onboarding.yaml"
    saga.write_text(saga.read_text().replace("crm.create_lead", "crm.creat_lead"))
    for arguments in (("validate",), ("validate", "-o", "json"), ASK):
        result = project.run(*arguments)
        (error,) = _commands(result.err)
        assert error[1]["file"] == "sagas/onboarding.yaml"
        assert error[1]["title"] == "unknown-tool"
        assert saga.read_text().splitlines()[int(error[1]["line"]) - 1][int(error[1]["col"]) - 1 :] == "crm.creat_lead"
        assert result.code == 3


WARNED = """saga: warned
secrets: [card_key]
input:
  type: object
  properties:
    card: {type: string, writeOnly: true}
defaults: {start_to_close_timeout: 5s}
steps:
  - id: note
    tool: mail.send
    with: {to: a@example.com, template: welcome}
    compensate: {none: "a mail can't be unsent"}
  - id: deposit
    tool: billing.charge
    with: {lead_id: x, amount: 1, card: declined}
"""


def test_warnings_of_a_saga_and_what_a_run_leaves_are_told_where_they_are(project: Project) -> None:
    """`help ci`: each warning is an annotation with file and line, of every command that loads the saga."""
    (project.path / "sagas" / "warned.yaml").write_text(WARNED)
    key = project.path / "key.txt"
    key.write_text("k")
    key.chmod(0o644)
    (project.path / "sagactl.toml").write_text(f'[secrets]\ncard_key = {{file = "{key}"}}\n')
    where = {"file": "sagas/warned.yaml"}
    for arguments in (("validate", "warned"), ("plan", "warned"), ("run", "warned"), ("run", "warned", "-o", "json")):
        told = {properties["title"]: properties for _, properties, _ in _warnings(project, *arguments)}
        assert told["stored-input"].items() >= {**where, "line": "6", "col": "26"}.items()
        if arguments[0] != "plan":
            assert told["sagactl"] == {**where, "title": "sagactl"}
        if arguments[0] == "run":
            (left,) = (properties for title, properties in told.items() if title.startswith("note is left behind by "))
            assert left.items() >= {**where, "line": "9"}.items()
    assert _warnings(project, "run", "warned", "-qq") == []


def _warnings(project: Project, *arguments: str) -> list[tuple[str, dict[str, str], str]]:
    return [command for command in _commands(project.run(*arguments).err) if command[0] == "warning"]


def test_annotations_are_bounded(project: Project) -> None:
    """A runner shows ten of a kind; the last one counts the others."""
    steps = "".join(f"  - {{id: s{number}, tool: no.such}}\n" for number in range(40))
    (project.path / "sagas" / "many.yaml").write_text(f"saga: many\nsteps:\n{steps}")
    errors = [command for command in _commands(project.run("validate", "many").err) if command[0] == "error"]
    assert (len(errors), errors[-1][1]["title"]) == (10, "and 31 more")


def test_an_error_of_sagactl_is_told_too(project: Project) -> None:
    """What sagactl itself could not do is an error without a place, with its hint."""
    project.run(*ASK, "-q")
    (error,) = _commands(project.run("show", "zzzzzz").err)
    assert (error[1]["title"], error[2].splitlines()[-1]) == ("sagactl: no-such-run", "hint: sagactl list")


def test_a_tool_can_tell_the_runner_nothing(project: Project) -> None:
    """E3, UX 3: whatever a tool prints, returns or fails with, by Python, descriptor or child, is never a command."""
    (project.path / "plugins" / "evil.py").write_text(PLUGIN)
    (project.path / "sagas" / "hostile.yaml").write_text(SAGA)
    ran = project.run("run", "hostile", "-vv")
    assert ran.code == 11, ran.err
    assert {name for name, _, _ in _commands(ran.err)} == {"group", "endgroup", "error"}
    assert all(given["title"] for name, given, _ in _commands(ran.err) if name == "error")
    assert "\n\\x3a:set-output" in ran.err, "what came by descriptors is shown"
    run_id = project.latest()["id"]
    looks = [["show"], ["log"], ["log", "--detail"], ["dlq", "list"], ["dlq", "show", run_id], ["list"]]
    looks += [["plan", "hostile"], ["graph", "hostile"], ["tools", "evil.speak"]]
    for look in looks:
        for output in ("text", "json"):
            result = project.run(*look, "-o", output)
            assert result.code == 0, result.err
            assert _commands(result.out) == _commands(result.err) == [], look
            if output == "json":
                assert json.loads(result.out)
    assert _outputs(project) == {"run_id": run_id, "status": "stuck"}
    summary = (project.path / "summary.md").read_text()
    for sign in ("<b>", "*x*", "`y`", "@someone", "[z]", "http://", "\r", "|<"):
        assert sign not in summary.replace("| ", "")


def test_it_can_be_switched_off(project: Project) -> None:
    """`SAGACTL_CI=off`: no command and no file; a tool's text is tamed all the same, as the runner still reads."""
    (project.path / "plugins" / "evil.py").write_text(PLUGIN)
    (project.path / "sagas" / "hostile.yaml").write_text(SAGA)
    result = project.run("run", "hostile", extra={"SAGACTL_CI": "off"})
    assert (result.code, _commands(result.out + result.err)) == (11, [])
    assert not (project.path / "output").exists()
    assert not (project.path / "summary.md").exists()


def test_files_that_cannot_be_written_change_nothing(project: Project) -> None:
    """A runner's files are no reason for a command to fail: it says so, and ends as it would."""
    result = project.run(*ASK, extra={"GITHUB_OUTPUT": str(project.path / "no" / "output")})
    assert (result.code, project.latest()["status"]) == (0, "succeeded")
    assert "warning: not told to the runner of CI" in result.err


def test_every_run_of_resume_all_is_told(project: Project) -> None:
    """`resume --all` adds a table for each run, in text and in JSON."""
    for email in ("a@example.com", "b@example.com"):
        project.run(
            "run", "onboarding", "-i", "amount:=1", "-i", f"email={email}", "-i", "card=flaky", "--no-wait", "-q"
        )
    (project.path / "summary.md").unlink()
    assert project.run("resume", "--all", "-o", "json", "-q").code == 0
    assert (project.path / "summary.md").read_text().count("\n| lead | ✓ done |") == 2


def _read_junit(file: Path) -> ET.Element:
    """Parse a report, and hold it against the schema that CI servers share."""
    return check_junit(file.read_text(encoding="utf-8"))


def _verdicts(suite: ET.Element) -> dict[str, str]:
    found = {}
    for case in suite.findall("testcase"):
        tags = {child.tag for child in case} - {"system-out"}
        found[case.attrib["name"]] = tags.pop() if tags else "passed"
    return found


@pytest.mark.parametrize(
    ("options", "code", "verdicts"),
    [
        ((), 0, {"lead": "passed", "deposit": "passed", "run": "passed"}),
        (("-i", "card=declined"), 10, {"lead": "passed", "deposit": "failure", "welcome": "skipped", "run": "failure"}),
        (("-i", "card=limbo"), 11, {"lead": "passed", "deposit": "error", "contract": "skipped", "run": "error"}),
        (("-i", "card=flaky", "--no-wait"), 12, {"lead": "passed", "deposit": "skipped", "run": "skipped"}),
        (("-i", 'servers:=["web", "db"]'), 0, {"servers[0]": "passed", "servers[1]": "passed"}),
    ],
)
def test_a_run_is_a_suite_and_a_step_is_a_case(
    tmp_path: Path, options: tuple[str, ...], code: int, verdicts: dict[str, str]
) -> None:
    """`--junit FILE`: what CI servers read agrees with the exit code, however the run ends."""
    project = Project.make(tmp_path)
    assert project.run(*ASK, *options, "-q", "--junit", "report.xml").code == code
    (suite,) = _read_junit(tmp_path / "report.xml")
    assert suite.attrib["name"] == "onboarding"
    assert verdicts.items() <= _verdicts(suite).items()
    facts = {each.attrib["name"]: each.attrib["value"] for each in suite.iter("property")}
    assert facts["run_id"] == project.latest()["id"]
    assert list(tmp_path.glob(".report*")) == []


def test_a_report_is_xml_whatever_a_tool_says(tmp_path: Path) -> None:
    """Control characters, half of a pair, `]]>`, quotes and tags of a tool are text in the report, not markup."""
    project = Project.make(tmp_path)
    said = "\\x00\\x1b[2J\\ud800\\ufffe]]><failure/>&amp;\\\"'"
    (tmp_path / "plugins" / "rude.py").write_text(
        "from sagactl import tool, Rejected\n\n@tool('rude.fail', read_only=True)\ndef fail() -> None:\n"
        f'    """Fail."""\n    raise Rejected("{said}" + \'x\' * 100_000, code=\'r]]>\')\n'
    )
    (tmp_path / "sagas" / "rude.yaml").write_text("saga: rude\nsteps: [{id: fail, tool: rude.fail, read_only: true}]\n")
    assert project.run("run", "rude", "-q", "--junit", "report.xml").code == 10
    (suite,) = _read_junit(tmp_path / "report.xml")
    assert _verdicts(suite) == {"fail": "failure", "run": "failure"}
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "]]><failure/>&amp;" in (failure.text or "")
    assert (tmp_path / "report.xml").stat().st_size < 50_000


def test_problems_and_errors_are_reported_too(tmp_path: Path) -> None:
    """`validate --junit` has a suite for each file; what fails says why; what can't write calls nothing."""
    project = Project.make(tmp_path)
    assert project.run("validate", "--junit", "report.xml").code == 0
    assert len(_read_junit(tmp_path / "report.xml")) == len(list((tmp_path / "sagas").glob("*.yaml")))
    saga = tmp_path / "sagas" / "onboarding.yaml"
    saga.write_text(saga.read_text().replace("crm.create_lead", "crm.creat_lead"))
    for arguments in (("validate", "onboarding"), ASK):
        assert project.run(*arguments, "--junit", "report.xml").code == 3
        assert _read_junit(tmp_path / "report.xml").find("testsuite").get("name")  # type: ignore[union-attr]
        assert "failure" in _verdicts(_read_junit(tmp_path / "report.xml")[0]).values() or arguments is ASK
    for place in ("no/report.xml", "sagas", "/dev/null"):
        refused = project.run("run", "diamond", "-i", "email=a@example.com", "--junit", place, "-o", "json")
        assert (refused.code, refused.json["error"]["code"]) == (3, "bad-junit")
    assert project.witness() == []


def test_an_interrupted_run_is_reported(tmp_path: Path) -> None:
    """E17: Ctrl-C leaves a report as well, of a run that is not at its end."""
    project = Project.make(tmp_path)
    offline = ("run", "onboarding", "-i", "amount:=1", "-i", "email=offline@example.com")
    process = project.start(*offline, "--junit", "report.xml")
    assert process.stderr is not None
    assert any(" retry " in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130
    (suite,) = _read_junit(tmp_path / "report.xml")
    assert {"contract": "passed", "welcome": "skipped", "run": "skipped"}.items() <= _verdicts(suite).items()


def _is_quiet(result: Result) -> bool:
    return not _commands(result.out + result.err)


def test_elsewhere_nothing_of_it_is_seen(tmp_path: Path) -> None:
    """Without a runner there are no commands, whatever `CI` says."""
    assert _is_quiet(Project.make(tmp_path).run(*ASK, extra={"CI": "true", "GITHUB_ACTIONS": ""}))
