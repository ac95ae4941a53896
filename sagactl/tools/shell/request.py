"""From a step's arguments to the command that is run: what it is called with, in which folder and environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sagactl.core.canonical import Json, canonical
from sagactl.tools.api import CallContext, Rejected, Unavailable

ARGUMENTS_MAX: Final = 1_024
"""Words of one command."""

ARGUMENT_LENGTH_MAX: Final = 65_536
"""Characters of one word, of a script, or of the value of a variable."""

VARIABLES_MAX: Final = 256
"""Names in `env`, and in `pass_env`."""

COMMAND_BYTES_MAX: Final = 1_048_576
"""All words and variables of one command together."""

SHELL: Final = ("/bin/sh", "-eu", "-c")

PASSED: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR")
"""What a command always gets of sagactl's own environment, beside every `LC_` variable."""

PREFIX: Final = "SAGACTL_"


def build_argv(arguments: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the words of the command; raises Rejected unless `argv` or `script` is given."""
    argv, script = arguments.get("argv"), arguments.get("script")
    if (argv is None) == (script is None):
        raise Rejected("give argv (a program and its words) or script (a text for the shell), one of the two")
    if argv is None:
        interpreter = arguments.get("shell") or list(SHELL)
        return tuple(_words([*_as_list(interpreter), script]))
    if arguments.get("shell") is not None:
        raise Rejected("shell belongs to script; argv is run without one")
    return tuple(_words(_as_list(argv)))


def _as_list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _words(values: Sequence[Json]) -> list[str]:
    words = [str(value) for value in values]
    if any("\0" in word for word in words):
        raise Rejected("no word of a command can hold a NUL character")
    if not words or not words[0]:
        raise Rejected("the name of the program is empty")
    return words


def build_environment(arguments: Mapping[str, Json], context: CallContext, token: tuple[str, str]) -> dict[str, str]:
    """Return the whole environment: the base, what is passed on, what the step gives, and what sagactl says."""
    passed = {name: os.environ[name] for name in _passed_names() if name in os.environ}
    for name in map(str, _as_list(arguments.get("pass_env"))):
        if name not in os.environ:
            raise Unavailable(f"the variable {name} of pass_env isn't set here", code="missing_variable")
        passed[name] = os.environ[name]
    given = {name: str(value) for name, value in _as_map(arguments.get("env")).items()}
    for name, value in given.items():
        if not name or "=" in name or "\0" in name + value or name.startswith(PREFIX):
            raise Rejected(f"env can't set {name!r}", code="bad_variable")
    trace = {"TRACEPARENT": context.traceparent}
    return {**trace, **passed, **given, **_tell_context(context), token[0]: token[1]}


def _passed_names() -> list[str]:
    return [*PASSED, *(name for name in os.environ if name.startswith("LC_"))]


def _as_map(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _tell_context(context: CallContext) -> dict[str, str]:
    told = {
        "RUN_ID": context.run_id,
        "STEP": context.step,
        "DIRECTION": context.direction,
        "ATTEMPT": str(context.attempt),
        "IDEMPOTENCY_KEY": context.idempotency_key,
        "FORWARD_KEY": context.forward_key,
        "PROJECT": str(context.project),
    }
    if context.item is not None:
        told["ITEM"] = str(context.item)
    return {PREFIX + name: value for name, value in told.items()}


def check_size(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise Rejected where words and variables together are more than a command can take."""
    size = sum(len(word.encode()) + 1 for word in argv)
    size += sum(len(os.fsencode(name)) + len(os.fsencode(value)) + 2 for name, value in environment.items())
    if size > COMMAND_BYTES_MAX:
        raise Rejected(f"the command and its environment have {size} bytes, more than {COMMAND_BYTES_MAX}")


def build_stdin(arguments: Mapping[str, Json]) -> bytes:
    """Return what the command reads: a text as it is, anything else as JSON, nothing where nothing is given."""
    value: Any = arguments.get("stdin")
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else canonical(value).encode()


def build_folder(arguments: Mapping[str, Json], context: CallContext) -> Path:
    """Return the folder in which the command runs."""
    return context.project / str(arguments.get("cwd") or ".")
