"""Run a command and write what it cost: `python -I measured.py FILE COMMAND…`.

The command is a child of this small process and not of the test's: the peak of a child's memory counts what its parent
had when it forked. Limits keep what goes wrong from taking the machine with it.
"""

from __future__ import annotations

import json
import os
import resource
import sys

CPU_SECONDS_MAX = 30
ADDRESS_BYTES_MAX = 6 << 30
FILE_BYTES_MAX = 1 << 30


def main() -> int:
    """Run the command; its exit code is ours."""
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX))
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES_MAX, ADDRESS_BYTES_MAX))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
        os.execv(sys.argv[2], sys.argv[2:])
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    with open(sys.argv[1], "w", encoding="utf-8") as file:  # noqa: PTH123 - start-up counts
        json.dump({"cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}, file)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
