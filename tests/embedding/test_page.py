"""`sagactl help embedding` is true: its programs are those of `shop/`, which run here and are type-checked."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sagactl
from tests.cli.project import ROOT

SHOP = Path(__file__).with_name("shop")
PAGE = (ROOT / "sagactl" / "help" / "embedding.md").read_text()
FILES = dict(re.findall(r"<!-- file (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))

TAKE_FIVE = """
import asyncio, service, async_service
from sagactl import open_project
with open_project(tools=[service.reserve, service.release, service.charge, service.refund]) as project:
    for ending in asyncio.run(async_service.take_orders(project, range(43, 48))):
        print(ending.status)
"""


CRASH = """
import os, service
from sagactl import open_project
project = open_project(tools=[service.reserve, service.release, service.charge, service.refund])
driver, order = project.driver(), project.load("order")
for number in range(1, 31):
    driver.start(order, {"sku": f"book-{number}", "amount": number})
os._exit(0)
"""

RECOVER = """
import service, recovery
from sagactl import open_project
with open_project(tools=[service.reserve, service.release, service.charge, service.refund]) as project:
    print(len(recovery.carry_on(project)), len(project.unfinished()))
"""


def _run(folder: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Save the page's files as it says."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_files_of_the_page_are_those_that_are_checked() -> None:
    """What the page shows is, byte for byte, what lies here, where linter and type checker see it."""
    assert FILES
    assert {name: (SHOP / name).read_text() for name in FILES} == FILES


def test_service_of_the_page_reports_fifty_runs(shop: Path) -> None:
    """The page's program starts 50 runs, prints every outcome, and reports results; again, and nobody pays twice."""
    lines = _run(shop, "service.py")
    assert lines[-6] == "{'succeeded': 45, 'rolled_back': 5}"
    assert all("card_declined" in line for line in lines[-5:])
    outcomes = [line.split(" ", 1)[1] for line in lines[:-6]]
    assert outcomes.count("payment succeeded") == 45
    assert outcomes.count("compensation of goods succeeded") == 5
    assert _run(shop, "service.py")[0] == "{'succeeded': 45, 'rolled_back': 5}"


def test_asyncio_service_of_the_page_takes_orders(shop: Path) -> None:
    """The page's second program starts runs from an event loop while a thread drives them."""
    assert _run(shop, "-c", TAKE_FIVE) == ["succeeded"] * 3 + ["rolled_back"] * 2


def test_recovery_of_the_page_finds_all_runs(shop: Path) -> None:
    """The page's third program carries on with every run of a process that is gone, at once."""
    _run(shop, "-c", CRASH)
    assert _run(shop, "-c", RECOVER) == ["30 0"]


def test_names_of_the_page_exist() -> None:
    """Every class and method in the page's table is there."""
    named = set(re.findall(r"`(?:project|driver)\.(\w+)\(", PAGE)) | set(re.findall(r"`, `(\w+)\(", PAGE))
    owners = (sagactl.Project, sagactl.Driver)
    missing = {name for name in named if not any(hasattr(owner, name) for owner in owners)}
    assert len(named) > 8
    assert missing == set()
    for name in re.findall(r"`([A-Z]\w+Error)`", PAGE):
        assert getattr(sagactl if name in sagactl.__all__ else builtins, name)
