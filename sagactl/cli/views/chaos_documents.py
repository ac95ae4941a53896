"""What `sagactl chaos` tells programs: its JSON documents, and a suite of JUnit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sagactl.chaos.experiment import Experiment
from sagactl.chaos.findings import Finding, Severity
from sagactl.chaos.report import ChaosReport, Found, StepVerdict
from sagactl.cli.views.annotations import Annotation, bound
from sagactl.cli.views.chaos import repeat_command
from sagactl.cli.views.junit import Case, Suite
from sagactl.cli.views.text import safe
from sagactl.core.canonical import Json
from sagactl.usecases.documents import Document

CHAOS_SCHEMA: Final = "sagactl.chaos/1"
EXPERIMENTS_SCHEMA: Final = "sagactl.chaos-experiments/1"


def write_chaos(report: ChaosReport, words: Sequence[str]) -> Document:
    """Return the document of a whole series of experiments."""
    return {
        "schema": CHAOS_SCHEMA,
        "saga": report.saga.name,
        "file": report.saga.source,
        "world": report.world.value,
        "earlier": report.is_beside,
        "checks": list(report.checks),
        "safe": report.is_safe,
        "experiments": {
            "made": len(report.made) - len(report.not_reached),
            "not_reached": list(report.not_reached),
            "left_out": report.left_out,
        },
        "steps": [_write_step(each) for each in report.steps],
        "findings": [_write_found(each, words) for each in report.found],
        "error": None,
    }


def _write_step(each: StepVerdict) -> Json:
    return {
        "id": each.step,
        "verdict": each.verdict.value,
        "forward": each.forward,
        "back": each.back,
        "codes": [code.value for code in each.codes],
    }


def _write_found(found: Found, words: Sequence[str]) -> Json:
    finding = found.first
    return {
        "code": finding.code.value,
        "severity": finding.severity.value,
        **_write_place(finding),
        "seen": finding.seen,
        "why": finding.meaning.why,
        "change": finding.meaning.change,
        "experiments": [finding.experiment, *found.others],
        "again": repeat_command(words, finding.experiment),
    }


def _write_place(finding: Finding) -> dict[str, Json]:
    place = finding.place
    return {
        "step": None if place is None else place.step,
        "item": None if place is None else place.item,
        "experiment": finding.experiment,
    }


def write_experiments(experiments: Sequence[Experiment], left_out: int) -> Document:
    """Return the document of what would be made."""
    return {
        "schema": EXPERIMENTS_SCHEMA,
        "items": [_write_experiment(each) for each in experiments],
        "total": len(experiments),
        "left_out": left_out,
        "error": None,
    }


def _write_experiment(each: Experiment) -> Json:
    place = each.place
    return {
        "name": each.name,
        "step": None if place is None else place.step,
        "item": None if place is None else place.item,
        "direction": None if place is None else place.direction.value,
        "description": each.describe(),
    }


def make_chaos_suite(report: ChaosReport, *, strict: bool) -> Suite:
    """Return the suite: a case for each step, and one for each finding of the run as a whole."""
    cases = [_make_case(each, report, strict=strict) for each in report.steps]
    return Suite(f"chaos {report.saga.name}", [*cases, *_cases_of_run(report, strict=strict)], took_ms=report.took_ms)


def _make_case(each: StepVerdict, report: ChaosReport, *, strict: bool) -> Case:
    found = [one for one in report.found if one.step == each.step]
    if each.verdict == "not_tried":
        return Case(each.step, "skipped", "not_tried", "no experiment was made on it")
    return _judge_case(each.step, found, strict=strict, took_ms=each.took_ms)


def _cases_of_run(report: ChaosReport, *, strict: bool) -> list[Case]:
    known = {each.step for each in report.steps}
    found = [one for one in report.found if one.step not in known]
    return [_judge_case("run", found, strict=strict)] if found else []


def _judge_case(name: str, found: Sequence[Found], *, strict: bool, took_ms: int = 0) -> Case:
    bad = [one for one in found if strict or one.first.severity is Severity.UNSAFE]
    text = "\n".join(f"{one.first.code}: {one.first.seen} ({one.first.experiment})" for one in found)
    return Case(name, "failure" if bad else "passed", bad[0].first.code.value if bad else "", text, took_ms)


def annotate_chaos(report: ChaosReport, words: Sequence[str]) -> list[Annotation]:
    """Return a remark for each finding at the line of its step: an error where it is unsafe, a warning for a note."""
    return bound([_annotate(found, report, words) for found in report.found])


def _annotate(found: Found, report: ChaosReport, words: Sequence[str]) -> Annotation:
    finding, saga = found.first, report.saga
    step = None if found.step is None else saga.by_id.get(found.step)
    parts = [finding.seen, finding.meaning.change, repeat_command(words, finding.experiment)]
    return Annotation(
        "error" if finding.severity is Severity.UNSAFE else "warning",
        safe(f"{finding.code}: {found.step or 'the run'}"),
        safe(". ".join(parts)),
        saga.source,
        None if step is None else step.line,
    )
