"""Each tool is checked in a process of its own, so that one that ends its process ends its own check and no other.

The process is forked from one that has loaded everything and calls no tool. What it found it leaves in a file; where
there is none, it died, and the tool that was being called last has done that.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from sagactl.chaos.forking import FAILED_EXIT_CODE, fork_masked
from sagactl.conformance.report import Finding, ToolReport, Verdict
from sagactl.conformance.rules import Rule
from sagactl.conformance.stage import Subject
from sagactl.conformance.suite import Suite, list_rules
from sagactl.errors import RefusedError, SagactlError
from sagactl.secrets.masking import KNOWN

ENDING_SECONDS: Final = 10.0
"""How long a check that is ended may take to take back what it has made."""

POLL_SECONDS: Final = 0.005
_RESULT: Final = "found.pickle"


class _Refused(NamedTuple):
    """Why a check couldn't be made."""

    message: str
    code: str
    hint: str


def check_apart(suite: Suite, subject: Subject, close: Callable[[], None]) -> tuple[ToolReport, list[str]]:
    """Return what `Suite.check` returns, from a process of its own, which calls *close* at its end."""
    kept = suite.place / _RESULT
    kept.unlink(missing_ok=True)
    suite.calling.unlink(missing_ok=True)
    began = time.monotonic()
    status = _wait(fork_masked(partial(_be_child, suite, subject, close)))
    took_ms = round(1_000 * (time.monotonic() - began))
    if not kept.exists():
        report, notes = _describe_death(suite, subject, status)
        return replace(report, took_ms=took_ms), notes
    found = pickle.loads(kept.read_bytes())  # noqa: S301 - our own, in a folder of our own
    if isinstance(found, _Refused):
        raise RefusedError(found.message, code=found.code, hint=found.hint or "sagactl help tools-check")
    report, notes = found
    return replace(report, took_ms=took_ms), notes


def _be_child(suite: Suite, subject: Subject, close: Callable[[], None], mask: Iterable[int]) -> NoReturn:
    code = FAILED_EXIT_CODE
    try:
        # Ctrl-C comes to both; the parent passes it on, once. SIGTERM ends this one as it ends the parent.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            _leave(suite.place, _mask(*suite.check(subject)))
        except SagactlError as error:
            _leave(suite.place, _Refused(error.message, error.code, error.hint or ""))
        except Exception:
            trace = KNOWN.shorten_start(traceback.format_exc(limit=-3).strip(), 1_000)
            _leave(suite.place, _Refused(f"{subject.facts.name} can't be checked: {trace}", "no-check", ""))
        code = 0
    finally:
        with suppress(Exception):
            close()
        os._exit(code)


def _mask(report: ToolReport, notes: list[str]) -> tuple[ToolReport, list[str]]:
    """Leave out the secrets that only this process knows."""
    findings = {rule: replace(each, seen=KNOWN.mask(each.seen)) for rule, each in report.findings.items()}
    return replace(report, findings=findings), [KNOWN.mask(note) for note in notes]


def _leave(place: Path, found: tuple[ToolReport, list[str]] | _Refused) -> None:
    draft = place / f"{_RESULT}.draft"
    draft.write_bytes(pickle.dumps(found))
    draft.replace(place / _RESULT)


def _wait(pid: int) -> int:
    """Wait until a process has ended and return its status; whoever ends this one ends it as well."""
    try:
        return os.waitpid(pid, 0)[1]
    except BaseException:
        _end(pid)
        raise


def _end(pid: int) -> None:
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + ENDING_SECONDS
        while time.monotonic() < deadline:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return
            time.sleep(POLL_SECONDS)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _describe_death(suite: Suite, subject: Subject, status: int) -> tuple[ToolReport, list[str]]:
    """Say which tool has ended the process; nothing else is known of it, and what it made may be left."""
    code = os.waitstatus_to_exitcode(status)
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    called = suite.calling.read_text(encoding="utf-8") if suite.calling.exists() else subject.facts.name
    probe, undo = ((each.name if each else None) for each in (subject.probe, subject.undo))
    broken = Rule.PROBE if called == probe else Rule.UNDO if called == undo else Rule.SUCCEEDS
    why = f"{called} has ended its process ({how})"
    concerned = list_rules(subject.facts, has_undo=undo is not None, has_probe=probe is not None)
    found = {
        rule: Finding(rule, Verdict.BROKEN, why) if rule is broken else Finding(rule, Verdict.UNTRIED, why)
        for rule in concerned
        if rule in suite.rules or rule is broken
    }
    report = replace(suite.begin_report(subject.facts, found), compensation=undo, probe=probe)
    return report, [f"{subject.facts.name}: {why}: what it has made before that may be left"]
