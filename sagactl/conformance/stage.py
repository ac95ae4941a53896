"""A tool in the world of one case: its action, its compensation and its probe, called as the engine calls them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from sagactl.conformance.book import Book
from sagactl.conformance.calling import Asked, HangingError, Identity
from sagactl.conformance.check_file import NOTHING, CheckFile, ToolEntry
from sagactl.conformance.looks import Index, compare, describe
from sagactl.conformance.rules import Rule
from sagactl.conformance.world import SetUpError, World
from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.calls import choose_probe_arguments
from sagactl.core.canonical import Json
from sagactl.core.records import Direction, Failure, OutcomeKind
from sagactl.core.saga import ToolFacts
from sagactl.core.template import ExpressionError, Template
from sagactl.dataclass import dataclass


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
        answer = self.world.caller.call(self.ask(identity))
        if answer.kind is OutcomeKind.SUCCEEDED:
            self._standing[identity] = answer.output
        return answer

    def act_at_once(self, identity: Identity, number: int) -> list[Answer]:
        """Call the action so many times at the same moment."""
        answers = self.world.caller.call_at_once(self.ask(identity), number)
        for answer in answers:
            if answer.kind is OutcomeKind.SUCCEEDED:
                self._standing[identity] = answer.output
        return answers

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

    def close(self) -> None:
        """Undo what the case has left, as well as can be, and tear the world down; raises SetUpError."""
        with suppress(SetUpError, HangingError):
            for identity, output in list(self._standing.items()) if self.subject.undo is not None else ():
                self.undo(identity, output)
        self.world.tear_down()


def say_answer(answer: Answer) -> str:
    """Return in words what a call came to."""
    return f"{answer.kind}: {answer.failure}" if answer.failure is not None else str(answer.kind)
