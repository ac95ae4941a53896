"""Collecting plugins: whatever one of them does, the others work."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from sagactl.errors import NotFoundError, PluginError
from sagactl.tools.invoke import PluginToolbox
from sagactl.tools.plugin import BrokenPlugin
from sagactl.tools.registry import Registry, collect_tools
from tests.tools.building import invocation

GOOD = """
from sagactl import tool

@tool("good.greet")
def greet(name: str) -> str:
    return f"hello {name}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give an empty `plugins/`."""
    made = tmp_path / "plugins"
    made.mkdir()
    return made


def collect(folder: Path | None, **facts: Any) -> Registry:
    """Collect from a folder alone, unless told of entry points."""
    return collect_tools(folder, **{"entry_points": (), **facts})


def write(folder: Path, **files: str) -> None:
    """Write plugins by name; two underscores make a sub-folder."""
    for name, text in files.items():
        file = folder / (name.replace("__", "/") + ".py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)


def broken(registry: Registry) -> BrokenPlugin:
    """Return the one thing that is broken."""
    (only,) = registry.broken
    return only


def test_tools_of_a_folder_are_found(folder: Path) -> None:
    """Each module and package of `plugins/` gives its tools, but those that begin with `_` or `.`."""
    write(folder, good='"""Greets.\n\n    indented"""' + GOOD, _hidden="raise SystemExit", package__inner="x = 1")
    (folder / "package" / "__init__.py").write_text(GOOD.replace("good.", "package."))
    (folder / ".dot.py").write_text("raise SystemExit")
    (folder / "notes.txt").write_text("nothing")
    (folder / "no_package").mkdir()
    registry = collect(folder)
    assert registry.names() == ["good.greet", "package.greet"]
    assert registry.broken == ()
    assert registry.plugins[0].description == "Greets.\n\nindented"
    assert [(plugin.name, plugin.origin, plugin.tools) for plugin in registry.plugins] == [
        ("good", "project", ("good.greet",)),
        ("package", "project", ("package.greet",)),
    ]
    answer = PluginToolbox(registry).call(invocation("good.greet", {"name": "Ada"}))
    assert answer.output == "hello Ada"


UNBOUND = """
from sagactl import tool

@tool("b.x")
def f() -> str: return "x"
@tool("b.y")
def f() -> str: return "y"

def make(name):
    @tool(name)
    def made() -> str: return name
    return made

make("b.made")
LISTED = [make("b.listed")]

class Holder:
    @staticmethod
    @tool("b.inner")
    def inner() -> str: return "inner"

    @tool("b.outer")
    @staticmethod
    def outer() -> str: return "outer"
exec("from sagactl import tool\\n@tool('b.run')\\ndef g() -> str: return 'run'", {})
"""


def test_tool_is_found_whether_it_has_a_name_or_not(folder: Path) -> None:
    """B75: no tool vanishes: names bound again, factories, lists, static methods and `exec` all count."""
    write(folder, b=UNBOUND)
    registry = collect(folder)
    assert registry.broken == ()
    assert registry.names() == ["b.inner", "b.listed", "b.made", "b.outer", "b.run", "b.x", "b.y"]
    box = PluginToolbox(registry)
    outputs = [box.call(invocation(name)).output for name in registry.names()]
    assert outputs == ["inner", "b.listed", "b.made", "outer", "run", "x", "y"]


def test_method_is_no_tool_and_is_named(folder: Path) -> None:
    """B75: `@tool` on what can't be called by name alone is a problem with file and line."""
    text = "from sagactl import tool\nclass A:\n    @tool('b.m')\n    def m(self): pass\n"
    write(folder, b=text + "    @tool('b.c')\n    @classmethod\n    def c(cls): pass\n")
    registry = collect(folder)
    assert registry.names() == []
    assert [(each.file, each.line) for each in registry.broken] == [(str(folder / "b.py"), line) for line in (3, 5)]
    assert "it is a method" in registry.broken[0].message
    assert "it is a classmethod" in registry.broken[1].message


def test_wrapped_tool_is_called_by_its_wrapper(folder: Path) -> None:
    """A decorator above `@tool` takes part in the call."""
    text = (
        "import functools\ndef loud(f):\n    @functools.wraps(f)\n    def g(**a): return f(**a).upper()\n    return g\n"
    )
    write(folder, good=text + GOOD.replace("@tool", "@loud\n@tool"))
    answer = PluginToolbox(collect(folder)).call(invocation("good.greet", {"name": "Ada"}))
    assert answer.output == "HELLO ADA"


def test_plugin_claims_only_what_is_its_own(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools of another plugin or of a library stay theirs, whoever imports them first; private files' come along."""
    monkeypatch.syspath_prepend(str(tmp_path))
    library = GOOD.replace("good.greet", "lib.greet") + "\ndef make(name): tool(name)(lambda: 1)\n"
    (tmp_path / "library_of_tools.py").write_text(library)
    write(
        folder,
        a="from .good import greet\nfrom library_of_tools import greet as other, make\nmake('a.made')\n",
        good=GOOD + "\nfrom . import _private\n",
        _private=GOOD.replace("good.greet", "private.greet"),
    )
    registry = collect(folder)
    assert [(plugin.name, plugin.tools) for plugin in registry.plugins] == [
        ("a", ("private.greet", "a.made")),
        ("good", ("good.greet",)),
    ]


def test_installed_package_gives_what_its_own_modules_declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point's module gives its own tools and those it has from its package, each time it is asked."""
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "package_of_tools"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sibling.py").write_text(GOOD + GOOD.replace("good.", "unasked.").replace("greet(", "other("))
    (package / "plugin.py").write_text("from .sibling import greet\n" + UNBOUND)
    point = EntryPoint("shop", "package_of_tools.plugin", "sagactl.plugins")
    for _ in range(2):
        names = collect(None, entry_points=[point]).names()
        assert names == ["b.inner", "b.listed", "b.made", "b.outer", "b.run", "b.x", "b.y", "good.greet"]


def test_missing_folder_is_an_empty_one(tmp_path: Path) -> None:
    """A project without `plugins/` has no tools of its own."""
    assert collect(tmp_path / "plugins").names() == []
    assert collect(None).names() == []


def test_plugins_do_not_hide_libraries(folder: Path) -> None:
    """A plugin named like a library is another module, and may import that library."""
    write(folder, json="import json\nfrom sagactl import tool\nx = json.dumps(1)\n" + GOOD)
    before = sys.modules["json"]
    assert collect(folder).names() == ["good.greet"]
    assert sys.modules["json"] is before


def test_plugins_share_private_files(folder: Path) -> None:
    """Relative imports within the folder work; a tool that another plugin imports stays one tool."""
    write(
        folder,
        _shared="GREETING = 'hi'",
        good=GOOD,
        other="from ._shared import GREETING\nfrom .good import greet\nassert GREETING == 'hi'",
    )
    registry = collect(folder)
    assert registry.broken == ()
    assert registry.names() == ["good.greet"]


def test_two_projects_do_not_mix(tmp_path: Path) -> None:
    """Two projects in one process each get their own modules."""
    for name in "ab":
        made = tmp_path / name
        made.mkdir()
        write(made, _shared=f"NAME = {name!r}", good=GOOD + f"\nfrom ._shared import NAME\nassert NAME == {name!r}")
        assert collect(made).broken == ()


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("x = 1\nraise ValueError('no')", 2, "ValueError: no"),
        ("import sys\n\nsys.exit(3)", 3, "SystemExit: 3"),
        ("x = 1\ndef f(:\n    pass", 2, "SyntaxError: invalid syntax"),
        ("import not_there_at_all", 1, "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("from ._missing import x", 1, "ModuleNotFoundError"),
        ("x = '\x00'", 1, "SyntaxError"),
        ("\n" + "(" * 500, 2, "SyntaxError"),
        ("def f(): f()\nf()", 1, "RecursionError"),
        ("class E(Exception):\n    def __str__(self): raise self\nraise E", 3, "E"),
        ("from sagactl import tool\n@tool\ndef f(): pass", 2, "TypeError: @tool needs a name"),
    ],
)
def test_broken_plugin_breaks_nothing_else(folder: Path, source: str, line: int, message: str) -> None:
    """B75: a plugin that can't be imported is named with file, line and reason, and the others work."""
    write(folder, bad=source, good=GOOD)
    registry = collect(folder)
    assert registry.names() == ["good.greet"]
    found = broken(registry)
    assert (found.name, found.file, found.line) == ("bad", str(folder / "bad.py"), line)
    assert found.message.startswith(message)
    assert found.message.isprintable()


def test_plugin_that_is_no_text_is_broken(folder: Path) -> None:
    """B75: bytes that are no source are contained as well, and so is a file name with a dot."""
    (folder / "bad.py").write_bytes(b"\xff\xfe\x00")
    (folder / "a.b.py").write_text("")
    assert {each.name for each in collect(folder).broken} == {"bad", "a.b"}


def test_what_a_plugin_prints_at_import_is_captured(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B75: importing a plugin writes nothing to stdout or stderr; the text is kept with the plugin."""
    write(folder, good="print('loading')\nimport sys\nsys.stderr.write('more')\n" + GOOD)
    (plugin,) = collect(folder).plugins
    assert plugin.printed == "loading\nmore"
    assert capsys.readouterr() == ("", "")


def test_saga_that_needs_a_broken_plugin_is_told_why(folder: Path) -> None:
    """B75: asking for a tool of a broken plugin gives that plugin's reason; other names get a suggestion."""
    write(folder, bad="from sagactl import tool\n@tool('bad.pay')\ndef pay(): pass\n1/0", good=GOOD)
    registry = collect(folder)
    with pytest.raises(PluginError, match=r"tool 'bad\.pay' can't be used: plugin bad .*bad\.py:4.*ZeroDivisionError"):
        registry.facts_of("bad.pay")
    with pytest.raises(NotFoundError, match=r"no tool named 'good\.great'") as caught:
        registry.facts_of("good.great")
    assert (caught.value.code, caught.value.hint) == ("missing-tool", "did you mean good.greet?")


def test_one_slip_does_not_hide_a_plugins_other_tools(folder: Path) -> None:
    """B75: a tool that can't be described is named with its line, and the others of its plugin work."""
    write(folder, good=GOOD + "\n@tool('good.bad')\ndef bad(x: bytes): pass\n")
    registry = collect(folder)
    assert registry.names() == ["good.greet"]
    found = broken(registry)
    assert (found.line, found.tools) == (8, ("good.bad",))
    assert "parameter 'x'" in found.message
    with pytest.raises(PluginError, match="parameter 'x'"):
        registry.facts_of("good.bad")


def test_name_given_twice_is_unusable_and_names_both_places(folder: Path) -> None:
    """B75: a name clash names both sources, and neither tool can be called by accident."""
    write(folder, one=GOOD, two="\n\n" + GOOD)
    registry = collect(folder)
    assert registry.names() == []
    with pytest.raises(PluginError) as caught:
        registry.facts_of("good.greet")
    assert "one.py:4" in caught.value.message
    assert "two.py:6" in caught.value.message


def test_dangling_pair_is_named(folder: Path) -> None:
    """A compensation or probe that doesn't exist is a problem with a place; the tool itself can be called."""
    write(folder, good=GOOD.replace('"good.greet"', '"good.greet", compensation="good.no", probe="good.nope"'))
    registry = collect(folder)
    assert registry.names() == ["good.greet"]
    assert [each.message for each in registry.broken] == [
        "tool 'good.greet' names the compensation 'good.no', not found",
        "tool 'good.greet' names the probe 'good.nope', not found",
    ]


PAIRS = """
from sagactl import tool
@tool("good.look", read_only=True)
def look() -> str: return ""
@tool("good.risk", idempotent=False)
def risk() -> str: return ""
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('compensation="good.look"', "names the compensation 'good.look', which only reads, so it undoes nothing"),
        ('compensation="good.risk"', "neither idempotent nor probed, so it can't be repeated"),
    ],
)
def test_pair_that_no_saga_could_use_is_named(folder: Path, options: str, message: str) -> None:
    """F4: a compensation that can't be one is the plugin's mistake, told with its place; the tool can be called."""
    write(folder, good=GOOD.replace('"good.greet"', f'"good.greet", {options}') + PAIRS)
    registry = collect(folder)
    found = broken(registry)
    assert message in found.message
    assert (found.name, found.line) == ("good", 4)
    assert "good.greet" in registry.names()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('compensation="good.greet"', "it is its own compensation"),
        ('probe="good.greet"', "it is its own probe"),
        ('compensation="good.x", compensation_with={"a": "${{ output.id"}', "compensation_with: ${{ without }}"),
        ('compensation="good.x", compensation_with={"a": {"b": ["${{ }}"]}}', "compensation_with: an empty expression"),
    ],
)
def test_declaration_that_contradicts_itself_is_broken(folder: Path, options: str, message: str) -> None:
    """B75: a slip in `@tool` is told at the plugin's line, and a saga that needs the tool is told so."""
    write(folder, good=GOOD.replace('"good.greet"', f'"good.greet", {options}'))
    registry = collect(folder)
    assert message in broken(registry).message
    with pytest.raises(PluginError, match=r"good\.py:4"):
        registry.facts_of("good.greet")


def test_version_of_a_project_plugin_follows_its_source(folder: Path) -> None:
    """E16: a changed plugin, or a changed private file beside it, is another version; `version=` overrides."""
    write(folder, good=GOOD, _shared="x = 1", fixed=GOOD.replace('"good.greet"', '"fixed.greet", version="7"'))
    first = collect(folder)
    assert first.facts_of("good.greet").version == collect(folder).facts_of("good.greet").version
    assert first.facts_of("fixed.greet").version == "7"
    write(folder, _shared="x = 22")
    second = collect(folder).facts_of("good.greet").version
    write(folder, good=GOOD + "# changed")
    third = collect(folder).facts_of("good.greet").version
    assert len({first.facts_of("good.greet").version, second, third}) == 3


def test_folder_is_read_anew_each_time(folder: Path) -> None:
    """Collecting again sees what has changed on the disk."""
    write(folder, good=GOOD)
    assert collect(folder).names() == ["good.greet"]
    write(folder, good=GOOD.replace("good.greet", "good.welcome"))
    assert collect(folder).names() == ["good.welcome"]


def entry_points(module: str, text: str, tmp_path: Path, name: str = "shop") -> EntryPoints:
    """Install a module with an entry point of the distribution `Sagactl_Shop`, as pip would."""
    (tmp_path / f"{module}.py").write_text(text)
    info = tmp_path / "sagactl_shop-1.2.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Sagactl_Shop\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[sagactl.plugins]\n{name} = {module}\n")
    from importlib.metadata import distributions

    (distribution,) = distributions(path=[str(tmp_path)])
    return distribution.entry_points


def test_installed_plugins_give_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point of the group `sagactl.plugins` gives tools; their version is the distribution's."""
    monkeypatch.syspath_prepend(str(tmp_path))
    points = entry_points("installed_good", GOOD, tmp_path)
    registry = collect(None, entry_points=points, allowed=["sagactl-shop"])
    facts = registry.facts_of("good.greet")
    assert (facts.version, facts.plugin) == ("1.2", "shop")
    assert registry.plugins[0].origin == "Sagactl_Shop"


def test_plugin_that_is_not_allowed_is_listed_and_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H37: what isn't in the operator's list is shown, and its module isn't imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    points = entry_points("installed_evil", "raise SystemExit('imported')", tmp_path)
    for allowed in ([], ["other"], ["shop"]):
        registry = collect(None, entry_points=points, allowed=allowed)
        assert [(plugin.name, plugin.loaded) for plugin in registry.plugins] == [("shop", False)]
        assert registry.broken == ()
    assert "installed_evil" not in sys.modules


def test_broken_installed_plugin_is_contained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B75: an installed plugin that exits at import, or isn't there, is one broken plugin."""
    monkeypatch.syspath_prepend(str(tmp_path))
    points = entry_points("installed_broken", "\nraise SystemExit(1)", tmp_path)
    found = broken(collect(None, entry_points=points))
    assert (found.name, found.line) == ("shop", 2)
    gone = EntryPoint("gone", "not_there_at_all:tools", "sagactl.plugins")
    assert "ModuleNotFoundError" in broken(collect(None, entry_points=[gone])).message


def test_entry_point_may_be_a_function_or_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point may also name a tool, a list of tools, or a function that gives them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "offers.py").write_text(GOOD + "\nTOOLS = [greet]\ndef give():\n    yield greet\nNO_TOOLS = [3]\n")
    for attribute in ("greet", "TOOLS", "give"):
        point = EntryPoint("offers", f"offers:{attribute}", "sagactl.plugins")
        assert collect(None, entry_points=[point]).names() == ["good.greet"]
    wrong = EntryPoint("offers", "offers:NO_TOOLS", "sagactl.plugins")
    assert "no tool" in broken(collect(None, entry_points=[wrong])).message


def test_built_in_tools_are_described_when_they_are_asked_for(folder: Path, tmp_path: Path) -> None:
    """Each tool that is always there is sound, is found by name, and clashes with a plugin's like any other."""
    from sagactl.tools.built_in import BuiltIn

    built_in = BuiltIn(tmp_path, lambda: "boot").load()
    registry = collect(None, built_in=[built_in])
    names = registry.names()
    assert len(names) == len(registry.tools) == len(registry.facts) > 3
    assert registry.broken == ()
    for name in names:
        facts = registry.facts_of(name)
        assert facts.name == name
        assert name in registry.tools
        assert {facts.compensation, facts.probe} - {None} <= set(names)
    write(folder, twin=f"from sagactl import tool\n@tool({names[0]!r})\ndef twin() -> None: ...\n")
    clash = collect(folder, built_in=[built_in])
    assert names[0] not in clash.names()
    assert "is also given by" in broken(clash).message
