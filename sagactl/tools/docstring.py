"""A function's docstring as the descriptions of a tool: its first line, and Google's `Args:`."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import Final

DESCRIPTION_LENGTH_MAX: Final = 1_000

_PARAMETER: Final = re.compile(r"\s+\*{0,2}(?P<name>\w+)(?:\s*\([^)]*\))?:\s*(?P<text>.*)")
_SECTION: Final = re.compile(r"[A-Z][A-Za-z ]*:\s*")


def summarize(docstring: str | None) -> str:
    """Return the first paragraph as one line."""
    paragraph, _, _ = cleandoc(docstring or "").partition("\n\n")
    return " ".join(paragraph.split())[:DESCRIPTION_LENGTH_MAX]


def read_parameters(docstring: str | None) -> dict[str, str]:
    """Return the description of each parameter that stands under `Args:`."""
    found: dict[str, str] = {}
    name, indent = "", 0
    for line in _lines_of_arguments(cleandoc(docstring or "")):
        depth = len(line) - len(line.lstrip())
        entry = _PARAMETER.fullmatch(line)
        if entry and (not indent or depth <= indent):
            name, indent = entry["name"], depth
            found[name] = entry["text"].strip()
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return {name: text[:DESCRIPTION_LENGTH_MAX] for name, text in found.items()}


def _lines_of_arguments(text: str) -> list[str]:
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.strip() in {"Args:", "Arguments:"}), None)
    if start is None:
        return []
    section: list[str] = []
    for line in lines[start + 1 :]:
        if line.strip() and (not line[0].isspace() or _SECTION.fullmatch(line)):
            break
        section.append(line)
    return [line for line in section if line.strip()]
