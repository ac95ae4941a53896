"""Run the systems that `sagas/onboarding-live.yaml` works on: `python -m tests.servers`, until Ctrl-C.

Stripe is `stripe-stateful-mock`, AWS is moto, Tryton is Tryton: nothing leaves this machine, and nothing costs money.
The variables that the plugins need are written to `servers.env`, for `. ./servers.env` in another terminal; with them
`python -m tests.servers show` tells what the three systems hold.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.together import Systems, World, serving_all, write_exports

PLACE = Path("servers.env")


def main() -> int:
    """Run the systems, or show what is in them."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__, add_help=True)
    parser.add_argument("what", nargs="?", choices=("run", "show"), default="run")
    parser.add_argument("--env", type=Path, default=PLACE, help=f"where the variables are written ({PLACE})")
    options = parser.parse_args()
    if options.what == "run":
        try:
            return _run(options.env)
        except (pytest.skip.Exception, pytest.fail.Exception) as lacking:
            _tell(str(lacking.msg))
            return 1
    if "TRYTON_URL" not in os.environ:
        _tell(f"there are no variables: . ./{options.env}")
        return 2
    sys.stdout.write(describe(Systems.of_environment().look()))
    return 0


def _run(place: Path) -> int:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with tempfile.TemporaryDirectory(prefix="servers-") as folder, serving_all(Path(folder), _tell) as systems:
        environ = systems.environ
        with _written(place, write_exports(environ)):
            for name in ("TRYTON_URL", "STRIPE_API_BASE", "AWS_ENDPOINT_URL"):
                _tell(f"{name.split('_')[0].lower():<7} {environ[name]}")
            _tell(f"ready; in another terminal: . ./{place}")
            ended.wait()
    return 0


@contextlib.contextmanager
def _written(place: Path, text: str) -> Iterator[None]:
    """Keep a file that only its owner can read for as long as the block takes."""
    with contextlib.suppress(FileNotFoundError):
        place.unlink()
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    try:
        yield
    finally:
        place.unlink(missing_ok=True)


def describe(world: World) -> str:
    """Return what there is, a line for each kind of thing."""
    given_back = sum(back for _, back in world.charges)
    rows = [
        ("tryton", "parties", str(len(world.parties)), ""),
        ("", "addresses", str(world.addresses), ""),
        ("", "orders", str(len(world.orders)), ", ".join(sorted(set(world.orders)))),
        ("stripe", "charges", str(len(world.charges)), f"{given_back / 100:.2f} of {_taken(world):.2f} given back"),
        ("aws", "machines", str(world.running), f"{len(world.machines) - world.running} terminated"),
        ("", "messages", str(world.messages), ""),
    ]
    return "".join(f"{system:<8}{what:<11}{count:>2}  {more}".rstrip() + "\n" for system, what, count, more in rows)


def _taken(world: World) -> float:
    return sum(taken for taken, _ in world.charges) / 100


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
