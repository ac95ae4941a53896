"""Our own `dataclass` does what the standard library's does, but for what it says it leaves to the type checker."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from sagactl import dataclass as ours

Decorate = Callable[..., Any]


class Plain:
    """Fields of every kind that the program uses."""

    name: str
    count: int = 1
    tags: list[str] = dataclasses.field(default_factory=list)
    cache: int = dataclasses.field(default=0, compare=False, repr=False)


class Single:
    """One field, and a text of its own."""

    value: str

    def __repr__(self) -> str:
        return f"<{self.value}>"


class Empty:
    """No field at all."""


def _make(decorate: Decorate, source: type, **options: bool) -> Any:
    namespace = {name: value for name, value in vars(source).items() if name not in {"__dict__", "__weakref__"}}
    return decorate(**options)(type(source.__name__, (), namespace))


def _look(decorate: Decorate, **options: bool) -> list[object]:
    """Return what can be seen of objects of the classes above."""
    plain, single, empty = (_make(decorate, source, **options) for source in (Plain, Single, Empty))
    one, same, other = plain("a"), plain("a", 1, [], 7), plain("a", 2)
    return [
        *(repr(each) for each in (one, other, single("x"), empty())),
        *(one == same, one != other, one == other, single("a") == single("a"), empty() == empty(), one == 1),
        [each.name for each in dataclasses.fields(plain)],
        plain.__match_args__,
        dataclasses.replace(one, count=5).count,
        dataclasses.asdict(one),
        copy.deepcopy(one) == one,
        plain.__hash__ is None,
        hasattr(one, "__dict__"),
        one.tags is not same.tags,
    ]


@pytest.mark.parametrize(
    "options", [{}, {"frozen": True}, {"slots": True}, {"frozen": True, "slots": True}, {"eq": False}]
)
def test_classes_behave_as_those_of_the_standard_library(options: dict[str, bool]) -> None:
    """Whatever options the program gives: the same text, equality, hash, fields, patterns, copies and defaults."""
    assert _look(ours.dataclass, **options) == _look(dataclasses.dataclass, **options)


def test_frozen_objects_are_keys() -> None:
    """Equal frozen objects are one key; what isn't frozen is no key at all."""
    frozen, loose = (_make(ours.dataclass, Single, frozen=is_frozen, slots=True) for is_frozen in (True, False))
    assert len({frozen("a"), frozen("a"), frozen("b")}) == 2
    with pytest.raises(TypeError):
        hash(loose("a"))


def test_records_travel_between_processes() -> None:
    """What is made of our classes can be pickled."""
    from sagactl.core.records import Failure

    failure = Failure("type", "message")
    assert pickle.loads(pickle.dumps(failure)) == failure


def test_missing_and_unknown_fields_are_type_errors() -> None:
    """A call is checked as any call."""
    plain = _make(ours.dataclass, Plain, frozen=True, slots=True)
    for arguments in ({}, {"name": "a", "colour": 1}):
        with pytest.raises(TypeError):
            plain(**arguments)
