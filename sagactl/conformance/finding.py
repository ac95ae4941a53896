"""Where check files are: beside the plugin that they are about, in the project's `plugins/` first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from sagactl.chaos.world import WORLD_BYTES_MAX, is_too_large
from sagactl.conformance.check_file import SUFFIX, CheckFile, read_check_file
from sagactl.core.canonical import Json
from sagactl.errors import InvalidError
from sagactl.regular_file import read_regular
from sagactl.written.document import read_document

BYTES_MAX: Final = 1024 * 1024
"""What a check file may have."""


class CheckFiles:
    """Reads each check file once.

    Args:
        project: The folder of the project.
        merge: Returns the input that templates see, from the one that a file gives.
    """

    def __init__(self, project: Path, merge: Callable[[dict[str, Json]], Json]) -> None:
        self._project = project
        self._merge = merge
        self._known: dict[str, CheckFile] = {}

    def find(self, plugin: str) -> CheckFile:
        """Return the check file of a plugin, an empty one where there is none; raises InvalidError."""
        if plugin not in self._known:
            self._known[plugin] = self._read(self._project / "plugins" / f"{plugin}{SUFFIX}")
        return self._known[plugin]

    def list_plugins(self) -> list[str]:
        """Return the plugins that check files are named after."""
        return [path.name.removesuffix(SUFFIX) for path in (self._project / "plugins").glob(f"*{SUFFIX}")]

    def _read(self, path: Path) -> CheckFile:
        name = str(path.relative_to(self._project))
        try:
            text = read_regular(path, BYTES_MAX)
        except FileNotFoundError:
            return CheckFile()
        except OSError as error:
            raise InvalidError(f"{name} can't be read: {error.strerror}", code="invalid-check-file") from None
        found = read_check_file(read_document(text, file=name), file=name, folder=path.parent)
        _check_world(found.world, name)
        merged = self._merge(dict(found.input))
        if not isinstance(merged, dict):
            raise InvalidError("the input of a check must be a map", code="invalid-input")
        return replace(found, input=merged)


def _check_world(world: Path | None, file: str) -> None:
    if world is None:
        return
    if not world.is_dir():
        raise InvalidError(f"{file}: no folder {world}", code="invalid-check-file", hint="sagactl help tools-check")
    if is_too_large(world):
        message = f"{file}: the folder {world} has more than {WORLD_BYTES_MAX:,} bytes"
        raise InvalidError(message, code="invalid-check-file", hint="sagactl help tools-check")
