"""People are told: what the outbox of a storm holds, and what arrives of it however badly the courier fares."""

from __future__ import annotations

from collections import Counter

import pytest

from sagactl.core import alerting
from sagactl.core.alerting import Reason
from tests.core.simulation.alerts import judge_post, send
from tests.core.simulation.trial import try_seed
from tests.proof import Prove

SHARE = 1_000
RARE = (Reason.KEEPS_FAILING, Reason.REQUEST_VOID)
NOT_SIMULATED = (Reason.CANNOT_END,)
"""In the simulated world every call can be ended; the tests of the engine have those that can't."""
SHARES = range(100_000, 104_000, SHARE)


@pytest.mark.parametrize("first", SHARES)
def test_every_alert_has_its_cause_and_arrives(first: int, prove: Prove) -> None:
    """E13, L6, V3, V4: an alert exists if and only if its cause does, and arrives at least once, under one id."""
    happened: Counter[str] = Counter()
    for seed in range(first, first + SHARE):
        _, simulation = try_seed(seed)
        post = send(simulation)
        findings = judge_post(simulation, post)
        assert not findings, "\n".join(
            [f"seed {seed}: pytest tests/core/simulation/test_alerts.py -k {first}", *findings]
        )
        happened += post.happened
        happened += Counter(str(message.reason) for _, message in post.arrived)
        happened["twice"] += len(post.arrived) - len({(channel, message.id) for channel, message in post.arrived})
        happened["over"] += sum(message.is_resolution for _, message in post.arrived)
    for each in (*(set(Reason) - {*RARE, *NOT_SIMULATED}), "failed", "died before", "died after", "twice", "over"):
        assert happened[each], f"V0: {each} never happened"
    for each in RARE:
        prove(f"simulated alerts that arrived: {each}", happened[each], goal=1)
    prove("simulated storms whose alerts were sent (seeds)", SHARE, goal=4_000)


@pytest.mark.parametrize("word", ["stuck", "dead_letter", "approval"])
def test_the_judge_notices_an_alert_that_nobody_raises(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """V0: the judge of the outbox is no blind one."""
    original = alerting.alert_effects

    def forget(record: object) -> tuple[object, ...]:
        found = original(record)  # type: ignore[arg-type]
        return tuple(each for each in found if getattr(each, "reason", None) != word)

    monkeypatch.setattr(alerting, "alert_effects", forget)
    for seed in range(SHARE):
        _, simulation = try_seed(seed)
        if any(finding.startswith("L6") for finding in judge_post(simulation, send(simulation))):
            return
    pytest.fail("not noticed")
