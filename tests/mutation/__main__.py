"""`mutmut`, told what is worth trying here: `python -m tests.mutation run`, and `python -m tests.mutation score`.

Three things are left alone, since no test should mind them: words for people (texts with a blank in them), what an
exception is made from, and what the type checker refuses, which never lands. Tests are chosen by their name in a list
that pytest reads once, not one by one on its command line.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

NAMES = {0: "survived", 1: "killed", 3: "killed", 33: "no tests", 37: "type"}
"""What mutmut's exit codes mean; all others are timeouts or crashes, which are noticed as well."""


def _is_for_people(text: str) -> bool:
    return " " in text


def leave_words_alone() -> None:
    """Take from mutmut the changes that say nothing about the code."""
    cst: Any = import_module("libcst")
    mutators: Any = import_module("mutmut.mutation.mutators")

    def change_text(node: Any) -> Iterator[Any]:
        if not _is_for_people(node.raw_value if hasattr(node, "raw_value") else str(node)):
            yield from mutators.operator_string(node)

    def change_arguments(node: Any) -> Iterator[Any]:
        name = node.func.value if isinstance(node.func, cst.Name) else ""
        if not name.endswith("Error") and name not in {"Failure", "cast"}:
            yield from mutators.operator_arg_removal(node)

    others = {mutators.operator_string: change_text, mutators.operator_arg_removal: change_arguments}
    mutators.mutation_operators[:] = [(kind, others.get(each, each)) for kind, each in mutators.mutation_operators]


class Chosen:
    """A pytest plugin: runs these tests alone, in this order."""

    def __init__(self, tests: Iterable[str]) -> None:
        self.place = {name: number for number, name in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep what was chosen."""
        items[:] = sorted(
            (each for each in items if each.nodeid in self.place), key=lambda each: self.place[each.nodeid]
        )


def choose_tests_at_once() -> None:
    """Name the chosen tests to pytest by a plugin, and of the files only those that hold them."""
    trampoline: Any = import_module("mutmut.mutation.trampoline")
    harness: Any = import_module("mutmut.runners.harness")
    change_cwd: Any = import_module("mutmut.utils.file_utils").change_cwd

    def run_tests(runner: Any, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        if mutant_name is not None:
            trampoline.get_mutant_under_test = lambda: mutant_name  # asked at every call, so not of the environment
        chosen = list(tests)
        files = list(dict.fromkeys(name.split("::")[0] for name in chosen))
        with change_cwd("mutants"):
            if not chosen:
                return int(runner.execute_pytest(runner._pytest_args_regular_run([])))
            return int(runner.execute_pytest(["-x", "-q", *files], plugins=[Chosen(chosen)]))

    harness.PytestRunner.run_tests = run_tests


def read_results() -> dict[str, Counter[str]]:
    """Return of each module how many mutants came to what."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(Path("mutants/sagactl/core").glob("*.meta")):
        codes = json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"].values()
        counts = Counter("to do" if code is None else NAMES.get(code, "timeout") for code in codes)
        if counts:
            found[path.name.removesuffix(".py.meta")] = counts
    return found


def write_score(name: str, counts: Counter[str]) -> str:
    """Return one line: of those that the type checker lets pass, how many are noticed."""
    noticed = counts["killed"] + counts["timeout"]
    tried = noticed + counts["survived"] + counts["no tests"]
    rest = (
        f"{counts['survived'] + counts['no tests']:>5} live  {counts['type']:>5} by types  {counts['to do']:>5} to do"
    )
    return f"{name:<14} {100 * noticed / tried if tried else 100:6.1f} %  {noticed:>5} of {tried:<5} {rest}"


def main() -> None:
    """Run mutmut, or print the score of each module."""
    if sys.argv[1:] == ["score"]:
        results = read_results()
        lines = [write_score(name, counts) for name, counts in results.items()]
        print("\n".join([*lines, write_score("all", sum(results.values(), Counter()))]))  # noqa: T201
        return
    leave_words_alone()
    choose_tests_at_once()
    import_module("mutmut.__main__").cli()


if __name__ == "__main__":
    main()
