"""The whole check: one tool after the other, each case in a world of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from sagactl.conformance.book import Book
from sagactl.conformance.calling import Caller, HangingError, Identity
from sagactl.conformance.cases import ACTING, IN_TURN, MISFITS, READING, REJECTED, UNDOING, Case
from sagactl.conformance.check_file import list_secrets_named, list_tools_named
from sagactl.conformance.choosing import Left
from sagactl.conformance.report import Finding, ToolReport, Verdict
from sagactl.conformance.rules import Rule
from sagactl.conformance.stage import Stage, Subject
from sagactl.conformance.world import SetUpError, World, make_folder
from sagactl.core.keys import STEP_ID
from sagactl.core.saga import ToolFacts
from sagactl.core.secrets import secrets_named
from sagactl.core.template import Evaluator
from sagactl.dataclass import dataclass
from sagactl.errors import RefusedError
from sagactl.identity import make_run_id
from sagactl.secrets.masking import KNOWN
from sagactl.tools.base import Toolbox

TIMEOUT_SECONDS: Final = 30.0
"""How long one call may take."""

OTHER: Final = "other"
"""The step of somebody else's operation: a ledger tells it from the one that is tried."""

_UNDO_RULES: Final = frozenset(
    {Rule.UNDO, Rule.UNDO_TWICE, Rule.UNDO_LOST_OUTPUT, Rule.UNDO_NEVER_RAN, Rule.LATE, Rule.OTHER_KEY}
)
_READ_RULES: Final = frozenset({Rule.SUCCEEDS, Rule.SCHEMA, Rule.READS_ONLY, Rule.DEADLINE})


@dataclass(frozen=True, slots=True)
class Suite:
    """Checks tools; *place* is the folder in which worlds are made, *rules* are those that are asked about."""

    tools: Toolbox
    evaluator: Evaluator
    place: Path
    origin_of: Callable[[str], tuple[str, int]]
    """File and line of a tool."""
    rules: frozenset[Rule] = frozenset(Rule)
    timeout_seconds: float = TIMEOUT_SECONDS

    @property
    def calling(self) -> Path:
        """The file with the name of the tool that is called."""
        return self.place / "calling"

    def leave(self, left: Left) -> ToolReport:
        """Return why a tool isn't tried."""
        found = {rule: Finding(rule, Verdict.UNTRIED, left.why) for rule in self._list_rules(left.facts)}
        return self.begin_report(left.facts, found)

    def check(self, subject: Subject) -> tuple[ToolReport, list[str]]:
        """Return what came of one tool, and what else went wrong."""
        bench = _Bench(self, subject)
        found = bench.try_all()
        asked = {rule: each for rule, each in found.items() if rule in self.rules}
        report = replace(
            self.begin_report(subject.facts, asked),
            compensation=subject.undo.name if subject.undo else None,
            probe=subject.probe.name if subject.probe else None,
        )
        return report, bench.notes

    def begin_report(self, facts: ToolFacts, findings: Mapping[Rule, Finding]) -> ToolReport:
        """Return a report of these findings, with what is known of the tool."""
        file, line = self.origin_of(facts.name)
        return ToolReport(facts.name, facts.plugin, file, line, facts.compensation, facts.probe, findings)

    def _list_rules(self, facts: ToolFacts) -> Sequence[Rule]:
        concerned = list_rules(facts, has_undo=facts.compensation is not None, has_probe=facts.probe is not None)
        return [rule for rule in concerned if rule in self.rules]


def list_rules(facts: ToolFacts, *, has_undo: bool, has_probe: bool) -> list[Rule]:
    """Return the rules that concern a tool; that it tells no secret concerns those that are given one."""
    if facts.read_only:
        return [rule for rule in Rule if rule in _READ_RULES]
    without = set() if has_undo else set(_UNDO_RULES)
    without |= set() if has_probe else {Rule.PROBE, Rule.READS_ONLY}
    return [rule for rule in Rule if rule not in without and rule is not Rule.SECRETS]


class _Bench:
    """One tool under way."""

    def __init__(self, suite: Suite, subject: Subject) -> None:
        self._suite = suite
        self._subject = subject
        self._book = Book()
        self._caller = Caller(suite.tools, suite.timeout_seconds, suite.calling)
        self.notes: list[str] = []

    def try_all(self) -> dict[Rule, Finding]:
        """Try each case that has a rule which is asked about."""
        why = self._find_missing_secrets() or self._try_cases()
        self._note_all_calls()
        facts = self._subject.facts
        concerned = list_rules(
            facts, has_undo=self._subject.undo is not None, has_probe=self._subject.probe is not None
        )
        known = self._book.finish({})
        for rule in concerned:
            if rule not in known:
                self._book.leave(rule, why or "it didn't come so far")
        return self._book.finish(self._subject.entry.excused)

    def _find_missing_secrets(self) -> str:
        named = self._list_secrets()
        missing = self._suite.tools.missing_secrets(named) if named else {}
        return "; ".join(f"the secret {name} is missing: {why}" for name, why in missing.items())

    def _list_secrets(self) -> list[str]:
        """Return the secrets that the calls need: those that are named as arguments, and the tools' own."""
        subject, tools = self._subject, self._suite.tools
        named = list(secrets_named(subject.arguments, None))
        partners = [each for each in (subject.facts, subject.undo, subject.probe) if each is not None]
        partners += [tools.facts(name) for name in list_tools_named(subject.file, subject.entry)]
        own = [name for each in partners for name in each.secrets]
        return list(dict.fromkeys([*named, *list_secrets_named(subject.file, subject.entry), *own]))

    def _try_cases(self) -> str:
        """Make the cases, and return why not all of them could be made."""
        for case in self._list_cases():
            try:
                with self._open_stage() as stage:
                    case.try_it(stage)
            except HangingError as error:
                return f"{error}: nothing more was tried"
            except (SetUpError, RefusedError) as error:
                self._book.breach(Rule.SUCCEEDS, str(error))
            if self._has_failed():
                return "it doesn't succeed"
        return ""

    def _has_failed(self) -> bool:
        found = self._book.finish({}).get(Rule.SUCCEEDS)
        return found is not None and found.verdict is Verdict.BROKEN

    def _list_cases(self) -> list[Case]:
        subject = self._subject
        if subject.entry.rejects:
            rejects = [REJECTED]
        else:
            rejects = []
            if not subject.facts.read_only:  # what changes nothing has no effect to leave behind
                self._book.leave(Rule.REJECTS, "its check file has no rejects")
        if subject.facts.read_only:
            cases = [READING, MISFITS, *rejects]
        else:
            cases = [*ACTING, *(UNDOING if subject.undo is not None else ()), *rejects]
        return [case for case in cases if case in {IN_TURN, READING} or self._suite.rules & set(case.rules)]

    @contextmanager
    def _open_stage(self) -> Iterator[Stage]:
        """Give the tool in a world of its own, which is torn down at the end."""
        subject = self._subject
        mine, other = Identity(make_run_id(), _name_step(subject.facts.name)), Identity(make_run_id(), OTHER)
        with make_folder(self._suite.place) as folder:
            world = World(folder, self._caller, (subject.file, subject.entry), self._suite.evaluator, mine.run_id)
            try:
                world.set_up()
            except SetUpError as error:
                self._tell_left(world.tear_down() if world.is_touched else [])
                raise SetUpError(f"the world can't be set up: {error}") from None
            stage = Stage(subject, world, self._book, (mine, other), self._open_stage)
            try:
                yield stage
            finally:
                self._tell_left(stage.close())

    def _tell_left(self, failures: Sequence[str]) -> None:
        """Say what the check leaves in a system elsewhere."""
        told = [f"{self._subject.facts.name}: {failure}" for failure in failures]
        self.notes += [each for each in dict.fromkeys(told) if each not in self.notes]

    def _note_all_calls(self) -> None:
        """Note what holds for all calls that were made."""
        caller = self._caller
        if not caller.is_used:
            return
        self._book.require(Rule.DEADLINE, caller.late)
        if caller.telling or (KNOWN.is_active and self._list_secrets()):
            self._book.require(Rule.SECRETS, caller.telling)


def _name_step(tool: str) -> str:
    """Return the id of the step that calls *tool*: its verb."""
    name = tool.rpartition(".")[2].replace("-", "_")[:63]
    return name if STEP_ID.fullmatch(name) else "step"
