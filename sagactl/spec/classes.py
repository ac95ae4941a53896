"""What can be done about each step once it has run (rules F4 and F6), and with which tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from sagactl.core.saga import CompensateFailed, OnUnknown, StepClass, ToolFacts
from sagactl.dataclass import dataclass
from sagactl.spec.draft import DraftPolicy, DraftStep, DraftUndo
from sagactl.spec.expressions import node_of
from sagactl.spec.graph import Graph
from sagactl.written.fields import Placed
from sagactl.written.findings import Findings
from sagactl.written.positions import Node
from sagactl.written.source import Span
from sagactl.written.visible import quote

WhyMissing: TypeAlias = "Callable[[str], tuple[str, str | None] | None]"
"""What keeps a tool that somebody provides from being used, by its name."""

_REASON_LENGTH_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class ResolvedUndo:
    """A compensation with its tool and arguments, its own or those of the plugin's pair."""

    facts: ToolFacts
    span: Span
    arguments: Node
    policy: DraftPolicy


@dataclass(frozen=True, slots=True)
class ResolvedStep:
    """A step with its tools and class; without `facts` where its tool isn't there."""

    draft: DraftStep
    klass: StepClass
    facts: ToolFacts | None
    undo: ResolvedUndo | None = None
    reason: str | None = None

    @property
    def tool_span(self) -> Span:
        """Return where the tool is named, or else the step."""
        return self.draft.span if self.draft.tool is None else self.draft.tool.span


class Toolset:
    """The tools that there are; each that is missing is noted where it is asked for."""

    def __init__(
        self, tools: Mapping[str, ToolFacts], findings: Findings, why_missing: WhyMissing | None = None
    ) -> None:
        self._tools = tools
        self._findings = findings
        self._why_missing = why_missing
        self.used: dict[str, ToolFacts] = {}

    def find(self, name: Placed[str] | None, *, asked_by: str | None = None) -> ToolFacts | None:
        """Return the facts of a tool, with those of its probe at hand; *asked_by* is the tool whose plugin names it."""
        if name is None:
            return None
        facts = self._tools.get(name.value)
        if facts is None:
            self._report(name, asked_by)
            return None
        if name.value not in self.used:
            self.used[name.value] = facts
            if facts.probe is not None:
                self.find(Placed(facts.probe, name.span), asked_by=name.value)
        return facts

    def _report(self, name: Placed[str], asked_by: str | None) -> None:
        found = None if self._why_missing is None else self._why_missing(name.value)
        if found is not None:
            reason, remedy = found
            subject = f"the tool {quote(name.value)}"
            subject = subject if asked_by is None else f"{asked_by} names {subject}, which"
            message = f"{subject} can't be used: {quote(reason, _REASON_LENGTH_MAX)}"
            self._findings.error(
                "unknown-tool", message, name.span, hint=remedy or "`sagactl tools` shows what is broken"
            )
            return
        if asked_by is None:
            message, hint = (
                f"no tool named {quote(name.value)}",
                "`sagactl tools` lists those of plugins; a program gives its own to `open_project`",
            )
        else:
            message = f"{asked_by} names the tool {quote(name.value)}, and there is none of that name"
            hint = f"see to the plugin of {asked_by}"
        self._findings.unknown("unknown-tool", message, name.span, word=name.value, known=self._tools, hint=hint)


def resolve_steps(graph: Graph, tools: Toolset, findings: Findings) -> list[ResolvedStep]:
    """Give each step its tools and class, and note what F4 forbids."""
    return [_resolve(step, position, graph, tools, findings) for position, step in enumerate(graph.steps)]


def _resolve(step: DraftStep, position: int, graph: Graph, tools: Toolset, findings: Findings) -> ResolvedStep:
    facts = tools.find(step.tool)
    reason = None if step.undo is None else step.undo.reason
    is_read_only = step.read_only.value if step.read_only is not None else facts is not None and facts.read_only
    undo = None if reason is not None else _resolve_undo(step, facts, tools, findings, is_read_only=is_read_only)
    klass = _class_of(step, undo, reason, is_behind=graph.is_behind_pivot(position), is_read_only=is_read_only)
    if klass is StepClass.READ_ONLY:
        undo = None
    resolved = ResolvedStep(step, klass, facts, undo, reason)
    _check_marks(resolved, findings, is_read_only=is_read_only)
    if facts is not None:
        _check_class(resolved, facts, findings)
        _check_doubt(resolved, facts, findings)
    if undo is not None:
        _check_undo(resolved, undo, findings)
    return resolved


def _class_of(
    step: DraftStep, undo: ResolvedUndo | None, reason: str | None, *, is_behind: bool, is_read_only: bool
) -> StepClass:
    if is_behind:
        return StepClass.RETRIABLE
    if step.is_pivot:
        return StepClass.PIVOT
    if is_read_only and undo is None and reason is None:
        return StepClass.READ_ONLY
    return StepClass.COMPENSABLE if reason is None else StepClass.NOT_UNDOABLE


def _resolve_undo(
    step: DraftStep, facts: ToolFacts | None, tools: Toolset, findings: Findings, *, is_read_only: bool
) -> ResolvedUndo | None:
    """Return the step's own compensation, or else the pair of its tool."""
    written = step.undo
    if written is not None and written.tool is not None:
        own = tools.find(written.tool)
        return None if own is None else _make_undo(own, written.tool.span, written, facts)
    if facts is None or step.tool is None or (written is None and is_read_only):
        return None
    if facts.compensation is None:
        if written is not None and (written.arguments is not None or written.policy != DraftPolicy()):
            message = f"{facts.name} is paired with no compensation, so compensate must name a tool"
            findings.error("no-pair", message, written.span, hint="add tool: to it")
        return None
    paired = tools.find(Placed(facts.compensation, step.tool.span), asked_by=facts.name)
    return None if paired is None else _make_undo(paired, step.tool.span, written, facts)


def _make_undo(undo: ToolFacts, span: Span, written: DraftUndo | None, facts: ToolFacts | None) -> ResolvedUndo:
    """Fill in the arguments: those written, else those of the pair if it is one, else none."""
    policy = DraftPolicy() if written is None else written.policy
    if written is not None and written.arguments is not None:
        return ResolvedUndo(undo, span, written.arguments, policy)
    is_pair = facts is not None and facts.compensation == undo.name
    arguments = dict(facts.compensation_with or {}) if facts is not None and is_pair else {}
    return ResolvedUndo(undo, span, node_of(arguments, span), policy)


def _check_marks(step: ResolvedStep, findings: Findings, *, is_read_only: bool) -> None:
    draft = step.draft
    if draft.read_only is not None and draft.read_only.value and draft.is_pivot:
        message = f"{draft.label} can't be both pivot and read_only: reading is no point of no return"
        findings.error("pivot-read-only", message, draft.read_only.span)
    elif is_read_only and draft.is_pivot and draft.pivot is not None:
        message = f"{draft.label} can't be a pivot: its tool only reads"
        findings.error("pivot-read-only", message, draft.pivot.span)
    if draft.is_pivot and draft.foreach is not None:
        message = f"{draft.label} can't be both pivot and foreach: a point of no return is one call"
        findings.error("pivot-foreach", message, draft.foreach.key_span)
    pair = None if step.facts is None or step.facts.read_only else step.facts.compensation
    if is_read_only and pair is not None and draft.read_only is not None and not draft.is_pivot:
        message = f"{draft.label} can't be read_only: its tool is paired with {pair}, which would never be called"
        hint = 'leave read_only out, or write compensate: {none: "why not"} instead'
        findings.error("read-only-compensate", message, draft.read_only.span, hint=hint)
    elif is_read_only and draft.undo is not None:
        message = f"{draft.label} only reads, so there is nothing to compensate"
        findings.error("read-only-compensate", message, draft.undo.span, hint="leave compensate out")
    if draft.concurrency is not None and draft.foreach is None:
        message = "concurrency has no effect without foreach"
        findings.warning("no-effect", message, draft.concurrency.span)


def _check_class(step: ResolvedStep, facts: ToolFacts, findings: Findings) -> None:
    draft = step.draft
    is_bare = step.undo is None and draft.undo is None and facts.compensation is None
    if step.klass is StepClass.COMPENSABLE and is_bare:
        message = f"{draft.label} can't be undone, and it doesn't say so"
        hint = f'{facts.name} has no pair: give compensate, compensate: {{none: "why not"}}, or read_only: true'
        findings.error("no-class", message, draft.span, hint=hint)
    if step.klass is StepClass.RETRIABLE and not _is_safe(facts):
        message = f"behind the pivot {facts.name} must be safe to repeat: it is neither idempotent nor has it a probe"
        findings.error("unsafe-retriable", message, step.tool_span, hint="move the step before the pivot")


def _is_safe(facts: ToolFacts) -> bool:
    return facts.idempotent or facts.read_only or facts.probe is not None


def _check_doubt(step: ResolvedStep, facts: ToolFacts, findings: Findings) -> None:
    """Check what is to be done with an action in doubt (E6)."""
    written = step.draft.policy.on_unknown
    if written is None:
        if not _is_safe(facts) and step.klass is not StepClass.RETRIABLE:
            message = f"in doubt, {facts.name} can neither be repeated nor probed: a person will be asked"
            findings.warning("ask-in-doubt", message, step.tool_span, hint="say on_unknown: ask if that is meant")
        return
    _check_policy(written, facts, findings)
    if written.value is OnUnknown.COMPENSATE and step.klass in {StepClass.PIVOT, StepClass.RETRIABLE}:
        where = "at" if step.klass is StepClass.PIVOT else "behind"
        message = f"{where} the pivot nothing is compensated, so on_unknown can't be compensate"
        findings.error("compensate-at-pivot", message, written.span, hint="use probe, retry or ask")
    elif written.value is OnUnknown.COMPENSATE and step.klass is not StepClass.COMPENSABLE:
        message = f"{step.draft.label} has nothing to compensate, so on_unknown can't be compensate"
        findings.error("nothing-to-undo", message, written.span, hint="use probe, retry or ask")


def _check_policy(written: Placed[OnUnknown], facts: ToolFacts, findings: Findings) -> None:
    if written.value is OnUnknown.PROBE and facts.probe is None:
        message = f"{facts.name} has no probe"
        findings.error("no-probe", message, written.span, hint="use retry or ask, or give the tool a probe")
    if written.value is OnUnknown.RETRY and not (facts.idempotent or facts.read_only):
        message = f"{facts.name} isn't idempotent: to repeat it in doubt could do it twice"
        findings.error("unsafe-retry", message, written.span, hint="use probe or ask")


def _check_undo(step: ResolvedStep, undo: ResolvedUndo, findings: Findings) -> None:
    facts = undo.facts
    if facts.read_only:
        message = f"the compensation {facts.name} only reads, so it undoes nothing"
        hint = _blame_pair(step) or "name the tool that takes back what the action did"
        findings.error("read-only-undo", message, undo.span, hint=hint)
        return
    if not _is_safe(facts):
        message = f"the compensation {facts.name} is neither idempotent nor has it a probe, so it can't be repeated"
        hint = _blame_pair(step) or "make it idempotent by its key, or give it a probe"
        findings.error("unsafe-compensation", message, undo.span, hint=hint)
    if undo.policy.on_unknown is not None:
        _check_policy(undo.policy.on_unknown, facts, findings)
    action = step.facts
    is_asked = step.klass is StepClass.COMPENSABLE and step.draft.compensate_failed is not CompensateFailed.NEVER
    if is_asked and action is not None and action.probe is None and not facts.null_safe:
        message = f"if {action.name} is in doubt, nothing tells {facts.name} what to undo: a person will be asked"
        hint = f"give {action.name} a probe, or make {facts.name} null_safe"
        findings.warning("undo-in-doubt", message, undo.span, hint=hint)


def _blame_pair(step: ResolvedStep) -> str | None:
    """Return whose mistake a bad compensation is where it is not the saga's: that of the plugin that pairs it."""
    is_written = step.draft.undo is not None and step.draft.undo.tool is not None
    return None if is_written or step.facts is None else f"{step.facts.name} is paired with it by its plugin: see there"


def choose_on_unknown(policy: DraftPolicy, facts: ToolFacts, *, is_undo: bool = False) -> OnUnknown:
    """Return what is done in doubt: what is written, else what E6 and E12 say."""
    if policy.on_unknown is not None:
        return policy.on_unknown.value
    is_repeatable = facts.idempotent or facts.read_only
    if is_undo:
        return OnUnknown.RETRY if is_repeatable else OnUnknown.PROBE
    if facts.probe is not None:
        return OnUnknown.PROBE
    return OnUnknown.RETRY if is_repeatable else OnUnknown.ASK
