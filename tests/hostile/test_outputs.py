"""Hostile tools, receivers and terminals' worst texts, by the ids of the list in `test_list`."""

from __future__ import annotations

import base64
import json
import sqlite3
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.alerts.receiver import SECRET, Answer, answer, receiving
from tests.hostile.attack import CONTROL, Target
from tests.hostile.test_definitions import Listener

TOKEN = "sk_live_51HxYz93 Qq/+7"

LEAKY = '''
import subprocess
import sys
import urllib.error

from sagactl import CallContext, Rejected, Secret, Unavailable, tool


@tool("leak.tell", compensation="leak.undo", compensation_with={"key": "${{ args.key }}"})
def tell(key: Secret, how: str, context: CallContext) -> object:
    """Tell a secret in every way that libraries do."""
    print(f"token {key}", file=sys.stderr)
    context.logger.error("url https://x.example/?key=%s", key)
    if how == "raise":
        raise RuntimeError(f"401 for token {key}") from ValueError({"Authorization": f"Bearer {key}"})
    if how == "reject":
        raise Rejected(f"bad token {key}", code="denied")
    if how == "http":
        raise urllib.error.HTTPError(f"https://u:{key}@x.example/?key={key}", 500, key, None, None)
    if how == "argv":
        subprocess.run(["false", key], check=True)
    return {"headers": {"Authorization": f"Bearer {key}"}, "url": f"https://x.example/?key={key}", key: [key]}


@tool("leak.undo", null_safe=True)
def undo(key: Secret) -> None:
    """Fail to undo, with the secret in the words."""
    raise Rejected(f"can't undo with {key}")
'''

LEAK = """
saga: leak
secrets: [KEY]
input: {type: object}
defaults: {retry: {max_attempts: 1}}
steps:
  - {id: one, tool: leak.tell, compensate_failed: always, with: {key: "${{ secrets.KEY }}", how: "${{ input.how }}"}}
  - {id: two, tool: trap.take, with: {value: "${{ steps.one.output }}"}}
  - {id: three, tool: trap.fail, with: {value: "${{ steps.two.output }}"}}
"""


@pytest.mark.parametrize("how", ["raise", "reject", "http", "argv", "return"])
def test_h25_no_byte_of_a_secret_is_stored_or_shown(target: Target, how: str) -> None:
    """H25: in errors, headers, URLs, keys and undos a secret is masked: in database, WAL, streams, alerts, letters."""
    target.write(LEAKY, "plugins/leaky.py")
    target.write(LEAK)
    assert target.project.run("run", "echo", "-i", "value=1", "-q").code == 0
    with receiving() as receiver, sqlite3.connect(target.path / ".sagactl" / "log.db") as reader:
        target.write(
            f'[secrets]\nKEY = {{env = "KEY"}}\n[events]\nfile = "events.jsonl"\n[[alerts.channel]]\nname = "ops"\n'
            f'kind = "webhook"\nurl = "{receiver.url}"\nsecret = {{env = "HOOK"}}\n',
            "sagactl.toml",
        )
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM runs").fetchone() == (1,)  # so the WAL stays where it is
        blow = target.strike(
            "run", "evil.yaml", "-i", f"how={how}", "-o", "json", "--debug", extra={"KEY": TOKEN, "HOOK": SECRET}
        )
        assert blow.code == 11, blow.err
        shown = [
            target.project.run(*line.split(), extra={"KEY": TOKEN})
            for line in ("show -o json --printed", "dlq show -o json")
        ]
        shown.append(target.project.run("log", "@latest"))
        receiver.wait(1)
        assert any(each.name.endswith("-wal") for each in (target.path / ".sagactl").iterdir())
        everything = (
            target.stored_bytes() + (blow.out + blow.err + "".join(each.out + each.err for each in shown)).encode()
        )
        everything += b"".join(post.body + repr(post.headers).encode() for post in receiver.posts)
    spellings = [
        TOKEN,
        urllib.parse.quote(TOKEN),
        urllib.parse.quote_plus(TOKEN),
        json.dumps(TOKEN)[1:-1],
        TOKEN.encode().hex(),
    ]
    spellings.append(base64.b64encode(TOKEN.encode()).decode().rstrip("=")[:-1])
    assert b"***" in everything or b"[secret" in everything or b"KEY" in everything
    for spelling in spellings:
        assert spelling.encode() not in everything, spelling


EVIL = "\x1b[2J\x1b]8;;http://evil.example\x07click\x1b]52;c;YQ==\x07\x9b1m\rFAKE\x08\x7f\x00\u202e\u2066\u200b\u2028[red]:bomb:end"


def test_h27_no_command_sends_a_control_byte_to_a_terminal(target: Target) -> None:
    """H27: outputs, errors, names, keys, reasons and what was typed are shown with visible escapes, in every view."""
    written = json.dumps(EVIL)
    text = (
        f"saga: evil\ndescription: {written}\nversion: {written}\ninput: {{type: object}}\nsteps:\n"
        f"  - {{id: one, description: {written}, agent: {written}, "
        "tool: trap.take, with: {value: '${{ input.value }}'}}\n"
        f"  - {{id: two, tool: trap.read, with: {{file: answer.json}}}}\n"
        f"  - {{id: three, tool: trap.take, approval: true, with: {{value: '${{{{ steps.two.output }}}}'}}}}\n"
        f"  - {{id: four, tool: trap.fail, with: {{message: '${{{{ steps.two.output.a }}}}'}}}}\noutput: {written}\n"
    )
    target.write(text, "sagas/evil.yaml")
    target.write(json.dumps({"a": EVIL, EVIL: [EVIL]}), "answer.json")
    begun = target.strike("run", "evil", "-i", f"value:={written}", "-o", "json")
    assert begun.code == 12, begun.err
    run_id = begun.json["run"]["id"]
    target.strike("approve", run_id, "three", "--reason", EVIL.replace("\x00", ""))
    views = [
        "show",
        "show --printed",
        "log",
        "log --step one",
        "list",
        "validate",
        "plan evil",
        "graph evil",
        "dlq list",
    ]
    views += ["verify", "tools", "tools trap.take", "outbox list", "doctor", "config", "metrics"]
    lines = [view.split() for view in views] + [[*view.split(), "-o", "json"] for view in views if view != "metrics"]
    for line, result in zip(lines, target.project.run_several(*lines), strict=True):
        assert not CONTROL.search(result.out), line
        assert "\nFAKE" not in result.out, line
    typed = EVIL.replace("\x00", "")
    lines = [
        ["run", typed],
        ["show", typed],
        ["run", "evil", "-i", typed],
        ["run", "evil", "-i", f"v=@{typed}"],
        [typed],
    ]
    lines += [["--log", typed, "list"], ["list", "--status", typed], ["list", f"--{typed}"], ["help", typed]]
    for line in (*lines, ["run", "evil", "--idempotency-key", typed]):
        assert target.strike(*line).code in {1, 2, 3, 4, 6}
    assert target.strike(
        "list", extra={"COLUMNS": typed, "TZ": typed, "SAGACTL_NOSUCH": typed, "TERM": typed}
    ).code in {0, 2, 3}


def test_h27_a_broken_plugin_speaks_in_escapes(target: Target) -> None:
    """H27: what a plugin prints and raises while it is imported, and what its file is called, is foreign text too."""
    target.write(f"print({EVIL!r})\nraise RuntimeError({EVIL!r})\n", "plugins/broken.py")
    target.write(f"import sys\nsys.stderr.write({EVIL!r})\nx = (\n", "plugins/od\u202ed.py")
    for line in (["tools"], ["tools", "-o", "json"], ["validate"], ["doctor"], ["run", "echo", "-i", "value=1"]):
        target.strike(*line)


LOUD = '''
from sagactl import tool


@tool("loud.print", read_only=True)
def shout() -> str:
    """Print a hundred megabytes."""
    for _ in range(100):
        print("x" * 1_048_575)
    return "done"


@tool("loud.answer", read_only=True)
def large() -> str:
    """Answer with more than an output may have."""
    return "x" * 3_000_000
'''


def test_h49_what_a_tool_prints_is_cut_and_what_it_answers_has_a_limit(target: Target) -> None:
    """H49: a hundred megabytes on stdout cost no memory; an answer beyond the limit leaves the outcome unknown."""
    target.write(LOUD, "plugins/loud.py")
    steps = "[{id: a, tool: loud.print}, {id: b, tool: loud.answer, retry: {max_attempts: 1}}]"
    blow = target.strike("run", target.write(f"saga: a\nsteps: {steps}\n"), "-o", "json")
    assert blow.code == 10
    assert blow.json["run"]["error"]["type"] == "bad_output"
    assert "1048576" in blow.json["run"]["error"]["message"]
    assert blow.peak_mib < 200
    assert sum(each.stat().st_size for each in (target.path / ".sagactl").iterdir() if each.is_file()) < 8 << 20


@pytest.mark.parametrize("output", ["text", "json", "none"])
def test_h49_a_command_that_never_stops_printing_is_ended(target: Target, output: str) -> None:
    """H49: its output is cut at the limit, the outcome is unknown, memory stays bounded, and the process is gone."""
    argv = f"[sh, -c, 'echo $$ > pid; exec yes {'x' * 500}']"
    call = f"with: {{argv: {argv}, output: {output}}}, start_to_close_timeout: 3s, retry: {{max_attempts: 1}}"
    step = (
        f"{{id: one, tool: shell.run_idempotent, {call}, compensate: {{tool: shell.undo, with: {{argv: ['true']}}}}}}"
    )
    blow = target.strike("run", target.write(f"saga: a\nsteps: [{step}]\n"), "-o", "json")
    assert blow.code == 10, blow.err
    assert blow.json["run"]["steps"][0]["status"] == "compensated"
    assert "outcome unknown" in blow.err
    assert blow.peak_mib < 200
    pid = int((target.path / "pid").read_text())
    assert not _is_alive(pid)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


def test_h49_a_hundred_megabytes_of_a_command_are_cut_and_said_to_be(target: Target) -> None:
    """H49, E3: the end of what a command prints is its output as promised, so it succeeds; the rest takes no room."""
    step = "{id: one, tool: shell.run_idempotent, read_only: true, with: {argv: [head, -c, '104857600', /dev/zero]}}"
    text = f"saga: a\nsteps: [{step}]\noutput: '${{{{ steps.one.output }}}}'\n"
    blow = target.strike("run", target.write(text), "-o", "json")
    assert blow.code == 0
    assert len(blow.out) < 8 << 20
    assert blow.peak_mib < 200
    assert (target.path / ".sagactl" / "log.db").stat().st_size < 8 << 20


SLOW = '''
import time

from sagactl import CallContext, tool


@tool("slow.act", compensation="slow.undo", compensation_with={"got": "${{ output }}"})
def act(context: CallContext) -> dict[str, str]:
    """Succeed, after the deadline."""
    with (context.project / "acts").open("a") as file:
        file.write(f"act {context.attempt} {context.idempotency_key}\\\\n")
    time.sleep(4)
    return {"late": "very"}


@tool("slow.undo", null_safe=True)
def undo(context: CallContext, got: dict[str, str] | None = None) -> None:
    """Undo."""
    with (context.project / "acts").open("a") as file:
        file.write(f"undo {got} {context.raw} {context.forward_key}\\\\n")
'''.replace("\\\\n", "\\n")


def test_h55_a_success_after_its_timeout_is_evidence_and_undone_once(target: Target) -> None:
    """H55: the late answer is kept as `raw` for the undo, the outcome stays unknown, and the undo is called once."""
    target.write(SLOW, "plugins/slow.py")
    step = "{id: one, tool: slow.act, start_to_close_timeout: 2s, retry: {max_attempts: 1}}"
    blow = target.strike("run", target.write(f"saga: a\nsteps: [{step}]\n"), "-o", "json")
    assert blow.code == 10, blow.err
    run = blow.json["run"]
    key = f"{run['id']}/one/action"
    acts = (target.path / "acts").read_text().splitlines()
    assert acts == [f"act 1 {key}", f"undo None {{'late': 'very'}} {key}"]
    assert run["steps"][0]["status"] == "compensated"
    records = target.project.run("log", run["id"], "-o", "json").json["items"]
    [outcome] = [each for each in records if each["type"] == "outcome" and each["direction"] == "action"]
    assert outcome["body"]["raw"] == {"late": "very"}
    for again in ("resume", "rollback"):
        assert target.strike(again, run["id"]).code in {0, 6, 10}
    assert len((target.path / "acts").read_text().splitlines()) == 2


def test_h55_a_reply_that_comes_twice_counts_once(target: Target) -> None:
    """H55: a command that prints its answer twice hasn't said it once: in doubt, asked again with the same key."""
    script = "echo x >> calls; echo {}; echo {}"
    call = (
        f"with: {{script: '{script}', output: json}}, retry: {{max_attempts: 2, initial_interval: 1ms, jitter: none}}"
    )
    undo = "compensate: {tool: shell.undo, with: {script: 'echo undo >> calls'}}"
    blow = target.strike(
        "run",
        target.write(f"saga: a\nsteps: [{{id: one, tool: shell.run_idempotent, {call}, {undo}}}]\n"),
        "-o",
        "json",
    )
    assert blow.code == 10, blow.err
    assert (target.path / "calls").read_text().split() == ["x", "x", "undo"]


def _stall(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(14)
    handler.send_response(204)
    handler.end_headers()


def _alert(target: Target, url: str) -> None:
    """Get a run stuck, so that there is something to tell *url*; nothing is told yet."""
    step = "{id: one, tool: trap.fail, compensate_failed: always, compensate: {tool: trap.fail}}"
    target.write(
        f'[[alerts.channel]]\nname = "ops"\nkind = "webhook"\nurl = "{url}"\nsecret = {{env = "HOOK"}}\n',
        "sagactl.toml",
    )
    target.write(f"saga: a\nsteps: [{step}]\n")


@pytest.mark.parametrize(
    ("reply", "said", "state"),
    [
        ("302", "redirects are not followed", "waiting"),
        ("410", "it takes no more messages", "given_up"),
        ("500", "answered 500", "waiting"),
        ("stall", "", "waiting"),
    ],
)
def test_h45_no_receiver_leads_an_alert_elsewhere_or_holds_it_up(
    target: Target, reply: str, said: str, state: str
) -> None:
    """H45: a redirect isn't followed, silence ends at a limit, 410 ends the tries; the run goes its way."""
    listener = Listener()
    replies: dict[str, Answer] = {
        "302": answer(302, location=listener.url),
        "410": answer(410),
        "500": answer(500, b"\x1b[2Jno"),
        "stall": _stall,
    }
    with receiving() as receiver:
        receiver.answer = replies[reply]
        _alert(target, receiver.url)
        started = time.monotonic()
        blow = target.strike("run", "evil.yaml", "-o", "json", extra={"HOOK": SECRET})
        assert blow.code == 11, blow.err
        assert time.monotonic() - started < 100
        listed = target.project.run("outbox", "list", "--all", "-o", "json", extra={"HOOK": SECRET}).json
        text = json.dumps(listed)
        assert said in text
        assert f'"{state}"' in text, text
        count = len(receiver.posts)
        if state == "given_up":
            assert target.strike("outbox", "deliver", extra={"HOOK": SECRET}).code in {0, 1}
            assert len(receiver.posts) == count
    assert listener.visits == 0
    listener.socket.close()
