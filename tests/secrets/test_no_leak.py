"""No byte of a secret is stored or shown, whatever a tool does with it (E19, X2, H25): in no file, in no word."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import urllib.parse
from pathlib import Path

import pytest

from tests.cli.project import Project, Result

VALUE = 'sk_live/51+Hx "Yz93\\Qq é7'
ROTATED = "sk_live_rotated_2718281828"

PLUGIN = '''
"""A plugin that can't keep a secret."""

import base64, hashlib, json, os, signal, subprocess, sys, threading, urllib.parse
from pathlib import Path
from sagactl import CallContext, Done, Pending, Rejected, Secret, Unavailable, tool


def tell(key):
    data = key.encode()
    return {
        "plain": key, "text": f"Bearer {key}, thanks", key: [[key]], "json": json.dumps({"k": key}), "repr": repr(key),
        "url": f"https://x.example/?key={urllib.parse.quote(key, safe='')}", "form": urllib.parse.quote_plus(key),
        "base64": [base64.b64encode(b"u:p"[:n] + data).decode() for n in range(4)],
        "urlsafe": [base64.urlsafe_b64encode(b"u:p"[:n] + data + b"x").decode() for n in range(4)],
        "hex": [data.hex(), data.hex().upper()], "lines": key[:9] + "\\n" + key[9:], "bytes": repr(data),
    }


def show(key, context):
    print(tell(key))
    sys.stdout.write(key[:8])
    sys.stdout.write(key[8:])
    sys.stderr.write(key + "\\n")
    context.logger.warning("the key is %s", key)
    os.write(2, f"raw {key}\\n".encode())
    for piece in (key[:7], key[7:]):
        os.write(1, piece.encode())
    subprocess.run([sys.executable, "-c", "import os; print(os.environ['K'])"], env={**os.environ, "K": key})


@tool("leak.probe", read_only=True)
def probe(key: Secret, context: CallContext):
    """Find out."""
    show(key, context)
    return Done(tell(key))


@tool("leak.act", compensation="leak.undo", compensation_with={"key": "${{ args.key }}"}, probe="leak.probe")
def act(key: Secret, how: str, context: CallContext):
    """Act, and tell."""
    show(key, context)
    if how == "raise":
        raise ValueError(f"{key}: {tell(key)}") from KeyError(key)
    if how == "reject":
        raise Rejected(f"no: {key}", code=key)
    if how == "busy" and context.attempt == 1:
        raise Unavailable(f"busy: {key}", code="c" + key, retry_after=0)
    if how == "pending" and context.token is None:
        raise Pending(after=0.01, token=tell(key))
    if how == "bytes":
        return {"key": key.encode()}
    if how == "thread":
        def ramble():
            print("late", key)
            raise RuntimeError(key)
        thread = threading.Timer(0.05, ramble)
        thread.start()
    return tell(key)


@tool("leak.misfit", compensation="leak.undo", compensation_with={"key": "${{ args.key }}"},
      output_schema={"type": "object", "properties": {"plain": {"type": "string", "maxLength": 3}}})
def misfit(key: Secret):
    """Return what doesn't fit."""
    return tell(key)


@tool("leak.undo", null_safe=True)
def undo(key: Secret, context: CallContext):
    """Undo, and tell."""
    show(key, context)
    if context.attempt == 1:
        raise Unavailable(f"busy: {key}", retry_after=0)
    return tell(key)


@tool("leak.stuck", null_safe=True)
def stuck(key: Secret):
    """Can't undo."""
    raise Rejected(f"can't: {key}")


@tool("leak.fail")
def fail(message: str, how: str):
    """Fail with what an earlier step said, or die."""
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    raise Rejected(message)


@tool("leak.note", version="1")
def note(key: Secret, context: CallContext) -> None:
    """Note what came, for those who know it."""
    with Path("notes.txt").open("a") as file:
        file.write(hashlib.sha256(key.encode()).hexdigest() + " " + context.idempotency_key + "\\n")
    if context.attempt == 1:
        raise Unavailable("later", retry_after=1)
'''

SAGA = """
saga: leak
secrets: [api_key]
defaults: {start_to_close_timeout: 30s, retry: {max_attempts: 2, initial_interval: 1ms, max_interval: 1ms}}
input:
  type: object
  properties:
    how: {type: string, default: ok}
    fails: {type: boolean, default: false}
steps:
  - id: one
    tool: leak.act
    with: {key: "${{ secrets.api_key }}", how: "${{ input.how }}"}
  - id: mail
    tool: mail.send
    with: {to: a@example.com, template: "${{ steps.one.output.text }}"}
    compensate: {none: "sent"}
  - id: shell
    tool: shell.run_idempotent
    with:
      script: 'echo "$K"; echo "$K" >&2; printf %s "$K" | base64; exit 0'
      env: {K: "${{ secrets.api_key }}"}
    compensate: {tool: shell.undo, with: {script: 'echo "$K"', env: "${{ args.env }}"}}
  - id: last
    when: "${{ input.fails }}"
    tool: leak.fail
    with: {message: "${{ steps.one.output.text }}", how: "${{ input.how }}"}
    compensate: {none: "nothing"}
output: "${{ steps.one.output }}"
"""

MISFIT = """
saga: misfit
secrets: [api_key]
defaults: {start_to_close_timeout: 30s, retry: {max_attempts: 1}}
steps:
  - id: one
    tool: leak.act
    with: {key: "${{ secrets.api_key }}", how: ok}
    compensate: {tool: leak.stuck, with: {key: "${{ args.key }}"}}
  - id: two
    tool: leak.misfit
    with: {key: "${{ secrets.api_key }}"}
"""

NOTE = """
saga: note
secrets: [api_key]
defaults: {start_to_close_timeout: 30s}
steps:
  - id: one
    tool: leak.note
    with: {key: "${{ secrets.api_key }}"}
    compensate: {none: "a note"}
"""


def spellings(value: str) -> dict[str, bytes]:
    """Return what may stand nowhere."""
    data = value.encode()
    cores: dict[str, bytes] = {}
    for offset in range(3):
        whole = base64.b64encode(bytes(offset) + data)
        core = whole[-(-8 * offset // 6) : 8 * (offset + len(data)) // 6]
        cores |= {f"base64 at {offset}": core, f"url base64 at {offset}": core.translate(bytes.maketrans(b"+/", b"-_"))}
    return {
        "plain": data,
        "JSON": json.dumps(value)[1:-1].encode(),
        "JSON in UTF-8": json.dumps(value, ensure_ascii=False)[1:-1].encode(),
        "repr": repr(value)[1:-1].encode(),
        "repr of bytes": repr(data)[2:-1].encode(),
        "URL": urllib.parse.quote(value, safe="").encode(),
        "form": urllib.parse.quote_plus(value).encode(),
        "hex": data.hex().encode(),
        "HEX": data.hex().upper().encode(),
        "its end": value[9:].encode(),
        **cores,
    }


def assert_nowhere(project: Project, results: list[Result], value: str = VALUE) -> None:
    """Look through every file of the project and every word that was said."""
    said = {f"stream {number}": (each.out + each.err).encode() for number, each in enumerate(results)}
    files = {str(path): path.read_bytes() for path in project.path.rglob("*") if path.is_file() and path.name != "key"}
    assert len(files) > 5
    found = [
        f"{spelling} in {place}"
        for place, content in {**said, **files}.items()
        for spelling, needle in spellings(value).items()
        if needle in content
    ]
    assert not found, "\n".join(found)


@pytest.fixture(name="project")
def make_project(tmp_path: Path) -> Project:
    """Return a project whose secret is in a file, and whose plugin can't keep it."""
    project = Project.make(tmp_path)
    (tmp_path / "plugins" / "leak.py").write_text(PLUGIN)
    for name, text in (("leak", SAGA), ("misfit", MISFIT), ("note", NOTE)):
        (tmp_path / "sagas" / f"{name}.yaml").write_text(text)
    (tmp_path / "key").write_text(VALUE + "\n")
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "sagactl.toml").write_text('[secrets]\napi_key = {file = "key"}\n')
    return project


def look_everywhere(project: Project) -> list[Result]:
    """Show all that there is to be shown, in every form."""
    commands = (
        ("show", "@latest", "--printed"),
        ("log", "@latest", "-vv"),
        ("list",),
        ("dlq", "list"),
        ("plan", "leak", "--show-inputs"),
        ("validate", "leak"),
        ("tools", "leak.act"),
        ("graph", "leak"),
    )
    return project.run_several(
        *((*command, "-o", output) for command in commands for output in ("text", "json", "jsonl"))
    )


@pytest.mark.parametrize(
    ("how", "code"),
    [("ok", 0), ("raise", 0), ("reject", 10), ("busy", 0), ("pending", 0), ("bytes", 0), ("thread", 0)],
)
def test_a_tool_that_tells_its_secret_tells_nobody(project: Project, how: str, code: int) -> None:
    """E19, X2: outputs, errors, codes, tokens, probes, prints in pieces, past Python and after the call: no value."""
    result = project.run("run", "leak", "-i", f"how={how}", "-vv", "--debug")
    assert result.code == code, result.err
    assert_nowhere(project, [result, *look_everywhere(project)])
    assert "***" in project.run("show", "@latest", "-o", "json").out
    assert "***" in result.err


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_rollback_tells_no_secret_either(project: Project, output: str) -> None:
    """E19, X2: compensations get the secret of their action, and what they give back is masked as well."""
    result = project.run("run", "leak", "-i", "fails:=true", "-o", output, "-vv")
    assert result.code == 10, result.err
    assert_nowhere(project, [result, *look_everywhere(project)])
    steps = project.latest()["steps"]
    assert [step["status"] for step in steps[:3]] == ["compensated", "succeeded", "compensated"]


@pytest.mark.parametrize(("saga", "inputs", "code"), [("leak", ("-i", "how=reject"), 10), ("misfit", (), 11)])
def test_ci_is_told_no_secret(project: Project, saga: str, inputs: tuple[str, ...], code: int) -> None:
    """E19: neither annotations, nor the job's summary, nor its outputs, nor JUnit hold a value, in any spelling."""
    project.environ |= {
        "GITHUB_ACTIONS": "true",
        "GITHUB_OUTPUT": str(project.path / "output"),
        "GITHUB_STEP_SUMMARY": str(project.path / "summary.md"),
    }
    result = project.run("run", saga, *inputs, "--junit", "report.xml")
    assert result.code == code, result.err
    assert "::error " in result.err
    assert_nowhere(project, [result])
    for name in ("summary.md", "report.xml"):
        text = (project.path / name).read_text()
        assert VALUE not in html.unescape(text)
        assert VALUE[9:] not in html.unescape(text)
    assert VALUE not in urllib.parse.unquote(result.err)


def test_a_crash_leaves_no_secret_in_the_side_files_of_the_log(project: Project) -> None:
    """E19, X2: what was written ahead and not yet moved into the database holds no value either."""
    result = project.run("run", "leak", "-i", "how=die", "-i", "fails:=true")
    assert result.code == -9
    assert (project.path / ".sagactl" / "log.db-wal").stat().st_size > 0
    assert_nowhere(project, [result])


def test_a_stuck_run_keeps_its_secret(project: Project) -> None:
    """E19, X2: neither a reply that didn't fit nor a dead letter shows it, nor what a decision about it prints."""
    result = project.run("run", "misfit")
    assert result.code == 11, result.err
    run_id = project.latest()["id"]
    letters = [project.run("dlq", "show", run_id, "-o", output) for output in ("text", "json")]
    again = project.run("dlq", "retry", run_id, "--reason", "again")
    dry = project.run("rollback", run_id, "--dry-run")
    assert_nowhere(project, [result, *letters, again, dry, *look_everywhere(project)])
    assert "***" in "".join(each.out for each in letters)


def test_a_missing_secret_waits_and_a_rotated_one_is_taken_by_the_next_attempt(project: Project) -> None:
    """E19, E20: no intent without it; each attempt gets the value of its moment under the same key and arguments."""
    key = project.path / "key"
    key.rename(project.path / "elsewhere")
    waiting = project.run("run", "note", "-o", "json")
    assert (waiting.code, waiting.json["run"]["waiting_for"]["what"]) == (12, "missing_secret")
    assert "No such file" in waiting.out
    run_id = waiting.json["run"]["id"]
    assert not _intents(project, run_id)
    (project.path / "elsewhere").rename(key)
    assert project.run("resume", run_id, "--no-wait").code == 12
    key.write_text(ROTATED)
    done = project.run("resume", run_id)
    assert done.code == 0, done.err
    first, second = (line.split() for line in (project.path / "notes.txt").read_text().splitlines())
    assert [first[0], second[0]] == [hashlib.sha256(value.encode()).hexdigest() for value in (VALUE, ROTATED)]
    assert first[1] == second[1]
    recorded = [each["body"].get("arguments") for each in _intents(project, run_id)]
    assert recorded == [{"key": {"$secret": "api_key"}}, None]
    assert_nowhere(project, [waiting, done, *look_everywhere(project)], ROTATED)


def _intents(project: Project, run_id: str) -> list[dict[str, dict[str, object]]]:
    records = project.run("log", run_id, "-o", "json").json["items"]
    return [record for record in records if record["type"] == "intent"]


def test_a_file_that_everybody_can_read_is_said_to_be_one(project: Project) -> None:
    """E19: `run` and `validate` say it on stderr, and go on."""
    (project.path / "key").chmod(0o644)
    for command in (("validate", "note"), ("run", "note")):
        result = project.run(*command)
        assert result.code == 0
        assert "warning: the file of the secret api_key can be read by every user here" in result.err
