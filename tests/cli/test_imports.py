"""Start-up is a feature: which modules a command must not import; no test measures time."""

from __future__ import annotations

from typing import Final

import pytest

from tests.benchmarks.project import write_project
from tests.cli.project import Project

ALWAYS: Final = {"rich", "jsonschema", "sqlite_utils", "importlib.metadata", "asyncio", "_hashlib", "email", "socket"}
SPEC: Final = {"yaml", "sagactl.spec.load"}
READING: Final = SPEC | {"sagactl.tools.registry", "sagactl.engine.driver", "sagactl.core.machine"}
FORBIDDEN: Final = {
    ("--version",): ALWAYS | READING | {"typer", "click", "sqlite3", "sagactl.cli.main"},
    ("--help",): ALWAYS | READING | {"sqlite3", "sagactl.app"},
    ("list",): ALWAYS | READING | {"sagactl.core.saga", "sagactl.core.state", "sagactl.usecases.documents"},
    ("metrics",): ALWAYS | READING | {"sagactl.core.saga", "sagactl.core.state", "opentelemetry"},
    ("log",): ALWAYS
    | READING
    | {"sagactl.core.state", "sagactl.core.operators", "sagactl.core.backward", "sagactl.cli.follow"},
    ("show",): ALWAYS | READING,
    ("resume", "--all"): ALWAYS | READING,
    ("run", "steps3", "-q"): ALWAYS | {"cel_expr_python", "sagactl.log.verify", "sagactl.log.memory"},
}
"""Each command, and what would slow it down without a use."""

SCRIPT: Final = (
    "import atexit, sys; from sagactl.__main__ import main; "
    "atexit.register(lambda: print(*sorted(sys.modules), file=open('modules.txt', 'w'))); main()"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Give a project in which a run was made."""
    made = Project(tmp_path_factory.mktemp("project"))
    write_project(made.path)
    assert made.run("run", "steps3", "-q").code == 0
    return made


@pytest.mark.parametrize("line", FORBIDDEN, ids=" ".join)
def test_command_imports_only_what_it_needs(project: Project, line: tuple[str, ...]) -> None:
    """None of the modules that this command has no use for is imported by it."""
    result = project.run_python("-c", SCRIPT, *line)
    assert result.code == 0, result.err
    imported = set((project.path / "modules.txt").read_text().split())
    assert "sagactl" in imported
    assert imported & FORBIDDEN[line] == set()
