"""Rounds of random inputs: the same ones for the same number, as many as the time allows.

`pytest tests/fuzz --fuzz-seconds 3600 -n 2` is a soak; `--seed N` makes round N alone, as a failure says.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.proof import Prove

ValueT = TypeVar("ValueT")

EXAMPLES_A_ROUND: Final = 100
HANG_SECONDS: Final = 1.0
"""Processor time that one input may take."""

STUCK_SECONDS: Final = 20.0
"""Processor time after which an input is broken off, so that a round ends at all."""

GOAL: Final = 15_000
"""Inputs in all; the time is that of the processor, so a busy machine tries about as many: twice that."""


class Fuzzer:
    """Tries inputs until the time of one target is used up."""

    def __init__(self, name: str, seconds: float, only: int | None, prove: Prove) -> None:
        self._name = name
        self._seconds = seconds
        self._only = only
        self._prove = prove

    def try_all(self, strategy: SearchStrategy[ValueT], check: Callable[[ValueT], object]) -> None:
        """Check what *strategy* gives; a failure says which round it was in one line."""
        tried = 0
        until = time.process_time() + self._seconds
        for number in count() if self._only is None else [self._only]:
            tried += self._try_round(number, strategy, check)
            if time.process_time() >= until:
                break
        self._prove("fuzzed inputs", tried, goal=GOAL)

    def _try_round(self, number: int, strategy: SearchStrategy[ValueT], check: Callable[[ValueT], object]) -> int:
        tried = 0

        @seed(number)
        @settings(
            max_examples=EXAMPLES_A_ROUND,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def round_of(value: Any) -> None:
            nonlocal tried
            tried += 1
            started = time.process_time()
            with _broken_off():
                check(value)
            spent = time.process_time() - started
            assert spent < HANG_SECONDS, f"{spent:.1f}s for one input"

        try:
            round_of()
        except BaseException as error:
            line = f"again with: pytest tests/fuzz -k {self._name} --seed {number}"
            raise AssertionError(f"{line} ({type(error).__name__}: {str(error)[:500]})") from error
        return tried


@contextmanager
def _broken_off() -> Iterator[None]:
    """Raise where the processor is busy for too long with what is done inside."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise AssertionError(f"no end in sight after {STUCK_SECONDS:.0f}s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, STUCK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.fixture
def fuzz(request: pytest.FixtureRequest, prove: Prove) -> Fuzzer:
    """Return what tries inputs for the share of time that one test has."""
    config = request.config
    tests = [each for each in request.session.items if "fuzz" in getattr(each, "fixturenames", ())]
    seconds = config.getoption("--fuzz-seconds") / max(1, len(tests))
    return Fuzzer(request.node.name, seconds, config.getoption("--seed"), prove)
