"""Sagas of the plugins sql, files and git, crashed at every point and in every line, judged by what is there then."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.project import ROOT, Project
from tests.plugins.databases import make_file_shop
from tests.plugins.project import Project as Caller
from tests.sagas.repositories import make_template, run_git

HERE = Path(__file__).parent / "crashed"


def _make_shop(world: Path) -> str:
    make_file_shop(Caller(world))
    return 'safe_tools = ["sql.*"]\ncheck = "look.shop"\nignore = ["shop.db*"]'


def _make_files(world: Path) -> str:
    for path in ("etc/app.conf", "etc/other.conf", "etc/gone.conf", "data/one", "old/inner/two", "of_somebody/else"):
        (world / path).parent.mkdir(parents=True, exist_ok=True)
        (world / path).write_text(path)
    (world / "old" / "link").symlink_to("inner/two")
    return ""


def _make_repository(world: Path) -> str:
    world.rmdir()
    make_template(world)
    shutil.rmtree(world / "app" / "plugins")
    shutil.rmtree(world / "app" / "sagas")
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        run_git(world / "app", "config", name, value)
    run_git(world / "app", "reset", "-q", "--hard")
    return (
        'safe_tools = ["git.*"]\ncheck = "look.branches"\n'
        'ignore = ["*/objects/*", "app/.git/logs/*", "app/.git/index", "app/.git/ORIG_HEAD", "app/.git/*.lock"]'
    )


@pytest.mark.parametrize(
    ("name", "make_world", "limit"),
    [("sql", _make_shop, 70), ("files", _make_files, 70), ("git", _make_repository, 30)],
)
def test_a_saga_of_it_is_safe_to_crash_in(
    name: str, make_world: Callable[[Path], str], limit: int, tmp_path: Path
) -> None:
    """E1-E12 for real effects: killed, refused, lost and late at every point, and everything is there or undone.

    All points take minutes, so that some of them are drawn here.
    """
    for folder in ("plugins", "sagas", "world"):
        (tmp_path / folder).mkdir()
    settings = make_world(tmp_path / "world")
    (tmp_path / "sagactl.toml").write_text(f'[chaos]\nworld = "world"\n{settings}\n')
    shutil.copytree(ROOT / "plugins", tmp_path / "plugins", dirs_exist_ok=True)
    shutil.copy(HERE / "look.py", tmp_path / "plugins")
    shutil.copy(HERE / f"{name}.yaml", tmp_path / "sagas" / "crashed.yaml")
    result = Project(tmp_path).run(
        "chaos", "crashed", "-q", "--jobs", "2", "--limit", str(limit), "--seed", "4", "-o", "json", timeout=240
    )
    document = result.json
    assert [found for found in document["findings"] if found["severity"] == "unsafe"] == []
    assert (result.code, document["safe"]) == (0, True)
    verdicts = {step["id"]: step["verdict"] for step in document["steps"]}
    assert set(verdicts.values()) == {"safe"}, verdicts
    assert document["experiments"]["made"] >= limit
