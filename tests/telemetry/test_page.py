"""`sagactl help telemetry` is true."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from sagactl.cli.views.metrics import NAMES_MAX, OTHERS, list_metrics
from sagactl.core.counts import RECENT_MS, RECENT_RECORDS_MAX, Counts, Group, Recent
from sagactl.log.sqlite_counts import RECENT_SECONDS_MAX
from sagactl.telemetry import settings, spans, tracer
from tests.cli.project import ROOT
from tests.telemetry.test_spans import every_attribute

PAGE = (ROOT / "sagactl" / "help" / "telemetry.md").read_text()
TEXT = " ".join(PAGE.split())


def test_the_settings_on_the_page_are_those_there_are() -> None:
    """The table lists exactly the keys, and the example is a right one."""
    table = PAGE.split("| setting |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(settings.KEYS)
    example = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    found = settings.read_telemetry(tomllib.loads(example[1])["telemetry"], {})
    assert found == settings.Telemetry("http://localhost:4318/v1/traces", "onboarding", is_required=True)
    for name in (settings.EXPORTER_VARIABLE, settings.DISABLED_VARIABLE, settings.NAME_VARIABLE):
        assert f"`{name}`" in TEXT


def test_the_numbers_on_the_page_are_those_of_the_program() -> None:
    """Bounds are said as they are."""
    assert f"waits {tracer.END_SECONDS:g} seconds for them at most" in TEXT
    assert f"the latest {spans.EVENTS_MAX} timers, and {spans.EVENTS_MAX} others" in TEXT


def test_the_page_names_every_attribute() -> None:
    """What a dashboard can ask for stands on the page."""
    named = set(re.findall(r"`(?:sagactl(?:\.run)?)?(?:\.probe)?\.(\w+)`", PAGE)) | {"id"}
    assert {name.rpartition(".")[2] for name in every_attribute() if name != "error.type"} <= named


def test_the_page_names_every_metric_with_its_labels() -> None:
    """The table lists exactly the metrics and labels that there are, and the bounds as they are."""
    full = Counts(
        runs=(Group(("a", "stuck"), 1, 0),),
        letters=(Group(("a", "action", "in_doubt"), 1, 0),),
        alerts=(Group(("approval",), 1, 0),),
        pending=Group((), 1, 0),
        recent=Recent((Group(("a.b", "action", "unknown"), 1),), (Group(("a.b", "action"), 1),), 1, 0),
        file_bytes={"db": 1, "wal": 1},
    )
    metrics = list_metrics(full, now_ms=1, version="1")
    rows = re.findall(r"^\| `(sagactl_\w+)` \| ([^|]*)\|", PAGE, re.MULTILINE)
    said = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    assert said == {each.name: {label for sample in each.samples for label, _ in sample.labels} for each in metrics}
    assert f"the latest {RECENT_RECORDS_MAX:,} records" in TEXT
    assert RECENT_MS == 3_600_000
    assert f"in {RECENT_SECONDS_MAX:g} seconds" in TEXT
    assert f"the {NAMES_MAX} largest have series of their own, and the rest is added up as `{OTHERS}`" in TEXT


def test_a_new_project_is_told_of_the_setting() -> None:
    """The settings that `sagactl init` writes show it, and it is right when the mark is taken off."""
    lines = (Path(ROOT) / "sagactl" / "templates" / "common" / "sagactl.toml").read_text().splitlines()
    line = next(line for line in lines if line.startswith("# telemetry = "))
    assert settings.read_telemetry(tomllib.loads(line.removeprefix("# "))["telemetry"], {}) is not None
