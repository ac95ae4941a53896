"""Looking at the world: the sandbox, the folder that tools are given as their project, and what check tools say.

A look is JSON in which the run's id is replaced by `RUN`, so that looks of different runs can be compared. Of the
sandbox it holds what each operation has left behind by its ledger: an effect under the key of an action counts up, one
under another key (that of its compensation) counts down. Files are a list with the digest of what is in each.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from sagactl.chaos.traits import FILES, LEDGER, PATHS
from sagactl.config import STATE_FOLDER
from sagactl.core.canonical import Json, canonical, parse
from sagactl.errors import RefusedError
from sagactl.hashing import sha256

FILES_MAX: Final = 2_000
FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""What is looked at of the folder; more is refused, as a change in what isn't looked at would go unseen."""

WORLD_BYTES_MAX: Final = 256 * 1024 * 1024
"""What a folder may hold that is copied for each experiment, or each case of a check."""

_OWN: Final = (f"{STATE_FOLDER}/sandbox.db*", f"{STATE_FOLDER}/notes/*")
"""The sandbox is known by its ledger; notes that tools keep of their calls, such as tombstones, are no effect."""

Check = Callable[[], Json]


class Looking:
    """What the tools of one run act on, as far as it can be seen.

    Args:
        folder: The folder that the tools are given as their project.
        run_id: The run, whose id is left out of what is seen.
        checks: What else is asked, by name.
        ignored: Patterns of files that don't count.
        earlier: The id of a run that was there before, which is `EARLIER` in what is seen.
        ledger: What a make-believe target has noted, as pairs of a key and its forward key; without one, the sandbox.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        checks: dict[str, Check] | None = None,
        *,
        ledger: Callable[[], Sequence[tuple[str, str]]] | None = None,
        ignored: Sequence[str] = (),
        earlier: str | None = None,
    ) -> None:
        self._folder = folder
        self._run_id = run_id
        self._checks = checks or {}
        self._ledger = ledger or self._read_sandbox
        self._ignored = ignored
        self._earlier = earlier

    def look(self) -> Json:
        """Return what there is now; raises RefusedError where it can't be seen."""
        contents = dict(self._list_files())
        files: list[Json] = [{"path": path, "content": content} for path, content in contents.items()]
        paths: dict[str, Json] = dict.fromkeys(contents, True)
        seen: dict[str, Json] = {LEDGER: self._weigh(self._ledger()), FILES: files, PATHS: paths}
        for name, check in self._checks.items():
            seen[name] = check()
        text = canonical(seen).replace(self._run_id, "RUN")
        return parse(text if self._earlier is None else text.replace(self._earlier, "EARLIER"))

    def _read_sandbox(self) -> Sequence[tuple[str, str]]:
        from sagactl.sandbox.database import sandbox_path
        from sagactl.sandbox.show import read_sandbox

        return [(entry.key, entry.forward_key) for entry in read_sandbox(sandbox_path(self._folder)).ledger]

    def _weigh(self, ledger: Sequence[tuple[str, str]]) -> Json:
        found: dict[str, int] = {}
        for key, forward_key in ledger:
            name = _name_key(forward_key)
            found[name] = found.get(name, 0) + (1 if key == forward_key else -1)
        return {name: count for name, count in sorted(found.items()) if count}

    def list_sizes(self) -> Iterator[tuple[str, int]]:
        """Yield each file that counts, and how much there is in it."""
        for name, path in self._list_paths():
            found = path.lstat()
            if stat.S_ISREG(found.st_mode):
                yield name, found.st_size

    def _list_paths(self) -> Iterator[tuple[str, Path]]:
        for path in sorted(_walk(self._folder)):
            name = str(path.relative_to(self._folder))
            if not any(fnmatchcase(name, pattern) for pattern in (*_OWN, *self._ignored)):
                yield name, path

    def _list_files(self) -> Iterator[tuple[str, str]]:
        for number, (name, path) in enumerate(self._list_paths(), 1):
            if number > FILES_MAX:
                message = f"the tools have more than {FILES_MAX:,} files in their folder"
                raise RefusedError(message, code="world-too-large", hint="sagactl help chaos")
            yield name, self._digest(path)

    def _digest(self, path: Path) -> str:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            return f"-> {path.readlink()}"
        if not stat.S_ISREG(found.st_mode):
            return "no file"  # reading a pipe would wait for somebody who writes
        if found.st_size > FILE_BYTES_MAX:
            message = f"a file of the tools has more than {FILE_BYTES_MAX:,} bytes"
            raise RefusedError(message, code="world-too-large", hint="sagactl help chaos")
        return sha256(path.read_bytes().replace(self._run_id.encode(), b"RUN")).hexdigest()


def _walk(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        here = Path(place)
        links = [name for name in folders if (here / name).is_symlink()]
        yield from (here / name for name in (*names, *links))


def _name_key(key: str) -> str:
    """Return `servers[1]` of `run/servers/1/action`."""
    parts = key.split("/")
    if len(parts) == 4:
        return f"{parts[1]}[{parts[2]}]"
    return parts[1] if len(parts) == 3 else key


def is_too_large(world: Path) -> bool:
    """Tell whether a folder holds more than WORLD_BYTES_MAX, so that no world is made of it."""
    files = (path for path in world.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) > WORLD_BYTES_MAX
