"""Sagas that were checked, kept beside the log, so that an unchanged file isn't read and checked anew by each run.

What is kept is the definition (E16), and how many warnings there were, under a digest of all that made them, but for
the tools: the text and name of the file, and this release, down to the very sources of its loader. It counts only while
each tool that the saga names has the very facts that it was checked with.

It is a copy that is never missed: a file that is cut, altered, too large or can't be read is passed over, what can't be
written isn't, and the folder may be deleted at any time. Whoever can write to it can write to the plugins beside it.
Only `run` keeps and takes sagas here; `validate` and `plan`, which write nothing, always read the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from sagactl import __version__
from sagactl.core.canonical import canonical, parse_trusted
from sagactl.core.definition import read_definition, write_definition
from sagactl.core.saga import Saga, ToolFacts
from sagactl.errors import SagactlError
from sagactl.hashing import sha256
from sagactl.regular_file import read_regular

KEPT_MAX: Final = 64
"""Sagas that are kept; the ones that were kept first go."""

KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
_LOADER: Final = ("spec", "written", "schemas", "core/definition.py", "core/saga.py", "core/template.py")
_SUFFIX: Final = ".saga"
_OWN_FOLDER: Final = ".sagactl"
_GATES: Final = "*-gate"
"""What stands beside every log."""


class Checked(NamedTuple):
    """A saga that can run, and how many warnings `validate` would show."""

    saga: Saga
    warnings: int


class CheckedSagas:
    """The sagas in *folder*, which need not be there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, text: bytes, file: str, facts_of: Callable[[str], ToolFacts]) -> Checked | None:
        """Return what *text* was found to be, if it still is for all that it hangs on."""
        checked = self._read(self._place(text, file))
        if checked is None:
            return None
        try:
            same = all(facts_of(name) == facts for name, facts in checked.saga.tools.items())
        except SagactlError:
            return None
        return checked if same else None

    def _read(self, place: Path) -> Checked | None:
        try:
            content = read_regular(place, KEPT_BYTES_MAX)
        except OSError:
            return None
        digest, _, body = content.partition(b"\n")
        if digest.decode("ascii", "replace") != sha256(body).hexdigest():
            return None
        try:
            kept_body: Any = parse_trusted(body.decode())
            return Checked(read_definition(kept_body["definition"]), int(kept_body["warnings"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def keep(self, text: bytes, file: str, checked: Checked) -> None:
        """Keep what *text* was found to be; where that can't be, it will be read again.

        It is kept beside a log only, or in a project's own folder: a path that is named by mistake gets no folder.
        """
        beside = self._folder.parent
        if beside.name != _OWN_FOLDER and not any(beside.glob(_GATES)):
            return
        body = canonical({"definition": write_definition(checked.saga), "warnings": checked.warnings}).encode()
        if len(body) + 65 > KEPT_BYTES_MAX:
            return
        place = self._place(text, file)
        draft = place.with_name(f"{place.name}.{os.urandom(4).hex()}")
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as kept:
                kept.write(sha256(body).hexdigest().encode() + b"\n" + body)
            draft.replace(place)
            self._forget_old()

    def _forget_old(self) -> None:
        kept = sorted(self._folder.iterdir(), key=lambda each: each.stat().st_mtime_ns)
        for each in kept[: max(0, len(kept) - KEPT_MAX)]:
            each.unlink(missing_ok=True)

    def _place(self, text: bytes, file: str) -> Path:
        found = sha256(b"")
        for part in (_fingerprint(), file.encode("utf-8", "surrogateescape"), text):
            found.update(b"%d:" % len(part) + part)
        return self._folder / f"{found.hexdigest()}{_SUFFIX}"


@cache
def _fingerprint() -> bytes:
    """Return what tells this release, and a changed checkout of it, from others: a check may find more by now."""
    parts = [__version__]
    for name in _LOADER:
        path = Path(__file__).parent / name
        for each in sorted(path.iterdir()) if path.is_dir() else [path]:
            if each.suffix in {".py", ".json"}:
                stat = each.stat()
                parts.append(f"{each.name}:{stat.st_size}:{stat.st_mtime_ns}")
    return "\n".join(parts).encode()
