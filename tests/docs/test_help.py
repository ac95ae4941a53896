"""The built-in help is true: every command has examples that work, and the contract page names every rule."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sagactl.cli.main import Branch, LazyGroup, make_group
from sagactl.config import load_config
from sagactl.core.saga import ACTION_RETRY, PATIENT_RETRY
from sagactl.errors import InvalidError
from sagactl.schemas.durations import format_duration
from sagactl.spec.policy import RETRY_KEYS
from sagactl.spec.shape import SAGA_KEYS, STEP_KEYS, UNDO_KEYS
from tests.cli.project import ROOT, Project

RULES = {f"F{n}" for n in range(1, 10)} | {f"E{n}" for n in range(1, 24)}


def _leaves() -> list[tuple[tuple[str, ...], click.Command]]:
    group = make_group()
    assert isinstance(group, LazyGroup)
    return [(path[1:], leaf) for path, leaf in _walk(("sagactl",), group)]


def _walk(path: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command that can be called: those without others below them, and a branch itself."""
    if isinstance(command, Branch):
        yield path, command.own
    elif not isinstance(command, click.Group):
        yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _walk((*path, name), found)


LEAVES = _leaves()
EXAMPLES = [
    line.strip()
    for _, command in LEAVES
    for line in (command.help or "").splitlines()
    if line.strip().startswith("sagactl ")
]


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[" ".join(path) for path, _ in LEAVES])
def test_every_command_has_examples_of_itself(path: tuple[str, ...], command: click.Command) -> None:
    """Every command shows at least one example, and says in one line what it does."""
    assert re.search(rf"^\s*sagactl {' '.join(path)}\b", command.help or "", re.MULTILINE)
    assert command.get_short_help_str()


def test_every_example_works_when_typed(tmp_path: Path) -> None:
    """Typed in a project with a stuck run, no example is a usage error or a bug."""
    project = Project.make(tmp_path)
    (tmp_path / "input.json").write_text('{"email": "eve@example.com", "amount": 1}')
    limbo = ("run", "onboarding", "-q", "-i", "email=bob@example.com", "-i", "amount:=1", "-i", "card=limbo")
    assert project.run(*limbo).code == 11
    run_id = json.loads(project.run("show", "-o", "json").out)["run"]["id"]
    for example in EXAMPLES:
        line = example.replace("7kq2m9", run_id).split(" > ")[0]
        result = project.run(*shlex.split(line)[1:])
        assert result.code not in {1, 2}, f"{line}: {result.err}"


def test_the_contract_page_names_every_rule() -> None:
    """`sagactl help semantics` holds the contract, rule by rule."""
    page = (ROOT / "sagactl" / "help" / "semantics.md").read_text()
    assert set(re.findall(r"\*\*([EF]\d+)\b", page)) == RULES


def test_the_page_of_exit_codes_names_each(tmp_path: Path) -> None:
    """`sagactl help exit-codes` lists exactly the codes that there are."""
    from sagactl.errors import ExitCode

    page = (ROOT / "sagactl" / "help" / "exit-codes.md").read_text()
    listed = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE) for code in row.split(",")}
    assert listed == {int(code) for code in ExitCode}


def test_the_page_about_plugins_imports_what_there_is() -> None:
    """`sagactl help plugins` names public things only."""
    import sagactl

    page = (ROOT / "sagactl" / "help" / "plugins.md").read_text()
    found = re.search(r"^from sagactl import (.*)$", page, re.MULTILINE)
    assert found is not None
    assert set(found[1].split(", ")) <= set(sagactl.__all__)


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[" ".join(path) for path, _ in LEAVES])
def test_every_argument_and_option_is_explained(path: tuple[str, ...], command: click.Command) -> None:
    """`--help` says of each argument and option what it is."""
    context = click.Context(command)
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    silent = [record[0] for record in records if record is not None and not re.sub(r"\[[^]]*\]", "", record[1]).strip()]
    assert not silent


def test_every_answer_about_the_program_is_json_where_that_is_asked_for(tmp_path: Path) -> None:
    """`-o json` is one JSON value also for `--version`, `help` and `list --ids`."""
    project = Project(tmp_path)
    for arguments, schema in (
        (("--version", "-o", "json"), "sagactl.version/1"),
        (("-o", "json", "--version"), "sagactl.version/1"),
        (("help", "-o", "json"), "sagactl.topics/1"),
        (("help", "exit-codes", "-o", "json"), "sagactl.topic/1"),
        (("list", "--ids", "-o", "json"), "sagactl.run-ids/1"),
    ):
        found = project.run(*arguments)
        assert (found.code, found.json["schema"]) == (0, schema)


def _page(name: str) -> str:
    return (ROOT / "sagactl" / "help" / f"{name}.md").read_text()


def _rows(page: str, title: str) -> set[str]:
    """Return the keys in the first column of the table under *title*."""
    table = page.split(f"## {title}\n")[1].split("\n## ", maxsplit=1)[0]
    cells = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


def test_the_page_about_sagas_has_every_key() -> None:
    """F1: `sagactl help saga` lists exactly the keys that the loader takes."""
    page = _page("saga")
    assert _rows(page, "Keys of the saga") == set(SAGA_KEYS)
    assert _rows(page, "Keys of a step") == set(STEP_KEYS)
    for begins, keys in (("`compensate` takes", UNDO_KEYS), ("`retry` takes", RETRY_KEYS)):
        paragraph = next(each for each in page.split("\n\n") if each.startswith(begins))
        assert set(keys) <= set(re.findall(r"`(\w+)`", paragraph))


def test_the_saga_of_the_page_is_right_and_runs(tmp_path: Path) -> None:
    """F5: the example of `sagactl help saga` has no error and no warning, and does what it says."""
    project = Project.make(tmp_path)
    found = re.search(r"```yaml\n(.*?)```", _page("saga"), re.DOTALL)
    assert found is not None
    (tmp_path / "sagas" / "example.yaml").write_text(found[1])
    checked = project.run("validate", "example", "--strict")
    assert checked.code == 0, checked.out
    inputs = ("-i", "email=ada@example.com", "-i", "amount:=4900", "-i", 'servers:=["web", "db"]', "-i", "invite:=true")
    assert project.run("run", "example", "-q", *inputs).code == 0


def test_the_saga_of_the_page_about_commands_is_right_and_runs(tmp_path: Path) -> None:
    """F5: the example of `sagactl help shell` has no error and no warning, and does what it says."""
    (tmp_path / "sagas").mkdir()
    project = Project(tmp_path)
    found = re.search(r"```yaml\n(.*?)```", _page("shell"), re.DOTALL)
    assert found is not None
    (tmp_path / "sagas" / "backup.yaml").write_text(found[1])
    checked = project.run("validate", "backup", "--strict")
    assert checked.code == 0, checked.out
    done = project.run("run", "backup", "-q", "-o", "json", "-i", "name=nightly")
    assert (done.code, done.json["run"]["output"]) == (0, {"path": f"{tmp_path}/published"})
    assert (tmp_path / "published" / "nightly.tar").is_file()


def test_the_page_about_commands_has_every_tool_argument_and_variable(tmp_path: Path) -> None:
    """`sagactl help shell` names what there is, and the limits as they are."""
    from sagactl.tools.shell import launcher, reading, request

    page = " ".join(_page("shell").split())
    tools = Project(tmp_path).run("tools", "-o", "json").json["items"]
    mine = [tool for tool in tools if tool["name"].startswith(("shell.", "time."))]
    named = set(re.findall(r"`([\w.]+)", page))
    assert {tool["name"] for tool in mine} - {"shell.probe"} <= named
    assert {name for tool in mine for name in tool["arguments"]["properties"]} - named <= set()
    assert set(request.PASSED) <= named
    assert f"{request.ARGUMENTS_MAX:,} words of {request.ARGUMENT_LENGTH_MAX:,} characters" in page
    assert f"{request.VARIABLES_MAX} names in `pass_env`" in page
    assert f"the last {reading.TEXT_BYTES_MAX // 1024} KiB" in page
    assert (request.COMMAND_BYTES_MAX, reading.OUTPUT_BYTES_MAX) == (1_048_576, 1_048_576)
    assert (launcher.TERM_GRACE_SECONDS, reading.UNAVAILABLE_CODES) == (2.0, (75,))
    assert request.SHELL == ("/bin/sh", "-eu", "-c")


def test_the_examples_of_the_page_about_secrets_are_right_and_run(tmp_path: Path) -> None:
    """E19, F5: the saga, the plugin and the settings of `sagactl help secrets` do what the page says."""
    page = _page("secrets")
    saga, plugin, settings = (
        re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[0] for kind in ("yaml", "python", "toml")
    )
    for folder, name, text in (
        ("sagas", "payout.yaml", saga),
        ("plugins", "bank.py", plugin),
        (".", "sagactl.toml", settings),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    project = Project(tmp_path)
    checked = project.run("validate", "payout", "--strict")
    assert checked.code == 0, checked.out
    waiting = project.run("run", "payout", "-o", "json")
    assert (waiting.code, waiting.json["run"]["status"]) == (12, "waiting")
    assert "the secret bank_key: the variable BANK_API_KEY is not set" in waiting.out
    done = project.run("resume", waiting.json["run"]["id"], "-o", "json", extra={"BANK_API_KEY": "pk-3141592"})
    assert (done.code, done.json["run"]["steps"][1]["output"].strip()) == (0, "10")


def test_the_page_about_secrets_has_the_limits_as_they_are() -> None:
    """E19, X3: the numbers and names on the page are those of the program."""
    from sagactl.secrets import masking, sources
    from sagactl.spec.shape import SECRETS_MAX

    page = " ".join(_page("secrets").split())
    assert f"{SECRETS_MAX} at most" in page
    assert f"{masking.LENGTH_MIN} characters at least" in page
    assert f"{sources.SECRET_BYTES_MAX:,} bytes at most" in page
    assert f"asked for {sources.KEYRING_SECONDS:g} seconds" in page
    assert f"`{sources.name_variable('bank_key')}`" in page
    assert set(re.findall(r"^\| `(\w+)` \|", _page("secrets"), re.MULTILINE)) == set(sources.KINDS)


def test_the_defaults_on_the_page_about_sagas_are_the_real_ones() -> None:
    """E5, E12, E14: what is said to hold where nothing is written does."""
    page = " ".join(_page("saga").split())
    for retry, place in ((ACTION_RETRY, 0), (PATIENT_RETRY, 1)):
        shown = [
            re.findall(r"`max_attempts` \(the first included; (\d+), and (\d+) ", page)[0][place],
            re.findall(r"`initial_interval` \((\w+), and (\w+)\)", page)[0][place],
            re.findall(r"`max_interval` \((\w+), and (\w+)\)", page)[0][place],
        ]
        real = [retry.max_attempts, *map(format_duration, (retry.initial_interval_ms, retry.max_interval_ms))]
        assert shown == [str(each) for each in real]


def test_the_page_about_settings_has_every_one(tmp_path: Path) -> None:
    """`sagactl help config` lists exactly the settings that are taken, and its file is a right one."""
    page = _page("config")
    found = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert found is not None
    (tmp_path / "sagactl.toml").write_text(found[1])
    config = load_config(cwd=tmp_path, environ={"XDG_CONFIG_HOME": str(tmp_path)})
    settings = set(tomllib.loads(found[1]))
    assert {key for key, origin in config.origins.items() if origin == "project" and "." not in key} == settings
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == settings
    (tmp_path / "sagactl.toml").write_text("nothing = 1")
    with pytest.raises(InvalidError) as caught:
        load_config(cwd=tmp_path, environ={})
    assert caught.value.hint == f"known are {', '.join(sorted(settings))}"
    for name in re.findall(r"`(SAGACTL_\w+)`", page):
        assert name in (ROOT / "sagactl" / "config.py").read_text()


def test_the_page_about_output_shows_the_marks_and_modes_that_there_are() -> None:
    """`sagactl help output` lists exactly the symbols, their words, and the modes of progress."""
    from sagactl.cli.modes import VARIABLE, Mode
    from sagactl.cli.views.style import Mark

    page = (ROOT / "sagactl" / "help" / "output.md").read_text()
    rows = re.findall(r"^\| (\S) \| (\w+) \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(mark.value[:2] for mark in Mark)
    progress = page.partition("## Progress")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", progress, re.MULTILINE)) == set(Mode)
    assert f"`{VARIABLE}`" in page


def _variables_in_code() -> set[str]:
    """Return the variables that the package reads, by the texts in it that are the name of one and nothing else."""
    found = set()
    for file in (ROOT / "sagactl").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and re.fullmatch(r"SAGACTL_[A-Z_]+", text):
                found.add(text)
    return found


def test_the_page_about_variables_has_every_one() -> None:
    """`sagactl help environment` lists exactly the variables that are read; those of commands have their own page."""
    from sagactl.secrets.sources import VARIABLE_PREFIX
    from sagactl.tools.shell.orphans import TOKEN_VARIABLE

    page = _page("environment")
    listed = set(re.findall(r"^\| `(SAGACTL_\w+)` \|", page, re.MULTILINE))
    assert listed - {f"{VARIABLE_PREFIX}NAME"} == _variables_in_code() - {VARIABLE_PREFIX, TOKEN_VARIABLE}
    others = set(re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE)) - listed
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "sagactl").rglob("*.py"))
    assert {name for name in others if f'"{name}"' not in code} == set()


def test_the_page_about_selectors_is_true(tmp_path: Path) -> None:
    """`sagactl help selectors`: each form finds its run, and what changes something takes no `@latest`."""
    from sagactl.identity import RUN_ID_LENGTH

    page = _page("selectors")
    assert f"An id has {RUN_ID_LENGTH} letters and digits" in page
    project = Project.make(tmp_path)
    assert project.run("run", "onboarding", "-q", "-i", "email=a@example.com", "-i", "amount:=1").code == 0
    run_id = project.run("list", "--ids").out.strip()
    forms = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(forms) == 4
    typed = [form.replace("7kq2m9x4hb3tz", run_id).replace("7kq2m9", run_id[:6]) for form in forms]
    found = project.run_several(*(["show", form, "-o", "json"] for form in typed))
    assert [result.json["run"]["id"] for result in found] == [run_id] * 4
    assert project.run("resume", "@latest").code == 2


def test_the_page_about_guarantees_names_tests_that_are_there() -> None:
    """`sagactl help guarantees`: each promise names what tries it, and every such file has tests."""
    rows = re.findall(r"^\| (?!fault |---)(.+) \| (.+) \| (.+) \|$", _page("guarantees"), re.MULTILINE)
    assert len(rows) > 15
    for fault, _, tried_by in rows:
        named = re.findall(r"`(tests/[\w/.]+)`", tried_by)
        assert named, fault
        for path in named:
            place = ROOT / path
            files = place.rglob("test_*.py") if place.is_dir() else [place]
            assert any("def test_" in file.read_text(encoding="utf-8") for file in files), path
