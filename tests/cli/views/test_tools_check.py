"""What `sagactl tools check` shows, as it was reviewed."""

from __future__ import annotations

from typing import Final

import pytest

from sagactl.cli.views.junit import render_junit
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.tools_check import render_check, say_tool
from sagactl.cli.views.tools_check_documents import make_check_suites, write_check
from sagactl.conformance.report import CheckReport, Finding, ToolReport, Verdict
from sagactl.conformance.rules import Rule
from tests.cli.views.test_golden import GOLDEN, STYLES, _compare

WORDS: Final = ["sagactl", "tools", "check", "-i", "shop=http://127.0.0.1:8080"]
WAITS: Final = "not late_safe: the engine undoes nothing while an old call may be under way"
UNSEEN: Final = "nothing of its effect is seen here: name a read-only tool that shows it, under observe"


def _report(tool: str, *found: Finding) -> ToolReport:
    plugin = tool.partition(".")[0]
    findings = {each.rule: each for each in found}
    return ToolReport(tool, plugin, f"plugins/{plugin}.py", 12, f"{plugin}.undo", f"{plugin}.find", findings)


def _hold(*rules: Rule) -> list[Finding]:
    return [Finding(rule, Verdict.HOLDS) for rule in rules]


BROKEN: Final = CheckReport(
    (
        _report(
            "shop.order",
            *_hold(Rule.SUCCEEDS, Rule.SCHEMA),
            Finding(Rule.REJECTS, Verdict.UNTRIED, "its check file has no rejects"),
            Finding(
                Rule.SAME_KEY, Verdict.BROKEN, "the second call had an effect as well: ledger of order from 1 to 2"
            ),
            Finding(Rule.AT_ONCE, Verdict.EXCUSED, "there are two effects: file a came. The sandbox locks nothing."),
            Finding(Rule.PROBE, Verdict.HOLDS, "it says done after the undo as well; the engine doesn't ask it then"),
            Finding(Rule.UNDO, Verdict.BROKEN, "something isn't as it was: file \x1b[2Jreceipt came"),
            Finding(Rule.LATE, Verdict.NOT_PROMISED, WAITS),
        ),
        _report("shop.reserve", *_hold(Rule.SUCCEEDS), Finding(Rule.LATE, Verdict.NOT_PROMISED, WAITS)),
        _report("shop.send_a_rather_long_message", *_hold(Rule.SUCCEEDS, Rule.SAME_KEY)),
        _report(
            "far.put",
            *_hold(Rule.SUCCEEDS),
            *(Finding(rule, Verdict.UNTRIED, UNSEEN) for rule in (Rule.SAME_KEY, Rule.UNDO, Rule.LATE)),
        ),
        _report("lost.put", *(Finding(rule, Verdict.UNTRIED, "nothing says what x may be") for rule in Rule)),
    ),
    ("shop.order: the world isn't torn down: \x1b[31mbusy",),
)
GOOD: Final = CheckReport((_report("shop.order", *_hold(Rule.SUCCEEDS, Rule.SAME_KEY)),))
NOTHING: Final = CheckReport(BROKEN.tools[-1:])


@pytest.mark.parametrize("kind", STYLES)
def test_what_a_check_shows_is_as_it_was_reviewed(kind: str) -> None:
    """A table of rules and tools; breaches with what to change and the command to see them again; what wasn't tried."""
    style = STYLES[kind]
    parts = {
        "broken": render_check(BROKEN, WORDS, style=style),
        "good": render_check(GOOD, WORDS, style=style),
        "nothing tried": render_check(NOTHING, WORDS, style=style),
        "strict": render_check(CheckReport(BROKEN.tools[3:4]), WORDS, style=style, strict=True),
        "progress": "\n".join(say_tool(each, style) for each in BROKEN.tools),
    }
    _compare(GOLDEN / f"tools-check{kind}.txt", "\n".join(f"==== {name}\n{text}\n" for name, text in parts.items()))


def test_what_programs_are_told_is_as_it_was_reviewed() -> None:
    """`sagactl.tools_check/1`: names stay; JUnit has a suite for each tool and a case for each rule."""
    parts = {
        "report": spell(write_check(CheckReport(BROKEN.tools[:1], BROKEN.notes), WORDS), indent=2),
        "junit": render_junit(make_check_suites(CheckReport(BROKEN.tools[:1]), strict=False)),
    }
    _compare(GOLDEN / "tools-check.documents", "\n".join(f"==== {name}\n{text}\n" for name, text in parts.items()))
