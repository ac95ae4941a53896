"""An isolated call as the driver sees it: a process is started, supervised, ended for sure; then its reply is read.

Only the reply counts as what the tool said, and only once nothing of the call runs any more. Without one the call is
in doubt, unless the process ended before it entered the tool's function: then nothing can have happened.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.records import OutcomeKind, ProbeAnswer
from sagactl.tools.api import Done, NotDone, Unavailable
from sagactl.tools.base import Invocation
from sagactl.tools.convert import bound_line
from sagactl.tools.isolated.area import Area, make_area
from sagactl.tools.isolated.reply import BadReplyError, read_answer, read_probe_reply
from sagactl.tools.isolated.request import Request
from sagactl.tools.isolated.rules import IsolationRules
from sagactl.tools.kind import Answered, Unsure
from sagactl.tools.shell.launcher import Command, NotStartedError
from sagactl.tools.shell.orphans import TOKEN_VARIABLE, CallFile
from sagactl.tools.shell.processes import Processes

_FLAGS: Final = {
    "isolated": "-I",
    "ignore_environment": "-E",
    "no_user_site": "-s",
    "dont_write_bytecode": "-B",
    "optimize": "-O",
}
_CHILD: Final = Path(__file__).with_name("child.py")


class IsolatedCaller:
    """Calls tools in processes of the project.

    Args:
        processes: What starts and ends them.
        rules: What the operator allows them.
    """

    def __init__(self, processes: Processes, rules: IsolationRules) -> None:
        self._processes = processes
        self._rules = rules

    def call(self, request: Request) -> object:
        """Return what the tool returned; what else it did is raised, as Answered, Unavailable or Unsure."""
        invocation = request.invocation
        if request.must_end:
            raise Unavailable(f"the time of {invocation.tool} was up before it could start", code="not_started")
        try:
            file = self._processes.make_file(invocation.run_id)
            area, descriptor = make_area(request.write(self._rules))
        except OSError as error:
            raise Unavailable(f"no process can be made for the call: {error}", code="not_started") from error
        try:
            status = self._run(_build_command(request, file, descriptor), request)
            return _read_reply(request, area, status)
        finally:
            os.close(descriptor)
            area.close()

    def _run(self, command: Command, request: Request) -> int:
        """Return the wait status of the process, once nothing of the call is left."""
        try:
            return self._processes.run(command, _pass_on, lambda: request.must_end)
        except NotStartedError as error:
            reason = os.strerror(error.errno)
            message = f"the process for {command.name} can't be started: {reason}"
            raise Unavailable(message, code="not_started") from error


def _pass_on(_: str, data: bytes) -> None:
    """Let what the process writes be kept as if it were written here; the child has made one stream of two."""
    sys.stdout.buffer.write(data)


def _build_command(request: Request, file: CallFile, descriptor: int) -> Command:
    invocation, operation = request.invocation, request.invocation.operation
    about = {"boot": file.boot, "run": invocation.run_id, "step": operation.step, "attempt": invocation.attempt}
    return Command(
        argv=(sys.executable, *_list_flags(), str(_CHILD)),
        env={**os.environ, "TRACEPARENT": request.traceparent, TOKEN_VARIABLE: file.token},
        cwd=_find_folder(invocation),
        stdin=descriptor,
        file=file.path,
        about=about,
        name=invocation.tool,
    )


def _list_flags() -> list[str]:
    """Return what makes an interpreter like this one, whose output isn't held back."""
    flags = [word for name, word in _FLAGS.items() if getattr(sys.flags, name)]
    return [*flags, *(f"-W{each}" for each in sys.warnoptions), "-X", f"utf8={sys.flags.utf8_mode}", "-u", "-P"]


def _find_folder(invocation: Invocation) -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was deleted
        return invocation.project


def _read_reply(request: Request, area: Area, status: int) -> object:
    data, name = area.read_reply(), request.invocation.tool
    if not data:
        raise _explain_end(request, status, was_entered=area.was_entered)
    try:
        return _deliver_probe(read_probe_reply(data)) if request.is_probe else _deliver(read_answer(data))
    except BadReplyError as error:
        what = bound_line(str(error), 200)
        raise Unsure(f"what came back from the process of {name} is no reply: {what}", code="bad_reply") from None


def _deliver(answer: Answer) -> object:
    if answer.kind is OutcomeKind.SUCCEEDED:
        return answer.output
    raise Answered(answer)


def _deliver_probe(reply: ProbeReply) -> object:
    if reply.answer is ProbeAnswer.DONE:
        return Done(reply.output)
    if reply.answer is ProbeAnswer.NOT_DONE:
        return NotDone()
    raise Answered(Answer(OutcomeKind.UNKNOWN, failure=reply.failure))


def _explain_end(request: Request, status: int, *, was_entered: bool) -> Unavailable | Unsure:
    """Return the outcome of a call whose process ended without a reply."""
    end, code = _name_end(status)
    name = request.invocation.tool
    if not was_entered:
        return Unavailable(f"the process for {name} {end} before it entered the tool", code="not_started")
    if request.must_end:
        return Unsure(f"the process of {name} {end}, for the call had to end", code="ended")
    return Unsure(f"the process of {name} {end} in the middle of the call", code=code)


def _name_end(status: int) -> tuple[str, str]:
    if not os.WIFSIGNALED(status):
        code = os.WEXITSTATUS(status)
        return f"exited with {code}", f"exit_{code}"
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name if number in set(signal.Signals) else f"SIG{number}"
    return f"was ended by {name}", name.lower()
