"""Hostile inputs of runs, by the ids of the list in `test_list`: what comes in is data, and stays the same data."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest

from tests.hostile.attack import STRIKES_GOAL, Target
from tests.hostile.test_definitions import bomb
from tests.proof import Prove

DEEP = {
    "lists": "[" * 200_000 + "]" * 200_000,
    "maps": '{"a":' * 150_000 + "1" + "}" * 150_000,
    "open": "[" * 200_000,
    "65": "[" * 65 + "]" * 65,
}


@pytest.mark.parametrize("name", DEEP)
def test_h03_deep_json_is_an_input_error(target: Target, name: str) -> None:
    """H03: two hundred thousand levels are refused by their depth, from a file, from stdin and as an option."""
    text = f'{{"value":{DEEP[name]}}}'
    file = target.write(text, "deep.json")
    ways = {"lists": ("-",), "maps": (file,), "open": (), "65": (file,)}[name]
    if ways:
        blow = target.repel("run", "echo", "--inputs", *ways, stdin=text.encode())
    else:
        blow = target.repel("run", "echo", "-i", f"value:={DEEP[name][:100_000]}")
    assert "nested deeper than 64 levels" in blow.err


STRANGE: dict[str, tuple[str | bytes, str]] = {
    "bomb": (bomb(), "anchors and aliases"),
    "yaml-deep": ("value: " + "[" * 100_000, "64 levels"),
    "yaml-twins": ("value: 1\nvalue: 2\n", "given twice"),
    "twins": ('{"value": 1, "value": 2}', "given twice"),
    "many-twins": ("{" + ",".join(f'"k{n}":1' for n in range(80_000)) + ',"k79999":2}', "'k79999' is given twice"),
    "half": ('{"value": "\\ud800"}', "half of a surrogate pair"),
    "two": ('{"value": 1} {"value": 2}', "Extra data"),
    "bytes": (b"\xff\xfe{\x00}\x00", "no UTF-8"),
    "nul": (b'{"value": "\x00"}', "control character"),
    "list": ("[1, 2]", "must be a map"),
    "null": ("null", "must be a map"),
    "large": ('{"value": "' + "x" * 1_048_576 + '"}', "1048576 bytes"),
    "secret": ('{"value": {"$secret": "STRIPE"}}', "$secret"),
    "secret-deep": ('{"value": [[{"x": {"$secret": "STRIPE", "y": 1}}]]}', "$secret"),
    "tag": ("value: !!python/object/apply:os.system ['touch pwned']\n", "tag"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_h03_what_is_no_plain_data_is_an_input_error(target: Target, name: str) -> None:
    """H01, H03: bombs, twins, half characters, tags and names of secrets in an input are refused where they stand."""
    text, said = STRANGE[name]
    blow = target.repel("run", "echo", "--inputs", target.write(text, "input.data"))
    assert said in blow.err
    assert not list(target.path.rglob("pwned"))


NUMBERS = [
    "9" * 5_000,
    "1e1001",
    "-1e-1001",
    "1e999999999999999999999",
    "NaN",
    "-Infinity",
    "Infinity",
    "0." + "1" * 5_000,
]


def test_h09_numbers_that_nothing_can_hold_are_input_errors(target: Target, prove: Prove) -> None:
    """H09: five thousand digits, NaN, infinity and what is out of range are refused, in JSON and in YAML."""
    blow = target.repel("run", "echo", "-i", f"value:=[{NUMBERS[0]}]")
    assert "more than 1000 digits" in blow.err
    words = {"NaN": ".nan", "Infinity": ".inf", "-Infinity": "-.inf"}
    lines = []
    for place, number in enumerate(NUMBERS):
        file = target.write(f"value: {words.get(number, number)}\n", f"n{place}.yaml")
        lines += [["run", "echo", "-i", f"value:=[{number}]"], ["run", "echo", "--inputs", file]]
    assert [each.code for each in target.project.run_several(*lines)] == [3] * len(lines)
    target.refuse_traces()
    prove("hostile inputs", len(lines), goal=STRIKES_GOAL)


EXACT = [
    *(
        "9007199254740993",
        "18446744073709551616",
        "-9223372036854775809",
        "9" * 1_000,
        "0.1",
        "1.10",
        "1e-400",
        "1e400",
    ),
    *("123456789012345678901234567890.123456789", "-0.0", "5e-324", "1.7976931348623157e309", "10000000000000000.1"),
]


def test_h09_every_other_number_is_exact_in_log_tool_undo_and_answer(target: Target) -> None:
    """H09: 2^53+1, 2^64, long decimals and tiny ones come to the tools, the undo and back, digit by digit."""
    from sagactl.core.canonical import canonical, parse

    text = "[" + ",".join(EXACT) + "]"
    value = parse(text)
    blow = target.strike("run", "echo", "-i", f"value:={text}", "-i", "fails:=true", "-o", "json")
    assert blow.code == 10
    seen = target.seen()
    assert [each[:3] for each in seen] == [
        ["one", None, "action"],
        ["two", None, "action"],
        ["three", None, "action"],
        ["two", None, "compensation"],
        ["one", None, "compensation"],
    ]
    assert {each[3] for each in seen[:3]} == {repr(value)}
    assert {each[3] for each in seen[3:]} == {repr([value, {"value": value}])}
    with sqlite3.connect(target.path / ".sagactl" / "log.db") as database:
        bodies = [row[0] for row in database.execute("SELECT body FROM records")]
    assert sum(canonical(value) in (each if isinstance(each, str) else each.decode()) for each in bodies) >= 6
    shown = target.strike("show", "@latest", "-o", "json")
    assert parse(shown.out)["run"]["input"]["value"] == value  # type: ignore[index,call-overload]


def test_h09_a_tools_numbers_are_held_to_the_same(target: Target) -> None:
    """H09: a tool that answers NaN, infinity or too many digits is in doubt, and its big integers are exact."""
    plugin = '@tool("odd.{}", read_only=True)\ndef odd{}() -> Any:\n    return {}\n\n\n'
    answers = ['float("nan")', '[float("inf")]', "10**5000", '{"a": 2**64 + 1}', "{1: 2}", "b'x'", '"\\ud800"']
    text = "from typing import Any\nfrom sagactl import tool\n" + "".join(
        plugin.format(f"n{number}", number, answer) for number, answer in enumerate(answers)
    )
    target.write(text, "plugins/odd.py")
    exact = ""
    for number in range(len(answers)):
        step = f"{{id: one, tool: odd.n{number}, retry: {{max_attempts: 1}}}}"
        blow = target.strike(
            "run", target.write(f"saga: a\nsteps: [{step}]\noutput: '${{{{ steps.one.output }}}}'\n"), "-o", "json"
        )
        assert blow.code == (0 if number == 3 else 10), (blow.out, blow.err)
        exact += blow.out if number == 3 else ""
    assert '{"a": 18446744073709551617}' in exact


PATHS = [
    *("..", "../x", "a/b", "/etc/passwd", ".", "", "a\x01b", "%2e%2e", "*", "_", "%", "' OR '1'='1", "A" * 14, "$(id)"),
    *("0" * 2_000, "\u0660" * 13, "abc\n", "@latest:../../x", "@latest:' OR 1=1 --", "@latest:", "@", "-"),
]
READING = ["show", "log", "verify", "watch", "graph --run", "dlq show", "outbox list --run"]
WRITING = ["resume", "rollback", "cancel", "pause", "unpause", "dlq retry", "terminate --reason x", "run --from"]


def test_h11_no_run_id_leads_anywhere(target: Target) -> None:
    """H11: what is no id by its grammar names no run, in any command, and nothing is made or deleted anywhere."""
    made = target.strike("run", "echo", "-i", "value=1", "-q")
    assert made.code == 0, made.err
    before, record = target.files(), target.stored_bytes()
    lines = [[*command.split(), path] for command in (*READING, *WRITING) for path in PATHS]
    for line, result in zip(lines, target.project.run_several(*lines), strict=True):
        is_empty_filter = line[-1] in {"", "@latest:"} and result.code == 0
        assert result.code in {2, 3, 4} or is_empty_filter, (line, result)
        assert "Traceback" not in result.out
    for path in PATHS[:3]:
        for command in ("approve", "deny"):
            assert target.strike(command, path, path).code in {2, 4}
    assert target.files() == before
    assert target.stored_bytes() == record


NAMES = ["../../etc/passwd", "..", "a/../../b", "sagas/../../x", "@latest", "x" * 5_000]


@pytest.mark.parametrize("command", ["run", "validate", "plan", "graph", "help", "tools"])
def test_h11_no_name_of_a_saga_or_page_leads_out(target: Target, command: str) -> None:
    """H11: FILE may be a path of the person who types it; a name never is, and what is no saga is shown to nobody."""
    (target.path.parent / "b.yaml").write_text("saga: outside\npassword: hunter2\n")
    for name in NAMES:
        blow = target.strike(command, name)
        assert blow.code in {2, 3, 4}
        assert "hunter2" not in blow.out + blow.err
    target.refuse_traces()


TEXTS = [
    *("${{ secrets.STRIPE }}", "${{ input.amount }}", "$${{ input.amount }}", "{{ 7*7 }}", "${7*7}", "#{7*7}", "%(x)s"),
    *("${{ steps.one.output }} ${{", "}}", "'; DROP TABLE runs; --", "$(touch pwned)", '{"$secret": "STRIPE"}'),
]

KEEPER = """
from sagactl import Secret, tool


@tool("keep.key", read_only=True)
def key(key: Secret) -> bool:
    return True
"""

TEMPLATES = """
saga: data
input: {type: object}
secrets: [STRIPE]
run_key: "${{ input.key }}"
steps:
  - {id: read, tool: trap.read, with: {file: answer.json}}
  - {id: one, tool: trap.take, with: {value: "${{ input.name }}"}}
  - {id: two, tool: trap.take, with: {value: "<${{ input.name }}|${{ steps.read.output.text }}>"}}
  - {id: three, tool: trap.take, foreach: "${{ steps.read.output.list }}", with: {value: {k: ["${{ item }}"]}}}
  - {id: four, tool: trap.take, with: {value: "${{ input.name + steps.two.output.value }}"}}
  - {id: key, tool: keep.key, with: {key: "${{ secrets.STRIPE }}"}}
  - {id: five, tool: trap.fail, with: {message: "${{ input.name }}", value: "${{ input.map }}"}}
"""


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_h13_what_looks_like_an_expression_is_only_text(target: Target, text: str) -> None:
    """H13: in inputs, keys, answers, items, errors and undos each character stays; no secret is resolved."""
    target.write(KEEPER, "plugins/keep.py")
    target.write(TEMPLATES)
    target.write(json.dumps({"text": text, "list": [text, text]}), "answer.json")
    name, key = json.dumps(text), f"{text}-key"
    command = (
        "-i",
        f"name:={name}",
        "-i",
        "amount:=7",
        "-i",
        f"key={key}",
        "-i",
        f"map:={json.dumps({text: [text]})}",
    )
    extra = {"STRIPE": "sk_live_do_not_show_me", "SAGACTL_SECRET_STRIPE": "sk_live_do_not_show_me"}
    (target.path / "sagactl.toml").write_text('[secrets]\nSTRIPE = {env = "STRIPE"}\n')
    blow = target.strike("run", "evil.yaml", *command, "-o", "json", extra=extra)
    assert blow.code == 10, blow.err
    run = blow.json["run"]
    assert run["error"]["message"] == text
    assert run["key"] == key
    assert run["input"] == {"name": text, "amount": 7, "key": key, "map": {text: [text]}}
    whole = f"<{text}|{text}>"
    values = [text, whole, {"k": [text]}, {"k": [text]}, text + whole, {text: [text]}]
    assert [each[3] for each in target.seen()[:6]] == [repr(value) for value in values]
    undone = [text + whole, {"k": [text]}, {"k": [text]}, whole, text]
    assert [each[3] for each in target.seen()[6:]] == [repr([value, {"value": value}]) for value in undone]
    stored = target.stored_bytes() + blow.out.encode() + blow.err.encode()
    assert b"sk_live_do_not" not in stored
    assert not list(target.path.rglob("pwned"))


def test_h13_a_tools_answer_can_name_no_secret(target: Target) -> None:
    """H13: where an answer has the very form in which the log notes a secret, no call gets it."""
    target.write(
        TEMPLATES.replace("<${{ input.name }}|${{ steps.read.output.text }}>", "${{ steps.read.output.text }}")
    )
    target.write('{"text": {"$secret": "STRIPE"}, "list": []}', "answer.json")
    target.write(KEEPER, "plugins/keep.py")
    (target.path / "sagactl.toml").write_text('[secrets]\nSTRIPE = {env = "STRIPE"}\n')
    command = ("run", "evil.yaml", "-i", "name=x", "-i", "key=k", "-o", "json")
    blow = target.strike(*command, extra={"STRIPE": "sk_live_do_not_show_me"})
    assert blow.code == 10
    assert "can't name a secret" in blow.json["run"]["error"]["message"]
    assert "sk_live" not in json.dumps(target.seen())


SHELL = [
    *('"; touch pwned #', "$(touch pwned)", "`touch pwned`", "; touch pwned", "| touch pwned", "&& touch pwned"),
    *("\n touch pwned", "' ; touch pwned ; '", "> pwned", "-rf", "--", "~", "*", "${IFS}touch${IFS}pwned", "$((1+1))"),
    *("\\", "a b\tc", "é漢\u202e"),
]


def test_h15_what_reaches_a_command_is_one_argument(target: Target) -> None:
    """H15: quotes, backticks, dollars and line ends come to a program as the characters they are, in all three ways."""
    out = "with: {argv: [printf, '%s', \"${{ item }}\"], output: text}"
    env = 'with: {script: \'printf %s "$ARG"\', env: {ARG: "${{ item }}"}, output: text}'
    std = 'with: {argv: [cat], stdin: "${{ item }}", output: text}'
    each = 'foreach: "${{ input.list }}"'
    steps = [
        f"  - {{id: s{number}, tool: shell.run_idempotent, read_only: true, {each}, {given}}}\n"
        for number, given in enumerate((out, env, std))
    ]
    outputs = ", ".join(f'"${{{{ steps.s{number}.output }}}}"' for number in range(3))
    text = f"saga: a\ninput: {{type: object}}\nsteps:\n{''.join(steps)}output: [{outputs}]\n"
    blow = target.strike("run", target.write(text), "-i", f"list:={json.dumps(SHELL)}", "-o", "json")
    assert blow.code == 0, blow.err
    for output in blow.json["run"]["output"]:
        assert [each["stdout"] if isinstance(each, dict) else each for each in output] == SHELL
    assert not list(target.path.parent.rglob("*pwned*"))


def test_h15_a_script_holds_no_expression(target: Target) -> None:
    """H15: text put into a script would be code, so the saga is refused when it is loaded; in an undo as well."""
    bad = "with: {script: 'echo ${{ input.name }}'}"
    undo = f"compensate: {{tool: shell.undo, {bad}}}"
    for step in (f"read_only: true, {bad}", f"with: {{argv: ['true']}}, {undo}"):
        text = f"saga: a\ninput: {{type: object}}\nsteps:\n  - {{id: one, tool: shell.run_idempotent, {step}}}\n"
        blow = target.repel("run", target.write(text), "-i", "name=$(touch pwned)", "-o", "json")
        assert [code for code, _, _ in blow.problems] == ["code-place"]
    assert not list(target.path.parent.rglob("*pwned*"))


QUERIES = [
    "'; DROP TABLE runs; --",
    "' OR '1'='1",
    '" OR ""="',
    "%",
    "_",
    "\\",
    "a\u0300",
    "1; DELETE FROM records",
    "*/ --",
]


def test_h19_what_is_stored_and_asked_for_is_never_a_part_of_a_query(target: Target) -> None:
    """H19: keys, reasons, filters and ids are found literally or not at all, and all tables are still there."""
    for number, query in enumerate(QUERIES[:4]):
        blow = target.strike("run", "echo", "-i", f"value={query}", "--idempotency-key", query, "-o", "json")
        assert blow.code == 0, blow.err
        again = target.strike("run", "echo", "-i", f"value={query}", "--idempotency-key", query, "-o", "json")
        assert again.json["run"]["id"] == blow.json["run"]["id"]
        assert len(target.runs()) == number + 1
    lines = [
        [*command, query]
        for query in QUERIES
        for command in (("list", "--saga"), ("log", "@latest", "--step"), ("dlq", "list", "--saga"))
    ]
    for line, result in zip(lines, target.project.run_several(*lines), strict=True):
        assert result.code in {0, 2, 4}, line
    listed = target.project.run_several(*([*line, "-o", "json"] for line in lines if line[0] == "list"))
    assert all(json.loads(each.out).get("items", []) == [] for each in listed if each.code == 0)
    stuck = target.write("saga: s\nsteps:\n  - {id: one, tool: trap.take, with: {value: 1}, approval: true}\n")
    run_id = target.strike("run", stuck, "-o", "json").json["run"]["id"]
    denied = target.strike("deny", run_id, "one", "--reason", QUERIES[0], "-o", "json")
    assert denied.code == 10, denied.err
    log = target.project.run("log", run_id, "-o", "json")
    assert json.dumps(QUERIES[0])[1:-1] in log.out
    with sqlite3.connect(target.path / ".sagactl" / "log.db") as database:
        names = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {"runs", "records", "leases", "requests", "dead_letters", "outbox"} <= names
    assert target.strike("verify").code == 0


def test_h37_an_installed_package_that_is_not_listed_is_not_imported(target: Target, tmp_path: Path) -> None:
    """H37: its tools are listed as not allowed, its module never runs, and a saga that names them is told why."""
    site = tmp_path / "site"
    info = site / "evil_tools-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil-tools\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sagactl.plugins]\nevil = evil_tools\n")
    (site / "evil_tools.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\nraise SystemExit(7)\n")
    extra = {"PYTHONPATH": os.pathsep.join([str(site), str(Path(__file__).parents[2])])}
    for listed in ("plugins = []\n", 'plugins = ["other-tools"]\n', 'plugins = ["evil-tool"]\n'):
        (target.path / "sagactl.toml").write_text(listed)
        tools = target.strike("tools", extra=extra)
        assert tools.code == 0, tools.err
        assert "not allowed: plugin evil of evil-tools 1.0" in tools.out
        text = "saga: a\nsteps:\n  - {id: one, tool: evil.do, compensate: {none: x}}\n"
        assert target.strike("run", target.write(text), extra=extra).code == 3
        assert target.strike("run", "echo", "-i", "value=1", extra=extra).code == 0
    assert not (tmp_path / "imported").exists()
