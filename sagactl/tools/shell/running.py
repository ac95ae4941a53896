"""One call of a command, from its arguments to its outcome."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Final

from sagactl.core.canonical import Json
from sagactl.tools.api import CallContext, Unavailable
from sagactl.tools.kind import Unsure
from sagactl.tools.shell.launcher import STDOUT, Command, Launcher, NotStartedError, SupervisorLostError
from sagactl.tools.shell.orphans import TOKEN_VARIABLE, CallFile, CallFiles
from sagactl.tools.shell.reading import Written, explain_start, judge_end
from sagactl.tools.shell.request import build_argv, build_environment, build_folder, build_stdin, check_size

_LOOK_SECONDS: Final = 0.5


class Runner:
    """Runs commands by way of one spawner; `files` is where those under way are noted."""

    def __init__(self, files: CallFiles) -> None:
        self.files = files
        self._launcher = Launcher()

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
            status = self._launcher.run(command, hear, must_end)
        except NotStartedError as error:
            raise explain_start(name, error, str(command.cwd)) from error
        except SupervisorLostError:
            self._end_for_sure(file)
            raise Unsure(f"who watched over {name} was killed; all of it was ended", code="supervisor_lost") from None
        judge_end(name, status, written, arguments)
        return written.read_output()

    def close(self) -> None:
        """Let the spawner end."""
        self._launcher.close()

    def _make_file(self, context: CallContext) -> CallFile:
        try:
            return self.files.make(context.run_id)
        except OSError as error:
            raise Unavailable(f"the call can't be noted: {error}", code="not_started") from error

    def _end_for_sure(self, file: CallFile) -> None:
        """Return only when nothing of the call is left, however long that takes (E14)."""
        while self.files.end_call(file.path) is not None:
            time.sleep(_LOOK_SECONDS)


def _build_command(context: CallContext, arguments: Mapping[str, Json], file: CallFile) -> Command:
    argv = build_argv(arguments)
    env = build_environment(arguments, context, (TOKEN_VARIABLE, file.token))
    check_size(argv, env)
    about = {"boot": file.boot, "run": context.run_id, "step": context.step, "attempt": context.attempt}
    return Command(argv, env, build_folder(arguments, context), build_stdin(arguments), file.path, about)
