"""What the golden files don't show: filters, long lists, long calls, several runs at once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sagactl.cli.views.log import LogFilter, follow_line, render_log
from sagactl.cli.views.progress import Progress
from sagactl.cli.views.report import render_report
from sagactl.cli.views.runs import say_status
from sagactl.cli.views.show import render_run
from sagactl.cli.views.style import Style
from sagactl.cli.views.text import width_of
from sagactl.core.answer import Answer
from sagactl.core.canonical import Json
from sagactl.core.left import find_left
from sagactl.core.records import Cause, Direction, Operation, OutcomeKind, Request, Resolution, RunStatus, Verb
from sagactl.core.saga import Saga
from sagactl.core.state import RunState
from sagactl.engine.ending import Why
from sagactl.engine.settings import Committed
from sagactl.usecases.documents import write_run
from tests.cli.views.scripted import (
    HOLDER,
    RUN_ID,
    SHORT_ID,
    TZ,
    Lost,
    Script,
    Stage,
    ok,
    onboarding,
    rejected,
    step,
    unavailable,
)
from tests.cli.views.situations import (
    cancelled,
    hanging,
    interrupted,
    pivot_in_doubt,
    retried,
    rolled_back,
    succeeded,
    undo_failed,
    waiting_for_timer,
)


def _names(stage: Stage, chosen: LogFilter) -> list[str]:
    return [str(each.seq) for each in chosen.choose(stage.stored)]


def test_a_log_can_be_filtered() -> None:
    """`log` shows one step, one item, only what failed, or only the end."""
    stage = rolled_back()
    assert _names(stage, LogFilter(step="servers[0]")) == ["8", "9", "13", "14"]
    assert _names(stage, LogFilter(step="servers")) == ["7", "8", "9", "10", "11", "13", "14"]
    assert _names(stage, LogFilter(only_failed=True)) == ["11", "12"]
    assert _names(stage, LogFilter(last=2)) == ["18", "19"]
    assert _names(stage, LogFilter(last=0)) == []
    text = render_log(
        stage.row(), stage.stored, short_id=SHORT_ID, tz=TZ, style=Style(), chosen=LogFilter(only_failed=True)
    )
    assert text.endswith("2 of 19 records")


def test_a_followed_log_keeps_its_columns() -> None:
    """Lines that come one by one stand below each other."""
    stage = succeeded()
    lines = [follow_line(each, tz=TZ, style=Style()) for each in stage.stored]
    assert {line.index("call 1") for line in lines if line.endswith("call 1")} == {39}
    assert all("\n" not in line for line in lines)


def test_an_empty_log_is_its_head() -> None:
    """A log without records is shown without a table."""
    assert "\n" not in render_log(succeeded().row(), [], short_id=SHORT_ID, tz=TZ, style=Style()).rstrip()


def _begin(progress: Progress, stage: Stage) -> list[str]:
    records = tuple(each.record for each in stage.stored)
    return progress.feed(Committed(RUN_ID, stage.saga, stage.state, 1, records))


def test_a_silence_ends_with_what_goes_on() -> None:
    """A call under way is named with its time and its attempt, and of a call that has ended nothing is said."""
    stage = interrupted()
    progress = Progress(style=Style(), tz=TZ)
    _begin(progress, stage)
    assert progress.heartbeat(stage.now_ms + 30_000) == ["14:02:42 wait   deposit 30s, attempt 1 of 4"]
    ended = succeeded()
    progress = Progress(style=Style(), tz=TZ)
    _begin(progress, ended)
    assert progress.heartbeat(ended.now_ms + 30_000) == []


def test_a_silence_over_a_call_that_cannot_be_ended_says_what_to_do() -> None:
    """E14: whoever sees only the last line, or begins to look late, reads that he is needed, and what to type."""
    stage = hanging()
    progress = Progress(style=Style(), tz=TZ)
    first = _begin(progress, stage)
    assert [line[9:] for line in first[-2:]] == [
        "wait   deposit is past its time and has not returned",
        f"wait   end pid 4711 on worker-2, then: sagactl resume {RUN_ID[:6]}",
    ]
    assert [line[9:] for line in progress.heartbeat(stage.now_ms + 30_000)] == [
        "wait   deposit 1m10s, past its time",
        f"wait   end pid 4711 on worker-2, then: sagactl resume {RUN_ID[:6]}",
    ]


def test_a_silence_before_a_retry_ends_with_when_it_goes_on() -> None:
    """While a timer is waited for, its operation is named, and which attempt it will be."""
    stage = waiting_for_timer()
    progress = Progress(style=Style(), tz=TZ)
    _begin(progress, stage)
    assert progress.heartbeat(stage.now_ms + 5_000) == ["14:02:17 wait   deposit goes on in 7s, attempt 2 of 4"]


def test_a_silence_over_many_calls_names_a_few() -> None:
    """A sign of life stays small, however much goes on."""
    stage = Stage(_wide_saga(20), {f"part_{index}": [Lost()] for index in range(1, 20)})
    stage.drive()
    progress = Progress(style=Style(), tz=TZ)
    _begin(progress, stage)
    lines = progress.heartbeat(stage.now_ms + 30_000)
    assert len(lines) == 4
    assert lines[-1].endswith("wait   and 5 more")  # eight calls at once


def test_several_runs_are_told_apart() -> None:
    """`resume --all` puts the run on each line, once there are several."""
    stage = waiting_for_timer()
    progress = Progress(style=Style(), tz=TZ, short_ids={RUN_ID: SHORT_ID})
    _begin(progress, stage)
    progress.feed(Committed("b2m4cd7kq2m9x", stage.saga, stage.state, 1, tuple(each.record for each in stage.stored)))
    lines = progress.heartbeat(stage.now_ms)
    assert [line[9:15] for line in lines] == [SHORT_ID, "b2m4cd"]


def test_more_is_told_when_it_is_asked_for() -> None:
    """-v tells of calls that begin, probes and timers; -vv of every record, with arguments, and never a secret."""
    stage = retried()
    said = [stage.watch(partial(Progress, style=Style(), tz=TZ, verbosity=count)) for count in (0, 1, 2)]
    assert not [line for line in said[0] if " call " in line]
    assert "14:02:11 call   lead, attempt 1: crm.create_lead" in said[1]
    debug = [line for line in said[2] if " debug " in line]
    assert len(debug) == len(stage.stored) - 2  # the first two records are the beginning
    assert any("key 7kq2m9xw4tzn3/lead" in line and "email=ana@example.com" in line for line in debug)


def test_a_resumed_run_is_told_in_one_line() -> None:
    """The history of a run that is taken up isn't told again."""
    stage = undo_failed().crash()
    progress = Progress(style=Style(), tz=TZ)
    assert _begin(progress, stage) == [
        f"14:03:16 run    onboarding {SHORT_ID} resumed; rolling back, 1 undone, 2 to go"
    ]


def test_a_pending_call_is_told_once() -> None:
    """E5: that a call is not done yet is news the first time only."""
    steps = onboarding().steps
    lead = replace(steps[0], action=replace(steps[0].action, schedule_to_close_ms=600_000))
    again = Answer(OutcomeKind.PENDING, after_ms=5_000)
    saga = onboarding(steps=(lead, *steps[1:]))
    stage = Stage(saga, {"lead": [again, again, again, ok(lead_id="lead_12")]}).drive()
    lines = stage.watch(lambda: Progress(style=Style(), tz=TZ))
    assert [line for line in lines if "not done yet" in line] == [
        "14:02:12 wait   lead is not done yet; it is asked again in 5.0s"
    ]
    assert "ok     lead 18.2s" in "\n".join(lines)


def test_a_refused_request_is_told_with_its_reason() -> None:
    """E22: who asked, why, and why not."""
    stage = pivot_in_doubt().ask(Request("r9", Verb.CANCEL, "ana", "too late"))
    stage.commit()
    line = stage.watch(lambda: Progress(style=Style(width=200), tz=TZ))[-1]
    assert "cancel asked by ana: too late -> refused: the pivot is in doubt" in line


def _wide_saga(count: int) -> Saga:
    """Steps side by side, all of which must be undone because the last one fails."""
    steps = [
        step(f"part_{index}", "crm.create_lead", {}, undo="crm.archive_lead", needs=() if index == 0 else ("part_0",))
        for index in range(count)
    ]
    names = tuple(each.id for each in steps)
    return onboarding(steps=(*steps, step("last", "billing.charge", {}, needs=names)), output=None)


def test_many_dead_letters_are_not_all_spelled_out() -> None:
    """A report spells out the first five dead letters and names the command for the rest."""
    script: Script = {f"undo part_{index}": [rejected("no", "never")] for index in range(1, 9)}
    stage = Stage(_wide_saga(9), {**script, "last": [rejected("no", "never")]}).drive()
    text = render_report(stage.scene(Style()))
    assert text.count("undo it again") == 5
    assert "and 3 more: sagactl dlq list" in text
    (first,) = [left for left in find_left(stage.saga, stage.state) if left.step == "part_0"]
    assert first.reason == "waits for part_8, part_7, part_6, part_5, part_4 and 3 more"


def test_what_is_left_is_named_up_to_a_limit() -> None:
    """A report names the first dozen of what is left behind, the JSON all of it."""
    names: list[Json] = [f"web-{index}" for index in range(30)]
    script: Script = {"contract": [unavailable("busy", "later")]}
    value: Json = {"email": "a", "amount": 1, "servers": names}
    stage = Stage(onboarding(), script, value, waits_for_timers=False).drive()
    stage.ask(Request("r1", Verb.TERMINATE, "ana", "enough")).drive()
    run = write_run(stage.saga, stage.state)["run"]
    assert isinstance(run, dict)
    left = run["not_undone"]
    assert isinstance(left, list)
    assert len(left) == 32
    assert "and 20 more" in render_report(stage.scene(Style()))


def test_an_output_that_failed_is_a_warning() -> None:
    """E21: a run whose output can't be made has succeeded, and says what is missing."""
    from sagactl.core.template import parse_template

    stage = Stage(onboarding(output=parse_template({"x": "${{ steps.lead.output.nope }}"}))).drive()
    text = render_report(stage.scene(Style()))
    assert text.startswith("✓")
    assert "warning   there is no output: refused: " in text


def test_an_output_that_is_no_map_is_shown() -> None:
    """The output of a run may be any value."""
    from sagactl.core.template import parse_template

    stage = Stage(onboarding(output=parse_template("${{ steps.lead.output.lead_id }}"))).drive()
    assert "output    lead_12" in render_report(stage.scene(Style()))


def test_a_run_that_goes_on_says_so() -> None:
    """E9, E15: how far it is, how to go on, and what a driver that was replaced may have done."""
    stage = interrupted()
    assert "is running; 1 of 5 steps done" in render_report(stage.scene(Style()))
    scene, lost = stage.scene(Style()), stage.ending(Why.LEASE_LOST)
    report = " ".join(render_report(scene, lost).split())
    assert "another process took it over" in report
    assert "late deposit was under way here: what it did may have come after that" in report
    driven = replace(scene, holder=HOLDER)
    assert "another process drives it now" in render_report(driven, lost)


def test_a_request_that_waits_for_the_pivot_is_shown() -> None:
    """E13: what an operator asked for while the pivot is open is not forgotten."""
    from tests.cli.views.scripted import Lost

    stage = Stage(onboarding(), {"contract": [Lost()]}).drive().ask(Request("r1", Verb.CANCEL, "ana", "stop"))
    assert "cancel by ana, until the pivot's outcome is known" in render_run(stage.scene(Style()))


def test_a_settled_dead_letter_has_nothing_to_decide() -> None:
    """A dead letter that was settled in the meantime offers no command."""
    from sagactl.cli.views.dlq import render_letter

    stage = undo_failed()
    (letter,) = stage.letters()
    refund = Operation("deposit", None, Direction.COMPENSATION)
    stage.ask(Request("r1", Verb.RESOLVE, "ana", "by hand", refund, Resolution.DONE)).drive()
    assert "it is closed" in render_letter(stage.scene(Style()), letter, stage.stored)


def test_a_reply_that_did_not_fit_is_shown() -> None:
    """E3: the raw reply is evidence, so a dead letter shows it."""
    from sagactl.cli.views.dlq import render_letter
    from tests.cli.views.scripted import unknown
    from tests.cli.views.situations import CANNOT_TELL

    lost = unknown("bad_output", "no charge_id", raw={"id": "ch_8f2", "note": "東京"})
    stage = Stage(onboarding(), {"deposit": [lost], "probe deposit": [CANNOT_TELL]}).drive()
    (letter,) = stage.letters()
    assert "raw       id=ch_8f2, note=東京" in render_letter(stage.scene(Style()), letter, stage.stored)


def test_long_names_keep_every_line_within_the_terminal() -> None:
    """Step ids as long as they may be don't push a table over the edge."""
    long = "a" * 63
    saga = onboarding(steps=(step(long, "crm.create_lead", {}, undo="crm.archive_lead"),), output=None)
    stage = Stage(saga, {long: [rejected("no", "never")]}).drive()
    for text in (
        render_run(stage.scene(Style(width=60))),
        render_report(stage.scene(Style(width=60))),
        render_log(stage.row(), stage.stored, short_id=SHORT_ID, tz=TZ, style=Style(width=60)),
    ):
        assert all(width_of(line) <= 60 or "sagactl " in line for line in text.splitlines())


def test_views_change_nothing() -> None:
    """A view only looks: the state is the same before and after."""
    for make in (cancelled, undo_failed, interrupted):
        stage, same = make(), make()
        render_report(stage.scene(Style()))
        render_run(stage.scene(Style()))
        write_run(stage.saga, stage.state)
        assert stage.state == same.state
        assert isinstance(stage.state, RunState)


def test_a_call_that_can_not_be_ended_comes_with_the_way_out() -> None:
    """E14: only the end of its process ends such a call; where it has ended, a resume is all that is left to do."""
    scene = replace(hanging().scene(Style(width=200)), holder=HOLDER, is_here=True)
    driver = f"pid {HOLDER.pid} on {HOLDER.host}"
    driven = render_run(scene)
    assert f"deposit is past its time and has not returned: end {driver}, which drives the run, then resume" in driven
    assert f"hint: kill {HOLDER.pid}\nhint: sagactl resume" in driven
    assert "kill" not in render_run(replace(scene, is_here=False)), "a pid of another host means another process here"
    for left in (replace(scene, is_driven=False), replace(scene, holder=None)):
        text = render_run(left)
        assert "for a resume: the process that called deposit ended before it had an answer" in text
        assert "waiting, nobody drives it" in text
        assert "not returned" not in text
        assert "kill" not in text
        assert "! in doubt" in text
        assert "running" not in text
        assert f"sagactl resume {SHORT_ID}" in text


def test_a_rollback_that_waits_says_once_for_what() -> None:
    """E16, E19: what is missing is the cause as well; a timer is named beside the cause."""
    row = rolled_back().row()
    back = replace(row, status=RunStatus.ROLLING_BACK, direction=Direction.COMPENSATION, failed_step="deposit")
    secret = replace(back, cause=Cause.MISSING_SECRET, waiting_for="missing_secret", waiting_until_ms=None)
    timer = replace(back, cause=Cause.STEP_FAILED, waiting_for="timer", waiting_until_ms=13_000)
    assert say_status(secret, 1_000) == "rolling back, a secret is missing"
    assert say_status(timer, 1_000) == "rolling back, at deposit, waiting for timer, 12s"
