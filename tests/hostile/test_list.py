"""The list of hostile inputs, each by its id: tried by a test of its name, or here with the reason why it can't be yet.

| id | why there is no test |
|---|---|
| H31 | there is no door for agents: whoever can run `sagactl` is an operator |
| H43 | nothing listens: there are no inbound webhooks |
| H47 | there is no dashboard |
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

IDS: Final = {
    "H01": "an alias bomb",
    "H03": "a hundred thousand levels, in a saga and in an input",
    "H05": "a key given twice",
    "H07": "words that YAML turns into something else",
    "H09": "numbers of any size, NaN and infinity",
    "H11": "paths in the place of names and ids",
    "H13": "text that looks like an expression",
    "H15": "text that looks like a command",
    "H17": "a URL that leads inside",
    "H19": "text that looks like SQL",
    "H21": "a schema that refers to elsewhere",
    "H23": "a pattern that takes for ever",
    "H25": "a secret in errors, answers and URLs",
    "H27": "text that a terminal obeys",
    "H29": "names that look like others",
    "H31": "an agent that decides what people should",
    "H33": "a tool that changes after it was agreed to",
    "H35": "a saga that says what runs",
    "H37": "an installed package that nobody allowed",
    "H39": "files that others can read",
    "H41": "a byte changed in the log",
    "H43": "an old message, and one sent twice",
    "H45": "a receiver that leads elsewhere, is silent or gone",
    "H47": "a page of somebody else's that posts",
    "H49": "a tool that never stops printing",
    "H51": "too much of anything",
    "H53": "clocks that jump",
    "H55": "answers that come twice or late",
    "H57": "a disk that is full or fails",
    "H59": "a damaged log",
}

NOT_YET: Final = frozenset({"H31", "H43", "H47"})
_FOLDER = Path(__file__).parent
_TESTED_ELSEWHERE: Final = {
    "H17": "tests/cli/test_http.py",
    "H33": "tests/tools/mcp/test_runs.py",
    "H53": "tests/log/lease_contract.py",
}
"""Tried where the server is at hand that is asked, or the clock that is set."""


def test_each_id_is_tested_or_has_a_reason() -> None:
    """No hostile input is forgotten: it has a test of its name, one elsewhere, or a row in the table above."""
    names = "\n".join(file.read_text() for file in sorted(_FOLDER.glob("test_*.py")))
    named = {f"H{number}" for number in re.findall(r"def test_h(\d\d)_", names)}
    elsewhere = {key for key, file in _TESTED_ELSEWHERE.items() if key in (_FOLDER.parents[1] / file).read_text()}
    assert elsewhere == set(_TESTED_ELSEWHERE)
    assert set(re.findall(r"^\| (H\d\d) \|", __doc__ or "", re.MULTILINE)) == NOT_YET
    assert named | elsewhere | NOT_YET == set(IDS)
    assert not named & NOT_YET


def test_what_has_no_test_is_not_there() -> None:
    """The reasons hold: none of what would have to be tried is among the commands."""
    from sagactl.cli.commands import COMMANDS

    assert not {"mcp", "ui", "worker", "serve"} & set(COMMANDS)
