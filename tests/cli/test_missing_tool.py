"""What a person sees of a run whose tool is gone or another by now: which of the two, and every difference (E16)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.project import Project

PLUGIN = '''
"""Two tools of a shop."""
from sagactl import CallContext, Unavailable, tool


@tool("shop.book", compensation="shop.undo", compensation_with={}, version="1")
def book() -> str:
    """Book."""
    return "b1"


@tool("shop.undo", null_safe=True, version="1")
def undo() -> None:
    """Undo."""


@tool("shop.pay", compensation="shop.undo", compensation_with={}, version="1")
def pay(amount: int) -> str:
    """Pay."""
    raise Unavailable("later", retry_after=0.001)
'''

SAGA = """
saga: shop
defaults: {start_to_close_timeout: 30s, retry: {max_attempts: 1000, initial_interval: 1ms, max_interval: 1ms}}
steps:
  - {id: book, tool: shop.book}
  - {id: pay, tool: shop.pay, with: {amount: 3}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with a run that waits to try `pay` again."""
    for name, text in (("plugins/shop.py", PLUGIN), ("sagas/shop.yaml", SAGA)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    project = Project(tmp_path)
    assert project.run("run", "shop", "--no-wait").code == 12
    return project


def edit(project: Project, *changes: tuple[str, str]) -> None:
    """Change the plugin."""
    path = project.path / "plugins/shop.py"
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def test_a_tool_that_changed_is_shown_with_every_difference_and_the_way_on(project: Project) -> None:
    """E16: `resume` and `show`, as text and as JSON; the definition that takes the tool as it is goes on."""
    run_id = project.run("list", "--ids").out.strip()
    promised = 'compensation_with={}, version="1")\ndef pay'
    taken_back = 'compensation_with={}, version="2", idempotent=False)\ndef pay'
    edit(project, ("amount: int", "amount: str"), (promised, taken_back))
    resumed = project.run("resume", run_id)
    shown = project.run("show", run_id)
    for result in (resumed, shown):
        text = " ".join(result.out.split())
        assert "the tool shop.pay is not what the run was begun with: idempotent was true, is false and 2 more" in text
        assert (
            'changed idempotent was true, is false arguments.properties.amount.type was "integer", is "string"' in text
        )
        assert f"hint: sagactl resume {run_id[:6]} --definition sagas/shop.yaml --dry-run" in text
    assert (resumed.code, shown.code) == (12, 0)
    waiting = project.run("show", run_id, "-o", "json").json["run"]["waiting_for"]
    assert waiting["what"] == "missing_tool"
    assert [
        (each["fact"], each["path"], each["before"], each["after"], each["breaks"]) for each in waiting["changes"]
    ] == [
        ("idempotent", None, True, False, True),
        ("arguments", "properties.amount.type", "integer", "string", True),
        ("version", None, "1", "2", False),
    ]
    assert project.run("verify", run_id).code == 0


def test_nothing_is_called_whose_undo_is_gone(project: Project) -> None:
    """E16: `pay` isn't tried again while nobody could undo it; what goes back goes on with the tools that are there."""
    run_id = project.run("list", "--ids").out.strip()
    before = project.run("log", run_id).out.count("call pay")
    edit(
        project,
        ('compensation="shop.undo"', 'compensation="shop.unbook"'),
        ('@tool("shop.undo"', '@tool("shop.unbook"'),
    )
    resumed = project.run("resume", run_id)
    assert (resumed.code, "the tool shop.undo is given by no plugin" in " ".join(resumed.out.split())) == (12, True)
    assert f"note: sagas/shop.yaml, or a tool of it, is another than run {run_id} was begun with" in resumed.err
    assert project.run("log", run_id).out.count("call pay") == before
    edit(project, ("shop.unbook", "shop.undo"))
    assert project.run("cancel", run_id).code == 0
    assert project.run("show", run_id, "-o", "json").json["run"]["status"] == "rolled_back"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.unlink(), "the tool shop.pay is given by no plugin"),
        (lambda path: path.write_text("def ("), "the tool shop.pay can't be used: plugin shop"),
        (lambda path: path.write_text(PLUGIN + PLUGIN.partition("CallContext, Unavailable, tool")[2]), "also given by"),
    ],
)
def test_a_tool_that_is_gone_is_told_from_one_whose_plugin_is_broken(
    project: Project, make: object, words: str
) -> None:
    """E16: nothing differs where nothing is there; the plugin back in its place lets the run go on."""
    run_id = project.run("list", "--ids").out.strip()
    path = project.path / "plugins/shop.py"
    assert callable(make)
    make(path)
    result = project.run("resume", run_id)
    assert (result.code, words in " ".join(result.out.split())) == (12, True)
    assert "changed " not in result.out
    path.write_text(PLUGIN.replace('raise Unavailable("later", retry_after=0.001)', 'return "p1"'))
    assert project.run("resume", run_id).code == 0
