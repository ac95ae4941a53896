"""A tool in the world of one case: its action, its compensation and its probe, called as the engine calls them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from sagactl.conformance.book import Book
from sagactl.conformance.calling import Asked, HangingError, Identity
from sagactl.conformance.check_file import NOTHING, CheckFile, ToolEntry
from sagactl.conformance.looks import Index, compare, describe
from sagactl.conformance.rules import Rule
from sagactl.conformance.world import SetUpError, World
from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.calls import choose_probe_arguments
from sagactl.core.canonical import Json
from sagactl.core.records import Direction, Failure, OutcomeKind, ProbeAnswer
from sagactl.core.saga import ToolFacts
from sagactl.core.template import ExpressionError, Template
from sagactl.dataclass import dataclass
from sagactl.errors import RefusedError
from sagactl.identity import make_run_id


@dataclass(frozen=True, slots=True)
class Subject:
    """A tool that is checked, with what undoes it and what finds out about it."""

    facts: ToolFacts
    arguments: Template
    file: CheckFile
    entry: ToolEntry
    undo: ToolFacts | None = None
    undo_with: Template = NOTHING
    probe: ToolFacts | None = None


class Stage:
    """One case at work."""

    def __init__(
        self,
        subject: Subject,
        world: World,
        book: Book,
        identities: tuple[Identity, Identity],
        make_another: Callable[[], AbstractContextManager[Stage]],
    ) -> None:
        self.subject = subject
        self.world = world
        self.book = book
        self.mine, self.other = identities
        """The operation that is tried, and one of somebody else."""
        self.make_another = make_another
        """Gives the stage of another world."""
        self._given: dict[Identity, dict[str, Json]] = {}
        self._standing: dict[Identity, Json] = {}
        """What may have an effect that isn't taken back, with the output where there is one."""

    def look(self) -> Index:
        """Return what there is now."""
        return self.world.look()

    def arguments(self, identity: Identity) -> dict[str, Json]:
        """Return the arguments of the action; they are evaluated once for an operation (E20)."""
        if identity not in self._given:
            self._given[identity] = self.world.arguments(self.subject.arguments, identity)
        return self._given[identity]

    def ask(self, identity: Identity) -> Asked:
        """Return the call of the action."""
        return Asked(self.subject.facts.name, self.arguments(identity), identity, self.world.folder)

    def act(self, identity: Identity) -> Answer:
        """Call the action."""
        return self._remember(identity, self.world.caller.call(self.ask(identity)))

    def act_with(self, arguments: dict[str, Json]) -> Answer:
        """Call the action with other arguments, as an operation of its own; what it did is taken back at the end."""
        identity = Identity(make_run_id(), self.mine.step)
        self._given[identity] = arguments
        return self.act(identity)

    def _remember(self, identity: Identity, answer: Answer) -> Answer:
        """Note what must be taken back: whatever a call made that succeeded, or that nobody knows the end of."""
        if answer.kind is OutcomeKind.SUCCEEDED:
            self._standing[identity] = answer.output
        elif answer.kind is not OutcomeKind.REJECTED:
            self._standing.setdefault(identity, None)
        return answer

    def act_at_once(self, identity: Identity, number: int) -> list[Answer]:
        """Call the action so many times at the same moment."""
        answers = self.world.caller.call_at_once(self.ask(identity), number)
        return [self._remember(identity, answer) for answer in answers]

    def undo(self, identity: Identity, output: Json = None) -> Answer:
        """Call the compensation, without an output where there is none; refused where it has no arguments (E21)."""
        undo = self.subject.undo
        assert undo is not None, "there is a compensation"
        arguments = self._undo_arguments(undo, identity, output)
        if isinstance(arguments, str):
            return Answer(OutcomeKind.REJECTED, failure=Failure("refused", arguments))
        asked = Asked(undo.name, arguments, identity, self.world.folder, Direction.COMPENSATION)
        answer = self.world.caller.call(asked)
        if answer.kind is OutcomeKind.SUCCEEDED:
            self._standing.pop(identity, None)
        return answer

    def _undo_arguments(self, undo: ToolFacts, identity: Identity, output: Json) -> dict[str, Json] | str:
        """Return the arguments of the compensation, or why it would be refused."""
        scope = {"args": self.arguments(identity), "output": output}
        try:
            value = self.world.render(self.subject.undo_with, identity, scope)
        except ExpressionError as error:
            return str(error)
        found = value if isinstance(value, dict) else {}
        if output is None:  # E7: without an output, what comes out as null is left out
            found = {name: each for name, each in found.items() if each is not None}
        return self.world.caller.tools.check_arguments(undo, found) or found

    def probe(self, identity: Identity) -> ProbeReply:
        """Ask the probe with those of the action's arguments that it knows, and see that it changes nothing."""
        probe = self.subject.probe
        assert probe is not None, "there is a probe"
        arguments = choose_probe_arguments(probe, self.arguments(identity))
        before = self.look()
        reply = self.world.caller.probe(Asked(probe.name, arguments, identity, self.world.folder))
        changes = compare(before, self.look())
        self.book.require(Rule.READS_ONLY, f"{probe.name} changed something: {describe(changes)}" if changes else "")
        return reply

    def close(self) -> list[str]:
        """Undo what the case has left, as well as can be, tear the world down, and return what may be left of it."""
        left = [] if self.subject.undo is None else [self._take_back(*each) for each in list(self._standing.items())]
        return [each for each in (*left, *self.world.tear_down()) if each]

    def _take_back(self, identity: Identity, output: Json) -> str:
        """Undo one call, and return why it isn't undone; without an output only what can do without is asked.

        What the probe says was never done needs no undo.
        """
        undo = self.subject.undo
        assert undo is not None, "there is a compensation"
        try:
            if output is None and not undo.null_safe and self.subject.probe is not None:
                reply = self.probe(identity)
                if reply.answer is ProbeAnswer.NOT_DONE:
                    return ""
                output = reply.output
            answer = self.undo(identity, output)
        except (SetUpError, HangingError, RefusedError) as error:
            return f"something may be left of a call: {error}"
        is_undone = answer.kind is OutcomeKind.SUCCEEDED
        return "" if is_undone else f"something may be left of a call: {undo.name} came to {say_answer(answer)}"


def say_answer(answer: Answer) -> str:
    """Return in words what a call came to."""
    return f"{answer.kind}: {answer.failure}" if answer.failure is not None else str(answer.kind)
