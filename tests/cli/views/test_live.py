"""The live picture of runs: what has room, what is counted instead, how long it takes, and foreign text in it."""

from __future__ import annotations

import time
import unicodedata
from dataclasses import replace

import pytest

from sagactl.cli.views.live import STOPS_WATCHING, View, render_live
from sagactl.cli.views.live_runs import render_live_rows, render_live_runs
from sagactl.cli.views.picture import Picture
from sagactl.cli.views.progress import Progress
from sagactl.cli.views.stopping import say_stopping
from sagactl.cli.views.style import Style
from sagactl.cli.views.text import width_of
from sagactl.cli.views.timeline import Watched
from sagactl.core.canonical import Json
from sagactl.core.saga import Approval, Saga
from sagactl.engine.settings import Committed
from tests.cli.views.scripted import START_MS, TZ, Lost, Script, Stage, onboarding, rejected, step, unavailable
from tests.cli.views.situations import BUSY, SITUATIONS, interrupted, rolled_back, succeeded, undo_failed
from tests.cli.views.test_hostile import EVIL, HALF

HEIGHTS = (1, 2, 5, 9, 24)


def chain(count: int) -> Saga:
    """Steps in a row."""
    steps = tuple(
        step(f"s{index}", "billing.charge", {}, undo="billing.refund", needs=() if index == 0 else (f"s{index - 1}",))
        for index in range(count)
    )
    return onboarding(steps=steps, output=None)


def items(count: int, script: Script) -> Stage:
    """The onboarding with so many servers."""
    names: list[Json] = [f"web-{index}" for index in range(count)]
    value: Json = {"email": "a@b.example", "amount": 1, "servers": names}
    return Stage(onboarding(), script, value).drive(calls_max=100_000)


def picture(stage: Stage, *, height: int = 24, width: int = 80, after_ms: int = 300) -> list[str]:
    """Draw a run."""
    return render_live(stage.watched(), View(stage.now_ms + after_ms, Style(width=width), height))


@pytest.mark.parametrize("height", HEIGHTS)
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_picture_never_has_more_lines_than_the_terminal(name: str, height: int) -> None:
    """Whatever happens in a run, its picture fits, so that the next one can take its place."""
    stage = SITUATIONS[name]()
    for batches in range(1, len(stage.batches) + 1):
        watched = stage.watched(batches=batches)
        for is_last in (False, True):
            view = View(watched.last_ms + 300, Style(), height, stopping_since_ms=watched.last_ms, is_last=is_last)
            assert len(render_live(watched, view)) <= height
            assert len(render_live_runs([watched, watched], view, began_ms=START_MS)) <= height


def test_of_many_steps_those_under_way_and_their_neighbours_are_shown() -> None:
    """Of 2,000 steps the one under way is shown, with what was just done and what comes next; the rest is counted."""
    stage = Stage(chain(2_000), {"s1000": [Lost()]}).drive(calls_max=3_000)
    lines = picture(stage, height=20)
    assert len(lines) == 20
    assert [line.split()[1] for line in lines[2:17]] == [f"s{index}" for index in range(993, 1008)]
    assert lines[9].startswith("  … s1000")
    assert lines[17] == "    and 1,985 more: 993 done, 992 to come"
    assert lines[19].startswith("  1,000 of 2,000 steps done")


@pytest.mark.parametrize("kind", ["steps", "items", "runs", "stuck items"])
def test_a_large_picture_is_drawn_fast_enough(kind: str) -> None:
    """Of 2,000 steps, 5,000 items or 500 runs eight pictures a second cost a few hundredths of a processor."""
    if kind == "steps":
        stage = Stage(chain(2_000), {"s1000": [Lost()]}).drive(calls_max=3_000)
    elif kind == "items":
        stage = items(5_000, {"servers[4500]": [rejected("full", "no")], "undo servers[2000]": [Lost()]})
    elif kind == "stuck items":
        stage = items(5_000, {"servers[4500]": [rejected("full", "no")], "undo servers[2000]": [rejected("no", "no")]})
    else:
        stage = interrupted()
    runs, view = [stage.watched()] * (500 if kind == "runs" else 1), View(stage.now_ms, Style(), 24)
    took = []
    for _ in range(5):
        began = time.process_time()
        if kind == "runs":
            render_live_runs(runs, view, began_ms=START_MS)
        else:
            render_live(runs[0], view)
        took.append(time.process_time() - began)
    assert min(took) < 0.02


def test_while_rolling_back_the_undo_has_the_room() -> None:
    """What is undone is shown before what was done, and the failed step stays visible."""
    script: Script = {"s30": [rejected("no", "never")], "undo s20": [Lost()]}
    lines = picture(Stage(chain(40), script).drive(), height=16)
    text = "\n".join(lines)
    assert "✗ s30" in text
    assert "… s20" in text
    assert "rolling back, the last first" in text
    assert lines[-1].startswith("  9 of 30 undone")


def test_a_foreach_is_one_line_with_a_count_and_what_is_tried_again() -> None:
    """F9: thirty items are a bar and a count; items that are tried again or failed have lines of their own."""
    stage = items(30, {"servers[7]": [BUSY, Lost()]})
    lines = picture(stage)
    assert "  … servers        6.9s  ━━──────── 7 of 30" in lines
    assert any(line.startswith("  … servers[7]") and "attempt 2 of 4; first: bank_busy" in line for line in lines)
    failed = items(30, {"servers[7]": [rejected("quota", "no more")], "undo servers[3]": [Lost()]})
    lines = picture(failed)
    assert any("7 of 30, 1 failed" in line for line in lines)
    assert any("servers" in line and "3 of 7 undone" in line for line in lines)


def test_a_narrow_terminal_keeps_marks_names_and_times() -> None:
    """At 40 columns each line still begins with its mark, its name and its time, and none is wider."""
    lines = picture(undo_failed(), width=40)
    assert all(width_of(line) <= 40 for line in lines)
    assert any(line.startswith("  ! deposit") and "0.8s" in line for line in lines)
    assert "Ctrl-C" not in lines[-1]


def test_stopping_counts_down_what_is_waited_for() -> None:
    """E17, E12: an action is waited for up to the grace, an undo up to its own deadline; both pictures say so."""
    stage = interrupted()
    view = View(stage.now_ms + 2_000, Style(), 24, stopping_since_ms=stage.now_ms, grace_ms=10_000)
    lines = render_live(stage.watched(), view)
    assert lines[-2] == "  stopping: 1 call in flight (deposit up to 8s)"
    assert lines[-1] == "  press Ctrl-C again to leave now; its outcome will then be in doubt"
    calls = [(operation, 8_000) for operation in stage.state.in_flight]
    for width in (30, 40, 60):
        said = " ".join(each.strip() for each in say_stopping(calls, Style(width=width)))
        assert said.endswith("press Ctrl-C again to leave now; its outcome will then be in doubt")
    undo = Stage(chain(3), {"s2": [rejected("no", "never")], "undo s1": [Lost()]}).drive()
    view = View(undo.now_ms + 2_000, Style(), 24, stopping_since_ms=undo.now_ms, grace_ms=10_000)
    assert "(undo of s1 up to 28s)" in "\n".join(render_live(undo.watched(), view))
    assert "stopping: 2 calls in flight" in "\n".join(
        render_live_runs([undo.watched(), stage.watched()], view, began_ms=START_MS)
    )


def test_the_last_picture_says_what_was_left_without_an_answer() -> None:
    """E17: a call that was left under way is shown as in doubt, not as if it went on."""
    watched = interrupted().watched()
    watched.is_let_go = True
    lines = render_live(watched, View(watched.last_ms + 300, Style(), 24, is_last=True))
    assert any(line.startswith("  ! deposit") and "in doubt" in line for line in lines)


def test_many_runs_are_a_line_each_and_the_rest_is_counted() -> None:
    """Of forty runs those in trouble and under way are shown first, and how many are not shown is said."""
    runs = [replace(interrupted().watched(), short_id=f"run{index:03}") for index in range(30)]
    runs += [replace(succeeded().watched(), short_id=f"end{index:03}") for index in range(9)]
    runs += [replace(undo_failed().watched(), short_id="stuck1")]
    view = View(runs[0].last_ms + 300, Style(), 12)
    lines = render_live_runs(runs, view, began_ms=START_MS)
    assert len(lines) == 12
    assert any("stuck1" in line and "stuck, 1 dead letter" in line for line in lines)
    assert lines[0].startswith("  … run000  onboarding")
    assert "1/5; deposit" in lines[0]
    assert lines[-3] == "    and 31 more: 22 running, 9 succeeded"
    assert lines[-1].startswith("  10 of 40 runs at rest")


def test_the_table_of_unfinished_runs_fits_as_well() -> None:
    """`watch --all` shows the rows of runs, says which of them nobody drives, and how Ctrl-C is meant."""
    stage = Stage(onboarding(), {"deposit": [BUSY]}, waits_for_timers=False).drive()
    rows = [stage.row()] * 50
    view = View(stage.now_ms, Style(), 10, STOPS_WATCHING)
    lines = render_live_rows(rows, 50, view, short_ids={}, idle=frozenset({rows[0].run_id}))
    assert len(lines) == 10
    assert "nobody drives it" in lines[0]
    assert lines[-1] == "  50 runs not at rest   Ctrl-C stops watching, not the run"


def test_a_picture_is_made_of_records_alone() -> None:
    """The driver's state, which changes meanwhile, isn't looked at; a batch that comes again changes nothing."""
    stage, shown = rolled_back(), Picture()
    seq = 1
    for batch in stage.batches:
        shown.feed(Committed(stage.state.run_id, stage.saga, None, seq, batch))  # type: ignore[arg-type]
        shown.feed(Committed(stage.state.run_id, stage.saga, None, seq, batch))  # type: ignore[arg-type]
        seq += len(batch)
    view = View(stage.now_ms, Style(), 24)
    assert shown.render(view, START_MS) == render_live(stage.watched(), view)
    assert Picture().render(view, START_MS) == []


@pytest.mark.parametrize("style", [Style(), Style(unicode=False), Style(width=40), Style(width=300)])
def test_foreign_text_in_a_picture_is_tamed(style: Style) -> None:
    """H27: nothing that a saga, a tool or an error says reaches the terminal as more than text on its line."""
    saga = replace(onboarding(), name=EVIL)
    for script in (
        {"lead": [unavailable(HALF, HALF), Lost()]},
        {"servers[1]": [rejected(HALF, HALF)], "undo deposit": [rejected(HALF, HALF)]},
        {"deposit": [rejected(EVIL, EVIL)]},
    ):
        stage = Stage(saga, script, {"email": EVIL, "amount": 1, "servers": [EVIL, EVIL]}).drive()  # type: ignore[arg-type]
        watched: Watched = stage.watched()
        view = View(stage.now_ms + 300, style, 24)
        lines = [*render_live(watched, view), *render_live_runs([watched, watched], view, began_ms=START_MS)]
        lines += render_live_rows([stage.row()], 1, view, short_ids={}, idle=frozenset())
        for line in lines:
            hidden = [each for each in line if unicodedata.category(each) in {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}]
            assert not hidden
            assert width_of(line) <= style.width
            assert style.unicode or line.isascii()


def test_a_step_that_a_person_must_agree_to_says_so() -> None:
    """E22: the picture, the lines and the sign of life name the step that waits for an approval, and how long."""
    steps = onboarding().steps
    contract = replace(steps[3], approval=Approval(timeout_ms=3_600_000))
    stage = Stage(onboarding(steps=(*steps[:3], contract, steps[4])), waits_for_timers=False).drive()
    assert "  · contract             for a person's approval, within 59m59s" in picture(stage, after_ms=1_000)
    progress = Progress(style=Style(), tz=TZ)
    assert stage.watch(lambda: progress)[-1] == "14:02:14 wait   contract: for a person's approval"
    assert progress.heartbeat(stage.now_ms) == ["14:02:14 wait   contract waits for a person's approval"]
