"""The tools `shell.*`: one command per call, with what its author promises in the tool's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sagactl.core.canonical import Json
from sagactl.once import once_property
from sagactl.tools.api import CallContext, CannotTell, Done, NotDone, Rejected, Unavailable
from sagactl.tools.kind import Unsure, declares
from sagactl.tools.shell.request import (
    ARGUMENT_LENGTH_MAX,
    ARGUMENTS_MAX,
    SHELL,
    VARIABLES_MAX,
)

if TYPE_CHECKING:
    from sagactl.tools.shell.processes import Processes
    from sagactl.tools.shell.running import Runner

_TEXT: Final[dict[str, Json]] = {"type": "string", "maxLength": ARGUMENT_LENGTH_MAX}
_WORD: Final[dict[str, Json]] = {**_TEXT, "type": ["string", "integer"]}
_WORDS: Final[dict[str, Json]] = {"type": "array", "items": _WORD, "minItems": 1, "maxItems": ARGUMENTS_MAX}
_CODES: Final[dict[str, Json]] = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 255}}


def _say(schema: Mapping[str, Json], description: str, **more: Json) -> dict[str, Json]:
    return {**schema, "description": description, **more}


_WHAT: Final[dict[str, Json]] = {
    "argv": _say(_WORDS, "The program and its words; no shell is involved."),
    "script": _say(
        _TEXT,
        "In place of argv: a text for the shell. Hand values over in env, not in the text.",
        contentMediaType="text/x-shellscript",
    ),
    "shell": _say(_WORDS, "What runs the script, as its last word.", default=list(SHELL)),
}
_WHERE: Final[dict[str, Json]] = {
    "env": _say(
        {"type": "object", "additionalProperties": {**_WORD, "writeOnly": True}},
        "Variables beside the base environment.",
    ),
    "pass_env": _say(
        {"type": "array", "items": {"type": "string"}, "maxItems": VARIABLES_MAX},
        "Names of variables taken from sagactl's own environment; their values aren't recorded.",
    ),
    "cwd": _say({"type": "string"}, "The folder, relative to the project.", default="."),
}
_OUTPUT: Final[dict[str, Json]] = {
    "output": _say(
        {"type": "string", "enum": ["text", "json", "none"]}, "What of stdout is the step's output.", default="text"
    )
}
_REST: Final[dict[str, Json]] = {
    "stdin": _say({}, "What the command reads: a text as it is, anything else as JSON."),
    **_OUTPUT,
    "rejected_exit_codes": _say(
        {"anyOf": [_CODES, {"type": "string", "enum": ["all"]}]},
        "Exit codes that mean: nothing was done, for good.",
    ),
    "unavailable_exit_codes": _say(_CODES, "Exit codes that mean: nothing was done, try again.", default=[75]),
}
_PROBE: Final[dict[str, Json]] = {
    "probe": _say(_WORDS, "The command that says whether it was done: program and words; exit code 0 is yes."),
    "not_done_exit_codes": _say(_CODES, "Exit codes of the probe that mean no; any other: it can't tell.", minItems=1),
}


def _schema(*parts: Mapping[str, Json], required: tuple[str, ...] = ()) -> dict[str, Json]:
    properties: dict[str, Json] = {name: schema for part in parts for name, schema in part.items()}
    names: list[Json] = list(required)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


_ONE_OF: Final[list[Json]] = [{"required": ["argv"]}, {"required": ["script"]}]
_COMMAND: Final[dict[str, Json]] = {**_schema(_WHAT, _WHERE, _REST), "anyOf": _ONE_OF}
_PROBED: Final[dict[str, Json]] = {**_schema(_WHAT, _WHERE, _REST, _PROBE, required=tuple(_PROBE)), "anyOf": _ONE_OF}
_ASKED: Final = _schema(_PROBE, _WHERE, _OUTPUT, required=tuple(_PROBE))


class ShellTools:
    """What `shell.*` does, by way of the project's processes."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    @declares("shell.run", _COMMAND, output_schema={}, idempotent=False)
    def run(self, context: CallContext, **arguments: Any) -> object:
        """Run a command. In doubt a person is asked, for nobody knows whether it may be run again."""
        return self._runner.run(context, arguments)

    @declares("shell.run_idempotent", _COMMAND, output_schema={})
    def run_idempotent(self, context: CallContext, **arguments: Any) -> object:
        """Run a command that may be run again: a second time has no second effect. In doubt it is run again."""
        return self._runner.run(context, arguments)

    @declares("shell.run_probed", _PROBED, output_schema={}, idempotent=False, probe="shell.probe")
    def run_probed(self, context: CallContext, **arguments: Any) -> object:
        """Run a command that another one can ask about: in doubt `probe` is run."""
        return self._runner.run(context, arguments)

    @declares("shell.undo", _COMMAND, output_schema={}, null_safe=True)
    def undo(self, context: CallContext, **arguments: Any) -> object:
        """Run a compensation that may be run again, and copes with an action that ran partly or not at all."""
        return self._runner.run(context, arguments)

    @declares("shell.probe", _ASKED, output_schema={}, read_only=True)
    def probe(self, context: CallContext, **arguments: Any) -> object:
        """Ask whether a command was done; what `shell.run_probed` is probed by."""
        asked = {**arguments, "argv": arguments["probe"], "rejected_exit_codes": arguments["not_done_exit_codes"]}
        try:
            return Done(self._runner.run(context, {**asked, "unavailable_exit_codes": []}))
        except Rejected as error:
            was_run = error.code is not None and error.code.startswith("exit_")
            return NotDone() if was_run else CannotTell(error.message)
        except (Unavailable, Unsure) as error:
            return CannotTell(str(error))

    @once_property
    def _runner(self) -> Runner:
        from sagactl.tools.shell.running import Runner

        return Runner(self._processes)
