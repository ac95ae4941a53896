"""What `[alerts]` and `[events]` of the settings mean: channels that people are told by, and where events go.

A channel's name is what its deliveries are known by in the log, so it must not change; a target of events is known by
its file or URL, and a new one begins with the first record of each run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sagactl.core.alerting import Reason
from sagactl.core.outbox import Channels
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError

CHANNELS_MAX: Final = 20
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}", re.ASCII)
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

ALERT_KEYS: Final = ("channel",)
CHANNEL_KEYS: Final = ("name", "kind", "url", "secret", "reasons")
EVENT_KEYS: Final = ("file", "url", "secret")
REFERENCE_KINDS: Final = ("env", "file", "keyring")
"""As in `[secrets]`."""


class Kind(StrEnum):
    """How a channel is spoken to."""

    WEBHOOK = "webhook"
    APPRISE = "apprise"


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a value is that must not stand in the settings; read each time it is needed."""

    kind: str
    what: str


Resolve = Callable[[str | Reference], str]
"""Returns the value of a setting as it is now; raises SendError, which never tells one."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One way to tell people."""

    name: str
    kind: Kind
    url: str | Reference
    secret: Reference | None
    reasons: frozenset[Reason]


@dataclass(frozen=True, slots=True)
class Target:
    """Where events go: a file, or a URL with the secret that signs them. `key` names it in the log."""

    key: str
    file: Path | None = None
    url: str | Reference | None = None
    secret: Reference | None = None


def read_channels(table: object) -> tuple[Channel, ...]:
    """Return the channels of `[alerts]`; raises InvalidError."""
    found = _table(table, "alerts", ALERT_KEYS).get("channel", [])
    if not isinstance(found, list):
        raise _wrong("alerts.channel must be a list: write [[alerts.channel]] for each")
    if len(found) > CHANNELS_MAX:
        raise _wrong(f"alerts.channel has {len(found)} channels, more than {CHANNELS_MAX}")
    channels = tuple(_read_channel(each, number) for number, each in enumerate(found, 1))
    names = [channel.name for channel in channels]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _wrong(f"two channels of alerts are called {twice}", "give each a name of its own")
    return channels


def reasons_of(channels: Iterable[Channel]) -> Channels:
    """Return what each channel is told of, as the outbox takes it."""
    return {channel.name: channel.reasons for channel in channels}


def _read_channel(value: object, number: int) -> Channel:
    where = f"channel {number} of alerts"
    table = _table(value, where, CHANNEL_KEYS)
    name = _text(table, "name", where)
    if _NAME.fullmatch(name) is None:
        raise _wrong(f"{where}: the name {name!r} must be lower-case letters, digits, - and _", 'name = "ops"')
    where = f"channel {name} of alerts"
    kind = _word(table.get("kind"), f"{where}: kind", [kind.value for kind in Kind])
    url = _read_url(table, where) if kind == Kind.WEBHOOK else _reference(table, "url", where)
    if kind == Kind.APPRISE and "secret" in table:
        raise _wrong(f"{where}: secret is for webhooks; what Apprise needs stands in its url")
    secret = _reference(table, "secret", where) if kind == Kind.WEBHOOK else None
    return Channel(name, Kind(kind), url, secret, _read_reasons(table.get("reasons"), where))


def _read_reasons(value: object, where: str) -> frozenset[Reason]:
    if value is None:
        return frozenset(Reason)
    if not isinstance(value, list) or not value:
        raise _wrong(f"{where}: reasons must be a list", f"known are {', '.join(Reason)}")
    return frozenset(Reason(_word(each, f"{where}: reasons", list(Reason))) for each in value)


def _read_url(table: Mapping[str, Any], where: str) -> str | Reference:
    if isinstance(table.get("url"), dict):
        return _reference(table, "url", where)
    url = _text(table, "url", where)
    problem = find_url_problem(url)
    if problem is not None:
        raise _wrong(f"{where}: {problem}")
    return url


def _reference(table: Mapping[str, Any], key: str, where: str) -> Reference:
    """Return a value that is a secret, and so stands elsewhere."""
    hint = f'{key} = {{env = "NAME"}}'
    if key not in table:
        raise _wrong(f"{where}: {key} is missing", hint)
    found = table[key]
    if not isinstance(found, dict) or len(found) != 1:
        raise _wrong(f"{where}: {key} is a secret, so the settings only say where it is", hint)
    ((kind, what),) = found.items()
    if kind not in REFERENCE_KINDS:
        raise _wrong(f"{where}: {key} can't be in {kind}", _suggest(kind, REFERENCE_KINDS))
    if not isinstance(what, str) or not what or "\0" in what:
        raise _wrong(f"{where}: {key}.{kind} must be a text", hint)
    return Reference(kind, what)


def find_url_problem(url: str) -> str | None:
    """Say what keeps *url* from being posted to, without its text: it may hold a secret."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "the url is none"
    if parts.scheme not in {"http", "https"} or not host:
        return "the url must begin with https://"
    if parts.scheme == "http" and host not in _LOOPBACK:
        return "http:// is for this machine only; use https://"
    if parts.username is not None or parts.password is not None:
        return "a url with a password in it is not used; sign with a secret"
    return "the url has characters that a url can't have" if re.search(r"[\s\x00-\x1f\x7f-\U0010ffff]", url) else None


def read_target(table: object, folder: Path) -> Target | None:
    """Return where `[events]` go, or None; a relative file is one of *folder*. Raises InvalidError."""
    found = _table(table, "events", EVENT_KEYS)
    if not found:
        return None
    if ("file" in found) == ("url" in found):
        raise _wrong("events go either to a file or to a url", 'file = "events.jsonl"')
    if "file" in found:
        if "secret" in found:
            raise _wrong("events: secret is for a url; a file is not signed")
        file = folder / _text(found, "file", "events")
        return Target(f"file:{file}", file=file)
    url = _read_url(found, "events")
    name = url if isinstance(url, str) else f"{url.kind}={url.what}"
    return Target(f"url:{name}", url=url, secret=_reference(found, "secret", "events"))


def _table(value: object, where: str, keys: Iterable[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(f"{where} must be a table")
    for key in value:
        if key not in keys:
            raise _wrong(f"{where}: unknown setting {key}", _suggest(key, keys))
    return value


def _suggest(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise _wrong(f"{where}: {key} must be a text" if key in table else f"{where}: {key} is missing")
    return value


def _word(value: object, where: str, known: list[str]) -> str:
    if isinstance(value, str) and value in known:
        return value
    shown = "is missing" if value is None else f"can't be {value!r}"
    raise _wrong(f"{where} {shown}", _suggest(str(value), known))


def _wrong(message: str, hint: str | None = None) -> InvalidError:
    return InvalidError(message, code="invalid-config", hint=hint or "sagactl help alerts")
