"""The whole check of a saga and, where nothing is wrong, the saga itself (rules F3 to F9).

Each part of the check looks at the draft by itself and notes all that it finds, so that one run shows everything. The
order matters only for what a part is given: the graph says who is an ancestor, the tools say what they take and give,
the expressions need both, the arguments need the expressions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from sagactl.core.canonical import Json
from sagactl.core.saga import Saga, StepClass
from sagactl.core.template import Path, Reference
from sagactl.dataclass import dataclass
from sagactl.schemas.durations import format_duration
from sagactl.spec.arguments import COMPARISONS_MAX, CallSite, check_arguments, check_secrets
from sagactl.spec.build import NO_INPUT, build_saga
from sagactl.spec.classes import ResolvedStep, Toolset, resolve_steps
from sagactl.spec.compiling import Compiler
from sagactl.spec.draft import DraftPolicy, DraftSaga, DraftStep
from sagactl.spec.expressions import PlacedExpression, placed_expressions, read_template, texts
from sagactl.spec.fit import Budget
from sagactl.spec.graph import Graph, build_graph, check_barrier
from sagactl.spec.guards import conditions, succeeded_if_true
from sagactl.spec.input_schema import check_input_schema
from sagactl.spec.policy import action_retry, check_fit, check_run_fit, start_to_close_ms, undo_retry
from sagactl.spec.printed import output_schema
from sagactl.spec.references import Facts, Place, View, check_expression, loop_types, output_of, type_at
from sagactl.spec.retention import check_retention
from sagactl.spec.schema_types import Typed, type_name
from sagactl.written.findings import Findings
from sagactl.written.positions import Entry, ListNode, MapNode, Node, Scalar, plain_value

_BOOLEAN: Final = frozenset({"boolean"})
_ARRAY: Final = frozenset({"array"})


def check_saga(draft: DraftSaga, tools: Toolset, findings: Findings) -> Saga | None:
    """Note all that is wrong with *draft*; return the saga where nothing is."""
    graph = build_graph(draft.steps, findings)
    check_barrier(graph, findings)
    steps = resolve_steps(graph, tools, findings)
    if draft.input is not None:
        check_input_schema(draft.input, findings)
    _check_syntax(draft, steps, findings)
    checker = _Checker(draft, steps, _gather(draft, graph, steps, findings), findings)
    checker.run()
    _check_policies(draft, steps, findings)
    if findings.has_errors:
        return None
    return build_saga(draft, graph, steps, tools.used, findings)


def _check_syntax(draft: DraftSaga, steps: list[ResolvedStep], findings: Findings) -> None:
    """Note each text whose expressions can't be told apart from the rest."""
    entries = [draft.run_key, draft.output]
    nodes: list[Node] = []
    for step in steps:
        entries += [step.draft.when, step.draft.foreach, step.draft.guard, step.draft.approval_required]
        written = step.draft.undo
        nodes += [
            node for node in (step.draft.arguments, None if written is None else written.arguments) if node is not None
        ]
        if step.undo is not None and (written is None or written.arguments is None):
            nodes.append(step.undo.arguments)
    for node in [*(entry.node for entry in entries if entry is not None), *nodes]:
        read_template(node, findings)


def _gather(draft: DraftSaga, graph: Graph, steps: list[ResolvedStep], findings: Findings) -> Facts:
    schema = NO_INPUT if draft.input is None else plain_value(draft.input.node)
    return Facts(
        graph=graph,
        input=Typed.of(schema if isinstance(schema, Mapping) else {}),
        outputs={
            position: output_of(
                output_schema(step.facts, step.draft.arguments), has_foreach=step.draft.foreach is not None
            )
            for position, step in enumerate(steps)
            if step.facts is not None
        },
        conditional=frozenset(step.id for step in draft.steps if step.id is not None and _may_be_skipped(step)),
        findings=findings,
    )


def _may_be_skipped(step: DraftStep) -> bool:
    return step.when is not None and not (isinstance(step.when.node, Scalar) and step.when.node.value is True)


@dataclass(frozen=True)
class _Checker:
    """The part of the check that looks at expressions and at the arguments that they make."""

    draft: DraftSaga
    steps: list[ResolvedStep]
    facts: Facts
    findings: Findings

    def run(self) -> None:
        compiler = Compiler(self.findings)
        budget = Budget(COMPARISONS_MAX)
        certain = self._certain()
        used: set[str] = set()
        for position, step in enumerate(self.steps):
            view = View(Place.WHEN, self.facts, position, certain[position])
            self._check_conditions(step, view, compiler)
            for site, seen in self._sites(step, view, compiler):
                self._look(site.expressions, seen)
                check_arguments(site, partial(compiler.types_of, view=seen), budget, self.findings)
                used |= check_secrets(site, self.draft.secrets, self.findings)
        self._check_saga_keys(compiler)
        for name in self.draft.secrets.keys() - used:
            message = f"the secret {name} is listed and never used"
            self.findings.warning("unused-secret", message, self.draft.secrets[name])

    def _place(self, node: Node) -> tuple[PlacedExpression, ...]:
        return tuple(placed_expressions(node, self.findings.source))

    def _look(self, expressions: tuple[PlacedExpression, ...], view: View) -> None:
        for placed in expressions:
            check_expression(placed, view)

    def _check_conditions(self, step: ResolvedStep, view: View, compiler: Compiler) -> None:
        draft = step.draft
        guard_view = replace(view, place=Place.GUARD, own=self._loop(step, view))
        asked_view = replace(view, place=Place.APPROVAL)
        for entry, seen in ((draft.when, view), (draft.guard, guard_view), (draft.approval_required, asked_view)):
            if entry is not None:
                self._check_one(entry, seen, compiler, _BOOLEAN)
        if draft.foreach is not None:
            seen = replace(view, place=Place.FOREACH)
            if isinstance(draft.foreach.node, ListNode):
                self._look(self._place(draft.foreach.node), seen)
                for placed in self._place(draft.foreach.node):
                    compiler.types_of(placed, seen)
            else:
                self._check_one(draft.foreach, seen, compiler, _ARRAY)

    def _check_one(self, entry: Entry, view: View, compiler: Compiler, wanted: frozenset[str]) -> None:
        """Check a key that is one expression of a certain type."""
        for placed in self._place(entry.node):
            check_expression(placed, view)
            compiler.expect(placed, view, wanted, entry.key)
            if not placed.is_whole:
                message = f"{entry.key} is one expression, with no text around it"
                self.findings.error("wrong-type", message, entry.span)
                return

    def _loop(self, step: ResolvedStep, view: View) -> dict[str, Typed]:
        foreach = step.draft.foreach
        if foreach is None:
            return {}
        if isinstance(foreach.node, ListNode):
            return loop_types(_type_of_items(foreach.node))
        placed = next(iter(self._place(foreach.node)), None)
        is_reference = placed is not None and placed.is_whole and isinstance(placed.found, Reference)
        seen = replace(view, place=Place.FOREACH)
        return loop_types(type_at(placed.paths[0], seen) if placed is not None and is_reference else Typed.of({}))

    def _sites(self, step: ResolvedStep, view: View, compiler: Compiler) -> Iterator[tuple[CallSite, View]]:
        """Yield the calls that a step can make, with what their arguments can see."""
        facts = step.facts
        handed: tuple[Path, ...] = ()
        loop = self._loop(step, view)
        arguments = step.draft.arguments
        if facts is not None:
            node = arguments or MapNode((), step.tool_span)
            site = CallSite(facts, node, self._place(node), step.tool_span)
            handed = site.secrets
            yield site, replace(view, place=Place.ACTION, own=loop)
        elif arguments is not None:
            self._look_only(arguments, replace(view, place=Place.ACTION, own=loop), compiler)
        own = dict(loop)
        if facts is not None:
            given = _given(facts.arguments_schema, arguments)
            own |= {"args": Typed.of(given), "output": Typed.of(output_schema(facts, arguments))}
        else:
            own |= {"args": Typed.of({}), "output": Typed.of({})}
        seen = replace(view, place=Place.UNDO, own=own)
        if step.undo is not None:
            undo = step.undo
            yield CallSite(undo.facts, undo.arguments, self._place(undo.arguments), undo.span, handed), seen
        elif step.draft.undo is not None and step.draft.undo.arguments is not None:
            self._look_only(step.draft.undo.arguments, seen, compiler)

    def _look_only(self, node: Node, view: View, compiler: Compiler) -> None:
        """Check expressions whose tool isn't there."""
        expressions = self._place(node)
        self._look(expressions, view)
        for placed in expressions:
            compiler.types_of(placed, view)

    def _check_saga_keys(self, compiler: Compiler) -> None:
        if self.draft.run_key is not None:
            view = View(Place.RUN_KEY, self.facts)
            for placed in self._place(self.draft.run_key.node):
                check_expression(placed, view)
                compiler.expect_text(placed, view, "run_key")
        if self.draft.output is not None:
            self._look_only(self.draft.output.node, View(Place.OUTPUT, self.facts), compiler)

    def _certain(self) -> list[frozenset[str]]:
        """Return, for each step, which steps have certainly succeeded when it runs: what its `when` says."""
        graph = self.facts.graph
        texts = {position: text for position, step in enumerate(self.steps) if (text := self._when_text(step))}
        parts = {position: conditions(text) for position, text in texts.items()}
        certain: list[frozenset[str]] = [frozenset()] * len(self.steps)
        for position in (each for each in graph.order if each in texts):
            own = set(succeeded_if_true(texts[position]))
            for other, conditions_ in parts.items():
                name = self.steps[other].draft.id
                if name is not None and graph.is_ancestor(other, position) and conditions_ <= parts[position]:
                    own.add(name)
            known = (graph.index[name] for name in own if name in graph.index)
            certain[position] = frozenset(own).union(*(certain[each] for each in known))
        return certain

    def _when_text(self, step: ResolvedStep) -> str | None:
        if step.draft.when is None:
            return None
        placed = next(iter(self._place(step.draft.when.node)), None)
        return placed.found.text if placed is not None and placed.is_whole else None


def _given(schema: Mapping[str, Json], arguments: Node | None) -> Mapping[str, Json]:
    """Return the schema of what `args` will hold: an argument that is left to its default is not recorded."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not (arguments is None or isinstance(arguments, MapNode)):
        return schema
    written = set() if arguments is None else {entry.key for entry in arguments.entries}
    return {**schema, "properties": {name: each for name, each in properties.items() if name in written}}


def _type_of_items(node: ListNode) -> Typed:
    kinds = {type_name(plain_value(item)) for item in node.items}
    if not kinds or any(True for _ in texts(node)):
        return Typed.of({"type": "array"})
    names: list[Json] = [*sorted(kinds)]
    return Typed.of({"type": "array", "items": {"type": names}})


def _defaults_of(step: ResolvedStep, defaults: DraftPolicy) -> DraftPolicy:
    """Return the defaults that hold for a step: a tool that bounds itself has its own `schedule_to_close_timeout`."""
    bounds_itself = step.facts is not None and step.facts.pending_max_ms is not None
    return replace(defaults, schedule_to_close_ms=None) if bounds_itself else defaults


def _check_policies(draft: DraftSaga, steps: list[ResolvedStep], findings: Findings) -> None:
    """Check that retries and calls fit in their timeouts, and warn where nobody chose one."""
    for step in steps:
        policy, label = step.draft.policy, step.draft.label
        is_patient = step.klass is StepClass.RETRIABLE
        retry = action_retry(policy, draft.defaults, is_patient=is_patient)
        check_fit(policy, _defaults_of(step, draft.defaults), retry, owner=label, findings=findings)
        if draft.run_timeout_ms is not None and not is_patient:
            check_run_fit(draft.run_timeout_ms, label, start_to_close_ms(policy, draft.defaults), retry, findings)
        if step.draft.undo is not None:
            undo = step.draft.undo.policy
            kept = replace(draft.defaults, schedule_to_close_ms=None)
            check_fit(undo, kept, undo_retry(undo), owner=f"the compensation of {label}", findings=findings)
    if findings.has_errors:
        return
    for step in steps:
        check_retention(step, draft.defaults, findings)
    chosen = [draft.defaults, *(step.draft.policy for step in steps)]
    only_waits = all(step.facts is not None and step.facts.pending_max_ms is not None for step in steps)
    if not only_waits and not any(policy.start_to_close_ms for policy in chosen):
        limit = format_duration(start_to_close_ms(draft.defaults, draft.defaults))
        message = f"no step says how long a call may take, so each is ended after {limit}"
        hint = f"write defaults: {{start_to_close_timeout: {limit}}} if that is meant"
        findings.warning("default-timeout", message, draft.steps_span, hint=hint)
