"""What can be found about a step, by name: how bad it is, why it comes about, and what to change."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from sagactl.core.records import Operation
from sagactl.dataclass import dataclass


class Severity(StrEnum):
    """`unsafe`: the world ends up other than the log says, or a run never ends. `note`: safe, but good to know."""

    UNSAFE = "unsafe"
    NOTE = "note"


class Code(StrEnum):
    """The name of a finding; names only ever come."""

    DOUBLE_EFFECT = "double-effect"
    LOST_EFFECT = "lost-effect"
    LEFT_BEHIND = "left-behind"
    NOT_UNDONE_WITHOUT_WORD = "not-undone-without-word"
    COMPENSATION_NOT_NULL_SAFE = "compensation-not-null-safe"
    COMPENSATION_NOT_IDEMPOTENT = "compensation-not-idempotent"
    COMPENSATION_FAILS = "compensation-fails"
    COMPENSATION_DOES_HARM = "compensation-does-harm"
    UNDO_NEEDS_OUTPUT = "undo-needs-output"
    PROBE_LIES = "probe-lies"
    LATE_EFFECT_AFTER_UNDO = "late-effect-after-undo"
    PIVOT_BEFORE_DOUBT = "pivot-before-doubt"
    STUCK_ON_RETRY = "stuck-on-retry"
    NEVER_ENDS = "never-ends"
    ASKS_A_PERSON = "asks-a-person"
    KEY_REFUSED = "key-refused"
    EFFECT_NOT_SEEN = "effect-not-seen"
    SECRET_PRINTED = "secret-printed"  # noqa: S105 - a word, no secret


class Meaning(NamedTuple):
    """What a finding says about the step; `seen` is completed by the judge."""

    severity: Severity
    seen: str
    why: str
    change: str


_U, _N = Severity.UNSAFE, Severity.NOTE

MEANINGS: Final[dict[Code, Meaning]] = {
    Code.DOUBLE_EFFECT: Meaning(
        _U,
        "its effect is there more than once",
        "it was called again with the same key, and the target didn't honour it",
        "hand context.idempotency_key to the target; or declare idempotent=False and give the tool a probe",
    ),
    Code.LOST_EFFECT: Meaning(
        _U,
        "the log says that it succeeded, and its effect isn't there",
        "a second call, or the probe, took something else than the effect itself for it",
        "remember the key together with the effect, in one transaction, never before it",
    ),
    Code.LEFT_BEHIND: Meaning(
        _U,
        "the log says that it was undone, and something of it is still there",
        "the compensation succeeded without taking back all that the action did",
        "undo each effect of the action, also those of a call that was broken off, found by context.forward_key",
    ),
    Code.NOT_UNDONE_WITHOUT_WORD: Meaning(
        _U,
        "the run was rolled back, its effect is still there, and the run doesn't say so",
        "the tool says that it had no effect: it is read_only, or it raised Rejected or Unavailable after its effect",
        "declare what has an effect as what it is; raise Rejected and Unavailable only where nothing happened",
    ),
    Code.COMPENSATION_NOT_NULL_SAFE: Meaning(
        _U,
        "its compensation fails, or does harm, where the action never ran",
        "the tool is declared null_safe, and doesn't cope with finding nothing",
        "find the effect by context.forward_key, and return where there is none; or take null_safe back",
    ),
    Code.COMPENSATION_NOT_IDEMPOTENT: Meaning(
        _U,
        "its compensation fails, or takes away too much, when it is called again",
        "a crash in a compensation repeats it with the same key, and the tool doesn't know it again",
        "return where the effect is gone already; hand context.idempotency_key to the target",
    ),
    Code.COMPENSATION_FAILS: Meaning(
        _U,
        "its compensation fails: the run is stuck while it rolls back",
        "the tool doesn't undo what its action has done",
        "try both tools after each other, with the arguments that `sagactl plan --show-inputs` shows",
    ),
    Code.COMPENSATION_DOES_HARM: Meaning(
        _U,
        "its compensation takes away what the action hasn't made",
        "the compensation doesn't tell its own effect from those of others",
        "find the effect by context.forward_key",
    ),
    Code.UNDO_NEEDS_OUTPUT: Meaning(
        _U,
        "after a lost reply its compensation can't be called: the run is stuck while it rolls back",
        "the compensation needs the action's output, and nobody has it",
        "find the effect by context.forward_key and declare null_safe=True; or give the action a probe",
    ),
    Code.PROBE_LIES: Meaning(
        _U,
        "its probe doesn't say what happened",
        "the run believes its probe: done is never called again, not done is never undone",
        "look for the effect by context.forward_key where it is made; return CannotTell() where that isn't certain",
    ),
    Code.LATE_EFFECT_AFTER_UNDO: Meaning(
        _U,
        "a call that arrives after the undo still has its effect",
        "the tool is declared late_safe, and keeps no mark that refuses such a call",
        "keep a tombstone under context.forward_key that the action looks at; or take late_safe back",
    ),
    Code.PIVOT_BEFORE_DOUBT: Meaning(
        _U,
        "the pivot was passed while this step wasn't what the log says: nothing takes that back any more",
        "its doubt was settled wrongly, and then the run went over its point of no return",
        "mend the step's probe or its key first: before a pivot nothing may be taken for certain that isn't",
    ),
    Code.STUCK_ON_RETRY: Meaning(
        _U,
        "the run is stuck behind its pivot",
        "a passing fault is followed by a call with the same key, and that fails for good",
        "answer a key that is known with the first answer, and never with an error",
    ),
    Code.NEVER_ENDS: Meaning(
        _U,
        "the run doesn't come to rest",
        "a call doesn't return, or the process dies in it again and again",
        "give calls to others a timeout; let go of locks when a process dies; end when context.cancelled is set",
    ),
    Code.ASKS_A_PERSON: Meaning(
        _N,
        "the run is stuck, in doubt, until a person says what happened",
        "nothing can find out: no probe can tell, and without its word the tool may not be called again",
        "give the tool a probe that can always tell, or make it idempotent without a probe; else keep somebody at hand "
        "for dead letters (`dlq list`)",
    ),
    Code.KEY_REFUSED: Meaning(
        _N,
        "the run is rolled back where it could have gone on",
        "a call with a key that is known already is refused, in place of its first answer",
        "answer a key that is known with the first answer",
    ),
    Code.EFFECT_NOT_SEEN: Meaning(
        _N,
        "nothing of its effect can be counted here, so it isn't judged as long as it is to stay",
        "there is as much after it as before: it changes something in place, as a file that keeps its size; or its "
        "target is neither the sandbox nor the folder that tools are given, and no check tool shows it",
        'name a tool that shows what there is: `check = "crm.snapshot"` under [chaos] in sagactl.toml',
    ),
    Code.SECRET_PRINTED: Meaning(
        _N,
        "it prints a secret",
        "what tools print is masked here, and nowhere else",
        "print no argument that is a secret",
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found in one experiment; `place` is the operation that is to be mended."""

    code: Code
    place: Operation | None
    experiment: str
    seen: str
    severity: Severity

    @property
    def meaning(self) -> Meaning:
        """Return why it comes about and what to change."""
        return MEANINGS[self.code]


def find(
    code: Code, place: Operation | None, experiment: str, more: str = "", *, severity: Severity | None = None
) -> Finding:
    """Return a finding; *more* is said behind what its code says."""
    meaning = MEANINGS[code]
    seen = f"{meaning.seen}: {more}" if more else meaning.seen
    return Finding(code, place, experiment, seen, severity or meaning.severity)
