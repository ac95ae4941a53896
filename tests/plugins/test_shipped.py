"""The shipped plugins keep what they declare: keys, undos, probes, tombstones."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import pytest

from sagactl.core.canonical import Json
from sagactl.core.records import ProbeAnswer
from sagactl.sandbox.witness import POINTS
from sagactl.tools.registry import collect_tools
from tests.plugins.project import PLUGINS, Project

REGISTRY = collect_tools(PLUGINS, entry_points=())
SANDBOX = {"billing", "cloud", "crm", "mail"}
"""The plugins that pretend; the others do real things, and are tried in tests/sagas."""


class Case(NamedTuple):
    """An action with valid arguments, and the action that must have happened before it."""

    tool: str
    arguments: dict[str, Json]
    effect: str
    undone: str | None = None


CASES = [
    Case("crm.create_lead", {"email": "ada@example.com"}, "lead created", "lead archived"),
    Case("billing.charge", {"lead_id": "lead_1", "amount": 4_900}, "charged", "refunded"),
    Case("cloud.provision_vm", {"name": "web"}, "machine started", "machine stopped"),
    Case("mail.send", {"to": "ada@example.com", "template": "welcome"}, "message sent"),
]
UNDOABLE = [case for case in CASES if case.undone]


def undo_tool(case: Case) -> str:
    """Return the compensation that the plugin pairs with the case's tool."""
    paired = REGISTRY.facts_of(case.tool).compensation
    assert paired is not None
    return paired


def undo_arguments(case: Case, output: dict[str, Json]) -> dict[str, Json]:
    """Return the arguments of the undo: the one id that `compensation_with` names."""
    (name,) = REGISTRY.facts_of(case.tool).compensation_with or {}
    return {name: output[name]}


def test_every_shipped_plugin_loads() -> None:
    """The shipped plugins have no problem, and each tool has a description."""
    assert REGISTRY.broken == ()
    assert {plugin.name for plugin in REGISTRY.plugins} == {file.stem for file in PLUGINS.glob("[a-z]*.py")} >= SANDBOX
    assert all(tool.description for tool in REGISTRY.tools.values())


def test_every_shipped_tool_declares_what_keeps_it_safe() -> None:
    """Every action is idempotent, every compensation null-safe; those of the sandbox are probed and late-safe too."""
    for facts in (REGISTRY.facts_of(name) for name in REGISTRY.names()):
        if facts.read_only:
            continue
        undoes_something = any(REGISTRY.facts_of(name).compensation == facts.name for name in REGISTRY.names())
        assert facts.idempotent
        assert facts.null_safe or not undoes_something
        assert facts.probe is None or REGISTRY.facts_of(facts.probe).read_only
        if facts.plugin in SANDBOX:
            assert facts.late_safe if undoes_something else facts.probe


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.tool)
def test_same_key_twice_is_one_effect(project: Project, case: Case) -> None:
    """E8: the same key gives the stored answer and no second effect."""
    first = project.done(case.tool, case.arguments)
    assert project.done(case.tool, case.arguments, attempt=2) == first
    assert project.effects() == [case.effect]
    assert project.done(case.tool, case.arguments, key="b") != first


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.tool)
def test_same_key_for_another_request_is_refused(project: Project, case: Case) -> None:
    """E8: a key that is used again for something else is refused without an effect."""
    project.done(case.tool, case.arguments)
    name = next(name for name, value in case.arguments.items() if isinstance(value, str))
    assert project.word(case.tool, {**case.arguments, name: "other@example.com"}) == ("rejected", "key_reused")
    assert project.effects() == [case.effect]


@pytest.mark.parametrize("case", UNDOABLE, ids=lambda case: case.tool)
def test_undo_twice_is_one_undo(project: Project, case: Case) -> None:
    """E12: the same undo again, even under another key, changes nothing more and succeeds."""
    output = project.done(case.tool, case.arguments)
    arguments = undo_arguments(case, output)
    first = project.done(undo_tool(case), arguments, key="u", forward_key="a")
    assert project.done(undo_tool(case), arguments, key="u", forward_key="a") == first
    assert project.done(undo_tool(case), arguments, key="v", forward_key="a") == {"status": "already_gone"}
    assert project.effects() == [case.effect, case.undone]


@pytest.mark.parametrize("case", UNDOABLE, ids=lambda case: case.tool)
def test_undo_without_output_finds_the_effect_by_the_forward_key(project: Project, case: Case) -> None:
    """E7: a null-safe undo without arguments undoes what the forward key did, and nothing else."""
    project.done(case.tool, case.arguments, key="other")
    project.done(case.tool, case.arguments)
    assert project.done(undo_tool(case), key="u", forward_key="a")["status"] != "already_gone"
    undone = project.ledger()[-1]
    assert (undone.effect, undone.key, undone.forward_key) == (case.undone, "u", "a")
    assert project.done(undo_tool(case), key="w", forward_key="a") == {"status": "already_gone"}


@pytest.mark.parametrize("case", UNDOABLE, ids=lambda case: case.tool)
def test_undo_of_what_never_happened_is_harmless(project: Project, case: Case) -> None:
    """E12: an undo that finds nothing succeeds and has no effect, with an id that nobody knows as well."""
    assert project.done(undo_tool(case), key="u", forward_key="a") == {"status": "already_gone"}
    unknown = undo_arguments(case, dict.fromkeys(("lead_id", "charge_id", "vm_id"), "nobody"))
    assert project.done(undo_tool(case), unknown, key="v", forward_key="b") == {"status": "already_gone"}
    assert project.effects() == []


@pytest.mark.parametrize("case", UNDOABLE, ids=lambda case: case.tool)
def test_action_that_arrives_after_its_undo_is_refused(project: Project, case: Case) -> None:
    """E9: a late-safe undo leaves a tombstone, and the action that comes after it has no effect."""
    project.done(undo_tool(case), key="u", forward_key="a")
    assert project.word(case.tool, case.arguments) == ("rejected", "already_undone")
    assert project.effects() == []
    project.done(case.tool, case.arguments, key="b")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.tool)
def test_probe_tells_the_truth(project: Project, case: Case) -> None:
    """E6: the probe says not done before the action, and afterwards done with the action's output."""
    probe = REGISTRY.facts_of(case.tool).probe
    assert probe is not None
    assert project.probe(probe).answer is ProbeAnswer.NOT_DONE
    output = project.done(case.tool, case.arguments)
    reply = project.probe(probe)
    assert (reply.answer, reply.output) == (ProbeAnswer.DONE, output)
    assert project.probe(probe, key="b").answer is ProbeAnswer.NOT_DONE
    assert project.effects() == [case.effect]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.tool)
def test_action_survives_a_kill(project: Project, case: Case, point: str) -> None:
    """E4: a process killed before or after the effect leaves one effect or none, and the next attempt makes it one."""
    child = project.start((case.tool, "a", "a", case.arguments), SAGACTL_SANDBOX_KILL=f"{case.tool}:{point}:1")
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (-9, "")
    assert project.effects() == ([case.effect] if point == "after_effect" else [])
    again = project.start((case.tool, "a", "a", case.arguments), SAGACTL_SANDBOX_KILL=f"{case.tool}:{point}:1")
    out, _ = again.communicate(timeout=60)
    assert (again.returncode, out.split()[0]) == (0, "succeeded")
    assert project.effects() == [case.effect]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("case", UNDOABLE, ids=lambda case: case.tool)
def test_undo_survives_a_kill(project: Project, case: Case, point: str) -> None:
    """E12: an undo that is killed at either point and called again undoes once."""
    project.done(case.tool, case.arguments)
    tool = undo_tool(case)
    child = project.start((tool, "u", "a", {}), SAGACTL_SANDBOX_KILL=f"{tool}:{point}")
    child.communicate(timeout=60)
    assert child.returncode == -9
    project.done(tool, key="u", forward_key="a")
    assert project.effects() == [case.effect, case.undone]


def test_contract_is_signed_once_and_found() -> None:
    """The pivot's tool has a probe and no compensation."""
    facts = REGISTRY.facts_of("crm.sign_contract")
    assert (facts.compensation, facts.probe, facts.idempotent) == (None, "crm.find_contract", True)


def test_contract(project: Project) -> None:
    """A lead signs once; one that is unknown, archived or refuses doesn't sign."""
    lead = project.done("crm.create_lead", {"email": "ada@example.com"}, key="lead")
    signed = project.done("crm.sign_contract", lead)
    assert project.done("crm.sign_contract", lead) == signed
    assert project.probe("crm.find_contract").output == signed
    assert project.word("crm.sign_contract", {"lead_id": "nobody"}, key="b") == ("rejected", "lead_not_found")
    refuses = project.done("crm.create_lead", {"email": "refuses@example.com"}, key="lead 2")
    assert project.word("crm.sign_contract", refuses, key="c") == ("rejected", "contract_refused")
    project.done("crm.archive_lead", refuses, key="u", forward_key="lead 2")
    assert project.word("crm.sign_contract", refuses, key="d") == ("rejected", "lead_not_found")
    assert project.effects().count("contract signed") == 1


def charge(card: str) -> dict[str, Json]:
    """Return the arguments of a charge."""
    return {"lead_id": "lead_1", "amount": 100, "card": card}


def test_card_that_is_declined(project: Project) -> None:
    """`declined`: rejected without an effect."""
    assert project.word("billing.charge", charge("declined")) == ("rejected", "card_declined")
    assert project.effects() == []


def test_card_that_is_flaky(project: Project) -> None:
    """`flaky`: unavailable twice, with a delay that the bank names, then charged."""
    for _ in range(2):
        answer = project.call("billing.charge", charge("flaky"))
        assert (answer.kind.value, answer.after_ms) == ("unavailable", 1_000)
    project.done("billing.charge", charge("flaky"))
    assert project.effects() == ["charged"]


def test_card_whose_answer_is_lost(project: Project) -> None:
    """`timeout`: charged, unknown at first; the probe and the next attempt both know better."""
    assert project.word("billing.charge", charge("timeout")) == ("unknown", "ConnectionError")
    assert project.probe("billing.find_charge").answer is ProbeAnswer.DONE
    project.done("billing.charge", charge("timeout"))
    assert project.effects() == ["charged"]


def test_card_in_limbo(project: Project) -> None:
    """`limbo`: charged, always unknown, and the probe can't tell either."""
    for _ in range(2):
        assert project.word("billing.charge", charge("limbo")) == ("unknown", "ConnectionError")
    assert project.probe("billing.find_charge").answer is ProbeAnswer.CANNOT_TELL
    assert project.effects() == ["charged"]


def test_card_that_can_not_be_refunded(project: Project) -> None:
    """`unrefundable`: charged, and the refund is rejected each time."""
    project.done("billing.charge", charge("unrefundable"))
    for _ in range(2):
        assert project.word("billing.refund", key="u", forward_key="a") == ("rejected", "refund_refused")
    assert project.effects() == ["charged"]


def test_card_that_hangs_gives_up_when_cancelled(project: Project) -> None:
    """E14: `hang` waits past its deadline but honours the cancel event, and then nothing was charged."""
    cancelled = threading.Event()
    timer = threading.Timer(0.1, cancelled.set)
    started = time.monotonic()
    timer.start()
    assert project.word("billing.charge", charge("hang"), cancelled=cancelled) == ("unknown", "TimeoutError")
    timer.join()
    assert 0.05 < time.monotonic() - started < 25
    assert project.probe("billing.find_charge").answer is ProbeAnswer.NOT_DONE


def test_mail_by_address(project: Project) -> None:
    """`bounces`, `offline` and `busy` addresses do as documented."""

    def send(to: str) -> dict[str, Json]:
        return {"to": f"{to}@example.com", "template": "t"}

    assert project.word("mail.send", send("bounces")) == ("rejected", "bounced")
    for _ in range(3):
        assert project.word("mail.send", send("offline"), key="b") == ("unavailable", "mail_offline")
    for _ in range(2):
        assert project.word("mail.send", send("busy"), key="c") == ("unavailable", "mail_busy")
    project.done("mail.send", send("busy"), key="c")
    assert project.effects() == ["message sent"]


def test_ninth_machine_is_refused_until_one_is_gone(project: Project) -> None:
    """The subnet holds eight machines; an address that is freed is used again."""
    machines = [project.done("cloud.provision_vm", {"name": "vm"}, key=f"k{n}") for n in range(8)]
    assert [machine["address"] for machine in machines] == [f"10.0.0.{n}" for n in range(1, 9)]
    assert project.word("cloud.provision_vm", {"name": "vm"}, key="k8") == ("rejected", "subnet_exhausted")
    project.done("cloud.deallocate_vm", {"vm_id": machines[3]["vm_id"]}, key="u3", forward_key="k3")
    assert project.done("cloud.provision_vm", {"name": "vm"}, key="k9")["address"] == "10.0.0.4"


def test_processes_side_by_side_never_share_an_address(project: Project) -> None:
    """Three processes that start five machines each get eight addresses in all, each once."""
    children = [
        project.start(*(("cloud.provision_vm", f"{child}/{n}", f"{child}/{n}", {"name": "vm"}) for n in range(5)))
        for child in range(3)
    ]
    lines = [line for child in children for line in child.communicate(timeout=60)[0].splitlines()]
    assert [child.returncode for child in children] == [0, 0, 0]
    addresses = sorted(line.split()[1] for line in lines if line.startswith("succeeded"))
    assert addresses == [f"10.0.0.{n}" for n in range(1, 9)]
    assert sum(line.startswith("rejected") for line in lines) == 7
    assert len(project.ledger()) == 8


def test_threads_side_by_side_charge_once(project: Project) -> None:
    """E8: one key from many threads at once is one effect and one answer."""
    outputs: list[dict[str, Json]] = []
    threads = [
        threading.Thread(target=lambda: outputs.append(project.done("billing.charge", charge("ok")))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outputs) == 8
    assert all(output == outputs[0] for output in outputs)
    assert project.effects() == ["charged"]
