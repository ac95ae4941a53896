"""From what was seen of an experiment to what is to be said about the saga: a pure function.

The log says what should be there: the effect of each action that succeeded and was not undone, that or nothing where
it is in doubt, nothing of all others. The world says what is there. Where the two differ, the trail of the tools says
why.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from sagactl.chaos.enumerating import Reference
from sagactl.chaos.experiment import Asked, Experiment, FaultKind
from sagactl.chaos.findings import Code, Finding, Severity, find
from sagactl.chaos.observed import (
    STUCK_PHASES,
    UNDONE_PHASES,
    Close,
    Observed,
    OperationEnd,
    Seen,
    Sight,
    lied,
)
from sagactl.chaos.traits import LEDGER, Growth, Number, add_up, is_name, name_trait
from sagactl.core.records import Cause, Direction, Operation, ProbeAnswer, RunStatus
from sagactl.core.saga import OnUnknown, Saga, StepClass
from sagactl.core.transitions import Phase
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Trial:
    """One experiment and what was seen of it, with what is known of the saga."""

    saga: Saga
    reference: Reference
    experiment: Experiment
    observed: Observed

    def find(self, code: Code, place: Operation | None, more: str = "", *, severity: Severity | None = None) -> Finding:
        """Return a finding of this experiment."""
        return find(code, place, self.experiment.name, more, severity=severity)

    def probe_of(self, action: Operation) -> str | None:
        """Return the probe of an action's tool."""
        return self.saga.tools[self.saga.by_id[action.step].action.tool].probe


def judge(trial: Trial) -> list[Finding]:
    """Return all findings of one experiment."""
    if trial.observed.close is Close.NOT_REACHED:
        return []
    if trial.observed.close is not Close.REST:
        return [trial.find(Code.NEVER_ENDS, trial.experiment.place, _say_close(trial.observed))]
    found = [*_judge_probes(trial)]
    liars = {finding.place for finding in found}
    found += _judge_stuck(trial)
    found += [finding for finding in _judge_world(trial, liars) if not _is_said(finding, liars)]
    found += _judge_way(trial)
    return found + [trial.find(Code.SECRET_PRINTED, _action_of(place)) for place in trial.observed.telling]


def _is_said(finding: Finding, liars: set[Operation | None]) -> bool:
    """Tell whether a probe's lie explains it; that the pivot was passed meanwhile is said all the same."""
    return finding.place in liars and finding.code is not Code.PIVOT_BEFORE_DOUBT


def _say_close(observed: Observed) -> str:
    match observed.close:
        case Close.TIMEOUT:
            return "it was ended after its time"
        case Close.CRASHED:
            return f"its process died {observed.lives} times ({observed.detail})"
        case _:
            return observed.detail or "it waits"


def _judge_probes(trial: Trial) -> Iterator[Finding]:
    """Compare each answer of a probe with what the trail says of the call before it."""
    digests: dict[Operation, str] = {}
    begun: set[Operation] = set()
    happened: set[Operation] = set()
    for seen in trial.observed.trail:
        if seen.operation is None:
            continue
        if seen.sight is Sight.CALL:
            begun.add(seen.operation)
        elif seen.sight is Sight.RETURN and seen.word == "succeeded":
            happened.add(seen.operation)
            digests.setdefault(seen.operation, seen.digest)
        elif seen.sight is Sight.PROBE:
            more = _find_lie(seen, begun, happened, digests)
            if more:
                yield trial.find(Code.PROBE_LIES, seen.operation, more)
                return


def _find_lie(
    seen: Seen, begun: set[Operation], happened: set[Operation], digests: Mapping[Operation, str]
) -> str | None:
    assert seen.operation is not None, "a probe is asked about an operation"
    operation = seen.operation
    if lied(seen, happened=operation in happened, could_have_begun=operation in begun):
        return "not done, after it was" if seen.word == ProbeAnswer.NOT_DONE else "done, and it never began"
    is_other = seen.word == ProbeAnswer.DONE and operation in digests and digests[operation] != seen.digest
    return "done, with another output than the action gave" if is_other else None


def _judge_stuck(trial: Trial) -> Iterator[Finding]:
    """Say why a run is stuck, unless a fault that doesn't pass has made it so."""
    observed = trial.observed
    if observed.status is not RunStatus.STUCK:
        return
    for operation, end in observed.operations.items():
        if end.phase not in STUCK_PHASES or trial.experiment.fails_for_ever(operation):
            continue
        if operation.direction is Direction.COMPENSATION:
            yield _judge_undo(trial, operation, end)
        elif end.cause is Cause.FORWARD_STUCK and end.attempts > 1 and trial.experiment.is_transient:
            yield trial.find(Code.STUCK_ON_RETRY, operation, end.failure)
        elif end.cause is Cause.IN_DOUBT or end.doubt:
            where = "at the pivot: neither back nor forward" if _is_pivot(trial, operation) else ""
            yield trial.find(Code.ASKS_A_PERSON, operation, where)
        else:
            yield trial.find(Code.STUCK_ON_RETRY, operation, end.failure)


def _is_pivot(trial: Trial, operation: Operation) -> bool:
    return trial.saga.by_id[operation.step].klass is StepClass.PIVOT


def _judge_undo(trial: Trial, undo: Operation, end: OperationEnd) -> Finding:
    """Say why a compensation is given up that had its chance."""
    observed, action = trial.observed, undo.other
    if end.attempts == 0:
        is_blind = any(fault.kind is FaultKind.PROBE_BLIND for fault in trial.experiment.faults)
        severity = Severity.NOTE if is_blind else None
        return trial.find(Code.UNDO_NEEDS_OUTPUT, action, end.failure, severity=severity)
    if undo in trial.reference.failing:
        return trial.find(Code.COMPENSATION_FAILS, action, end.failure)
    is_again = observed.count(Sight.CALL, undo) > 1
    acted = observed.operations.get(action)
    if acted is not None and acted.phase is Phase.SUCCEEDED:
        code = Code.COMPENSATION_NOT_IDEMPOTENT if is_again and _has_begun(trial, undo) else Code.COMPENSATION_FAILS
        return trial.find(code, action, end.failure)
    if observed.has_happened(action):
        return trial.find(Code.UNDO_NEEDS_OUTPUT, action, end.failure)
    return trial.find(Code.COMPENSATION_NOT_NULL_SAFE, action, end.failure)


def _has_begun(trial: Trial, undo: Operation) -> bool:
    """Tell whether a call of the compensation before the last one had its effect, or may have had it."""
    observed = trial.observed
    died = observed.count(Sight.CALL, undo) > observed.count(Sight.RETURN, undo)
    return died or observed.count(Sight.RETURN, undo, "succeeded") > 0


def _judge_world(trial: Trial, liars: Collection[Operation | None]) -> Iterator[Finding]:
    """Compare what is there with what should be; what several actions add to is laid to one that is blamed already."""
    observed = trial.observed
    blamed = set(liars)
    least, most = _expect(trial)
    for trait in sorted(observed.growth.keys() | least.keys() | most.keys(), key=_by_use):
        if not _counts(trial.reference, trait):
            continue
        much = observed.growth.get(trait, 0)
        place = _place_of(trial, trait, blamed)
        if much > most.get(trait, 0):
            found = [*_explain_surplus(trial, place, trait)]
        elif much < least.get(trait, 0):
            found = [*_explain_deficit(trial, place, trait)]
        else:
            continue
        blamed |= {finding.place for finding in found}
        yield from found
    is_counted = least or most or observed.growth  # then it is said already, or too much is to stay for asking
    if not is_counted and not observed.is_restored and _is_all_undone(observed):
        place = _action_of(trial.experiment.place) or _find_unseen(trial)
        yield from _explain_surplus(trial, place, observed.changed)


def _by_use(trait: str) -> tuple[bool, str]:
    """Sort the names of files first: they say most."""
    return not is_name(trait), trait


def _counts(reference: Reference, trait: str) -> bool:
    """Tell whether a trait says anything: the name of a file doesn't where tools draw names."""
    return reference.is_steady or not is_name(trait) or any(trait in growth for growth in reference.growth.values())


def _expect(trial: Trial) -> tuple[dict[str, Number], dict[str, Number]]:
    """Return the least and the most that may be there of each trait."""
    certain: list[Growth] = []
    possible: list[Growth] = []
    for operation, end in trial.observed.operations.items():
        growth = trial.reference.growth.get(operation)
        if operation.direction is Direction.COMPENSATION or not growth:
            continue
        fate = _fate(trial.observed, operation, end)
        certain += [growth] if fate is True else []
        possible += [growth] if fate is None else []
    low = [{trait: much for trait, much in growth.items() if much < 0} for growth in possible]
    high = [{trait: much for trait, much in growth.items() if much > 0} for growth in possible]
    return add_up([*certain, *low]), add_up([*certain, *high])


def _fate(observed: Observed, action: Operation, end: OperationEnd) -> bool | None:
    """Say whether an action's effect should be there; None where nobody claims to know."""
    undo = observed.operations.get(action.other)
    if undo is not None:
        return False if undo.phase in UNDONE_PHASES else None
    if end.phase is Phase.SUCCEEDED:
        is_claimed_undone = observed.status is RunStatus.ROLLED_BACK and (action.step, action.item) not in observed.left
        return not is_claimed_undone
    return None if end.doubt else False


def _is_all_undone(observed: Observed) -> bool:
    """Tell whether nothing of any action should be there: only then must all be as it was, to the letter.

    An action may change something in place, so that there is as much after it as before: its growth is empty.
    """
    return all(
        _fate(observed, operation, end) is False
        for operation, end in observed.operations.items()
        if operation.direction is Direction.ACTION
    )


def _find_unseen(trial: Trial) -> Operation | None:
    """Return the action of which nothing is counted, where there is just one: what changes in place is its doing."""
    actions = [each for each in trial.reference.actions if trial.saga.by_id[each.step].klass is not StepClass.READ_ONLY]
    unseen = [each for each in actions if not trial.reference.growth.get(each)]
    return unseen[0] if len(unseen) == 1 else None


def _place_of(trial: Trial, trait: str, blamed: Collection[Operation | None]) -> Operation | None:
    """Return the action that a trait of the world belongs to."""
    if trait.startswith(f"{LEDGER}."):
        name = trait.removeprefix(f"{LEDGER}.")
        step, _, item = name.partition("[")
        return Operation(step, int(item[:-1]) if item else None, Direction.ACTION)
    for operation, rest in trial.reference.rest.items():
        if trait in rest and _is_undone(trial.observed, operation):
            return operation  # it is so without any other fault, so the experiment has nothing to do with it
    place = _action_of(trial.experiment.place)
    makers = [operation for operation, growth in trial.reference.growth.items() if trait in growth]
    first = [each for each in makers if each in blamed] or [each for each in makers if _is_repeated(trial, each)]
    if first and place not in first:
        return first[0]
    return place if place in makers or not makers else makers[0]


def _is_undone(observed: Observed, action: Operation) -> bool:
    """Tell whether the log says so, of the action or of the whole run: another may be stuck on its way back."""
    undo = observed.operations.get(action.other)
    return observed.status is RunStatus.ROLLED_BACK or (undo is not None and undo.phase in UNDONE_PHASES)


def _is_repeated(trial: Trial, action: Operation) -> bool:
    return any(trial.observed.count(Sight.CALL, each) > 1 for each in (action, action.other))


def _action_of(place: Operation | None) -> Operation | None:
    return place.other if place is not None and place.direction is Direction.COMPENSATION else place


def _explain_surplus(trial: Trial, place: Operation | None, trait: str) -> Iterator[Finding]:
    observed = trial.observed
    if place is None or place not in observed.operations:
        yield trial.find(Code.LEFT_BEHIND, place, name_trait(trait))
        return
    end, undo = observed.operations[place], observed.operations.get(place.other)
    returned = observed.count(Sight.RETURN, place, "succeeded")
    if observed.count(Sight.LATE, place) > 0:
        yield trial.find(Code.LATE_EFFECT_AFTER_UNDO, place)
    elif undo is None and end.phase is Phase.SUCCEEDED and observed.status is not RunStatus.ROLLED_BACK:
        yield trial.find(Code.DOUBLE_EFFECT, place)
    elif undo is None and observed.count(Sight.PROBE, place, ProbeAnswer.NOT_DONE) > 0:
        yield trial.find(Code.PROBE_LIES, place, "not done, and something of it is there")
    elif undo is None:
        yield trial.find(Code.NOT_UNDONE_WITHOUT_WORD, place, name_trait(trait))
    else:
        yield trial.find(Code.DOUBLE_EFFECT if returned > 1 else Code.LEFT_BEHIND, place, name_trait(trait))


def _explain_deficit(trial: Trial, place: Operation | None, trait: str) -> Iterator[Finding]:
    observed = trial.observed
    undo = None if place is None else observed.operations.get(place.other)
    if place is not None and undo is None and observed.count(Sight.PROBE, place, ProbeAnswer.DONE) > 0:
        yield trial.find(Code.PROBE_LIES, place, "done, and it isn't there")
        yield from _judge_pivot(trial, place)
    elif place is None or undo is None:
        yield trial.find(Code.LOST_EFFECT, place)
    elif trait in trial.reference.rest.get(place, {}):
        yield trial.find(Code.COMPENSATION_DOES_HARM, place, name_trait(trait))
    elif observed.count(Sight.CALL, place.other) > 1:
        yield trial.find(Code.COMPENSATION_NOT_IDEMPOTENT, place, name_trait(trait))
    elif observed.has_happened(place):
        yield trial.find(Code.COMPENSATION_DOES_HARM, place, name_trait(trait))
    else:
        yield trial.find(Code.COMPENSATION_NOT_NULL_SAFE, place, name_trait(trait))


def _judge_pivot(trial: Trial, place: Operation | None) -> Iterator[Finding]:
    """Say where a doubt was settled wrongly, and then the run went where nothing can be put right any more."""
    is_known = place is not None and place.step in trial.saga.by_id
    klass = trial.saga.by_id[place.step].klass if place is not None and is_known else None
    if trial.observed.pivot_passed and klass not in {None, StepClass.PIVOT, StepClass.RETRIABLE}:
        yield trial.find(Code.PIVOT_BEFORE_DOUBT, place)


def _judge_way(trial: Trial) -> Iterator[Finding]:
    """Say where a run turned around for a fault that had passed."""
    observed, place = trial.observed, trial.experiment.place
    is_plain = trial.experiment.is_transient and trial.experiment.asked is Asked.NEVER
    if not is_plain or observed.status is not RunStatus.ROLLED_BACK or place is None:
        return
    if trial.saga.by_id[place.step].action.on_unknown is OnUnknown.COMPENSATE:
        return
    end = observed.operations.get(place)
    if end is not None and end.phase is Phase.FAILED and end.attempts > 1:
        yield trial.find(Code.KEY_REFUSED, place, end.failure)


def judge_reference(trial: Trial) -> list[Finding]:
    """Return what the run that succeeds without a fault tells: effects that can't be seen."""
    found = []
    for operation in trial.reference.actions:
        is_harmless = trial.saga.by_id[operation.step].klass is StepClass.READ_ONLY
        if not is_harmless and not trial.reference.growth.get(operation):
            found.append(trial.find(Code.EFFECT_NOT_SEEN, operation))
    return found
