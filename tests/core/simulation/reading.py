"""The judge reads the log: record by record, with its own idea of what may follow what.

This is a second, independent telling of the rules, as checks and not as decisions: it never says what should happen
next, only whether what happened was allowed.
"""

from __future__ import annotations

from typing import Any

from sagactl.core.canonical import digest
from tests.core.simulation.evidence import DAY_MS, GRACE_MS, Evidence, Findings, Known, Op, Plain, other, spell


class Reading:
    """All that the log tells, and what is wrong with it."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.findings = Findings()
        self.known: dict[Op, Known] = {}
        self.skipped: set[str] = set()
        self.items: dict[str, int] = {}
        self.decided: set[str] = set()
        self.refused_steps: set[str] = set()
        self.fence = 0
        self.seq = 0
        self.turned_at: int | None = None
        """The record that turned the run backward."""
        self.turn_cause: str | None = None
        self.pivot_passed = False
        self.may_go_past_pivot = False
        self.ended: Plain | None = None
        self.stuck = False
        self.stuck_ms = 0
        self.answers: dict[str, str] = {}
        self.accepted: list[tuple[int, Plain]] = []
        self.dead_ever: set[Op] = set()
        self.abandoned: set[Op] = set()
        self.settled_by_hand: set[Op] = set()
        self.keys: dict[str, Op] = {}
        self.run_deadline: int | None = None
        self.unapproved: dict[str, Plain] = {}
        """Steps that wait for a person, or were denied."""
        self.is_paused = False
        self.held_at_ms: int | None = None
        """Since when the run is paused or stuck, so that the time to answer stands still."""
        self.read()

    def read(self) -> None:
        """Read all records."""
        for record, writer in zip(self.evidence.records, self.evidence.writers, strict=True):
            self.read_one(record, writer)

    def read_one(self, record: Plain, writer: int) -> None:
        """Read the next record, which was written under the fence *writer*."""
        self.seq += 1
        kind = record["type"]
        if kind == "driver_claimed":
            self._check(record["fence"] > self.fence, "C1", "a fence does not grow")
            self.fence = record["fence"]
        self._check(
            writer == self.fence or self.seq == 1, "C1", f"written under fence {writer}, the run's is {self.fence}"
        )
        self._check((self.seq == 1) == (kind == "run_created"), "L5", "a log begins with run created, once")
        if self.ended is not None:
            self._check(kind in {"operator", "driver_claimed"}, "L5", f"{kind} after the end")
        if self.stuck:
            self._check(kind in {"operator", "driver_claimed"}, "L5", f"{kind} while stuck")
        getattr(self, f"_read_{kind}")(record)

    def _check(self, condition: object, rule: str, message: str) -> None:
        self.findings.check(condition, f"{rule}: record {self.seq}: {message}")

    def of(self, op: Op) -> Known:
        """Return what is known of an operation."""
        return self.known.setdefault(op, Known(op))

    def actions(self, step_id: str) -> list[Known]:
        """Return the touched actions of a step."""
        return [known for op, known in self.known.items() if op[0] == step_id and op[2] == "action"]

    # -- the run --------------------------------------------------------------------------------------------------

    def _read_run_created(self, record: Plain) -> None:
        self.run_deadline = record["deadline_ms"]

    def _read_driver_claimed(self, record: Plain) -> None:
        for known in self.known.values():
            if not known.is_open and not known.is_probed:
                continue
            if not record["calls_ended"] and known.is_open:
                known.late_until_ms = max(known.late_until_ms, known.deadline_ms + GRACE_MS)
            known.doubt |= known.is_open
            known.last = {"kind": "lost"}
            known.is_open = known.is_probed = False
            known.changed_at_ms = record["at_ms"]

    def _read_step_decided(self, record: Plain) -> None:
        step = record["step"]
        self._check(step not in self.decided, "F8", f"{step} is decided twice")
        self._check(self.turned_at is None, "S9", f"{step} is decided after the rollback began")
        self._check(self._needs_met(step), "F7", f"{step} is decided before its needs are met")
        self.decided.add(step)
        if not record["runs"]:
            self.skipped.add(step)
            self.pivot_passed |= self.evidence.steps[step]["class"] == "pivot"
            return
        if record["items"] is not None:
            self.items[step] = len(record["items"])
        self._read_approval(step, record)

    def _read_approval(self, step: str, record: Plain) -> None:
        approval = self.evidence.steps[step]["approval"]
        if record["approval"] is not None:
            self._check(approval is not None, "E22", f"{step} asks a person, and the saga doesn't say so")
            self.unapproved[step] = record
        elif approval is not None and approval["required"] is None:
            self._check(record["items"] in ((), []), "E22", f"{step} asks nobody")

    def _needs_met(self, step: str) -> bool:
        return all(self.is_finished(need) for need in self.evidence.steps[step]["needs"])

    def is_finished(self, step: str) -> bool:
        """Tell whether a step is done as a whole."""
        if step in self.skipped:
            return True
        if self.evidence.steps[step]["foreach"] is None or step in self.refused_steps:
            known = self.known.get((step, None, "action"))
            return known is not None and (known.is_done or known.is_closed)
        if step not in self.items:
            return False
        items = [self.known.get((step, item, "action")) for item in range(self.items[step])]
        return all(known is not None and (known.is_done or known.is_closed) for known in items)

    def _read_ended(self, record: Plain) -> None:
        self._check(not self._open(), "L5", "the run ends with a call under way")
        self.ended = record
        self.stuck = False

    def _open(self) -> list[Known]:
        return [known for known in self.known.values() if known.is_open or known.is_probed]

    # -- calls ----------------------------------------------------------------------------------------------------

    def _read_intent(self, record: Plain) -> None:
        op: Op = record["operation"]
        known = self.of(op)
        name = spell(op)
        repeated = known.is_pending
        attempt, asking = record["attempt"], record["asking"]
        self._check(record["fence"] == self.fence, "C1", f"{name}: an intent under fence {record['fence']}")
        self._check(not known.is_open and not known.is_probed, "S4", f"{name}: called while a call is under way")
        self._check((attempt, asking) not in known.intents, "C2", f"{name}: attempt {attempt} twice")
        self._check(attempt == known.attempts + (not repeated), "L5", f"{name}: attempt {attempt} out of turn")
        self._check(self.keys.setdefault(record["key"], op) == op, "S3", f"{name}: the key belongs to another")
        self._check(not known.keys or record["key"] in known.keys, "S3", f"{name}: a new key")
        is_first = known.attempts == 0
        self._check((record["arguments"] is None) != is_first, "E20", f"{name}: arguments stand in the first intent")
        self._check(record["at_ms"] >= known.late_until_ms, "E9", f"{name}: called while an old call may land")
        self._check(not self.is_paused, "E22", f"{name}: called while the run is paused")
        self._check(not known.is_done, "L5", f"{name}: called after it succeeded")
        if op[2] == "action":
            self._check_action(known, is_first=is_first)
        else:
            self._check_undo(known, record, is_first=is_first)
        if is_first:
            known.first_seq, known.first_at_ms = self.seq, record["at_ms"]
        elif not known.is_ordered:
            self._check_repeat(known, record)
        if not repeated:
            known.in_budget += 1
        limit = self.evidence.call_of(op)["retry"]["max_attempts"]
        self._check(known.in_budget <= limit, "E5", f"{name}: attempt {known.in_budget} of {limit}")
        self._check_deadline(op, record)
        known.keys.add(record["key"])
        known.intents.add((attempt, asking))
        known.attempts, known.askings, known.deadline_ms = attempt, asking, record["deadline_ms"]
        known.is_open, known.timer, known.has_given_up = True, None, False
        known.is_pending = known.is_final = known.is_ordered = known.is_expired = False

    def _check_deadline(self, op: Op, record: Plain) -> None:
        call = self.evidence.call_of(op)
        longest = record["at_ms"] + call["start_to_close_ms"]
        self._check(record["deadline_ms"] <= longest, "E14", f"{spell(op)}: a deadline beyond start_to_close")
        is_cut = record["deadline_ms"] < longest
        is_own = call["schedule_to_close_ms"] is not None
        run_counts = (
            self.run_deadline is not None
            and op[2] == "action"
            and self.evidence.steps[op[0]]["class"] not in {"pivot", "retriable"}
        )
        self._check(not is_cut or is_own or run_counts, "E12", f"{spell(op)}: its time is cut short")

    def _check_action(self, known: Known, *, is_first: bool) -> None:
        step_id, item, _ = known.op
        name = spell(known.op)
        self._check(step_id not in self.unapproved, "E22", f"{name}: called before a person agreed")
        self._check(self.turned_at is None, "S9", f"{name}: called after the rollback began")
        self._check(step_id not in self.skipped, "F8", f"{name}: called though skipped")
        if is_first:
            self._check(self._needs_met(step_id), "F7", f"{name}: called before its needs are met")
        if item is None:
            return
        touched = [each for each in self.actions(step_id) if each.is_touched or each.is_refused]
        if is_first and not known.is_refused:
            self._check(len(touched) == item, "F9", f"{name}: items start in list order")
        at_work = [each for each in touched if not (each.is_done or each.is_closed or each.is_dead)]
        limit = self.evidence.steps[step_id]["concurrency"]
        self._check(len([each for each in at_work if each is not known]) < limit, "F9", f"{name}: over concurrency")

    def _check_undo(self, known: Known, record: Plain, *, is_first: bool) -> None:
        action = self.of(other(known.op))
        name = spell(known.op)
        step = self.evidence.steps[known.op[0]]
        policy = step["compensate_failed"]
        self._check(action.is_touched, "S8", f"{name}: its action never had an intent")
        self._check(known.op[0] not in self.skipped, "S8", f"{name}: a skipped step is undone")
        self._check(self.turned_at is not None, "S9", f"{name}: undone on the way forward")
        self._check(step["class"] != "read_only", "S8", f"{name}: nothing to undo")
        self._check(not self.pivot_passed or self.may_go_past_pivot, "S9", f"{name}: undone after the pivot")
        self._check(
            action.is_done or action.doubt or policy == "always", "S8", f"{name}: cleanly failed, yet compensated"
        )
        late_safe = self.evidence.tool_of(action.op)["late_safe"]
        self._check(late_safe or record["at_ms"] >= action.late_until_ms, "E9", f"{name}: an old call may still land")
        if action.doubt and not action.is_done:
            has_probe = self.evidence.tool_of(action.op)["probe"] is not None
            self._check(not has_probe or action.probes_ever, "E7", f"{name}: in doubt, and never probed")
            knows = self.evidence.tool_of(known.op)["null_safe"] or policy == "always"
            self._check(knows, "E7", f"{name}: called without output though not null safe")
            kept_ms = self.evidence.tool_of(action.op)["key_retention_ms"]
            until_ms = None if kept_ms is None else action.first_at_ms + kept_ms
            is_found = until_ms is None or (record["at_ms"] < until_ms and record["deadline_ms"] <= until_ms)
            self._check(is_found, "E7", f"{name}: looks by a key that may be forgotten")
        open_undos = [each for each in self._open() if each is not known]
        limit = self.evidence.saga["compensation_concurrency"]
        self._check(len(open_undos) < limit, "E11", f"{name}: over compensation_concurrency")
        if is_first:
            self._check_undo_order(known)

    def _check_undo_order(self, undo: Known) -> None:
        step_id, _, _ = undo.op
        for descendant in self.evidence.descendants[step_id]:
            for action in self.actions(descendant):
                settled = not self.needs_undo(action)
                self._check(settled, "S7", f"{spell(undo.op)} before that of {spell(action.op)}, which needed it")
        mine = self.of(other(undo.op))
        for action in self.actions(step_id):
            if action.first_seq > mine.first_seq and self.needs_undo(action):
                begun = self.of(other(action.op))
                self._check(
                    begun.is_touched or begun.is_dead or begun.op in self.dead_ever,
                    "F9",
                    f"{spell(undo.op)} before {spell(begun.op)}, which was called later",
                )

    def needs_undo(self, action: Known) -> bool:
        """Tell whether by the log something is still to be done about a touched action on the way back."""
        step = self.evidence.steps[action.op[0]]
        undo = self.known.get(other(action.op))
        if undo is not None and (undo.is_done or undo.is_closed):
            return False
        if not action.is_touched or step["class"] == "read_only":
            return False
        if not (action.may_have_effect or step["compensate_failed"] == "always"):
            return False
        return not self.is_left(action)

    def is_left(self, action: Known) -> bool:
        """Tell whether the saga itself says that the effect stays."""
        step = self.evidence.steps[action.op[0]]
        return step["compensation"] is None or (step["compensate_failed"] == "never" and not action.is_done)

    def _check_repeat(self, known: Known, record: Plain) -> None:
        name = spell(known.op)
        call, tool = self.evidence.call_of(known.op), self.evidence.tool_of(known.op)
        self._check(not known.is_final, "E5", f"{name}: called again after a final answer")
        if known.timer is not None:
            self._check(record["at_ms"] >= known.timer["due_ms"], "V5", f"{name}: called before its timer")
        else:
            self._check(condition=False, rule="E5", message=f"{name}: called again without a delay")
        if known.doubt and not known.is_pending:
            self._check(call["on_unknown"] == "retry", "E6", f"{name}: a blind retry")
            retention = tool["key_retention_ms"]
            age = record["at_ms"] - known.first_at_ms
            self._check(retention is None or age < retention, "E6", f"{name}: retried past its key_retention")
            until_ms = None if retention is None else known.first_at_ms + retention
            is_over = until_ms is None or record["deadline_ms"] <= until_ms
            self._check(is_over, "E6", f"{name}: a retry that may land after its key_retention")

    def _read_outcome(self, record: Plain) -> None:
        known = self.of(record["operation"])
        name = spell(known.op)
        self._check(known.is_open and record["attempt"] == known.attempts, "L5", f"{name}: an answer to no call")
        known.is_open = False
        known.last, known.changed_at_ms = record, record["at_ms"]
        kind = record["kind"]
        failure = record["failure"]
        call = self.evidence.call_of(known.op)
        if kind == "pending" and call["schedule_to_close_ms"] is None:
            kind = "unknown"
        named = failure is not None and failure["type"] in call["retry"]["non_retryable_errors"]
        known.is_pending = kind == "pending"
        known.doubt = kind != "succeeded" and (known.doubt or kind == "unknown")
        known.is_done = kind == "succeeded"
        known.is_final = kind == "rejected" or (named and kind != "pending")
        if known.is_done:
            self._note_done(known)
            if known.op[2] == "action":
                undo = self.known.get(other(known.op))
                self._check(undo is None or not undo.is_touched, "E9", f"{name}: succeeds after its undo began")

    def _note_done(self, known: Known) -> None:
        is_pivot = self.evidence.steps[known.op[0]]["class"] == "pivot"
        self.pivot_passed |= is_pivot and known.op[2] == "action"

    def _read_probe(self, record: Plain) -> None:
        known = self.of(record["operation"])
        name = spell(known.op)
        if record["answer"] is None:
            self._check(known.doubt, "E6", f"{name}: probed though not in doubt")
            self._check(not self.is_paused, "E22", f"{name}: probed while the run is paused")
            self._check(not known.is_open and not known.is_probed, "S4", f"{name}: probed during a call")
            self._check(record["fence"] == self.fence, "C1", f"{name}: a probe under fence {record['fence']}")
            self._check(record["at_ms"] >= known.late_until_ms, "E9", f"{name}: probed while an old call may land")
            if known.timer is not None:
                self._check(record["at_ms"] >= known.timer["due_ms"], "V5", f"{name}: probed before its timer")
            known.timer = None
            known.is_probed, known.deadline_ms = True, record["deadline_ms"]
            known.probes += 1
            known.probes_ever += 1
            self._check(known.probes <= 4 or self.turned_at is not None, "E6", f"{name}: {known.probes} probes")
            return
        self._check(known.is_probed, "L5", f"{name}: an answer to no probe")
        known.is_probed, known.last, known.changed_at_ms = False, {"kind": record["answer"]}, record["at_ms"]
        if record["answer"] == "done":
            known.doubt, known.is_done = False, True
            self._note_done(known)
        elif record["answer"] == "not_done":
            known.doubt, known.probes = False, 0

    # -- waiting --------------------------------------------------------------------------------------------------

    def _read_timer(self, record: Plain) -> None:
        known = self.of(record["operation"])
        name = spell(known.op)
        delay = record["due_ms"] - record["at_ms"]
        self._check(known.timer is None, "E5", f"{name}: its delay is drawn twice")
        self._check(not known.is_open and not known.is_probed, "L5", f"{name}: waits during a call")
        floor, ceiling = self._delay_range(known, record["kind"])
        call = self.evidence.call_of(known.op)
        is_clamped = call["schedule_to_close_ms"] is not None and delay < floor
        self._check(delay >= floor or is_clamped, "E5", f"{name}: waits {delay} ms, at least {floor}")
        held = max(0, known.late_until_ms - known.changed_at_ms)
        self._check(delay <= max(ceiling, held), "E5", f"{name}: waits {delay} ms, at most {ceiling}")
        is_held = record["due_ms"] >= known.late_until_ms
        self._check(is_held, "E9", f"{name}: goes on while a call may land")
        known.timer = record

    def _delay_range(self, known: Known, kind: str) -> tuple[int, int]:
        last: Any = known.last or {}
        if kind == "poll":
            exact = min(max(last.get("after_ms") or 0, 100), DAY_MS)
            return exact, exact
        if kind == "probe":
            return 0, 10_000
        if last.get("kind") in {"unavailable", "unknown"} and last.get("after_ms") is not None:
            exact = min(max(last["after_ms"], 0), DAY_MS)
            return exact, exact
        if known.in_budget == 0:
            return 0, 0  # a person ordered a retry, and a probe has only made sure that it isn't done
        retry = self.evidence.call_of(known.op)["retry"]
        grown = retry["initial_interval_ms"] * (retry["backoff_coefficient_percent"] / 100) ** (known.in_budget - 1)
        ceiling = min(int(grown), retry["max_interval_ms"])
        return (ceiling, ceiling) if retry["jitter"] == "none" else (0, ceiling)

    # -- decisions ------------------------------------------------------------------------------------------------

    def _read_decision(self, record: Plain) -> None:
        getattr(self, f"_decide_{record['kind']}")(record)

    def _decide_rollback(self, record: Plain) -> None:
        self._check(not self._open(), "E10", "a rollback while calls are under way")
        self._check(not self.pivot_passed or self.may_go_past_pivot, "S9", "a rollback behind the pivot")
        for known in self.known.values():
            is_pivot = known.op[2] == "action" and self.evidence.steps[known.op[0]]["class"] == "pivot"
            if is_pivot and known.doubt and not self.may_go_past_pivot:
                self._check(condition=False, rule="S9", message="a rollback while the pivot is in doubt")
            known.doubt |= known.is_pending and known.op[2] == "action"
            known.is_pending = False
            known.timer = None
            known.probes = 0
            known.is_dead = False
        if record["cause"] == "step_failed":
            at_ms = record["at_ms"]
            failed = [each for each in self.known.values() if each.op[2] == "action" and self.has_given_up(each, at_ms)]
            self._check(failed, "E5", "a rollback though no step had used up its policy")
        self.turned_at, self.turn_cause = self.seq, record["cause"]

    def has_given_up(self, known: Known, at_ms: int) -> bool:
        """Tell whether the policy of an operation allows no other try."""
        call = self.evidence.call_of(known.op)
        limit_ms = call["schedule_to_close_ms"]
        if limit_ms is not None and known.is_touched and at_ms >= known.first_at_ms + limit_ms:
            return True
        if known.is_refused or known.is_final or known.is_expired or known.op in self.settled_by_hand:
            return True
        if known.in_budget >= call["retry"]["max_attempts"]:
            return True
        return known.doubt and not known.is_done

    def _decide_refused(self, record: Plain) -> None:
        op: Op = record["operation"] or (record["step"], None, "action")
        known = self.of(op)
        self._check(not known.is_touched, "E21", f"{spell(op)}: refused after an intent")
        if record["operation"] is None:
            self.refused_steps.add(op[0])
        known.is_refused = True

    def _decide_expired(self, record: Plain) -> None:
        if record["step"] is not None:
            asked = self.unapproved.get(record["step"])
            late = asked is not None and asked["until_ms"] is not None and record["at_ms"] >= asked["until_ms"]
            self._check(late, "E22", f"{record['step']}: a person still has time")
            self._deny(record["step"])
            return
        if record["operation"] is None:
            late = self.run_deadline is not None and record["at_ms"] >= self.run_deadline
            self._check(late and not self.pivot_passed, "E14", "the run's time is not over")
            return
        known = self.of(record["operation"])
        known.doubt |= known.is_pending
        known.is_pending, known.is_expired, known.timer = False, True, None
        known.changed_at_ms = record["at_ms"]

    def _decide_dead_letter(self, record: Plain) -> None:
        known = self.of(record["operation"])
        action = self.of(other(known.op)) if known.op[2] == "compensation" else known
        unknowable = known.op[2] == "compensation" and not known.is_touched and action.doubt
        self._check(
            self.has_given_up(known, record["at_ms"]) or unknowable,
            "E5",
            f"{spell(known.op)}: a dead letter with tries left",
        )
        self._check(not known.is_dead, "L5", f"{spell(known.op)}: a second dead letter")
        known.is_dead = True
        self.dead_ever.add(known.op)

    def _decide_pivot_passed(self, record: Plain) -> None:
        self._check(self.pivot_passed, "E13", "the pivot is not passed")

    def _decide_stuck(self, record: Plain) -> None:
        self._check(any(known.is_dead for known in self.known.values()), "V1", "stuck without a dead letter")
        self._check(not self._open(), "V1", "stuck while a call is under way")
        self.stuck = True
        self._note_hold(record["at_ms"])

    def _decide_alert(self, record: Plain) -> None:
        self._check(self.ended is None, "L5", "an alert after the end")

    def _decide_recovered(self, record: Plain) -> None:
        self._check(self.ended is None, "L5", "a recovery after the end")

    # -- people ---------------------------------------------------------------------------------------------------

    def _read_operator(self, record: Plain) -> None:
        request, disposition = record["request"], record["disposition"]
        before = self.answers.get(request["id"])
        self._check(before in {None, "deferred"}, "E22", f"{request['id']} is answered twice")
        self.answers[request["id"]] = disposition
        if disposition == "void":
            self._check(self.pivot_passed or self._is_ending(), "E13", f"{request['id']} is void too early")
        if disposition != "accepted":
            return
        self.accepted.append((self.seq, request))
        verb = request["verb"]
        self.stuck = self.stuck and verb == "rebind"
        self.is_paused = verb == "pause" or (
            self.is_paused and verb in {"approve", "deny", "retry", "resolve", "rebind"}
        )
        self._note_hold(record["at_ms"])
        if verb in {"approve", "deny"}:
            self._read_answer(request)
        elif verb in {"retry", "resolve"}:
            if verb == "retry" and not request["reason"]:
                self._check_order(request["operation"], record["at_ms"])
            self._settle_letter(request)
        elif verb == "rebind":
            self._renew_approvals(request["digest"])
        elif verb == "rollback":
            self.may_go_past_pivot |= request["past_pivot"] and bool(request["reason"])
        if verb in {"cancel", "rollback"} and self.turned_at is None:
            self._check(not self.pivot_passed or self.may_go_past_pivot, "S9", f"{verb} accepted behind the pivot")
        if self.ended is not None and verb in {"cancel", "rollback"}:
            self.ended = None
            self._begin_again()

    def _check_order(self, op: Op, at_ms: int) -> None:
        """E23: nobody orders a second effect without saying why."""
        known, call, tool = self.of(op), self.evidence.call_of(op), self.evidence.tool_of(op)
        kept_ms, is_probed = tool["key_retention_ms"], tool["probe"] is not None or call["on_unknown"] == "probe"
        if not known.doubt or is_probed:
            return
        self._check(tool["idempotent"], "E23", f"{spell(op)}: ordered without a key, a probe or a reason")
        if kept_ms is None:
            return
        is_over = at_ms + call["start_to_close_ms"] <= known.first_at_ms + kept_ms
        self._check(is_over, "E23", f"{spell(op)}: ordered under a key that may be forgotten, without a reason")

    def _note_hold(self, at_ms: int) -> None:
        """E22: what a pause, or the time in which the run was stuck, took of the time to answer is given back."""
        is_held = self.is_paused or self.stuck
        if is_held and self.held_at_ms is None:
            self.held_at_ms = at_ms
        elif not is_held and self.held_at_ms is not None:
            taken_ms, self.held_at_ms = at_ms - self.held_at_ms, None
            for step, asked in self.unapproved.items():
                if asked["until_ms"] is not None:
                    self.unapproved[step] = {**asked, "until_ms": asked["until_ms"] + taken_ms}

    def _renew_approvals(self, definition: str) -> None:
        """E22: what is asked for is bound to the definition that the run has now."""
        for step, asked in self.unapproved.items():
            approval = digest([definition, step, list(asked["arguments"])])
            self.unapproved[step] = {**asked, "approval": approval}

    def _read_answer(self, request: Plain) -> None:
        step = request["operation"][0]
        asked = self.unapproved.get(step)
        self._check(asked is not None, "E22", f"{request['id']}: {step} waits for nobody")
        if asked is None:
            return
        if request["verb"] == "approve":
            self._check(request["digest"] == asked["approval"], "E22", f"{request['id']}: approves something else")
            del self.unapproved[step]
            self.refused_steps.discard(step)
            if step in self.items:
                self.known.pop((step, None, "action"), None)  # what was denied before was the step as a whole
        else:
            self._deny(step)

    def _deny(self, step: str) -> None:
        self.of((step, None, "action")).is_refused = True
        self.refused_steps.add(step)

    def _is_ending(self) -> bool:
        return any(request["verb"] == "terminate" for _, request in self.accepted)

    def _begin_again(self) -> None:
        """A rollback of a run that had ended: what was given up gets a fresh budget."""
        for known in self.known.values():
            was_denied = known.is_closed and known.op not in self.abandoned
            if known.op[2] == "compensation" and not known.is_done and not was_denied:
                known.in_budget, known.is_ordered = 0, True
                known.is_closed = known.is_dead = known.is_final = known.is_expired = False
                known.timer = None
        self.abandoned.clear()

    def _settle_letter(self, request: Plain) -> None:
        op: Op = request["operation"]
        known = self.of(op)
        self._check(known.is_dead, "E23", f"{spell(op)} has no open dead letter")
        known.is_dead = False
        known.in_budget, known.is_ordered, known.probes, known.timer = 0, True, 0, None
        known.is_expired = known.is_final = False
        how = request["resolution"] if request["verb"] == "resolve" else None
        if how is None:
            known.is_refused = False
            return
        self.settled_by_hand.add(op)
        known.doubt = known.doubt and how == "skip"
        if how == "done":
            known.is_done = True
            self._note_done(known)
        elif how == "not_done":
            known.is_closed = op[2] == "compensation"
        else:
            known.is_closed = True
            if how == "abandon":
                self.abandoned.add(op)
