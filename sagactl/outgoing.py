"""What goes out of a project, put together from its settings: lanes for channels and events, and who turns them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from sagactl.alerts.settings import Channel, Reference, Resolve, Target, read_channels, read_target, reasons_of
from sagactl.dataclass import dataclass
from sagactl.engine.clock import SystemClock
from sagactl.errors import SecretError

if TYPE_CHECKING:
    from sagactl.alerts.compose import Look
    from sagactl.alerts.courier import Courier
    from sagactl.alerts.lanes import Lane
    from sagactl.config import Config
    from sagactl.core.canonical import Json
    from sagactl.log.base import Log


@dataclass(frozen=True, slots=True)
class Ways:
    """Where a project tells people and programs what happens."""

    channels: tuple[Channel, ...] = ()
    target: Target | None = None

    def __bool__(self) -> bool:
        return bool(self.channels) or self.target is not None


def read_ways(config: Config) -> Ways:
    """Return what `[alerts]` and `[events]` say; raises InvalidError."""
    if config.alerts is None and config.events is None:
        return Ways()
    channels = () if config.alerts is None else read_channels(config.alerts)
    return Ways(channels, None if config.events is None else read_target(config.events, config.project))


def make_lanes(ways: Ways, log: Log, project: Path, *, is_for_all: bool) -> list[Lane]:
    """Return a lane for each way out; events of all runs, or only of those that are noted."""
    from sagactl.alerts.events import make_publish
    from sagactl.alerts.lanes import AlertLane, EventLane

    resolve = _make_resolve(project)
    lanes: list[Lane] = [
        AlertLane(
            channel,
            reasons_of(ways.channels),
            log.outbox,
            look=_make_look(log),
            mask=mask,
            resolve=resolve,
            project=str(project),
            now_ms=SystemClock().now_ms,
        )
        for channel in ways.channels
    ]
    if ways.target is not None:
        publish = make_publish(ways.target, mask, resolve, store=log.store_id)
        now_ms = SystemClock().now_ms
        lanes.append(EventLane(ways.target.key, log.outbox, publish, is_for_all=is_for_all, now_ms=now_ms))
    return lanes


def find_mute(ways: Ways, project: Path) -> dict[str, str]:
    """Return by channel, and for events, why nothing can be sent from here: a value that its settings refer to."""
    from sagactl.alerts.sending import SendError

    resolve = _make_resolve(project)
    needed: dict[str, tuple[str | Reference | None, ...]] = {
        each.name: (each.url, each.secret) for each in ways.channels
    }
    if ways.target is not None:
        needed["events"] = ways.target.url, ways.target.secret
    mute = {}
    for name, values in needed.items():
        try:
            for value in values:
                if value is not None:
                    resolve(value)
        except SendError as error:
            mute[name] = str(error)
    return mute


def make_courier(ways: Ways, log: Log, project: Path) -> Courier:
    """Return who sends beside a driver."""
    from sagactl.alerts.courier import Courier

    return Courier(make_lanes(ways, log, project, is_for_all=False), SystemClock().now_ms)


def mask(document: dict[str, Json]) -> dict[str, Json]:
    """Return *document* without the secrets that are known here: everything that goes out passes through this."""
    from sagactl.secrets.masking import KNOWN

    masked = KNOWN.mask_json(document)
    assert isinstance(masked, dict), "a document stays one"
    return masked


def _make_resolve(folder: Path) -> Resolve:
    def resolve(value: str | Reference) -> str:
        import os

        from sagactl.alerts.sending import SendError
        from sagactl.secrets.masking import KNOWN
        from sagactl.secrets.sources import Source, read_value

        if isinstance(value, str):
            return value
        what = str(folder / Path(value.what).expanduser()) if value.kind == "file" else value.what
        try:
            found = read_value(Source(value.kind, what), os.environ)
        except SecretError as error:
            raise SendError(error.message) from None
        KNOWN.add(found)
        return found

    return resolve


def _make_look(log: Log) -> Callable[[str, int], Look]:
    def look(run_id: str, seq: int) -> Look:
        from sagactl.alerts.compose import Look
        from sagactl.core.definition import read_definition
        from sagactl.core.evolve import replay

        saga = read_definition(log.definition(log.row(run_id).definition))
        stored = takewhile(lambda each: each.seq <= seq, log.read(run_id))
        records = [each.record for each in stored]
        return Look(saga, records, replay(saga, records))

    return look
