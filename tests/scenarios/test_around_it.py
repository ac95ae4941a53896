"""Scenarios of what is around a run: several processes, signals, streams, plugins, secrets, messages, exit codes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.alerts.receiver import SECRET as HOOK_SECRET
from tests.alerts.receiver import Receiver, receiving, take
from tests.scenarios.checks import SECRET, check_all
from tests.scenarios.scene import Scene, Warm, step, tries

KILL = int(signal.SIGKILL)


def _kill(at: str, name: str, direction: str = "action") -> dict[str, object]:
    return {"signal": {"at": at, "step": name, "direction": direction, "signal": KILL}}


def test_b19_a_run_always_says_where_it_stands(scene: Scene) -> None:
    """E17, V1: between two steps and without a driver, in a call, and stopped gently there: never just *pending*.

    Nothing watches runs that nobody drives (there is no daemon), so there is no alert: whoever looks is told.
    """
    scene.saga("x", [step("a"), step("b", "await open", retry=tries(3)), step("c")])
    assert scene.do("run", "x", hooks=_kill("after_outcome", "a")).code == -KILL
    text = scene.do("show", scene.latest(), "-o", "text")
    assert "nobody drives it" in text.out
    assert f"sagactl resume {scene.latest()[:6]}" in text.out
    recovering = scene.start("resume", scene.latest())
    scene.wait_for(scene.has_begun("b"))
    assert scene.show()["driver"]["pid"] == recovering.pid
    recovering.signal(signal.SIGTERM)
    scene.wait_for(lambda: "stopping" in recovering.err())
    (scene.path / "open").touch()
    assert recovering.wait().code == 143
    assert scene.do("resume", scene.latest()).code == 0
    assert scene.effects() == ["a", "b", "c"]
    check_all(scene)


@pytest.mark.parametrize("part", range(3))
def test_b57_of_two_that_resume_at_once_one_drives(part: int, tmp_path: Path, warm: Warm) -> None:
    """C2, E15: round by round: one drives, the other is told by whom (5), or finds the run at its end."""
    scene = Scene.make(tmp_path, warm)
    scene.saga("x", [step("a", retry=tries(2)), step("b", "wait 0.02", retry=tries(2)), step("c", retry=tries(2))])
    for _ in range(8):
        assert scene.do("run", "x", hooks=_kill("after_outcome", "a")).code == -KILL
        run = scene.latest()
        pair = [scene.start("resume", run) for _ in range(2)]
        answers = [each.wait() for each in pair]
        assert sorted(answer.code for answer in answers) in ([0, 5], [0, 0]), answers
        refused = [answer for answer in answers if answer.code == 5]
        assert all(f"process {pair[0].pid}" in each.err or f"process {pair[1].pid}" in each.err for each in refused)
        assert scene.effects()[-2:] == ["b", "c"]
        assert scene.calls(run).count("c") == 1
    check_all(scene, looks=False)


def test_b57_a_resume_and_a_rollback_at_once_go_one_way(scene: Scene) -> None:
    """C2, E22: whichever comes first, nothing goes forward once it goes back, and both are told the same end."""
    scene.saga("x", [step(name, "wait 0.02", retry=tries(2)) for name in ("a", "b", "c")])
    ends = set()
    for _ in range(8):
        assert scene.do("run", "x", hooks=_kill("after_outcome", "a")).code == -KILL
        run = scene.latest()
        pair = scene.start("resume", run), scene.start("rollback", run, "--yes")
        resumed, rolled = (each.wait() for each in pair)
        status = scene.show(run)["status"]
        assert (status, rolled.code) == ("rolled_back", 0)
        assert resumed.code in {5, 10, 0}
        calls = scene.calls(run)
        first_undo = min((place for place, call in enumerate(calls) if call.endswith("'")), default=len(calls))
        assert all(call.endswith("'") for call in calls[first_undo:])
        ends.add(resumed.code)
    check_all(scene, looks=False)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Return a server that takes everything, slowly."""
    with receiving() as found:
        yield found


def _make_stuck(scene: Scene, count: int) -> None:
    scene.saga("x", [step("a", "gone", tool="probe.once")])
    for _ in range(count):
        assert scene.do("run", "x").code == 11


def _tell(scene: Scene, receiver: Receiver) -> None:
    scene.environ["HOOK_SECRET"] = HOOK_SECRET
    hook = f'kind = "webhook"\nurl = "{receiver.url}"\nsecret = {{env = "HOOK_SECRET"}}\n'
    (scene.path / "sagactl.toml").write_text(f'[[alerts.channel]]\nname = "ops"\n{hook}')


def test_b65_two_relays_send_each_message_once(scene: Scene, receiver: Receiver) -> None:
    """V4: a slow receiver and no crash: who claims a message has it to himself."""

    def slowly(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.1)
        take(handler)

    receiver.answer = slowly
    _make_stuck(scene, 20)
    _tell(scene, receiver)
    pair = [scene.start("outbox", "deliver") for _ in range(2)]
    assert {each.wait().code for each in pair} == {0}
    assert sorted(receiver.ids) == sorted(set(receiver.ids))
    assert len(receiver.ids) == 20
    check_all(scene, looks=False)


def test_b65_killed_between_send_and_mark_it_is_sent_again_under_the_same_id(scene: Scene, receiver: Receiver) -> None:
    """V3, V4: at least once, and the id tells."""
    _make_stuck(scene, 1)
    _tell(scene, receiver)
    receiver.answer = lambda _: time.sleep(5)
    relay = scene.start("outbox", "deliver")
    receiver.wait(1)
    relay.signal(KILL)
    relay.wait()
    receiver.answer = take
    (scene.path / "ahead").write_text("120")  # so long a message belongs to whoever claimed it
    assert scene.do("outbox", "deliver", hooks={"shift": str(scene.path / "ahead")}).code == 0
    assert len(receiver.ids) == 2
    assert len(set(receiver.ids)) == 1
    check_all(scene)


BROKEN = {
    "raises": "raise RuntimeError('no')",
    "exits": "import sys\nsys.exit(3)",
    "typo": "def x(:",
    "prints": "print('noise')\n",
    "slow": "import time\ntime.sleep(1)\n",
    "one": "from sagactl import tool\n@tool('twice.do', read_only=True)\ndef a() -> None:\n    'A.'\n",
    "two": "from sagactl import tool\n@tool('twice.do', read_only=True)\ndef b() -> None:\n    'B.'\n",
}


def test_b75_a_broken_plugin_costs_only_what_needs_it(scene: Scene) -> None:
    """Commands work, and so do sagas that need none of it; what is broken is shown with why, a clash with both."""
    for name, text in BROKEN.items():
        scene.plugin(name, text)
    scene.saga("x", [step("a")])
    scene.saga("y", [{"id": "a", "tool": "twice.do", "read_only": True}])
    scene.saga("z", [{"id": "a", "tool": "raises.do", "read_only": True}])
    assert scene.do("run", "x").code == 0
    assert scene.do("log", scene.latest()).code == 0
    assert scene.do("list", "--help", "-o", "text").code == 0
    clash, missing = scene.do("run", "y"), scene.do("run", "z")
    assert (clash.code, missing.code) == (3, 3)
    assert "plugin one" in clash.err
    assert "plugin two" in clash.err
    assert "raises.py" in missing.err
    tools = scene.do("tools")
    for name in ("raises", "exits", "typo"):
        assert f"{name}.py" in tools.out + tools.err
    assert len(scene.runs()) == 1
    check_all(scene)


NOISE = '''
"""Tools that talk out of turn."""

import os
import subprocess
import sys
import threading
import time

from sagactl import tool


@tool("noise.make", read_only=True)
def make() -> dict[str, str]:
    """Write wherever one can."""
    print("printed")
    os.write(1, b"raw \\xff\\xfe bytes\\n")
    sys.stdout.buffer.write(b"\\r10%\\r20%\\r")
    subprocess.run(["sh", "-c", "echo from a child; echo and on stderr >&2"], check=True)
    threading.Thread(target=lambda: (time.sleep(0.05), print("late"))).start()
    return {"said": "it"}
'''


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_b77_what_a_tool_prints_never_lands_in_the_answer(form: str, scene: Scene) -> None:
    """The answer stands alone on stdout; the text is kept with the run. There is no MCP in this release."""
    scene.plugin("noise", NOISE)
    scene.saga("x", [{"id": "a", "tool": "noise.make", "read_only": True}, step("b", "print me, wait 0.1")])
    done = scene.do("run", "x", "-o", form)
    assert done.code == 0
    values = [json.loads(line) for line in done.out.splitlines()]
    assert len(values) == 1 or form == "jsonl"
    kept = json.dumps(scene.do("show", scene.latest(), "--printed").json)
    assert "printed" in kept
    assert "me" in kept
    check_all(scene)


def test_b79_each_end_has_its_code(scene: Scene) -> None:
    """Distinct and documented, and 0 only for what succeeded. That a reader goes away is in `tests/cli`."""
    scene.saga("good", [step("a")])
    scene.saga("bad", [step("a"), step("b", "reject no")])
    scene.saga("stuck", [step("a", "ok", "reject no"), step("b", "reject no")])
    scene.saga("asks", [step("a", approval=True)])
    scene.saga("invalid", [{"id": "a", "tool": "probe.nothing"}])
    scene.saga("slow", [step("a", "await open", retry=tries(2))])
    found = [scene.do("run", name).code for name in ("good", "bad", "stuck", "invalid", "asks")]
    running = scene.start("run", "slow")
    scene.wait_for(scene.has_begun("a", 4))
    found.append(scene.do("resume", scene.latest()).code)
    (scene.path / "blocked").write_text("no log")
    found.append(scene.do("run", "good", "--log", "blocked/log.db").code)
    running.signal(signal.SIGINT)
    scene.wait_for(lambda: "stopping" in running.err())
    (scene.path / "open").touch()
    found.append(running.wait().code)
    assert found == [0, 10, 11, 3, 12, 5, 1, 130]
    assert scene.do("resume", "--all").code == 12, "in part: the worst of what it drove"
    check_all(scene)


def test_b81_a_secret_is_nowhere(scene: Scene) -> None:
    """E19: argument, echoed in outputs and passed on, dead letter, alert, export, plan; the undo gets its value."""
    (scene.path / "secret").write_text(SECRET)
    (scene.path / "sagactl.toml").write_text('[secrets]\nkey = {file = "secret"}\n[events]\nfile = "events.jsonl"\n')
    passed = step("b", f"print {SECRET}", args={"value": "${{ steps.a.output }}"})
    a = {"id": "a", "tool": "probe.tell", "with": {"key": "${{ secrets.key }}", "word": "ok", "undo": "mended it"}}
    scene.saga("x", [a, {**passed, "with": {**passed["with"], "word": "ok"}}, step("c", "reject no")], secrets=["key"])
    assert scene.do("plan", "x", "--out", "kept.plan").code == 0
    assert scene.do("run", "x").code == 11
    for command in (("show",), ("log",), ("dlq", "show"), ("verify",)):
        assert scene.do(*command, scene.latest()).code == 0
    for command in (("dlq", "list"), ("outbox", "list"), ("list",)):
        assert scene.do(*command).code == 0
    assert scene.do("log", scene.latest(), "--detail", "-o", "text").code == 0
    (scene.path / "it").touch()
    assert scene.do("dlq", "retry", scene.latest()).code == 10
    given = [line["arguments"]["key_length"] for line in scene.ledger("begin") if line["step"] == "a"]
    assert given == [len(SECRET)] * 3
    assert (scene.path / "events.jsonl").exists()
    check_all(scene)


ODD = '''
"""A tool that speaks all languages, and one that speaks half of one."""

from sagactl import tool


@tool("odd.text", read_only=True)
def text() -> dict[str, str]:
    """Say it."""
    return {"t": "\\u2192 \\u00fc \\u6f22 \\U0001f600"}


@tool("odd.half", read_only=True)
def half() -> dict[str, str]:
    """Say half a character."""
    return {"t": "\\ud800"}
'''


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_b83_a_terminal_that_lacks_a_character_ends_nothing(encoding: str, scene: Scene) -> None:
    """Shown replaced, exact in the log and in JSON; half a surrogate pair has no JSON form: an outcome as any other."""
    scene.plugin("odd", ODD)
    read = {"read_only": True}
    steps = [step("a", description="→ ü 漢 😀"), {"id": "t", "tool": "odd.text", **read}]
    scene.saga("x", [*steps, {"id": "h", "tool": "odd.half", **read, "retry": tries(1)}], description="→ 漢")
    environment = scene.environment({"PYTHONIOENCODING": encoding, "LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"})
    for form in ("text", "json"):
        command = [sys.executable, "-m", "sagactl", "run", "x", "-v", "-o", form]
        done = subprocess.run(command, cwd=scene.path, env=environment, capture_output=True, check=False)
        assert (done.returncode, b"Traceback" in done.stderr) == (10, False), done.stderr
        if form == "json":
            run = json.loads(done.stdout.decode(encoding))["run"]
            assert run["steps"][1]["output"] == {"t": "→ ü 漢 😀"}
            assert run["error"]["type"] == "bad_output"
    check_all(scene)


SLEEPER = "echo $$ >> ../pids; sleep 300.7 & echo $! >> ../pids; wait"


def _living(scene: Scene) -> list[int]:
    file = scene.path.parent / "pids"
    pids = [int(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_b85_two_signals_leave_no_child_and_a_run_that_can_go_on(scene: Scene) -> None:
    """E17: the whole group hears it twice: at once at its end, no child alive, and what to type is printed."""
    a = {"id": "a", "tool": "shell.run_idempotent", "with": {"script": f"test -e ../pids && exit 0; {SLEEPER}"}}
    scene.saga("x", [{**a, "compensate": {"none": "nothing"}}])
    running = scene.start("run", "x")
    scene.wait_for(lambda: len(_living(scene)) == 2)
    os.killpg(running.pid, signal.SIGINT)
    scene.wait_for(lambda: "stopping" in running.err())
    time.sleep(0.7)
    os.killpg(running.pid, signal.SIGINT)
    done = running.wait()
    assert (done.code, "left at once" in done.err) == (130, True)
    assert f"sagactl resume {scene.latest()}" in done.err
    scene.wait_for(lambda: _living(scene) == [])
    assert scene.do("resume", scene.latest()).code == 0
    check_all(scene)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_b85_a_signal_while_it_waits_for_a_retry(number: signal.Signals, scene: Scene) -> None:
    """E17: nothing is under way, so it leaves at once, the lease is free, and `resume` goes on."""
    scene.saga("x", [step("a", "retry 1", retry=tries(2, "5s"))])
    running = scene.start("run", "x")
    scene.wait_for(lambda: scene.ledger("end") and scene.of("timer"))
    running.signal(number)
    assert running.wait().code == 128 + number
    assert scene.do("resume", scene.latest()).code == 0
    check_all(scene)


def test_b85_a_signal_during_the_start(scene: Scene) -> None:
    """E17: whenever it comes, there is either no run, or one that can be resumed; never a traceback."""
    scene.saga("x", [step("a", retry=tries(3)), step("b", retry=tries(3))])
    codes = set()
    for delay in range(0, 60, 4):
        running = scene.start("run", "x")
        time.sleep(delay / 1_000)
        running.signal(signal.SIGINT)
        codes.add(running.wait().code)
    assert codes <= {130, 0, -signal.SIGINT}
    assert scene.do("resume", "--all").code == 0
    assert {scene.show(run)["status"] for run in scene.runs()} <= {"succeeded"}
    check_all(scene, looks=False)


def test_b85_a_signal_during_the_last_write(scene: Scene) -> None:
    """E17: what is written is written: the run has ended, whatever the code says of the signal."""
    scene.saga("x", [step("a")])
    order = {"at": "before_end", "step": "", "direction": "", "signal": int(signal.SIGTERM)}
    assert scene.do("run", "x", hooks={"signal": order}).code in {0, 143}
    assert scene.show()["status"] == "succeeded"
    check_all(scene)


def _digests(scene: Scene) -> dict[str, str]:
    files = [file for file in (scene.path / ".sagactl").rglob("*") if file.is_file()]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_b87_what_only_looks_changes_nothing(scene: Scene) -> None:
    """Every byte of the log and beside it stays, nothing is called, no timer is fired: on a run that is overdue."""
    scene.saga("x", [step("a"), step("b", "retry 1", retry=tries(2, "2s"))])
    assert scene.do("run", "x", "--no-wait").code == 12
    run = scene.latest()
    time.sleep(2.1)
    before, calls = _digests(scene), scene.calls()
    for line in (
        ("plan", "x"),
        ("graph", "x"),
        ("validate",),
        ("log", run),
        ("show", run),
        ("list",),
        ("dlq", "list"),
        ("outbox", "list"),
        ("verify",),
        ("rollback", run, "--dry-run"),
        ("resume", run, "--dry-run"),
    ):
        assert scene.do(*line).code == 0, line
    assert (_digests(scene), scene.calls()) == (before, calls)
    assert scene.do("resume", run).code == 0
    check_all(scene)
