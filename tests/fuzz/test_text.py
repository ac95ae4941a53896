"""G16: whatever text comes in, it is understood or refused in our own words, in no time, and read back as it was."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from sagactl.cli.ages import read_moment_ms
from sagactl.cli.inputs import read_inputs
from sagactl.core.canonical import Json, NotJsonError, canonical, parse
from sagactl.core.definition import read_definition, write_definition
from sagactl.core.planned import BadPlanError, make_planned, read_planned
from sagactl.core.template import ExpressionError, TemplateSyntaxError, parse_template, render, write_template
from sagactl.errors import InvalidError, NotFoundError, UsageError
from sagactl.log.memory import MemoryLog
from sagactl.schemas.durations import BadDurationError, format_duration, parse_duration
from sagactl.spec.cel import CelEvaluator
from sagactl.spec.guards import conditions, succeeded_if_true, unguarded
from sagactl.spec.inputs import check_input
from sagactl.spec.load import load_saga
from sagactl.tools.convert import keep_raw, write_json
from sagactl.usecases.select import select_run
from sagactl.written.document import read_document
from sagactl.written.problem import InvalidSagaError
from tests.fuzz.rounds import Fuzzer
from tests.spec.test_fuzz import HALF_PAIR, STEPS, VALUES, WORDS, find_errors
from tests.spec.toolbox import TOOLS

ROOT = Path(__file__).parents[2]
SEEDS = [
    file.read_text()
    for file in sorted((ROOT / "tests" / "spec").glob("**/*.yaml"))
    if file.stat().st_size < 5_000 and "encoding" not in file.name
]
"""Sagas to begin with: each kind of problem has one."""


@st.composite
def mutated(draw: st.DrawFn, seeds: list[str], words: st.SearchStrategy[str]) -> str:
    """Give one of *seeds* with a few pieces cut out, doubled, swapped or put in."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        how = draw(st.sampled_from(["cut", "double", "put", "repeat"]))
        if how == "cut":
            text = text[:start] + text[end:]
        elif how == "double":
            text = text[:end] + text[start:end] + text[end:]
        elif how == "repeat":
            text = text[:end] + text[start:end] * draw(st.integers(1, 200)) + text[end:]
        else:
            text = text[:start] + draw(words) + text[start:]
    return text[:20_000]


def test_sagas(fuzz: Fuzzer) -> None:
    """F5: a mutated saga is a saga or problems with places; one that loads means the same when it was stored."""

    def check(text: str) -> None:
        find_errors(text)
        try:
            saga = load_saga(text, file="fuzz.yaml", tools=TOOLS).saga
        except InvalidSagaError:
            return
        document = write_definition(saga)
        assert write_definition(read_definition(document)) == document
        assert parse(canonical(document)) == document

    fuzz.try_all(mutated(SEEDS, WORDS | HALF_PAIR | st.text(max_size=5)), check)


def test_trees(fuzz: Fuzzer) -> None:
    """F5: nor does any tree of values under the keys of a saga bring anything but problems."""

    def check(tree: tuple[list[Any], dict[str, Any]]) -> None:
        find_errors(canonical({"saga": "fuzz", "steps": tree[0], **tree[1]}))

    keys = st.sampled_from(["input", "output", "defaults", "secrets", "run_key", "version", "run_timeout"])
    fuzz.try_all(st.tuples(STEPS, st.dictionaries(keys, VALUES, max_size=3)), check)


def test_documents(fuzz: Fuzzer) -> None:
    """F2: a data file is a value or problems; the value is one that can be stored."""

    def check(text: str) -> None:
        try:
            value = read_document(text, file="fuzz.yaml")
        except InvalidSagaError:
            return
        assert parse(canonical(value)) == value

    fuzz.try_all(mutated(SEEDS, WORDS | HALF_PAIR) | st.text(), check)


PIECES = st.sampled_from(
    [
        *("input", ".a", "['b']", '["c', "[0]", "steps.x.output", "steps.x.status", " == ", "null", "'succeeded'"),
        *('"skipped"', " && ", " || ", "!", " ? ", " : ", "(", ")", "[", "]", "{", "}", "${{", "}}", "$${{", "'", '"'),
        *('"""', "'''", "\\", "r'", "1", "-", "+", ".5", "1e999", "9223372036854775807", ".map(x, x)", ".filter("),
        *(
            "has(",
            "size(",
            ",",
            " ",
            "\n",
            ".?a",
            "[?0]",
            "b'",
            "u",
            "in",
            "true",
            "//",
            "timestamp('",
            "duration('1s')",
        ),
        *(".split(','", ".join(", ".replace('a',", "secrets.K", "item", "args", "output.b", "é", "\u202e", "\x00"),
        *(".format([", "%s", "math.greatest("),
    ]
)
EXPRESSIONS = st.lists(PIECES, max_size=14).map("".join)
SCOPE: dict[str, Any] = {
    "input": {"a": {"a": [1, Decimal("0.5"), "${{ secrets.K }}"], "b": None}, "b": 2**70, "c": "x,y"},
    "steps": {"x": {"output": {"b": [1, {"a": 2}]}, "status": "succeeded"}},
    "item": "i", "args": {"a": 1}, "output": None, "run": {"id": "r"},
}  # fmt: skip
EVALUATOR = CelEvaluator()


class Evaluator:
    """CEL for templates; nothing checks arguments here."""

    evaluate = staticmethod(EVALUATOR.evaluate)

    def check_arguments(self, tool: str, arguments: Json) -> str | None:
        """Find nothing wrong."""
        del tool, arguments
        return None


def test_templates(fuzz: Fuzzer) -> None:
    """F3: a text is a template or a syntax error; written and read it is the same; it has a value or is refused."""

    def check(text: str) -> None:
        try:
            template = parse_template(text)
        except TemplateSyntaxError:
            return
        assert parse_template(write_template(template)) == template
        try:
            value = render(template, SCOPE, Evaluator())
        except ExpressionError:
            return
        assert parse(canonical(value)) == value

    fuzz.try_all(
        EXPRESSIONS | EXPRESSIONS.map(lambda text: f"${{{{ {text} }}}}") | mutated(["a ${{ input.a }} b"], PIECES),
        check,
    )


def test_expressions(fuzz: Fuzzer) -> None:
    """F3: CEL compiles it or complains at a place in it, evaluates or refuses it, and the reader of guards reads it."""

    def check(text: str) -> None:
        found = EVALUATOR.compile(text)
        for complaint in found if isinstance(found, tuple) else ():
            assert 0 <= complaint.offset <= len(text)
            assert complaint.message
        set(unguarded(text))
        conditions(text)
        succeeded_if_true(text)
        try:
            value = EVALUATOR.evaluate(text, SCOPE)
        except ExpressionError:
            return
        assert parse(canonical(value)) == value

    fuzz.try_all(EXPRESSIONS.filter(lambda text: text.strip() != ""), check)


JSON_PIECES = st.sampled_from(
    [
        *("{", "}", "[", "]", ":", ",", '"a"', '"b"', '"\\ud800"', '"\\u0000"', '"$secret"', "null", "true", "1", "-0"),
        *("1.10", "1e400", "1e9999", "NaN", "Infinity", "-Infinity", "9" * 30, "9" * 1001, "0.1", " ", "\n", "\ufeff"),
        *('"', "\\", "[" * 70, '{"a":' * 70),
    ]
)


def test_json(fuzz: Fuzzer) -> None:
    """F2: a text is JSON with one spelling that reads back as it was, or an error of ours; so it is as an input."""

    def check(text: str | bytes) -> None:
        try:
            value = parse(text)
        except NotJsonError:
            return
        spelled = canonical(value)
        assert parse(spelled) == value
        assert canonical(parse(spelled)) == spelled
        check_input({"type": "object"}, value)
        if isinstance(text, str):
            assert read_inputs([f"a:={text}"], None) == {"a": value}

    texts = st.lists(JSON_PIECES, max_size=20).map("".join)
    values = VALUES.map(_spell)
    fuzz.try_all(texts | st.binary(max_size=40) | values | mutated(['{"a":[1,{"b":"c"}],"d":1.5}'], JSON_PIECES), check)


def _spell(value: Any) -> str:
    try:
        return canonical(value)
    except NotJsonError:
        return ""


class Odd:
    """Something that JSON lacks."""


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.decimals() | st.text() | st.datetimes()
ODD = st.binary(max_size=5) | st.builds(Odd) | st.sampled_from([10**1000, -(10**1001), "\ud800"])


def _hold(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.text(max_size=3) | st.integers()
    maps = st.dictionaries(keys, inner, max_size=4)
    return st.lists(inner, max_size=4) | st.tuples(inner, inner) | maps | st.sets(st.integers(), max_size=2)


ANYTHING = st.recursive(PLAIN | ODD, _hold, max_leaves=12)


def test_answers_of_tools(fuzz: Fuzzer) -> None:
    """E3: whatever Python a tool returns is JSON that can be stored, or refused; what is kept of it always is."""

    def check(value: object) -> None:
        kept = keep_raw(value)
        assert parse(canonical(kept)) == kept
        try:
            written = write_json(value)
        except NotJsonError:
            return
        assert parse(canonical(written)) == written

    fuzz.try_all(ANYTHING, check)


def test_durations_and_moments(fuzz: Fuzzer) -> None:
    """F1: a duration is milliseconds that are written back as what they are, or no duration; so with moments."""

    def check(text: str) -> None:
        try:
            found = parse_duration(text)
        except BadDurationError:
            pass
        else:
            assert parse_duration(format_duration(found)) == found
        with suppress(UsageError):
            read_moment_ms(text)

    units = st.sampled_from(["ms", "s", "m", "h", "d", "w", "", " ", "T", "Z", "+23:59", "-", ":", "e", "."])
    numbers = st.integers(0, 10**30).map(str) | st.sampled_from(
        ["0", "00", "1.5", "\u0661", "0001-01-01", "9999-12-31", "24:00"]
    )
    texts = st.lists(st.tuples(numbers, units).map("".join), max_size=4).map("".join)
    fuzz.try_all(texts | st.text(max_size=12) | st.datetimes().map(str) | numbers, check)


def test_selectors(fuzz: Fuzzer) -> None:
    """Section 6: what names a run is an id, a prefix or `@latest`, or names none; pairs of `-i` are pairs or usage."""
    log = MemoryLog()

    def check(text: str) -> None:
        for changes in (False, True):
            with suppress(NotFoundError, UsageError):
                select_run(log, text, changes=changes)
        with suppress(UsageError, InvalidError):
            read_inputs([text], None)

    pieces = st.sampled_from(
        ["@latest", ":", "@", "..", "/", "0", "a", "%", "*", "=", ":=", "=@", "{", '"', "\x00", "name", "é", "\u0660"]
    )
    fuzz.try_all(st.lists(pieces, max_size=6).map("".join) | st.text(max_size=15), check)


def test_plans(fuzz: Fuzzer) -> None:
    """E22: a plan file is data: whatever stands in it, it is a plan of ours or none."""
    text = (ROOT / "tests" / "spec" / "onboarding.yaml").read_text()
    saga = load_saga(text, file="x", tools=TOOLS).saga
    plan = make_planned(saga, {"email": "a@b"}, {}, plan_id="p", planned_by="me").write()

    def check(changes: list[tuple[str, Any]]) -> None:
        with suppress(BadPlanError):
            read_planned({**plan, **dict(changes)})

    keys = st.sampled_from([*plan, "more"])
    fuzz.try_all(st.lists(st.tuples(keys, VALUES), min_size=1, max_size=3), check)
