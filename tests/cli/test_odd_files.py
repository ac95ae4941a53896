"""What may lie in a project's folders beside files: pipes, devices, files without an end. No command waits for them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from sagactl.regular_file import read_beginning, read_given, read_regular
from tests.cli.project import Project

SECONDS_MAX = 60
HUGE_BYTES = 6_000_000_000
"""Sparse: it takes no room on the disk, and more memory than there is."""

PLUGIN = '''
from sagactl import tool


@tool("n.look", read_only=True, chaos_safe=True)
def look() -> None:
    """Look."""
'''
SERVERS = '[mcp.web]\ncommand = ["true"]\n'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with a saga, and no plugin."""
    for name in ("plugins", "sagas", "inner", ".sagactl"):
        (tmp_path / name).mkdir()
    text = "saga: nap\nsteps:\n  - {id: nap, tool: time.sleep, with: {for: 1ms}}\n"
    (tmp_path / "sagas" / "nap.yaml").write_text(text)
    return Project(tmp_path)


def test_pipes_and_devices_among_plugins_are_told_and_keep_nobody_waiting(project: Project) -> None:
    """Each kind of file that `plugins/` may hold: what can't be read breaks itself, all else can be used."""
    plugins = project.path / "plugins"
    for name in ("a.yaml", "b.check.yaml", "mcp.lock.json", "_c.py", "d.py"):
        os.mkfifo(plugins / name)
    (plugins / "e.yaml").symlink_to("/dev/zero")
    for name in ("f.yaml", "g.py"):
        with (plugins / name).open("wb") as file:
            file.truncate(HUGE_BYTES)
    (plugins / "h.py").write_text("")
    (project.path / "sagactl.toml").write_text(SERVERS)
    shown = project.run("tools", "-o", "json", timeout=SECONDS_MAX)
    assert shown.code == 0, shown.err
    broken = {each["plugin"]: each["message"] for each in shown.json["broken"]}
    assert broken.keys() == {"a", "e", "f", "g", "web"}
    assert all("it is no regular file" in broken[name] for name in ("a", "e", "web"))
    assert all("it has more than" in broken[name] for name in ("f", "g"))
    assert project.run("validate", "nap", timeout=SECONDS_MAX).code == 0


def test_a_pipe_as_check_file_is_told(project: Project) -> None:
    """A check file that can't be read is an error, not a plugin without one."""
    (project.path / "plugins" / "n.py").write_text(PLUGIN)
    os.mkfifo(project.path / "plugins" / "n.check.yaml")
    checked = project.run("tools", "check", "n", timeout=SECONDS_MAX)
    assert checked.code == 3
    assert "n.check.yaml can't be read: it is no regular file" in checked.err


@pytest.mark.parametrize("name", ["sagas/p.yaml", "inner/pyproject.toml", ".sagactl/log.db", ".sagactl/log.db-gate"])
def test_a_pipe_elsewhere_keeps_nobody_waiting(project: Project, name: str) -> None:
    """Sagas, settings on the way up, the log and what is beside it: commands end, with a message where it is theirs."""
    os.mkfifo(project.path / name)
    said = project.run("-C", "inner", "validate", timeout=SECONDS_MAX)
    assert said.code == (4 if name == "sagas/p.yaml" else 0), said.err
    listed = project.run("-C", "inner", "list", timeout=SECONDS_MAX)
    assert listed.code == (1 if name.startswith(".sagactl") else 0), listed.err
    assert ("is a pipe" in listed.err) is name.startswith(".sagactl")


@pytest.mark.parametrize("name", ["sagas/p.yaml", "sagactl.toml", "in.json", "api.yaml"])
def test_a_file_without_an_end_is_one_message(project: Project, name: str) -> None:
    """More than would fit in memory is never read: sagas, settings, inputs, descriptions."""
    with (project.path / name).open("wb") as file:
        file.truncate(HUGE_BYTES)
    lines = {
        "in.json": ("run", "nap", "--inputs", name),
        "api.yaml": ("tools", "import", "openapi", name),
    }
    said = project.run(*lines.get(name, ("validate",)), timeout=SECONDS_MAX)
    assert said.code in {3, 4}, said.err
    assert "more than" in said.out + said.err


def test_only_regular_files_within_bounds_are_read(tmp_path: Path) -> None:
    """The one reader of all of them: exactly the bound is fine; folders, pipes and devices are refused."""
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(file)
    assert read_regular(file, 5) == read_regular(tmp_path / "link", 5) == b"12345"
    assert read_beginning(file, 3) == b"123"
    os.mkfifo(tmp_path / "pipe")
    for path, bytes_max, said in (
        (file, 4, "more than 4 bytes"),
        (tmp_path, 9, "Is a directory"),
        (tmp_path / "pipe", 9, "no regular file"),
        (Path("/dev/zero"), 9, "no regular file"),
    ):
        with pytest.raises(OSError, match=said):
            read_regular(path, bytes_max)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "nowhere", 9)


def _by_pipe(write: Callable[[IO[bytes]], object], bytes_max: int, seconds_max: float) -> bytes:
    """Return what is read of a pipe that is open already, as a shell hands one over."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb", buffering=0) as stream:
        thread = threading.Thread(target=write, args=[stream])
        thread.start()
        try:
            return read_given(Path(f"/dev/fd/{reader}"), bytes_max, seconds_max=seconds_max)
        finally:
            os.close(reader)
            thread.join()


def _drip(stream: IO[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        for _ in range(2_500):
            stream.write(b"x")
            time.sleep(0.02)


def _write(data: bytes, *, closes: bool = True) -> Callable[[IO[bytes]], object]:
    def write(stream: IO[bytes]) -> None:
        stream.write(data)
        if closes:
            stream.close()

    return write


def test_a_pipe_that_was_given_on_purpose_is_read_within_bounds(tmp_path: Path) -> None:
    """What is open already may be a pipe: its bytes are bounded, and all of its time. One in a folder stays refused."""
    assert _by_pipe(_write(b"12345"), 5, 60) == b"12345"
    assert _by_pipe(_write(b""), 5, 60) == b""
    with pytest.raises(OSError, match="more than 4 bytes"):
        _by_pipe(_write(b"12345"), 4, 60)
    for write in (_write(b"1", closes=False), _drip):
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"not ended within 0\.3 seconds"):
            _by_pipe(write, 9_999, 0.3)
        assert time.monotonic() - began < 30
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        read_given(tmp_path / "pipe", 9, seconds_max=9)
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_given(Path("/dev/fd/987"), 9, seconds_max=9)
    with Path(os.devnull).open("rb") as nothing:
        assert read_given(Path(f"/dev/fd/{nothing.fileno()}"), 9, seconds_max=9) == b""
