"""Commands as they are typed: taken apart as the command line does, without anything being done."""

from __future__ import annotations

import shlex

import click

from sagactl.cli.main import Branch, make_group
from sagactl.cli.options import Globals


def parse_typed(line: str) -> tuple[str, ...]:
    """Return which command *line* calls; raises click.ClickException where it would be a usage error."""
    program, *words = shlex.split(line)
    assert program == "sagactl", line
    command: click.Command = make_group()
    path: list[str] = []
    context = click.Context(command, info_name="sagactl", obj=Globals())
    while isinstance(command, click.Group):
        if isinstance(command, Branch) and (not words or words[0] not in command.table):
            command = command.own
            break
        assert words, f"{line} names no command"
        found = command.get_command(context, words[0])
        assert found is not None, f"{line}: there is no {words[0]}"
        command, path = found, [*path, words.pop(0)]
        context = click.Context(command, info_name=path[-1], parent=context, obj=Globals())
    command.make_context(path[-1], words, parent=context.parent, obj=Globals())
    return tuple(path)
