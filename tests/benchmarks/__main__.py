"""`python -m tests.benchmarks`: measure, and print one table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from tests.benchmarks.rows import REPETITIONS, Row
from tests.benchmarks.table import render_rows, write_rows

TOPICS: Final = ("start-up", "completion", "memory", "throughput", "long-runs")
"""Each is a module of this package, with `_` for `-`."""


def main() -> None:
    """Measure the topics that were asked for, all by default."""
    options = _read_options()
    found = {topic: list(_measure(topic, options.repetitions)) for topic in options.only or TOPICS}
    if options.output == "json":
        rows = [row for topic, measured in found.items() for row in write_rows(topic, measured)]
        sys.stdout.write(json.dumps({"schema": "sagactl.benchmarks/1", "items": rows}) + "\n")
        return
    sys.stdout.write(render_rows([row for measured in found.values() for row in measured]) + "\n")


def _measure(topic: str, repetitions: int) -> Iterator[Row]:
    sys.stderr.write(f"measuring {topic}\n")
    yield from import_module(f"tests.benchmarks.{topic.replace('-', '_')}").measure(repetitions)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=main.__doc__)
    parser.add_argument("--only", action="append", choices=TOPICS, metavar="NAME", help=f"one of {', '.join(TOPICS)}")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"turns of each, {REPETITIONS} by default")
    return parser.parse_args()


if __name__ == "__main__":
    main()
