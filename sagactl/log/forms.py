"""Forms: how values of one kind become JSON and come back, checked.

A table of forms for a dataclass is made once; writing and reading a record then only walks the fields that are there.
A field without a form, or a form without a field, fails when the table is made, so no field can be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias


class MalformedError(ValueError):
    """What was read is not what `encode` writes."""


Writer: TypeAlias = Callable[[Any], Any]
Reader: TypeAlias = Callable[[Any], Any]


class Form(NamedTuple):
    """How a value is stored: to JSON and back. `read` raises MalformedError."""

    write: Writer
    read: Reader


def _same(value: Any) -> Any:
    return value


def _write_text(value: str) -> str:
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def plain(kind: type) -> Form:
    """Return the form of a text, number or flag, which must be of that very type."""

    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise MalformedError(f"{value!r} is no {kind.__name__}")
        return value

    return Form(_write_text if kind is str else _same, read)


def word(words: type[StrEnum]) -> Form:
    """Return the form of one of some words."""
    known: dict[str, StrEnum] = {word.value: word for word in words}

    def read(value: Any) -> StrEnum:
        if type(value) is not str or value not in known:
            raise MalformedError(f"{value!r} is no {words.__name__}")
        return known[value]

    return Form(lambda word: word.value, read)


def list_of(form: Form) -> Form:
    """Return the form of a tuple of any length."""
    write_item, read_item = form

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise MalformedError(f"{value!r} is no list")
        return tuple([read_item(item) for item in value])

    return Form(lambda values: [write_item(value) for value in values], read)


def tuple_of(kind: Callable[..., Any], *forms: Form) -> Form:
    """Return the form of a named tuple, as a list of its parts."""
    readers = tuple(form.read for form in forms)
    writers = tuple(form.write for form in forms)

    def write(value: Any) -> list[Any]:
        return [write_one(part) for write_one, part in zip(writers, value, strict=True)]

    def read(value: Any) -> Any:
        if type(value) is not list or len(value) != len(readers):
            raise MalformedError(f"{value!r} has not {len(readers)} parts")
        return kind(*[read_one(part) for read_one, part in zip(readers, value, strict=True)])

    return Form(write, read)


def optional(form: Form) -> Form:
    """Return the form of a value that may be None."""
    write_some, read_some = form
    return Form(
        lambda value: None if value is None else write_some(value),
        lambda value: None if value is None else read_some(value),
    )


class Fields:
    """The fields of one dataclass, each with its form."""

    def __init__(self, kind: type, forms: Mapping[str, Form], in_columns: frozenset[str] = frozenset()) -> None:
        declared = {field.name: field for field in fields(kind)}
        assert declared.keys() == forms.keys() | in_columns, f"the fields of {kind.__name__} and their forms differ"
        self.kind = kind
        self.readers = {name: form.read for name, form in forms.items()}
        self.required = tuple(name for name in forms if declared[name].default is MISSING)
        self._writers = [(name, form.write, declared[name].default) for name, form in forms.items()]

    def write(self, value: Any) -> dict[str, Any]:
        """Return the fields of *value* as JSON, without those that have their default."""
        written = {}
        for name, write_one, default in self._writers:
            part = getattr(value, name)
            if part is None and default is None:
                continue
            if default is MISSING or default is None or part != default:
                written[name] = write_one(part)
        return written

    def read(self, body: Any, given: dict[str, Any] | None = None) -> Any:
        """Build the dataclass from a body and what is *given* by columns; raises MalformedError."""
        if type(body) is not dict:
            raise MalformedError(f"{body!r} is no map")
        values = {} if given is None else given
        readers = self.readers
        for name, part in body.items():
            if name not in readers:
                raise MalformedError(f"unknown field {name!r}")
            values[name] = readers[name](part)
        for name in self.required:
            if name not in body:
                raise MalformedError(f"field {name!r} is missing")
        return self.kind(**values)


ANY_JSON: Final = Form(_same, _same)
"""Whatever JSON holds; the parser has checked it."""
