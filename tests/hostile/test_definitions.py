"""Hostile saga files, by the ids of the list in `test_list`: refused when loaded, at once, with nothing called."""

from __future__ import annotations

import socket
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from tests.hostile.attack import Target

STEP = "steps:\n  - {id: one, tool: trap.take, with: {value: 1}}\n"


def bomb(levels: int = 9, width: int = 9) -> str:
    """Return a saga under a kilobyte that would unfold to a billion values."""
    names = "abcdefghijklmnop"[:levels]
    lines = [f"  {name}: &{name} [{', '.join(['*' + before] * width)}]" for before, name in pairwise(names)]
    return "saga: bomb\noutput:\n  a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(lines) + "\n" + STEP


def test_h01_an_alias_bomb_costs_nothing(target: Target) -> None:
    """H01: nine levels of nine aliases are a load error naming the limit, in under 100 ms and 50 MiB."""
    text = bomb()
    assert len(text) < 1000
    target.harmless_seconds = min(
        target.strike("run", target.write("saga: 1\n"), is_again=True).cpu_seconds for _ in range(3)
    )
    blow = target.repel("run", target.write(text), "-o", "json", cpu_seconds=0.1, peak_mib=50)
    assert {code for code, _, _ in blow.problems} == {"alias"}
    assert blow.problems[0][1:] == (3, 6)
    assert "limit: 0" in blow.err


@pytest.mark.parametrize(
    "text",
    [
        "saga: &x a\n" + STEP,
        "saga: a\ndescription: *nowhere\n" + STEP,
        "saga: a\nsteps: &s\n  - *s\n",
        "saga: a\nx: &m {id: one}\nsteps:\n  - {<<: *m, tool: trap.take}\n",
        "saga: a\nx: &m {id: one}\nsteps:\n  - <<: [*m, *m]\n    tool: trap.take\n",
        "saga: a\n? &k b\n: *k\n" + STEP,
        "saga: a\ninput: " + "[" * 50 + "&deep x" + "]" * 50 + "\noutput: *deep\n" + STEP,
        "".join(f"a{number}: &a{number} x\n" for number in range(30_000)),
        "x: &x [1]\n" + "".join(f"a{number}: *x\n" for number in range(60_000)),
    ],
    ids=["anchor", "dangling", "itself", "merge", "merges", "key", "deep", "many-anchors", "many-aliases"],
)
def test_h01_no_anchor_alias_or_merge_key_is_followed(target: Target, text: str) -> None:
    """H01: in whatever place and number, each is an error where it stands, and none is looked up."""
    blow = target.repel("run", target.write(text), "-o", "json")
    codes = {code for code, _, _ in blow.problems}
    assert "alias" in codes
    assert not codes & {"yaml-syntax", "empty-file"}


DEEP = {
    "lists": "[" * 100_000,
    "maps": "{a: " * 100_000,
    "blocks": "- " * 100_000,
    "keys": "? " * 100_000,
    "mixed": "[{a: " * 50_000,
    "lines": "[\n" * 100_000,
    "input": f"saga: a\ninput: {'[' * 100_000}\n{STEP}",
    "with": f"saga: a\nsteps:\n  - with: {'{a: ' * 100_000}",
}


@pytest.mark.parametrize("name", DEEP)
def test_h03_deep_nesting_ends_at_the_limit(target: Target, name: str) -> None:
    """H03: a hundred thousand levels are a load error with the limit of 64; nothing recurses."""
    blow = target.repel("run", target.write(DEEP[name]), "-o", "json")
    assert "too-deep" in {code for code, _, _ in blow.problems}
    assert "64 levels" in blow.err


EXPRESSIONS = {
    "quotes": '"' + '\\"' * 200_000,
    "brackets": "(" * 200_000 + "1" + ")" * 200_000,
    "braces": "{" * 400_000,
    "nots": "!" * 400_000 + "true",
    "nots-short": "!" * 3_900 + "true",
    "ternaries": "true ? 1 : " * 350 + "1",
    "ands": " && ".join(["true"] * 100_000),
    "path": "input" + ".a" * 200_000,
    "lists": "[" * 1_900 + "]" * 1_900,
    "minus": "-" * 3_900 + "1",
    "sums": "+".join(["1"] * 1_900),
    "macros": "[1].map(a, " * 300 + "a" + ")" * 300,
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_h03_expressions_of_any_depth_and_length_are_told_where_they_stand(target: Target, name: str) -> None:
    """H03: neither reading an expression nor compiling it recurses, or looks at a character again and again."""
    head, text = "saga: a\ninput: {type: object}\nsteps:\n  - {id: one, tool: trap.take, ", EXPRESSIONS[name]
    when = f"{head}with: {{value: 1}}, when: '${{{{ {text} }}}}'}}\n"
    given = f"{head}with: {{value: '${{{{ {text} }}}}'}}}}\n"
    files = [target.write(when, "when.yaml"), target.write(given, "with.yaml")]
    blow = target.strike("validate", *files, "-o", "json")
    assert blow.code in {0, 3}
    assert all(line == 4 for _, line, _ in blow.problems)
    assert blow.cpu_seconds - target.harmless_seconds < 2
    assert blow.peak_mib < 200
    target.refuse_traces()


def test_h05_a_key_given_twice_is_shown_with_both_lines(target: Target) -> None:
    """H05: `pivot` twice in a step and `steps` twice in the file are errors with both places."""
    step = "  - id: one\n    tool: trap.take\n    pivot: true\n    with: {value: 1}\n\n    pivot: false\n"
    text = f"saga: a\nsteps:\n{step}steps: []\n"
    blow = target.repel("run", target.write(text))
    assert "evil.yaml:8:5" in blow.err
    assert "evil.yaml:9:1" in blow.err
    assert blow.err.count("first here") == blow.err.count("again here") == 2
    for line in ("  5 |     pivot: true", "  8 |     pivot: false", "  2 | steps:", "  9 | steps: []"):
        assert line in blow.err


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("saga: a\n'saga': b\n" + STEP, (2, 1)),
        ('saga: a\n"s\\u0061ga": b\n' + STEP, (2, 1)),
        ("saga: a\n? saga\n: b\n" + STEP, (2, 3)),
        ("saga: a\nsteps:\n  - {id: one, id: two, tool: trap.take}\n", (3, 15)),
        ("saga: a\nsteps:\n  - {id: one, tool: trap.take, with: {value: {a: {b: 1, 'b': 2}}}}\n", (3, 57)),
        ("saga: a\ninput: {properties: {x: {}, x: {}}}\n" + STEP, (2, 29)),
        ("saga: a\n" + "".join(f"k{n}: 1\n" for n in range(50_000)) + "k49999: 2\n" + STEP, (50_002, 1)),
    ],
    ids=["quoted", "escaped", "explicit", "flow", "deep", "schema", "many"],
)
def test_h05_no_spelling_hides_the_second_one(target: Target, text: str, place: tuple[int, int]) -> None:
    """H05: a key is what it says, however it is written and however deep or late it stands."""
    blow = target.repel("run", target.write(text), "-o", "json")
    assert ("duplicate-key", *place) in blow.problems


WORDS = [
    *(
        "no",
        "No",
        "NO",
        "on",
        "off",
        "yes",
        "y",
        "n",
        "12:30:45",
        "22:22",
        "012",
        "0755",
        "0o17",
        "0x1F",
        "0b1",
        "1_000",
    ),
    *(
        "2026-01-01",
        "2001-12-14t21:59:43.10-05:00",
        "1.2.3",
        "1e",
        ".",
        "--",
        "=",
        "<<",
        "nan",
        "inf",
        "nULL",
        "\uff11",
    ),
]


def test_h07_words_reach_the_tool_as_written(target: Target) -> None:
    """H07: `no`, `12:30:45`, `012`, dates and whatever else only looks like something is text, as value and as key."""
    listed = "\n".join(f"        - {word}" for word in WORDS if word != "<<")
    keys = "\n".join(f"        {word}: {word}" for word in ("on", "no", "012", "2026-01-01", "12:30:45"))
    text = (
        f"saga: words\nsteps:\n  - id: one\n    tool: trap.take\n    with:\n      value:\n{listed}\n"
        f"  - id: two\n    tool: trap.take\n    with:\n      value:\n{keys}\n        version: 1.10\n"
    )
    blow = target.strike("run", target.write(text), "-o", "json")
    assert blow.code == 0, blow.err
    first, second = (each[3] for each in target.seen())
    assert first == repr([word for word in WORDS if word != "<<"])
    for word in ("on", "no", "012", "2026-01-01", "12:30:45"):
        assert f"{word!r}: {word!r}" in second
    assert "Decimal('1.10')" in second
    assert '"version": 1.10' in blow.out


@pytest.mark.parametrize(
    ("word", "code"),
    [("9" * 5_000, "bad-number"), ("1e1001", "bad-number"), ("-1e-9999999999", "bad-number"), (".nan", "bad-number"),
     ("-.inf", "bad-number"), ("0." + "1" * 5_000, "bad-number"), ("1e" + "9" * 5_000, "bad-number")],
    ids=["digits", "large", "small", "nan", "infinity", "fraction", "exponent"],
)  # fmt: skip
def test_h09_numbers_that_nothing_can_hold_are_errors_in_a_saga(target: Target, word: str, code: str) -> None:
    """H09: a number of five thousand digits, one out of range, NaN and infinity are load errors where they stand."""
    text = f"saga: a\nsteps:\n  - {{id: one, tool: trap.take, with: {{value: {word}}}}}\n"
    blow = target.repel("run", target.write(text), "-o", "json")
    assert blow.problems == [(code, 3, 46)]


BAD_NAMES = {
    "tool": ["../../evil.mod", "/etc/passwd", "trap.take/..", "trap..take", "trap.take\\n", "trap", ".take",
             "Trap.take", "trap.t\u0430ke", "trap.take\\0", "os.system:x"],
    "id": ["..", "a/b", "a.b", "../x", "", "a b", "A", "1a", "_a", "a\\n", "-a", "a" * 64, "steps", "null", "a\\0"],
    "saga": ["../x", "a/b", "..", "/", "a.b", "A", "", "a b", "a\\n", "a" * 64, "-a", "~", "a\\0", "C:\\\\x"],
}  # fmt: skip


def test_h11_no_name_in_a_saga_leads_anywhere(target: Target) -> None:
    """H11: tools, steps and sagas have names by one grammar; a path, a dot or a line end in one is a load error."""
    before = target.files()
    files = []
    for place, names in BAD_NAMES.items():
        for number, name in enumerate(names):
            parts = {"saga": "good", "id": "one", "tool": "trap.take", place: name}
            text = 'saga: "{saga}"\nsteps:\n  - {{id: "{id}", tool: "{tool}", with: {{value: 1}}}}\n'.format(**parts)
            files.append(target.write(text, f"{place}{number}.yaml"))
    blow = target.strike("validate", *files, "-o", "json")
    assert blow.code == 3
    wrong = {item["file"] for item in blow.json["items"] if item["code"] in {"bad-id", "bad-name", "wrong-type"}}
    assert wrong == set(files)
    target.repel("run", files[0])
    made = {name for name in target.files() - before if ".sagactl" not in name}
    assert made == {f"project/{file}" for file in files}


class Listener:
    """A server that counts who comes."""

    def __init__(self) -> None:
        self.visits = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/x.json"
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.visits += 1
            connection.close()


def test_h21_no_reference_of_a_schema_is_fetched(target: Target, tmp_path: Path) -> None:
    """H21: a `$ref` to a server or a file, in an input's schema or a tool's, is an error; nobody is asked for it."""
    listener = Listener()
    secret = tmp_path / "schema.json"
    secret.write_text('{"type": "string", "description": "not to be read"}')
    references = [listener.url, secret.as_uri(), str(secret), "../schema.json", "//127.0.0.1/x", "x.json#/a", "urn:x:y"]
    for keyword in ("$ref", "$dynamicRef"):
        for number, reference in enumerate(references):
            text = f'saga: a\ninput: {{type: object, properties: {{x: {{{keyword}: "{reference}"}}}}}}\n{STEP}'
            target.write(text, f"{keyword[1:]}{number}.yaml")
    files = sorted(each.name for each in target.path.glob("*ef*.yaml"))
    blow = target.strike("validate", *files, "-o", "json")
    assert {item["file"] for item in blow.json["items"] if item["severity"] == "error"} == set(files)
    plugin = "from sagactl import tool\n"
    for number, reference in enumerate(references):
        schema = f'{{"type": "object", "properties": {{"value": {{"$ref": {reference!r}}}}}}}'
        plugin += (
            f'@tool("far.tool{number}", arguments_schema={schema}, read_only=True)\ndef tool{number}(value=1): ...\n'
        )
    target.write(plugin, "plugins/far.py")
    steps = "".join(f"  - {{id: s{n}, tool: far.tool{n}, with: {{value: 1}}}}\n" for n in range(len(references)))
    blow = target.repel("run", target.write(f"saga: a\nsteps:\n{steps}"))
    listed = target.strike("tools", "-o", "json")
    assert "not to be read" not in blow.out + blow.err + listed.out
    assert listener.visits == 0
    listener.socket.close()


PATTERNS = [
    *("^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "^(a*)*$", "(a+a+)+$", "^(.*a){20}$", "^(?:a?){40}a{40}$", "(x+x+)+y"),
    *("^(([a-z])+.)+[A-Z]$", "a*a*a*a*a*b", "^(?=(a+))\\\\1*$", "(?:(?:a+)?)+$", "^\\\\s*(\\\\s|a)*$"),
]


def test_h23_a_pattern_that_could_take_for_ever_is_refused_or_quick(target: Target) -> None:
    """H23: whatever the pattern of a schema, forty letters that don't match cost no time worth naming."""
    refused = 0
    for number, pattern in enumerate(PATTERNS):
        text = f'saga: a\ninput: {{type: object, properties: {{x: {{type: string, pattern: "{pattern}"}}}}}}\n{STEP}'
        target.write(text, f"p{number}.yaml")
    blow = target.strike("validate", *(f"p{number}.yaml" for number in range(len(PATTERNS))), "-o", "json")
    wrong = {item["file"] for item in blow.json["items"] if item["code"] == "unsafe-pattern"}
    assert "p0.yaml" in wrong
    for number in range(len(PATTERNS)):
        if f"p{number}.yaml" not in wrong:
            target.repel("run", f"p{number}.yaml", "-i", "x=" + "a" * 40 + "!", cpu_seconds=0.5)
            target.repel("run", f"p{number}.yaml", "-i", "x=" + "a" * 1_024 + "!", cpu_seconds=0.5)
        refused += f"p{number}.yaml" in wrong
    assert refused >= len(PATTERNS) // 2
    assert blow.cpu_seconds - target.harmless_seconds < 1


SCHEMAS = {
    "chain": "type: object\n  properties: {a: {$ref: '#/$defs/a0'}}\n  $defs:\n"
    + "".join(f"    a{n}: {{$ref: '#/$defs/a{n + 1}'}}\n" for n in range(5_000)) + "    a5000: {type: string}\n",
    "itself": "type: object\n  properties: {a: {$ref: '#/$defs/a'}}\n  $defs: {a: {$ref: '#/$defs/a'}}\n",
    "doubling": "type: object\n  properties: {a: {$ref: '#/$defs/a0'}}\n  $defs:\n"
    + "".join(f"    a{n}: {{allOf: [{{$ref: '#/$defs/a{n + 1}'}}, {{$ref: '#/$defs/a{n + 1}'}}]}}\n" for n in range(30))
    + "    a30: {type: string}\n",
    "wide": "type: object\n  properties: {a: {enum: [" + ",".join(map(str, range(90_000))) + "]}}\n",
    "any": "type: object\n  properties: {a: {anyOf: [" + ",".join(["{type: integer}"] * 20_000) + "]}}\n",
    "root": "$ref: '#'\n",
    "items": "type: object\n  properties: {a: {type: array, uniqueItems: true, maxItems: 1e9}}\n",
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_h21_a_schema_that_unfolds_without_end_costs_little(target: Target, name: str) -> None:
    """H21: references that chain, loop or double neither recurse nor explode: not at load and not on an input."""
    text = f"saga: a\ninput:\n  {SCHEMAS[name]}{STEP}"
    blow = target.strike(
        "run", target.write(text), "-i", "a:=" + "[" + ",".join(map(str, range(3_000))) + "]", "-o", "json"
    )
    assert blow.code in {0, 3}
    assert blow.cpu_seconds - target.harmless_seconds < 2
    assert blow.peak_mib < 200


IDS = {
    "p\\u202ey": "U+202E RIGHT-TO-LEFT OVERRIDE",
    "p\\u200dy": "U+200D ZERO WIDTH JOINER",
    "p\u0430y": "U+0430 CYRILLIC SMALL LETTER A",
    "pe\u0301": "U+0301 COMBINING ACUTE ACCENT",
    "p\u00e9": "U+00E9 LATIN SMALL LETTER E WITH ACUTE",
    "p\\u2066y": "U+2066 LEFT-TO-RIGHT ISOLATE",
    "\uff50ay": "U+FF50 FULLWIDTH LATIN SMALL LETTER P",
    "p\\u00ady": "U+00AD SOFT HYPHEN",
    "p\\u3164y": "U+3164 HANGUL FILLER",
    "p\\U000e0061": "U+E0061 TAG LATIN SMALL LETTER A",
    "\u0131d": "U+0131 LATIN SMALL LETTER DOTLESS I",
    "p\\ey": "U+001B",
}


@pytest.mark.parametrize("place", ["step", "saga", "tool", "needs", "secret"])
def test_h29_a_name_that_looks_like_another_shows_its_code_points(target: Target, place: str) -> None:
    """H29: letters of other scripts, marks and what can't be seen are load errors, in every kind of name."""
    for number, name in enumerate(IDS):
        parts = {"saga": "good", "step": "one", "tool": "trap.take", "needs": "", "secret": "A"}
        parts[place] = f"trap.{name}" if place == "tool" else name
        needs = f', needs: ["{parts["needs"]}"]' if parts["needs"] else ""
        text = (
            f'saga: "{parts["saga"]}"\nsecrets: ["{parts["secret"]}"]\nsteps:\n'
            f'  - {{id: "{parts["step"]}", tool: "{parts["tool"]}", with: {{value: 1}}{needs}}}\n'
        )
        target.write(text, f"n{number}.yaml")
    blow = target.strike("validate", *(f"n{number}.yaml" for number in range(len(IDS))), "-o", "json")
    assert blow.code == 3
    for number, points in enumerate(IDS.values()):
        said = [
            item for item in blow.json["items"] if item["file"] == f"n{number}.yaml" and item["severity"] == "error"
        ]
        assert any(points in item["message"] for item in said), (place, points, said)
        assert all(item["line"] >= 1 for item in said)


KEYS = {
    "server: {command: [sh, -c, 'touch pwned']}": "saga",
    "plugins: [/tmp/evil.py]": "saga",
    "environment: {PATH: /tmp}": "saga",
    "env: {PATH: /tmp}": "saga",
    "mcp: {servers: {x: {command: sh}}}": "saga",
    "import: evil": "saga",
    "include: ../other.yaml": "saga",
    "$schema: http://127.0.0.1/x": "saga",
    "hooks: {before: 'touch pwned'}": "saga",
    "alerts: {webhook: {url: 'http://127.0.0.1/'}}": "saga",
    "command: touch pwned": "step",
    "run: touch pwned": "step",
    "shell: touch pwned": "step",
    "plugin: /tmp/evil.py": "step",
    "env: {LD_PRELOAD: /tmp/evil.so}": "step",
    "cwd: /": "step",
    "module: os": "step",
    "user: root": "step",
}


def test_h35_a_saga_names_no_command_plugin_or_environment(target: Target) -> None:
    """H35: only the operator's configuration says what runs; a key that would is unknown, and nothing comes of it."""
    for number, (key, place) in enumerate(KEYS.items()):
        top, inner = (f"{key}\n", "") if place == "saga" else ("", f", {key}")
        text = f"saga: a\n{top}steps:\n  - {{id: one, tool: trap.take, with: {{value: 1}}{inner}}}\n"
        target.write(text, f"k{number}.yaml")
    blow = target.strike("validate", *(f"k{number}.yaml" for number in range(len(KEYS))), "-o", "json")
    unknown = {item["file"] for item in blow.json["items"] if item["code"] == "unknown-key"}
    assert unknown == {f"k{number}.yaml" for number in range(len(KEYS))}
    target.repel("run", "k0.yaml")
    assert not list(target.path.parent.rglob("pwned"))


def test_h51_every_limit_is_told_at_once(target: Target) -> None:
    """H51: attempts, intervals, timeouts and concurrency beyond their limits are errors that name them, in one go."""
    text = """saga: a
run_timeout: 100y
settle_timeout: 400d
compensation_concurrency: 1000001
steps:
  - id: one
    tool: trap.take
    with: {value: 1}
    concurrency: 99999999999999999999
    start_to_close_timeout: 400d
    schedule_to_close_timeout: 0ms
    retry:
      max_attempts: 1e9
      initial_interval: 0ms
      max_interval: 100d
      backoff_coefficient: 1e9
    approval: {timeout: 999999d}
"""
    blow = target.repel("run", target.write(text), "-o", "json")
    assert [line for _, line, _ in blow.problems] == [2, 3, 4, 9, 10, 11, 13, 14, 15, 16, 17]
    for limit in ("366d", "1000", "1ms", "1d", "1 to 100"):
        assert limit in blow.err


def _steps(count: int, needs: str = "") -> str:
    step = " - {{id: a{}, tool: trap.take, with: {{value: 1}}{}}}\n"
    return "steps:\n" + "".join(step.format(n, needs.format((n + 1) % count)) for n in range(count))


TOO_MUCH = {
    "steps": (_steps(10_001), "10001 steps; at most 2000"),
    "foreach": (f"steps:\n - {{id: a, tool: trap.take, foreach: [{'1,' * 150_000}]}}\n", "150000 items; at most 10000"),
    "bytes": ("#" * 1_048_576, "more than 1048576"),
    "values": (f"steps: [{'1,' * 210_000}]\n", "more than 200000"),
    "secrets": (f"secrets: [{','.join(f's{n}' for n in range(50_000))}]\n{STEP}", "50000 secrets; at most 100"),
    "errors": ("steps:\n" + "  - 1\n" * 150_000, "at most 2000"),
    "twins": ("k: 1\n" * 100_000 + STEP, "given twice"),
    "cycle": (_steps(2_000, ", needs: [a{}]"), "2000 steps need one another"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_h51_a_file_of_too_much_is_refused_in_a_moment(target: Target, name: str) -> None:
    """H51: ten thousand steps, a list of a hundred thousand, a megabyte of anything: one error with the limit."""
    text, said = TOO_MUCH[name]
    assert said in target.repel("run", target.write("saga: a\n" + text)).err


def test_h51_a_list_of_a_million_items_is_refused_when_it_is_given(target: Target) -> None:
    """H51: `foreach` over what the input brings has the same limit, told before anything of the step is called."""
    step = '{id: one, foreach: "${{ input.l }}", tool: trap.take, with: {value: 1}}'
    target.write(f"saga: a\ninput: {{type: object}}\nsteps: [{step}]\n")
    target.write('{"l": [' + ",".join(["1"] * 500_000) + "]}", "many.json")
    blow = target.strike("run", "evil.yaml", "--inputs", "many.json", "-o", "json")
    assert blow.code == 10
    assert "10000" in blow.json["run"]["error"]["message"]
    assert not target.seen()
    over = target.write('{"l": [' + ",".join(["1"] * 1_000_000) + "]}", "over.json")
    assert "1048576 bytes" in target.strike("run", "evil.yaml", "--inputs", over).err
