"""Scenarios of people: dead letters, approvals, what operators may ask at each stand, and the point of no return."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.scenarios.checks import check_all
from tests.scenarios.scene import Command, Done, Scene, step, tries

KILL = int(signal.SIGKILL)


def _pivot(name: str = "p", word: str = "ok", **keys: Any) -> dict[str, Any]:
    return step(name, word, tool="probe.sign", pivot=True, **keys)


def _behind(name: str, word: str = "ok", **keys: Any) -> dict[str, Any]:
    return step(name, word, tool="probe.sign", **keys)


def test_b67_a_letter_that_is_retried_in_vain_stays_one(scene: Scene) -> None:
    """E23: three retries that fail: one open letter all along, each of them in the log, a fresh budget each time."""
    scene.saga("x", [_pivot(), _behind("c", "error", retry=tries(2))])
    assert scene.do("run", "x").code == 11
    run = scene.latest()
    for _ in range(3):
        assert scene.do("dlq", "retry", run).code == 11
        assert [letter["step"] for letter in scene.do("dlq", "list").json["items"]] == ["c"]
    assert scene.calls().count("c") == 8
    assert len([each for each in scene.of("operator") if each["body"]["request"]["verb"] == "retry"]) == 3
    check_all(scene)


def test_b67_of_two_retries_at_once_one_is_made(scene: Scene) -> None:
    """E15, E23: one drives; the other is answered by it, or is too late and told so."""
    scene.saga("x", [_pivot(), _behind("c", "mended bridge, wait 0.3", retry=tries(1))])
    assert scene.do("run", "x").code == 11
    (scene.path / "bridge").touch()
    pair = [scene.start("dlq", "retry", scene.latest()) for _ in range(2)]
    codes = sorted(each.wait().code for each in pair)
    assert codes[0] == 0
    assert codes[1] in {0, 5, 6}
    assert scene.calls().count("c") == 2
    assert scene.do("dlq", "list").json["items"] == []
    check_all(scene)


def test_b67_a_letter_of_a_run_that_was_rolled_back_is_closed(scene: Scene) -> None:
    """E23: refused with the reason, and the refusal is recorded."""
    scene.saga("x", [step("a"), _behind("p", pivot=True), _behind("c", "reject no")])
    assert scene.do("run", "x").code == 11
    run = scene.latest()
    assert scene.do("rollback", run, "--past-pivot", "--yes").code == 0
    late = scene.do("dlq", "retry", run, "c")
    assert (late.code, late.error) == (6, "refused")
    assert scene.do("dlq", "list").json["items"] == []
    check_all(scene)


def _ask(scene: Scene, name: str = "x") -> dict[str, Any]:
    waiting = scene.do("run", name)
    assert waiting.code == 12
    (asked,) = waiting.run["approvals"]
    return dict(asked)


def test_b91_an_approval_holds_for_what_was_shown_and_nothing_else(scene: Scene) -> None:
    """E22: (a) other arguments by another definition: refused; (c) another run has its own question; (d) once only.

    (b) can't be: an output is recorded once, and nobody re-runs a step of a run.
    """
    b = step("b", args={"value": "${{ steps.a.output.id }}"}, approval=True)
    scene.saga("x", [step("a"), b])
    asked = _ask(scene)
    run = scene.latest()
    assert asked["arguments"][0]["value"] == f"{run}/a/action"
    assert scene.do("approve", run, "--no-resume").code == 0
    assert scene.do("approve", run, "--no-resume").code == 6
    changed = step("b", args={"value": "something else"}, approval=True)
    scene.saga("x", [step("a"), changed])
    assert scene.do("resume", run, "--definition", "sagas/x.yaml").code == 6
    scene.saga("x", [step("a"), b])
    other = _ask(scene)
    assert other["digest"] != asked["digest"]
    assert scene.do("resume", run).code == 0
    assert [line["arguments"]["value"] for line in scene.ledger("begin") if line["step"] == "b"] == [f"{run}/a/action"]
    check_all(scene)


def test_b91_an_approval_survives_a_crash(scene: Scene) -> None:
    """E1, E22: approved, killed before the call: the very arguments that were approved are called."""
    scene.saga("x", [step("a", args={"value": 7}), step("b", args={"value": "${{ steps.a.output }}"}, approval=True)])
    asked = _ask(scene)
    order = {"at": "before_intent", "step": "b", "direction": "action", "signal": KILL}
    assert scene.do("approve", scene.latest(), hooks={"signal": order}).code == -KILL
    assert scene.do("resume", scene.latest()).code in {0, 12}
    if scene.show()["status"] == "waiting":  # the answer had not become durable
        assert scene.do("approve", scene.latest()).code == 0
    (called,) = [line["arguments"] for line in scene.ledger("begin") if line["step"] == "b"]
    assert {"value": called["value"], "word": called["word"], "undo": called["undo"]} == asked["arguments"][0]
    check_all(scene)


@pytest.mark.parametrize("others", [("deny",), ("cancel",), ("approve",), ("rollback", "--yes"), ("terminate",)])
def test_b91_two_answers_at_once_are_not_both_taken(others: tuple[str, ...], scene: Scene) -> None:
    """C2, E22: whichever comes first counts; the other is refused, or turns the run around where that is allowed."""
    scene.saga("x", [step("a"), step("b", "wait 0.02", approval=True), step("c")])
    verb, *options = others
    for _ in range(4):
        _ask(scene)
        run = scene.latest()
        pair = scene.start("approve", run), scene.start(verb, run, *options)
        codes = [each.wait().code for each in pair]
        status = scene.show(run)["status"]
        operators = scene.of("operator", run)
        taken = {each["body"]["request"]["verb"] for each in operators if each["body"]["disposition"] == "accepted"}
        assert taken, "one of them is answered"
        assert not {"approve", "deny"} <= taken
        assert status in {"succeeded", "rolled_back", "terminated"}, (codes, status, taken)
        assert set(codes) <= {0, 5, 6, 10, 13}, codes
        if "approve" not in taken:
            assert scene.calls(run).count("b") == 0
    check_all(scene, looks=False)


FRESH = {
    "succeeded": ([step("a"), step("b")], ()),
    "rolled_back": ([step("a"), step("b", "reject no")], ()),
    "stuck": ([step("a", "ok", "reject no"), step("b", "reject no")], ()),
    "in_doubt": ([step("a"), step("b", "gone", tool="probe.once")], ()),
    "waiting": ([step("a"), step("b", "retry 1", retry=tries(2, "2s"))], ("--no-wait",)),
    "asks": ([step("a"), step("b", approval=True)], ()),
    "terminated": ([step("a"), step("b", approval=True)], ()),
}
COMMANDS = {
    "resume": ("resume",),
    "rollback": ("rollback", "--yes"),
    "cancel": ("cancel",),
    "terminate": ("terminate",),
    "pause": ("pause",),
    "unpause": ("unpause",),
    "approve": ("approve",),
    "deny": ("deny",),
    "retry": ("dlq", "retry"),
    "done": ("dlq", "resolve", "--done"),
    "not_done": ("dlq", "resolve", "--not-done"),
    "skip": ("dlq", "resolve", "--skip"),
    "abandon": ("dlq", "resolve", "--abandon"),
}
ORDER = tuple(COMMANDS)
TABLE = {
    #               resume rollb canc term pause unp appr deny retry done not_d skip aband
    "succeeded": (0, 0, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6),
    "rolled_back": (10, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6),
    "stuck": (11, 6, 6, 0, 6, 6, 6, 6, 11, 10, 6, 6, 13),
    "in_doubt": (11, 0, 0, 0, 6, 6, 6, 6, 11, 3, 10, 6, 6),  # done: without its output, which is checked
    "waiting": (0, 0, 0, 0, 0, 6, 6, 6, 6, 6, 6, 6, 6),
    "asks": (12, 0, 0, 0, 0, 6, 0, 10, 6, 6, 6, 6, 6),
    "terminated": (13, 0, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6),
}


@pytest.mark.parametrize("stand", FRESH)
def test_b97_every_stand_answers_every_command(stand: str, scene: Scene) -> None:
    """E22, E23: a table of stands and commands: done, or refused with a reason and recorded; never a traceback."""
    steps, options = FRESH[stand]
    scene.saga("x", steps)
    found = []
    for name in ORDER:
        scene.do("run", "x", *options)
        run = scene.latest()
        if stand == "terminated":
            assert scene.do("terminate", run).code == 0
        verb, *more = COMMANDS[name]
        words = (verb, more[0], run, *more[1:]) if verb == "dlq" else (verb, run, *more)
        done = scene.do(*words)
        found.append(done.code)
        if done.code == 6:
            assert done.json["error"]["message"]
            assert done.json["error"]["hint"]
    assert dict(zip(ORDER, found, strict=True)) == dict(zip(ORDER, TABLE[stand], strict=True))
    lied = {"a": {0, 1}} if stand == "stuck" else {}  # who says that it was undone by hand is believed
    check_all(scene, looks=False, net=lied)


def test_b97_a_run_that_is_not_there_or_could_be_several(scene: Scene) -> None:
    """Exit 4 for both, whatever is asked, and nothing is picked by itself."""
    scene.saga("x", [step("a")])
    firsts: list[str] = []
    while len(set(firsts)) == len(firsts):
        firsts.append(scene.do("run", "x").run["id"][0])
    prefix = firsts[-1]
    for verb, *more in COMMANDS.values():
        for run in ("zzzzzzzzzzzzz", prefix):
            words = (verb, more[0], run, *more[1:]) if verb == "dlq" else (verb, run, *more)
            assert scene.do(*words).code == 4, words
    scene.asked.clear()
    check_all(scene, looks=False)


def test_x01_behind_the_pivot_it_is_tried_with_patience_and_then_told(scene: Scene) -> None:
    """E13: one alert after five failures, one when it is stuck; nothing before it is undone by itself."""
    scene.saga("x", [step("a"), _pivot(), _behind("c", "error", retry=tries(7))])
    stuck = scene.do("run", "x")
    assert (stuck.code, stuck.run["cause"]) == (11, "forward_stuck")
    assert sorted(scene.alerts()) == ["keeps_failing", "stuck"]
    assert scene.calls() == ["a", "p"] + ["c"] * 7
    check_all(scene)


WAITS_AT = {"before": "a", "at": "p", "behind": "c"}


def _held(scene: Scene, place: str, before: str = "ok", **top: Any) -> Command:
    """Start a run whose call before, at or behind the pivot waits until the test lets it go."""
    words = {name: "await open" if name == WAITS_AT[place] else before if name == "a" else "ok" for name in "apc"}
    steps = [step("a", words["a"], retry=tries(2)), _pivot("p", words["p"], retry=tries(2)), _behind("c", words["c"])]
    scene.saga("x", steps, settle_timeout="200ms", **top)
    running = scene.start("run", "x")
    scene.wait_for(scene.has_begun(WAITS_AT[place]))
    return running


def _open(scene: Scene) -> None:
    (scene.path / "open").touch()


@pytest.mark.parametrize(("place", "code"), [("before", 0), ("at", 12), ("behind", 6)])
def test_x03_a_cancel_around_the_pivot(place: str, code: int, scene: Scene) -> None:
    """E13: before it the run turns around; at it the request waits, and is void when it succeeds; behind it refused.

    Whoever asks while the pivot is open isn't kept waiting: 12, where the run stands, and an alert when it is void.
    """
    running = _held(scene, place)
    asking = scene.start("cancel", scene.latest())
    scene.wait_for(lambda: scene.of("operator"))
    if place == "at":
        waiting = asking.wait()
        assert waiting.run["driver"]["pid"] == running.pid
    _open(scene)
    assert asking.wait().code == code
    assert running.wait().code == (10 if place == "before" else 0)
    assert scene.alerts() == (["request_void"] if place == "at" else [])
    check_all(scene)


@pytest.mark.parametrize("place", WAITS_AT)
def test_x03_a_signal_around_the_pivot(place: str, scene: Scene) -> None:
    """E17: the call settles, and the run can be resumed; nothing is undone for it."""
    running = _held(scene, place)
    running.signal(signal.SIGTERM)
    scene.wait_for(lambda: "stopping" in running.err())
    _open(scene)
    assert running.wait().code in ({143} if place != "behind" else {143, 0})
    assert scene.do("resume", scene.latest()).code == 0
    assert scene.calls() == ["a", "p", "c"]
    check_all(scene)


@pytest.mark.parametrize("place", WAITS_AT)
def test_x03_the_time_is_over_around_the_pivot(place: str, scene: Scene) -> None:
    """E13, E14: before it back; at and behind it the run goes on, and a person is told."""
    limit = "6s"
    running = _held(scene, place, "wait 3", run_timeout=limit, defaults={"start_to_close_timeout": limit})
    if place != "before":  # the call that is held began later than the run, so its own time isn't over yet
        scene.wait_for(lambda: time.monotonic() > scene.ledger("begin")[0]["at"] + 6.2)
        _open(scene)
    done = running.wait()
    if place == "before":
        assert (done.code, done.run["cause"], scene.calls()[-1]) == (10, "timeout", "a'")
    else:
        assert (done.code, scene.calls()) == (0, ["a", "p", "c"])
        told = [each["reason"] for each in scene.do("outbox", "list", "--all").json["items"]]
        assert "run_timeout" in told
    check_all(scene)


@pytest.mark.parametrize("place", WAITS_AT)
def test_x03_a_terminate_around_the_pivot(place: str, scene: Scene) -> None:
    """E22: the call settles or is ended, nothing is undone, and what is left is listed."""
    running = _held(scene, place)
    ending = scene.start("terminate", scene.latest())
    scene.wait_for(lambda: scene.of("operator"))
    _open(scene)
    assert ending.wait().code == 0
    ended = running.wait()
    assert ended.code == 13
    assert not any(call.endswith("'") for call in scene.calls())
    left = {each["step"] for each in ended.run["not_undone"]}
    assert left >= {line["step"] for line in scene.ledger("effect")}
    check_all(scene)


def test_x05_behind_a_pivot_a_step_must_be_safe_to_repeat(scene: Scene) -> None:
    """F4: found at load, also between two pivots."""
    steps = [step("a"), _pivot("p"), {**step("b", tool="probe.once"), "compensate": None}, _pivot("q"), _behind("c")]
    del steps[2]["compensate"]
    scene.saga("x", steps)
    refused = scene.do("run", "x")
    assert refused.code == 3
    assert "probe.once" in refused.err


def test_x05_several_pivots_and_a_rollback_behind_the_first(scene: Scene) -> None:
    """E13, E22: stuck, as B is behind P; `--past-pivot` undoes P, which can be undone, and A; B had no effect."""
    p = step("p", pivot=True)
    scene.saga("x", [step("a"), p, _behind("b", "reject no"), _pivot("q"), _behind("c")])
    stuck = scene.do("run", "x")
    assert (stuck.code, stuck.run["cause"]) == (11, "forward_stuck")
    run = scene.latest()
    assert scene.do("rollback", run, "--yes").code == 6
    assert scene.do("rollback", run, "--past-pivot", "--yes").code == 0
    assert scene.calls() == ["a", "p", "b", "p'", "a'"]
    check_all(scene)


@pytest.mark.parametrize("direction", ["action", "compensation"])
@pytest.mark.parametrize("tool", ["probe.do", "probe.asked"])
def test_x07_a_claim_without_an_effect_blocks_nothing(tool: str, direction: str, scene: Scene) -> None:
    """E4, E9: the intent is what claims; killed right behind it, in both directions: settled with the same key."""
    last = step("b", "reject no" if direction == "compensation" else "ok", retry=tries(2))
    scene.saga("x", [step("a", tool=tool, retry=tries(2), compensate={"retry": tries(2)}), last])
    order = {"at": "after_intent", "step": "a", "direction": direction, "signal": KILL}
    assert scene.do("run", "x", hooks={"signal": order}).code == -KILL
    assert scene.do("resume", scene.latest()).code == (0 if direction == "action" else 10)
    mine = [line for line in scene.ledger("begin") if line["direction"] == direction and line["step"] == "a"]
    assert [line["attempt"] for line in mine] == [2]
    check_all(scene)


def _answers(done: Done) -> tuple[int, str | None]:
    return done.code, done.run["cause"]


@pytest.mark.parametrize("way", ["mended", "abandoned"])
def test_x09_what_somebody_else_has_changed_is_not_undone_blindly(way: str, scene: Scene) -> None:
    """E12, E23: the undo compares what it finds and rejects: both are shown, and a person decides with a reason.

    There is no fingerprint in the engine: a tool compares, as `git.push` does. What would be `--force` is a decision
    on the dead letter.
    """
    scene.saga("x", [step("a", "ok", "mended restored"), step("b", "reject no")])
    stuck = scene.do("run", "x")
    assert _answers(stuck) == (11, "compensation_failed")
    assert "restored is broken" in scene.do("dlq", "show", scene.latest()).out
    if way == "mended":
        (scene.path / "restored").touch()
        assert scene.do("dlq", "retry", scene.latest()).code == 10
    else:
        ended = scene.do("dlq", "resolve", scene.latest(), "--abandon")
        assert ended.code == 13
        assert [left["step"] for left in ended.run["not_undone"]] == ["a"]
    check_all(scene)
