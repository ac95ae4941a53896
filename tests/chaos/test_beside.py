"""An undo that takes too much is found without a world: what an earlier run has made is there to be taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.project import BEFORE_PIVOT, codes_of, make_project, run_chaos

TOOLS = '''
from sagactl import CallContext, tool

from ._shop import answer, find, put, shelf, take


@tool("clearing.put", compensation="clearing.take", chaos_safe=True)
def put_one(context: CallContext) -> dict[str, str]:
    """Put a thing there once for a key."""
    return answer(put(context, context.idempotency_key))


@tool("clearing.take", null_safe=True, chaos_safe=True)
def take_all(context: CallContext) -> dict[str, int]:
    """Take away all that stands there, whoever has put it there, once its own is there."""
    mine = find(context)
    for thing in shelf(context).iterdir() if mine else ():
        if thing.name.endswith("wrong-action"):
            thing.unlink()
    return {"taken": len(mine)}


@tool("blindly.put", compensation="blindly.take", chaos_safe=True)
def put_another(context: CallContext) -> dict[str, str]:
    """Put a thing there once for a key."""
    return answer(put(context, context.idempotency_key))


@tool("blindly.take", null_safe=True, chaos_safe=True)
def take_something(context: CallContext) -> dict[str, int]:
    """Take away another's, where its own isn't there."""
    if find(context):
        return {"taken": take(context)}
    others = [each for each in sorted(shelf(context).iterdir()) if each.name.endswith("wrong-action")]
    for thing in others[:1]:
        thing.unlink()
    return {"taken": len(others[:1])}


@tool("named.put", compensation="named.take", chaos_safe=True)
def put_by_name(context: CallContext) -> dict[str, str]:
    """Put a thing there whose name is the same in each run."""
    return answer(put(context, "the one"))


@tool("named.take", null_safe=True, chaos_safe=True)
def take_by_name(context: CallContext) -> dict[str, int]:
    """Take it away."""
    (shelf(context) / "the one").unlink(missing_ok=True)
    return {"taken": 1}

@tool("heap.put", compensation="heap.take", chaos_safe=True)
def put_on_heap(context: CallContext) -> dict[str, str]:
    """Make a file that all runs share a good deal larger, once for a key."""
    if not find(context):
        _grow(context, 9 * 1024 * 1024)
    return answer(put(context, context.idempotency_key))


@tool("heap.take", null_safe=True, chaos_safe=True)
def take_from_heap(context: CallContext) -> dict[str, int]:
    """Make it as small as it was."""
    if find(context):
        _grow(context, -9 * 1024 * 1024)
    return {"taken": take(context)}


def _grow(context: CallContext, by: int) -> None:
    with (context.project / "heap").open("ab") as file:
        file.truncate(size := file.tell() + by)
    if not size:
        (context.project / "heap").unlink()
'''


def _try(folder: Path, tool: str, *arguments: str) -> tuple[bool, set[str]]:
    project = make_project(folder, BEFORE_PIVOT.format(tool=tool, more=""))
    (folder / "plugins" / "beside.py").write_text(TOOLS)
    document = run_chaos(project, *arguments, "-o", "json").json
    assert document["experiments"]["not_reached"] == []
    return document["earlier"], codes_of(document)


@pytest.mark.parametrize(
    ("tool", "experiment", "code"),
    [
        ("clearing.put", "reference/is-undone", "compensation-does-harm"),
        ("blindly.put", "wrong/killed-after-intent/rollback", "compensation-not-null-safe"),
    ],
)
def test_an_undo_that_takes_what_another_run_has_made_is_found(
    tool: str, experiment: str, code: str, tmp_path: Path
) -> None:
    """S3: no `world` is given, and yet there is something that isn't the run's own; also where the action never ran."""
    assert _try(tmp_path, tool, "--experiment", experiment) == (True, {code})


def test_no_run_is_beside_one_that_it_shares_a_name_with(tmp_path: Path) -> None:
    """A second run that does less than the first has its undo take the first one's: nothing is said of that."""
    assert _try(tmp_path, "named.put", "--experiment", "wrong/reply-lost") == (False, set())


def test_no_run_is_beside_one_where_both_would_be_too_much(tmp_path: Path) -> None:
    """What a tool leaves is small enough for one run, and not for two: the saga is tried all the same."""
    assert _try(tmp_path, "heap.put", "--experiment", "wrong/reply-lost") == (False, set())
