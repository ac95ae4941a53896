"""Scenarios of definitions: what is found when a saga is loaded, and what becomes of a run when it has changed."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.scenarios.checks import check_all
from tests.scenarios.scene import Done, Scene, step, tries

KILL = int(signal.SIGKILL)


def _write(scene: Scene, text: str) -> str:
    (scene.path / "sagas" / "x.yaml").write_text(text, encoding="utf-8")
    return text


def _refuse(scene: Scene, text: str) -> Done:
    """Check that a saga is refused before anything is called, quickly, and return what is said about it."""
    _write(scene, text)
    found = scene.do("validate", "x").code  # the first command also waits for the process that it is forked from
    began = time.monotonic()
    assert scene.do("validate", "x").code == found
    assert time.monotonic() - began < 30, "one second on a machine that has nothing else to do"
    done = scene.do("run", "x")
    assert (found, done.code) == (3, 3)
    assert not (scene.path / ".sagactl" / "log.db").exists() or scene.runs() == []
    assert scene.ledger() == []
    return done


OTHER = '''
"""A tool of another plugin."""

from sagactl import tool


@tool("other.do", read_only=True)
def do() -> dict[str, int]:
    """Return a number."""
    return {"n": 1}
'''


def test_b21_a_worker_without_the_plugin_says_what_is_missing(scene: Scene) -> None:
    """E16: the run waits (12) and names the tool, other runs go on, and whoever has the plugin carries it on.

    It is no alert of ours: waiting for a tool is told by exit code, `show` and `list`.
    """
    scene.plugin("other", OTHER)
    scene.saga("x", [step("a"), {"id": "b", "tool": "other.do", "read_only": True}])
    scene.saga("y", [step("a", retry=tries(2))])
    order = {"at": "after_outcome", "step": "a", "direction": "action", "signal": KILL}
    assert scene.do("run", "x", hooks={"signal": order}).code == -KILL
    run = scene.latest()
    assert scene.do("run", "y", extra={"PROBE_STOP": f"a/action/entered/1/{KILL}"}).code == -KILL
    plugin = scene.path / "plugins" / "other.py"
    plugin.rename(scene.path / "other.py")
    assert scene.do("resume", "--all").code == 12
    shown = scene.show(run)
    assert (shown["status"], shown["waiting_for"]["what"]) == ("waiting", "missing_tool")
    assert "other.do" in json.dumps(shown["waiting_for"])
    assert scene.show(scene.latest())["status"] == "succeeded"
    (scene.path / "other.py").rename(plugin)
    assert scene.do("resume", run).code == 0
    check_all(scene)


TYPED = '''
"""A tool whose output has a schema."""

from typing import TypedDict

from sagactl import tool


class Booking(TypedDict):
    """What was booked."""

    id: str


@tool("typed.book")
def book() -> Booking:
    """Book."""
    return {"id": "1"}


@tool("typed.unbook", null_safe=True)
def unbook(id: str | None = None) -> None:
    """Take it back."""
'''
UNDO = """saga: x
steps:
  - id: a
    tool: typed.book
    compensate: {tool: typed.unbook, with: {id: "${{ EXPRESSION }}"}}
  - id: b
    tool: typed.book
    compensate: {tool: typed.unbook, with: {id: "${{ output.id }}"}}
"""


@pytest.mark.parametrize(
    ("expression", "named"),
    [("steps.b.output.id", "b"), ("steps.tpyo.output.id", "tpyo"), ("output.price", "price")],
)
def test_b47_an_undo_that_names_what_is_not_there(expression: str, named: str, scene: Scene) -> None:
    """F3, F5: a later step, no step at all, a field that the tool doesn't return: found at load, with its place."""
    scene.plugin("typed", TYPED)
    done = _refuse(scene, UNDO.replace("EXPRESSION", expression))
    assert ":5:" in done.err
    assert named in done.err


@pytest.mark.parametrize("change", ["one more", "swapped"])
def test_b51_a_run_keeps_its_definition(change: str, scene: Scene) -> None:
    """E16: the file has changed before the place of interruption: the snapshot counts, steps are known by their ids.

    `resume` says that the file of this name is another by now; `resume --definition` shows what would change, and is
    refused where it doesn't fit what has happened.
    """
    a, b, c = (step(name, retry=tries(2)) for name in ("a", "b", "c"))
    scene.saga("x", [a, b, c])
    order = {"at": "after_outcome", "step": "b", "direction": "action", "signal": KILL}
    assert scene.do("run", "x", hooks={"signal": order}).code == -KILL
    scene.saga("x", [a, step("x"), b, c] if change == "one more" else [b, a, c])
    run = scene.latest()
    foreseen = scene.do("resume", run, "--definition", "sagas/x.yaml", "--dry-run")
    refused = scene.do("resume", run, "--definition", "sagas/x.yaml")
    assert refused.code == 6
    assert foreseen.code == 6
    resumed = scene.do("resume", run)
    assert resumed.code == 0
    assert f"note: sagas/x.yaml, or a tool of it, is another than run {run} was begun with" in resumed.err
    assert f"hint: sagactl resume {run} --definition x --dry-run" in resumed.err
    assert scene.calls() == ["a", "b", "c"]
    check_all(scene)


TYPING = """saga: x
steps:
  - id: on
    tool: probe.do
    with:
      word: ok
      undo: ok
      value: {country: NO, answer: yes, state: on, zip: 01234, mode: 0755, v: 0o17, n: ~, big: 123456789012345678901}
  - id: no
    tool: probe.do
    with: {word: ok, undo: ok, value: [off, 1:30, 2026-01-01]}
"""


def test_b69_what_looks_like_text_is_text(scene: Scene) -> None:
    """F2: no country becomes false and no number another one; a step may be named `no`."""
    _write(scene, TYPING)
    assert scene.do("run", "x").code == 0
    first, second = (line["arguments"]["value"] for line in scene.ledger("begin"))
    text = {"country": "NO", "answer": "yes", "state": "on", "zip": "01234", "mode": "0755"}
    assert first == {**text, "v": "0o17", "n": None, "big": 123456789012345678901}
    assert second == ["off", "1:30", "2026-01-01"]
    shown = scene.do("plan", "x", "--show-inputs", "-o", "text").out
    assert all(each in shown for each in ("NO", "01234", "0755"))
    check_all(scene)


STEP = "  - {id: charge, tool: probe.do, with: {word: ok, undo: ok}}\n"
CYRILLIC = "charg\u0435"
TWICE = {
    "compensate": (
        "saga: x\nsteps:\n  - id: a\n    tool: probe.do\n    compensate: {none: one}\n    compensate: {none: two}\n",
        ("5", "6"),
    ),
    "step": (f"saga: x\nsteps:\n{STEP}{STEP}", ("3", "4")),
    "case": (f"saga: x\nsteps:\n{STEP}{STEP.replace('charge', 'Charge')}", ("4",)),
    "form": (f"saga: x\nsteps:\n{STEP}{STEP.replace('charge', CYRILLIC)}", ("4",)),
    "merge": ("saga: x\nsteps:\n  - &a {id: a, tool: probe.do}\n  - {<<: *a, with: {word: ok, undo: ok}}\n", ("4",)),
}


@pytest.mark.parametrize("kind", TWICE)
def test_b71_what_is_given_twice_is_refused(kind: str, scene: Scene) -> None:
    """F1, F2: keys and ids, with both places; ids of another case or script are none; nothing is merged."""
    text, lines = TWICE[kind]
    done = _refuse(scene, text)
    assert all(f"\n  {line} |" in done.err for line in lines), done.err


def _ring(count: int) -> str:
    steps = "".join(
        f"  - {{id: s{place}, tool: probe.do, needs: [s{(place + 1) % count}], with: {{word: ok, undo: ok}}}}\n"
        for place in range(count)
    )
    return f"saga: x\nsteps:\n{steps}"


@pytest.mark.parametrize("count", [1, 2, 500])
def test_b73_a_cycle_is_named(count: int, scene: Scene) -> None:
    """F5: of any length, also of one; no stack overflows. A saga can't contain another one."""
    done = _refuse(scene, _ring(count))
    assert "s0" in done.err


def test_b73_aliases_that_explode_are_refused(scene: Scene) -> None:
    """F2: there are no aliases at all, and nothing is expanded to find that out."""
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))
    done = _refuse(scene, f"saga: x\nl0: &l0 [a]\n{levels}steps:\n{STEP}")
    assert "alias" in done.err or "anchor" in done.err
    assert Path(scene.path / "ledger.jsonl").exists() is False
