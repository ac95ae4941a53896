"""What a real process did to the files of its log, as `strace` saw it: no VFS of ours, the SQLite that the system has.

The gate says by itself what was acknowledged: its file is written right after each commit, with the last record that is
durable. And the sandbox's witness file says when a tool began.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from sagactl.log.gate import GATE_SUFFIX
from tests.cli.project import Project
from tests.log.disk.trace import Change, State, Trace
from tests.log.disk.vfs import Kind

CALLS = "openat,pwrite64,write,ftruncate,fsync,fdatasync,unlink"
_BYTES_MAX = 100_000

_LINE = re.compile(r"(?P<pid>\d+) +(?P<call>\w+)\((?P<rest>.*)", re.DOTALL)
_RESUMED = re.compile(r"(?P<pid>\d+) +<\.\.\. \w+ resumed>(?P<rest>.*)", re.DOTALL)
_FILE = re.compile(r"(?:\d+|AT_FDCWD)<(?P<path>(?:\\x..)*)>")
_TEXT = re.compile(r'"(?P<text>(?:\\x..)*)"')
_NUMBER = re.compile(r", (?P<number>\d+)\)")


def run_straced(project: Project, *arguments: str) -> tuple[int, list[str]]:
    """Run `sagactl` under strace; return its exit code, and what it asked of the system, a whole call a line."""
    file = project.path.parent / f"{project.path.name}.trace"
    command = ["strace", "-f", "-y", "-xx", "-s", str(_BYTES_MAX), "-e", f"trace={CALLS}", "-o", str(file)]
    done = subprocess.run(
        [*command, sys.executable, "-m", "sagactl", *arguments],
        cwd=project.path,
        env=project.environment(),
        capture_output=True,
        check=False,
        timeout=600,
    )
    return done.returncode, list(_join(file.read_text(encoding="ascii").splitlines()))


def _join(lines: list[str]) -> Iterator[str]:
    """Put calls together again between which those of other threads came; writes count where they began."""
    begun: dict[str, str] = {}
    for line in lines:
        resumed = _RESUMED.fullmatch(line)
        if resumed is not None:
            start = begun.pop(resumed["pid"], "")
            if "sync(" in start:
                yield start + resumed["rest"]
        elif line.endswith("<unfinished ...>"):
            start = line.removesuffix("<unfinished ...>").rstrip()
            begun[line.split()[0]] = start
            if "sync(" not in start:
                yield start + ") = 0"
        else:
            yield line


def read_trace(lines: list[str], log: Path) -> Trace:
    """Return what was done to the files of *log*, what was acknowledged, and which calls began."""
    trace = Trace()
    runs: dict[str, tuple[int, str]] = {}
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None or "= -1" in found["rest"]:
            continue
        call, rest = found["call"], found["rest"]
        path, texts = _path_of(call, rest), [_decode(each["text"]) for each in _TEXT.finditer(rest)]
        if path.name == "witness.jsonl" and call == "write":
            _note_call(trace, texts[0])
        elif path == log.parent and call in {"fsync", "fdatasync"}:
            trace.changes.append(Change(Kind.SYNC_FOLDER, ""))
        elif path.parent == log.parent and path.name.startswith(log.name) and not path.name.endswith("-shm"):
            change = _read_change(call, path.name, texts, rest)
            if change is not None:
                trace.changes.append(change)
            if call == "pwrite64" and path.name.endswith("-gate") and len(texts[0].split()) == 5:
                _, _, run_id, seq, head = texts[0].decode().split()
                runs[run_id] = int(seq), head
                trace.acknowledge(_spell(runs))
    return trace


def _spell(runs: dict[str, tuple[int, str]]) -> State:
    return tuple(sorted((run_id, *place) for run_id, place in runs.items()))


def _note_call(trace: Trace, text: bytes) -> None:
    said = json.loads(text)
    if said["phase"] == "begin":
        trace.begun.append((len(trace.changes), said["key"]))


def _path_of(call: str, rest: str) -> Path:
    if call == "openat":
        text = rest.rpartition("= ")[2]
    elif call == "unlink":
        found = _TEXT.search(rest)
        assert found is not None
        return Path(_decode(found["text"]).decode())
    else:
        text = rest
    file = _FILE.search(text)
    return Path(_decode(file["path"]).decode()) if file else Path()


def _decode(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _read_change(call: str, name: str, texts: list[bytes], rest: str) -> Change | None:
    match call:
        case "openat" if "O_CREAT" in rest and name.endswith(GATE_SUFFIX):
            return Change(Kind.WRITE, name)  # empty, and its folder is synced at once
        case "openat":
            return Change(Kind.CREATE, name) if "O_CREAT" in rest and name.endswith(("-journal", "-wal")) else None
        case "pwrite64":
            return Change(Kind.WRITE, name, _last_number(rest), texts[0])
        case "ftruncate":
            return Change(Kind.TRUNCATE, name, size=_last_number(rest))
        case "fsync" | "fdatasync":
            return Change(Kind.SYNC, name)
        case "unlink":
            return Change(Kind.DELETE, name)
    raise AssertionError(f"{call} of {name}: not foreseen")


def _last_number(rest: str) -> int:
    found = _NUMBER.search(rest)
    assert found is not None
    return int(found["number"])
