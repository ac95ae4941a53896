"""Which command is where, and what it takes: all that `--help` and completion need before a command is imported."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Entry(NamedTuple):
    """A command: its section in `--help`, its line there, its arguments by their names, and its module."""

    section: str
    help: str
    arguments: tuple[str, ...] = ()
    """Of a group, those of the commands in it; none of these takes others."""
    module: str = ""
    is_group: bool = False
    commands: Mapping[str, Entry] = MappingProxyType({})
    """Commands below this one, each in a module of its own; another first word is an argument of this one."""


_OF_TOOLS: Final[dict[str, Entry]] = {
    "check": Entry(
        "Commands", "Try the golden rules on tools: twice, at once, late, in vain.", ("TOOL…",), "tools_check"
    ),
    "import": Entry("Commands", "Make tools of a description in OpenAPI.", ("FORMAT", "FILE"), "tools_import"),
    "pin": Entry("Commands", "Write down what servers say of their tools.", ("NAME…",), module="tools_pin"),
}
"""Commands below `tools`; their section is `Commands`."""

COMMANDS: Final[dict[str, Entry]] = {
    "init": Entry("Author", "Make a project with an example to play with.", ("DIR",)),
    "validate": Entry("Author", "Check saga files; call nothing.", ("FILE…",)),
    "plan": Entry("Author", "Every call of a run, and what a failure would undo; call nothing.", ("FILE",)),
    "graph": Entry("Author", "The steps of a saga or a run as a picture: text, Mermaid or DOT.", ("FILE",)),
    "chaos": Entry("Author", "Crash a saga at each of its points, and say where that isn't safe.", ("FILE",)),
    "tools": Entry("Author", "What steps can call, and whether it keeps its promises.", ("TOOL",), commands=_OF_TOOLS),
    "run": Entry("Operate", "Start a saga and follow it to its end.", ("FILE",)),
    "resume": Entry("Operate", "Carry on with a run that was interrupted, or with --all of them.", ("RUN",)),
    "rollback": Entry("Operate", "Undo what a run has done.", ("RUN",)),
    "approve": Entry("Operate", "Agree to a step that waits for a person.", ("RUN", "STEP")),
    "deny": Entry("Operate", "Refuse a step that waits for a person.", ("RUN", "STEP")),
    "pause": Entry("Operate", "Let a run begin nothing new.", ("RUN",)),
    "unpause": Entry("Operate", "Let a paused run go on.", ("RUN",)),
    "cancel": Entry("Operate", "Turn a run around before its pivot.", ("RUN",)),
    "terminate": Entry("Operate", "End a run as it stands; nothing is undone.", ("RUN",)),
    "dlq": Entry("Operate", "Dead letters: what waits for a person.", ("RUN", "STEP"), is_group=True),
    "list": Entry("Inspect", "Runs, newest first.", module="list_runs"),
    "show": Entry("Inspect", "One run: steps, outputs, what is left behind.", ("RUN",)),
    "log": Entry("Inspect", "The saga log of a run, record by record.", ("RUN",)),
    "watch": Entry("Inspect", "Follow a run that another process drives, or --all of them.", ("RUN",)),
    "outbox": Entry("Maintain", "Alerts and events: what waits to be sent, and sending it.", is_group=True),
    "metrics": Entry("Maintain", "What there is in the log, for Prometheus."),
    "verify": Entry("Maintain", "Recompute the hash chain of the log.", ("RUN",)),
    "doctor": Entry("Maintain", "What is wrong around a project, and how to mend it."),
    "prune": Entry("Maintain", "Delete old runs that have ended."),
    "config": Entry("Maintain", "Each setting, and where it came from."),
    "schema": Entry("Maintain", "The JSON Schema of saga files, for editors."),
    "sandbox": Entry("Maintain", "See or reset what the sandbox plugins have done.", is_group=True),
    "completion": Entry("Maintain", "A script that completes commands, runs and sagas in your shell.", ("SHELL",)),
    "help": Entry("Maintain", "Read a topic: saga, config, plugins, semantics, …", ("TOPIC",), module="help_topic"),
}

WITH_VALUE: Final = frozenset(
    {"-C", "-i", "-o", "--allow-unsafe", "--bundle", "--color", "--definition", "--directory", "--example"}
    | {"--experiment", "--jobs", "--only", "--replay", "--seed", "--timeout"}
    | {"--format", "--from", "--head", "--heartbeat", "--idempotency-key", "--input", "--inputs", "--junit", "--keep"}
    | {"--limit", "--log", "--older-than", "--out", "--output", "--patience", "--plan", "--progress"}
    | {"--reason", "--rule", "--run", "--saga", "--server", "--since", "--status", "--step", "--until"}
)
"""Options whose next word is their value, whatever the command."""
