"""Inputs from the command line: `-i name=text`, `-i name:=json`, `-i name=@file`, `--inputs FILE|-`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sagactl.core.canonical import Json, NotJsonError, parse
from sagactl.core.saga import PAYLOAD_BYTES_MAX
from sagactl.errors import InvalidError, UsageError

_PAIR: Final = re.compile(r"([^\W\d][\w-]*)(:=|=@|=)(.*)", re.DOTALL)


def read_inputs(pairs: Sequence[str], file: str | None, known: Json = None) -> Json:
    """Return the input: what *file* holds, or what is *known*, with each of *pairs* set on top of it."""
    value = _read_file(file) if file is not None else dict(known) if isinstance(known, dict) else {}
    if pairs and not isinstance(value, dict):
        raise UsageError("-i needs an input that is a map, and the file holds none")
    seen: set[str] = set()
    for pair in pairs:
        name, part = _read_pair(pair)
        if name in seen:
            raise UsageError(f"-i {name} is given twice", code="bad-input")
        seen.add(name)
        assert isinstance(value, dict), "checked above"
        value[name] = part
    return value


def _read_pair(pair: str) -> tuple[str, Json]:
    match = _PAIR.fullmatch(pair)
    if match is None:
        hint = "-i name=text, -i name:=json or -i name=@file"
        raise UsageError(f"-i {pair!r} is no input", code="bad-input", hint=hint)
    name, sign, text = match.groups()
    if sign == ":=":
        return name, _parse(text, f"-i {name}")
    if sign == "=@":
        return name, _read_text(text)
    return name, text


def _parse(text: str, where: str) -> Json:
    try:
        return parse(text)
    except NotJsonError as error:
        is_word = text[:1].isalpha() and text not in {"NaN", "Infinity"} and where.startswith("-i ")
        hint = f"{where}={text}" if is_word else None
        raise InvalidError(f"{where}: {error}", code="invalid-input", hint=hint) from None


def _read_text(name: str) -> str:
    try:
        with Path(name).open("rb") as stream:  # a pipe is fine here: who names it waits for it
            data = stream.read(PAYLOAD_BYTES_MAX + 1)
    except (OSError, ValueError) as error:  # or a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{name} can't be read: {reason}", code="bad-input") from error
    return _decode(data, name)


def _decode(data: bytes, where: str) -> str:
    if len(data) > PAYLOAD_BYTES_MAX:
        raise InvalidError(f"{where} has more than {PAYLOAD_BYTES_MAX} bytes", code="invalid-input")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidError(f"{where} is no UTF-8 text: byte {error.start}", code="invalid-input") from None


def _read_file(name: str) -> Json:
    """Read JSON, or YAML of the same strict kind as saga files."""
    if name == "-":
        text, where = _decode(sys.stdin.buffer.read(PAYLOAD_BYTES_MAX + 1), "stdin"), "stdin"
    else:
        text, where = _read_text(name), name
    if not text.strip():
        verb = "pipe" if name == "-" else "write"
        raise InvalidError(
            f"{where} is empty: no input came",
            code="invalid-input",
            hint=f"{verb} JSON or YAML into it, or {{}} for no input",
        )
    if text.lstrip()[:1] in {"{", "["}:
        return _parse(text, where)
    from sagactl.written.document import read_document

    value = read_document(text, file=where)
    if value is None:  # a program that gives no input means an empty one; a file that says null means something else
        raise InvalidError(f"{where} holds null: the input must be a map of names and values", code="invalid-input")
    return value
