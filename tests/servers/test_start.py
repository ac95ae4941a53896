"""The starter of servers itself: what it starts is there, and gone afterwards."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.servers.start import find_free_port, find_node_program, is_listening, running


def test_a_server_is_there_within_the_block_and_gone_behind_it(tmp_path: Path) -> None:
    """Nothing that a test starts is left running."""
    port = find_free_port()
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    with running(command, is_ready=lambda: is_listening(port), log=tmp_path / "log", cwd=tmp_path):
        assert is_listening(port)
    assert not is_listening(port)


def test_the_programs_of_node_are_the_locked_ones() -> None:
    """They come by the lock file, with hashes, and no script of theirs is run while they are installed."""
    assert Path(find_node_program("stripe-stateful-mock")).exists()
    assert "resolved" not in (Path(__file__).parent / "package-lock.json").read_text()
