"""Retries that a tool's `key_retention` will cut short: what is in doubt by then isn't tried again blindly (E6)."""

from __future__ import annotations

from sagactl.core.saga import OnUnknown, Retry, StepClass, ToolFacts
from sagactl.schemas.durations import format_duration
from sagactl.spec.classes import ResolvedStep, choose_on_unknown
from sagactl.spec.draft import DraftPolicy
from sagactl.spec.policy import action_retry, longest_wait_ms, start_to_close_ms, undo_retry
from sagactl.written.findings import Findings
from sagactl.written.source import Span


def check_retention(step: ResolvedStep, defaults: DraftPolicy, findings: Findings) -> None:
    """Warn where the attempts of a call, or one call alone, can last longer than its tool keeps a key."""
    policy, label = step.draft.policy, step.draft.label
    if step.facts is not None and choose_on_unknown(policy, step.facts) is OnUnknown.RETRY:
        retry = action_retry(policy, defaults, is_patient=step.klass is StepClass.RETRIABLE)
        whole = policy.schedule_to_close_ms or defaults.schedule_to_close_ms
        limit_ms = None if whole is None else whole.value
        _check(
            label, step.facts, _Times(retry, start_to_close_ms(policy, defaults), limit_ms), step.tool_span, findings
        )
    undo = step.undo
    if undo is not None and choose_on_unknown(undo.policy, undo.facts, is_undo=True) is OnUnknown.RETRY:
        limit_ms = None if undo.policy.schedule_to_close_ms is None else undo.policy.schedule_to_close_ms.value
        times = _Times(undo_retry(undo.policy), start_to_close_ms(undo.policy, defaults), limit_ms)
        _check(f"the compensation of {label}", undo.facts, times, undo.span, findings)


class _Times:
    """How long calls may take."""

    def __init__(self, retry: Retry, one_ms: int, limit_ms: int | None) -> None:
        self.one_ms = one_ms
        self.is_repeated = retry.max_attempts > 1
        whole_ms = longest_wait_ms(retry) + retry.max_attempts * one_ms
        self.whole_ms = whole_ms if limit_ms is None else min(whole_ms, limit_ms)


def _check(owner: str, facts: ToolFacts, times: _Times, span: Span, findings: Findings) -> None:
    if facts.key_retention_ms is None or not times.is_repeated:
        return
    kept = format_duration(facts.key_retention_ms)
    who = "its probe is asked" if facts.probe is not None else "a person is asked"
    if times.one_ms >= facts.key_retention_ms:
        message = (
            f"{owner}: one call may take {format_duration(times.one_ms)}, and {facts.name} keeps a key for {kept}: "
            f"a call in doubt is never retried, {who}"
        )
        findings.warning("short-retention", message, span, hint=f"set start_to_close_timeout well below {kept}")
    elif times.whole_ms > facts.key_retention_ms:
        whole = format_duration(times.whole_ms)
        message = (
            f"{owner}: its attempts can take {whole}, and {facts.name} keeps a key for {kept}: "
            f"what is in doubt by then isn't retried, {who}"
        )
        hint = f"set schedule_to_close_timeout to at most {kept}, or lower max_attempts or max_interval"
        findings.warning("retry-past-retention", message, span, hint=hint)
