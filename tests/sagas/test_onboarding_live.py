"""Onboarding on real servers: whatever fails and wherever it is killed, the systems hold what the log says.

Tryton is the real one; Stripe and AWS are fakes that others wrote (see `tests/servers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import Project, Result
from tests.proof import Prove
from tests.sagas.served import Server
from tests.servers.together import Systems, World, serving_all

AMOUNT = 4_900
SERVERS = ("web",)
IMPORTS = ("httpx", "stripe", "botocore.session", "botocore.httpsession", "cel_expr_python")
FORWARD = (
    ("tryton.create_party", "after"),
    ("tryton.add_address", "after"),
    ("tryton.create_sale", "after"),
    ("stripe.charge", "before"),
    ("stripe.charge", "after"),
    ("aws.run_instance", "after"),
    ("tryton.confirm_sale", "before"),
    ("tryton.confirm_sale", "after"),
    ("aws.send_message", "after"),
)
ON_DEMAND = ("stripe.charge", "aws.run_instance")
BACKWARD = ("stripe.refund", "tryton.cancel_sale")
MEASURE = "kills of a run on real servers"
GOAL = len(FORWARD) + len(ON_DEMAND) + len(BACKWARD)


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systems]:
    """Give all three systems."""
    with serving_all(tmp_path_factory.mktemp("systems")) as found:
        yield found


@pytest.fixture(scope="module")
def warm() -> Iterator[Server]:
    """Give a server of command lines that has imported the vendors' libraries."""
    served = Server(*IMPORTS)
    yield served
    served.close()


@dataclass
class Scene:
    """A project of one test, and what the systems held before."""

    project: Project
    systems: Systems
    server: Server
    before: World

    def sagactl(self, *arguments: str, kill: Mapping[str, Any] | None = None) -> Result:
        """Run `sagactl`."""
        return self.server.run(self.project, *arguments, kill=kill)

    def run(self, *more: str, kill: Mapping[str, Any] | None = None) -> Result:
        """Onboard a customer."""
        name = self.project.path.name
        given = ("-i", f"name={name}", "-i", f"email={name}@example.com", "-i", f"amount:={AMOUNT}")
        servers = ("-i", f"servers:={list(SERVERS)}".replace("'", '"'))
        return self.sagactl("run", "onboarding-live", "-q", "-o", "json", *given, *servers, *more, kill=kill)

    def run_id(self) -> str:
        """Return the id of the only run."""
        return self.sagactl("list", "--ids").out.strip()

    def change(self) -> dict[str, int]:
        """Return how much more there is in the systems than before."""
        before, after = count(self.before), count(self.systems.look())
        return {name: after[name] - before[name] for name in after}

    def check(self, result: Result, status: str) -> None:
        """Compare the systems with what the log says that happened."""
        run = result.json["run"]
        assert (run["status"], run["not_undone"]) == (status, []), result.err
        is_done = int(status == "succeeded")
        for step in run["steps"]:
            assert (step["status"] == "succeeded") == bool(is_done), step
        assert self.change() == expect(is_done)


def count(world: World) -> dict[str, int]:
    """Return how much there is of everything; orders that aren't confirmed are counted apart."""
    return {
        "parties": len(world.parties),
        "addresses": world.addresses,
        "orders": len(world.orders),
        "confirmed": sum(state in {"confirmed", "processing", "done"} for state in world.orders),
        "cents": world.kept,
        "machines": world.running,
        "messages": world.messages,
    }


def expect(customers: int) -> dict[str, int]:
    """Return what so many customers are in the systems."""
    each = dict.fromkeys(("parties", "addresses", "orders", "confirmed", "messages"), 1)
    return {name: customers * value for name, value in {**each, "cents": AMOUNT, "machines": len(SERVERS)}.items()}


@pytest.fixture
def scene(systems: Systems, warm: Server, tmp_path: Path) -> Scene:
    """Give a project whose plugins reach the systems."""
    folder = tmp_path / f"c{abs(hash(tmp_path)) % 10**9}"
    project = Project.make(folder)
    project.environ.update(systems.environ)
    return Scene(project, systems, warm, systems.look())


def test_a_customer_is_onboarded(scene: Scene) -> None:
    """In each system is exactly what the saga says, and a second run of the same customer is the first one."""
    done = scene.run()
    assert done.code == 0, done.err
    scene.check(done, "succeeded")
    assert scene.run().json["run"]["id"] == done.json["run"]["id"]
    assert scene.change() == expect(1)


def test_a_declined_card_takes_everything_back(scene: Scene) -> None:
    """E7: the charge was refused for certain, so it isn't refunded; what came before is gone."""
    failed = scene.run("-i", "card=tok_chargeDeclined")
    assert (failed.code, failed.json["run"]["steps"][3]["error"]["type"]) == (10, "generic_decline"), failed.out
    assert scene.change() == expect(0)


def test_a_customer_who_refuses_gets_the_money_back(scene: Scene) -> None:
    """E13: before the pivot a person says no: machines are terminated, the deposit is refunded, Tryton is as before."""
    waiting = scene.run("-i", "ask:=true")
    assert (waiting.code, scene.change()) == (12, {**expect(1), "confirmed": 0, "messages": 0}), waiting.out
    denied = scene.sagactl("deny", scene.run_id(), "contract", "--reason", "the customer refused", "-o", "json")
    assert denied.code == 10, denied.err
    assert scene.change() == expect(0)


@pytest.mark.parametrize(("tool", "when"), FORWARD)
def test_a_run_killed_in_any_call_is_completed(scene: Scene, tool: str, when: str, prove: Prove) -> None:
    """E6, E17: SIGKILL before the request or behind its answer; resumed, each effect is there once."""
    assert scene.run(kill={"tool": tool, "when": when}).code == -9
    done = scene.sagactl("resume", scene.run_id(), "-q", "-o", "json")
    scene.check(done, "succeeded")
    prove(MEASURE, 1, goal=GOAL)


@pytest.mark.parametrize("tool", ON_DEMAND)
def test_a_killed_run_is_rolled_back_on_demand(scene: Scene, tool: str, prove: Prove) -> None:
    """E7, E22: the answer was lost with the process; the effect is found by its key and taken back."""
    assert scene.run(kill={"tool": tool, "when": "after"}).code == -9
    undone = scene.sagactl("rollback", scene.run_id(), "-q", "-o", "json", "--yes")
    scene.check(undone, "rolled_back")
    prove(MEASURE, 1, goal=GOAL)


@pytest.mark.parametrize("tool", BACKWARD)
def test_a_rollback_killed_in_any_undo_is_completed(scene: Scene, tool: str, prove: Prove) -> None:
    """E12, E17: nothing is undone twice, and nothing is left."""
    assert scene.run("-i", "ask:=true").code == 12
    denying = ("deny", scene.run_id(), "contract", "--reason", "no")
    assert scene.sagactl(*denying, kill={"tool": tool, "when": "after"}).code == -9
    undone = scene.sagactl("resume", scene.run_id(), "-q", "-o", "json")
    scene.check(undone, "rolled_back")
    prove(MEASURE, 1, goal=GOAL)
