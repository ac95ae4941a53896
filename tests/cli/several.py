"""Run several command lines in one process, for tests that look at many runs: `python several.py JSON`.

Prints one JSON list: for each command line its exit code and what it wrote to stdout.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from sagactl.cli.main import run_command_line

answers = []
for arguments in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run_command_line(arguments)
    answers.append([int(code), out.getvalue()])
sys.stdout.write(json.dumps(answers))
