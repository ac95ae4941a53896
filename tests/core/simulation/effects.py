"""The judge reads the targets' ledger: what really happened, in which order, and whether the log answers for it."""

from __future__ import annotations

from collections import Counter, defaultdict

from tests.core.simulation.evidence import Evidence, Findings, Op, Plain, other, spell
from tests.core.simulation.reading import Reading


class Effects:
    """The ledger, weighed against the log."""

    def __init__(self, evidence: Evidence, reading: Reading) -> None:
        self.evidence = evidence
        self.reading = reading
        self.findings = Findings()
        self.net: Counter[tuple[str, int | None]] = Counter()
        self.applied: dict[Op, int] = Counter()
        for line in evidence.ledger:
            place = line["op"][:2]
            if line["what"] == "effect":
                self.net[place] += 1
                self.applied[line["op"]] += 1
            elif line["what"] in {"undo", "by_hand"}:
                self.net[place] -= 1

    def judge(self) -> Findings:
        """Return all that is wrong with the ledger."""
        self._check_intents()
        self._check_keys_and_arguments()
        self._check_surplus()
        self._check_overlap()
        self._check_order()
        self._check_end()
        return self.findings

    def _check_intents(self) -> None:
        """S1: no call without an intent that was durable before."""
        seqs = {
            (record["operation"], record["attempt"], record["asking"]): seq
            for seq, record in enumerate(self.evidence.records, start=1)
            if record["type"] == "intent"
        }
        probes = {record["operation"] for record in self.evidence.records if record["type"] == "probe"}
        for line in self.evidence.ledger:
            if line["what"] != "begin":
                continue
            name = spell(line["op"])
            if line["is_probe"]:
                self.findings.check(line["op"] in probes, f"S1: {name} was probed without a record")
                continue
            seq = seqs.get((line["op"], line["attempt"], line["asking"]))
            self.findings.check(
                seq is not None and seq <= line["durable"], f"S1: {name} was called before its intent was durable"
            )

    def _check_keys_and_arguments(self) -> None:
        """S3, S10: one operation, one key, the same bytes in each call."""
        keys: dict[Op, set[str]] = defaultdict(set)
        bodies: dict[Op, set[str]] = defaultdict(set)
        owners: dict[str, Op] = {}
        for line in self.evidence.ledger:
            if line["what"] == "begin" and not line["is_probe"]:
                keys[line["op"]].add(line["key"])
                bodies[line["op"]].add(line["arguments"])
                self.findings.check(owners.setdefault(line["key"], line["op"]) == line["op"], "S3: a key is shared")
        for op, found in keys.items():
            self.findings.check(len(found) == 1, f"S3: {spell(op)} was called under {len(found)} keys")
            self.findings.check(len(bodies[op]) == 1, f"S10: {spell(op)} got {len(bodies[op])} different arguments")

    def _check_surplus(self) -> None:
        """S2: an effect once a key where keys are honoured for ever; elsewhere none that nobody was told of."""
        for op, count in self.applied.items():
            tool = self.evidence.tool_of(op)
            if tool["idempotent"] and tool["key_retention_ms"] is None:
                self.findings.check(count <= 1, f"S2: {spell(op)} happened {count} times")
                continue
            intents = len(self.reading.of(op).intents)
            self.findings.check(count <= intents, f"S2: {spell(op)} happened {count} times in {intents} calls")
            self.findings.check(
                count <= 1 or {op, other(op)} & self.reading.dead_ever,
                f"S2: {spell(op)} happened {count} times, silently",
            )

    def _check_overlap(self) -> None:
        """S4: calls of one operation, and those of an action and its compensation, don't overlap."""
        at_work: dict[tuple[str, int | None], dict[int, Plain]] = defaultdict(dict)
        for line in self.evidence.ledger:
            place = at_work[line["op"][:2]]
            if line["what"] == "begin":
                for earlier in place.values():
                    self.findings.check(
                        self._may_overlap(earlier, line), f"S4: {spell(line['op'])} overlaps {spell(earlier['op'])}"
                    )
                place[line["job"]] = line
            elif line["what"] == "end":
                place.pop(line["job"], None)

    def _may_overlap(self, one: Plain, two: Plain) -> bool:
        one, two = sorted((one, two), key=lambda line: int(line["fence"]))
        if one["fence"] == two["fence"]:
            return False
        is_undo_of_late_call = one["op"][2] == "action" and two["op"][2] == "compensation"
        return bool(one["is_probe"] or (is_undo_of_late_call and self.evidence.tool_of(one["op"])["late_safe"]))

    def _check_order(self) -> None:
        """S6, S7: no effect after the undo began; no undo while what needed it is still there."""
        undone: set[tuple[str, int | None]] = set()
        there: Counter[tuple[str, int | None]] = Counter()
        for line in self.evidence.ledger:
            op, place = line["op"], line["op"][:2]
            if line["what"] == "begin" and op[2] == "compensation" and not line["is_probe"]:
                if place not in undone:
                    self._check_dependents(op, there)
                undone.add(place)
            elif line["what"] == "effect":
                there[place] += 1
                has_barrier = self.evidence.tool_of(op)["late_safe"]  # then only an undo that acted bars the way
                self.findings.check(
                    has_barrier or place not in undone, f"S6: {spell(op)} took effect after its undo began"
                )
            elif line["what"] in {"undo", "by_hand"}:
                there[place] -= 1

    def _check_dependents(self, undo: Op, there: Counter[tuple[str, int | None]]) -> None:
        for place, count in there.items():
            if count <= 0 or place[0] not in self.evidence.descendants[undo[0]]:
                continue
            self.findings.check(
                self._is_excused((*place, "action")), f"S7: {spell(undo)} while the effect of {place} is there"
            )

    def _is_excused(self, action: Op) -> bool:
        """Tell whether the log says that this effect stays, or that a person answered for it."""
        known, undo = self.reading.of(action), self.reading.of(other(action))
        by_hand = {action, undo.op} & (self.reading.settled_by_hand | self.reading.dead_ever)
        return self.reading.is_left(known) or bool(by_hand)

    # -- the end --------------------------------------------------------------------------------------------------

    def _check_end(self) -> None:
        ended = self.reading.ended
        status = self.evidence.status
        self.findings.check(ended is None or ended["status"] == status, f"L4: shown as {status}")
        match status:
            case "succeeded":
                self._check_succeeded()
            case "rolled_back":
                self._check_rolled_back()
            case "terminated":
                self._check_terminated()
            case "stuck":
                self._check_stuck()
            case _:
                self.findings.append(f"V1: the run is left {status}")

    def _places(self) -> set[tuple[str, int | None]]:
        return {op[:2] for op in self.reading.known} | set(self.net)

    def _check_succeeded(self) -> None:
        for step_id, step in self.evidence.steps.items():
            self.findings.check(self.reading.is_finished(step_id), f"S5: succeeded, but {step_id} isn't finished")
            if step["class"] == "read_only":
                continue
            for known in self.reading.actions(step_id):
                net = self.net[known.op[:2]]
                if known.is_closed:
                    continue
                is_right = net == 1 or (net > 1 and known.op in self.reading.dead_ever)
                self.findings.check(is_right, f"S5: succeeded, and {spell(known.op)} happened {net} times")
        self.findings.check(not self._open_letters(), "S5: succeeded with an open dead letter")

    def _listed(self) -> dict[tuple[str, int | None], str]:
        assert self.reading.ended is not None
        return {(left["step"], left["item"]): left["reason"] for left in self.reading.ended["not_undone"]}

    def _check_rolled_back(self) -> None:
        listed = self._listed()
        for place in self._places():
            known = self.reading.of((*place, "action"))
            if self.net[place] != 0:
                excused = place in listed or known.op in self.reading.dead_ever
                self.findings.check(excused, f"S5: rolled back, and {place} has {self.net[place]} effects")
        for place, reason in listed.items():
            known = self.reading.of((*place, "action"))
            self.findings.check(self.reading.is_left(known), f"S5: {place} is left though it can be undone")
            there = self.net[place] > 0 or "in doubt" in reason or known.op in self.reading.dead_ever
            self.findings.check(there, f"S5: {place} is listed as left, and nothing is there")
        self.findings.check(not self._open_letters(), "S5: rolled back with an open dead letter")
        self.findings.check(not self.reading.abandoned, "E23: rolled back though an undo was abandoned")
        self._check_all_settled()

    def _check_all_settled(self) -> None:
        for op, known in list(self.reading.known.items()):
            if op[2] == "action" and self.reading.needs_undo(known) and known.may_have_effect:
                self.findings.append(f"S8: {spell(op)} is neither undone nor cleared nor listed")

    def _check_terminated(self) -> None:
        listed = self._listed()
        for place in self._places():
            known = self.reading.of((*place, "action"))
            if self.evidence.steps[place[0]]["class"] == "read_only":
                continue
            undo = self.reading.known.get(other(known.op))
            settled = undo is not None and (undo.is_done or (undo.is_closed and undo.op not in self.reading.abandoned))
            if self.net[place] > 0 and not settled and not self._denied(known.op):
                self.findings.check(place in listed, f"E22: terminated, and {place} is there but not listed")
            elif known.may_have_effect and not settled:
                self.findings.check(place in listed, f"E22: terminated, and {place} is in doubt but not listed")
        for place in listed:
            known = self.reading.of((*place, "action"))
            self.findings.check(known.is_touched, f"E22: {place} is listed and was never called")

    def _denied(self, action: Op) -> bool:
        return action in self.reading.settled_by_hand and not self.reading.of(action).is_done

    def _open_letters(self) -> list[Op]:
        return [op for op, known in self.reading.known.items() if known.is_dead]

    def _check_stuck(self) -> None:
        letters = self._open_letters()
        self.findings.check(letters, "S5: stuck without an open dead letter")
        if self.reading.turned_at is not None:
            self._check_stuck_backward(letters)
        elif self.reading.pivot_passed:
            self._check_stuck_behind(letters)

    def _check_stuck_backward(self, letters: list[Op]) -> None:
        """What doesn't depend on a dead letter is undone."""
        for op, known in list(self.reading.known.items()):
            if op[2] != "action" or not self.reading.needs_undo(known):
                continue
            waits_for = self.evidence.descendants[op[0]] | {op[0]}
            blocked = any(letter[0] in waits_for for letter in letters)
            self.findings.check(blocked, f"E12: stuck, and {spell(op)} could have been undone")

    def _check_stuck_behind(self, letters: list[Op]) -> None:
        for step_id in self.evidence.steps:
            holders = {op[0] for op in letters} | set(self.reading.unapproved)
            is_stopped = any(step_id in self.evidence.descendants[holder] | {holder} for holder in holders)
            self.findings.check(
                is_stopped or self.reading.is_finished(step_id), f"E13: stuck, and {step_id} could have gone on"
            )
