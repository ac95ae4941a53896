"""Where the saga files of a project lie, and what they are called in messages and in runs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sagactl.errors import NotFoundError
from sagactl.regular_file import read_beginning

NAME_SHOWN_MAX: Final = 100
SAGA_SUFFIXES: Final = (".yaml", ".yml")


def find_saga(name: str, project: Path) -> Path:
    """Return the file that FILE means: a path from here or in the project, or a saga in `sagas/`; NotFoundError."""
    if _is_file(Path(name)):
        return Path(name)
    folder = project / "sagas"
    if "/" not in name:
        for suffix in ("", *SAGA_SUFFIXES):
            if _is_file(folder / f"{name}{suffix}"):
                return folder / f"{name}{suffix}"
    if "/" in name and _is_file(project / name):
        return project / name  # as problems, reports and runs call it, wherever the user is
    known = sorted(path.stem for path in folder.glob("*.y*ml")) if folder.is_dir() else []
    hint = f"sagas of {project}: {', '.join(known[:10])}" if known else "give the path of a saga file"
    raise NotFoundError(f"no saga {name[:NAME_SHOWN_MAX]}", code="no-such-saga", hint=hint)


def name_saga(file: Path, project: Path) -> str:
    """Return how *file* is called in messages and in the run: the same wherever the project lies."""
    whole = file.resolve()
    return str(whole.relative_to(project)) if whole.is_relative_to(project) else str(file)


def read_saga(file: Path) -> bytes:
    """Return what is in *file*; raises NotFoundError."""
    from sagactl.core.saga import FILE_BYTES_MAX

    try:
        return read_beginning(file, FILE_BYTES_MAX + 1)  # that it is too large is a problem of the saga, rule F1
    except OSError as error:
        raise NotFoundError(f"{file} can't be read: {error.strerror}", code="no-such-saga") from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False
