"""Whole runs against a real collector, which may be down, hang or fail: the trace is whole, and the run never cares."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from sagactl.core.tracing import run_span_id, trace_id
from sagactl.telemetry.tracer import END_SECONDS
from tests.cli.project import Project
from tests.telemetry.collector import Collector, Received, collecting

GOOD = ("run", "onboarding", "-q", "-o", "json", "-i", "amount:=4900", "-i", 'servers:=["web","db"]', "-i")
EMAIL = "email=ada@example.com"


def _check_trace(collector: Collector, run_id: str) -> list[Received]:
    """Return our spans, all of one trace with one root and no span twice."""
    spans = [span for span in collector.spans if span.scope == "sagactl"]
    assert {span.trace_id for span in spans} == {trace_id(run_id)}
    roots = [span for span in spans if not span.parent_id]
    assert [root.span_id for root in roots] == [run_span_id(run_id)]
    assert {span.parent_id for span in spans if span.parent_id} == {run_span_id(run_id)}
    return spans


def test_a_success_is_one_trace(tmp_path: Path) -> None:
    """A span for the run and for each call, with the key that the tool got, and nothing of inputs and outputs."""
    project = Project.make(tmp_path)
    with collecting() as collector:
        done = project.run(*GOOD, EMAIL, extra=collector.environment)
    assert (done.code, done.err) == (0, "")
    run = done.json["run"]
    spans = _check_trace(collector, run["id"])
    assert len({span.span_id for span in spans}) == len(spans) == 7
    assert [span.attributes["sagactl.item"] for span in collector.named("cloud.provision_vm servers")] == [0, 1]
    keys = {line["key"] for line in project.witness() if "key" in line}
    assert {span.attributes["sagactl.idempotency_key"] for span in spans if span.parent_id} == keys
    (root,) = collector.named("saga onboarding")
    assert (root.error, root.attributes["sagactl.run.status"], root.events) == (None, "succeeded", ["pivot_passed"])
    assert root.resource["service.name"] == "sagactl"
    body = b"".join(collector.bodies)
    for text in (EMAIL.partition("=")[2], *run["output"].values()):
        assert text.encode() not in body


def test_a_run_is_linked_to_the_span_that_it_was_begun_in(tmp_path: Path) -> None:
    """`TRACEPARENT` of whoever begins a run is a link of its root, kept in the log: a resume elsewhere sends it too."""
    project = Project.make(tmp_path)
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    begun_in = {"TRACEPARENT": f"00-{trace}-{span}-01"}
    line = ("run", "onboarding", "-q", "-o", "json", "--no-wait", "-i", "amount:=4900", "-i", "card=flaky", "-i", EMAIL)
    waiting = project.run(*line, extra=begun_in)
    assert (waiting.code, waiting.err) == (12, "")
    run_id = waiting.json["run"]["id"]
    with collecting() as collector:
        assert project.run("resume", run_id, "-q", extra={**collector.environment, "TRACEPARENT": "00-x"}).code == 0
    (root,) = collector.named("saga onboarding")
    assert (root.trace_id, root.parent_id) == (trace_id(run_id), "")
    assert list(zip(root.linked_traces, root.links, strict=True)) == [(trace, span)]
    assert all(trace not in each.linked_traces for each in collector.spans if each is not root)
    assert project.run("verify", run_id).code == 0


@pytest.mark.parametrize("given", ["nonsense", f"00-{'0' * 32}-{'1' * 16}-01", "00-" + "a" * 400, "::error::x"])
def test_a_traceparent_that_names_no_span_is_told_and_left_out(given: str, tmp_path: Path) -> None:
    """What comes from outside is checked: a run doesn't fail for it, and nothing of it is kept or shown."""
    project = Project.make(tmp_path)
    done = project.run(
        "run", "onboarding", "-o", "json", "-i", "amount:=4900", "-i", EMAIL, extra={"TRACEPARENT": given}
    )
    assert done.code == 0
    assert done.err.count("TRACEPARENT names no span") == 1
    assert given not in done.err + project.run("log", "-o", "json").out


def test_retries_and_rollback_are_seen(tmp_path: Path) -> None:
    """E5, E12: each attempt is a span, and each undo is linked to what it undid."""
    project = Project.make(tmp_path)
    with collecting() as collector:
        done = project.run(*GOOD, "email=refuses@example.com", "-i", "card=flaky", extra=collector.environment)
    assert done.code == 10
    spans = _check_trace(collector, done.json["run"]["id"])
    charges = collector.named("billing.charge deposit")
    assert [span.attributes["sagactl.outcome"] for span in charges] == ["unavailable", "unavailable", "succeeded"]
    (refund,) = collector.named("billing.refund deposit")
    assert refund.links == [charges[-1].span_id]
    (root,) = collector.named("saga onboarding")
    assert root.events == ["retry_timer", "retry_timer", "rollback"]
    assert (root.error, root.attributes["sagactl.compensations"]) == ("step_failed", 4)
    assert len(spans) == 1 + root.attributes["sagactl.calls"]


@pytest.mark.parametrize("point", ["before_effect", "after_effect"])
def test_a_run_that_was_killed_goes_on_in_its_trace(point: str, tmp_path: Path) -> None:
    """E17: SIGKILL takes the spans that weren't sent; whoever resumes sends them, the lost call and the rest."""
    project = Project.make(tmp_path)
    with collecting() as collector:
        kill = {**collector.environment, "SAGACTL_SANDBOX_KILL": f"cloud.provision_vm:{point}:2"}
        assert project.run(*GOOD, EMAIL, extra=kill).code == -9
        assert collector.spans == []
        done = project.run("resume", "--all", "-q", "-o", "json", extra=collector.environment)
    assert done.code == 0
    spans = _check_trace(collector, project.latest()["id"])
    assert len({span.span_id for span in spans}) == len(spans)
    lost = [span for span in spans if span.error == "driver_lost"]
    assert [(span.name, span.attributes["sagactl.outcome"]) for span in lost] == [
        ("cloud.provision_vm servers", "unknown")
    ]
    assert [span.name for span in sorted(spans, key=lambda span: span.start_ns)][:3] == [
        "saga onboarding",
        "crm.create_lead lead",
        "billing.charge deposit",
    ]
    (root,) = collector.named("saga onboarding")
    assert root.events[0] == "driver_claimed"
    assert root.start_ns <= min(span.start_ns for span in spans)
    assert root.end_ns >= max(span.end_ns for span in spans)


@pytest.mark.parametrize("trouble", ["down", "hangs", "fails", "refuses"])
def test_a_collector_in_trouble_changes_no_run_and_delays_no_end(trouble: str, tmp_path: Path) -> None:
    """Whatever the collector does, the run ends as it would, a moment later at most, and what was lost is said."""
    project = Project.make(tmp_path)
    hangs = threading.Event() if trouble == "hangs" else None
    status = {"fails": 500, "refuses": 503}.get(trouble, 200)
    with collecting(status, hangs) as collector, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        if trouble == "down":
            collector.url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        for number in range(5):  # on a busy machine the run without a collector may be the quicker one by far
            began = time.monotonic()
            plain = project.run(*GOOD, f"email=eve{number}@example.com")
            middle = time.monotonic()
            done = project.run(*GOOD, f"email=ada{number}@example.com", extra=collector.environment)
            seconds = time.monotonic() - middle - (middle - began)
            assert (plain.code, done.code) == (0, 0)
            assert done.json["run"]["status"] == "succeeded"
            assert done.err == "telemetry: 7 of 7 spans could not be sent to the collector (sagactl help telemetry)\n"
            if seconds < END_SECONDS + 8:  # the collector alone would take 10 seconds and more
                break
    assert seconds < END_SECONDS + 8
    assert project.run("verify").code == 0


def test_what_a_command_sends_itself_joins_the_trace(tmp_path: Path) -> None:
    """`TRACEPARENT` of a command is the span that arrives for its call."""
    (tmp_path / "sagas").mkdir()
    project = Project(tmp_path)
    saga = "saga: say\nsteps:\n  - id: a\n    tool: shell.run_idempotent\n    with: {script: 'echo $TRACEPARENT'}\n"
    (tmp_path / "sagas" / "say.yaml").write_text(saga + "    compensate: {none: 'it only speaks'}\n")
    with collecting() as collector:
        done = project.run("run", "say", "-q", "-o", "json", extra=collector.environment)
    assert done.code == 0, done.err
    (call,) = collector.named("shell.run_idempotent a")
    assert done.json["run"]["steps"][0]["output"].strip() == f"00-{call.trace_id}-{call.span_id}-01"


PLUGIN = """
from opentelemetry import trace
from sagactl import tool

@tool("own.look", read_only=True)
def look() -> None:
    with trace.get_tracer("own").start_as_current_span("GET /things"):
        pass
"""


def test_what_a_plugin_records_itself_arrives_below_its_call(tmp_path: Path) -> None:
    """A plugin's own instrumentation needs no setting up: its spans go where ours go, as children of the call."""
    for folder, name, text in (
        ("sagas", "look.yaml", "saga: look\nsteps:\n  - {id: a, tool: own.look}\n"),
        ("plugins", "own.py", PLUGIN),
        (".", "sagactl.toml", '[telemetry]\nendpoint = "URL"\nservice_name = "shop"\n'),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    project = Project(tmp_path)
    with collecting() as collector:
        (tmp_path / "sagactl.toml").write_text((tmp_path / "sagactl.toml").read_text().replace("URL", collector.url))
        done = project.run("run", "look", "-q")
    assert (done.code, done.err) == (0, "")
    (own,), (call,) = collector.named("GET /things"), collector.named("own.look a")
    assert (own.trace_id, own.parent_id, own.scope) == (call.trace_id, call.span_id, "own")
    assert call.resource["service.name"] == own.resource["service.name"] == "shop"


def test_telemetry_that_is_asked_for_and_not_installed_is_an_error_before_anything_is_called(tmp_path: Path) -> None:
    """The project's settings are binding; a variable that is meant for other programs isn't."""
    project = Project.make(tmp_path)
    (tmp_path / "opentelemetry.py").write_text("raise ImportError('not installed')\n")
    hidden = {"PYTHONPATH": f"{tmp_path}:{project.environment()['PYTHONPATH']}"}
    meant_for_others = {**hidden, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    done = project.run(*GOOD, EMAIL, extra=meant_for_others)
    assert (done.code, done.err) == (0, "")
    (tmp_path / "sagactl.toml").write_text("[telemetry]\ntraces = true\n")
    refused = project.run(*GOOD, "email=eve@example.com", extra=hidden)
    assert (refused.code, refused.json["error"]["code"]) == (3, "missing-extra")
    assert "pip install 'sagactl[otel]'" in refused.err
    assert len(project.run("list", "--ids").out.splitlines()) == 1


def test_a_variable_that_the_sdk_cannot_read_is_a_warning(tmp_path: Path) -> None:
    """A wrong OTEL_ variable never keeps a run from its work."""
    project = Project.make(tmp_path)
    with collecting() as collector:
        wrong = {**collector.environment, "OTEL_EXPORTER_OTLP_TIMEOUT": "soon", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"}
        done = project.run(*GOOD, EMAIL, extra=wrong)
    assert done.code == 0
    assert done.err.startswith("telemetry is off: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("line", [("plan", "onboarding"), ("validate",), ("list",), ("metrics",)], ids=" ".join)
def test_what_only_looks_traces_nothing(line: tuple[str, ...], tmp_path: Path) -> None:
    """Where traces are configured, a command that makes no call costs what it does without them."""
    project = Project.make(tmp_path)
    script = (
        "import atexit, sys; from sagactl.__main__ import main; "
        "atexit.register(lambda: print('opentelemetry' in sys.modules, file=sys.stderr)); main()"
    )
    given = ("-i", "email=ada@example.com", "-i", "amount:=1") if line[0] == "plan" else ()
    configured = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    done = project.run_python("-c", script, *line, *given, extra=configured)
    assert (done.code, done.err.splitlines()[-1]) == (0, "False")


def test_without_a_word_of_telemetry_nothing_of_it_is_imported(tmp_path: Path) -> None:
    """Start-up is a feature: what isn't configured costs nothing."""
    project = Project.make(tmp_path)
    script = (
        "import atexit, sys; from sagactl.__main__ import main; "
        "atexit.register(lambda: print(*[m for m in sys.modules if 'telemetry' in m], file=sys.stderr)); main()"
    )
    done = project.run_python("-c", script, *GOOD, EMAIL)
    assert (done.code, done.err) == (0, "\n")
