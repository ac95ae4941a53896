"""From a draft without errors to the saga that runs: every default filled in (rules E5, E6, E12)."""

from __future__ import annotations

from collections.abc import Mapping

from sagactl.core.canonical import Json
from sagactl.core.saga import SETTLE_MS, Approval, Call, Saga, Step, StepClass, ToolFacts
from sagactl.core.template import Literal, Template
from sagactl.spec.classes import ResolvedStep, choose_on_unknown
from sagactl.spec.draft import DraftApproval, DraftPolicy, DraftSaga
from sagactl.spec.expressions import read_template
from sagactl.spec.graph import Graph
from sagactl.spec.policy import action_retry, start_to_close_ms, undo_retry
from sagactl.written.findings import Findings
from sagactl.written.positions import Entry, Node, plain_value

NO_INPUT: Mapping[str, Json] = {"type": "object", "additionalProperties": False}
"""The schema of a saga without `input`: it takes none."""


def build_saga(
    draft: DraftSaga, graph: Graph, steps: list[ResolvedStep], tools: Mapping[str, ToolFacts], findings: Findings
) -> Saga:
    """Return the saga of a draft that was found to be right."""
    build = _Build(draft, graph, findings)
    return Saga(
        name=draft.name,
        steps=tuple(build.step(position, step) for position, step in enumerate(steps)),
        tools=dict(sorted(tools.items())),
        version=draft.version,
        description=draft.description,
        input_schema=build.input_schema(),
        run_key=build.optional(draft.run_key),
        run_timeout_ms=None if draft.run_timeout_ms is None else draft.run_timeout_ms.value,
        settle_timeout_ms=SETTLE_MS if draft.settle_timeout_ms is None else draft.settle_timeout_ms.value,
        compensation_concurrency=draft.compensation_concurrency,
        output=build.optional(draft.output),
        secrets=tuple(draft.secrets),
        source=findings.source.file,
    )


class _Build:
    """Makes the parts of one saga."""

    def __init__(self, draft: DraftSaga, graph: Graph, findings: Findings) -> None:
        self._draft = draft
        self._graph = graph
        self._findings = findings

    def input_schema(self) -> Mapping[str, Json]:
        schema = NO_INPUT if self._draft.input is None else plain_value(self._draft.input.node)
        assert isinstance(schema, Mapping), "the schema was checked"
        return schema

    def optional(self, entry: Entry | None) -> Template | None:
        return None if entry is None else self._template(entry.node)

    def _template(self, node: Node) -> Template:
        template = read_template(node, self._findings)
        assert template is not None, "all templates were read before"
        return template

    def step(self, position: int, step: ResolvedStep) -> Step:
        draft = step.draft
        assert draft.id is not None, "the id was checked"
        return Step(
            id=draft.id,
            klass=step.klass,
            action=self._action(step),
            compensation=self._compensation(step),
            not_undoable_reason=step.reason,
            needs=tuple(self._draft.steps[need].id or "" for need in self._graph.needs[position]),
            when=self.optional(draft.when),
            foreach=self.optional(draft.foreach),
            concurrency=1 if draft.concurrency is None else draft.concurrency.value,
            guard=self.optional(draft.guard),
            approval=None if draft.approval is None else self._approval(draft.approval),
            compensate_failed=draft.compensate_failed,
            description=draft.description,
            agent=draft.agent,
            line=draft.line,
        )

    def _approval(self, draft: DraftApproval) -> Approval:
        return Approval(
            required=self.optional(draft.required),
            by=() if draft.by is None else tuple(each.value for each in draft.by),
            timeout_ms=None if draft.timeout_ms is None else draft.timeout_ms.value,
        )

    def _action(self, step: ResolvedStep) -> Call:
        policy, defaults = step.draft.policy, self._draft.defaults
        assert step.facts is not None, "the tool was found"
        whole = policy.schedule_to_close_ms or defaults.schedule_to_close_ms
        if policy.schedule_to_close_ms is None and step.facts.pending_max_ms is not None:
            whole = None  # the bound of a tool that waits is its own, whatever the default of others is
        return Call(
            tool=step.facts.name,
            arguments=Literal({}) if step.draft.arguments is None else self._template(step.draft.arguments),
            retry=action_retry(policy, defaults, is_patient=step.klass is StepClass.RETRIABLE),
            start_to_close_ms=start_to_close_ms(policy, defaults),
            schedule_to_close_ms=step.facts.pending_max_ms if whole is None else whole.value,
            on_unknown=choose_on_unknown(policy, step.facts),
        )

    def _compensation(self, step: ResolvedStep) -> Call | None:
        undo = step.undo
        if undo is None:
            return None
        return Call(
            tool=undo.facts.name,
            arguments=self._template(undo.arguments),
            retry=undo_retry(undo.policy),
            start_to_close_ms=start_to_close_ms(undo.policy, self._draft.defaults),
            schedule_to_close_ms=_value(undo.policy) or undo.facts.pending_max_ms,
            on_unknown=choose_on_unknown(undo.policy, undo.facts, is_undo=True),
        )


def _value(policy: DraftPolicy) -> int | None:
    return None if policy.schedule_to_close_ms is None else policy.schedule_to_close_ms.value
