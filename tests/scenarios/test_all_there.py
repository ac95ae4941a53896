"""That every failure on the list is a test, or says why it isn't one.

The list are failures that saga, workflow and queue systems really had, as their users reported them, and a few that
nobody has reported yet (X). Tests are named after them: `test_b01_…`. Not at all:

| id | why not |
|---|---|
| B93 | a budget that two workers spend twice: there are no budgets; amounts are a tool's business |
| B95 | a saga within a saga: there is none; a step is one local transaction |
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
LISTED = [*(f"B{number:02}" for number in range(1, 100, 2)), *(f"X{number:02}" for number in range(1, 10, 2))]


def test_every_scenario_is_tested_or_says_why_not() -> None:
    """V0: none is missing, and none is both."""
    sources = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    tested = {name.upper() for name in re.findall(r"^def test_([bx]\d\d)_", sources, re.MULTILINE)}
    excused = dict(re.findall(r"^\| ([BX]\d\d) \| (.*) \|$", __doc__ or "", re.MULTILINE))
    assert tested & excused.keys() == set()
    assert sorted(tested | excused.keys()) == LISTED
