"""`sagactl config`: a line for each setting, with nothing on it that is secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from sagactl.cli.views.documents import Document
from sagactl.cli.views.layout import Cell, Column, Row, join_blocks, lay_out, list_facts
from sagactl.cli.views.style import Hue, Style
from sagactl.config import Config
from sagactl.core.canonical import Json
from sagactl.dataclass import dataclass

CONFIG_SCHEMA: Final = "sagactl.config/1"
HIDDEN: Final = "***"
_SECRET_KEYS: Final = frozenset({"secret", "token", "password", "key"})
"""Keys whose value must be a reference; where somebody wrote the secret itself, it isn't shown either."""

_COLUMNS: Final = (Column("setting", is_whole=True), Column("from", is_whole=True), Column("value", is_whole=True))


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
    ]
    for name in sorted(config.secrets):
        source, came_from = config.find_secret(name)
        values.append(Value(f"secrets.{name}", {source.kind: source.what}, came_from))
    for name, table in (
        ("alerts", config.alerts),
        ("events", config.events),
        ("telemetry", config.telemetry),
        ("verify", config.verify),
    ):
        values += [Value(path, value, origin(name)) for path, value in _flatten(name, table)]
    return values


def _flatten(path: str, value: Any) -> Iterator[tuple[str, Json]]:
    if isinstance(value, Mapping) and value:
        for key, member in value.items():
            yield from _flatten(f"{path}.{key}", member)
    elif path.rpartition(".")[2] in _SECRET_KEYS and isinstance(value, str):
        yield path, HIDDEN
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
        [style.show(each.name), Cell(each.origin, _hue(each.origin)), style.show(_spell(each.value))] for each in values
    ]
    read = [style.show(file) for _, file in files]
    return join_blocks(
        list_facts([("project", project), ("files", read or ["none"])], style),
        lay_out(_COLUMNS, rows, style),
    )


def _hue(origin: str) -> Hue:
    return Hue.DIM if origin == "default" else Hue.PLAIN


def _spell(value: Json) -> str:
    match value:
        case None:
            return "all"
        case dict():
            return ", ".join(f"{kind} {what}" for kind, what in value.items())
        case list():
            return ", ".join(map(str, value)) or "none"
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


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
