"""From a file to the saga: defaults, the snapshot, what is imported, and that nothing else is ever raised."""

from __future__ import annotations

import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest

from sagactl.core.canonical import canonical, parse
from sagactl.core.definition import read_definition, write_definition
from sagactl.core.saga import (
    ACTION_RETRY,
    PATIENT_RETRY,
    CompensateFailed,
    Jitter,
    OnUnknown,
    Retry,
    StepClass,
    ToolFacts,
)
from sagactl.core.template import Expression, Literal, MapOf, Reference, Text
from sagactl.errors import ExitCode
from sagactl.spec.load import load_saga
from sagactl.written.problem import PROBLEMS_MAX, InvalidSagaError
from sagactl.written.report import render_problems
from tests.spec.conftest import HEAD, Load, LoadSteps, Refuse, load_text
from tests.spec.toolbox import TOOLS

FOLDER = Path(__file__).parent
ONBOARDING = (FOLDER / "onboarding.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["[]", "[object]", "[string, object]", "{a: 1}", "[[]]", "[{}]", "null", "1"])
def test_a_type_of_any_shape_is_told_where_it_stands(refuse: Refuse, kind: str) -> None:
    """F5: the type of an input is the word object; whatever else stands there is a problem, and never a crash."""
    text = f"saga: x\ninput: {{type: {kind}}}\nsteps:\n  - {{id: one, tool: any.thing}}\n"
    assert {problem.line for problem in refuse(text)} == {2}


def test_no_number_of_warnings_hides_an_error(refuse: Refuse) -> None:
    """F5: more warnings than are kept keep no error out: neither from the answer nor from what is shown of it."""
    names = [f"a{number}" for number in range(PROBLEMS_MAX + 1)]
    values = ", ".join(f'"${{{{ input.{name} }}}}"' for name in names)
    text = (
        f"saga: x\nsecrets: [KEY]\ninput: {{properties: {{{', '.join(f'{name}: {{}}' for name in names)}}}}}\nsteps:\n"
        f"  - {{id: one, tool: any.thing, with: {{value: [{values}]}}}}\n"
        '  - {id: two, tool: any.thing, with: {value: "${{ secrets.KEY }}"}}\n'
    )
    [problem] = refuse(text)
    assert problem.code == "secret-place"
    with pytest.raises(InvalidSagaError) as caught:
        load_text(text)
    assert "error[secret-place]" in render_problems(caught.value.problems, text)


def test_the_example_of_the_format_loads_without_a_warning(load: Load) -> None:
    """F1: a whole saga with every kind of step means what its words say."""
    loaded = load(ONBOARDING)
    saga = loaded.saga
    assert loaded.warnings == ()
    assert (saga.name, saga.version, saga.source) == ("onboarding", "3", "test.yaml")
    assert saga.run_key == Reference(("input", "email"), "input.email")
    assert saga.run_timeout_ms == 3_600_000
    assert [(step.id, step.klass, step.needs) for step in saga.steps] == [
        ("lead", StepClass.COMPENSABLE, ()),
        ("deposit", StepClass.COMPENSABLE, ("lead",)),
        ("servers", StepClass.COMPENSABLE, ("deposit",)),
        ("contract", StepClass.PIVOT, ("servers",)),
        ("welcome", StepClass.RETRIABLE, ("contract",)),
    ]
    lines = ONBOARDING.splitlines()
    assert all(f"id: {step.id}" in lines[step.line - 1] for step in saga.steps if step.line is not None)


def test_only_tools_that_can_be_called_are_part_of_the_saga(load: Load) -> None:
    """E16: the facts of actions, compensations and their probes are pinned, and of no other tool."""
    assert set(load(ONBOARDING).saga.tools) == {
        *("crm.create_lead", "crm.find_lead", "crm.archive_lead", "crm.sign_contract"),
        *("billing.charge", "billing.find_charge", "billing.refund", "cloud.provision_vm", "cloud.destroy_vm"),
        "mail.send",
    }


def test_a_paired_tool_brings_its_compensation_and_arguments(load_steps: LoadSteps) -> None:
    """F4: the plugin's pair stands in for `compensate`, and `compensate: {with: ...}` keeps the paired tool."""
    saga = load_steps(
        "  - {id: a, tool: billing.charge, with: {amount: 1}}\n"
        '  - {id: b, tool: billing.charge, with: {amount: 1}, compensate: {with: {amount: "${{ args.amount }}"}}}\n'
        "  - {id: c, tool: any.thing}\n"
    )
    first, second, third = (saga.by_id[name].compensation for name in "abc")
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.tool == second.tool == "billing.refund"
    assert first.arguments == MapOf(
        (
            ("amount", Reference(("args", "amount"), "args.amount")),
            ("charge_id", Reference(("output", "charge_id"), "output.charge_id")),
        )
    )
    assert second.arguments == MapOf((("amount", Reference(("args", "amount"), "args.amount")),))
    assert third.arguments == Literal({})


def test_each_class_comes_from_what_is_written_or_from_the_tool(load_steps: LoadSteps) -> None:
    """F4: read_only, a reason for not undoing, or a compensation; a pivot keeps its own compensation."""
    saga = load_steps(
        "  - {id: reads, tool: probe.read}\n"
        "  - {id: says_so, tool: mail.blast, read_only: true}\n"
        '  - {id: mail, tool: mail.send, with: {to: x}, compensate: {none: "sent is sent"}}\n'
        "  - {id: point, tool: any.thing, pivot: true}\n"
        "  - {id: after, tool: mail.send, with: {to: x}}\n"
    )
    assert [step.klass for step in saga.steps] == [
        StepClass.READ_ONLY,
        StepClass.READ_ONLY,
        StepClass.NOT_UNDOABLE,
        StepClass.PIVOT,
        StepClass.RETRIABLE,
    ]
    assert saga.by_id["says_so"].compensation is None
    assert saga.by_id["mail"].not_undoable_reason == "sent is sent"
    assert saga.by_id["point"].compensation is not None
    assert saga.by_id["after"].compensation is None


def test_retries_merge_key_by_key(load: Load) -> None:
    """F1, E5: a step changes single keys of the defaults; compensations and what is behind the pivot stay patient."""
    saga = load(
        "saga: x\n"
        "defaults:\n"
        "  {start_to_close_timeout: 5s, schedule_to_close_timeout: 1h, retry: {max_attempts: 7, jitter: none}}\n"
        "steps:\n"
        "  - {id: a, tool: any.thing}\n"
        "  - {id: b, tool: any.thing, retry: {max_attempts: 2, backoff_coefficient: 1.25, non_retryable_errors: [X]},\n"
        "     start_to_close_timeout: 1s,\n"
        "     compensate: {tool: any.undo, retry: {max_attempts: 3}, start_to_close_timeout: 2s}}\n"
        "  - {id: p, tool: any.thing, pivot: true}\n"
        "  - {id: c, tool: any.thing, retry: {max_interval: 1m}}\n"
    ).saga
    a, b, p, c = saga.steps
    assert a.action.retry == p.action.retry == Retry(7, 200, 200, 10_000, Jitter.NONE)
    assert b.action.retry == Retry(2, 200, 125, 10_000, Jitter.NONE, ("X",))
    assert c.action.retry == Retry(12, 1_000, 200, 60_000, Jitter.FULL)
    assert [step.action.start_to_close_ms for step in saga.steps] == [5_000, 1_000, 5_000, 5_000]
    assert [step.action.schedule_to_close_ms for step in saga.steps] == [3_600_000] * 4
    assert a.compensation is not None
    assert b.compensation is not None
    assert a.compensation.retry == PATIENT_RETRY
    assert b.compensation.retry == Retry(3, 1_000, 200, 300_000)
    assert (a.compensation.start_to_close_ms, b.compensation.start_to_close_ms) == (5_000, 2_000)
    assert a.compensation.schedule_to_close_ms is None


def test_without_a_word_the_documented_defaults_hold(load: Load) -> None:
    """E5, E14: four attempts and thirty seconds, and a warning that nobody chose the latter."""
    loaded = load("saga: x\nsteps: [{id: a, tool: any.thing}]\n")
    call = loaded.saga.steps[0].action
    assert (call.retry, call.start_to_close_ms, call.schedule_to_close_ms) == (ACTION_RETRY, 30_000, None)
    assert loaded.saga.steps[0].compensate_failed is CompensateFailed.AUTO
    assert [problem.code for problem in loaded.warnings] == ["default-timeout"]


@pytest.mark.parametrize(
    ("tool", "more", "policy"),
    [
        ("billing.charge", "with: {amount: 1}", OnUnknown.PROBE),
        ("billing.charge", "with: {amount: 1}, on_unknown: ask", OnUnknown.ASK),
        ("any.thing", "on_unknown: compensate", OnUnknown.COMPENSATE),
        ("any.thing", "when: true", OnUnknown.RETRY),
        ("mail.blast", "compensate: {none: x}", OnUnknown.ASK),
        ("mail.blast", "pivot: true", OnUnknown.ASK),
    ],
)
def test_doubt_has_a_default(load_steps: LoadSteps, tool: str, more: str, policy: OnUnknown) -> None:
    """E6: the probe, else a retry where the tool is idempotent, else ask."""
    assert load_steps(f"  - {{id: a, tool: {tool}, {more}}}\n").steps[0].action.on_unknown is policy


def test_words_reach_the_tool_as_they_were_written(load_steps: LoadSteps) -> None:
    """F2: no, 012, times and days are text; numbers are exact, H07, H09, B69."""
    saga = load_steps(
        "  - id: a\n    tool: any.thing\n"
        "    with: {country: no, zip: 012, at: 12:30:45, day: 2026-01-01, v: 0o17, on: off,\n"
        f"      n: ~, big: {2**64}, price: 1.10, mark: '$${{{{ x }}}}'}}\n"
    )
    template = saga.steps[0].action.arguments
    assert isinstance(template, Literal)
    assert template.value == {
        "country": "no",
        "zip": "012",
        "at": "12:30:45",
        "day": "2026-01-01",
        "v": "0o17",
        "on": "off",
        "n": None,
        "big": 2**64,
        "price": Decimal("1.10"),
        "mark": "${{ x }}",
    }
    assert canonical(template.value).count('"price":1.10') == 1


def test_expressions_keep_their_kind(load_steps: LoadSteps) -> None:
    """F3: one expression is a reference or CEL, text around it makes text."""
    saga = load_steps(
        "  - {id: a, tool: any.thing,\n"
        '     with: {r: "${{ input.email }}", e: "${{ input.amount + 1 }}", t: "to ${{ input.email }}"}}\n'
    )
    template = saga.steps[0].action.arguments
    assert isinstance(template, MapOf)
    kinds = {key: type(child) for key, child in template.entries}
    assert kinds == {"e": Expression, "r": Reference, "t": Text}


def test_a_saga_without_input_takes_none(load: Load) -> None:
    """F1: where no input is declared, none is accepted."""
    schema = load("saga: x\nsteps: [{id: a, tool: any.thing}]\n").saga.input_schema
    assert schema == {"type": "object", "additionalProperties": False}


def sagas_that_load() -> list[str]:
    """Return the texts of all sagas of these tests that load."""
    texts = [ONBOARDING]
    for path in sorted((FOLDER / "problems").glob("*.yaml")):
        try:
            load_text(path.read_bytes())
        except InvalidSagaError:
            continue
        texts.append(path.read_text(encoding="utf-8"))
    rich = (
        "  - {id: a, tool: any.thing, foreach: [3, 1, {b: 1.50, a: x}], concurrency: 2,\n"
        "     agent: bot, description: 'ü 漢',\n"
        "     with: {z: 1, a: ['$${{', 1e5, .5, 5., {y: '${{ item }}', b: 'a$${{b ${{ index }} c $$${{ d'}]},\n"
        '     guard: "${{ index < 2 }}", when: "${{ input.vip }}", compensate_failed: never}\n'
    )
    return [*texts, HEAD + rich]


@pytest.mark.parametrize("text", sagas_that_load())
def test_the_snapshot_of_a_loaded_saga_reads_back(text: str) -> None:
    """E16: written as canonical JSON and read again, a saga is the same saga, and its digest stays."""
    saga = load_text(text).saga
    spelled = canonical(write_definition(saga))
    again = read_definition(parse(spelled))  # type: ignore[arg-type]  # a definition is a map
    assert again == saga
    assert canonical(write_definition(again)) == spelled


def test_all_limits_are_told_at_once(refuse: Refuse) -> None:
    """Limits: steps, items, attempts and intervals beyond their limits are all named in one go, H51."""
    steps = "".join(f"  - {{id: s{index}, tool: any.thing}}\n" for index in range(10_001))
    items = "[" + "1," * 10_001 + "]"
    retry = "{max_attempts: 1e9, initial_interval: 0s, max_interval: 100y}"
    wild = f"  - {{id: wild, tool: any.thing, foreach: {items}, retry: {retry}}}\n"
    started = time.process_time()
    problems = refuse("saga: x\nsteps:\n" + wild + steps)
    text = "\n".join(f"{problem.message} {problem.hint}" for problem in problems)
    assert time.process_time() - started < 5
    for limit in ("at most 2000", "at most 10000", "from 1 to 1000", "from 1ms to 1d", "100y is no duration"):
        assert limit in text


@pytest.mark.parametrize(
    "text",
    [
        "saga: x\nplugins: [./evil.py]\nsteps: [{id: a, tool: any.thing}]\n",
        "saga: x\nenv: {PATH: /tmp}\nsteps: [{id: a, tool: any.thing}]\n",
        "saga: x\nsteps: [{id: a, tool: any.thing, command: sh -c true}]\n",
    ],
)
def test_a_saga_can_not_name_what_is_to_be_loaded(refuse: Refuse, text: str) -> None:
    """H35: commands, plugins and environments are unknown keys of a saga file."""
    assert [problem.code for problem in refuse(text)] == ["unknown-key"]


def test_the_error_carries_everything(refuse: Refuse) -> None:
    """F5: the error has exit code 3, all problems in the order of the text, and the text itself."""
    text = "saga: 5\nnope: 1\nsteps: [{id: a, tool: no.such}, {id: a, tool: any.thing}]\n"
    with pytest.raises(InvalidSagaError) as caught:
        load_saga(text, file="s.yaml", tools=TOOLS)
    error = caught.value
    assert (error.exit_code, error.code, error.source_text) == (ExitCode.INVALID, "invalid-saga", text)
    assert [problem.code for problem in error.problems] == ["wrong-type", "unknown-key", "unknown-tool", "duplicate-id"]
    assert error.message == "s.yaml has 4 errors"


def test_a_tool_that_somebody_provides_and_nobody_can_use_says_why() -> None:
    """F5: a tool of a broken plugin isn't called unknown, whoever names it; one that nobody provides is."""
    reasons = {
        "bad.tool": ("plugin bad is broken: bad.py:5: SyntaxError", "sagactl tools pin bad"),
        "broken.gone": ("given by ok and by ok2", None),
    }
    text = "saga: x\nsteps: [{id: a, tool: bad.tool}, {id: b, tool: broken.pair}, {id: c, tool: no.such}]\n"
    with pytest.raises(InvalidSagaError) as caught:
        load_saga(text, file="s.yaml", tools=TOOLS, why_missing=reasons.get)
    assert [(problem.code, problem.message) for problem in caught.value.problems] == [
        ("unknown-tool", "the tool bad.tool can't be used: plugin bad is broken: bad.py:5: SyntaxError"),
        ("unknown-tool", "broken.pair names the tool broken.gone, which can't be used: given by ok and by ok2"),
        ("unknown-tool", "no tool named no.such"),
    ]
    assert [problem.hint for problem in caught.value.problems][:2] == [
        "sagactl tools pin bad",
        "`sagactl tools` shows what is broken",
    ]


def test_no_more_problems_are_kept_than_anybody_reads(refuse: Refuse) -> None:
    """Limits: a hostile file can't fill the memory with problems."""
    assert len(refuse("saga: x\nsteps: [" + "5," * 20_000 + "]\n")) <= PROBLEMS_MAX


def test_loading_imports_nothing_heavy() -> None:
    """Start-up: a saga without CEL needs neither jsonschema nor rich, CEL, asyncio or sqlite."""
    program = (
        "import sys; from sagactl.spec.load import load_saga; from sagactl.core.saga import ToolFacts\n"
        "load_saga('saga: x\\nsteps: [{id: a, tool: a.b, read_only: true, with: {x: \"${{ run.id }}\"}}]\\n',"
        " file='x', tools={'a.b': ToolFacts('a.b')})\n"
        "heavy = {'jsonschema', 'rich', 'cel_expr_python', 'asyncio', 'sqlite3', 'typer', 'importlib.metadata'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=FOLDER.parents[1]
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("code", "undo"),
    [
        ("read-only-undo", ToolFacts("a.undo", read_only=True)),
        ("unsafe-compensation", ToolFacts("a.undo", idempotent=False)),
    ],
)
def test_a_bad_pair_is_the_plugins_mistake(code: str, undo: ToolFacts) -> None:
    """F4: where the plugin pairs a tool with one that can't undo, the hint names it; a saga's own choice is its own."""
    tools = {"a.do": ToolFacts("a.do", compensation="a.undo"), "a.undo": undo}
    head = "saga: x\ndefaults: {start_to_close_timeout: 1s}\nsteps:\n  - id: a\n    tool: a.do\n"
    for text, is_plugins in ((head, True), (head + "    compensate: {tool: a.undo}\n", False)):
        with pytest.raises(InvalidSagaError) as caught:
            load_saga(text, file="x.yaml", tools=tools)
        (problem,) = [each for each in caught.value.problems if each.severity == "error"]
        assert problem.code == code
        assert ("plugin" in str(problem.hint)) is is_plugins
