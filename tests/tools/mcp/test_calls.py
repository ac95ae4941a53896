"""Calls of tools of an MCP server: arguments, keys, outputs, probes, and one connection for all of them."""

from __future__ import annotations

import json

import pytest

from sagactl.core.records import OutcomeKind, ProbeAnswer
from tests.cli.project import Project
from tests.tools.mcp.conftest import TOOLS, Bench

CAREFUL = """
[mcp.test.tools.sendLetter]
key = {argument = "request"}
forward_key = {meta = "acme/forward"}
extra_arguments = true
"""


def test_a_call_has_its_effect_and_its_structured_output(bench: Bench) -> None:
    """A tool of a server is called like any other, and its structured content is the output."""
    answer = bench.call()
    assert (answer.kind, answer.output, bench.lines()) == (OutcomeKind.SUCCEEDED, {"lines": 1}, ["a"])


def test_one_process_serves_all_calls(bench: Bench) -> None:
    """The server is started by the first call and used by all that follow."""
    before = len(bench.started())
    for _ in range(5):
        assert bench.call().kind is OutcomeKind.SUCCEEDED
    assert len(bench.started()) == before + 1


def test_loading_starts_no_server(bench: Bench) -> None:
    """`validate`, `plan` and `tools` read the pins: nothing is started to know the tools."""
    before = bench.started()
    names = bench.project.registry.names()
    assert {"test.put", "test.take", "test.look", "test.was_put", "test.send_letter"} <= set(names)
    assert bench.started() == before


def test_an_undo_that_finds_nothing_succeeds(bench: Bench) -> None:
    """E12: an error that the operator marked `gone` means that there is nothing to undo."""
    answer = bench.call("test.take", line="a")
    assert (answer.kind, answer.output) == (OutcomeKind.SUCCEEDED, {"already_gone": True})


def test_a_probe_tells_both_ways(bench: Bench) -> None:
    """E6: a probe made of a tool that looks says done with the output, or not done."""
    assert bench.probe().answer is ProbeAnswer.NOT_DONE
    bench.call()
    reply = bench.probe()
    assert (reply.answer, reply.output) == (ProbeAnswer.DONE, {"lines": 1})


def test_a_probe_that_fails_cannot_tell(bench: Bench) -> None:
    """E6: an error that nobody marked is no answer."""
    bench.mode("fails")
    assert bench.probe().answer is ProbeAnswer.CANNOT_TELL


def test_keys_go_where_the_operator_says(bench: Bench) -> None:
    """E8: the key is an argument or a field of `_meta`; the trace goes along."""
    bench.configure(CAREFUL)
    bench.pin()
    answer = bench.call("test.send_letter", line="a")
    assert isinstance(answer.output, dict), answer
    assert answer.output["given"] == {"line": "a", "request": "run2345678abc/deposit/action"}
    meta = answer.output["meta"]
    assert isinstance(meta, dict)
    assert meta["acme/forward"] == "run2345678abc/deposit/action"
    assert str(meta["traceparent"]).startswith("00-")


def test_a_server_gets_no_variable_that_is_not_listed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets of sagactl's own environment don't reach a server; those that are listed do."""
    monkeypatch.setenv("STRAY", "1")
    monkeypatch.setenv("WANTED", "2")
    monkeypatch.setenv("SAGACTL_SECRET_TOKEN", "hunter2-hunter2")
    bench.configure(TOOLS, env={"TOKEN": "t-${{ secrets.token }}", "PLAIN": "3"}, pass_env=["WANTED"])
    answer = bench.call("test.send_letter")
    assert isinstance(answer.output, dict), answer
    env = answer.output["env"]
    assert isinstance(env, dict)
    assert {name: env.get(name) for name in ("WANTED", "PLAIN")} == {"WANTED": "2", "PLAIN": "3"}
    assert "STRAY" not in env
    assert "SAGACTL_SECRET_TOKEN" not in env
    assert str(env["TOKEN"]).startswith("t-")
    assert "hunter2" not in json.dumps(answer.output)


def test_a_changed_secret_makes_a_new_connection(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """E19: secrets are resolved for each call; a server that has the old one is replaced."""
    monkeypatch.setenv("SAGACTL_SECRET_TOKEN", "first-first")
    bench.configure(TOOLS, env={"TOKEN": "${{ secrets.token }}"})
    bench.call()
    started = len(bench.started())
    bench.call()
    assert len(bench.started()) == started
    monkeypatch.setenv("SAGACTL_SECRET_TOKEN", "second-second")
    assert bench.call().kind is OutcomeKind.SUCCEEDED
    assert len(bench.started()) == started + 1


def test_bytes_are_told_and_not_kept(bench: Bench) -> None:
    """What isn't text is recorded by size and digest."""
    bench.mode("picture")
    answer = bench.call("test.send_letter")
    digest = "b5d4045c3f466fa91fe2cc6abe79232a1a57cdf104f7a26e716e0a1e2789df78"
    picture = {"type": "image", "mime_type": "image/png", "bytes": 3, "sha256": digest}
    assert answer.output == {"content": [picture]}


def test_an_argument_the_server_does_not_name_is_a_slip(bench: Bench) -> None:
    """F5: servers pass over what they don't know, so that a slip would go unnoticed; the schema is closed."""
    facts = bench.project.registry.facts_of("test.put")
    assert bench.project.toolbox.check_arguments(facts, {"line": "a", "lnie": "b"}) is not None


def test_a_decimal_that_would_change_is_not_sent(bench: Bench) -> None:
    """Numbers reach the server as the saga has them, or not at all."""
    from decimal import Decimal

    answer = bench.call("test.send_letter", amount=Decimal("0.1"))
    assert isinstance(answer.output, dict)
    assert answer.output["given"] == {"amount": Decimal("0.1")}
    answer = bench.call("test.send_letter", amount=Decimal("0.12345678901234567890123"))
    assert (answer.kind, answer.failure and answer.failure.type) == (OutcomeKind.REJECTED, "bad_arguments")


ALL = """
[mcp.test.tools.all]
tool = "look"
read_only = true
with = {line = "*"}
"""
CHECK = """
safe_tools: ["test.*"]
observe: [{tool: test.all, with: {}}]
tools:
  test.put: {with: {line: "${{ run.id }}"}}
"""


def test_what_the_operator_claims_can_be_checked(bench: Bench) -> None:
    """`tools check` holds the tools of a server to the golden rules as any others."""
    bench.configure(TOOLS + ALL)
    (bench.folder / "plugins" / "test.check.yaml").write_text(CHECK)
    bench.close()
    done = Project(bench.folder).run("tools", "check", "test.put", "-o", "json")
    (tool,) = done.json["tools"]
    verdicts = {rule["rule"]: rule["verdict"] for rule in tool["rules"]}
    assert done.code == 0, verdicts
    assert {verdicts[rule] for rule in ("succeeds", "schema", "probe", "undo", "undo-twice", "undo-never-ran")} == {
        "holds"
    }
    assert verdicts["late"] == "not_promised"
