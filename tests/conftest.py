"""Options of the whole suite: which seeds the simulations try, and whether the long runs are made."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from sagactl.secrets.masking import KNOWN
from tests.proof import Measure, add_up, lines_of, prove

__all__ = ["prove"]

SEEDS = 20_000
FUZZ_SECONDS = 50


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; a failing simulation prints the one that repeats it."""
    group = parser.getgroup("sagactl")
    group.addoption("--seed", type=int, default=None, help="simulate this seed alone")
    group.addoption("--seeds", type=int, default=SEEDS, help=f"simulate so many seeds (default {SEEDS})")
    group.addoption("--image", default=None, help="judge this image of a power cut alone")
    group.addoption(
        "--fuzz-seconds", type=float, default=FUZZ_SECONDS, help=f"fuzz for so long in all (default {FUZZ_SECONDS})"
    )
    group.addoption("--soak", action="store_true", help="make the long runs as well")


def pytest_configure(config: pytest.Config) -> None:
    """Let no test be spoken to as if a runner of CI read it, and none write to the user's own folder of state.

    A file stands where logs would be testified to a second time: tests put logs back as they like.
    """
    os.environ.pop("GITHUB_ACTIONS", None)
    if settings().deadline is not None:  # how long an example takes says how busy the machine is
        by_chance = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]  # or by the machine
        settings.register_profile("sagactl", deadline=None, suppress_health_check=by_chance)
        settings.load_profile("sagactl")
    state = Path(tempfile.mkdtemp(prefix="sagactl-state-"))
    (state / "sagactl").mkdir()
    (state / "sagactl" / "witnesses").touch()
    os.environ["XDG_STATE_HOME"] = str(state)
    config.add_cleanup(lambda: shutil.rmtree(state, ignore_errors=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long runs out unless they were asked for."""
    if config.getoption("--soak"):
        return
    skip = pytest.mark.skip(reason="a long run: --soak makes it")
    for item in items:
        if "soak" in item.keywords:
            item.add_marker(skip)


def _measures(config: pytest.Config) -> list[Measure]:
    """Return what this process has been told that the tests counted."""
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if terminal is None:
        return []
    reports = [each for kind in ("passed", "failed") for each in terminal.stats.get(kind, [])]
    return add_up(each for each in reports if each.when == "call")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was tried, and how much of it."""
    measures = _measures(config)
    if measures:
        terminalreporter.section("what was tried")
        for line in lines_of(measures):
            terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the whole suite if less was tried than is asked for; a chosen part of it may be smaller."""
    config = session.config
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not (
        config.option.keyword or config.option.markexpr
    )
    if whole and session.exitstatus == 0 and not all(each.reached for each in _measures(config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _forget_secrets() -> Iterator[None]:
    """Let no test mask what another one has told this process."""
    before = KNOWN._values, KNOWN._needles, KNOWN._reach
    yield
    KNOWN._values, KNOWN._needles, KNOWN._reach = before


def seeds_of(config: pytest.Config) -> range:
    """Return the seeds to simulate: one that was asked for, or as many as were."""
    one: int | None = config.getoption("--seed")
    return range(config.getoption("--seeds")) if one is None else range(one, one + 1)
