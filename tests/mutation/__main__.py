"""`mutmut`, told what is worth trying here: `python -m tests.mutation run`, and `python -m tests.mutation score`.

Three things are left alone, since no test should mind them: words for people (texts with a blank in them), what an
exception is made from, and what the type checker refuses, which never lands. And most tests need nothing but to be
called, so pytest, which takes far longer than they do, is asked only where all of these are content.
"""

from __future__ import annotations

import inspect
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings

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
        if not name.endswith("Error") and name not in {"Failure", "cast", "assert_never"}:
            yield from mutators.operator_arg_removal(node)

    def change_cases(node: Any) -> Iterator[Any]:
        is_open = isinstance(node.cases[-1].pattern, cst.MatchAs) and node.cases[-1].pattern.pattern is None
        for mutated in mutators.operator_match(node):
            if not is_open or isinstance(mutated.cases[-1].pattern, cst.MatchAs):  # what never comes may be left out
                yield mutated

    others = {
        mutators.operator_string: change_text,
        mutators.operator_arg_removal: change_arguments,
        mutators.operator_match: change_cases,
    }
    mutators.mutation_operators[:] = [(kind, others.get(each, each)) for kind, each in mutators.mutation_operators]


QUICK_SECONDS = 0.5


class Chosen:
    """A pytest plugin: runs these tests alone, in this order, and keeps what can be called without pytest."""

    def __init__(self, tests: Iterable[str], plain: dict[str, Callable[[], object]]) -> None:
        self.place = {name: number for number, name in enumerate(tests)}
        self.plain = plain

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep what was chosen; a quick test that takes only its parameters is a function like any other."""
        took_seconds = import_module("mutmut.state").state().duration_by_test
        items[:] = sorted((each for each in items if each.nodeid in self.place), key=self._place_of)
        for each in items:
            parameters = each.callspec.params if hasattr(each, "callspec") else {}
            wanted = inspect.signature(each.obj).parameters.keys()
            if wanted <= parameters.keys() and took_seconds.get(each.nodeid, 0) < QUICK_SECONDS:
                self.plain[each.nodeid] = partial(each.obj, **{name: parameters[name] for name in wanted})

    def _place_of(self, item: Any) -> int:
        return self.place[item.nodeid]


SECONDS_MAX = 3.0
"""Time of the processor after which a test that takes a moment is taken for one that never ends."""


def is_noticed(tests: Iterable[str], plain: dict[str, Callable[[], object]]) -> bool:
    """Call what can be called without pytest, the quickest first; tell whether one of them fails, or never ends."""

    def give_up(*_: object) -> None:
        raise SystemExit("it never ends")

    signal.signal(signal.SIGVTALRM, give_up)
    try:
        for name in tests:
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_MAX)
            if name in plain:
                plain[name]()
    except BaseException:  # whatever it is, it is noticed
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return False


def choose_tests_at_once() -> None:
    """Call most tests without pytest, and name the others to it by a plugin."""
    trampoline: Any = import_module("mutmut.mutation.trampoline")
    harness: Any = import_module("mutmut.runners.harness")
    change_cwd: Any = import_module("mutmut.utils.file_utils").change_cwd
    plain: dict[str, Callable[[], object]] = {}

    def run_tests(runner: Any, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        chosen = list(tests)
        with change_cwd("mutants"):
            if mutant_name is not None and is_noticed(chosen, plain):
                return 1
            left = [name for name in chosen if mutant_name is None or name not in plain]
            if chosen and not left:
                return 0
            files = list(dict.fromkeys(name.split("::")[0] for name in left))
            arguments = ["-x", "-q", *files] if left else runner._pytest_args_regular_run([])
            plugins = [Chosen(left, plain)] if left else []
            return int(runner.execute_pytest(arguments, plugins=plugins))

    harness.PytestRunner.run_tests = run_tests
    trampoline.get_mutant_under_test = lambda: trampoline._mutant_under_test or ""  # it is asked at every call


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
    phases = (Phase.explicit, Phase.generate)  # nobody reads the smallest example
    settings.register_profile("mutation", phases=phases, derandomize=True, database=None, deadline=None)
    settings.load_profile("mutation")
    import_module("mutmut.__main__").cli()


if __name__ == "__main__":
    main()
