"""Which secrets a value or a template stands for; the values of secrets are never seen here (E19).

A reference to a secret is `{"$secret": NAME}`. Only templates of the saga make one: data that looks like it is refused
(see `template`), so whatever is found in recorded arguments was written there by the author of the saga.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sagactl.core.canonical import Json
from sagactl.core.keys import SECRET_MARK
from sagactl.core.template import Path, Template, paths_of


def name_of_secret(value: object) -> str | None:
    """Return the name of the secret that *value* stands for, or None where it is plain data."""
    if isinstance(value, dict) and value.keys() == {SECRET_MARK} and isinstance(value[SECRET_MARK], str):
        return value[SECRET_MARK]
    return None


def secrets_in(value: Json) -> Iterator[str]:
    """Yield the name of each secret that *value* refers to."""
    name = name_of_secret(value)
    if name is not None:
        yield name
    elif isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from secrets_in(child)


def fill_secrets(value: Json, resolve: Callable[[str], str]) -> Json:
    """Return *value* with what *resolve* says of each name in place of the references."""
    name = name_of_secret(value)
    if name is not None:
        return resolve(name)
    if isinstance(value, dict):
        return {key: fill_secrets(member, resolve) for key, member in value.items()}
    return [fill_secrets(member, resolve) for member in value] if isinstance(value, list) else value


def secrets_named(template: Template, args: Json) -> Iterator[str]:
    """Yield the secrets that *template* names, also by way of *args*, the recorded arguments of the action."""
    for path in paths_of(template):
        if path[0] == "secrets":
            yield str(path[1])
        elif path[0] == "args":
            yield from secrets_in(_reach(args, path[1:]))


def _reach(value: Json, path: Path) -> Json:
    """Return what *path* leads to, as far as it goes; an expression that goes further has no value anyhow."""
    for step in path:
        if name_of_secret(value) is not None:
            return value
        if isinstance(value, dict) and step in value:
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value
