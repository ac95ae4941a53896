"""Every kind of problem has a file that shows it and the text that is printed for it.

`SAGACTL_REWRITE_GOLDEN=1 pytest tests/spec/test_problems.py` writes the texts anew; look at the difference.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from sagactl.spec.load import load_saga
from sagactl.written.positions import NODES_MAX
from sagactl.written.problem import InvalidSagaError, Problem
from sagactl.written.report import render_problems
from tests.spec.toolbox import TOOLS

FOLDER = Path(__file__).parent / "problems"
SOURCES = [Path(__file__).parents[2] / "sagactl" / part for part in ("spec", "written")]
NO_FILE = {"invalid-saga", "invalid-input", "bad-input"}
"""Codes of errors that are no problem of a file."""

MADE = {
    "file-too-large": b"#" * 1_048_577,
    "too-many-values": b"saga: x\nsteps: [" + b"1," * NODES_MAX + b"]\n",
}
"""Files too large to keep."""

CASES = sorted({path.stem for path in FOLDER.glob("*.yaml")} | MADE.keys())


def read_case(name: str) -> bytes:
    """Return the content of the saga file of a case."""
    return MADE[name] if name in MADE else (FOLDER / f"{name}.yaml").read_bytes()


def find_problems(name: str) -> tuple[tuple[Problem, ...], str]:
    """Return the problems of a case, warnings too, and the text they refer to."""
    try:
        loaded = load_saga(read_case(name), file=f"sagas/{name}.yaml", tools=TOOLS)
    except InvalidSagaError as error:
        return error.problems, error.source_text
    return loaded.warnings, loaded.source_text


@pytest.mark.parametrize("name", CASES)
def test_each_problem_is_printed_as_its_golden_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """F5: each problem is shown with file, line, column, the line, a caret under the span, and a hint."""
    if name == "cel-missing":
        monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    problems, text = find_problems(name)
    printed = render_problems(problems, text)
    golden = FOLDER / f"{name}.txt"
    if os.environ.get("SAGACTL_REWRITE_GOLDEN"):
        golden.write_text(printed, encoding="utf-8")
    assert printed == golden.read_text(encoding="utf-8")
    code = max((code for code in known_codes() if name == code or name.startswith(code + "-")), key=len)
    assert code in {problem.code for problem in problems}


def known_codes() -> set[str]:
    """Return every code that the source can give to a problem."""
    makers = r"(?:\.error|\.warning|\.unknown|Unreadable|Problem|_refuse_name|code=)"
    calls = re.compile(makers + r'\(?\s*(?:findings,\s*)?"([a-z-]+)"')
    files = [path for folder in SOURCES for path in folder.glob("*.py")]
    found = {code for path in files for code in calls.findall(path.read_text(encoding="utf-8"))}
    return found - NO_FILE


def test_every_code_in_the_source_has_a_file() -> None:
    """Each code of a problem is proved by a file of its name."""
    assert len(known_codes()) > 60
    assert known_codes() <= set(CASES)
