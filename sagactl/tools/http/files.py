"""Which files of a project declare tools: looked for at each start, so this imports nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

SUFFIX: Final = ".yaml"
CHECK_SUFFIX: Final = ".check.yaml"
"""Files for `sagactl tools check`, which declare nothing."""


def find_files(folder: Path) -> list[Path]:
    """Return the files of declarations in a `plugins/` folder, by name."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return []
    return [folder / name for name in names if _declares(name)]


def _declares(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.endswith(CHECK_SUFFIX) and not name.startswith(("_", "."))
