"""That every failure on the list is a test, or says why it isn't one.

The list are failures that saga, workflow and queue systems really had, as their users reported them, and a few that
nobody has reported yet (X). Tests are named after them: `test_b01_…`. Elsewhere, or not at all:

| id | where, or why not |
|---|---|
| B53 | paging through a long log: `tests/log/contract.py` |
| B55 | what makes a log grow: `tests/log/lease_contract.py`, `tests/log/prune_contract.py` |
| B61 | a log that is locked: `tests/log/test_storage_trouble.py` |
| B63 | a full disk: `tests/log/test_storage_trouble.py` |
| B93 | a budget that two workers spend twice: there are no budgets; amounts are a tool's business |
| B95 | a saga within a saga: there is none; a step is one local transaction |
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
LISTED = [*(f"B{number:02}" for number in range(1, 100, 2)), *(f"X{number:02}" for number in range(1, 10, 2))]


def test_every_scenario_is_tested_or_says_why_not() -> None:
    """V0: none is missing, none is both, and what is said to be elsewhere is there and names it."""
    sources = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    tested = {name.upper() for name in re.findall(r"^def test_([bx]\d\d)_", sources, re.MULTILINE)}
    excused = dict(re.findall(r"^\| ([BX]\d\d) \| (.*) \|$", __doc__ or "", re.MULTILINE))
    assert tested & excused.keys() == set()
    assert sorted(tested | excused.keys()) == LISTED
    for scenario, reason in excused.items():
        files = re.findall(r"`(tests/\S+\.py)`", reason)
        assert not files or any(scenario in (HERE.parents[1] / file).read_text() for file in files)
