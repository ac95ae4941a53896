"""Which tools are isolated: what authors and operators say, what can't be, and where another interpreter finds them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest

from sagactl import open_project, tool
from sagactl.core.tracing import write_traceparent
from sagactl.errors import InvalidError
from sagactl.log.holder import read_boot_id
from sagactl.tools.built_in import BuiltIn
from sagactl.tools.invoke import PluginToolbox
from sagactl.tools.isolated.caller import IsolatedCaller
from sagactl.tools.isolated.rules import MEMORY_BYTES_MIN, PATTERNS_MAX, IsolationRules, read_rules
from sagactl.tools.registry import Registry, collect_tools
from tests.tools.building import invocation
from tests.tools.isolated.calling import HEAD, Calling, write_plugin

PLUGIN = """
@tool("shop.asked", isolation="process")
def asked() -> None: ...
@tool("shop.plain")
def plain() -> None: ...
@tool("shop.other")
async def other() -> None: ...
"""


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, {"shop.asked": "author"}),
        ({"process": ["shop.*"]}, {"shop.asked": "author", "shop.plain": "operator", "shop.other": "operator"}),
        ({"process": ["shop.*"], "none": ["shop.p*"]}, {"shop.asked": "author", "shop.other": "operator"}),
        ({"none": ["*"]}, {"shop.asked": "author"}),
        ({"process": ["SHOP.*", "shop"]}, {"shop.asked": "author"}),
    ],
)
def test_operators_raise_and_lower_only_what_they_raised(
    tmp_path: Path, rules: dict[str, Any], expected: dict[str, str]
) -> None:
    """What the author requires holds; patterns of the operator isolate more, with exceptions."""
    write_plugin(tmp_path, PLUGIN)
    registry = Calling(tmp_path, read_rules(rules)).registry
    found = {name: tool.isolation.by for name, tool in registry.tools.items() if tool.isolation is not None}
    assert found == expected
    assert registry.tool("shop.other").is_async is ("shop.other" not in expected)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"proces": []}, "unknown setting isolation.proces"),
        ({"process": "shop.*"}, "isolation.process must be a list of patterns of tool names, not 'shop.*'"),
        ({"none": [1]}, "isolation.none must be a list of patterns of tool names, not [1]"),
        ({"process": [""]}, "isolation.process must be a list of patterns of tool names, not ['']"),
        ({"process": ["x"] * (PATTERNS_MAX + 1)}, "isolation.process has 1001 patterns; 1000 is the limit"),
        (
            {"memory_bytes_max": True},
            f"isolation.memory_bytes_max must be a number from {MEMORY_BYTES_MIN} on, not True",
        ),
        ({"memory_bytes_max": 1}, f"isolation.memory_bytes_max must be a number from {MEMORY_BYTES_MIN} on, not 1"),
        (
            {"memory_bytes_max": "1G"},
            f"isolation.memory_bytes_max must be a number from {MEMORY_BYTES_MIN} on, not '1G'",
        ),
        ({"pid_namespace": 1}, "isolation.pid_namespace must be true or false, not 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(table: dict[str, Any], message: str) -> None:
    """Unknown keys and wrong values are errors that name the setting."""
    with pytest.raises(InvalidError, match="isolation") as caught:
        read_rules(table)
    assert caught.value.message == message


def test_settings_are_read_from_the_project(tmp_path: Path) -> None:
    """`[isolation]` in sagactl.toml reaches the tools of the project, and a mistake in it is an error at once."""
    write_plugin(tmp_path, PLUGIN)
    (tmp_path / "sagactl.toml").write_text('[isolation]\nprocess = ["shop.plain"]\n')
    with open_project(tmp_path) as project:
        found = project.registry
        assert found.tool("shop.plain").isolation is not None
        assert found.tool("shop.other").isolation is None
        assert found.tool("shell.run").isolation is None
    (tmp_path / "sagactl.toml").write_text("[isolation]\nprocess = 1\n")
    with open_project(tmp_path) as project, pytest.raises(InvalidError, match=r"isolation\.process must be a list"):
        project.registry.names()


def test_an_author_who_misspells_it_is_told(tmp_path: Path) -> None:
    """A word that means nothing breaks the one tool, with its place."""
    file = write_plugin(tmp_path, "@tool('shop.run', isolation='proces')\ndef run() -> None: ...\n")
    (broken,) = collect_tools(file.parent, entry_points=()).broken
    assert "isolation 'proces' is none of none, process" in broken.message


@tool("here.count", isolation="process")
def count(number: int) -> int:
    """Stand at the top of a module that can be imported."""
    return number + 1


def _make_tool(name: str) -> Callable[..., object]:
    @tool(name, isolation="process")
    def made() -> str:
        return "made"

    return made


MADE = _make_tool("here.made")


def _collect(*functions: Callable[..., object], **facts: Any) -> Registry:
    rules = IsolationRules(**facts)
    return collect_tools(None, entry_points=(), given=functions, place=rules.place)


@pytest.fixture
def called(tmp_path: Path) -> Iterator[Callable[[Registry, str, dict[str, Any]], object]]:
    """Return what calls a tool of a registry."""
    built_in = BuiltIn(tmp_path / "calls", read_boot_id)
    caller = IsolatedCaller(built_in.processes, IsolationRules())

    def call(registry: Registry, name: str, arguments: dict[str, Any]) -> object:
        toolbox = PluginToolbox(registry, isolated=lambda: caller)
        answer = toolbox.call(invocation(name, arguments))
        return answer.failure or answer.output

    yield call
    built_in.close()


def test_functions_of_a_program_are_found_by_their_module(called: Callable[..., object]) -> None:
    """A program's tools can be isolated where another interpreter can import them, made by a function or not."""
    registry = _collect(count, MADE)
    assert not registry.broken
    assert called(registry, "here.count", {"number": 2}) == 3
    assert called(registry, "here.made", {}) == "made"


def test_functions_that_no_other_interpreter_finds_are_refused() -> None:
    """What stands within a function, or in the program's own file, is refused with the reason, whoever wants it."""
    local = _make_tool("here.local")
    (broken,) = _collect(local).broken
    assert 'isolation="process": it stands within a function, where another interpreter can\'t find it' in str(broken)

    @tool("here.plain")
    def plain() -> None:
        """Be plain."""

    assert not _collect(plain).broken
    (broken,) = _collect(plain, process=("here.*",)).broken
    assert "sagactl.toml wants it isolated: it stands within a function" in str(broken)


SCRIPT = """
from sagactl import open_project, tool
from sagactl.errors import InvalidError

@tool("here.run", isolation="process")
def run() -> None: ...

try:
    open_project(".", tools=[run]).registry
except InvalidError as error:
    print(error.message)
"""


def test_a_tool_of_the_main_file_is_refused(tmp_path: Path) -> None:
    """The file that is run isn't a module that can be imported without running it."""
    (tmp_path / "program.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert "the program's own module can't be imported by another interpreter" in done.stdout


def test_tools_of_installed_packages_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: Callable[..., object]
) -> None:
    """A plugin that is installed is imported in the process by its entry point alone."""
    info = tmp_path / "site" / "shop_plugin-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: shop-plugin\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[sagactl.plugins]\nshop = shop_installed\n")
    text = "@tool('shop.size', isolation='process')\ndef size(n: int) -> list[int]:\n    return [n, os.getpid()]\n"
    (tmp_path / "site" / "shop_installed.py").write_text(HEAD + text)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (point,) = Distribution.at(info).entry_points
    registry = collect_tools(None, entry_points=[point], place=IsolationRules().place)
    assert not registry.broken
    found: Any = called(registry, "shop.size", {"n": 1})
    assert found[0] == 1


TRACED = """
from opentelemetry import trace

@tool("shop.run", isolation="process")
def run(context: CallContext) -> list[str]:
    found = trace.get_current_span().get_span_context()
    ids = [format(found.trace_id, "032x"), format(found.span_id, "016x")]
    return [context.traceparent, os.environ["TRACEPARENT"], *ids]
"""


def test_the_call_has_its_place_in_the_trace(tmp_path: Path) -> None:
    """The context, the variable and OpenTelemetry's own context all say the same place."""
    pytest.importorskip("opentelemetry")
    write_plugin(tmp_path, TRACED)
    calling = Calling(tmp_path)
    output: Any = calling.call("run").output
    calling.built_in.close()
    traceparent, variable, trace_id, span_id = output
    assert traceparent == variable
    assert traceparent == write_traceparent(calling.make("run").run_id, span_id)
    assert traceparent.split("-")[1:3] == [trace_id, span_id]


def test_secrets_stand_on_no_command_line_and_in_no_variable(tmp_path: Path) -> None:
    """E19: the value goes by memory that both share."""
    body = """
    @tool("shop.run", isolation="process")
    def run(key: Secret) -> list[bool]:
        seen = b"".join(open(f"/proc/self/{name}", "rb").read() for name in ("cmdline", "environ"))
        files = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if int(name) < 3]
        return [key.encode() in seen, any("memfd" in file for file in files), len(key) == 14]
    """
    write_plugin(tmp_path, body)
    calling = Calling(tmp_path, environ={"SAGACTL_SECRET_KEY": "s3cr3t-value-1"})
    output = calling.call("run", {"key": {"$secret": "KEY"}}).output
    calling.built_in.close()
    assert output == [False, False, True]


def test_a_guard_says_before_an_intent_that_the_file_has_changed(tmp_path: Path) -> None:
    """E16: a run waits where its tool's process would refuse to call another code than was read."""
    file = write_plugin(tmp_path, PLUGIN)
    calling = Calling(tmp_path, IsolationRules())
    guard = calling.toolbox.guard_of("shop.asked")
    facts = calling.toolbox.facts("shop.asked")
    assert guard is not None
    assert calling.toolbox.guard_of("shop.plain") is None
    assert guard(facts) is None
    file.write_text(file.read_text() + "# more\n")
    misfit = guard(facts)
    assert misfit is not None
    assert "its plugin's file has changed or gone since this process read it" in misfit.reason
    shutil.rmtree(file.parent)
    gone = guard(facts)
    assert gone is not None
    assert gone.reason == "can't be imported any more: No such file or directory"
