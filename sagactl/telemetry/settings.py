"""What `[telemetry]` and the standard variables of OpenTelemetry say: whether spans are sent, and where to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError

KEYS: Final = ("traces", "endpoint", "service_name")
SERVICE_NAME: Final = "sagactl"
TRACES_PATH: Final = "/v1/traces"

ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXPORTER_VARIABLE: Final = "OTEL_TRACES_EXPORTER"
DISABLED_VARIABLE: Final = "OTEL_SDK_DISABLED"
NAME_VARIABLE: Final = "OTEL_SERVICE_NAME"
RESOURCE_VARIABLE: Final = "OTEL_RESOURCE_ATTRIBUTES"


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Where spans go; what is None here stands in the variables that the exporter reads itself."""

    endpoint: str | None
    service_name: str | None
    is_required: bool
    """The project asks for it, so that it is an error where it can't be had."""


def read_telemetry(table: object, environ: Mapping[str, str]) -> Telemetry | None:
    """Return where spans go, or None where none are sent; the environment comes first. Raises InvalidError."""
    found = _read_table({} if table is None else table)
    if environ.get(DISABLED_VARIABLE, "").strip().lower() == "true":
        return None
    has_endpoint = any(environ.get(name) for name in ENDPOINT_VARIABLES)
    is_asked_for = bool(found.get("traces", "endpoint" in found))
    exporters = environ.get(EXPORTER_VARIABLE, "")
    if exporters:
        is_on = "otlp" in [name.strip() for name in exporters.split(",")]
    else:
        is_on = bool(found.get("traces", is_asked_for or has_endpoint))
    if not is_on:
        return None
    endpoint = found.get("endpoint")
    return Telemetry(
        endpoint=None if has_endpoint or endpoint is None else endpoint.rstrip("/") + TRACES_PATH,
        service_name=None if _is_named(environ) else found.get("service_name", SERVICE_NAME),
        is_required=is_asked_for,
    )


def _is_named(environ: Mapping[str, str]) -> bool:
    pairs = environ.get(RESOURCE_VARIABLE, "").split(",")
    return bool(environ.get(NAME_VARIABLE)) or any(pair.partition("=")[0].strip() == "service.name" for pair in pairs)


def _read_table(table: object) -> Mapping[str, Any]:
    if not isinstance(table, dict):
        raise _wrong("telemetry must be a table")
    for key, value in table.items():
        if key not in KEYS:
            raise _wrong(f"telemetry: unknown setting {key}", f"known are {', '.join(KEYS)}")
        if key == "traces" and not isinstance(value, bool):
            raise _wrong("telemetry: traces must be true or false")
        if key != "traces" and not (isinstance(value, str) and value):
            raise _wrong(f"telemetry: {key} must be a text")
    if "endpoint" in table:
        _check_endpoint(table["endpoint"])
    return table


def _check_endpoint(url: str) -> None:
    """Refuse what can't be posted to, without its text: it may hold a secret."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise _wrong("telemetry: endpoint must begin with http:// or https://", 'endpoint = "http://localhost:4318"')
    if parts.username is not None or parts.password is not None:
        raise _wrong("telemetry: a url with a password in it is not used", "put it into OTEL_EXPORTER_OTLP_HEADERS")


def _wrong(message: str, hint: str | None = None) -> InvalidError:
    return InvalidError(message, code="invalid-config", hint=hint or "sagactl help telemetry")
