"""The situations in which a view must make sense, each a run that was really driven there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sagactl.core.answer import ProbeReply
from sagactl.core.records import Direction, Failure, Operation, ProbeAnswer, Request, Resolution, Verb
from sagactl.core.saga import Approval, OnUnknown, Saga
from sagactl.engine.ending import Ending, Why
from tests.cli.views.scripted import Lost, Script, Stage, ok, onboarding, rejected, step, unavailable, unknown

DECLINED = rejected("card_declined", "402 the card was declined")
BUSY = unavailable("bank_busy", "503 the bank is busy")
CANNOT_TELL = ProbeReply(ProbeAnswer.CANNOT_TELL, failure=Failure("cannot_tell", "the bank's own records disagree"))


def succeeded() -> Stage:
    """All went well at the first try."""
    return Stage(onboarding(), key="ana@example.com").drive()


def retried() -> Stage:
    """The bank was busy twice."""
    return Stage(onboarding(), {"deposit": [BUSY, BUSY, ok(charge_id="ch_8f2", amount=5000)]}).drive()


def rolled_back() -> Stage:
    """The second server can't be had, so all is undone."""
    script: Script = {"servers[1]": [rejected("quota", "429 no more machines in this zone")]}
    return Stage(onboarding(), script).drive()


def nothing_to_undo() -> Stage:
    """The very first step fails."""
    return Stage(onboarding(), {"lead": [rejected("exists", "the lead exists already")]}).drive()


def left_behind() -> Stage:
    """Rolled back, but a mail can't be unsent."""
    steps = onboarding().steps
    notice = step("notice", "mail.send", {"to": "${{ input.email }}"}, none="a mail can't be unsent", line=24)
    deposit = replace(steps[1], needs=("notice",))
    saga = onboarding(steps=(steps[0], replace(notice, needs=("lead",)), deposit, *steps[2:]))
    return Stage(saga, {"deposit": [DECLINED]}).drive()


def cancelled() -> Stage:
    """An operator changed her mind while the deposit was under way."""
    stage = Stage(onboarding(), {"deposit": [BUSY]}, waits_for_timers=False).drive()
    stage.waits_for_timers = True
    return stage.ask(Request("r1", Verb.CANCEL, "ana", "wrong customer")).drive()


def undo_failed() -> Stage:
    """The refund is refused, and what came before waits for it."""
    script: Script = {
        "servers[1]": [rejected("quota", "429 no more machines in this zone")],
        "undo deposit": [rejected("refund_refused", "ch_8f2 can't be refunded to this card")],
    }
    return Stage(onboarding(), script).drive()


def undo_used_up() -> Stage:
    """The CRM stays away, so the undo of the lead uses up its attempts."""
    script = {"deposit": [DECLINED], "undo lead": [unavailable("crm_down", "503 the CRM is away")]}
    return Stage(onboarding(), script).drive()


def in_doubt() -> Stage:
    """The charge was lost, and its probe can't tell."""
    lost = unknown("ConnectionError", "the bank hung up before it answered (billing.py:74)")
    return Stage(onboarding(), {"deposit": [lost], "probe deposit": [CANNOT_TELL]}).drive()


def wire_saga() -> Saga:
    """A saga with a call that is neither idempotent nor probed."""
    steps = onboarding().steps
    wire = step("wire", "bank.wire", {"amount": "${{ input.amount }}"}, undo="billing.refund", needs=("lead",),
                line=26, on_unknown=OnUnknown.ASK, undo_arguments={"charge_id": "${{ output.charge_id }}"})  # fmt: skip
    return onboarding(steps=(steps[0], wire))


def crashed_in_doubt() -> Stage:
    """The process died during a call that must not be made twice."""
    return Stage(wire_saga(), {"wire": [Lost()]}).drive().crash().drive()


def late_call() -> Stage:
    """A driver on another machine was lost during the deposit, and its run was cancelled: the call may still land."""
    stage = Stage(onboarding(), {"deposit": [Lost()]}, waits_for_timers=False).drive()
    stage.crash(after_ms=16_000, calls_ended=False)
    return stage.ask(Request("r1", Verb.CANCEL, "ana", "the customer left")).drive()


def undo_in_doubt() -> Stage:
    """Cancelled while nobody knows whether the wire went out."""
    stage = crashed_in_doubt()
    return stage.ask(Request("r1", Verb.ROLLBACK, "ana", "the customer left")).drive()


def pivot_in_doubt() -> Stage:
    """Nobody knows whether the contract is signed."""
    lost = unknown("timeout", "no answer within 30s")
    steps = onboarding().steps
    contract = replace(steps[3], action=replace(steps[3].action, on_unknown=OnUnknown.ASK))
    return Stage(onboarding(steps=(*steps[:3], contract, steps[4])), {"contract": [lost]}).drive()


def forward_stuck() -> Stage:
    """Behind the pivot the mail server refuses."""
    return Stage(onboarding(), {"welcome": [rejected("bad_address", "550 no such mailbox")]}).drive()


def waiting_for_timer() -> Stage:
    """The bank asks for patience."""
    script = {"deposit": [unavailable("bank_busy", "503 the bank is busy", after_ms=12_000)]}
    return Stage(onboarding(), script, waits_for_timers=False).drive()


def waiting_for_tool() -> Stage:
    """The plugin of the bank is gone."""
    from sagactl.core.records import Cause, Decision, DecisionKind

    stage = Stage(onboarding(), missing_tools=frozenset({"billing.charge"})).drive()
    failure = Failure("missing_tool", "the tool billing.charge is not here, or changed")
    stage.fold(Decision(stage.now_ms, DecisionKind.WAITING, cause=Cause.MISSING_TOOL, failure=failure))
    return stage


def waiting_for_approval() -> Stage:
    """The contract, and before it each of the servers, must be agreed to; nobody has answered yet."""
    steps = onboarding().steps
    servers = replace(steps[2], approval=Approval(by=("ana", "finance"), timeout_ms=2 * 86_400_000))
    return Stage(onboarding(steps=(*steps[:2], servers, *steps[3:])), waits_for_timers=False).drive()


def denied() -> Stage:
    """Finance said no."""
    stage = waiting_for_approval()
    servers = Operation("servers", None, Direction.ACTION)
    return stage.ask(Request("r1", Verb.DENY, "finance", "no budget", servers)).drive()


def paused() -> Stage:
    """An operator holds the run up while the bank is busy."""
    stage = Stage(onboarding(), {"deposit": [BUSY]}, waits_for_timers=False).drive()
    return stage.ask(Request("r1", Verb.PAUSE, "ana", "the bank has an outage")).drive()


def terminated() -> Stage:
    """An operator ended it with the undo of the deposit open."""
    return undo_failed().ask(Request("r1", Verb.TERMINATE, "ana", "settled by phone")).drive()


def abandoned() -> Stage:
    """An operator gave up the refund; the rest was undone."""
    refund = Operation("deposit", None, Direction.COMPENSATION)
    request = Request("r1", Verb.RESOLVE, "ana", "written off", refund, Resolution.ABANDON)
    return undo_failed().ask(request).drive()


def interrupted() -> Stage:
    """Ctrl-C during the deposit."""
    return Stage(onboarding(), {"deposit": [Lost()]}).drive()


def interrupted_backward() -> Stage:
    """Ctrl-C during a rollback."""
    script: Script = {"servers[1]": [rejected("quota", "429 no more machines in this zone")], "undo deposit": [Lost()]}
    return Stage(onboarding(), script).drive()


def hanging() -> Stage:
    """The deposit is past its time, and its call can't be ended."""
    from sagactl.core.records import Cause, Decision, DecisionKind

    stage = Stage(onboarding(), {"deposit": [Lost()]}).drive()
    stage.now_ms += 40_000
    failure = Failure("cannot_end", "deposit is past its time and has not returned")
    hung = Operation("deposit", None, Direction.ACTION)
    stage.fold(Decision(stage.now_ms, DecisionKind.WAITING, Cause.CANNOT_END, operation=hung, failure=failure))
    stage.commit()
    return stage


def resumed() -> Stage:
    """The process died during the deposit; the next one asked the probe and went on."""
    script: Script = {"deposit": [Lost()], "probe deposit": [ProbeReply(ProbeAnswer.DONE, {"charge_id": "ch_8f2"})]}
    return Stage(onboarding(), script).drive().crash().drive()


def many_items() -> Stage:
    """Forty servers, one of which needs three attempts."""
    script = {"servers[20]": [BUSY, BUSY, ok(vm_id="vm_20")]}
    names: list[object] = [f"web-{index}" for index in range(40)]
    return Stage(onboarding(), script, input={"email": "ana@example.com", "amount": 5000, "servers": names}).drive()  # type: ignore[dict-item]


def skipped() -> Stage:
    """Servers aren't wanted, and the condition of the mail is false."""
    steps = onboarding().steps
    welcome = step("welcome", "mail.send", when="${{ 1 < 0 }}", needs=("contract",), klass=steps[4].klass, line=40)
    stage = Stage(onboarding(steps=(*steps[:4], welcome)), input={"email": "a@b.example", "amount": 1, "servers": []})
    return stage.drive()


def refused() -> Stage:
    """The arguments of the deposit don't fit, so it is never called."""
    steps = onboarding().steps
    deposit = step("deposit", "billing.charge", {"refuse": "1"}, undo="billing.refund", needs=("lead",), line=26)
    return Stage(onboarding(steps=(steps[0], deposit, *steps[2:]))).drive()


SITUATIONS: dict[str, Callable[[], Stage]] = {
    each.__name__: each
    for each in (
        succeeded, retried, rolled_back, nothing_to_undo, left_behind, cancelled, undo_failed, undo_used_up, in_doubt,
        crashed_in_doubt, late_call, undo_in_doubt, pivot_in_doubt, forward_stuck, waiting_for_timer, waiting_for_tool,
        waiting_for_approval, denied, paused, terminated, abandoned, interrupted, interrupted_backward, resumed,
        many_items, skipped, refused, hanging,
    )
}  # fmt: skip


def ending_of(name: str, stage: Stage) -> Ending:
    """Return how a driver let go of the run."""
    if name.startswith("interrupted"):
        doubtful = tuple(str(operation) for operation in stage.state.in_flight)
        return stage.ending(Why.INTERRUPTED, left_in_doubt=doubtful)
    waiting = dict.fromkeys(("waiting_for_timer", "waiting_for_approval", "paused", "hanging"), Why.WAITING)
    why = {**waiting, "waiting_for_tool": Why.MISSING_TOOL}.get(name, Why.AT_REST)
    return stage.ending(why)
