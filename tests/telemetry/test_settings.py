"""Whether spans are sent, and where to: the variables of OpenTelemetry first, then `[telemetry]`."""

from __future__ import annotations

from typing import Any

import pytest

from sagactl.errors import InvalidError
from sagactl.telemetry.settings import Telemetry, read_telemetry

URL = "http://localhost:4318"
OTLP = {"OTEL_EXPORTER_OTLP_ENDPOINT": URL}


@pytest.mark.parametrize(
    ("table", "environ", "expected"),
    [
        (None, {}, None),
        (None, {"OTEL_SERVICE_NAME": "shop"}, None),
        (None, OTLP, Telemetry(None, "sagactl", is_required=False)),
        (None, {**OTLP, "OTEL_SERVICE_NAME": "shop"}, Telemetry(None, None, is_required=False)),
        (
            None,
            {**OTLP, "OTEL_RESOURCE_ATTRIBUTES": "a=b, service.name=shop"},
            Telemetry(None, None, is_required=False),
        ),
        (None, {"OTEL_TRACES_EXPORTER": "otlp"}, Telemetry(None, "sagactl", is_required=False)),
        (None, {**OTLP, "OTEL_TRACES_EXPORTER": "none"}, None),
        ({"traces": True}, {"OTEL_TRACES_EXPORTER": "none"}, None),
        ({"traces": True}, {"OTEL_SDK_DISABLED": "TRUE"}, None),
        ({"traces": False}, OTLP, None),
        ({"traces": True}, {}, Telemetry(None, "sagactl", is_required=True)),
        ({"endpoint": URL + "/"}, {}, Telemetry(URL + "/v1/traces", "sagactl", is_required=True)),
        ({"endpoint": "http://other", "service_name": "shop"}, OTLP, Telemetry(None, "shop", is_required=True)),
        ({"endpoint": URL, "traces": False}, {}, None),
    ],
)
def test_settings_come_from_the_environment_first(
    table: dict[str, Any] | None, environ: dict[str, str], expected: Telemetry | None
) -> None:
    """An endpoint is enough to begin with, and either side can say no."""
    assert read_telemetry(table, environ) == expected


@pytest.mark.parametrize(
    "table",
    [
        {"endpont": URL},
        {"traces": "yes"},
        {"endpoint": ""},
        {"endpoint": "localhost:4318"},
        {"endpoint": "http://"},
        {"endpoint": "http://a:b@example.com"},
        {"endpoint": "http://a:99999"},
        {"service_name": 1},
        [],
    ],
)
def test_wrong_settings_are_errors_that_show_no_url(table: Any) -> None:
    """An unknown key or a wrong type is an error, even where nothing is sent; a url may hold a secret."""
    with pytest.raises(InvalidError) as caught:
        read_telemetry(table, {"OTEL_SDK_DISABLED": "true"})
    assert "example.com" not in caught.value.message
