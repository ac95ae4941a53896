"""What the benchmarks of whole processes run: a bare Typer program as the floor, and a project with quick tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

STEPS: Final = (3, 10)

_PLUGIN = '''"""Tools that do nothing."""

from sagactl import tool


@tool("noop.do", compensation="noop.undo", compensation_with={})
def do(text: str = "") -> dict[str, str]:
    """Do nothing."""
    return {"text": text}


@tool("noop.undo", null_safe=True)
def undo() -> None:
    """Undo nothing."""
'''

_COMMAND = '''
@app.command("{name}")
def command_{number}(
    run: Annotated[str, typer.Argument(help="What it is about.")] = "",
    output: Annotated[str, typer.Option("-o", "--output", help="How to write.")] = "text",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Write less.")] = False,
) -> None:
    """Do the thing number {number}."""
    print(run or "done")
'''


def write_bare_program(folder: Path, names: list[str]) -> list[str]:
    """Write a Typer program that has a command for each of *names* and does nothing, and return how it is started."""
    head = "from typing import Annotated\n\nimport typer\n\n"
    app = "app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)\n"
    commands = "".join(_COMMAND.format(name=name, number=number) for number, name in enumerate(names))
    # As with an installed program, a script imports a module whose byte code is kept.
    (folder / "bare.py").write_text(head + app + commands)
    return _write_script(folder / "start_bare.py", "from bare import app as main")


def write_product(folder: Path) -> list[str]:
    """Write the script that an installation makes, and return how it is started."""
    return _write_script(folder / "start_sagactl.py", "from sagactl.__main__ import main")


def _write_script(file: Path, statement: str) -> list[str]:
    file.write_text(f"import sys\n{statement}\nif __name__ == '__main__':\n    sys.exit(main())\n")
    return [sys.executable, str(file)]


def write_project(folder: Path) -> None:
    """Write a plugin and sagas of as many steps as `STEPS` names, with literals and, in `cel`, with an expression."""
    (folder / "plugins").mkdir()
    (folder / "plugins" / "noop.py").write_text(_PLUGIN)
    (folder / "sagas").mkdir()
    for count in STEPS:
        _write_saga(folder, f"steps{count}", ["x"] * count)
    _write_saga(folder, "cel", ["${{ input.text + '!' }}"] * max(STEPS))


def _write_saga(folder: Path, name: str, texts: list[str]) -> None:
    steps = "".join(f'  - {{id: s{n}, tool: noop.do, with: {{text: "{text}"}}}}\n' for n, text in enumerate(texts))
    inputs = "input:\n  type: object\n  properties:\n    text: {type: string, default: x}\n"
    (folder / "sagas" / f"{name}.yaml").write_text(f"saga: {name}\n{inputs}steps:\n{steps}")
