"""Power cuts on a real file system: ext4 on a loop device, shut down without its journal while a process writes.

A long run, as root alone may mount: `pytest --soak tests/log/disk/test_real_cuts.py`.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sagactl.log.sqlite import SqliteLog
from tests.log.process import launch
from tests.proof import Prove

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("mkfs.ext4") is None, reason="needs root and mkfs.ext4: NOT RUN"
    ),
]

CYCLES = 40
SHUT_DOWN = 0x8004587D
WITHOUT_JOURNAL = 2
PROGRAM = """
log = SqliteLog(path)
lease = start(log, f"run{len(log.find(''))}{int(time.time() * 1000)}")
seq = 2
while True:
    log.append([batch(lease, seq, outcome(output="x" * 300), intent())])
    seq += 2
    say(f"{lease.run_id} {seq}")
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of its own, mounted."""
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def _cut(disk: Path) -> None:
    descriptor = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SHUT_DOWN, struct.pack("I", WITHOUT_JOURNAL))
    finally:
        os.close(descriptor)


def _write_and_cut(disk: Path, seconds: float) -> dict[str, int]:
    """Let a process write for a while, cut the power, and return what it had acknowledged before the cut."""
    process = launch(disk / "log" / "log.db", PROGRAM)
    acknowledged: dict[str, int] = {}
    is_cut = threading.Event()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if is_cut.is_set():
                return
            run_id, seq = line.split()
            acknowledged[run_id] = int(seq)

    listening = threading.Thread(target=listen)
    listening.start()
    while not acknowledged:
        time.sleep(0.01)
    time.sleep(seconds)
    is_cut.set()  # what is said from now on may come from a file system that has ended
    before = dict(acknowledged)
    _cut(disk)
    process.kill()
    process.wait(60)
    listening.join(60)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    return before


def test_no_power_cut_on_a_real_file_system_loses_what_was_acknowledged(
    disk: Path, tmp_path: Path, prove: Prove
) -> None:
    """L2: after each cut and a new mount the log opens, verifies, and holds all that was acknowledged."""
    draw = random.Random(7)
    mount = ["mount", "-o", "loop", str(tmp_path / "image"), str(disk)]
    acknowledged: dict[str, int] = {}
    lost = 0
    for cycle in range(CYCLES):
        acknowledged |= _write_and_cut(disk, draw.uniform(0.0, 0.4))
        subprocess.run(["umount", str(disk)], check=True)
        subprocess.run(mount, check=True)
        with closing(SqliteLog(disk / "log" / "log.db")) as log:
            assert log.verify().findings == (), f"cycle {cycle}"
            lost += sum(log.row(run_id).seq < seq for run_id, seq in acknowledged.items())
        assert lost == 0, f"cycle {cycle}"
    prove("power cuts on a real file system", CYCLES, goal=CYCLES)
    prove("acknowledged records lost on a real file system", lost, goal=0)
