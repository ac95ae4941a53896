"""What every saga log must do with alerts and events on their way out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sagactl.core.alerting import Reason, name_call
from sagactl.core.outbox import (
    DELIVERY_ATTEMPTS_MAX,
    LEASE_MS,
    MESSAGE_AGE_MS_MAX,
    Channels,
    Delivery,
    DeliveryState,
    Message,
    Seen,
)
from sagactl.core.records import (
    Cause,
    Decision,
    DecisionKind,
    Direction,
    Disposition,
    Ended,
    Operation,
    Record,
    RunStatus,
    StepDecided,
    Verb,
)
from sagactl.log.base import Log
from tests.log.samples import (
    HOLDER,
    ITEM,
    STEP,
    UNDO,
    add,
    alert,
    answered,
    approval_asked,
    batch,
    dead,
    ended,
    hanging,
    intent,
    outcome,
    returned_late,
    rollback,
    start,
    stuck,
)

ALL: Channels = {"ops": frozenset(Reason)}
NOW = 20_000


def told(log: Log) -> list[tuple[str, int, bool]]:
    """Return the messages as reason, record, and whether they are over."""
    return [(each.reason.value, each.seq, each.is_resolution) for each in log.outbox.messages(is_pending=False)]


def deliver(log: Log, channels: Channels = ALL, channel: str = "ops", now_ms: int = NOW) -> list[Message]:
    """Claim and deliver everything that is due at a channel."""
    delivered = []
    while (message := log.outbox.claim(channels, channel, now_ms)) is not None:
        log.outbox.settle(message.number, done(channel), channels, now_ms)
        delivered.append(message)
    return delivered


def done(channel: str = "ops") -> Delivery:
    """Return what is written down of a message that has arrived."""
    return Delivery(channel, DeliveryState.DELIVERED, 1, 0, delivered_at_ms=NOW)


def expired(step: str) -> Decision:
    """Return the decision that nobody has approved a step in time."""
    return Decision(9_000, DecisionKind.EXPIRED, cause=Cause.DENIED, step=step)


class OutboxContract:
    """The suite; `log` is a fixture."""

    def test_when_a_channel_has_something_to_do(self, log: Log) -> None:
        """E23: at once, when a try is due, or when what it belongs to has been said; never for what others are told."""
        channels: Channels = {"ops": frozenset({Reason.DEAD_LETTER}), "boss": frozenset({Reason.STUCK})}
        lease = start(log)
        add(log, lease, dead())
        assert [log.outbox.next_due_ms(channels, each) for each in channels] == [0, None]
        assert log.outbox.next_due_ms({"ops": frozenset({Reason.STUCK})}, "ops") == 0
        message = log.outbox.claim(channels, "ops", NOW)
        assert message is not None
        add(log, lease, answered("q"))
        assert log.outbox.next_due_ms(channels, "ops") == NOW + LEASE_MS
        log.outbox.settle(message.number, done(), channels, NOW)
        assert log.outbox.next_due_ms(channels, "ops") == 0
        assert len(deliver(log, channels)) == 1
        assert [log.outbox.next_due_ms(channels, each) for each in channels] == [None, None]

    # Which record tells whom

    @pytest.mark.parametrize(
        ("record", "reason"),
        [
            (stuck(), "stuck"),
            (dead(), "dead_letter"),
            (dead(UNDO), "dead_letter"),
            (alert(), "keeps_failing"),
            (alert(None), "run_timeout"),
            (answered("q", Verb.ROLLBACK, operation=None, disposition=Disposition.VOID), "request_void"),
        ],
    )
    def test_a_record_that_a_person_must_hear_of_is_a_message(self, log: Log, record: Record, reason: str) -> None:
        """E12, E13: the message is there with its record, under an id made of run, record and reason."""
        add(log, start(log), intent(), record)
        (message,) = log.outbox.messages()
        assert (message.id, message.alert_id) == (f"alert_run1_4_{reason}", f"alert_run1_4_{reason}")
        assert (message.run_id, message.saga, message.seq, message.reason) == ("run1", "onboarding", 4, reason)
        assert (message.created_at_ms, message.is_open, message.is_resolution) == (record.at_ms, True, False)
        assert (message.finished_at_ms, message.deliveries) == (None, ())
        assert log.verify().findings == ()

    @pytest.mark.parametrize(
        "record",
        [
            intent(),
            outcome(),
            rollback(),
            ended(),
            answered("q", Verb.ROLLBACK, operation=None),
            answered("q", Verb.ROLLBACK, operation=None, disposition=Disposition.REFUSED),
            answered("q", Verb.ROLLBACK, operation=None, disposition=Disposition.DEFERRED),
        ],
    )
    def test_other_records_tell_nobody(self, log: Log, record: Record) -> None:
        """A run that goes its way makes no message."""
        add(log, start(log), record)
        assert told(log) == []

    def test_a_reason_is_told_once_while_it_lasts(self, log: Log) -> None:
        """A run has one open alert for a reason, however many dead letters it has; another run has its own."""
        lease = start(log)
        add(log, lease, dead(), dead(ITEM), dead(UNDO), stuck())
        add(log, start(log, "run2"), dead())
        assert [(each.run_id, each.reason.value) for each in log.outbox.messages()] == [
            ("run1", "dead_letter"),
            ("run1", "stuck"),
            ("run2", "dead_letter"),
        ]

    def test_each_approval_is_an_alert_of_its_own(self, log: Log) -> None:
        """Steps wait for people one by one: who approves or denies one ends its alert, and no other's."""
        lease = start(log)
        add(log, lease, approval_asked(), approval_asked("vm"), approval_asked("mail"), StepDecided(1, "x", True))
        first = "alert_run1_3_approval_charge"
        assert [each.id for each in log.outbox.messages()] == [
            first,
            "alert_run1_4_approval_vm",
            "alert_run1_5_approval_mail",
        ]
        add(log, lease, answered("q1", Verb.APPROVE), answered("q2", Verb.DENY, operation=ITEM))
        assert [(each.seq, each.step, each.alert_id) for each in log.outbox.messages()[3:]] == [
            (7, "charge", first),
            (8, "vm", "alert_run1_4_approval_vm"),
        ]
        add(log, lease, approval_asked(), replace(expired("mail"), at_ms=9), rollback())
        assert [(each.seq, each.step) for each in log.outbox.messages() if each.is_resolution][2:] == [
            (10, "mail"),
            (11, "charge"),
        ]
        assert log.verify().findings == ()

    @pytest.mark.parametrize("operation", [STEP, ITEM, UNDO])
    def test_a_call_that_cannot_be_ended_is_told_until_it_has_returned(self, log: Log, operation: Operation) -> None:
        """E14: only a person can end its process; each call is an alert of its own, and turning back ends none."""
        name = name_call(operation)
        lease = start(log)
        add(log, lease, hanging(operation), hanging(Operation("other", 1, Direction.ACTION)), hanging(operation))
        first, second = log.outbox.messages()
        assert (first.id, first.step) == (f"alert_run1_3_cannot_end_{name.replace(' ', '_')}", name)
        assert (second.step, second.is_open) == ("other[1]", True)
        add(log, lease, rollback(), returned_late(operation))
        assert [(each.seq, each.alert_id) for each in log.outbox.messages()[2:]] == [(7, first.id)]
        add(log, lease, hanging(operation), ended(RunStatus.TERMINATED, 9_000), status=RunStatus.TERMINATED)
        assert [(each.seq, each.step) for each in log.outbox.messages()[3:]] == [(8, name), (9, "other[1]"), (9, name)]
        assert log.verify().findings == ()

    def test_a_call_whose_process_is_gone_is_told_no_more(self, log: Log) -> None:
        """E14, E17: whoever takes the run over has nothing to wait for any more."""
        lease = start(log)
        add(log, lease, hanging(), stuck())
        log.release([lease])
        log.claim("run1", holder=HOLDER)
        assert told(log)[2:] == [("cannot_end", 5, True)]
        assert [each.reason for each in log.outbox.messages() if each.is_open] == ["stuck"]
        assert log.verify().findings == ()

    def test_an_answer_ends_what_it_answers(self, log: Log) -> None:
        """E23: a run that goes on isn't stuck any more; its dead letters are over when the last is answered."""
        lease = start(log)
        add(log, lease, alert(), dead(), dead(ITEM), stuck(), answered("q1"))
        assert told(log)[3:] == [("stuck", 7, True)]
        add(log, lease, stuck(), answered("q2", operation=ITEM))
        assert told(log)[4] == ("stuck", 8, False)
        assert sorted(told(log)[5:]) == [("dead_letter", 9, True), ("keeps_failing", 9, True), ("stuck", 9, True)]
        assert not any(each.is_open for each in log.outbox.messages())
        assert log.verify().findings == ()

    def test_what_keeps_failing_no_more_is_over_at_once(self, log: Log) -> None:
        """E12: it doesn't wait for a letter to be answered, nor for the end of the run; other alerts stay."""
        lease = start(log)
        add(log, lease, alert(), alert(ITEM), dead(ITEM), Decision(7_000, DecisionKind.RECOVERED))
        assert told(log)[2:] == [("keeps_failing", 6, True)]
        assert [each.reason for each in log.outbox.messages() if each.is_open] == ["dead_letter"]
        add(log, lease, alert())
        assert told(log)[3:] == [("keeps_failing", 7, False)]
        assert log.verify().findings == ()

    @pytest.mark.parametrize("record", [rollback(7_000), ended(RunStatus.TERMINATED, 7_000)])
    def test_turning_back_and_ending_end_every_alert(self, log: Log, record: Record) -> None:
        """When a run turned back or ended nothing that was told holds any more; of a notice nobody is told so."""
        void = answered("q", Verb.ROLLBACK, operation=None, disposition=Disposition.VOID)
        status = RunStatus.TERMINATED if isinstance(record, Ended) else RunStatus.ROLLING_BACK
        add(log, start(log), alert(), alert(None), dead(), void, record, status=status)
        ends = [(reason, seq) for reason, seq, is_over in told(log) if is_over]
        assert sorted(ends) == [("dead_letter", 7), ("keeps_failing", 7), ("run_timeout", 7)]
        assert not any(each.is_open for each in log.outbox.messages())
        assert log.verify().findings == ()

    def test_a_reason_that_comes_back_is_told_again(self, log: Log) -> None:
        """After an alert is over the same reason is another alert, with another id."""
        lease = start(log)
        add(log, lease, dead(), stuck(), answered("q1"), dead(), stuck())
        assert [each.id for each in log.outbox.messages() if each.is_open] == [
            "alert_run1_6_dead_letter",
            "alert_run1_7_stuck",
        ]

    def test_a_refused_batch_leaves_no_message(self, log: Log) -> None:
        """The message is in the transaction of its record: a batch that is refused tells nobody."""
        lease = start(log)
        assert log.append([batch(lease, 9, dead())]) == [lease]
        assert told(log) == []

    # Delivery

    def test_a_message_is_claimed_by_one(self, log: Log) -> None:
        """Two deliverers at once don't both send: who claims has the message to himself for a time, then it is due."""
        add(log, start(log), dead())
        first = log.outbox.claim(ALL, "ops", NOW)
        assert first is not None
        assert first.at("ops") == Delivery("ops", DeliveryState.SENDING, 1, NOW + LEASE_MS)
        assert log.outbox.claim(ALL, "ops", NOW + LEASE_MS - 1) is None
        assert log.outbox.next_due_ms(ALL, "ops") == NOW + LEASE_MS
        again = log.outbox.claim(ALL, "ops", NOW + LEASE_MS)
        assert again is not None
        assert (again.id, again.at("ops")) == (first.id, Delivery("ops", DeliveryState.SENDING, 2, NOW + 2 * LEASE_MS))

    def test_a_delivered_message_is_done_with(self, log: Log) -> None:
        """A message is finished when every channel that is told of it has it; whoever comes late changes nothing."""
        add(log, start(log), dead())
        channels: Channels = {"ops": frozenset(Reason), "chat": frozenset(Reason), "none": frozenset({Reason.STUCK})}
        assert [each.seq for each in deliver(log, channels, "ops")] == [3]
        assert log.outbox.messages()[0].finished_at_ms is None
        assert [each.seq for each in deliver(log, channels, "chat")] == [3]
        assert log.outbox.messages() == []
        (kept,) = log.outbox.messages(is_pending=False)
        assert (kept.finished_at_ms, [each.channel for each in kept.deliveries]) == (NOW, ["chat", "ops"])
        late = Delivery("ops", DeliveryState.WAITING, 2, 99, error="timeout")
        log.outbox.settle(kept.number, late, channels, NOW)
        assert log.outbox.messages(is_pending=False) == [kept]
        assert log.outbox.next_due_ms(channels, "ops") is None

    def test_a_failed_attempt_waits_for_its_time(self, log: Log) -> None:
        """A message that couldn't be sent is claimed again when it is due, and no sooner; its error is kept."""
        add(log, start(log), dead())
        claimed = log.outbox.claim(ALL, "ops", NOW)
        assert claimed is not None
        failed = Delivery("ops", DeliveryState.WAITING, 1, NOW + 500, error="503 from the channel")
        log.outbox.settle(claimed.number, failed, ALL, NOW)
        assert log.outbox.messages()[0].at("ops") == failed
        assert (log.outbox.next_due_ms(ALL, "ops"), log.outbox.claim(ALL, "ops", NOW + 499)) == (NOW + 500, None)
        assert log.outbox.claim(ALL, "ops", NOW + 500) is not None

    def test_attempts_and_age_are_bounded(self, log: Log) -> None:
        """Delivery gives up after so many attempts, also where each of them died, and with what is too old."""
        add(log, start(log), dead())
        now_ms = NOW
        for _ in range(DELIVERY_ATTEMPTS_MAX):
            assert log.outbox.claim(ALL, "ops", now_ms) is not None
            now_ms += LEASE_MS
        assert log.outbox.claim(ALL, "ops", now_ms) is None
        (kept,) = log.outbox.messages(is_pending=False)
        assert kept.finished_at_ms == now_ms
        assert (kept.deliveries[0].state, kept.deliveries[0].error) == (
            DeliveryState.GIVEN_UP,
            "no attempt was answered",
        )
        add(log, start(log, "run2"), dead())
        assert log.outbox.claim({"new": ALL["ops"]}, "new", MESSAGE_AGE_MS_MAX + 4_000) is not None
        assert log.outbox.claim(ALL, "ops", MESSAGE_AGE_MS_MAX + 4_001) is None
        assert log.outbox.messages() == []

    def test_what_is_over_is_said_after_what_was_said(self, log: Log) -> None:
        """A channel hears that an alert is over only after the alert, and not at all if it never heard of it."""
        lease = start(log)
        add(log, lease, dead(), answered("q"))
        claimed = log.outbox.claim(ALL, "ops", NOW)
        assert claimed is not None
        assert log.outbox.claim(ALL, "ops", NOW) is None
        log.outbox.settle(claimed.number, done(), ALL, NOW)
        assert [(each.seq, each.alert_id) for each in deliver(log)] == [(4, claimed.id)]
        add(log, lease, dead())
        lost = log.outbox.claim(ALL, "ops", NOW)
        assert lost is not None
        log.outbox.settle(lost.number, Delivery("ops", DeliveryState.GIVEN_UP, 1, 0), ALL, NOW)
        add(log, lease, answered("q2"))
        assert deliver(log) == []
        assert log.outbox.messages() == []

    def test_a_stuck_run_is_told_once(self, log: Log) -> None:
        """Who is told that a run is stuck isn't told of the dead letter that made it so; others are."""
        channels: Channels = {"ops": frozenset(Reason), "letters": frozenset({Reason.DEAD_LETTER})}
        lease = start(log)
        add(log, lease, dead(), stuck())
        assert [each.reason for each in deliver(log, channels, "ops")] == [Reason.STUCK]
        assert [each.reason for each in deliver(log, channels, "letters")] == [Reason.DEAD_LETTER]
        add(log, lease, answered("q"))
        assert [each.reason for each in deliver(log, channels, "ops")] == [Reason.STUCK]
        assert [each.reason for each in deliver(log, channels, "letters")] == [Reason.DEAD_LETTER]
        assert log.outbox.messages() == []

    def test_a_channel_that_is_added_or_taken_away(self, log: Log) -> None:
        """A new channel isn't told that alerts are over of which it never heard; nothing waits for one that is gone."""
        lease = start(log)
        add(log, lease, dead())
        assert len(deliver(log)) == 1
        add(log, lease, answered("q"))
        more: Channels = {**ALL, "new": frozenset(Reason)}
        assert deliver(log, more, "new") == []
        assert log.outbox.next_due_ms(more, "new") is None
        assert len(deliver(log, more)) == 1
        assert log.outbox.messages() == []
        add(log, start(log, "run2"), dead())
        both: Channels = {**ALL, "gone": frozenset(Reason)}
        assert len(deliver(log, both)) == 1
        assert len(log.outbox.messages()) == 1
        add(log, start(log, "run3"), replace(dead(), at_ms=3 * MESSAGE_AGE_MS_MAX))
        assert len(deliver(log, now_ms=3 * MESSAGE_AGE_MS_MAX)) == 1
        assert log.outbox.messages() == []
        add(log, start(log, "run4"), dead())
        few: Channels = {"ops": frozenset({Reason.APPROVAL})}
        assert deliver(log, few) == []
        assert log.outbox.messages() == []

    def test_a_channel_that_is_down_keeps_nothing_from_others(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        """However much waits for one channel, the others are sent what they were not sent yet."""
        for module in ("sqlite_outbox", "memory_outbox"):
            monkeypatch.setattr(f"sagactl.log.{module}.PENDING_MAX", 2)
        channels: Channels = {"down": frozenset(Reason), "up": frozenset(Reason)}
        for number in range(5):
            add(log, start(log, f"run{number}"), dead())
        assert len(deliver(log, channels, "up")) == 5
        assert len(log.outbox.messages()) == 5
        assert len(deliver(log, channels, "down")) == 5
        assert log.outbox.messages() == []

    def test_messages_of_one_run(self, log: Log) -> None:
        """Messages are listed by run, and an odd name finds none."""
        add(log, start(log), dead())
        add(log, start(log, "run2"), dead())
        assert [each.run_id for each in log.outbox.messages(run_id="run2")] == ["run2"]
        assert log.outbox.messages(run_id="\ud800") == []

    # Events

    def test_events_come_in_order_and_once(self, log: Log) -> None:
        """A target sees the records of a run in order, each once it has seen the one before, and then no more."""
        lease = start(log)
        add(log, lease, intent(), outcome())
        (first,) = log.outbox.claim_events("a", NOW, records_max=3, run_ids=None)
        assert [seq for seq, _, _ in first.records] == [1, 2, 3]
        stored = list(log.read("run1"))
        assert first.records == tuple((each.seq, each.record, each.hash) for each in stored[:3])
        assert log.outbox.claim_events("a", NOW, records_max=3, run_ids=None) == []
        assert (log.outbox.interrupted("a"), log.outbox.interrupted("b")) == (["run1"], [])
        log.outbox.settle_events("a", [Seen("run1", 3)])
        assert log.outbox.interrupted("a") == []
        (second,) = log.outbox.claim_events("a", NOW, records_max=3, run_ids=["run1"])
        assert [seq for seq, _, _ in second.records] == [4]
        log.outbox.settle_events("a", [Seen("run1", 4)])
        assert log.outbox.claim_events("a", NOW, records_max=3, run_ids=None) == []
        assert log.outbox.cursors("a") == []
        assert [cursor.seq for cursor in log.outbox.cursors("b")] == [0]

    def test_a_run_is_published_by_one(self, log: Log) -> None:
        """Two deliverers at once don't both publish a run; another run and another target are free."""
        start(log)
        start(log, "run2")
        first = log.outbox.claim_events("a", NOW, records_max=2, run_ids=None)
        second = log.outbox.claim_events("a", NOW, records_max=9, run_ids=None)
        assert [page.run_id for page in (*first, *second)] == ["run1", "run2"]
        assert log.outbox.claim_events("a", NOW, records_max=9, run_ids=["run1"]) == []
        assert [page.run_id for page in log.outbox.claim_events("b", NOW, records_max=9, run_ids=None)] == [
            "run1",
            "run2",
        ]
        (late,) = log.outbox.claim_events("a", NOW + LEASE_MS, records_max=2, run_ids=None)
        assert (late.run_id, late.attempts, [seq for seq, _, _ in late.records]) == ("run1", 1, [1, 2])

    def test_a_target_that_failed_waits_where_it_is(self, log: Log) -> None:
        """A target that couldn't be reached is tried again when it is due, from the first event it has not seen."""
        add(log, start(log), intent())
        assert log.outbox.claim_events("a", NOW, records_max=9, run_ids=None) != []
        log.outbox.settle_events("a", [Seen("run1", 1, due_ms=NOW + 500, attempts=1, error="503")])
        (cursor,) = log.outbox.cursors("a")
        assert (cursor.seq, cursor.head, cursor.attempts, cursor.error) == (1, 3, 1, "503")
        assert log.outbox.claim_events("a", NOW + 499, records_max=9, run_ids=None) == []
        (page,) = log.outbox.claim_events("a", NOW + 500, records_max=9, run_ids=None)
        assert [seq for seq, _, _ in page.records] == [2, 3]
        log.outbox.settle_events("a", [Seen("run1", 3)])
        log.outbox.settle_events("a", [Seen("run1", 1)])
        assert log.outbox.cursors("a") == []

    def test_verifying_looks_at_no_delivery(self, log: Log) -> None:
        """How far messages came is no matter of the records: delivery changes nothing that `verify` compares."""
        add(log, start(log), dead(), stuck())
        deliver(log)
        assert log.outbox.claim_events("a", NOW, records_max=9, run_ids=None) != []
        assert replace(log.verify(), heads={}).findings == ()
