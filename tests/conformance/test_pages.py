"""What the README and the manual say of `tools check` is true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

from sagactl.conformance.check_file import CheckFile, read_check_file
from sagactl.conformance.report import Verdict
from sagactl.conformance.rules import Rule
from sagactl.written.document import read_document
from tests.cli.project import ROOT, Project
from tests.cli.typed import parse_typed
from tests.docs.test_readme import FILES, TRANSCRIPTS, _split

PAGE = (ROOT / "sagactl" / "help" / "tools-check.md").read_text()
(TRANSCRIPT,) = [each for each in TRANSCRIPTS if "sagactl tools check" in each]


def _first_column(title: str) -> set[str]:
    table = PAGE[PAGE.index(f"| {title} |") :].split("\n\n")[0]
    return set(re.findall(r"^\| `([a-z -]+)`", table, re.MULTILINE))


def test_the_transcript_of_the_readme_is_true(tmp_path: Path) -> None:
    """The plugin of the five minutes, with the check file that the README gives, is checked as it shows."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    ((command, expected),) = _split(TRANSCRIPT)
    found = Project(tmp_path).run(*shlex.split(command)[1:])
    assert (found.code, found.out.strip()) == (0, expected.strip())
    assert not (tmp_path / "tickets").exists()


def test_the_transcript_of_the_page_is_true(tmp_path: Path) -> None:
    """`sagactl help tools-check` shows what is really printed."""
    (transcript,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    ((command, expected),) = _split(transcript)
    found = Project.make(tmp_path).run(*shlex.split(command)[1:], "-q")
    assert (found.code, found.out.strip()) == (0, expected.strip())


def test_the_page_names_each_rule_and_each_verdict() -> None:
    """Every rule that is tried has a row, and so has every verdict."""
    assert _first_column("rule") == {rule.value for rule in Rule}
    assert {each.replace("no promise", "not_promised") for each in _first_column("verdict")} == {
        verdict.value for verdict in Verdict
    }


def test_the_check_file_of_the_page_is_one() -> None:
    """The example has each key that there is, and is read without a complaint."""
    (text,) = re.findall(r"```yaml\n(safe_tools.*?)```", PAGE, re.DOTALL)
    found = read_check_file(read_document(text, file="page"), file="page", folder=Path("/"))
    empty = CheckFile()
    unset = [name for name in CheckFile.__dataclass_fields__ if getattr(found, name) == getattr(empty, name)]
    assert unset == ["tear_down"]
    assert found.tools["shop.order"].excused.keys() == {Rule.AT_ONCE}


def test_the_job_for_ci_can_be_pasted() -> None:
    """The page's job is YAML, and its command is one that there is."""
    (text,) = re.findall(r"```yaml\n(name: tools.*?)```", PAGE, re.DOTALL)
    steps = yaml.safe_load(text)["jobs"]["tools"]["steps"]
    (command,) = [step["run"] for step in steps if "tools check" in step.get("run", "")]
    assert parse_typed(command.removeprefix(".venv/bin/").strip()) == ("tools", "check")
