"""A value that is computed once, whoever asks."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sagactl.once import once_property


class Shop:
    """Something that opens what must be closed."""

    def __init__(self) -> None:
        self.opened = 0
        self.fails = False

    @once_property
    def till(self) -> str:
        """The till."""
        if self.fails:
            raise OSError("no till")
        self.opened += 1
        time.sleep(0.05)  # long enough that all who ask are here
        return f"till {self.opened}"

    @once_property
    def label(self) -> str:
        """What needs another such value."""
        return self.till.upper()


def test_threads_that_ask_at_once_get_the_same() -> None:
    """What is opened for all threads is opened once, and none is lost that nobody would close."""
    shop, gate = Shop(), threading.Barrier(8)

    def ask(number: int) -> str:
        gate.wait()
        return shop.till if number % 2 else shop.label.lower()

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == {"till 1"}
    assert shop.opened == 1


def test_what_failed_is_tried_again() -> None:
    """A value that couldn't be had isn't remembered as anything, and keeps nobody waiting."""
    shop = Shop()
    shop.fails = True
    with pytest.raises(OSError, match="no till"):
        _ = shop.label
    shop.fails = False
    assert (shop.label, vars(shop)["till"], Shop.till.__doc__) == ("TILL 1", "till 1", "The till.")
