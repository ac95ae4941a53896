"""Keys and types of the file (rule F1): nodes become a draft, and nothing is related to anything yet.

`schema.json` says the same for editors; a test holds the two together.
"""

from __future__ import annotations

import re
from typing import Final

from sagactl.core.keys import RESERVED_IDS, SAGA_NAME, STEP_ID, TOOL_NAME
from sagactl.core.saga import ITEMS_MAX, STEPS_MAX, CompensateFailed
from sagactl.spec.draft import DraftApproval, DraftPolicy, DraftSaga, DraftStep, DraftUndo
from sagactl.spec.policy import DEFAULTS_KEYS, POLICY_KEYS, TIMEOUT_MS_MAX, read_policy
from sagactl.written.fields import Fields, Placed, kind_of
from sagactl.written.findings import Findings
from sagactl.written.positions import Entry, ListNode, MapNode, Node, Scalar
from sagactl.written.source import Span
from sagactl.written.visible import name_odd, quote

CONCURRENCY_MAX: Final = 1_000
SECRETS_MAX: Final = 100
"""Each is resolved before anything of a run begins, and looked for in all that its tools give back."""

SAGA_KEYS: Final = (
    *("saga", "version", "description", "input", "run_key", "run_timeout", "defaults", "steps", "output", "secrets"),
    *("settle_timeout", "compensation_concurrency"),
)
STEP_KEYS: Final = (
    *("id", "description", "agent", "needs", "when", "foreach", "concurrency", "tool", "with", "compensate", "pivot"),
    *("read_only", *POLICY_KEYS, "compensate_failed", "approval", "guard"),
)
APPROVAL_KEYS: Final = ("required", "by", "timeout")
UNDO_KEYS: Final = ("tool", "with", "none", *POLICY_KEYS)
SECRET_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)

_SAGA_RULE: Final = "lower-case letters, digits, _ and -, a letter first, at most 63"
_ID_RULE: Final = "lower-case letters, digits and _, a letter first, at most 63"
_TOOL_RULE: Final = "system.verb, such as billing.charge"
_REASON_HINT: Final = 'say why: none: "mail can\'t be unsent"'


def read_saga(root: Node, findings: Findings) -> DraftSaga | None:
    """Read the whole file; None where it has no steps to go on with."""
    if not isinstance(root, MapNode):
        findings.error(
            "wrong-type", f"a saga file is a map with the keys saga and steps, not {kind_of(root)}", root.span
        )
        return None
    fields = Fields(root, SAGA_KEYS, "a saga", findings)
    top = root.entries[0].key_span if root.entries else root.span
    for key in ("saga", "steps"):
        fields.require(key, top)
    defaults = fields.fields("defaults", DEFAULTS_KEYS, "defaults")
    concurrency = fields.count("compensation_concurrency", CONCURRENCY_MAX)
    description = fields.text("description")
    steps = fields.entry("steps")
    return DraftSaga(
        name=_read_name(fields, findings),
        steps=_read_steps(fields, findings),
        steps_span=steps.key_span if steps is not None else top,
        version=fields.version("version"),
        description=None if description is None else description.value,
        input=_read_input(fields),
        run_key=fields.entry("run_key") if fields.text("run_key") is not None else None,
        run_timeout_ms=fields.duration("run_timeout", 1, TIMEOUT_MS_MAX),
        settle_timeout_ms=fields.duration("settle_timeout", 1, TIMEOUT_MS_MAX),
        compensation_concurrency=1 if concurrency is None else concurrency.value,
        defaults=DraftPolicy() if defaults is None else read_policy(defaults),
        output=fields.entry("output"),
        secrets=_read_secrets(fields, findings),
    )


def _read_name(fields: Fields, findings: Findings) -> str:
    name = fields.text("saga", hint=f"use {_SAGA_RULE}")
    if name is None:
        return ""
    if SAGA_NAME.fullmatch(name.value) is None:
        _refuse_name(findings, "bad-name", "a name of a saga", name, _SAGA_RULE)
    return name.value


def _refuse_name(findings: Findings, code: str, what: str, name: Placed[str], rule: str) -> None:
    findings.error(code, f"{quote(name.value)} can't be {what}{name_odd(name.value)}", name.span, hint=f"use {rule}")


def _read_input(fields: Fields) -> Entry | None:
    return fields.entry("input") if fields.map("input") is not None else None


def _read_secrets(fields: Fields, findings: Findings) -> dict[str, Span]:
    found: dict[str, Span] = {}
    names = fields.names("secrets") or ()
    if len(names) > SECRETS_MAX:
        message = f"the saga has {len(names)} secrets; at most {SECRETS_MAX} are allowed"
        findings.error("over-limit", message, names[SECRETS_MAX].span)
    for name in names[:SECRETS_MAX]:
        if SECRET_NAME.fullmatch(name.value) is None:
            _refuse_name(findings, "bad-name", "a name of a secret", name, "letters, digits and _, no digit first")
        elif found.setdefault(name.value, name.span) is not name.span:
            _refuse_twin(findings, f"the secret {name.value} is listed twice", name.span, found[name.value])
    return found


def _refuse_twin(findings: Findings, message: str, span: Span, first: Span) -> None:
    findings.error("duplicate-id", message, span, label="again here", first=first)


def _read_steps(fields: Fields, findings: Findings) -> tuple[DraftStep, ...]:
    entry = fields.entry("steps")
    if entry is None:
        return ()
    if not isinstance(entry.node, ListNode) or not entry.node.items:
        what = "an empty list" if isinstance(entry.node, ListNode) else kind_of(entry.node)
        findings.error("wrong-type", f"steps must be a list of at least one step, not {what}", entry.span)
        return ()
    nodes = entry.node.items
    if len(nodes) > STEPS_MAX:
        message = f"the saga has {len(nodes)} steps; at most {STEPS_MAX} are allowed"
        findings.error("over-limit", message, entry.key_span, hint="split the saga")
    steps = [_read_step(index, node, findings) for index, node in enumerate(nodes[:STEPS_MAX])]
    known = [step for step in steps if step is not None]
    _refuse_twins(known, findings)
    return tuple(known)


def _refuse_twins(steps: list[DraftStep], findings: Findings) -> None:
    first: dict[str, Span] = {}
    for step in steps:
        if step.id is not None and first.setdefault(step.id, step.span) is not step.span:
            _refuse_twin(findings, f"two steps have the id {step.id}", step.span, first[step.id])


def _read_step(index: int, node: Node, findings: Findings) -> DraftStep | None:
    if not isinstance(node, MapNode):
        findings.error("wrong-type", f"a step is a map with the keys id and tool, not {kind_of(node)}", node.span)
        return None
    entry = node.find("id")
    named = entry is not None and isinstance(entry.node, Scalar) and isinstance(entry.node.value, str)
    label = f"step {quote(str(plain_id(entry)), 40)}" if named else f"step {index + 1}"
    fields = Fields(node, STEP_KEYS, "a step", findings)
    top = entry.span if entry is not None else node.entries[0].key_span if node.entries else node.span
    for key in ("id", "tool"):
        fields.require(key, top)
    return _make_step(index, label, top, fields, findings)


def plain_id(entry: Entry | None) -> object:
    """Return the value of an entry that may hold an id."""
    return entry.node.value if entry is not None and isinstance(entry.node, Scalar) else None


def _make_step(index: int, label: str, span: Span, fields: Fields, findings: Findings) -> DraftStep:
    description, agent = fields.text("description"), fields.text("agent")
    failed = fields.choice("compensate_failed", CompensateFailed)
    return DraftStep(
        index=index,
        label=label,
        span=span,
        id=_read_id(fields, findings),
        needs=fields.names("needs"),
        when=_read_condition(fields, "when"),
        foreach=_read_foreach(fields, findings),
        guard=_read_condition(fields, "guard"),
        approval=_read_approval(fields, findings),
        concurrency=fields.count("concurrency", CONCURRENCY_MAX),
        tool=_read_tool(fields, findings),
        arguments=fields.map("with"),
        undo=_read_undo(fields, findings),
        pivot=fields.flag("pivot"),
        read_only=fields.flag("read_only"),
        policy=read_policy(fields),
        compensate_failed=CompensateFailed.AUTO if failed is None else failed.value,
        description=None if description is None else description.value,
        agent=None if agent is None else agent.value,
        line=findings.source.place(span.start)[0],
    )


def _read_id(fields: Fields, findings: Findings) -> str | None:
    found = fields.text("id", hint=f"use {_ID_RULE}")
    if found is None:
        return None
    if found.value in RESERVED_IDS:
        message = f"{found.value} is a word of the expression language and can't be an id"
        findings.error("bad-id", message, found.span, hint=f"call it {found.value}_step")
        return None
    if STEP_ID.fullmatch(found.value) is None:
        _refuse_name(findings, "bad-id", "an id of a step", found, _ID_RULE)
        return None
    return found.value


def _read_tool(fields: Fields, findings: Findings) -> Placed[str] | None:
    found = fields.text("tool", hint=f"use {_TOOL_RULE}")
    if found is not None and TOOL_NAME.fullmatch(found.value) is None:
        _refuse_name(findings, "bad-name", "a name of a tool", found, _TOOL_RULE)
        return None
    return found


def _read_condition(fields: Fields, key: str) -> Entry | None:
    entry = fields.entry(key)
    if entry is None or (isinstance(entry.node, Scalar) and isinstance(entry.node.value, bool)) or _holds_braces(entry):
        return entry
    fields.refuse(entry, "true, false or one expression", f'write {key}: "${{{{ ... }}}}"')
    return None


def _read_approval(fields: Fields, findings: Findings) -> DraftApproval | None:
    """Read a condition alone, or a map with who may answer and how long it is waited for."""
    entry = fields.entry("approval")
    if entry is None:
        return None
    if not isinstance(entry.node, MapNode):
        return _make_approval(_read_condition(fields, "approval"))
    inner = Fields(entry.node, APPROVAL_KEYS, "an approval", findings)
    by = inner.names("by")
    if by == ():
        findings.error("wrong-type", "by names nobody, so nobody could answer", entry.span, hint="leave it out")
    approval = _make_approval(_read_condition(inner, "required"))
    timeout_ms = inner.duration("timeout", 1, TIMEOUT_MS_MAX)
    return None if approval is None else DraftApproval(approval.required, by, timeout_ms)


def _make_approval(required: Entry | None) -> DraftApproval | None:
    """Return the approval with that condition; none where it is plainly false."""
    if required is None or not isinstance(required.node, Scalar) or not isinstance(required.node.value, bool):
        return DraftApproval(required)
    return DraftApproval() if required.node.value else None


def _read_foreach(fields: Fields, findings: Findings) -> Entry | None:
    entry = fields.entry("foreach")
    if entry is None or _holds_braces(entry):
        return entry
    if not isinstance(entry.node, ListNode):
        fields.refuse(entry, "a list or one expression", 'write foreach: "${{ ... }}"')
        return None
    if len(entry.node.items) > ITEMS_MAX:
        message = f"foreach has {len(entry.node.items)} items; at most {ITEMS_MAX} are allowed"
        findings.error("over-limit", message, entry.key_span)
        return None
    return entry


def _holds_braces(entry: Entry) -> bool:
    return isinstance(entry.node, Scalar) and isinstance(entry.node.value, str) and "${{" in entry.node.value


def _read_undo(fields: Fields, findings: Findings) -> DraftUndo | None:
    undo = fields.fields("compensate", UNDO_KEYS, "compensate")
    entry = fields.entry("compensate")
    if undo is None or entry is None:
        return None
    reason = undo.text("none", hint=_REASON_HINT)
    none = undo.entry("none")
    if none is not None and len(undo.node.entries) > 1:
        message = "none stands alone: what can't be undone has no compensation"
        findings.error("exclusive-keys", message, none.key_span, hint="leave out either none or the other keys")
    if not undo.node.entries:
        message = "compensate is empty"
        findings.error("missing-key", message, entry.key_span, hint='give tool, with, or none: "why not"')
    return DraftUndo(
        span=entry.key_span,
        reason=None if reason is None else reason.value,
        tool=_read_tool(undo, findings),
        arguments=undo.map("with"),
        policy=read_policy(undo, is_undo=True),
    )
