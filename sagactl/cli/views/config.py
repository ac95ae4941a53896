"""`sagactl config`: a line for each setting, with nothing on it that is secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from sagactl.cli.views.layout import Cell, Column, Row, join_blocks, lay_out, list_facts
from sagactl.cli.views.spelling import spell_as_written
from sagactl.cli.views.style import Hue, Style
from sagactl.config import Config
from sagactl.core.canonical import Json
from sagactl.dataclass import dataclass
from sagactl.usecases.documents import Document

CONFIG_SCHEMA: Final = "sagactl.config/1"
HIDDEN: Final = "***"
_SECRET_KEYS: Final = frozenset({"secret", "token", "password", "key", "headers", "authorization"})
"""Keys whose value must be a reference; where somebody wrote the secret itself, it isn't shown either."""

_REFERENCES: Final = frozenset({"env", "file", "keyring"})
"""What says where a value comes from, in a table of its own."""

_COLUMNS: Final = (Column("setting", is_whole=True), Column("from", is_whole=True), Column("value", is_whole=True))


_UNSET: Final = {"plugins": "all that are installed", "retention": "none: prune must be told"}
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Value:
    """A setting as it may be shown."""

    name: str
    value: Json
    origin: str


def list_values(config: Config) -> list[Value]:
    """Return every setting with where it came from; of secrets only their sources."""

    def origin(name: str) -> str:
        return config.origins.get(name, "default")

    plugins: Json = None if config.plugins is None else list(config.plugins)
    values = [
        Value("log", hide_url(config.log), origin("log")),
        Value("concurrency", config.calls_max, origin("concurrency")),
        Value("plugins", plugins, origin("plugins")),
        Value("retention", config.retention, origin("retention")),
    ]
    for name in sorted(config.secrets):
        source, came_from = config.find_secret(name)
        values.append(Value(f"secrets.{name}", {source.kind: source.what}, came_from))
    tables = {
        "alerts": config.alerts,
        "events": config.events,
        "telemetry": config.telemetry,
        "verify": config.verify,
        "chaos": config.chaos,
        "isolation": config.isolation,
        "http": config.http,
        "mcp": config.mcp and {name: _sum_up_server(table) for name, table in config.mcp.items()},
    }
    for name, table in tables.items():
        values += [Value(path, value, origin(name)) for path, value in _flatten(name, table)]
    return values


def _sum_up_server(table: object) -> Mapping[str, Any]:
    """Return what may be shown of a server: the program without its words, variables, headers and tools by name."""
    if not isinstance(table, Mapping):
        return {}
    found = dict(table)
    if isinstance(command := table.get("command"), list):
        found["command"] = [*map(str, command[:1]), *[HIDDEN for _ in command[1:]]]
    return {key: list(value) if isinstance(value, Mapping) else value for key, value in found.items()}


def _flatten(path: str, value: Any) -> Iterator[tuple[str, Json]]:
    """Yield each value below *path* by its name: that of a list of tables has the number of the table in it."""
    name = path.rpartition(".")[2]
    is_secret = name in _SECRET_KEYS
    if isinstance(value, Mapping) and (is_secret or name == "url") and len(value) == 1 and _REFERENCES & value.keys():
        yield path, {str(kind): str(what) for kind, what in value.items()}
    elif is_secret:
        yield path, HIDDEN
    elif isinstance(value, Mapping) and value:
        for key, member in value.items():
            yield from _flatten(f"{path}.{key}", member)
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        for number, each in enumerate(value):
            yield from _flatten(f"{path}[{number}]", each)
    elif value is not None:
        yield path, _hide(value)


def _hide(value: Any) -> Json:
    match value:
        case str():
            return hide_url(value)
        case bool() | int():
            return value
        case list():
            return [_hide(each) for each in value]
        case Mapping():
            return {str(key): HIDDEN for key in value}
        case _:
            return str(value)


def hide_url(text: str) -> str:
    """Return *text*; of a URL only scheme, user and host: who knows the path of a webhook can call it."""
    if "://" not in text:
        return text
    try:
        parts = urlsplit(text)
        host, user, port = parts.hostname or "", parts.username, parts.port
    except ValueError:
        return HIDDEN
    who = "" if user is None else f"{user}:{HIDDEN}@" if parts.password is not None else f"{user}@"
    where = f"{parts.scheme}://{who}{host}" + ("" if port is None else f":{port}")
    if parts.scheme in {"postgresql", "postgres"}:
        return where + parts.path
    return where + (f"/{HIDDEN}" if parts.path.strip("/") or parts.query else "")


def render_config(config: Config, values: Sequence[Value], files: Sequence[tuple[str, str]], style: Style) -> str:
    """Return the settings as a table, the project, and the files that were read."""
    project = style.show(str(config.project)) if config.has_project else "none: sagactl init makes one"
    rows: list[Row] = [
        [style.show(each.name), Cell(each.origin, _hue(each.origin)), style.show(_say(each))] for each in values
    ]
    read = [style.show(file) for _, file in files]
    return join_blocks(
        list_facts([("project", project), ("files", read or ["none"])], style),
        lay_out(_COLUMNS, rows, style),
    )


def _hue(origin: str) -> Hue:
    return Hue.DIM if origin == "default" else Hue.PLAIN


def _say(setting: Value) -> str:
    return _UNSET.get(setting.name, "-") if setting.value is None else spell_toml(setting.value)


def spell_toml(value: Json) -> str:
    """Return *value* as it stands in a file of settings, unsafe as yet: what is shown can be copied from there."""
    match value:
        case dict():
            return "{" + ", ".join(f"{_spell_key(key)} = {spell_toml(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(spell_toml, value)) + "]"
        case _:
            return spell_as_written(value)


def _spell_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else spell_as_written(key)


def write_config(config: Config, values: Sequence[Value], files: Sequence[tuple[str, str]]) -> Document:
    """Return the document of the settings."""
    return {
        "schema": CONFIG_SCHEMA,
        "project": str(config.project) if config.has_project else None,
        "files": [{"origin": origin, "path": path} for origin, path in files],
        "items": [{"name": each.name, "value": each.value, "origin": each.origin} for each in values],
        "total": len(values),
        "error": None,
    }
