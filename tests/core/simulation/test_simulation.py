"""The core under a seeded storm: random sagas, failures, crashes, lost leases and people, judged by what happened."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conftest import SEEDS, seeds_of
from tests.core.simulation.happenings import HAPPENINGS, count_happenings
from tests.core.simulation.trial import describe, try_seed
from tests.proof import Prove

SHARE = 2_000
"""How many seeds one test tries, so that several processes can share them."""

RARE = {"decided recovered": "simulated storms in which what kept failing worked at last"}
"""What doesn't happen in every share, and how often it did in all of them."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Cut the seeds that were asked for into shares."""
    if "share" in metafunc.fixturenames:
        seeds = seeds_of(metafunc.config)
        shares = [seeds[first : first + SHARE] for first in range(0, len(seeds), SHARE)]
        metafunc.parametrize("share", shares, ids=[f"from_{share[0]}" for share in shares])


def test_no_storm_breaks_an_invariant(share: range, prove: Prove) -> None:
    """S1-S11, L4, L5, C1-C5, V0-V2: whatever happens, log, world and user agree, and the rules were kept."""
    happened: Counter[str] = Counter()
    failed: dict[int, list[str]] = {}
    for number in share:
        violations, simulation = try_seed(number)
        happened += count_happenings(simulation)
        if violations:
            failed[number] = violations
    prove("simulated storms (seeds)", len(share), goal=SEEDS)
    for each, name in RARE.items():
        prove(name, happened[each], goal=1)
    assert not failed, "\n".join([describe(list(failed)[:20]), *failed[next(iter(failed))]])
    if len(share) == SHARE:
        missing = [each for kind in HAPPENINGS.values() for each in kind if not happened[each] and each not in RARE]
        assert not missing, f"V0: these never happened: {missing}"


def test_a_storm_is_the_same_each_time() -> None:
    """E20: a seed decides everything, so a failure can be repeated."""
    one, two = try_seed(7)[1], try_seed(7)[1]
    assert one.log.records == two.log.records
    assert one.world.ledger == two.world.ledger


@pytest.mark.soak
def test_no_storm_breaks_an_invariant_in_a_hundred_thousand() -> None:
    """S1-S11: the same for more seeds than a person waits for."""
    failed = [number for number in range(10_000, 110_000) if try_seed(number)[0]]
    assert not failed, describe(failed[:20])
