"""The notes about calls under way: one file for each, `RUN.TOKEN`, in a folder that is mostly empty."""

from __future__ import annotations

from pathlib import Path


def list_notes(folder: Path, run_id: str) -> list[Path]:
    """Return the notes about calls of a run that are under way, or were when their driver ended."""
    try:
        return sorted(file for file in folder.iterdir() if file.name.startswith(f"{run_id}."))
    except OSError:
        return []
