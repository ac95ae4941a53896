"""Start commands in turn and say what each took; a script of its own, and small.

The kernel counts the memory of who starts a process among the peak of that process, so whoever measures a small program
has to be smaller still. Reads `{"repetitions": N, "code": EXIT, "commands": {NAME: [ARGUMENT, …]}}` from stdin and
writes, for each name, a list of `[wall seconds, CPU seconds, peak bytes]`.
"""

import json
import os
import sys
import time


def main() -> None:
    """Take turns, and don't count the first one: it writes byte code and fills caches."""
    order = json.load(sys.stdin)
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in order["commands"]}
    for turn in range(order["repetitions"] + 1):
        for name, command in order["commands"].items():
            usage = start(command, order["code"])
            if turn > 0:
                found[name].append(usage)
    json.dump(found, sys.stdout)


def start(command: list[str], code: int) -> tuple[float, float, int]:
    """Run *command*, which must end with *code*, and return what it took; what it writes goes nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    started = time.perf_counter()
    streams = [(os.POSIX_SPAWN_DUP2, nowhere, number) for number in (0, 1, 2)]
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=streams)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - started
    os.close(nowhere)
    if os.waitstatus_to_exitcode(status) != code:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    kibibytes = usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss // 1024
    return seconds, usage.ru_utime + usage.ru_stime, kibibytes * 1024


main()
