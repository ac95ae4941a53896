"""`sagactl metrics`: what a scraper reads is the format as it is defined, bounded and harmless."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from sagactl.cli.views.metrics import NAMES_MAX, OTHERS, list_metrics, render_metrics, write_metrics
from sagactl.cli.views.spelling import spell
from sagactl.core.counts import Counts, Group, Recent

NOW = 10_000_000


def _values(counts: Counts) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return what a scraper makes of the text."""
    text = render_metrics(list_metrics(counts, now_ms=NOW, version="1.2.3")) + "\n"
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_number_comes_through_with_its_labels() -> None:
    """Counts by their labels, Unix times in seconds, and none where there is nothing."""
    counts = Counts(
        runs=(
            Group(("a", "stuck"), 2, NOW - 5_500),
            Group(("b", "stuck"), 1, NOW - 500),
            Group(("b", "succeeded"), 9, 1),
        ),
        letters=(Group(("a", "action", "in_doubt"), 3, NOW - 2_000),),
        alerts=(Group(("approval",), 2, NOW - 4_000), Group(("stuck",), 1, NOW)),
        pending=Group((), 7, NOW + 5),
        requests=Group((), 1),
        recent=Recent((Group(("x.y", "action", "unknown"), 4),), (Group(("x.y", "action"), 3),), 50, NOW - 60_001),
        file_bytes={"db": 4096, "wal": 0},
    )
    found = _values(counts)
    assert found["sagactl_runs", frozenset({("saga", "b"), ("status", "succeeded")})] == 9
    assert found["sagactl_oldest_run_timestamp_seconds", frozenset({("status", "stuck")})] == 9_994.5
    assert ("sagactl_oldest_run_timestamp_seconds", frozenset({("status", "succeeded")})) not in found
    assert (
        found["sagactl_dead_letters", frozenset({("saga", "a"), ("direction", "action"), ("reason", "in_doubt")})] == 3
    )
    calls = {("tool", "x.y"), ("direction", "action"), ("outcome", "unknown")}
    assert found["sagactl_recent_calls", frozenset(calls)] == 4
    plain = {name: value for (name, labels), value in found.items() if not labels}
    assert plain == {
        "sagactl_oldest_dead_letter_timestamp_seconds": 9_998,
        "sagactl_approvals_waiting": 2,
        "sagactl_oldest_approval_timestamp_seconds": 9_996,
        "sagactl_outbox_pending": 7,
        "sagactl_oldest_pending_timestamp_seconds": 10_000.005,  # a clock that was set back
        "sagactl_requests_open": 1,
        "sagactl_recent_records": 50,
        "sagactl_recent_window_seconds": 60.001,
    }


def test_an_empty_log_has_every_metric() -> None:
    """A dashboard finds the names before there is anything, and zero is zero."""
    metrics = list_metrics(Counts(), now_ms=NOW, version="1")
    text = render_metrics(metrics) + "\n"
    assert [family.name for family in text_string_to_metric_families(text)] == [each.name for each in metrics]
    assert "sagactl_approvals_waiting 0\n" in text


def test_names_and_units_are_as_prometheus_wants_them() -> None:
    """One prefix, base units last, times and no ages, no gauge named as a counter, help and the type for each."""
    metrics = list_metrics(Counts(file_bytes={"db": 1}), now_ms=NOW, version="1")
    for metric in metrics:
        assert metric.name.startswith("sagactl_")
        assert metric.help.endswith(".")
        assert metric.name.endswith("_seconds") == ("oldest" in metric.name or "window" in metric.name)
        assert metric.name.endswith("_timestamp_seconds") == ("oldest" in metric.name)
        assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket"))
    assert render_metrics(metrics).count("# TYPE ") == len(metrics)


def test_a_label_holds_anything_and_does_nothing() -> None:
    """X3: quotes, backslashes, line ends and codes for terminals come through as text, and can't forge a sample."""
    hostile = 'a"\\\n\x1b[31m} 1\nsagactl_evil 1'
    counts = Counts(runs=(Group((hostile, "running"), 1, NOW),))
    text = render_metrics(list_metrics(counts, now_ms=NOW, version="1"))
    assert "\x1b" not in text
    names = {family.name for family in text_string_to_metric_families(text + "\n")}
    assert "sagactl_evil" not in names
    (run,) = [labels for name, labels in _values(counts) if name == "sagactl_runs"]
    assert dict(run)["saga"].startswith('a"\\')


def test_the_number_of_series_is_bounded() -> None:
    """A thousand sagas make no thousand series: the smallest are added up, and nothing is lost."""
    runs = tuple(Group((f"s{n}", "succeeded"), n + 1, 1) for n in range(1_000))
    calls = tuple(Group((f"t.t{n}", "action", "succeeded"), n + 1) for n in range(1_000))
    found = _values(Counts(runs=runs, recent=Recent(calls)))
    series = {dict(labels)["saga"]: value for (name, labels), value in found.items() if name == "sagactl_runs"}
    assert len(series) == NAMES_MAX + 1
    assert sum(series.values()) == 1_000 * 1_001 / 2
    assert (series["s999"], series[OTHERS]) == (1_000, 900 * 901 / 2)
    assert len([1 for name, _ in found if name == "sagactl_recent_calls"]) == NAMES_MAX + 1


def test_as_json_it_says_the_same() -> None:
    """`-o json`: the metrics with their samples, numbers as numbers."""
    counts = Counts(letters=(Group(("a", "action", "in_doubt"), 3, NOW - 1_500),))
    document = write_metrics(list_metrics(counts, now_ms=NOW, version="1"))
    text = spell(document)
    assert '"value":9998.500' in text.replace(" ", "") or '"value":9998.5' in text.replace(" ", "")
    assert document["schema"] == "sagactl.metrics/1"
