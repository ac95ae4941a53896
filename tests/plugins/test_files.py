"""The plugin files: exact undo, nothing outside the project or of anybody else, and a kill at each of its lines."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from sagactl.core.answer import ProbeReply
from sagactl.core.canonical import Json
from sagactl.core.records import ProbeAnswer
from tests.plugins.project import PLUGINS, TOOLBOX, Project

DEEDS: dict[str, tuple[str, dict[str, Json]]] = {
    "write new": ("files.write", {"path": "etc/new", "content": "new\n", "mode": "0600"}),
    "write over": ("files.write", {"path": "etc/app", "content": "other\n"}),
    "copy new": ("files.copy", {"source": "etc/app", "path": "of_others/copy"}),
    "copy over": ("files.copy", {"source": "etc/app", "path": "etc/tool"}),
    "move file": ("files.move", {"source": "etc/app", "path": "of_others/app"}),
    "move link": ("files.move", {"source": "etc/link", "path": "link"}),
    "move folder": ("files.move", {"source": "data", "path": "of_others/data"}),
    "delete file": ("files.delete", {"path": "etc/tool"}),
    "delete link": ("files.delete", {"path": "etc/link"}),
    "delete folder": ("files.delete", {"path": "data", "with_content": True}),
    "make folders": ("files.make_folder", {"path": "etc/a/b/c"}),
}


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """Give a folder that is fast to sync, where the machine has one."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def world(tmp_path: Path) -> Project:
    """Give a project with a few files whose modes and times are worth keeping, and something outside of it."""
    return make_world(tmp_path)


def make_world(tmp_path: Path) -> Project:
    """Make such a project."""
    project = tmp_path / "project"
    for path in ("etc/app", "etc/tool", "data/one", "data/inner/two", "of_others/else"):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(path)
        os.utime(project / path, ns=(10**18, 10**18))
    (project / "etc" / "tool").chmod(0o750)
    os.link(project / "etc" / "app", project / "data" / "same_file")
    (project / "etc" / "link").symlink_to("app")
    (project / "data" / "out").symlink_to("../../outside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("of somebody")
    return Project(project)


def look(folder: Path, *, closely: bool = True) -> dict[str, Any]:
    """Return what is in a folder but for the notes: content, mode, and closely which file it is and since when."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name, state = str(path.relative_to(folder)), path.lstat()
        if name.startswith(".sagactl/notes") or name in {".sagactl", ".sagactl/kept"}:
            continue
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
        exact = (state.st_ino, state.st_nlink, state.st_mtime_ns) if closely and not path.is_dir() else ()
        found[name] = (content, oct(state.st_mode), *exact)
    return found


def find(world: Project, key: str = "a") -> ProbeReply:
    """Ask the probe."""
    return TOOLBOX.probe(world.invoke("files.find", {}, key=key, forward_key=key))


def undo(world: Project, key: str = "a") -> Json:
    """Undo, and return what it found."""
    return world.done("files.undo", {}, key=f"undo-{key}", forward_key=key)["status"]


@pytest.mark.parametrize("deed", DEEDS)
def test_a_deed_happens_once_and_its_undo_is_exact(deed: str, world: Project) -> None:
    """E7, E8, E9, E12: the same key, the lost output, the undo twice, the late call; the same file as before."""
    tool, arguments = DEEDS[deed]
    before = look(world.path)
    assert find(world).answer is ProbeAnswer.NOT_DONE
    first = world.done(tool, arguments)
    after = look(world.path)
    assert after != before
    assert world.done(tool, arguments, attempt=2) == first
    assert look(world.path) == after
    found = find(world)
    assert (found.answer, found.output) == (ProbeAnswer.DONE, first)
    assert find(world, "b").answer is ProbeAnswer.NOT_DONE
    status = undo(world)
    assert status != "never_happened"
    assert undo(world) == status
    assert look(world.path) == before
    assert find(world).answer is ProbeAnswer.NOT_DONE
    assert world.word(tool, arguments) == ("rejected", "too_late")
    assert look(world.path) == before
    assert world.done(tool, arguments, key="b").keys() == first.keys()


@pytest.mark.parametrize("deed", DEEDS)
def test_an_undo_of_what_never_happened_does_nothing(deed: str, world: Project) -> None:
    """E7, E9: it succeeds, leaves all as it is, and refuses the action that comes late."""
    tool, arguments = DEEDS[deed]
    before = look(world.path)
    assert [undo(world), undo(world)] == ["never_happened"] * 2
    assert world.word(tool, arguments) == ("rejected", "too_late")
    assert look(world.path) == before


OUTSIDE = [
    *("../outside/secret", "/etc/passwd", "etc/../../outside/secret", "data/out/secret", "a/../b", "..", "/"),
    *("", ".", "etc/", "etc//app", "./etc/app", "etc/./app", "etc/\0app", "etc/a\nb", "x" * 300, "etc/\x1b[31m"),
    *(".sagactl/log.db", ".SAGACTL/log.db", "plugins/x.py", "sagas/x.yaml", "sagactl.toml", ".git/hooks/pre-push"),
    *("pyproject.toml", "Plugins/x.py", "etc/link/x", "nowhere/x"),
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out(path: str, world: Project) -> None:
    """Whatever a saga's input says, nothing outside of the project is read, made, changed or moved."""
    (world.path / "plugins").mkdir()
    (world.path / ".git" / "hooks").mkdir(parents=True)
    before = look(world.path.parent)
    calls: list[tuple[str, dict[str, Json]]] = [
        ("files.write", {"path": path, "content": "x"}),
        ("files.copy", {"source": "etc/app", "path": path}),
        ("files.copy", {"source": path, "path": "etc/new"}),
        ("files.move", {"source": path, "path": "etc/new"}),
        ("files.move", {"source": "etc/app", "path": path}),
        ("files.delete", {"path": path, "with_content": True}),
        ("files.read", {"path": path}),
    ]
    if path != "nowhere/x":
        calls.append(("files.make_folder", {"path": path}))
    for n, (tool, arguments) in enumerate(calls):
        assert world.word(tool, arguments, key=f"k{n}")[0] == "rejected", tool
        assert undo(world, f"k{n}") == "never_happened"
    assert (
        look(world.path.parent) == {**before, "project/.sagactl": before.get("project/.sagactl")}
        or {name: found for name, found in look(world.path.parent).items() if "/.sagactl" not in name} == before
    )


def test_a_folder_that_becomes_a_link_leads_nobody_out(world: Project) -> None:
    """A race with somebody who swaps a folder for a link out of the project is lost by them."""
    folder, aside, stop = world.path / "etc", world.path / "aside", threading.Event()
    before = look(world.path.parent / "outside")

    def swap() -> None:
        while not stop.is_set():
            folder.rename(aside)
            folder.symlink_to(world.path.parent / "outside")
            folder.unlink()
            aside.rename(folder)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        kinds = {
            world.call("files.write", {"path": "etc/secret", "content": "x"}, key=f"k{n}").kind.value
            for n in range(150)
        }
    finally:
        stop.set()
        thread.join()
    assert look(world.path.parent / "outside") == before
    assert kinds <= {"succeeded", "rejected"}


CHANGES: dict[str, tuple[str, Any]] = {
    "content": ("write over", lambda root: (root / "etc/app").write_text("of others")),
    "mode": ("write over", lambda root: (root / "etc/app").chmod(0o777)),
    "gone": ("write over", lambda root: (root / "etc/app").unlink()),
    "a link now": ("write new", lambda root: ((root / "etc/new").unlink(), (root / "etc/new").symlink_to("tool"))),
    "made again": ("delete file", lambda root: (root / "etc/tool").write_text("of others")),
    "folder again": ("delete folder", lambda root: (root / "data").mkdir()),
    "source taken": ("move file", lambda root: (root / "etc/app").write_text("of others")),
    "target changed": ("move file", lambda root: (root / "of_others/app").replace(root / "of_others/app2")),
    "filled": ("make folders", lambda root: (root / "etc/a/b/c/theirs").write_text("of others")),
    "another folder": ("make folders", lambda root: ((root / "etc/a").rename(root / "x"), (root / "etc/a").mkdir())),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_somebody_else_has_changed_since_is_left_alone(change: str, world: Project) -> None:
    """E12: the undo is rejected, touches nothing, and a person decides."""
    deed, disturb = CHANGES[change]
    tool, arguments = DEEDS[deed]
    world.done(tool, arguments)
    disturb(world.path)
    before = look(world.path)
    kind, code = world.word("files.undo", {}, key="u", forward_key="a")
    assert (kind, code in {"moved_on", "not_empty"}) == ("rejected", True), code
    assert look(world.path) == before


def test_an_outer_folder_that_others_use_by_now_stays(world: Project) -> None:
    """What the deed made for itself goes, and nothing of anybody else."""
    world.done("files.make_folder", {"path": "etc/a/b/c"})
    (world.path / "etc/a/theirs").write_text("of others")
    assert undo(world) == "removed"
    listed = world.done("files.list", {"path": "etc/a"})
    assert listed == {"entries": [{"name": "theirs", "kind": "file"}]}


def test_an_undo_without_what_was_kept_is_rejected(world: Project) -> None:
    """After files.forget there is nothing to go back to, and the undo says so."""
    kept = world.done("files.write", {"path": "etc/tool", "content": "x"})["kept"]
    assert world.done("files.forget", {"kept": kept}, key="f") == {"status": "forgotten"}
    assert world.done("files.forget", {"kept": kept}, key="f") == {"status": "forgotten"}
    assert world.word("files.undo", {}, key="u", forward_key="a") == ("rejected", "copy_gone")
    lost = world.word("files.undo", {"path": "etc/tool"}, key="u", forward_key="never")
    assert lost == ("rejected", "note_gone")
    folder = world.done("files.delete", {"path": "data", "with_content": True}, key="b")["kept"]
    assert world.done("files.forget", {"kept": folder}, key="g") == {"status": "forgotten"}
    assert list((world.path / ".sagactl" / "kept").iterdir()) == []
    assert (world.path.parent / "outside" / "secret").exists()


@pytest.mark.parametrize("deed", DEEDS)
def test_without_its_note_nothing_that_is_kept_is_destroyed(deed: str, world: Project) -> None:
    """E12: somebody deletes `.sagactl/notes`: no undo, probe or further try takes what happened for nothing."""
    tool, arguments = DEEDS[deed]
    made = world.done(tool, arguments)
    shutil.rmtree(world.path / ".sagactl" / "notes")
    before = look(world.path)
    keeps = any((world.path / ".sagactl" / "kept").iterdir())
    assert world.word("files.undo", {"path": made["path"]}, key="u", forward_key="a") == ("rejected", "note_gone")
    if keeps:  # so it is known also where the answer was lost
        assert world.word("files.undo", {}, key="u", forward_key="a") == ("rejected", "note_gone")
        assert find(world).answer is ProbeAnswer.CANNOT_TELL
        assert world.word(tool, arguments, attempt=2)[0] == "unknown"
    assert look(world.path) == before


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("files.write", {"path": "etc/app", "content": "x", "replace": False}, "exists"),
        ("files.write", {"path": "etc", "content": "x"}, "not_a_file"),
        ("files.write", {"path": "etc/link", "content": "x"}, "is_link"),
        ("files.write", {"path": "etc/pipe", "content": "x"}, "not_a_file"),
        ("files.write", {"path": "etc/new", "content": "%", "encoding": "base64"}, "bad_content"),
        ("files.write", {"path": "etc/new", "content": "x" * 524_289}, "too_large"),
        ("files.copy", {"source": "etc/pipe", "path": "etc/new"}, "not_a_file"),
        ("files.copy", {"source": "data", "path": "etc/new"}, "not_a_file"),
        ("files.move", {"source": "data", "path": "data/inner/x"}, "bad_path"),
        ("files.move", {"source": "etc/app", "path": "etc/tool"}, "exists"),
        ("files.move", {"source": "etc/pipe", "path": "etc/new"}, "not_a_file"),
        ("files.delete", {"path": "data"}, "not_empty"),
        ("files.delete", {"path": "etc/nothing"}, "nothing_there"),
        ("files.make_folder", {"path": "etc/app/x"}, "not_a_folder"),
        ("files.read", {"path": "etc/pipe"}, "not_a_file"),
        ("files.read", {"path": "etc/binary"}, "bad_content"),
    ],
)
def test_what_cannot_be_done_is_rejected(tool: str, arguments: dict[str, Json], code: str, world: Project) -> None:
    """E3: nothing has happened and nothing is left, and a pipe is never waited for."""
    os.mkfifo(world.path / "etc" / "pipe")
    (world.path / "etc" / "binary").write_bytes(b"\xff\xfe")
    before = _look_without_pipe(world)
    assert world.word(tool, arguments) == ("rejected", code)
    assert _look_without_pipe(world) == before


def _look_without_pipe(world: Project) -> dict[str, Any]:
    return {name: found for name, found in look(world.path).items() if name != "etc/pipe"}


def test_bytes_and_modes_come_as_they_were_given(world: Project) -> None:
    """Text and base64, a mode that is given and one that is inherited."""
    content = base64.b64encode(bytes(range(256))).decode()
    world.done("files.write", {"path": "etc/tool", "content": content, "encoding": "base64"})
    assert (world.path / "etc/tool").stat().st_mode & 0o777 == 0o750
    read = world.done("files.read", {"path": "etc/tool", "encoding": "base64"})
    assert (read["content"], read["mode"]) == (content, "0750")
    world.done("files.write", {"path": "etc/x", "content": "\N{SNOWMAN}"}, key="b")
    assert (world.path / "etc/x").stat().st_mode & 0o777 == 0o644
    assert world.done("files.make_folder", {"path": "etc"}, key="c")["made"] == []
    assert undo(world, "c") in {"never_happened", "already_gone"}
    assert (world.path / "etc").is_dir()


@contextlib.contextmanager
def _dying_at(number: int) -> Iterator[None]:
    """Kill this process when it comes to that many different lines of the plugin."""
    seen: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(str(PLUGINS)):
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
            if len(seen) == number:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


def _killed_at(number: int, world: Project, tool: str, arguments: dict[str, Json], **keys: str) -> bool:
    """Make a call in a process that dies at a line; False where it came to its end before."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException), _dying_at(number):
            world.call(tool, arguments, **keys)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    ("deed", "stride"),
    [("write over", 1), ("write new", 3), ("move file", 3), ("delete folder", 3), ("make folders", 3)],
)
def test_a_kill_at_each_line_of_a_deed(deed: str, stride: int, in_memory: Path) -> None:
    """E4, E7, E17: after it the probe tells the truth, the same key completes it, and the undo leaves no trace.

    Most lines are those of all deeds, so one of them has its turn at each, and the others at each third.
    """
    world, (tool, arguments) = make_world(in_memory), DEEDS[deed]
    pristine = in_memory / "pristine"
    shutil.copytree(world.path, pristine, symlinks=True)
    before = look(pristine, closely=False)
    world.done(tool, arguments)
    after = look(world.path, closely=False)
    number, is_killed = 0, True
    while is_killed:
        number += stride
        shutil.rmtree(world.path)
        shutil.copytree(pristine, world.path, symlinks=True)
        is_killed = _killed_at(number, world, tool, arguments)
        told = find(world).answer
        assert told is not ProbeAnswer.CANNOT_TELL
        seen = look(world.path, closely=False)
        assert seen == (after if told is ProbeAnswer.DONE else before), (deed, number)
        if number % 2:  # the deeds have most lines in common, so each has its turn both ways
            world.done(tool, arguments, attempt=2)
            assert look(world.path, closely=False) == after, (deed, number)
        else:
            undo(world)
            assert look(world.path, closely=False) == before, (deed, number)
    assert number > 60


@pytest.mark.parametrize(
    ("deed", "stride"),
    [("write over", 1), ("write new", 3), ("move file", 3), ("delete folder", 3), ("make folders", 3)],
)
def test_a_kill_at_each_line_of_an_undo(deed: str, stride: int, in_memory: Path) -> None:
    """E12: the undo again, with the same key, completes it."""
    world, (tool, arguments) = make_world(in_memory), DEEDS[deed]
    pristine = in_memory / "pristine"
    shutil.copytree(world.path, pristine, symlinks=True)
    before = look(pristine, closely=False)
    number, is_killed = 0, True
    while is_killed:
        number += stride
        shutil.rmtree(world.path)
        shutil.copytree(pristine, world.path, symlinks=True)
        world.done(tool, arguments)
        is_killed = _killed_at(number, world, "files.undo", {}, key="undo-a", forward_key="a")
        undo(world)
        assert look(world.path, closely=False) == before, (deed, number)
        assert world.word(tool, arguments) == ("rejected", "too_late")
    assert number > 40
