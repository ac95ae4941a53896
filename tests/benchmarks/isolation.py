"""What a call in a process of its own costs, against a Python that does nothing."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.benchmarks.processes import compare
from tests.benchmarks.project import write_project
from tests.benchmarks.rows import Row

GOAL: Final = 10.0
CALLS: Final = 10

_SCRIPT: Final = """
import sys
from pathlib import Path
from sagactl.core.records import OutcomeKind
from sagactl.tools.isolated.rules import read_rules
from tests.tools.building import invocation
from tests.tools.isolated.calling import Calling

rules = {"process": ["*"], "pid_namespace": sys.argv[2] == "namespace"}
calling = Calling(Path.cwd(), read_rules(rules))
for _ in range(int(sys.argv[1])):
    answer = calling.toolbox.call(invocation("noop.do", {"text": "x"}))
    assert answer.kind is OutcomeKind.SUCCEEDED, answer
calling.built_in.close()
"""


def measure(repetitions: int) -> Iterator[Row]:
    """Measure calls of a tool that does nothing, with a pid namespace of their own and without."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder)
        script = folder / "calls.py"
        script.write_text(_SCRIPT)
        line = [sys.executable, str(script)]
        commands = {
            "nothing": [sys.executable, "-c", "pass"],
            "none": [*line, "0", "namespace"],
            "namespace": [*line, str(CALLS), "namespace"],
            "swept": [*line, str(CALLS), "swept"],
        }
        found = compare(commands, cwd=folder, repetitions=max(3, repetitions // 5))
    floor, none = found["nothing"], found["none"]
    for name, words in (("namespace", "isolated call"), ("swept", "isolated call without namespace")):
        cpu_ms = (found[name].cpu_ms - none.cpu_ms) / CALLS
        wall_ms = (found[name].wall_ms - none.wall_ms) / CALLS
        yield Row(f"{words}: CPU", cpu_ms, "ms", floor.cpu_ms, GOAL)
        yield Row(f"{words}: wall", wall_ms, "ms", floor.wall_ms, GOAL)
