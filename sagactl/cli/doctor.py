"""`sagactl doctor`: what is wrong around a project, and how to mend it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sagactl.app import guard_stdout, open_project
from sagactl.cli.answer import write_document
from sagactl.cli.options import Globals, Output, make_app
from sagactl.cli.session import style_of
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.doctor import mask_paths, render_checks, write_checks
from sagactl.cli.views.place import complete
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.text import plural
from sagactl.core.canonical import Json
from sagactl.doctor.check import Check, Level
from sagactl.doctor.examine import examine
from sagactl.doctor.machine import list_versions
from sagactl.errors import ExitCode, StorageError, UsageError

app = make_app()


@app.command()
def doctor(
    context: typer.Context,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", metavar="FILE", help="Also write a report for others to read.")
    ] = None,
    after_restore: Annotated[
        bool, typer.Option("--after-restore", help="Accept a log that was put back from a copy; pause its runs.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --after-restore: don't ask.")] = False,
) -> int:
    """Check the machine, the settings, the log, plugins, sagas, and runs that wait for somebody.

    Each line says what to do about it. Ends with 3 where something fails, with 1 where the log can't be read. A bundle
    has versions and these lines, with paths masked; nothing of any run is in it. --after-restore asks first where no
    witness speaks against the log, and runs would be paused.

    Examples:
      sagactl doctor

      sagactl doctor -o json

      sagactl doctor --bundle report.json

      sagactl doctor --after-restore
    """
    guard_stdout()
    settings = context.ensure_object(Globals)
    paused = _accept(settings, is_agreed=yes) if after_restore else []
    found = examine(lambda: open_project(settings.directory, log=settings.log))
    checks = [replace(each, hint=each.hint and complete(each.hint, settings.place)) for each in found]
    document = write_checks(checks, list_versions())
    if bundle is not None:
        _write_bundle(bundle, mask_paths(document, Path.cwd() if settings.directory is None else settings.directory))
    if settings.output is Output.TEXT:
        write_line(answer_stream(), render_checks(checks, list_versions(), style_of(answer_stream(), settings)))
    else:
        write_document({**document, "paused": list(paused)})
    return _code_of(checks)


def _accept(settings: Globals, *, is_agreed: bool) -> list[str]:
    """Accept a log that was put back, and say which runs wait for somebody now."""
    from sagactl.doctor.restored import accept_restored, foresee_pauses, list_stuck

    with open_project(settings.directory, log=settings.log) as project:
        if not is_agreed and (count := foresee_pauses(project)):
            _confirm(settings, count)
        paused = accept_restored(project)
        write_line(sys.stderr, f"the log is accepted as it lies there; {plural(len(paused), 'run')} paused")
        for run_id in paused:
            told = f"run {run_id} is paused; look at what it has done since the copy was made, then"
            write_line(sys.stderr, f"{told}: {complete(f'sagactl unpause {run_id}', settings.place)}")
        for run_id in list_stuck(project):
            told = (
                f"run {run_id} is stuck; what was decided about it since the copy was made is forgotten, so look first"
            )
            write_line(sys.stderr, f"{told}: {complete(f'sagactl show {run_id}', settings.place)}")
    return paused


def _confirm(settings: Globals, count: int) -> None:
    """Ask before the runs of a log are paused that nothing speaks against."""
    runs = plural(count, "unfinished run")
    told = (
        f"no witness has seen more of this log than it has, and {runs} would be paused, each to be unpaused by itself"
    )
    command = "sagactl doctor --after-restore --yes"
    if settings.no_input or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{told}; nobody can be asked", code="confirmation-needed", hint=command)
    write_line(sys.stderr, told)
    sys.stderr.write(f"pause {runs}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("not confirmed: nothing was paused", code="confirmation-needed", hint=command)


def _code_of(checks: list[Check]) -> ExitCode:
    if any(check.blocks_log for check in checks):
        return ExitCode.ERROR
    return ExitCode.INVALID if any(check.level is Level.FAIL for check in checks) else ExitCode.OK


def _write_bundle(file: Path, document: Json) -> None:
    try:
        with file.open("x", encoding="ascii") as stream:
            stream.write(spell(document, indent=2) + "\n")
    except FileExistsError:
        raise UsageError(f"{file} is there already, and nothing is overwritten", code="exists") from None
    except OSError as error:
        raise StorageError(f"{file} can't be written: {error.strerror}", code="not-writable") from error
