"""Rows of benchmarks as a table for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.benchmarks.rows import Row

_HEAD = ("", "measured", "floor", "ratio", "goal", "")


def render_rows(rows: Iterable[Row]) -> str:
    """Return the rows as aligned text."""
    lines = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    return "\n".join(_align(line, widths) for line in lines)


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if column in {0, len(widths) - 1} else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join((first, *others)).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        f"{row.measured:.4g} {row.unit}",
        "" if row.floor is None else f"{row.floor:.4g} {row.unit}",
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.goal is None else f"{'>=' if row.is_at_least else '<='} {row.goal:g}",
        {True: "met", False: "MISSED", None: ""}[row.is_met],
    )


def write_rows(topic: str, rows: Iterable[Row]) -> list[dict[str, object]]:
    """Return the rows as plain values."""
    return [
        {
            "topic": topic,
            "name": row.name,
            "unit": row.unit,
            "measured": row.measured,
            "floor": row.floor,
            "ratio": row.ratio,
            "goal": row.goal,
            "is_at_least": row.is_at_least,
            "is_met": row.is_met,
        }
        for row in rows
    ]
