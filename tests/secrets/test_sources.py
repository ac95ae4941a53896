"""Where values come from: variables, files, keyrings; bounded, checked, and read anew each time (E19, X3)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sagactl.config import load_config
from sagactl.core.canonical import Json
from sagactl.errors import InvalidError, SecretError
from sagactl.secrets.masking import LENGTH_MIN, Masker
from sagactl.secrets.sources import ENTRIES_MAX, SECRET_BYTES_MAX, Source, name_variable
from sagactl.secrets.vault import Vault

VALUE = "correct horse"


def make_vault(environ: dict[str, str] | None = None, **sources: Source) -> tuple[Vault, Masker]:
    """Return a vault with an environment and a masker of its own."""
    masker = Masker()
    return Vault(sources, environ=environ or {}, masker=masker), masker


def file_of(folder: Path, content: bytes | str) -> Source:
    """Return a source that is a file with *content*."""
    path = folder / "secret"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o600)
    return Source("file", str(path))


def test_a_secret_without_an_entry_is_a_variable_of_its_name() -> None:
    """E19: `SAGACTL_SECRET_` and the name in capitals."""
    assert name_variable("stripe_key") == "SAGACTL_SECRET_STRIPE_KEY"
    vault, masker = make_vault({"SAGACTL_SECRET_STRIPE_KEY": VALUE})
    assert vault.resolve("stripe_key") == VALUE
    assert masker.mask(VALUE) == "***"


def test_the_environment_comes_before_the_settings(tmp_path: Path) -> None:
    """A variable wins over the entry, as for every setting; an empty one doesn't count."""
    source = file_of(tmp_path, VALUE)
    environ = {"SAGACTL_SECRET_K": "of the environment"}
    vault, _ = make_vault(environ, k=source)
    assert vault.resolve("k") == "of the environment"
    environ["SAGACTL_SECRET_K"] = ""
    assert vault.resolve("k") == VALUE


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_the_line_break_at_the_end_of_a_file_is_none_of_the_value(tmp_path: Path, ending: str) -> None:
    """E19: editors end files with one; a second one belongs to the value."""
    vault, _ = make_vault(k=file_of(tmp_path, VALUE + ending))
    assert vault.resolve("k") == VALUE
    vault, _ = make_vault(k=file_of(tmp_path, VALUE + "\n\n"))
    assert vault.resolve("k") == VALUE + "\n"


def test_a_value_is_read_anew_each_time_and_the_old_one_still_masked(tmp_path: Path) -> None:
    """E19: a rotated secret is the new one in the next call."""
    vault, masker = make_vault(k=file_of(tmp_path, VALUE))
    vault.resolve("k")
    file_of(tmp_path, "battery staple")
    assert vault.resolve("k") == "battery staple"
    assert masker.mask(f"{VALUE}, battery staple") == "***, ***"


BAD = {
    "empty": (b"", "shorter than"),
    "short": (b"x" * (LENGTH_MIN - 1) + b"\n", "shorter than"),
    "large": (b"x" * (SECRET_BYTES_MAX + 1), "larger than"),
    "much larger": (b"x" * SECRET_BYTES_MAX * 3, "larger than"),
    "NUL": (b"abcdef\0ghi", "NUL"),
    "no UTF-8": (b"abcdef\xff", "UTF-8"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_value_that_is_none_is_refused_without_a_word_of_it(tmp_path: Path, name: str) -> None:
    """E19, X3: too short to be masked, too large, no text: the run waits, and the reason doesn't quote."""
    content, reason = BAD[name]
    vault, masker = make_vault(k=file_of(tmp_path, content))
    with pytest.raises(SecretError, match=reason) as caught:
        vault.resolve("k")
    assert "abcdef" not in str(caught.value)
    assert vault.missing(["k"]) == {"k": caught.value.message}
    assert not masker.is_active


def test_the_largest_value_is_taken(tmp_path: Path) -> None:
    """X3: the bound is the bound, with the line break on top."""
    vault, _ = make_vault(k=file_of(tmp_path, "x" * SECRET_BYTES_MAX + "\r\n"))
    assert len(vault.resolve("k")) == SECRET_BYTES_MAX


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """X3: a pipe that nobody writes to doesn't hold up anybody; a folder and a missing file say what they are."""
    os.mkfifo(tmp_path / "pipe")
    for what, reason in (("pipe", "no regular file"), (".", "no regular file"), ("none", "No such file")):
        vault, _ = make_vault(k=Source("file", str(tmp_path / what)))
        with pytest.raises(SecretError, match=reason):
            vault.resolve("k")


def test_a_missing_variable_says_which_and_that_there_is_no_entry() -> None:
    """E19: the operator reads what to set."""
    vault, _ = make_vault(k=Source("env", "NOWHERE"))
    missing = vault.missing(["k", "other"])
    assert missing["k"] == "the variable NOWHERE is not set"
    assert missing["other"] == "the variable SAGACTL_SECRET_OTHER is not set, and [secrets] has no entry other"


def test_a_file_that_everybody_can_read_is_warned_of(tmp_path: Path) -> None:
    """E19: the mode is said to the operator, who may have a reason; the value is used."""
    source = file_of(tmp_path, VALUE)
    vault, _ = make_vault(k=source, e=Source("env", "HOME"))
    assert vault.warn(["k", "e", "unknown"]) == []
    Path(source.what).chmod(0o644)
    assert vault.warn(["k"]) == [f"the file of the secret k can be read by every user here: chmod o-r {source.what}"]


def test_references_are_filled_at_any_depth_and_resolved_once_for_a_call(tmp_path: Path) -> None:
    """E19: each call resolves what it needs, and data that only looks alike stays as it is."""
    environ = {"SAGACTL_SECRET_K": VALUE}
    vault, _ = make_vault(environ)
    arguments: dict[str, Json] = {"a": {"$secret": "k"}, "b": [{"c": {"$secret": "k"}}], "d": {"$secret": 1}, "e": 7}
    assert vault.fill(arguments) == {"a": VALUE, "b": [{"c": VALUE}], "d": {"$secret": 1}, "e": 7}
    assert arguments["a"] == {"$secret": "k"}


KEYRING = """
from pathlib import Path

def get_password(service, user):
    if service == "broken":
        raise RuntimeError("the value is hunter22222")
    return {("acme/payments", "ada@example.com"): "from the keyring"}.get((service, user))
"""

ASK = """
from sagactl.secrets.sources import Source
from sagactl.secrets.vault import Vault

sources = {name: Source("keyring", f"{name}/ada@example.com") for name in ("acme/payments", "none", "broken")}
vault = Vault(sources)
print(vault.missing(sources))
print(vault.resolve("acme/payments"))
"""


def _ask(folder: Path) -> str:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parents[2])])}
    done = subprocess.run([sys.executable, "-c", ASK], env=environ, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_keyring_is_asked_by_service_and_user(tmp_path: Path) -> None:
    """E19: what stands before the last stroke is the service; nothing there, and a backend that fails, are reasons."""
    (tmp_path / "keyring.py").write_text(KEYRING)
    said = _ask(tmp_path)
    assert "from the keyring\n" in said
    assert "the keyring has nothing for none/ada@example.com" in said
    assert "the keyring can't be read: RuntimeError" in said
    assert "hunter22222" not in said


def test_without_the_library_the_reason_says_how_to_install_it(tmp_path: Path) -> None:
    """The extra is imported only where a secret is kept in a keyring."""
    (tmp_path / "keyring.py").write_text("raise ImportError")
    assert "pip install 'sagactl[keyring]'" in _ask(tmp_path)


def _load(folder: Path, text: str, user: str = "") -> dict[str, Source]:
    (folder / "project").mkdir(exist_ok=True)
    (folder / "user" / "sagactl").mkdir(parents=True, exist_ok=True)
    (folder / "project" / "sagactl.toml").write_text(text)
    (folder / "user" / "sagactl" / "sagactl.toml").write_text(user)
    config = load_config(cwd=folder / "project", environ={"XDG_CONFIG_HOME": str(folder / "user")})
    return dict(config.secrets)


def test_the_settings_map_names_to_sources_each_of_its_own(tmp_path: Path) -> None:
    """The project's entries come before the user's, name by name; paths lead from the file's folder on."""
    project = '[secrets]\na = {env = "A"}\nb = {file = "keys/b"}\nc = {file = "/run/secrets/c"}\n'
    user = '[secrets]\na = {env = "MINE"}\nd = {keyring = "acme/ada"}\n'
    assert _load(tmp_path, project, user) == {
        "a": Source("env", "A"),
        "b": Source("file", str(tmp_path / "project" / "keys" / "b")),
        "c": Source("file", "/run/secrets/c"),
        "d": Source("keyring", "acme/ada"),
    }


@pytest.mark.parametrize(
    "entry",
    [
        'a = "sk_live_1234"',
        "a = {}",
        'a = {env = "A", file = "b"}',
        'a = {value = "sk_live_1234"}',
        "a = {env = 1}",
        'a = {env = ""}',
        'a = {keyring = "service"}',
        'a = {keyring = "/user"}',
        '"1a" = {env = "A"}',
        'a = {file = "x\\u0000y"}',
        "[other]",
    ],
)
def test_a_wrong_entry_is_an_error_that_quotes_no_value(tmp_path: Path, entry: str) -> None:
    """Unknown keys are errors; a value that somebody wrote into the file is not shown."""
    with pytest.raises(InvalidError) as caught:
        _load(tmp_path, f"[secrets]\n{entry}\n")
    assert caught.value.code == "invalid-config"
    assert "sk_live" not in f"{caught.value.message} {caught.value.hint}"


def test_there_can_be_only_so_many_entries(tmp_path: Path) -> None:
    """X3: the table is bounded."""
    lines = [f'n{number} = {{env = "A"}}' for number in range(ENTRIES_MAX + 1)]
    with pytest.raises(InvalidError, match=str(ENTRIES_MAX)):
        _load(tmp_path, "[secrets]\n" + "\n".join(lines))
    assert len(_load(tmp_path, "[secrets]\n" + "\n".join(lines[1:]))) == ENTRIES_MAX
