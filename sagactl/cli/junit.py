"""`--junit FILE`: what became of runs, or of checked files, as JUnit XML, however the command ends."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from sagactl.cli.answer import complete_hints
from sagactl.cli.session import Session
from sagactl.errors import InternalError, InvalidError, SagactlError

if TYPE_CHECKING:
    from sagactl.cli.views.junit import Suite

JunitOption: TypeAlias = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Also write what came of it as JUnit XML.")
]


class Junit:
    """What is to be in the file: suites, and runs whose suites are made of their logs at the end."""

    def __init__(self) -> None:
        self.run_ids: dict[str, None] = {}
        self.suites: list[Suite] = []


@contextmanager
def junit_report(session: Session, file: Path | None) -> Iterator[Junit]:
    """Give what is to be written to *file*, and write it at the end, also where the command fails.

    A file that couldn't be written is an error before anything is called.
    """
    report = Junit()
    if file is None:
        yield report
        return
    _check(file)
    file = file.resolve()
    try:
        yield report
    except BaseException as error:
        _write(session, file, report, error if isinstance(error, SagactlError) else _name(error))
        raise
    _write(session, file, report, None)


def _name(error: BaseException) -> SagactlError:
    code = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
    return InternalError(str(error) or type(error).__name__, code=code)


def _check(file: Path) -> None:
    is_other = file.exists() and not file.is_file()  # a folder or a device, which must not be replaced
    if is_other or not os.access(file.parent, os.W_OK | os.X_OK):
        raise InvalidError(
            f"--junit {file} can't be written", code="bad-junit", hint="name a file in a folder that is there"
        )


def _write(session: Session, file: Path, report: Junit, error: SagactlError | None) -> None:
    from sagactl.cli.views.junit import make_error_suite, render_junit

    suites = list(report.suites)
    for run_id in report.run_ids:
        try:
            suites.append(_read_suite(session, run_id))
        except SagactlError as trouble:
            error = error or trouble
    if error is not None:
        complete_hints(error, session.settings)
        suites.append(make_error_suite(error))
    try:
        write_atomically(file, render_junit(suites))
    except OSError as trouble:
        # What became of the run is told by the exit code, which this must not change.
        session.say(f"warning: {file} was not written: {trouble.strerror}")


def _read_suite(session: Session, run_id: str) -> Suite:
    from sagactl.cli.views.junit import make_suite
    from sagactl.core.evolve import replay

    log = session.app.log(read_only=True)
    saga = session.app.saga_of(log.row(run_id))
    records = [stored.record for stored in log.read(run_id)]
    return make_suite(saga, replay(saga, iter(records)), records)


def write_atomically(file: Path, text: str) -> None:
    """Put *text* into *file* in one step: whoever reads it sees all of it, or what was there before."""
    from sagactl.secrets.masking import KNOWN

    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    written = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(KNOWN.mask(text))
        written.chmod(0o644 & ~_read_umask())
        written.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            written.unlink()
        raise


def _read_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
