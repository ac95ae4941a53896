"""The table `[mcp.NAME]` of the settings: how a server is reached, and what the protocol can't say of its tools.

A server that can't be read is a `BadServerError` of its own: the others can be used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from sagactl.core.canonical import Json, NotJsonError
from sagactl.core.template import Expression, Template, TemplateSyntaxError, parse_template, references
from sagactl.dataclass import dataclass
from sagactl.schemas.durations import BadDurationError, parse_duration
from sagactl.tools.convert import write_json

CONNECT_MS: Final = 30_000
"""How long a server may take from its start to its list of tools, unless the settings say otherwise."""

CONNECT_MS_MAX: Final = 600_000
SERVERS_MAX: Final = 100
TOOLS_MAX: Final = 1_000
"""Tools of one server, and tables about them."""

SERVER_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}", re.ASCII)
HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint")
OUTPUTS: Final = ("auto", "text", "json")
KEY_WORDS: Final = frozenset({"key", "forward_key"})
"""What a template may name besides `args` and `output`."""

_SECRET: Final = re.compile(r"\$\{\{\s*secrets\.([A-Za-z_][A-Za-z0-9_]{0,62})\s*\}\}", re.ASCII)
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)


class BadServerError(ValueError):
    """What is wrong with a table, beginning with the key."""


@dataclass(frozen=True, slots=True)
class SecretText:
    """A text with the values of secrets in it: literal pieces and, between them, names."""

    pieces: tuple[str, ...]
    names: tuple[str, ...] = ()

    def fill(self, resolve: Callable[[str], str]) -> str:
        """Return the text with the values; whatever *resolve* raises comes through."""
        values = [resolve(name) for name in self.names]
        return "".join(piece + value for piece, value in zip(self.pieces, [*values, ""], strict=True))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server takes a key: in the argument, or the field of `_meta`, of that name."""

    kind: str
    name: str


Marks: TypeAlias = "tuple[str | int, ...]"
"""What of an answer tells its meaning: a part of its text, or a code of the protocol."""


@dataclass(frozen=True, slots=True)
class ToolTable:
    """What the operator says of one tool; the names are those of the settings."""

    tool: str
    name: str | None = None
    compensation: str | None = None
    compensation_with: Mapping[str, Json] | None = None
    probe: str | None = None
    read_only: bool = False
    idempotent: bool | None = None
    null_safe: bool = False
    late_safe: bool = False
    key_retention: str | None = None
    key: Place | None = None
    forward_key: Place | None = None
    with_: Template | None = None
    secret_arguments: tuple[str, ...] = ()
    extra_arguments: bool = False
    rejected: Marks = ()
    unavailable: Marks = ()
    gone: Marks = ()
    output: str = "auto"
    found: Template | None = None
    not_done: Marks = ()
    done_output: Template | None = None
    overrule: tuple[str, ...] = ()
    said: Mapping[str, Json] = field(default_factory=dict)
    """All of it as it was written, for the version of the tool."""

    @property
    def is_probe(self) -> bool:
        """Tell whether its answer says if another call was done."""
        return self.found is not None or bool(self.not_done) or self.done_output is not None


@dataclass(frozen=True, slots=True)
class Server:
    """One server: either `command` or `url` is given."""

    name: str
    command: tuple[str, ...] = ()
    cwd: str = "."
    env: Mapping[str, SecretText] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    url: str | None = None
    headers: Mapping[str, SecretText] = field(default_factory=dict)
    ca_file: str | None = None
    connect_ms: int = CONNECT_MS
    tools: tuple[ToolTable, ...] = ()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Name the secrets that reaching it takes, sorted."""
        return tuple(sorted({name for text in (*self.env.values(), *self.headers.values()) for name in text.names}))


def read_servers(table: Mapping[str, Any]) -> Iterator[tuple[str, Server | BadServerError]]:
    """Yield each server of the table `[mcp]` by its name, or what is wrong with it."""
    for name, content in list(table.items())[:SERVERS_MAX]:
        try:
            yield name, _read_server(name, content)
        except BadServerError as error:
            yield name, error
    for name in list(table)[SERVERS_MAX:]:
        yield name, BadServerError(f"more than {SERVERS_MAX} servers")


def _read_server(name: str, content: object) -> Server:
    if SERVER_NAME.fullmatch(name) is None:
        raise BadServerError("the name of a server has small letters, digits, `_` and `-`, and begins with a letter")
    read = _Reader(content, "")
    command, url = read.words("command"), read.text("url")
    if bool(command) == bool(url):
        raise BadServerError("it needs either `command`, a list of words, or `url`")
    local = ("env", "pass_env", "cwd") if url else ("headers", "ca_file")
    for key in local:
        if key in read.given:
            raise BadServerError(f"{key} goes with {'command' if url else 'url'} only")
    server = Server(
        name,
        command=command,
        cwd=read.text("cwd") or ".",
        env=_read_texts(read.table("env"), "env", _check_variable),
        pass_env=read.words("pass_env"),
        url=None if url is None else _check_url(url),
        headers=_read_texts(read.table("headers"), "headers", _check_header),
        ca_file=read.text("ca_file"),
        connect_ms=_read_duration(read.text("connect_timeout")),
        tools=_read_tables(read.table("tools")),
    )
    read.refuse_others()
    return server


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good or parts.username or parts.password or parts.fragment:
        raise BadServerError("url must be of the form https://host/path; what is secret goes into headers")
    return url


def _check_variable(name: str) -> bool:
    return bool(name) and "=" not in name and "\0" not in name


def _check_header(name: str) -> bool:
    return _HEADER.fullmatch(name) is not None


def _read_texts(table: Mapping[str, Any], where: str, is_name: Callable[[str], bool]) -> dict[str, SecretText]:
    found = {}
    for name, text in table.items():
        if not isinstance(text, str) or not is_name(name) or any(mark in text for mark in "\0\r\n"):
            raise BadServerError(f"{where}.{name} must be a text without line breaks, under a name that can be one")
        found[name] = parse_secret_text(text, f"{where}.{name}")
    return found


def parse_secret_text(text: str, where: str) -> SecretText:
    """Return *text* with its `${{ secrets.NAME }}` found; raises BadServerError for any other expression."""
    pieces, names, at = [], [], 0
    for match in _SECRET.finditer(text):
        pieces.append(text[at : match.start()])
        names.append(match[1])
        at = match.end()
    pieces.append(text[at:])
    if any("${{" in piece for piece in pieces):
        raise BadServerError(f"{where} may hold `${{{{ secrets.NAME }}}}` and no other expression")
    return SecretText(tuple(pieces), tuple(names))


def _read_duration(text: str | None) -> int:
    if text is None:
        return CONNECT_MS
    try:
        duration_ms = parse_duration(text)
    except BadDurationError:
        duration_ms = 0
    if not 0 < duration_ms <= CONNECT_MS_MAX:
        raise BadServerError(
            f"connect_timeout {text!r} must be a time such as 30s, at most {CONNECT_MS_MAX // 60_000}m"
        )
    return duration_ms


def _read_tables(tables: Mapping[str, Any]) -> tuple[ToolTable, ...]:
    if len(tables) > TOOLS_MAX:
        raise BadServerError(f"tools has more than {TOOLS_MAX} tables")
    return tuple(_read_table(name, content) for name, content in tables.items())


def _read_table(key: str, content: object) -> ToolTable:
    read = _Reader(content, f"tools.{key}.")
    tool = read.text("tool")
    table = ToolTable(
        tool=tool or key,
        name=read.text("name") or (key if tool else None),
        compensation=read.text("compensation"),
        compensation_with=read.json_table("compensation_with"),
        probe=read.text("probe"),
        read_only=bool(read.flag("read_only")),
        idempotent=read.flag("idempotent"),
        null_safe=bool(read.flag("null_safe")),
        late_safe=bool(read.flag("late_safe")),
        key_retention=read.text("key_retention"),
        key=read.place("key"),
        forward_key=read.place("forward_key"),
        with_=read.template("with"),
        secret_arguments=read.words("secret_arguments"),
        extra_arguments=bool(read.flag("extra_arguments")),
        rejected=read.marks("rejected"),
        unavailable=read.marks("unavailable"),
        gone=read.marks("gone"),
        output=read.choice("output", OUTPUTS) or "auto",
        found=read.template("found"),
        not_done=read.marks("not_done"),
        done_output=read.template("done_output"),
        overrule=read.words("overrule", HINTS),
        said=read.json(),
    )
    read.refuse_others()
    return table


class _Reader:
    """Takes what is known out of one table of the settings; what is left over is an error."""

    def __init__(self, content: object, where: str) -> None:
        if not isinstance(content, dict):
            raise BadServerError(f"{where.removesuffix('.') or 'it'} must be a table")
        self.given: dict[str, Any] = content
        self._where = where
        self._known: set[str] = set()

    def refuse_others(self) -> None:
        """Raise BadServerError where the table has keys that nobody asked for."""
        for key in self.given:
            if key not in self._known:
                known = ", ".join(sorted(self._known))
                raise BadServerError(f"{self._where}{key} is unknown; known are {known}")

    def _take(self, key: str) -> object:
        self._known.add(key)
        return self.given.get(key)

    def _refuse(self, key: str, expected: str) -> BadServerError:
        return BadServerError(f"{self._where}{key} must be {expected}")

    def text(self, key: str) -> str | None:
        value = self._take(key)
        if value is not None and (not isinstance(value, str) or not value or "\0" in value):
            raise self._refuse(key, "a text")
        return None if value is None else str(value)

    def flag(self, key: str) -> bool | None:
        value = self._take(key)
        if value is not None and not isinstance(value, bool):
            raise self._refuse(key, "true or false")
        return value

    def words(self, key: str, choices: tuple[str, ...] = ()) -> tuple[str, ...]:
        value = self._take(key)
        if value is None:
            return ()
        is_good = isinstance(value, list) and all(isinstance(each, str) and "\0" not in each for each in value)
        if not is_good or not isinstance(value, list) or (choices and not set(value) <= set(choices)):
            raise self._refuse(key, f"a list of {', '.join(choices) or 'texts'}")
        return tuple(value)

    def marks(self, key: str) -> Marks:
        value = self._take(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(_is_mark(each) for each in value):
            raise self._refuse(key, 'a list of texts and codes, such as ["ENOENT", -32602]')
        return tuple(value)

    def choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        value = self._take(key)
        if value is not None and value not in choices:
            raise self._refuse(key, f"one of {', '.join(choices)}")
        return None if value is None else str(value)

    def table(self, key: str) -> Mapping[str, Any]:
        value = self._take(key)
        if value is not None and not isinstance(value, dict):
            raise self._refuse(key, "a table")
        return value or {}

    def json(self) -> dict[str, Json]:
        try:
            plain = write_json(self.given)
        except NotJsonError as error:
            raise BadServerError(f"{self._where.removesuffix('.')} can't be taken: {error}") from None
        return plain if isinstance(plain, dict) else {}

    def json_table(self, key: str) -> dict[str, Json] | None:
        value = self._take(key)
        if value is None:
            return None
        plain = self.json().get(key)
        if not isinstance(plain, dict):
            raise self._refuse(key, "a table")
        return plain

    def place(self, key: str) -> Place | None:
        value = self._take(key)
        if value is None:
            return None
        if isinstance(value, dict) and len(value) == 1:
            ((kind, name),) = value.items()
            if kind in {"argument", "meta"} and isinstance(name, str) and name:
                return Place(kind, name)
        raise self._refuse(key, '{argument = "NAME"} or {meta = "NAME"}')

    def template(self, key: str) -> Template | None:
        if self._take(key) is None:
            return None
        try:
            template = parse_template(self.json()[key])
        except TemplateSyntaxError as error:
            raise BadServerError(f"{self._where}{key}: {error}") from None
        for found in references(template):
            word = found.text.strip()
            is_plain = word in KEY_WORDS if isinstance(found, Expression) else found.path[0] in {"args", "output"}
            if not is_plain:
                raise self._refuse(key, f"made of args, output, key and forward_key alone, without {word!r}")
        return template


def _is_mark(value: object) -> bool:
    return bool(value) and isinstance(value, str | int) and not isinstance(value, bool)
