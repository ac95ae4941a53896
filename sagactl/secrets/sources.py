"""Where the value of a secret comes from: a variable, a file, a keyring; read anew each time.

In the settings: `[secrets]` with `stripe_key = {env = "STRIPE_KEY"}`, `{file = "/run/secrets/stripe"}` or
`{keyring = "service/user"}`. A variable `SAGACTL_SECRET_STRIPE_KEY` comes first, as the environment does for every
setting, and is all there is for a secret without an entry.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sagactl.core.keys import SECRET_NAME
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError, SecretError
from sagactl.secrets.masking import LENGTH_MIN

VARIABLE_PREFIX: Final = "SAGACTL_SECRET_"
"""Before the name of a secret in capital letters: the variable that is looked at first."""

SECRET_BYTES_MAX: Final = 16_384
ENTRIES_MAX: Final = 1_000
KEYRING_SECONDS: Final = 10.0
"""How long a keyring may take to answer; one that wants to be unlocked asks a person."""

KINDS: Final = ("env", "file", "keyring")


@dataclass(frozen=True, slots=True)
class Source:
    """One entry of `[secrets]`: the kind and what it names."""

    kind: str
    what: str


def read_sources(table: object, where: str, folder: Path | None) -> dict[str, Source]:
    """Return the entries of a `[secrets]` table; paths lead from *folder* on. Raises InvalidError."""
    if not isinstance(table, dict) or len(table) > ENTRIES_MAX:
        raise _refuse(where, f"secrets must be a table of at most {ENTRIES_MAX} entries")
    return {name: _read_source(name, entry, where, folder) for name, entry in table.items()}


def _read_source(name: str, entry: object, where: str, folder: Path | None) -> Source:
    if SECRET_NAME.fullmatch(name) is None:
        raise _refuse(where, f"secrets: {name!r} can't be a name of a secret")
    if not isinstance(entry, dict) or len(entry) != 1 or next(iter(entry)) not in KINDS:
        raise _refuse(where, f"secrets.{name} must have one of the keys {', '.join(KINDS)}")
    ((kind, what),) = entry.items()
    if not isinstance(what, str) or not what or "\0" in what:
        raise _refuse(where, f"secrets.{name}.{kind} must be a text")
    if kind == "keyring" and not all(what.rpartition("/")[::2]):
        raise _refuse(where, f"secrets.{name}.keyring must be of the form service/user")
    if kind == "file" and folder is not None:
        what = str(folder / Path(what).expanduser())
    return Source(kind, what)


def _refuse(where: str, message: str) -> InvalidError:
    hint = 'an entry looks like: stripe_key = {env = "STRIPE_KEY"}'
    return InvalidError(f"{where}: {message}", code="invalid-config", hint=hint)


def name_variable(name: str) -> str:
    """Return the variable that the secret *name* is looked for in first."""
    return VARIABLE_PREFIX + name.upper()


def choose_source(name: str, sources: Mapping[str, Source], environ: Mapping[str, str]) -> Source:
    """Return where the value of *name* is to be read: the environment comes before the settings."""
    variable = name_variable(name)
    is_set = bool(environ.get(variable))
    return Source("env", variable) if is_set or name not in sources else sources[name]


def read_value(source: Source, environ: Mapping[str, str]) -> str:
    """Return the value there; raises SecretError where there is none that can be used."""
    if source.kind == "env":
        value = environ.get(source.what)
        if not value:
            raise SecretError(f"the variable {source.what} is not set")
    elif source.kind == "file":
        value = _read_file(source.what)
    else:
        value = _ask_keyring(source.what)
    return _check(value)


def _check(value: str) -> str:
    if len(value) < LENGTH_MIN:
        raise SecretError(f"its value is shorter than {LENGTH_MIN} characters, so it could not be masked")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise SecretError("its value isn't UTF-8") from None
    if size > SECRET_BYTES_MAX or "\0" in value:
        wrong = "has a NUL in it" if size <= SECRET_BYTES_MAX else f"is larger than {SECRET_BYTES_MAX} bytes"
        raise SecretError(f"its value {wrong}")
    return value


def _read_file(path: str) -> str:
    """Return what a regular file holds, without the line break at its end; a pipe or device could keep us waiting."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SecretError(f"the file {path} can't be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SecretError(f"{path} is no regular file")
        data = _read_at_most(descriptor, SECRET_BYTES_MAX + 3)
    except OSError as error:
        raise SecretError(f"the file {path} can't be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(data) > SECRET_BYTES_MAX + 2:
        raise SecretError(f"the file {path} is larger than {SECRET_BYTES_MAX} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise SecretError(f"the file {path} isn't UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")


def _read_at_most(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := os.read(descriptor, size - len(data))):
        data += part
    return data


def is_open_to_all(source: Source) -> bool:
    """Tell whether a file can be read by every user of the machine."""
    try:
        return source.kind == "file" and bool(Path(source.what).stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _ask_keyring(what: str) -> str:
    """Return the password under `service/user`; on a thread, for a keyring may wait for a person who isn't there."""
    import threading

    service, _, user = what.rpartition("/")
    answers: list[str | SecretError | None] = []
    thread = threading.Thread(target=lambda: answers.append(_look_up(service, user)), daemon=True)
    thread.start()
    thread.join(KEYRING_SECONDS)
    if not answers:
        raise SecretError(f"the keyring has not answered within {KEYRING_SECONDS:g} seconds; is it locked?")
    if isinstance(answers[0], SecretError):
        raise answers[0]
    if not answers[0]:
        raise SecretError(f"the keyring has nothing for {what}")
    return answers[0]


def _look_up(service: str, user: str) -> str | SecretError | None:
    try:
        import keyring
    except ImportError:
        return SecretError("the package keyring is not installed: pip install 'sagactl[keyring]'")
    try:
        found: str | None = keyring.get_password(service, user)
    except Exception as error:  # a backend raises what it likes, and its text is none of ours
        return SecretError(f"the keyring can't be read: {type(error).__name__}")
    return found
