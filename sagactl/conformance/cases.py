"""The cases: what is called in which order, and what must be seen. Each is tried in a world of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from sagactl.conformance.arguments import list_misfits, list_oddities
from sagactl.conformance.looks import Changes, Index, compare, describe, find_left, weigh
from sagactl.conformance.rules import Rule
from sagactl.conformance.stage import Stage, say_answer
from sagactl.core.answer import Answer
from sagactl.core.canonical import Json, canonical
from sagactl.core.records import OutcomeKind, ProbeAnswer
from sagactl.core.saga import ToolFacts
from sagactl.core.template import Literal, MapOf, Template

UNSEEN: Final = "nothing of its effect is seen here: name a read-only tool that shows it, under observe"
UNSEEN_OTHER: Final = "another operation had no effect, or observe doesn't show it: its run.id is another one there"
AT_ONCE: Final = 2
TWICE: Final = 1.8
"""How many times as much a file must grow to count as a second effect."""

ODDITIES_MAX: Final = 20
"""Calls with odd arguments."""

BAD_ARGUMENTS: Final = "bad_arguments"
"""What a call comes to whose function doesn't take its arguments."""

ANSWER_LENGTH_MAX: Final = 60


def try_in_turn(stage: Stage) -> None:
    """Call it, again, undo it, again; then another key; then the first one, late."""
    _try_schema(stage)
    before = stage.look()
    if stage.subject.probe is not None:
        _ask_before(stage)
    first = stage.act(stage.mine)
    if not _has_succeeded(stage, first):
        return
    after = stage.look()
    changes = compare(before, after)
    _try_same_key(stage, first, after, changes)
    if stage.subject.probe is not None:
        _ask_after(stage, first.output)
    if stage.subject.undo is not None and _try_undo(stage, first.output, before, changes):
        _try_other_key(stage, changes)
        _try_late(stage, changes)


def _has_succeeded(stage: Stage, answer: Answer) -> bool:
    is_good = answer.kind is OutcomeKind.SUCCEEDED
    return stage.book.require(Rule.SUCCEEDS, "" if is_good else f"it came to {say_answer(answer)}")


def _try_schema(stage: Stage) -> None:
    facts, tools = stage.subject.facts, stage.world.caller.tools
    arguments = stage.arguments(stage.mine)
    objection = tools.check_arguments(facts, dict(arguments))
    if objection is not None:
        stage.book.breach(Rule.SUCCEEDS, f"its schema doesn't take the arguments given here: {objection}")
    misfits = list(list_misfits(facts.arguments_schema, arguments))
    if not misfits:
        stage.book.leave(Rule.SCHEMA, "its schema asks for nothing")
    for what, misfit in misfits:
        is_taken = tools.check_arguments(facts, misfit) is None
        stage.book.require(Rule.SCHEMA, f"its schema takes arguments {what}" if is_taken else "")


def _ask_before(stage: Stage) -> None:
    reply = stage.probe(stage.mine)
    if reply.answer is ProbeAnswer.DONE:
        stage.book.breach(Rule.PROBE, "it says done before anything was called")
    elif reply.answer is ProbeAnswer.CANNOT_TELL:
        stage.book.leave(Rule.PROBE, f"it can't tell: {reply.failure}")


def _try_same_key(stage: Stage, first: Answer, after: Index, changes: Changes) -> None:
    if not stage.subject.facts.idempotent:
        way = "asks its probe" if stage.subject.probe else "asks a person"
        stage.book.concede(Rule.SAME_KEY, f"it isn't idempotent: in doubt the engine {way}")
        return
    second = stage.act(stage.mine)
    repeated = compare(after, stage.look())
    if second.kind is not OutcomeKind.SUCCEEDED:
        stage.book.breach(Rule.SAME_KEY, f"the second call came to {say_answer(second)}")
    elif canonical(first.output) != canonical(second.output):
        answers = " and then ".join(canonical(each.output)[:ANSWER_LENGTH_MAX] for each in (first, second))
        stage.book.breach(Rule.SAME_KEY, f"it answered {answers}")
    elif repeated:
        stage.book.breach(Rule.SAME_KEY, f"the second call had an effect as well: {describe(repeated)}")
    elif not changes:
        stage.book.leave(Rule.SAME_KEY, UNSEEN)
    else:
        stage.book.hold(Rule.SAME_KEY)
    if stage.subject.facts.key_retention_ms is not None:
        stage.book.remark(Rule.SAME_KEY, "only as long as keys are kept: past that the engine repeats nothing")


def _ask_after(stage: Stage, output: Json) -> None:
    reply = stage.probe(stage.mine)
    match reply.answer:
        case ProbeAnswer.NOT_DONE:
            stage.book.breach(Rule.PROBE, "it says not done after the call succeeded")
        case ProbeAnswer.CANNOT_TELL:
            stage.book.leave(Rule.PROBE, f"it can't tell: {reply.failure}")
        case _:
            found = canonical(reply.output)
            seen = (
                "" if found == canonical(output) else f"its output is {found[:ANSWER_LENGTH_MAX]}, the call's another"
            )
            stage.book.require(Rule.PROBE, seen)
    foreign = stage.probe(stage.other)
    if foreign.answer is ProbeAnswer.DONE:
        stage.book.breach(Rule.PROBE, "it says done under the key of an operation that was never called")


def _try_undo(stage: Stage, output: Json, before: Index, changes: Changes) -> bool:
    """Undo the action, twice; tell whether it came so far that more can be tried."""
    answer = stage.undo(stage.mine, output)
    if answer.kind is not OutcomeKind.SUCCEEDED:
        stage.book.breach(Rule.UNDO, f"the compensation came to {say_answer(answer)}")
        return False
    undone = stage.look()
    seen = _describe_undo(changes, before, before, undone)
    if not changes:
        stage.book.leave(Rule.UNDO, UNSEEN)
    stage.book.require(Rule.UNDO, seen)
    again = stage.undo(stage.mine, output)
    more = compare(undone, stage.look())
    if again.kind is not OutcomeKind.SUCCEEDED:
        stage.book.breach(Rule.UNDO_TWICE, f"the second time it came to {say_answer(again)}")
    else:
        stage.book.require(Rule.UNDO_TWICE, f"the second time it did more: {describe(more)}" if more else "")
    if stage.subject.probe is not None and stage.probe(stage.mine).answer is ProbeAnswer.DONE:
        stage.book.remark(Rule.PROBE, "it says done after the undo as well; the engine doesn't ask it then")
    return not seen


def _describe_undo(
    changes: Changes, before: Index, beside: Index, now: Index, shared: Collection[str] = frozenset()
) -> str:
    """Return what is wrong after an undo: what is left of the action, or what else was taken of what was there.

    Args:
        changes: What the action has changed.
        before: What there was before it.
        beside: What there was before the undo, of others too.
        now: What there is after it.
        shared: What others have changed since: it needn't be as it was.
    """
    left = find_left({name: pair for name, pair in changes.items() if name not in shared}, before, now)
    if left:
        return f"something isn't as it was: {describe(left)}"
    harm = {name: pair for name, pair in compare(beside, now).items() if name not in changes and _is_harm(name, *pair)}
    return f"it took what somebody else had made: {describe(harm)}" if harm else ""


def _try_other_key(stage: Stage, changes: Changes) -> None:
    before = stage.look()
    answer = stage.act(stage.other)
    if answer.kind is not OutcomeKind.SUCCEEDED:
        stage.book.breach(Rule.OTHER_KEY, f"another operation came to {say_answer(answer)}")
        return
    has_effect = bool(compare(before, stage.look()))
    if not changes:
        stage.book.leave(Rule.OTHER_KEY, UNSEEN)
    stage.book.require(Rule.OTHER_KEY, "" if has_effect or not changes else UNSEEN_OTHER)
    stage.undo(stage.other, answer.output)


def _try_late(stage: Stage, changes: Changes) -> None:
    """Call the action once more after its undo, as a call that was under way for long would arrive."""
    if not changes:
        stage.book.leave(Rule.LATE, UNSEEN)
        return
    before = stage.look()
    answer = stage.act(stage.mine)
    lasting = compare(before, stage.look())
    if not lasting:
        stage.book.hold(Rule.LATE)
        return
    undo = stage.subject.undo
    if undo is not None and undo.late_safe:
        seen = f"declared late_safe, and a late call ({answer.kind}) had an effect: {describe(lasting)}"
        stage.book.breach(Rule.LATE, seen)
        return
    _concede_late(stage, lasting)


def _concede_late(stage: Stage, lasting: Changes) -> None:
    waits = "not late_safe: the engine undoes nothing while an old call may be under way"
    if stage.subject.probe is None:
        stage.book.concede(Rule.LATE, waits)
        return
    reply = stage.probe(stage.mine)
    if reply.answer is ProbeAnswer.NOT_DONE:
        stage.book.breach(Rule.LATE, f"the probe says not done of a late effect: {describe(lasting)}")
    else:
        stage.book.concede(Rule.LATE, f"{waits}, and its probe finds it")


def try_lost_output(stage: Stage) -> None:
    """Undo an action whose answer nobody got, beside one of somebody else."""
    undo = stage.subject.undo
    assert undo is not None, "there is a compensation"
    if not undo.null_safe and stage.subject.probe is None:
        stage.book.concede(Rule.UNDO_LOST_OUTPUT, "not null_safe, and no probe: a person is asked")
        return
    before = stage.look()
    if stage.act(stage.mine).kind is not OutcomeKind.SUCCEEDED:
        return
    after = stage.look()
    changes = compare(before, after)
    stage.act(stage.other)
    both = stage.look()
    if not _undo_without_output(stage, undo):
        return
    if not changes:
        stage.book.leave(Rule.UNDO_LOST_OUTPUT, UNSEEN)
        return
    shared = changes.keys() & compare(after, both).keys()
    seen = _describe_undo(changes, before, both, stage.look(), shared)
    if not seen and shared:
        with stage.make_another() as second:
            seen = _try_lost_last(second, undo)
    stage.book.require(Rule.UNDO_LOST_OUTPUT, seen)


def _undo_without_output(stage: Stage, undo: ToolFacts) -> bool:
    """Undo the action as where nobody has its output, and tell whether that came to its end."""
    output: Json = None
    if not undo.null_safe:
        reply = stage.probe(stage.mine)
        if reply.answer is not ProbeAnswer.DONE:
            stage.book.breach(Rule.UNDO_LOST_OUTPUT, "not null_safe, and its probe doesn't find it: a person is asked")
            return False
        output = reply.output
    answer = stage.undo(stage.mine, output)
    if answer.kind is not OutcomeKind.SUCCEEDED:
        stage.book.breach(Rule.UNDO_LOST_OUTPUT, f"without the output it came to {say_answer(answer)}")
    return answer.kind is OutcomeKind.SUCCEEDED


def _try_lost_last(stage: Stage, undo: ToolFacts) -> str:
    """Return what is wrong where one file holds the things of both: what it was before the last of them is known."""
    stage.act(stage.other)
    before = stage.look()
    if stage.act(stage.mine).kind is not OutcomeKind.SUCCEEDED:
        return ""
    after = stage.look()
    is_undone = _undo_without_output(stage, undo)
    return _describe_undo(compare(before, after), before, after, stage.look()) if is_undone else ""


def try_never_ran(stage: Stage) -> None:
    """Undo an action that never ran, beside one of somebody else; then let it come late."""
    undo = stage.subject.undo
    assert undo is not None, "there is a compensation"
    if not undo.null_safe:
        way = "its probe is asked, and says not done" if stage.subject.probe else "a person is asked"
        stage.book.concede(Rule.UNDO_NEVER_RAN, f"not null_safe, so it isn't called: {way}")
        return
    start = stage.look()
    other = stage.act(stage.other)
    before = stage.look()
    visible = compare(start, before)
    answer = stage.undo(stage.mine)
    if answer.kind is not OutcomeKind.SUCCEEDED:
        stage.book.breach(Rule.UNDO_NEVER_RAN, f"it came to {say_answer(answer)}")
        return
    harm = {name: pair for name, pair in compare(before, stage.look()).items() if _is_harm(name, *pair)}
    stage.book.require(Rule.UNDO_NEVER_RAN, f"it did harm: {describe(harm)}" if harm else "")
    if other.kind is OutcomeKind.SUCCEEDED:
        stage.undo(stage.other, other.output)
    if visible:
        _try_late(stage, visible)


def _is_harm(name: str, before: Json, after: Json) -> bool:
    """Tell whether a change is more than a mark that an undo leaves: something was there and is another now."""
    return before is not None or (name.startswith("ledger of ") and isinstance(after, int) and after < 0)


def try_at_once(stage: Stage) -> None:
    """Make two calls with the same key at the same moment, as an old driver and a new one might."""
    if not stage.subject.facts.idempotent:
        stage.book.concede(Rule.AT_ONCE, "it isn't idempotent: the engine never repeats it in doubt")
        return
    one = _measure(stage, 1)
    if not one.changes:
        stage.book.leave(Rule.AT_ONCE, UNSEEN)
        return
    with stage.make_another() as second:
        both = _measure(second, AT_ONCE)
    seen = _find_second(one, both)
    if not seen and one.after != both.after:
        with stage.make_another() as third:
            seen = _find_odd(one, both, _measure(third, 1))
    stage.book.require(Rule.AT_ONCE, f"there are two effects: {seen}" if seen else "")


class _Measured(NamedTuple):
    """What some calls at once have changed: what there is after it, and by how much each file has grown."""

    changes: Changes
    after: Index
    grown: Mapping[str, int]


def _measure(stage: Stage, number: int) -> _Measured:
    """Make so many calls at once, and return what they have changed."""
    before, sizes = stage.look(), stage.world.measure_files()
    answers = stage.act_at_once(stage.mine, number)
    good = [answer for answer in answers if answer.kind is OutcomeKind.SUCCEEDED]
    if not good:
        stage.book.breach(Rule.AT_ONCE, f"no call succeeded: {say_answer(answers[0])}")
    if len({canonical(answer.output) for answer in good}) > 1:
        stage.book.breach(Rule.AT_ONCE, "the two calls have different answers")
    after = stage.look()
    grown = {name: size - sizes.get(name, 0) for name, size in stage.world.measure_files().items()}
    return _Measured(compare(before, after), after, grown)


def _find_second(one: _Measured, both: _Measured) -> str:
    """Return what there is more of after two calls than after one: things, or what stands in a file or in all."""
    if weigh(both.changes) > weigh(one.changes):
        return describe(both.changes)
    twice = [name for name, much in one.grown.items() if 0 < TWICE * much < both.grown.get(name, 0)]
    if twice:
        return f"{twice[0]} grew by {both.grown[twice[0]]} bytes, and by {one.grown[twice[0]]} with one call"
    alone, together = sum(one.grown.values()), sum(both.grown.values())
    return describe(both.changes) if 0 < TWICE * alone < together else ""


def _find_odd(one: _Measured, both: _Measured, again: _Measured) -> str:
    """Return what one call leaves alike each time, and two at once otherwise, such as a count in a file.

    Their world is made, and they are called, between the others: no time that is written down is taken for one.
    """
    lasting = {name: each for name, each in one.after.items() if again.after.get(name) == each}
    odd = {name: (each, both.after.get(name)) for name, each in lasting.items() if both.after.get(name) != each}
    return describe(odd)


def try_rejects(stage: Stage) -> None:
    """Make the calls that must be rejected."""
    base = stage.subject.arguments
    before = stage.look()
    refused = []
    for number, differing in enumerate(stage.subject.entry.rejects):
        arguments = stage.world.arguments(_merge(base, differing), stage.mine)
        if stage.world.caller.tools.check_arguments(stage.subject.facts, dict(arguments)) is not None:
            refused.append(f"rejects[{number}]")
            stage.book.hold(Rule.REJECTS)
            continue
        answer = stage.act_with(arguments)
        changes = compare(before, stage.look())
        seen = "" if answer.kind is OutcomeKind.REJECTED else f"rejects[{number}] came to {say_answer(answer)}"
        seen = seen or (f"rejects[{number}] was rejected and had an effect: {describe(changes)}" if changes else "")
        stage.book.require(Rule.REJECTS, seen)
    if refused:
        stage.book.remark(Rule.REJECTS, f"not called, its schema refuses it: {', '.join(refused)}")


def _merge(base: Template, differing: Template) -> Template:
    """Return *base* with what is different."""
    entries = dict(_entries_of(base)) | dict(_entries_of(differing))
    return MapOf(tuple(entries.items()))


def _entries_of(template: Template) -> list[tuple[str, Template]]:
    if isinstance(template, MapOf):
        return list(template.entries)
    value = template.value if isinstance(template, Literal) else None
    return [(key, Literal(member)) for key, member in value.items()] if isinstance(value, dict) else []


def try_misfits(stage: Stage) -> None:
    """Call it with arguments that are odd, and that its schema takes all the same: it must cope with them."""
    facts, given = stage.subject.facts, stage.arguments(stage.mine)
    taken = [
        (what, arguments)
        for what, arguments in list_oddities(given)
        if stage.world.caller.tools.check_arguments(facts, dict(arguments)) is None
    ]
    for what, arguments in taken[:ODDITIES_MAX]:
        answer = stage.act_with(arguments)
        is_lost = answer.kind is OutcomeKind.UNKNOWN or (answer.failure and answer.failure.type == BAD_ARGUMENTS)
        stage.book.require(Rule.SCHEMA, f"its schema takes arguments {what}: {say_answer(answer)}" if is_lost else "")


def try_reading(stage: Stage) -> None:
    """Call a tool that only reads, twice."""
    _try_schema(stage)
    before = stage.look()
    answers = [stage.act(stage.mine), stage.act(stage.mine)]
    if not all(_has_succeeded(stage, answer) for answer in answers):
        return
    changes = compare(before, stage.look())
    stage.book.require(Rule.READS_ONLY, f"it changed something: {describe(changes)}" if changes else "")


class Case(NamedTuple):
    """A case and the rules that it is about."""

    try_it: Callable[[Stage], None]
    rules: tuple[Rule, ...]


IN_TURN: Final = Case(
    try_in_turn,
    (
        *(Rule.SUCCEEDS, Rule.SCHEMA, Rule.SAME_KEY, Rule.PROBE, Rule.READS_ONLY),
        *(Rule.UNDO, Rule.UNDO_TWICE, Rule.OTHER_KEY, Rule.LATE),
    ),
)
READING: Final = Case(try_reading, (Rule.SUCCEEDS, Rule.SCHEMA, Rule.READS_ONLY))
REJECTED: Final = Case(try_rejects, (Rule.REJECTS,))
MISFITS: Final = Case(try_misfits, (Rule.SCHEMA,))
ACTING: Final = (IN_TURN, MISFITS, Case(try_at_once, (Rule.AT_ONCE,)))
UNDOING: Final = (
    Case(try_lost_output, (Rule.UNDO_LOST_OUTPUT,)),
    Case(try_never_ran, (Rule.UNDO_NEVER_RAN, Rule.LATE)),
)
