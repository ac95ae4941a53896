"""Power cuts in what a real process was seen doing: the command line, the system's SQLite, our syncs of the folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.project import Project
from tests.log.disk.images import cut_everywhere
from tests.log.disk.judge import judge_all
from tests.log.disk.straced import read_trace, run_straced
from tests.log.disk.test_power_cuts import GOAL, IMAGES, LOST
from tests.proof import Prove

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: NOT RUN")

SCENES = {"succeeds": ("first@example.com", 0), "rolls back": ("refuses@example.com", 10)}
TORN = 3


@pytest.mark.parametrize("scene", SCENES)
def test_no_power_cut_loses_what_a_real_process_acknowledged(scene: str, quick: Path, prove: Prove) -> None:
    """E1, L1, L2: after a cut anywhere the log is what its gate has taken down, with the intent of each call."""
    email, expected = SCENES[scene]
    (quick / "p").mkdir()
    project = Project.make(quick / "p")
    code, lines = run_straced(project, "run", "onboarding", "-q", "-i", f"email={email}", "-i", "amount:=1")
    assert code == expected
    trace = read_trace(lines, project.path / ".sagactl" / "log.db")
    assert len(trace.acknowledged) > len(trace.begun) > 3
    found = judge_all(cut_everywhere(trace, torn=TORN), trace, quick / "image")
    assert found.wrong == [], found.wrong[0]
    assert found.images > 300
    assert found.ahead > 5
    prove(IMAGES, found.images, goal=GOAL)
    prove(LOST, len(found.wrong), goal=0)
