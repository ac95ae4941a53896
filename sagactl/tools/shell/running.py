"""One call of a command, from its arguments to its outcome."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from sagactl.core.canonical import Json
from sagactl.tools.api import CallContext, Unavailable
from sagactl.tools.shell.launcher import STDOUT, Command, NotStartedError
from sagactl.tools.shell.orphans import TOKEN_VARIABLE, CallFile
from sagactl.tools.shell.processes import Processes
from sagactl.tools.shell.reading import Written, explain_start, judge_end
from sagactl.tools.shell.request import build_argv, build_environment, build_folder, build_stdin, check_size


class Runner:
    """Runs commands as processes of the project."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    def run(self, context: CallContext, arguments: Mapping[str, Json]) -> Json:
        """Run what the arguments say and return the output; raises Rejected, Unavailable or Unsure."""
        file = self._make_file(context)
        command = _build_command(context, arguments, file)
        written = Written(str(arguments.get("output") or "text"))

        def hear(name: str, data: bytes) -> None:
            (sys.stdout if name == STDOUT else sys.stderr).buffer.write(data)
            written.take(name, data)

        def must_end() -> bool:
            return context.cancelled.is_set() or context.seconds_left() <= 0

        name = command.argv[0]
        if must_end():
            raise Unavailable(f"the time of {name} was up before it could start", code="not_started")
        try:
            status = self._processes.run(command, hear, must_end)
        except NotStartedError as error:
            raise explain_start(name, error, str(command.cwd)) from error
        judge_end(name, status, written, arguments)
        return written.read_output()

    def _make_file(self, context: CallContext) -> CallFile:
        try:
            return self._processes.make_file(context.run_id)
        except OSError as error:
            raise Unavailable(f"the call can't be noted: {error}", code="not_started") from error


def _build_command(context: CallContext, arguments: Mapping[str, Json], file: CallFile) -> Command:
    argv = build_argv(arguments)
    env = build_environment(arguments, context, (TOKEN_VARIABLE, file.token))
    check_size(argv, env)
    about = {"boot": file.boot, "run": context.run_id, "step": context.step, "attempt": context.attempt}
    return Command(argv, env, build_folder(arguments, context), build_stdin(arguments), file.path, about)
