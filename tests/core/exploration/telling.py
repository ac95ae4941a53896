"""The judge's reading of a log, carried along record by record: copied where paths part, and told plain records."""

from __future__ import annotations

from copy import copy
from typing import Any, Final

from sagactl.core.definition import write_definition
from sagactl.core.records import RECORD_TYPES, Decision, Ended, Operator, Outcome, Probe, Record
from sagactl.core.saga import Saga
from tests.core.simulation.evidence import Evidence, Findings, Known
from tests.core.simulation.reading import Reading

TYPE_NAMES: Final = {kind: name for name, kind in RECORD_TYPES.items()}
_SLOTS: Final = {kind: tuple(kind.__slots__) for kind in TYPE_NAMES}


def begin_reading(saga: Saga) -> Reading:
    """Return the reading of an empty log of *saga*."""
    return Reading(Evidence(write_definition(saga), [], [], [], [], [], True, True, ""))


def copy_reading(reading: Reading) -> Reading:
    """Return a reading that can go on by itself."""
    other = copy(reading)
    for name, value in vars(reading).items():
        if isinstance(value, dict | set | list):
            setattr(other, name, copy(value))
    other.findings = Findings()
    other.known = {op: _copy_known(known) for op, known in reading.known.items()}
    return other


def _copy_known(known: Known) -> Known:
    other = object.__new__(Known)
    other.__dict__.update(known.__dict__)
    other.keys = known.keys.copy()
    other.intents = known.intents.copy()
    return other


def tell(record: Record) -> dict[str, Any]:
    """Turn a record into a dictionary that names its type; words of an enumeration are text as they are."""
    told = {name: getattr(record, name) for name in _SLOTS[type(record)]}
    told["type"] = TYPE_NAMES[type(record)]
    if isinstance(record, Outcome | Probe | Decision) and record.failure is not None:
        told["failure"] = {"type": record.failure.type, "message": record.failure.message}
    elif isinstance(record, Operator):
        request = record.request
        told["request"] = {name: getattr(request, name) for name in type(request).__slots__}
    elif isinstance(record, Ended):
        told["not_undone"] = [{"step": e.step, "item": e.item, "reason": e.reason} for e in record.not_undone]
    return told
