"""`schema.json` and the loader say the same about keys and types, and the schema documents every key."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry

from sagactl.core.canonical import Json
from sagactl.spec.file_schema import read_file_schema
from sagactl.spec.input_schema import KEYWORDS
from sagactl.spec.policy import DEFAULTS_KEYS, POLICY_KEYS, RETRY_KEYS
from sagactl.spec.shape import SAGA_KEYS, STEP_KEYS, UNDO_KEYS, read_saga
from sagactl.written.findings import Findings
from sagactl.written.positions import plain_value, read_yaml
from sagactl.written.source import decode
from tests.spec.conftest import HEAD, Refuse

PROBLEMS = Path(__file__).parent / "problems"
ONBOARDING = Path(__file__).parent / "onboarding.yaml"
BEYOND = {"duplicate-id"}
"""What JSON Schema can't say: that an id stands elsewhere too. It can't compare durations either."""


def to_floats(value: Json) -> Any:
    """Return the schema with floats: the metaschema of jsonschema knows no decimals."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [to_floats(item) for item in value]
    return {key: to_floats(item) for key, item in value.items()} if isinstance(value, dict) else value


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    """Return the schema of saga files as a validator that fetches nothing."""
    schema = to_floats(read_file_schema())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, registry=Registry())


def files() -> list[Path]:
    """Return the files that are YAML at all, so that a schema can be asked."""
    found = [ONBOARDING]
    for path in sorted(PROBLEMS.glob("*.yaml")):
        source, unreadable = decode(path.read_bytes(), path.name)
        findings = Findings(source)
        if unreadable is None and read_yaml(source, findings) is not None and not findings.has_errors:
            found.append(path)
    return found


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_the_schema_and_the_loader_agree(path: Path, validator: Draft202012Validator) -> None:
    """F1: a file has the right keys and types for an editor exactly where it has them for the loader."""
    source, _ = decode(path.read_bytes(), path.name)
    findings = Findings(source)
    root = read_yaml(source, findings)
    assert root is not None
    read_saga(root, findings)
    told = {problem.code for problem in findings.sorted()}
    found = [error.json_path for error in validator.iter_errors(to_floats(plain_value(root)))]
    assert bool(found) is bool(told) or told == BEYOND, found


SHAPES = [
    *(
        "saga: [x]",
        "saga: X",
        "version: true",
        "version: 1.10",
        "description: 5",
        "input: []",
        "input: {}",
        "run_key: 5",
    ),
    *(
        "run_timeout: 5",
        "run_timeout: 5m",
        "run_timeout: ''",
        "defaults: {}",
        "defaults: {on_unknown: ask}",
        "secrets: [a]",
    ),
    *("defaults: {retry: {}}", "defaults: {retry: {jitter: half}}", "defaults: {retry: {backoff_coefficient: 1.234}}"),
    *("defaults: {retry: {backoff_coefficient: 1.25, max_attempts: 1000}}", "defaults: {retry: {max_attempts: 1001}}"),
    *(
        "defaults: {retry: {non_retryable_errors: ['']}}",
        "secrets: [1a]",
        "output: null",
        "compensation_concurrency: 0",
    ),
    *("settle_timeout: 1h30m", "settle_timeout: 30m1h", "compensation_concurrency: 1001", "secrets: x", "other: 1"),
]
STEPS = [
    *(
        "id: true",
        "id: 1",
        "id: a-b",
        "id: ok",
        "tool: x",
        "tool: x.y",
        "needs: a",
        "needs: [a]",
        "needs: ['']",
        "needs: [1]",
    ),
    *("when: true", "when: text", "when: '${{ x }}'", "when: 1", "foreach: []", "foreach: {}", "foreach: '${{ x }}'"),
    *("concurrency: 5", "concurrency: 5000", "with: {}", "with: []", "compensate: {}", "compensate: {none: x}"),
    *(
        "compensate: {none: x, tool: a.b}",
        "compensate: {none: ''}",
        "compensate: {on_unknown: compensate}",
        "pivot: yes",
    ),
    *("on_unknown: compensate", "on_unknown: prob", "compensate_failed: always", "compensate_failed: no", "agent: ' '"),
    *(
        "compensate: {tool: a.b, with: {x: 1}, retry: {max_attempts: 3}}",
        "approval: {}",
        "approval: true",
        "approval: no",
        "approval: '${{ input.x }}'",
        "approval: {by: [ana], timeout: 1d, required: '${{ input.x }}'}",
        "approval: {by: []}",
        "approval: {by: ana}",
        "approval: {timeout: soon}",
        "approval: {when: true}",
        "guard: '${{ x }}'",
        "guard: [x]",
    ),
    *(
        "start_to_close_timeout: 5s",
        "start_to_close_timeout: [5]",
        "read_only: false",
        "read_only: 0",
        "retry: 5",
        "nope: 1",
    ),
]


@pytest.mark.parametrize("line", [*SHAPES, *(f"- {each}" for each in STEPS)])
def test_the_schema_and_the_loader_agree_on_each_key(line: str, validator: Draft202012Validator) -> None:
    """F1: every key by itself, right and wrong, is judged alike by both."""
    base: dict[str, str] = {"saga": "saga: x"}
    step = {"id": "id: a", "tool": "tool: any.thing"}
    target = step if line.startswith("- ") else base
    target[line.removeprefix("- ").partition(":")[0]] = line.removeprefix("- ")
    text = "\n".join(base.values()) + "\nsteps:\n  - " + "\n    ".join(step.values()) + "\n"
    source, _ = decode(text, "x")
    findings = Findings(source)
    root = read_yaml(source, findings)
    assert root is not None
    assert not findings.has_errors
    read_saga(root, findings)
    errors = [error.message for error in validator.iter_errors(to_floats(plain_value(root)))]
    assert bool(errors) is findings.has_errors, (errors, findings.sorted())


def maps_of_keys(schema: dict[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """Yield each map of the format with its keys."""
    defs = schema["$defs"]
    yield "saga", set(schema["properties"])
    yield "defaults", set(schema["properties"]["defaults"]["properties"])
    for name in ("step", "compensate", "retry"):
        yield name, set(defs[name]["properties"])


def test_the_schema_has_the_keys_of_the_loader() -> None:
    """F1: no key is missing in the schema, and none is there that the loader refuses."""
    keys = dict(maps_of_keys(to_floats(read_file_schema())))
    assert keys["saga"] == set(SAGA_KEYS)
    assert keys["step"] == set(STEP_KEYS)
    assert keys["compensate"] == set(UNDO_KEYS)
    assert keys["retry"] == set(RETRY_KEYS)
    assert keys["defaults"] == set(DEFAULTS_KEYS)
    assert set(POLICY_KEYS) < set(STEP_KEYS)


def test_every_key_is_documented() -> None:
    """F1: an editor can show what each key is for."""
    schema = to_floats(read_file_schema())

    def check(part: Any, path: str) -> None:
        for name, member in part.get("properties", {}).items():
            target = schema["$defs"][member["$ref"].rpartition("/")[2]] if "$ref" in member else member
            assert len(member.get("description", target.get("description", ""))) > 10, f"{path}.{name}"
            check(target, f"{path}.{name}")

    check(schema, "saga")
    for name, part in schema["$defs"].items():
        check(part, name)


SCHEMAS = [
    *("{}", "{type: object}", "{type: objekt}", "{properties: []}", "{properties: {a: 1}}", "{properties: {a: true}}"),
    *(
        "{properties: {a: {type: [string, string]}}}",
        "{properties: {a: {type: []}}}",
        "{required: [a, a]}",
        "{required: a}",
    ),
    *("{properties: {a: {minLength: 1.5}}}", "{properties: {a: {minimum: x}}}", "{properties: {a: {multipleOf: 0}}}"),
    *("{properties: {a: {enum: x}}}", "{properties: {a: {pattern: 1}}}", "{properties: {a: {items: [{}]}}}"),
    *("{properties: {a: {prefixItems: []}}}", "{properties: {a: {anyOf: {}}}}", "{properties: {a: {allOf: [1]}}}"),
    *("{dependentRequired: {a: b}}", "{dependentRequired: {a: [b]}}", "{additionalProperties: 1}", "{title: 1}"),
    *("{properties: {a: {uniqueItems: 1}}}", "{properties: {a: {maxItems: -1}}}", "{$defs: {a: {type: x}}}", "{if: 1}"),
    *("{properties: {a: {writeOnly: yes}}}", "{properties: {a: {const: 1, default: 1, examples: [1]}}}", "{not: {}}"),
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_schema_of_an_input_is_judged_as_the_metaschema_does(refuse: Refuse, schema: str) -> None:
    """F5, H21: what is no JSON Schema is refused, and what is one is not."""
    text = f"input: {schema}\n"
    source, _ = decode(text, "x")
    root = read_yaml(source, Findings(source))
    assert root is not None
    value = plain_value(root)
    assert isinstance(value, dict)
    judge = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    is_right = judge.is_valid(to_floats(value["input"]))
    problems = refuse(text + "saga: X\nsteps: [{id: a, tool: any.thing}]\n")
    assert ("bad-schema" not in {problem.code for problem in problems}) is is_right


def test_every_keyword_that_is_accepted_is_one_of_the_standard() -> None:
    """F5: the keywords of an input's schema are those of JSON Schema 2020-12."""
    specifications = import_module("jsonschema_specifications").REGISTRY
    standard: set[str] = set()
    for part in ("core", "applicator", "validation", "meta-data", "format-annotation", "content", "unevaluated"):
        meta = specifications.contents(f"https://json-schema.org/draft/2020-12/meta/{part}")
        standard |= set(meta["properties"])
    assert standard >= KEYWORDS


def test_the_head_of_the_tests_is_right(refuse: Refuse) -> None:
    """The head that other tests put before their steps has no mistake of its own."""
    assert [problem.code for problem in refuse(HEAD + "  - {id: a}\n")] == ["missing-key"]
