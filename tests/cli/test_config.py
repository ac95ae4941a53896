"""`sagactl config`: where each setting came from, and nothing that is secret."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sagactl.cli.views.config import hide_url
from tests.cli.project import Project

SETTINGS = """
concurrency = 4

[secrets]
stripe_key = {env = "STRIPE_KEY"}
bank_key = {env = "BANK_KEY"}

[alerts.channels.oncall]
kind = "webhook"
url = "https://hooks.example.com/services/T000/HIDDEN"
secret = "HIDDEN"

[telemetry]
endpoint = "https://otel.example.com/HIDDEN"
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with settings of its own, and with some of the user's."""
    (tmp_path / "sagactl.toml").write_text(SETTINGS)
    home = tmp_path / "home" / "sagactl"
    home.mkdir(parents=True)
    (home / "sagactl.toml").write_text('concurrency = 9\nplugins = ["acme"]\n[secrets]\nmine = {env = "MINE"}\n')
    return Project(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "home"), "STRIPE_KEY": "HIDDEN"})


def test_each_value_says_where_it_came_from(project: Project) -> None:
    """Section 6: flags > environment > project > user > default, each secret by itself."""
    found = project.run("config", "-o", "json", "--log", "x.db", extra={"SAGACTL_SECRET_BANK_KEY": "HIDDEN"})
    assert (found.code, found.json["schema"]) == (0, "sagactl.config/1")
    items = {each["name"]: (each["value"], each["origin"]) for each in found.json["items"]}
    assert items == {
        "log": ("x.db", "flag"),
        "concurrency": (4, "project"),
        "plugins": (["acme"], "user"),
        "retention": (None, "default"),
        "secrets.bank_key": ({"env": "SAGACTL_SECRET_BANK_KEY"}, "environment"),
        "secrets.mine": ({"env": "MINE"}, "user"),
        "secrets.stripe_key": ({"env": "STRIPE_KEY"}, "project"),
        "alerts.channels.oncall.kind": ("webhook", "project"),
        "alerts.channels.oncall.url": ("https://hooks.example.com/***", "project"),
        "alerts.channels.oncall.secret": ("***", "project"),
        "telemetry.endpoint": ("https://otel.example.com/***", "project"),
    }
    assert [each["origin"] for each in found.json["files"]] == ["project", "user"]
    assert "HIDDEN" not in found.out
    default = project.run("config", "-o", "json", extra={"XDG_CONFIG_HOME": "/nowhere"}).json["items"]
    assert {each["name"]: each["origin"] for each in default}["log"] == "default"


def test_the_table_shows_no_secret_either(project: Project) -> None:
    """Decision: secrets are never printed; the environment comes before the files."""
    found = project.run("config", extra={"SAGACTL_LOG": "postgresql://ada:HIDDEN@db.example.com:5432/sagas"})
    assert found.code == 0
    assert "HIDDEN" not in found.out
    assert 'log environment "postgresql://ada:***@db.example.com:5432/sagas"' in " ".join(found.out.split())


def test_wrong_settings_are_an_error(project: Project) -> None:
    """Section 6: unknown keys are errors (3), also for the command that shows settings."""
    (project.path / "sagactl.toml").write_text("nothing = 1")
    assert project.run("config", "-o", "json").json["error"]["code"] == "invalid-config"


def test_urls_keep_what_is_no_secret() -> None:
    """What is left of a URL tells the service, and not how to call it."""
    assert hide_url("/a/b.db") == "/a/b.db"
    assert hide_url("https://u@hooks.example.com:8443/x?y=z") == "https://u@hooks.example.com:8443/***"
    assert hide_url("https://hooks.example.com/") == "https://hooks.example.com"
    assert hide_url("postgres://db/sagas?password=HIDDEN") == "postgres://db/sagas"
    assert hide_url("https://[bad") == "***"


CHANNELS = """
retention = "90d"
plugins = ["acme", "b\\"c"]

[secrets]
key = {env = "KEY"}

[[alerts.channel]]
name = "ops"
kind = "webhook"
url = "https://ops.example.com/HIDDEN"
secret = {env = "HOOK"}
reasons = ["stuck", "run_timeout"]

[[alerts.channel]]
name = "chat"
kind = "apprise"
url = {file = "/run/chat"}
secret = "HIDDEN"
"""


def test_values_are_shown_as_they_are_written(project: Project) -> None:
    """Section 6: a value can be copied back into the file: lists and tables are TOML, and no list hides a secret."""
    (project.path / "sagactl.toml").write_text(CHANNELS)
    shown = project.run("config").out
    assert "HIDDEN" not in shown + project.run("config", "-o", "json").out
    lines = [line.split(maxsplit=2) for line in shown.splitlines()]
    rows = {line[0]: line[2] for line in lines if len(line) == 3 and line[1] == "project"}
    read = {name: tomllib.loads(f"x = {text}")["x"] for name, text in rows.items()}
    assert read == {
        "retention": "90d",
        "plugins": ["acme", 'b"c'],
        "secrets.key": {"env": "KEY"},
        "alerts.channel[0].name": "ops",
        "alerts.channel[0].kind": "webhook",
        "alerts.channel[0].url": "https://ops.example.com/***",
        "alerts.channel[0].secret": {"env": "HOOK"},
        "alerts.channel[0].reasons": ["stuck", "run_timeout"],
        "alerts.channel[1].name": "chat",
        "alerts.channel[1].kind": "apprise",
        "alerts.channel[1].url": {"file": "/run/chat"},
        "alerts.channel[1].secret": "***",
    }


def test_of_a_server_only_names_are_shown(tmp_path: Path) -> None:
    """E19: the words of a command, variables and headers may hold what is secret; they are told by name."""
    table = 'command = ["run-it", "--token=HIDDEN"]\nenv = {KEY = "HIDDEN"}\npass_env = ["PATH_OF"]'
    (tmp_path / "sagactl.toml").write_text(f"[mcp.files]\n{table}\n[mcp.files.tools.put]\nrejected = ['HIDDEN']\n")
    shown = Project(tmp_path).run("config", "-o", "json").out
    assert "HIDDEN" not in shown
    assert "run-it" in shown
    assert "KEY" in shown
