"""What a command wrote and how it ended, as the outcome of a call (rule E3).

An exit code tells nothing about effects: a program that exits with 1 may have done everything, half, or nothing. So a
code that the step doesn't list is *unknown*, as a signal is. Only where the command could not be started at all is it
certain that nothing happened.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from typing import Final

from sagactl.core.canonical import Json, NotJsonError, parse
from sagactl.core.saga import PAYLOAD_BYTES_MAX
from sagactl.secrets.masking import KNOWN
from sagactl.tools.api import Rejected, Unavailable
from sagactl.tools.convert import bound_line
from sagactl.tools.kind import Unsure
from sagactl.tools.shell.launcher import STDERR, STDOUT, NotStartedError

OUTPUT_BYTES_MAX: Final = PAYLOAD_BYTES_MAX
"""What `output: json` may have."""

TEXT_BYTES_MAX: Final = 65_536
"""What `output: text` keeps: the end."""

TAIL_BYTES: Final = 4_096
TAIL_LINES: Final = 3
TAIL_LENGTH_MAX: Final = 240
UNAVAILABLE_CODES: Final = (75,)
"""EX_TEMPFAIL: "try again later" in the words of sysexits.h."""

_TRANSIENT: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.EIO})
_WORDS: Final = {errno.ENOENT: "not_found", errno.ENOTDIR: "not_found", errno.EACCES: "not_allowed"}


class Written:
    """What a command writes, as far as it is needed: stdout up to a bound and its end, and the end of stderr."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._stdout = bytearray()
        self._stderr = bytearray()
        self.stdout_bytes = 0

    def take(self, name: str, data: bytes) -> None:
        """Add what came on one of the two streams."""
        if name == STDERR:
            self._stderr = (self._stderr + data)[-TAIL_BYTES:]
        elif name == STDOUT and self._kind != "none":
            self.stdout_bytes += len(data)
            if self._kind == "text":
                self._stdout = (self._stdout + data)[-TEXT_BYTES_MAX:]
            elif len(self._stdout) <= OUTPUT_BYTES_MAX:
                self._stdout += data[: OUTPUT_BYTES_MAX + 1]

    def read_output(self) -> Json:
        """Return the step's output; raises Unsure where it isn't what was promised."""
        if self._kind == "none":
            return None
        if self._kind == "text":
            return self._read_text()
        if self.stdout_bytes > OUTPUT_BYTES_MAX:
            raise self._misfit(f"more than {OUTPUT_BYTES_MAX} bytes on stdout")
        try:
            return parse(bytes(self._stdout).decode())
        except UnicodeDecodeError:
            raise self._misfit("what stands on stdout isn't UTF-8") from None
        except NotJsonError as error:
            raise self._misfit(str(error)) from None

    def _read_text(self) -> str:
        kept = bytes(self._stdout)
        if self.stdout_bytes == len(kept):
            return kept.decode(errors="replace").rstrip("\n")
        text = KNOWN.mask_cut(kept.decode(errors="replace"), start=True)
        text = text[text.find("\n", 0, TAIL_BYTES) + 1 :]  # no half of a line, if it is no endless one
        cut = self.stdout_bytes - min(len(kept), len(text.encode()))
        return f"[{cut} bytes cut]\n{text}".rstrip("\n")

    def _misfit(self, problem: str) -> Unsure:
        kept = bytes(self._stdout[:TEXT_BYTES_MAX]).decode(errors="replace")
        raw = KNOWN.mask_cut(kept, end=len(self._stdout) > TEXT_BYTES_MAX)
        return Unsure(
            f"its stdout is no JSON that can be taken: {bound_line(problem, 200)}", code="bad_output", raw=raw
        )

    def describe_end(self) -> str:
        """Return the last lines of stderr on one line, tamed and bounded; nothing where there are none."""
        said = bytes(self._stderr).decode(errors="replace")
        is_cut = len(self._stderr) >= TAIL_BYTES
        said = KNOWN.mask_cut(said, start=is_cut)
        said = _drop_first_word(said) if is_cut else said
        lines = [line.strip() for line in said.splitlines()]
        text = " / ".join([line for line in lines if line][-TAIL_LINES:])
        return bound_line(text if len(text) <= TAIL_LENGTH_MAX else "... " + _drop_first_word(text[-TAIL_LENGTH_MAX:]))


def _drop_first_word(text: str) -> str:
    """Return *text* without the word that the cut before it may have gone through: half a secret isn't masked."""
    return "".join(text.split(maxsplit=1)[1:])


def judge_end(name: str, status: int, written: Written, arguments: Mapping[str, Json]) -> None:
    """Return where the command succeeded; raises Rejected, Unavailable or Unsure."""
    said = f": {end}" if (end := written.describe_end()) else ""
    if os.WIFSIGNALED(status):
        signal_name = _name_signal(os.WTERMSIG(status))
        raise Unsure(f"{name} was ended by {signal_name}{said}", code=signal_name.lower())
    exit_code = os.WEXITSTATUS(status)
    if exit_code == 0:
        return
    message, code = f"{name} exited with {exit_code}{said}", f"exit_{exit_code}"
    if exit_code in _list_codes(arguments.get("unavailable_exit_codes"), UNAVAILABLE_CODES):
        raise Unavailable(message, code=code)
    rejected = arguments.get("rejected_exit_codes")
    if rejected == "all" or exit_code in _list_codes(rejected, ()):
        raise Rejected(message, code=code)
    raise Unsure(
        f"{message} (if {exit_code} means that nothing was done, say rejected_exit_codes: [{exit_code}])", code=code
    )


def _list_codes(given: Json, default: tuple[int, ...]) -> tuple[Json, ...]:
    return tuple(given) if isinstance(given, list) else default


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def explain_start(name: str, error: NotStartedError, folder: str) -> Rejected | Unavailable:
    """Return the outcome of a command that never started: nothing happened."""
    reason = os.strerror(error.errno)
    if error.what == "start" or error.errno in _TRANSIENT:
        return Unavailable(f"{name} can't be started now: {reason}", code="not_started")
    word = _WORDS.get(error.errno, "not_started")
    if error.what == "cwd":
        return Rejected(f"{name} can't be started in {folder}: {reason}", code=f"folder_{word}")
    return Rejected(f"{name} can't be run: {reason}", code=f"command_{word}")
