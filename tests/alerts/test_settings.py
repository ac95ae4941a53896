"""`[alerts]` and `[events]`: what is taken, and what is said about the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sagactl.alerts.settings import (
    ALERT_KEYS,
    CHANNEL_KEYS,
    CHANNELS_MAX,
    EVENT_KEYS,
    Channel,
    Kind,
    Reference,
    Target,
    read_channels,
    read_target,
)
from sagactl.config import load_config
from sagactl.core.alerting import Reason
from sagactl.errors import InvalidError
from sagactl.outgoing import read_ways
from tests.cli.project import ROOT

HOOK = {"name": "ops", "kind": "webhook", "url": "https://example.com/x", "secret": {"env": "S"}}
CHAT = {"name": "chat", "kind": "apprise", "url": {"file": "chat.url"}}


def channels(*tables: Any) -> tuple[Channel, ...]:
    """Read channels."""
    return read_channels({"channel": list(tables)})


def test_channels_are_read() -> None:
    """A channel has a name, a kind, a place to send to, and is told of everything unless it says of what."""
    assert channels(HOOK, {**CHAT, "reasons": ["stuck", "approval"]}) == (
        Channel("ops", Kind.WEBHOOK, "https://example.com/x", Reference("env", "S"), frozenset(Reason)),
        Channel("chat", Kind.APPRISE, Reference("file", "chat.url"), None, frozenset({Reason.STUCK, Reason.APPROVAL})),
    )
    assert read_channels({}) == ()


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"secrt": "x"}, "channel 1 of alerts: unknown setting secrt", "did you mean secret?"),
        ({"colour": "x"}, "channel 1 of alerts: unknown setting colour", "known are name, kind, url, secret, reasons"),
        ({"name": "The Ops"}, "channel 1 of alerts: the name 'The Ops' must be lower-case", 'name = "ops"'),
        ({"name": 7}, "channel 1 of alerts: name must be a text", "sagactl help alerts"),
        ({"kind": "webhok"}, "channel ops of alerts: kind can't be 'webhok'", "did you mean webhook?"),
        ({"kind": None}, "channel ops of alerts: kind is missing", None),
        ({"url": "http://example.com"}, "channel ops of alerts: http:// is for this machine only", None),
        ({"url": ""}, "channel ops of alerts: url must be a text", None),
        ({"secret": "whsec_AAAA"}, "channel ops of alerts: secret is a secret", 'secret = {env = "NAME"}'),
        ({"secret": {"envv": "S"}}, "channel ops of alerts: secret can't be in envv", "did you mean env?"),
        ({"secret": {"env": ""}}, "channel ops of alerts: secret.env must be a text", None),
        ({"reasons": ["stuk"]}, "channel ops of alerts: reasons can't be 'stuk'", "did you mean stuck?"),
        ({"reasons": []}, "channel ops of alerts: reasons must be a list", None),
        ({"reasons": [["stuck"]]}, "channel ops of alerts: reasons can't be", None),
        ({"kind": "apprise"}, "channel ops of alerts: url is a secret", 'url = {env = "NAME"}'),
        ({"kind": "apprise", "url": {"env": "U"}}, "channel ops of alerts: secret is for webhooks", None),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], message: str, hint: str | None) -> None:
    """Each mistake is an error that names the channel and the key, with what may have been meant; no secret in it."""
    with pytest.raises(InvalidError) as caught:
        channels({key: value for key, value in {**HOOK, **changes}.items() if value is not None})
    assert caught.value.message.startswith(message)
    assert "whsec_" not in caught.value.message
    assert hint is None or caught.value.hint == hint


@pytest.mark.parametrize(
    "table", [[], {"channels": []}, {"channel": {}}, {"channel": ["x"]}, {"channel": [HOOK] * (CHANNELS_MAX + 1)}]
)
def test_tables_of_another_shape(table: object) -> None:
    """What isn't a list of channels, or too many of them, is an error."""
    with pytest.raises(InvalidError):
        read_channels(table)


def test_two_channels_of_one_name() -> None:
    """A name is what deliveries are known by, so it is given once."""
    with pytest.raises(InvalidError, match="two channels of alerts are called ops"):
        channels(HOOK, HOOK)


def test_a_target_of_events(tmp_path: Path) -> None:
    """Events go to a file, or to a url with a secret, and to one of them."""
    assert read_target({"file": "out/e.jsonl"}, tmp_path) == Target(
        f"file:{tmp_path}/out/e.jsonl", file=tmp_path / "out/e.jsonl"
    )
    url = "https://example.com/x"
    secret = Reference("env", "S")
    assert read_target({"url": url, "secret": {"env": "S"}}, tmp_path) == Target(f"url:{url}", url=url, secret=secret)
    assert read_target({}, tmp_path) is None
    for wrong in (
        {"file": "x", "url": url},
        {"url": url},
        {"file": "x", "secret": {"env": "S"}},
        {"files": "x"},
        {"file": 3},
        {"secret": {"env": "S"}},
    ):
        with pytest.raises(InvalidError):
            read_target(wrong, tmp_path)


def test_the_file_of_events_lies_beside_the_settings(tmp_path: Path) -> None:
    """A relative path is meant from the folder of the file that it stands in."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "sagactl.toml").write_text('[events]\nfile = "e.jsonl"\n')
    ways = read_ways(load_config(cwd=tmp_path / "deep", environ={"XDG_CONFIG_HOME": str(tmp_path / "none")}))
    assert ways.target == Target(f"file:{tmp_path}/e.jsonl", file=tmp_path / "e.jsonl")


def test_the_page_about_alerts_has_every_key_and_reason(tmp_path: Path) -> None:
    """`sagactl help alerts` names each key and reason, and its settings are right."""
    import re
    import tomllib

    page = (ROOT / "sagactl" / "help" / "alerts.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert rows == [*CHANNEL_KEYS, *(reason.value for reason in Reason)]
    blocks = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)]
    assert [channel.name for channel in read_channels(blocks[0]["alerts"])] == ["ops", "chat"]
    assert read_target(blocks[1]["events"], tmp_path) is not None
    assert set(blocks[0]["alerts"]) == set(ALERT_KEYS)
    for key in EVENT_KEYS:
        assert f"`{key}`" in page or f"{key} = " in page
