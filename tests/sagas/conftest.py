"""One server of command lines for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sagas.served import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Give a server, and end it."""
    served = Server()
    yield served
    served.close()
