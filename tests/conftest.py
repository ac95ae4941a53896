"""Options of the whole suite: which seeds the simulations try, and whether the long runs are made."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sagactl.secrets.masking import KNOWN

SEEDS = 2_000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; a failing simulation prints the one that repeats it."""
    group = parser.getgroup("sagactl")
    group.addoption("--seed", type=int, default=None, help="simulate this seed alone")
    group.addoption("--seeds", type=int, default=SEEDS, help=f"simulate so many seeds (default {SEEDS})")
    group.addoption("--soak", action="store_true", help="make the long runs as well")


def pytest_configure() -> None:
    """Let no test be spoken to as if a runner of CI read it, also where one does."""
    os.environ.pop("GITHUB_ACTIONS", None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long runs out unless they were asked for."""
    if config.getoption("--soak"):
        return
    skip = pytest.mark.skip(reason="a long run: --soak makes it")
    for item in items:
        if "soak" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _forget_secrets() -> Iterator[None]:
    """Let no test mask what another one has told this process."""
    before = KNOWN._values, KNOWN._needles, KNOWN._reach
    yield
    KNOWN._values, KNOWN._needles, KNOWN._reach = before


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int | None:
    """Return the one seed that was asked for."""
    found: int | None = pytestconfig.getoption("--seed")
    return found


@pytest.fixture
def seeds(pytestconfig: pytest.Config) -> range:
    """Return the seeds to simulate."""
    one: int | None = pytestconfig.getoption("--seed")
    return range(pytestconfig.getoption("--seeds")) if one is None else range(one, one + 1)
