"""`sagactl tools check` as an author of tools uses it: arguments, worlds, what is said and how it ends."""

from __future__ import annotations

import shlex
import signal
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.project import Project
from tests.conformance.project import broken_of, check, make_project, verdicts_of

DESK = '''
import asyncio
from sagactl import CallContext, Done, NotDone, Rejected, Unavailable, Pending, Secret, tool


def place(context):
    folder = context.project / "desk"
    folder.mkdir(exist_ok=True)
    return folder


def name(key):
    return key.replace("/", "-")


@tool("desk.open", chaos_safe=True)
def open_desk(context: CallContext, drawer: str) -> dict[str, str]:
    """Set the world up."""
    if drawer == "stuck":
        raise Rejected("it is stuck", code="stuck")
    (place(context) / drawer).mkdir(exist_ok=True)
    (context.project / "log").open("a").write(f"open {drawer}\\n")
    return {"drawer": drawer}


@tool("desk.close", chaos_safe=True)
def close_desk(context: CallContext, drawer: str, told: str) -> None:
    """Tear it down, and say so where the test looks."""
    with open(told, "a") as file:
        file.write(f"{drawer} {context.run_id}\\n")


@tool("desk.list", read_only=True, chaos_safe=True)
def list_desk(context: CallContext, drawer: str) -> dict[str, object]:
    """Show the world."""
    papers = sorted(path.name for path in (place(context) / drawer).iterdir())
    return {"papers": papers, "asked_at": asyncio.run(asyncio.sleep(0, str(__import__("time").time())))}


@tool("desk.put", compensation="desk.take", compensation_with={"drawer": "${{ args.drawer }}"},
      probe="desk.find", key_retention="24h", chaos_safe=True)
async def put(context: CallContext, drawer: str, word: str = "") -> dict[str, str]:
    """Put a paper into a drawer; it takes three askings."""
    if word == "forbidden":
        raise Rejected("no", code="no")
    if context.token is None and word == "slow":
        raise Pending(after=0.01, token=1)
    (place(context) / drawer / name(context.idempotency_key)).write_text("paper")
    return {"paper": name(context.idempotency_key)}


@tool("desk.take", null_safe=True, chaos_safe=True)
def take(context: CallContext, drawer: str) -> dict[str, bool]:
    """Take it out again; the first try finds the desk busy."""
    if context.attempt == 1:
        raise Unavailable("busy", retry_after=0.01)
    paper = place(context) / drawer / name(context.forward_key)
    was_there = paper.exists()
    paper.unlink(missing_ok=True)
    return {"was_there": was_there}


@tool("desk.find", read_only=True, chaos_safe=True)
def find(context: CallContext, drawer: str) -> Done | NotDone:
    """Look for it."""
    paper = place(context) / drawer / name(context.forward_key)
    return Done({"paper": paper.name}) if paper.exists() else NotDone()


@tool("desk.lock", chaos_safe=True)
def lock(context: CallContext, key: Secret) -> None:
    """Lock it."""
'''
CHECK = """
input: {drawer: top}
ignore: [log]
set_up: [{id: opened, tool: desk.open, with: {drawer: "${{ input.drawer }}"}}]
observe:
  - {tool: desk.list, with: {drawer: "${{ steps.opened.output.drawer }}"}, show: {papers: "${{ output.papers }}"}}
tear_down: [{tool: desk.close, with: {drawer: "${{ input.drawer }}", told: "TOLD"}}]
tools:
  desk.put:
    with: {drawer: "${{ steps.opened.output.drawer }}", word: slow}
    rejects: [{word: forbidden}]
  desk.lock: {with: {key: "${{ secrets.no_such_secret }}"}}
"""


def _make(folder: Path, change: tuple[str, str] = ("", ""), plugin: str = DESK) -> Project:
    (folder / "plugins").mkdir()
    (folder / "plugins" / "desk.py").write_text(plugin)
    text = CHECK.replace(*change) if change[0] else CHECK
    (folder / "plugins" / "desk.check.yaml").write_text(text.replace("TOLD", str(folder / "told")))
    return Project(folder)


def test_worlds_are_set_up_seen_and_torn_down(tmp_path: Path) -> None:
    """Steps of `set_up` give outputs, `observe` shows effects, `tear_down` ends every case; tries and askings go on."""
    result = check(_make(tmp_path), "desk.put", "--strict", "-o", "json")
    assert result.code == 0, result.out
    found = verdicts_of(result.json)["desk.put"]
    assert {rule for rule, verdict in found.items() if verdict == "holds"} == found.keys() - {"late"}
    (same_key,) = [each for each in result.json["tools"][0]["rules"] if each["rule"] == "same-key"]
    assert "as long as keys are kept" in same_key["seen"]
    told = [line.split() for line in (tmp_path / "told").read_text().splitlines()]
    assert {drawer for drawer, _ in told} == {"top"}
    runs = [run_id for _, run_id in told]
    assert len(set(runs)) == len(runs) >= 6  # each case has a run id of its own


def test_inputs_of_the_command_line_go_on_top(tmp_path: Path) -> None:
    """`-i` says where the sandbox is; it is in the command that shows a breach again."""
    project = _make(tmp_path, ("rejects: [{word: forbidden}]", "rejects: [{word: allowed}]"))
    result = check(project, "desk.put", "-i", "drawer=low", "--rule", "rejects", "-o", "json")
    assert result.code == 1
    assert {line.split()[0] for line in (tmp_path / "told").read_text().splitlines()} == {"low"}
    (found,) = result.json["tools"][0]["rules"]
    assert found["verdict"] == "broken"
    assert found["again"] == "sagactl tools check -i drawer=low desk.put --rule rejects"


def test_the_timeout_is_in_the_command_that_shows_a_breach_again(tmp_path: Path) -> None:
    """What breaks a rule only within so many seconds is broken again by the command that is printed."""
    slow = DESK.replace('    if word == "forb', '    await asyncio.sleep(1.5)\n    if word == "forb')
    change = ("word: slow", "word: plain")
    project = _make(tmp_path, change, slow)
    assert check(project, "desk.put", "--rule", "succeeds").code == 0
    result = check(project, "desk.put", "--timeout", "0.5", "--rule", "succeeds", "-o", "json")
    (found,) = result.json["tools"][0]["rules"]
    assert found["again"] == "sagactl tools check --timeout 0.5 desk.put --rule succeeds"
    again = project.run(*shlex.split(found["again"])[1:], "-o", "json")
    assert again.json["tools"][0]["rules"] == [found]


def test_a_world_that_cannot_be_made_is_a_breach(tmp_path: Path) -> None:
    """Where a case can't be set up nothing is passed over: exit 1, and what the set-up said."""
    result = check(_make(tmp_path), "desk.put", "-i", "drawer=stuck")
    assert result.code == 1
    assert "the world can't be set up: opened (desk.open) came to rejected: stuck" in " ".join(result.out.split())


def test_a_tear_down_that_fails_is_told(tmp_path: Path) -> None:
    """What a check leaves in a system elsewhere is said; the verdicts stand."""
    project = _make(tmp_path, ('told: "TOLD"', "told: /no/such/folder/told"))
    result = check(project, "desk.put", "-o", "json")
    assert result.code == 0
    assert "desk.put: the world isn't torn down" in result.json["notes"][0]


ELSEWHERE = '''
import os
from pathlib import Path
from sagactl import CallContext, Done, NotDone, Rejected, tool

ELSEWHERE = Path(os.environ["ELSEWHERE"])


@tool("far.put", compensation="far.take", chaos_safe=True, arguments_schema={"type": "object"})
def put(context: CallContext, word: str = "", must: str = "") -> dict[str, str]:
    """Start a thing in a system elsewhere, whatever the word is."""
    (ELSEWHERE / context.idempotency_key.replace("/", "-")).write_text("runs")
    if word == "lost":
        raise RuntimeError("nobody knows")
    return {}


@tool("far.take", null_safe=True, chaos_safe=True)
def take(context: CallContext) -> None:
    """End it."""
    if "KEPT" in os.environ:
        raise Rejected("it can't be ended", code="kept")
    (ELSEWHERE / context.forward_key.replace("/", "-")).unlink(missing_ok=True)


@tool("far.list", read_only=True, chaos_safe=True)
def list_things() -> dict[str, list[str]]:
    """Show what runs."""
    return {"things": sorted(path.name for path in ELSEWHERE.iterdir())}


@tool("far.list_of", read_only=True, chaos_safe=True)
def list_of(run: str) -> dict[str, list[str]]:
    """Show what runs of one run."""
    return {"things": sorted(path.name for path in ELSEWHERE.iterdir() if path.name.startswith(run))}


@tool("far.make", chaos_safe=True)
def make(name: str) -> dict[str, str]:
    """Set something up."""
    if name == "none":
        raise Rejected("there can't be one", code="none")
    (ELSEWHERE / name).write_text("made")
    return {"name": name}


@tool("far.clear", chaos_safe=True)
def clear(name: str) -> None:
    """Tear it down."""
    (ELSEWHERE / name).unlink()
'''


ORDERING = '''
@tool("far.order", compensation="far.end", compensation_with={"name": "${{ output.name }}"}, probe="far.find",
      chaos_safe=True)
def order(context: CallContext, word: str = "") -> dict[str, str]:
    """Start a thing in a system elsewhere, and lose the answer before or after it."""
    if word == "before":
        raise RuntimeError("nobody knows")
    place = ELSEWHERE / context.idempotency_key.replace("/", "-")
    place.write_text("runs")
    if word == "after":
        raise RuntimeError("nobody knows")
    return {"name": place.name}


@tool("far.end", chaos_safe=True)
def end(name: str) -> None:
    """End it; there is no ending of what has no name."""
    (ELSEWHERE / name).unlink(missing_ok=True)


@tool("far.find", read_only=True, chaos_safe=True)
def find(context: CallContext) -> Done | NotDone:
    """Look for it."""
    place = ELSEWHERE / context.forward_key.replace("/", "-")
    return Done({"name": place.name}) if place.exists() else NotDone()
'''


def _make_elsewhere(folder: Path, check_file: str, **environ: str) -> tuple[Project, Path]:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (folder / "plugins").mkdir()
    (folder / "plugins" / "far.py").write_text(ELSEWHERE + ORDERING)
    (folder / "plugins" / "far.check.yaml").write_text(check_file)
    return Project(folder, {"ELSEWHERE": str(elsewhere), **environ}), elsewhere


@pytest.mark.parametrize("rule", ["schema", "rejects"])
def test_odd_calls_leave_nothing_in_a_system_elsewhere(tmp_path: Path, rule: str) -> None:
    """Whatever a check calls it takes back: odd arguments that are taken, rejects that aren't, calls in doubt."""
    file = "{observe: [far.list], tools: {far.put: {with: {word: x, must: y}, rejects: [{word: a}, {word: lost}]}}}"
    project, elsewhere = _make_elsewhere(tmp_path, file)
    result = check(project, "far.put", "--rule", rule, "-o", "json")
    assert result.json["notes"] == []
    assert list(elsewhere.iterdir()) == []


def test_what_cannot_be_taken_back_is_told(tmp_path: Path) -> None:
    """Where the undo of a check's own call fails, what may be left is said, and never passed over."""
    file = "tools: {far.put: {with: {word: x, must: y}}}"
    project, elsewhere = _make_elsewhere(tmp_path, file, KEPT="1")
    result = check(project, "far.put", "--rule", "schema", "-o", "json")
    assert list(elsewhere.iterdir())
    assert result.json["notes"] == [
        "far.put: something may be left of a call: far.take came to rejected: kept: it can't be ended"
    ]


@pytest.mark.parametrize("observe", ["far.list", 'far.list_of, with: {run: "${{ run.id }}"}'])
def test_an_observer_of_one_run_alone_is_told_apart(tmp_path: Path, observe: str) -> None:
    """`run.id` under `observe` is that of the operation that is tried: where another isn't seen, that is said."""
    file = "{observe: [{tool: OBSERVER}], tools: {far.put: {with: {word: x}}}}"
    project, _ = _make_elsewhere(tmp_path, file.replace("OBSERVER", observe))
    result = check(project, "far.put", "--rule", "other-key", "-o", "json")
    (found,) = result.json["tools"][0]["rules"]
    is_narrow = observe != "far.list"
    assert found["verdict"] == ("broken" if is_narrow else "holds")
    assert ("its run.id is another one there" in (found["seen"] or "")) is is_narrow


@pytest.mark.parametrize("word", ["before", "after"])
def test_what_was_never_done_is_not_said_to_be_left(tmp_path: Path, word: str) -> None:
    """A call in doubt whose undo needs the output: its probe says whether there is anything to undo."""
    file = "{tools: {far.order: {with: {word: x}, rejects: [{word: %s}]}}}"
    project, elsewhere = _make_elsewhere(tmp_path, file % word)
    result = check(project, "far.order", "--rule", "rejects", "-o", "json")
    (found,) = result.json["tools"][0]["rules"]
    assert found["seen"].startswith("rejects[0] came to unknown")
    assert result.json["notes"] == []
    assert list(elsewhere.iterdir()) == []


def test_all_is_torn_down_that_can_be(tmp_path: Path) -> None:
    """A tear-down that fails keeps no other from its work, and neither does a set-up that comes to its end halfway."""
    file = """
set_up: [{tool: far.make, with: {name: a}}, {id: second, tool: far.make, with: {name: "${{ input.second }}"}}]
tear_down: [{tool: far.clear, with: {name: "${{ steps.second.output.name }}"}}, {tool: far.clear, with: {name: a}}]
tools: {far.put: {with: {word: x}}}
"""
    project, elsewhere = _make_elsewhere(tmp_path, file)
    assert check(project, "far.put", "-i", "second=none", "--rule", "schema").code == 1
    assert list(elsewhere.iterdir()) == []


def test_a_secret_that_is_missing_is_said(tmp_path: Path) -> None:
    """Secrets are references in the check file; where one can't be resolved nothing is called, and nothing passes."""
    result = check(_make(tmp_path), "desk.lock", "-o", "json")
    assert result.code == 1  # nothing could be tried
    assert "the secret no_such_secret is missing" in result.json["tools"][0]["rules"][0]["seen"]


def test_what_only_reads_is_checked_too(tmp_path: Path) -> None:
    """A read-only tool that is no probe, and has arguments, is called twice and changes nothing."""
    project = _make(tmp_path, ("  desk.lock:", "  desk.list: {with: {drawer: top}}\n  desk.lock:"))
    found = verdicts_of(check(project, "desk.list", "-o", "json").json)
    assert found == {"desk.list": dict.fromkeys(("succeeds", "schema", "reads-only", "deadline"), "holds")}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("tools:", "tool: {}\ntools:"), "invalid-check-file", "desk.check.yaml: tool is no key"),
        (("observe:\n  - {tool: desk.list", "observe:\n  - {tool: desk.open"), "invalid-check-file", "isn't read_only"),
        (("tools:", "input: {a: 1}\ntools:"), "duplicate-key", "desk.check.yaml:8:1"),
        (("{tool: desk.close", "{tool: desk.shut"), "plugin", "no tool named 'desk.shut'"),
        (("  desk.put:", "  desk.putt:"), "invalid-check-file", "tools.desk.putt is no tool of this plugin"),
        (("rejects: [{word:", "rejects: [{wrod:"), "invalid-check-file", "rejects[0].wrod is no argument of desk.put"),
        (("word: slow", "wrod: slow"), "invalid-check-file", "desk.put.with.wrod is no argument of desk.put"),
        (('told: "TOLD"', 'tell: "TOLD"'), "invalid-check-file", "tear_down[0].with.tell is no argument of desk.close"),
        (
            ("    rejects:", "    compensate: {with: {shelf: top}}\n    rejects:"),
            "invalid-check-file",
            "tools.desk.put.compensate.with.shelf is no argument of desk.take",
        ),
    ],
)
def test_a_wrong_check_file_is_exit_3(tmp_path: Path, change: tuple[str, str], code: str, message: str) -> None:
    """What is wrong with the file is said with its place before anything is called."""
    result = check(_make(tmp_path, change), "desk.put")
    assert result.code == 3
    assert f"error[{code}]" in result.err
    assert message in result.err
    assert not (tmp_path / "told").exists()


def test_a_check_file_beside_no_plugin_is_refused(tmp_path: Path) -> None:
    """A check file whose name is misspelt would be read by nobody: it is named, with the plugin that was meant."""
    project = _make(tmp_path)
    (tmp_path / "plugins" / "desk.check.yaml").rename(tmp_path / "plugins" / "desc.check.yaml")
    result = check(project, "desk.list")
    assert result.code == 3
    assert "plugins/desc.check.yaml is beside no plugin of that name" in result.err
    assert "did you mean desk?" in result.err


def test_a_reject_that_the_schema_refuses_is_told(tmp_path: Path) -> None:
    """Such a call never comes so far: the rule holds, and it is said which of `rejects` weren't called."""
    project = _make(tmp_path, ("rejects: [{word: forbidden}]", "rejects: [{word: forbidden}, {word: 7}]"))
    result = check(project, "desk.put", "--rule", "rejects", "-o", "json")
    (found,) = result.json["tools"][0]["rules"]
    assert (found["verdict"], found["seen"]) == ("holds", "not called, its schema refuses it: rejects[1]")


def test_junit_has_a_case_for_each_rule(tmp_path: Path) -> None:
    """`--junit`: a suite for each tool, with its time; a failure for each breach, skipped what isn't promised."""
    file = tmp_path / "tools.xml"
    assert check(make_project(tmp_path), "late.put", "far.put", "--junit", str(file)).code == 1
    suites = {each.get("name"): each for each in ET.parse(file).iter("testsuite")}
    assert suites.keys() == {"tools check late.put", "tools check far.put"}
    assert all(float(each.get("time", "")) > 0 for each in suites.values())
    late = {each.get("name"): [child.tag for child in each] for each in suites["tools check late.put"].iter("testcase")}
    assert late["late"] == ["failure"]
    assert late["undo"] == []
    far = {each.get("name"): [child.tag for child in each] for each in suites["tools check far.put"].iter("testcase")}
    assert far["undo"] == ["skipped"]


def test_what_is_untried_counts_where_that_is_asked_for(tmp_path: Path) -> None:
    """`--strict` wants all of it tried; without it what can't be tried is told and nothing more."""
    project = make_project(tmp_path)
    assert check(project, "far.put").code == 0
    strict = check(project, "far.put", "--strict")
    assert strict.code == 1
    assert "but 7 rules untried" in strict.out


def test_only_the_rule_that_is_asked_for_is_told(tmp_path: Path) -> None:
    """`--rule` tries and tells one rule, and one that there isn't is exit 2."""
    project = make_project(tmp_path)
    assert verdicts_of(check(project, "late.put", "--rule", "undo", "-o", "json").json) == {
        "late.put": {"undo": "holds"}
    }
    refused = check(project, "late.put", "--rule", "luck")
    assert (refused.code, "at-once" in refused.err) == (2, True)


def test_text_of_tools_is_tamed(tmp_path: Path) -> None:
    """What a tool says never reaches a terminal as it is."""
    plugin = DESK.replace('raise Rejected("no", code="no")', 'raise ValueError("\\x1b[2Jgone")')
    result = check(_make(tmp_path, plugin=plugin), "desk.put", "--rule", "rejects")
    assert result.code == 1
    assert "\x1b" not in result.out
    assert "\\x1b[2Jgone" in result.out


def test_a_check_that_is_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    """SIGTERM in the middle: the folders of its worlds go."""
    project = make_project(tmp_path)
    place = tmp_path / "tmp"
    place.mkdir()
    with project.start("tools", "check", "endless.put", extra={"TMPDIR": str(place)}) as process:
        deadline = time.monotonic() + 120
        while not list(place.glob("sagactl-chaos-*/world-*/shop")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 143
    assert list(place.iterdir()) == []


def test_calls_are_made_as_the_engine_makes_them(tmp_path: Path) -> None:
    """A tool that asks for a process of its own gets it here too, and is held to the same rules."""
    plugin = '''
import os
from pathlib import Path
from sagactl import CallContext, tool


@tool("own.put", compensation="own.take", isolation="process", chaos_safe=True)
def put(context: CallContext) -> dict[str, str]:
    """Put a thing there, and tell in which process."""
    (context.project / context.idempotency_key.replace("/", "-")).write_text("thing")
    Path(os.environ["TOLD"]).open("a").write(f"{os.getpid()}\\n")
    return {"thing": "there"}


@tool("own.take", null_safe=True, isolation="process", chaos_safe=True)
def take(context: CallContext) -> None:
    """Take it away."""
    (context.project / context.forward_key.replace("/", "-")).unlink(missing_ok=True)
'''
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "own.py").write_text(plugin)
    told = tmp_path / "told"
    project = Project(tmp_path, {"TOLD": str(told)})
    result = check(project, "own", "--rule", "undo", "--rule", "same-key", "-o", "json")
    assert (result.code, broken_of(result.json)) == (0, {})
    pids = told.read_text().split()
    assert len(set(pids)) == len(pids) >= 3


def test_what_is_broken_is_not_passed_over(tmp_path: Path) -> None:
    """A plugin that can't be imported, or a tool that can't be described, is an error wherever it was asked for."""
    project = _make(tmp_path)
    (tmp_path / "plugins" / "torn.py").write_text("import no_such_module\n")
    for words in ((), ("torn",)):
        refused = check(project, *words)
        assert (refused.code, "torn can't be checked" in refused.err) == (3, True)
    assert check(project, "desk.put").code == 0


def test_a_runner_of_ci_is_told_at_the_line_of_the_tool(tmp_path: Path) -> None:
    """On GitHub a breach is an error at the line where its tool stands."""
    project = make_project(tmp_path)
    project.environ |= {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(tmp_path)}
    result = check(project, "late.put")
    (told,) = [line for line in (result.out + result.err).splitlines() if line.startswith("::error")]
    assert "file=plugins/planted.py,line=" in told
    assert "late" in told
    assert "sagactl tools check late.put --rule late" in told


def test_the_world_is_copied_for_each_case(tmp_path: Path) -> None:
    """`world` is a folder beside the check file that cases begin with and never change; it is there, and bounded."""
    world = tmp_path / "plugins" / "world"
    project = _make(tmp_path, ("tools:", "world: world\ntools:"))
    missing = check(project, "desk.put")
    assert (missing.code, "no folder" in missing.err) == (3, True)
    (world / "desk" / "top").mkdir(parents=True)
    (world / "desk" / "top" / "theirs").write_text("paper")
    assert check(project, "desk.put", "--rule", "undo-never-ran").code == 0
    assert [path.name for path in world.rglob("*") if path.is_file()] == ["theirs"]
    with (world / "large").open("wb") as file:
        file.truncate(256 * 1024 * 1024 + 1)  # takes no room
    large = check(project, "desk.put")
    assert (large.code, "more than 268,435,456 bytes" in large.err) == (3, True)
