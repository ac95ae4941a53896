"""The command line: which command is where, one handler for every error, the exit code.

A command is a module of this package with a Typer app named `app`; it is imported when it is called, so that a start
costs what the command needs. The table in `commands` is all that `--help` has to know.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import click
import typer
import typer.core
import typer.main
from typer.utils import get_params_from_function

from sagactl.cli.commands import COMMANDS, WITH_VALUE, Entry
from sagactl.cli.options import Globals, Output, shared_options
from sagactl.errors import ExitCode, InternalError, SagactlError, StorageError, UsageError

VERSION_SCHEMA: Final = "sagactl.version/1"


class LazyGroup(typer.core.TyperGroup):
    """Commands by name, imported when they are called."""

    table: Mapping[str, Entry] = COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        del ctx
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command and give it the shared options."""
        del ctx
        entry = self.table.get(cmd_name)
        return None if entry is None else _import_command(cmd_name, entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one may have been meant."""
        name = args[0]
        if name not in self.table:
            from difflib import get_close_matches

            close = get_close_matches(name, self.table, n=1)
            hint = f"did you mean `sagactl {close[0]}`?" if close else "sagactl --help"
            raise UsageError(f"no command {name}", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, without importing them."""
        del ctx
        for section in dict.fromkeys(entry.section for entry in self.table.values()):
            rows = [(name, entry.help) for name, entry in self.table.items() if entry.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)


class Branch(LazyGroup):
    """A command that has commands below it: its first word names one of them, or is its own argument.

    Args:
        own: What is called where no command below is named.
        table: The commands below.
    """

    def __init__(self, own: click.Command, table: Mapping[str, Entry]) -> None:
        super().__init__(name=own.name, help=own.help, params=own.params)
        self.own = own
        self.table = table
        setattr(own, "format_epilog", self.format_commands)  # noqa: B010 - what `--help` shows last

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Begin the command that the first word names; options may stand before it, as every command takes them."""
        place = _find_word(args)
        if place is None or args[place] not in self.table:
            return self.own.make_context(info_name, args, parent, **extra)
        name = args[place]
        command = _import_command(name, self.table[name])
        return command.make_context(f"{info_name} {name}", args[:place] + args[place + 1 :], parent, **extra)


def _find_word(args: Sequence[str]) -> int | None:
    """Return where the first word stands that is neither an option nor the value of one."""
    is_value = False
    for place, each in enumerate(args):
        if each == "--":
            return None
        if not is_value and not each.startswith("-"):
            return place
        is_value = not is_value and each in WITH_VALUE
    return None


def _import_command(name: str, entry: Entry) -> click.Command:
    app = importlib.import_module(f"sagactl.cli.{entry.module or name}").app
    command: click.Command = typer.main.get_group(app) if entry.is_group else typer.main.get_command(app)
    command.name = name
    _restore_help(app, command)
    _add_shared_options(command)
    return Branch(command, entry.commands) if entry.commands else command


def _restore_help(app: typer.Typer, command: click.Command) -> None:
    """Give arguments the help texts they were declared with: recent releases of Click take them away from Typer's."""
    commands = command.commands if isinstance(command, click.Group) else {command.name: command}
    for info in app.registered_commands:
        assert info.callback is not None, "a command is a function"
        name = info.name or typer.main.get_command_name(info.callback.__name__)
        declared = get_params_from_function(info.callback)
        found = commands.get(name, command) if isinstance(command, click.Group) else command
        setattr(found, "format_arguments", lambda *_: None)  # noqa: B010 - Click lists them too, and Typer does already
        for parameter in found.params:
            if isinstance(parameter, typer.core.TyperArgument) and parameter.name in declared:
                parameter.help = getattr(declared[parameter.name].default, "help", None)


def _add_shared_options(command: click.Command) -> None:
    taken = {name for parameter in command.params for name in parameter.opts}
    command.params = [*command.params, *shared_options(taken)]
    command.help = _keep_lines(command.help)
    if isinstance(command, click.Group):
        for child in command.commands.values():
            _add_shared_options(child)


def _keep_lines(text: str | None) -> str | None:
    """Mark the examples so that click doesn't wrap them: they are there to be pasted."""
    if text is None or "Examples:" not in text:
        return text
    head, _, examples = text.partition("Examples:")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    return head + "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def _callback() -> None:
    """Run distributed sagas: declarative YAML, a write-ahead log, exact rollback.

    Start with `sagactl init DIR`, or with `sagactl run FILE`; see what happened with `sagactl log @latest`, and read
    `sagactl help semantics` for what is promised.
    """


def make_group(arguments: Sequence[str] = ()) -> click.Command:
    """Return the whole command line as a click command, for *arguments* to be given to it."""
    app = typer.Typer(
        cls=LazyGroup,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(cls=LazyGroup)(_callback)
    group = typer.main.get_command(app)
    show_version = partial(_print_version, output=_read_output(arguments, Output.TEXT))
    version = click.Option(["--version"], is_flag=True, expose_value=False, is_eager=True, callback=show_version)
    group.params = [version, *shared_options(set())]
    return group


def _print_version(context: click.Context, _: click.Parameter, value: Any, *, output: Output) -> None:
    if value:
        from sagactl import __version__

        if output is Output.TEXT:
            click.echo(f"sagactl {__version__}")
        else:
            from sagactl.cli.views.spelling import spell

            click.echo(spell({"schema": VERSION_SCHEMA, "version": __version__, "error": None}))
        context.exit()


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; every error ends here as two lines on stderr."""
    settings = Globals()
    try:
        code = make_group(arguments).main(list(arguments), prog_name="sagactl", standalone_mode=False, obj=settings)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help(), err=True)
        code = ExitCode.USAGE
    except BrokenPipeError:
        code = ExitCode.OK  # whoever read the answer has gone: no failure of ours
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except Exception as error:
        settings.output = _read_output(arguments, settings.output)
        code = _report(error, settings)
    return _tell_lost_answer(_flush(int(code or 0)), arguments, settings)


def _tell_lost_answer(code: int, arguments: Sequence[str], settings: Globals) -> int:
    """Say that the answer was lost on a full disk; where it was all that was asked for, that is no success.

    What drives a run keeps its code, which tells what became of the run.
    """
    from sagactl.cli.streams import lost_answer

    error = lost_answer()
    if error is None:
        return code
    reason = error.strerror or str(error)
    told = _report(StorageError(f"the answer can't be written: {reason}", hint="sagactl list"), settings)
    command = next((COMMANDS[each] for each in arguments if each in COMMANDS), None)
    return code if code or (command is not None and command.section == "Operate") else told


def _read_output(arguments: Sequence[str], known: Output) -> Output:
    """Return how the answer was to be written, also where a mistake came before the option that says so."""
    for place, argument in enumerate(arguments):
        after = arguments[place + 1] if place + 1 < len(arguments) else ""
        value = after if argument in {"-o", "--output"} else argument.removeprefix("--output=").removeprefix("-o")
        if argument.startswith(("-o", "--output")) and value in set(Output):
            return Output(value)
    return known


def _name_error(error: Exception) -> SagactlError:
    """Return what *error* is to the user."""
    match error:
        case SagactlError():
            return error
        case click.exceptions.Abort():
            return UsageError("nothing was answered", code="confirmation-needed")
        case click.ClickException():
            return _usage_of(error)
        case OSError():
            return StorageError(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "))
        case _:
            text = f"{type(error).__name__}: {error}"
            return InternalError(text, hint="run it again with --debug and report what it prints")


def _usage_of(error: click.ClickException) -> UsageError:
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx is not None else "sagactl"
    message = error.format_message()
    return UsageError(message[:1].lower() + message[1:].rstrip("."), hint=f"{command} --help")


def _report(raised: Exception, settings: Globals) -> int:
    """Write the error for people to stderr and, where asked for, for programs to stdout."""
    from sagactl.cli.answer import complete_hints, write_error

    if settings.debug:
        import traceback

        from sagactl.cli.streams import write_line
        from sagactl.secrets.masking import KNOWN

        # As one text: the streams mask as well, but only what stands in one piece.
        write_line(sys.stderr, KNOWN.mask("".join(traceback.format_exception(raised)).rstrip()))
    error = _name_error(raised)
    complete_hints(error, settings)
    write_error(error, settings)
    return int(error.exit_code)


def _flush(code: int) -> int:
    from sagactl.cli.streams import note_lost, silence

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            note_lost(stream, error)
            silence(stream)
    return code
