"""Settings and where each came from: flags, environment, project, user, default - in that order.

The project is the nearest folder upwards, from the saga's file and then from the current folder, that has a
`sagactl.toml`, a `[tool.sagactl]` in its `pyproject.toml`, or `.sagactl/`; failing these, `sagas/` or `plugins/`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sagactl.core.limits import CALLS_MAX, CALLS_MAX_LIMIT
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError
from sagactl.regular_file import read_beginning, read_regular

if TYPE_CHECKING:
    from sagactl.secrets.sources import Source

STATE_FOLDER: Final = ".sagactl"
CALLS_FOLDER: Final = "calls"
CHECKED_FOLDER: Final = "checked"
SETTINGS_BYTES_MAX: Final = 8_388_608
"""What a file of settings may have; `pyproject.toml` is one, and mostly of others."""

_STRONG_MARKS: Final = ("sagactl.toml", STATE_FOLDER)
_WEAK_MARKS: Final = ("sagas", "plugins")


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one command; `origins` says for each where its value came from."""

    project: Path
    has_project: bool
    log: str
    calls_max: int = CALLS_MAX
    plugins: tuple[str, ...] | None = None
    """Distributions whose entry points may be loaded; None: all that are installed."""
    secrets: Mapping[str, Source] = field(default_factory=dict)
    """Where secrets come from, by name; those of the project before the user's."""
    alerts: Mapping[str, Any] | None = None
    """The table `[alerts]`; what it means is read when something may be sent."""
    events: Mapping[str, Any] | None = None
    telemetry: Mapping[str, Any] | None = None
    verify: Mapping[str, Any] | None = None
    retention: str | None = None
    """How long a run that has ended is kept when `prune` isn't told; None: it must be told."""
    chaos: Mapping[str, Any] | None = None
    isolation: Mapping[str, Any] | None = None
    """The table `[isolation]`: which tools run in a process of their own."""
    mcp: Mapping[str, Any] | None = None
    """The table `[mcp]`: a server of the Model Context Protocol under each name."""
    http: Mapping[str, Any] | None = None
    """The table `[http]`; what it means is read when a tool of that kind is there."""
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def calls(self) -> Path:
        """Return the folder where commands under way are noted: beside the log, or on this host where that is far."""
        return self._beside_log() / CALLS_FOLDER

    @property
    def checked(self) -> Path:
        """Return the folder where sagas that were checked are kept."""
        return self._beside_log() / CHECKED_FOLDER

    @property
    def project_name(self) -> str | None:
        """Return the project's folder as runs record it; None without one, and for a path that is no text."""
        name = str(self.project)
        is_text = name.encode("utf-8", "replace") == name.encode("utf-8", "surrogatepass")
        return name if self.has_project and is_text else None

    def find_secret(self, name: str) -> tuple[Source, str]:
        """Return where the value of a secret is read now, and where that was said."""
        from sagactl.secrets.sources import choose_source

        source = choose_source(name, self.secrets, os.environ)
        is_overridden = source is not self.secrets.get(name)
        return source, "environment" if is_overridden else self.origins.get(f"secrets.{name}", "default")

    def _beside_log(self) -> Path:
        log = _default_log(None, os.environ) if "://" in self.log else Path(self.log).expanduser()
        return log.absolute().parent


def find_project(start: Path) -> Path | None:
    """Return the project that *start* lies in, or None."""
    folders = [start, *start.parents]
    for folder in folders:
        if any((folder / mark).exists() for mark in _STRONG_MARKS) or _is_in_pyproject(folder):
            return folder
    return next((folder for folder in folders if any((folder / mark).is_dir() for mark in _WEAK_MARKS)), None)


def _is_in_pyproject(folder: Path) -> bool:
    file = folder / "pyproject.toml"
    try:
        return b"[tool.sagactl" in read_beginning(file, SETTINGS_BYTES_MAX)
    except OSError:
        return False


def load_config(
    *,
    cwd: Path,
    file: Path | None = None,
    log: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Work out the settings; raises InvalidError where a configuration file is wrong."""
    environ = os.environ if environ is None else environ
    found = (find_project(file.resolve().parent) if file is not None else None) or find_project(cwd.resolve())
    project = found or cwd.resolve()
    layers: list[tuple[str, dict[str, Any]]] = [
        ("flag", {} if log is None else {"log": log}),
        ("environment", _from_environment(environ)),
        *_from_files(project if found else None, environ),
    ]
    values, origins = _merge(layers)
    if "log" not in values:
        values["log"], origins["log"] = str(_default_log(project if found else None, environ)), "default"
    return Config(
        project=project,
        has_project=found is not None,
        log=values["log"],
        calls_max=values.get("concurrency", CALLS_MAX),
        plugins=None if "plugins" not in values else tuple(values["plugins"]),
        secrets=values.get("secrets", {}),
        alerts=values.get("alerts"),
        events=values.get("events"),
        telemetry=values.get("telemetry"),
        verify=values.get("verify"),
        retention=values.get("retention"),
        chaos=values.get("chaos"),
        isolation=values.get("isolation"),
        mcp=values.get("mcp"),
        http=values.get("http"),
        origins=origins,
    )


def _merge(layers: Iterable[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return of each setting its value and where that comes from: the first layer that has it decides."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers:
        for key, value in layer.items():
            if key == "secrets":
                for name in value:  # each of them is a setting of its own
                    origins.setdefault(f"secrets.{name}", origin)
            if key == "secrets" and key in values:
                values[key] = {**value, **values[key]}
            elif key not in values:
                values[key], origins[key] = value, origin
    return values, origins


def _default_log(project: Path | None, environ: Mapping[str, str]) -> Path:
    if project is not None:
        return project / STATE_FOLDER / "log.db"
    state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "sagactl" / "log.db"


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    layer: dict[str, Any] = {}
    if environ.get("SAGACTL_LOG"):
        layer["log"] = environ["SAGACTL_LOG"]
    if environ.get("SAGACTL_CONCURRENCY"):
        layer["concurrency"] = _as_integer(environ["SAGACTL_CONCURRENCY"])
    return _checked(layer, "the environment", None)


def _as_integer(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def _from_files(project: Path | None, environ: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (origin, _read_toml(file, ("tool", "sagactl") if file.name == "pyproject.toml" else ()))
        for origin, file in find_files(project, environ)
    ]


def find_files(project: Path | None, environ: Mapping[str, str] | None = None) -> list[tuple[str, Path]]:
    """Return the files that settings are read from, the first one first, each with what it is: `project` or `user`."""
    environ = os.environ if environ is None else environ
    names = () if project is None else ("sagactl.toml", "pyproject.toml")
    found = [("project", project / name) for name in names if project is not None and (project / name).is_file()]
    home = environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    user = Path(home) / "sagactl" / "sagactl.toml"
    return [*found, ("user", user)] if user.is_file() else found


def _read_toml(file: Path, path: tuple[str, ...]) -> dict[str, Any]:
    import tomllib  # only where there is a configuration at all

    try:
        content: Any = tomllib.loads(read_regular(file, SETTINGS_BYTES_MAX).decode())
    except OSError as error:
        raise InvalidError(f"{file} can't be read: {error.strerror}", code="invalid-config") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidError(f"{file}: {error}", code="invalid-config") from error
    for key in path:
        content = content.get(key, {})
    return _checked(content, str(file), file.parent)


def _checked(layer: object, where: str, folder: Path | None) -> dict[str, Any]:
    """Return *layer* with paths made absolute; unknown keys and wrong types are errors."""
    if not isinstance(layer, dict):
        raise InvalidError(f"{where}: the settings must be a table", code="invalid-config")
    checks = {
        "log": _is_text,
        "concurrency": _is_count,
        "plugins": _is_list_of_text,
        "secrets": _is_table,
        "alerts": _is_table,
        "events": _is_table,
        "telemetry": _is_table,
        "verify": _is_table,
        "retention": _is_age,
        "chaos": _is_table,
        "isolation": _is_table,
        "mcp": _is_table,
        "http": _is_table,
    }
    for key, value in layer.items():
        if key not in checks:
            known = ", ".join(sorted(checks))
            raise InvalidError(f"{where}: unknown setting {key}", code="invalid-config", hint=f"known are {known}")
        expected = checks[key](value)
        if expected is not None:
            raise InvalidError(f"{where}: {key} must be {expected}, not {value!r}", code="invalid-config")
    if folder is not None and "log" in layer and "://" not in layer["log"]:
        layer = {**layer, "log": str(folder / layer["log"])}
    if "secrets" in layer:
        from sagactl.secrets.sources import read_sources

        layer = {**layer, "secrets": read_sources(layer["secrets"], where, folder)}
    if folder is not None and isinstance(file := layer.get("events", {}).get("file"), str) and file:
        layer = {**layer, "events": {**layer["events"], "file": str(folder / file)}}
    return layer


def _is_text(value: object) -> str | None:
    return None if isinstance(value, str) and value else "a text"


def _is_count(value: object) -> str | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= CALLS_MAX_LIMIT
    return None if good else f"a number from 1 to {CALLS_MAX_LIMIT}"


def _is_table(value: object) -> str | None:
    return None if isinstance(value, dict) else "a table"


def _is_age(value: object) -> str | None:
    from sagactl.schemas.durations import BadDurationError, parse_duration

    try:
        good = isinstance(value, str) and parse_duration(value) > 0
    except BadDurationError:
        good = False
    return None if good else 'a time such as "30d"'


def _is_list_of_text(value: object) -> str | None:
    good = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return None if good else "a list of names"
