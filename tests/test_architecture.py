"""The house rules of the code, read from the code itself: directions, purity, sizes, names.

The layers are `cli -> usecases -> app -> driving -> engine -> core` and `app -> {spec, log, tools, alerts, telemetry}
-> core -> errors`. What stands in braces never imports its neighbours, and the engine sees their protocols only, so
each can be replaced unnoticed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "sagactl"
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 50
IGNORES_MAX = 10

NEIGHBOURS = ("spec", "log", "tools", "alerts", "telemetry")
ALLOWED = {
    "errors": set[str](),
    "dataclass": set[str](),
    "hashing": set[str](),
    "once": set[str](),
    "regular_file": set[str](),
    "workflow": set[str](),
    "core": {"core", "errors"},
    "schemas": {"schemas"},
    "written": {"written", "schemas", "core", "errors"},
    **{name: {name, "schemas", "core", "errors"} for name in NEIGHBOURS},
    "spec": {"spec", "written", "schemas", "core", "errors"},
    "alerts": {"alerts", "documents", "secrets.masking", "core", "errors"},
    "telemetry": {"telemetry", "core", "errors", ""},
    "tools": {"tools", "written", "schemas", "secrets.masking", "workflow", "core", "errors"},
    "sandbox": {"sandbox", "tools.api", "core.canonical", "errors"},
    "engine": {"engine", "core", "errors", "log.base", "tools.base", "secrets.masking"},
    "config": {"config", "secrets.sources", "schemas.durations", "core", "errors"},
    "secrets": {"secrets", "core", "errors"},
    "documents": {"core"},
    "outgoing": {"alerts", "config", "secrets", "engine.clock", "core", "errors", "log.base"},
    "identity": {"core", "errors"},
    "requests": {"identity", "core", "errors"},
    "templates": {""},
    "driving": {"driving", "identity", "requests", "engine", "core", "errors", "log.base"},
    "checked": {"core", "errors", ""},
    "saga_files": {"core", "errors"},
    "other_projects": {"core", "errors", "log.base"},
    "history": {"config", "identity", "other_projects", "engine.settings", "log", "core", "errors"},
    "telling": {"config", "outgoing", "alerts", "telemetry", "driving", "log.base"},
    "inputs": {"spec", "written", "tools.convert", "identity", "engine.clock", "log.base", "core", "errors"},
    "heads": {"config", "secrets", "log", "core", "errors"},
    "toolset": {"config", "secrets", "tools", "log.holder", "log.file_system", "core", "errors"},
    "app": {
        "app",
        "history",
        "telling",
        "written",
        "toolset",
        "inputs",
        "checked",
        "saga_files",
        "other_projects",
        "config",
        "secrets",
        "identity",
        "driving",
        "requests",
        "outgoing",
        "engine",
        "core",
        "errors",
        *NEIGHBOURS,
    },
    "usecases": {"usecases", "app", "requests", "documents", "engine", "core", "errors", "log.base", "log.holder"},
    "doctor": {"doctor", "app", "requests", "log", "core", "errors", ""},
    "chaos": {
        *("chaos", "app", "driving", "requests", "engine", "core", "errors", "log", "tools.base"),
        *("config", "identity", "sandbox", "secrets.masking", "tools.shell.spawner"),
    },
    "conformance": {
        *("conformance", "chaos.forking", "chaos.world", "chaos.traits", "written.document", "tools.base"),
        *("identity", "secrets.masking", "core", "errors"),
    },
    "cli": {
        "cli",
        "conformance",
        "usecases",
        "app",
        "written",
        "inputs",
        "doctor",
        "chaos",
        "driving",
        "identity",
        "requests",
        "heads",
        "documents",
        "config",
        "engine",
        "core",
        "schemas",
        "errors",
        "log.base",
        "log.holder",
        "other_projects",
        "spec",
        "secrets.masking",
        "sandbox",
        "workflow",
        "",
    },
    "__init__": {"app", "driving", "engine.ending", "engine.settings", "core", "errors", "log.base", "tools.api"},
    "__main__": {"cli", "errors", ""},
}
"""What each part may import: a package, or one module of it; the empty name is the package `sagactl` itself.

`__init__` offers, by name, what plugins and embedding programs need; it imports nothing before a name is used.
`templates` holds what `init` copies, which sees what any project's plugins see. The sandbox is what plugins act on,
so it sees what plugins see and no more. `schemas` holds what the loader and the tools both check of JSON Schema, for
neighbours never import each other, and `written` reads what people write in YAML, sagas and declarations of tools
alike. What others say is masked before it is cut, and before anybody else sees it: so who hears it (`tools`, `alerts`
of a receiver, the engine of a bug) may import the masking of secrets, and nothing that resolves them. `workflow` knows
what a runner of CI obeys, which text of tools and text of ours must both not be. `chaos` ends what tools leave running
as the spawner of commands does, with its words for processes. `usecases` is what all doors share,
the command line being one.
"""

EVERYWHERE = {"dataclass", "hashing", "once", "regular_file"}
"""What stands for a piece of the standard library, and imports nothing of ours."""

PURE = {
    *("__future__", "collections", "collections.abc", "dataclasses", "decimal", "enum", "functools", "hashlib"),
    *("heapq", "itertools", "json", "math", "operator", "re", "typing"),
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "globals", "breakpoint"}
HEAVY = {
    "opentelemetry",
    "rich",
    "jsonschema",
    "sqlite_utils",
    "importlib.metadata",
    "cel_expr_python",
    "typer",
    "asyncio",
}
FORBIDDEN_NAME = re.compile(r"(^|_)(utils?|helpers?|managers?)(_|$)|(Utils?|Helpers?|Managers?)($|[A-Z])")


class Module(NamedTuple):
    """One source file."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def part(self) -> str:
        """Return the part of the program that it belongs to, such as `core` or `app`."""
        return [*self.name.split("."), "__init__"][1]


class Import(NamedTuple):
    """One name of a module that is imported; `is_deferred` inside a function, `is_typing` for type checkers alone."""

    module: str
    name: str | None
    is_deferred: bool
    is_typing: bool


@cache
def modules(folder: Path = PACKAGE) -> tuple[Module, ...]:
    """Read all modules below *folder*."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found.append(Module(name, path, text, ast.parse(text)))
    return tuple(found)


def imports(module: Module) -> Iterator[Import]:
    """Yield all imports of a module."""
    yield from _imports(module.tree, is_deferred=False, is_typing=False)


def _imports(node: ast.AST, *, is_deferred: bool, is_typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, None, is_deferred, is_typing) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            source = child.module or ""
            yield from (Import(source, alias.name, is_deferred, is_typing) for alias in child.names)
        else:
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            guards = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            yield from _imports(child, is_deferred=is_deferred or is_function, is_typing=is_typing or guards)


def resolve(found: Import) -> str:
    """Return the module that an import reaches: `from sagactl.log import base` reaches `sagactl.log.base`."""
    deeper = f"{found.module}.{found.name}"
    return deeper if any(module.name == deeper for module in modules()) else found.module


def own_imports(module: Module) -> Iterator[Import]:
    """Yield the imports of our own package."""
    return (found for found in imports(module) if found.module.split(".")[0] == "sagactl")


def where(module: Module) -> str:
    """Return a module's path as people write it."""
    return str(module.path.relative_to(ROOT))


def is_allowed(module: Module, found: Import) -> bool:
    """Tell whether a module may import this."""
    target = resolve(found).removeprefix("sagactl").removeprefix(".")
    allowed = ALLOWED[module.part] | EVERYWHERE
    return target in allowed or target.split(".")[0] in allowed


def test_imports_point_downwards() -> None:
    """Each part imports only what lies below it, and neighbours never import each other."""
    wrong = [
        f"{where(module)} imports {resolve(found)}"
        for module in modules()
        for found in own_imports(module)
        if not is_allowed(module, found)
    ]
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_every_part_has_its_place_in_the_layers() -> None:
    """A new part must say what it may import before anybody imports it."""
    assert {module.part for module in modules()} <= set(ALLOWED)


def test_there_is_no_import_cycle() -> None:
    """No module needs itself, however indirectly; imports inside functions count."""
    graph = {
        module.name: {resolve(found) for found in own_imports(module) if not found.is_typing} for module in modules()
    }
    graph = {name: {target for target in targets if target in graph} for name, targets in graph.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_nothing_private_is_imported_across_packages() -> None:
    """A name that begins with an underscore belongs to its own package."""
    wrong = [
        f"{where(module)} imports {found.name} of {found.module}"
        for module in modules()
        for found in own_imports(module)
        for word in [*found.module.split("."), found.name or ""]
        if word.startswith("_") and not word.startswith("__") and not found.module.startswith(f"sagactl.{module.part}")
    ]
    assert not wrong, "\n".join(wrong)


def test_the_core_is_pure() -> None:
    """E20: no clock, no random number, no I/O in what decides; it imports pure modules of the standard library only."""
    for module in modules(PACKAGE / "core"):
        foreign = {found.module for found in imports(module) if not found.module.startswith("sagactl.core")}
        assert foreign - {"sagactl.errors", "sagactl.dataclass", "sagactl.hashing"} <= PURE, where(module)
        called = {node.func.id for node in calls(module) if isinstance(node.func, ast.Name)}
        assert not called & IMPURE_CALLS, where(module)


def calls(module: Module) -> Iterator[ast.Call]:
    """Yield all calls in a module."""
    return (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))


def test_the_core_keeps_no_state_of_its_own() -> None:
    """E20: what is decided hangs on nothing that an earlier decision left behind in a module."""
    for module in modules(PACKAGE / "core"):
        assert not [node for node in ast.walk(module.tree) if isinstance(node, ast.Global | ast.Nonlocal)], where(
            module
        )


@pytest.mark.parametrize("folder", ["sagactl", "plugins"])
def test_modules_and_functions_stay_small(folder: str) -> None:
    """A module has at most 500 lines, a function at most 50: the tail is what we police."""
    wrong = []
    for module in modules(ROOT / folder):
        lines = module.text.count("\n")
        wrong += [f"{where(module)} has {lines} lines"] if lines > MODULE_LINES_MAX else []
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                wrong += [f"{where(module)}: {node.name} has {length} lines"] if length > FUNCTION_LINES_MAX else []
    assert not wrong, "\n".join(wrong)


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    """Start-up is a feature: what takes long to import is imported by the function that needs it."""
    wrong = [
        f"{where(module)} imports {found.module}"
        for module in modules()
        for found in imports(module)
        if not found.is_deferred and not found.is_typing and _is_heavy(module, found)
    ]
    assert not wrong, "\n".join(wrong)


def _is_heavy(module: Module, found: Import) -> bool:
    full = f"{found.module}.{found.name}"
    names = {found.module, found.module.split(".")[0], full} & HEAVY
    return bool(names) and not (names == {"typer"} and module.part == "cli")


def test_what_threads_share_is_computed_once() -> None:
    """A lazy value that may be opened and closed has a lock: `cached_property` is for pure values alone."""
    shared = [module for module in modules() if module.part not in {"core", "spec", "written"}]
    wrong = [where(module) for module in shared for found in imports(module) if found.name == "cached_property"]
    assert not wrong, f"`once_property` has the lock that these need: {wrong}"


def test_type_checks_are_silenced_rarely_and_by_name() -> None:
    """Every ignore names what it ignores, and the whole program has at most ten."""
    found = [
        (where(module), line.strip())
        for folder in ("sagactl", "plugins", "tests")
        for module in modules(ROOT / folder)
        for line in module.text.splitlines()
        if re.search(r"#\s*type:\s*ignore", line) and '"""' not in line and "re.search" not in line
    ]
    assert not [each for each in found if not re.search(r"# type: ignore\[[a-z-]+(, ?[a-z-]+)*\]", each[1])]
    assert len([path for path, _ in found if not path.startswith("tests/")]) <= IGNORES_MAX


@pytest.mark.parametrize("folder", ["sagactl", "plugins", "tests"])
def test_every_module_says_what_it_is_for(folder: str) -> None:
    """Each module begins with a docstring; an empty file needs none."""
    silent = [where(module) for module in modules(ROOT / folder) if module.text and not ast.get_docstring(module.tree)]
    assert not silent


def test_every_test_states_a_fact() -> None:
    """Each test has a docstring that says what is true about sagactl."""
    silent = [
        f"{where(module)}: {node.name}"
        for module in modules(ROOT / "tests")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize("folder", ["sagactl", "plugins", "tests"])
def test_no_name_is_a_drawer_for_everything(folder: str) -> None:
    """Nothing is called utils, helpers or manager: a name says what a thing is for."""
    wrong = [
        f"{where(module)}: {name}"
        for module in modules(ROOT / folder)
        for name in (module.path.stem, *module.name.split("."), *_defined(module))
        if FORBIDDEN_NAME.search(name.replace("sqlite_utils", ""))
    ]
    assert not wrong, "\n".join(wrong)


def _defined(module: Module) -> Iterator[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return (node.name for node in ast.walk(module.tree) if isinstance(node, kinds))
