"""Whether a project's runs are traced, and by what: the SDK is imported only where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sagactl.telemetry.settings import read_telemetry

if TYPE_CHECKING:
    from sagactl.telemetry.tracer import Tracer


def begin_tracing(table: object, environ: Mapping[str, str], *, is_whole_process: bool) -> Tracer | None:
    """Return what sends spans, or None; raises InvalidError where a project asks for it in vain.

    Where the process is sagactl's own, other tracers of it send the same way.
    """
    settings = read_telemetry(table, environ)
    if settings is None:
        return None
    from sagactl.telemetry.tracer import make_tracer, set_global

    tracer = make_tracer(settings)
    if tracer is not None and is_whole_process:
        set_global(tracer)
    return tracer
