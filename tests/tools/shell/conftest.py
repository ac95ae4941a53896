"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.shell.commands import Commands, wait_until


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    """Return the built-in tools in a folder of their own; every call has left nothing behind at the end."""
    commands = Commands(tmp_path)
    yield commands
    wait_until(lambda: not list(commands.calls.glob("*")))
    commands.built_in.close()
