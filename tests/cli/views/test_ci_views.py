"""What CI is told in each situation is as it was reviewed: annotations, the table of the summary, JUnit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sagactl.cli.views.annotations import annotate_run
from sagactl.cli.views.junit import Case, Suite, make_suite, render_junit
from sagactl.cli.views.markdown import CELL_LENGTH_MAX, ROWS_MAX, quote, render_summary
from sagactl.cli.views.results import list_results
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.style import WIDTH_UNLIMITED, Style
from sagactl.cli.views.times import show_moment
from sagactl.core.records import AT_REST, RunStatus
from sagactl.workflow import make_command
from tests.cli.junit_schema import check_junit
from tests.cli.views.scripted import Stage, rejected
from tests.cli.views.situations import SITUATIONS, ending_of
from tests.cli.views.test_golden import GOLDEN, _compare, _stage


def _scene(stage: Stage) -> Scene:
    """Look at the run as CI is shown it."""
    return replace(stage.scene(Style(width=WIDTH_UNLIMITED)), is_kept=True)


def _annotations(name: str, stage: Stage) -> str:
    found = annotate_run(_scene(stage), ending_of(name, stage))
    lines = [make_command(each.level, each.message, file=each.file, line=each.line, title=each.title) for each in found]
    return "\n".join(lines) or "nothing"


def _summary(name: str, stage: Stage) -> str:
    results = list_results(stage.saga, stage.state, [each.record for each in stage.stored])
    return render_summary(_scene(stage), ending_of(name, stage), results).rstrip()


def _junit(name: str, stage: Stage) -> str:
    del name
    return render_junit([make_suite(stage.saga, stage.state, [each.record for each in stage.stored])]).rstrip()


VIEWS = {"ci-annotations": _annotations, "ci-summary": _summary, "ci-junit": _junit}


@pytest.mark.parametrize("view", VIEWS)
def test_what_ci_is_told_is_as_it_was_reviewed(view: str) -> None:
    """UX 7.8: each situation of a run reads as the golden file says."""
    parts = [f"==== {name}: {make.__doc__}\n{VIEWS[view](name, _stage(name))}\n" for name, make in SITUATIONS.items()]
    _compare(GOLDEN / f"{view}.txt", "\n".join(parts))


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_report_agrees_with_the_run(name: str) -> None:
    """JUnit fits its schema, and has a failure or an error exactly where the run is at rest and didn't succeed."""
    stage = _stage(name)
    root = check_junit(_junit(name, stage))
    is_bad = root.find(".//failure") is not None or root.find(".//error") is not None
    status = stage.scene(Style()).summary.status
    if status in AT_REST:
        assert is_bad is (status is not RunStatus.SUCCEEDED)


@pytest.mark.parametrize(
    "wrong",
    [
        ('time="', 'time="-'),
        ('time="', 'took="'),
        ("<skipped message=", "<passed message="),
        ("testcase name=", "testcase id="),
        ('type="quota"', ""),
        ("</testcase>", "<system-out/><system-out/></testcase>"),
        ("<testsuite ", "<testsuite><properties/></testsuite><testsuite "),
    ],
)
def test_the_schema_of_reports_refuses_what_servers_could_not_read(wrong: tuple[str, str]) -> None:
    """V0: the schema that reports are held against refuses a wrong time, element, attribute, order."""
    text = _junit("rolled_back", _stage("rolled_back"))
    check_junit(text)
    broken = text.replace(*wrong, 1)
    assert broken != text
    with pytest.raises(ValueError, match="Reason:"):
        check_junit(broken)


@pytest.mark.parametrize(
    "text", ["]]>", "\x00\x1b\ud800\ufffe", "<a b='c'>&amp;\n\t\r\"", "", "\U0001f600" * 5_000, "\x85\u2028"]
)
def test_reports_fit_whatever_stands_in_them(text: str) -> None:
    """Names, types and messages of anybody are text in the report, bounded, and the schema holds."""
    cases = [Case(text or "a", verdict, text, text, -1) for verdict in ("passed", "failure", "error", "skipped")]
    suite = Suite(text or "s", cases, "2026-03-04T13:02:11.204Z", 10**12, [("a", text)])
    assert len(check_junit(render_junit([suite, suite]))) == 2
    assert len(check_junit(render_junit([]))) == 0


def test_a_long_table_keeps_what_failed() -> None:
    """Of more steps than the summary shows the failed ones are shown, and the others counted."""
    names: list[object] = [f"web-{index}" for index in range(ROWS_MAX + 50)]
    given = {"email": "ana@example.com", "amount": 1, "servers": names}
    last = len(names) - 1
    stage = Stage(_stage("succeeded").saga, {f"servers[{last}]": [rejected("quota", "no more")]}, input=given).drive()  # type: ignore[arg-type]
    text = _summary("rolled_back", stage)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == ROWS_MAX + 3
    assert any("quota: no more" in row for row in rows)
    assert rows[-1].startswith("| and ")


def test_a_page_says_when_an_approval_ends() -> None:
    """E22: who reads the page tomorrow, in another zone, knows until when, also if that is the day of the run."""
    stage = _stage("waiting_for_approval")
    (awaited,) = stage.state.awaiting.values()
    assert awaited.until_ms is not None
    scene = replace(_scene(stage), now_ms=awaited.until_ms - 1)
    until = f"until {show_moment(awaited.until_ms, scene.tz)}"
    text = render_summary(scene, ending_of("waiting_for_approval", stage), [])
    assert until in text.splitlines()[0].replace("&#58;", ":")
    (line,) = [line for line in text.splitlines() if line.startswith("- until")]
    assert until in line.replace("- until: ", "until ").replace("&#58;", ":")
    assert until in annotate_run(scene, ending_of("waiting_for_approval", stage))[0].title


def test_foreign_text_is_no_markdown() -> None:
    """What a tool says is shown in the summary as it is, on one line, bounded."""
    text = quote("# a | b <i>*c*</i> [d](http://e) `f` @g :tada: _h_ snake_case\n- i &amp; $x$")
    for sign in ("|", "<", ">", "*", "[", "]", "`", "@", ":t", "://", "\n", " _", "&amp;", "$"):
        assert sign not in text
    assert "snake_case" in text
    assert quote("- a").startswith("&#45;")
    assert len(quote("x" * 10_000)) == CELL_LENGTH_MAX
