"""`sagactl metrics`: what there is in a log, in the text format of Prometheus (0.0.4), or as JSON.

All are gauges: they say how things are now, and can go down, as when runs are pruned. Series are bounded: of sagas and
tools beyond `NAMES_MAX` the smallest are added up under one name that no saga or tool can have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from sagactl.core.alerting import Reason
from sagactl.core.canonical import Json
from sagactl.core.counts import Counts, Group
from sagactl.core.records import RunStatus
from sagactl.dataclass import dataclass

if TYPE_CHECKING:
    from sagactl.usecases.documents import Document

METRICS_SCHEMA: Final = "sagactl.metrics/1"
NAMES_MAX: Final = 100
"""How many sagas, or tools, have series of their own."""

OTHERS: Final = "_others"
_LABEL_LENGTH_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric, with its labels."""

    labels: tuple[tuple[str, str], ...]
    value: int | Decimal


@dataclass(frozen=True, slots=True)
class Metric:
    """A gauge with all its samples."""

    name: str
    help: str
    samples: tuple[Sample, ...]


def list_metrics(counts: Counts, *, now_ms: int, version: str) -> list[Metric]:
    """Return every metric, also those that have no sample now."""
    approvals = [each for each in counts.alerts if each.labels[0] == Reason.APPROVAL]
    unfinished = _aged(counts.runs, {RunStatus.RUNNING, RunStatus.WAITING, RunStatus.ROLLING_BACK, RunStatus.STUCK})
    recent = counts.recent
    window_ms = 0 if recent.since_ms is None else now_ms - recent.since_ms
    sizes = [Sample((("file", name),), size) for name, size in counts.file_bytes.items()]
    return [
        Metric("sagactl_build_info", "The release that looked; always 1.", (Sample((("version", version),), 1),)),
        _gauge("sagactl_runs", "Runs in the log.", ("saga", "status"), counts.runs),
        _oldest(
            "sagactl_oldest_run_timestamp_seconds",
            "When the oldest run that is unfinished or stuck was created.",
            ("status",),
            unfinished,
        ),
        _gauge("sagactl_dead_letters", "Open dead letters.", ("saga", "direction", "reason"), counts.letters),
        _oldest(
            "sagactl_oldest_dead_letter_timestamp_seconds",
            "When the oldest open dead letter was opened.",
            (),
            counts.letters,
        ),
        Metric("sagactl_approvals_waiting", "Steps that wait for an approval.", (_sum(approvals),)),
        _oldest("sagactl_oldest_approval_timestamp_seconds", "When the oldest of them was asked for.", (), approvals),
        _gauge("sagactl_alerts_open", "Alerts that are not over.", ("reason",), counts.alerts),
        Metric("sagactl_outbox_pending", "Alerts that some channel has not got yet.", (_sum([counts.pending]),)),
        _oldest("sagactl_oldest_pending_timestamp_seconds", "When the oldest of them arose.", (), [counts.pending]),
        Metric("sagactl_requests_open", "Requests of operators without an answer.", (_sum([counts.requests]),)),
        _gauge(
            "sagactl_recent_calls",
            "Calls in the recent records, by what they came to; none: nothing yet.",
            ("tool", "direction", "outcome"),
            recent.calls,
        ),
        _gauge(
            "sagactl_recent_retries",
            "Those of them that were not the first attempt.",
            ("tool", "direction"),
            recent.retries,
        ),
        Metric("sagactl_recent_records", "Records that these were counted in.", (Sample((), recent.records),)),
        Metric("sagactl_recent_window_seconds", "How far back these go.", (Sample((), _seconds(window_ms)),)),
        Metric("sagactl_log_bytes", "The files of the log.", tuple(sizes)),
    ]


def _aged(groups: Iterable[Group], statuses: set[RunStatus]) -> list[Group]:
    """Return the runs of these statuses by status alone."""
    return [Group((each.labels[1],), each.total, each.since_ms) for each in groups if each.labels[1] in statuses]


def _sum(groups: Iterable[Group]) -> Sample:
    return Sample((), sum(each.total for each in groups))


def _gauge(name: str, text: str, labels: tuple[str, ...], groups: Sequence[Group]) -> Metric:
    totals: Counter[tuple[str, ...]] = Counter()
    for each in _bound(groups):
        totals[each.labels] += each.total
    samples = [Sample(tuple(zip(labels, values, strict=True)), total) for values, total in sorted(totals.items())]
    return Metric(name, text, tuple(samples))


def _bound(groups: Sequence[Group]) -> list[Group]:
    """Put the smallest of too many first labels together."""
    totals: Counter[str] = Counter()
    for each in groups:
        totals[each.labels[0]] += each.total
    kept = {name for name, _ in totals.most_common(NAMES_MAX)}
    return [each if each.labels[0] in kept else each._replace(labels=(OTHERS, *each.labels[1:])) for each in groups]


def _oldest(name: str, text: str, labels: tuple[str, ...], groups: Iterable[Group]) -> Metric:
    """Return the earliest time for each combination of *labels*; where there is nothing, there is no sample.

    A time and no age: what is written to a file once, and scraped long after, would be an age that stands still.
    """
    since: dict[tuple[str, ...], int] = {}
    for each in groups:
        if each.since_ms is not None:
            key = each.labels if labels else ()
            since[key] = min(each.since_ms, since.get(key, each.since_ms))
    samples = [
        Sample(tuple(zip(labels, values, strict=True)), _seconds(at_ms)) for values, at_ms in sorted(since.items())
    ]
    return Metric(name, text, tuple(samples))


def _seconds(ms: int) -> Decimal:
    """Return a duration, or a Unix time; a clock that was set back makes none that is negative."""
    return Decimal(max(0, ms)).scaleb(-3)


def render_metrics(metrics: Iterable[Metric]) -> str:
    """Return the text that Prometheus reads, without the last line end."""
    lines = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} gauge"]
        lines += [f"{metric.name}{_spell_labels(sample.labels)} {sample.value}" for sample in metric.samples]
    return "\n".join(lines)


def _spell_labels(labels: Sequence[tuple[str, str]]) -> str:
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def _escape(value: str) -> str:
    """Return a label's value as the format has it; what would move a terminal's cursor is shown, not done."""
    from sagactl.cli.views.text import safe

    return safe(value[:_LABEL_LENGTH_MAX]).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def write_metric(metric: Metric) -> Document:
    """Return one metric as a document."""
    samples: list[Json] = [{"labels": dict(sample.labels), "value": sample.value} for sample in metric.samples]
    return {"name": metric.name, "type": "gauge", "help": metric.help, "samples": samples}


def write_metrics(metrics: Sequence[Metric]) -> Document:
    """Return the document of all metrics."""
    items: list[Json] = [write_metric(metric) for metric in metrics]
    return {"schema": METRICS_SCHEMA, "items": items, "total": len(items), "error": None}
