"""Runs and checked files as JUnit XML, which CI servers make tables and trends of.

A run is a suite; each step, and each item of a step with `foreach`, is a case, and the run as a whole is the last one,
so that a run that was cancelled fails as well. `failure` says that a step failed, `error` that a person must decide,
`skipped` that a step wasn't run or hasn't come to its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from sagactl.cli.views.results import Result, list_results
from sagactl.cli.views.style import Mark
from sagactl.cli.views.words import name_failure, plain
from sagactl.core.left import Left, find_left
from sagactl.core.records import RunStatus
from sagactl.dataclass import dataclass
from sagactl.documents import write_time
from sagactl.secrets.masking import KNOWN

if TYPE_CHECKING:
    from sagactl.core.records import Record
    from sagactl.core.saga import Saga
    from sagactl.core.state import RunState
    from sagactl.errors import SagactlError
    from sagactl.usecases.errors import ProblemFacts

TEXT_LENGTH_MAX: Final = 4_000
"""Characters of one message."""

CASES_MAX: Final = 10_000
"""Cases of one suite; a last one says how many more there are."""

Verdict: TypeAlias = Literal["passed", "failure", "error", "skipped"]

_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
_SPECIAL: Final = re.compile('[&<>"\n\r\t]')
_VERDICTS: Final[dict[Mark, Verdict]] = {
    Mark.DONE: "passed",
    Mark.UNDONE: "passed",
    Mark.FAILED: "failure",
    Mark.STUCK: "error",
    Mark.RUNNING: "skipped",
    Mark.WAITING: "skipped",
    Mark.NOT_RUN: "skipped",
}
_RUN_VERDICTS: Final[dict[RunStatus, Verdict]] = {
    RunStatus.SUCCEEDED: "passed",
    RunStatus.ROLLED_BACK: "failure",
    RunStatus.STUCK: "error",
    RunStatus.TERMINATED: "error",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One case; `text` is why it isn't passed, or what else is to be said, unsafe as yet."""

    name: str
    verdict: Verdict = "passed"
    kind: str = ""
    text: str = ""
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class Suite:
    """Several cases, with facts about them all."""

    name: str
    cases: Sequence[Case]
    began_at: str = ""
    took_ms: int = 0
    facts: Sequence[tuple[str, str]] = ()


def make_suite(saga: Saga, state: RunState, records: Iterable[Record]) -> Suite:
    """Return the suite of a run as its records say."""
    from sagactl.core.summary import summarize

    summary, created = summarize(saga, state), state.created
    assert created is not None, "a run begins with its first record"
    last_ms, kept = created.at_ms, []
    for record in records:
        last_ms = record.at_ms
        kept.append(record)
    results = list_results(saga, state, kept)
    took_ms = (summary.ended_at_ms or last_ms) - created.at_ms
    why = [name_failure(summary.failure), *(f"left behind: {each.place}: {each.reason}" for each in _left(saga, state))]
    whole = Case(
        "run",
        _RUN_VERDICTS.get(summary.status, "skipped"),
        summary.status.value,
        "\n".join([plain(summary.status), *filter(None, why)]),
        took_ms,
    )
    cases = [_make_case(result) for result in results[:CASES_MAX]]
    more = len(results) - CASES_MAX
    if more > 0:
        cases.append(Case("more", "skipped", "cut", f"{more:,} more steps and items"))
    facts = [("run_id", created.run_id), ("status", summary.status.value), ("definition", created.definition)]
    return Suite(created.saga, [*cases, whole], write_time(created.at_ms) or "", took_ms, facts)


def _left(saga: Saga, state: RunState) -> list[Left]:
    return find_left(saga, state)[:CASES_MAX]


def _make_case(result: Result) -> Case:
    kind = result.row.status.value if result.row.failure is None else result.row.failure.type
    return Case(result.place, _VERDICTS[result.mark], kind, result.words, result.took_ms or 0)


def make_problem_suite(file: str, problems: Sequence[ProblemFacts], *, strict: bool) -> Suite:
    """Return the suite of a checked saga file: a case for each problem, or one that is passed."""
    cases = [
        Case(
            f"line {problem.line}" if problem.line else "file",
            "failure" if strict or problem.severity == "error" else "passed",
            problem.code,
            f"{problem.severity}: {problem.message}" + (f"\n{problem.hint}" if problem.hint else ""),
        )
        for problem in problems[:CASES_MAX]
    ]
    return Suite(file, cases or [Case("file")])


def make_error_suite(error: SagactlError) -> Suite:
    """Return the suite of a command that sagactl could not carry out."""
    text = error.message + (f"\nhint: {error.hint}" if error.hint else "")
    return Suite("sagactl", [Case("sagactl", "error", error.code, text)])


def render_junit(suites: Sequence[Suite]) -> str:
    """Return the document, with nothing in it that XML can't hold."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    took_ms = sum(suite.took_ms for suite in suites)
    lines.append(
        f"<testsuites{_count([case for suite in suites for case in suite.cases], took_ms, has_skipped=False)}>"
    )
    for suite in suites:
        lines += _render_suite(suite)
    return "\n".join([*lines, "</testsuites>", ""])


def _count(cases: Sequence[Case], took_ms: int, *, has_skipped: bool = True) -> str:
    counts = {"tests": len(cases)}
    for name, verdict in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        if verdict != "skipped" or has_skipped:
            counts[name] = sum(case.verdict == verdict for case in cases)
    return "".join(f' {name}="{count}"' for name, count in counts.items()) + f' time="{_seconds(took_ms)}"'


def _render_suite(suite: Suite) -> list[str]:
    began = f' timestamp="{suite.began_at[:19]}"' if suite.began_at else ""
    lines = [f"  <testsuite name={_attribute(suite.name)}{_count(suite.cases, suite.took_ms)}{began}>"]
    if suite.facts:
        facts = [f"      <property name={_attribute(name)} value={_attribute(value)}/>" for name, value in suite.facts]
        lines += ["    <properties>", *facts, "    </properties>"]
    for case in suite.cases:
        lines += _render_case(suite, case)
    return [*lines, "  </testsuite>"]


def _render_case(suite: Suite, case: Case) -> list[str]:
    head = f"<testcase name={_attribute(case.name)} classname={_attribute(suite.name)} "
    head = f'    {head}time="{_seconds(case.took_ms)}"'
    message, body = _attribute(case.text.split("\n", 1)[0]), _escape(case.text)
    match case.verdict:
        case "passed" if not case.text:
            return [f"{head}/>"]
        case "passed":
            inner = f"<system-out>{body}</system-out>"
        case "skipped":
            inner = f"<skipped message={message}/>"
        case verdict:
            inner = f"<{verdict} message={message} type={_attribute(case.kind or verdict)}>{body}</{verdict}>"
    return [f"{head}>", f"      {inner}", "    </testcase>"]


def _seconds(duration_ms: int) -> str:
    return f"{max(0, duration_ms) / 1000:.3f}"


def _attribute(text: str) -> str:
    return f'"{_escape(text)}"'


def _escape(text: str) -> str:
    r"""Return *text* bounded, for XML: what XML can't hold at all stands there as an escape such as `\x1b`."""
    from sagactl.cli.views.text import escape

    shown = KNOWN.shorten(text, TEXT_LENGTH_MAX, dots="…")
    shown = _NO_XML.sub(lambda found: escape(found[0]), shown)
    return _SPECIAL.sub(lambda found: _ENTITIES[found[0]], shown)
