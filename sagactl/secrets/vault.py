"""The secrets of a project: resolved afresh for each call, and masked from the moment they are known (E19)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import Final

from sagactl.core.canonical import Json
from sagactl.core.secrets import fill_secrets
from sagactl.errors import SecretError
from sagactl.secrets.masking import KNOWN, Masker
from sagactl.secrets.sources import Source, choose_source, is_open_to_all, name_variable, read_value

TRUSTED_SECONDS: Final = 5.0
"""How long a keyring that had a value is believed to have it still, where only that is the question."""


class Vault:
    """Resolves the secrets that sagas name; may be used from any thread.

    Args:
        sources: The entries of `[secrets]`.
        environ: The environment; the process's own by default.
        masker: What is told of each value; the process's own by default.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        *,
        environ: Mapping[str, str] | None = None,
        masker: Masker = KNOWN,
    ) -> None:
        self._sources = sources
        self._environ = os.environ if environ is None else environ
        self._masker = masker
        self._seen: dict[str, float] = {}

    def resolve(self, name: str) -> str:
        """Return the value of a secret as it is now; raises SecretError."""
        source = choose_source(name, self._sources, self._environ)
        try:
            value = read_value(source, self._environ)
        except SecretError as error:
            is_default = name not in self._sources
            more = f", and [secrets] has no entry {name}" if is_default and source.what == name_variable(name) else ""
            raise SecretError(f"{error.message}{more}", hint="sagactl help secrets") from None
        self._masker.add(value)
        if source.kind == "keyring":
            self._seen[name] = time.monotonic()
        return value

    def missing(self, names: Iterable[str]) -> dict[str, str]:
        """Return which of the secrets can't be resolved now, each with the reason; the others are masked from now."""
        found = {}
        for name in names:
            if time.monotonic() - self._seen.get(name, -TRUSTED_SECONDS) < TRUSTED_SECONDS:
                continue
            try:
                self.resolve(name)
            except SecretError as error:
                found[name] = error.message
        return found

    def fill(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Return *arguments* with each reference to a secret replaced by its value; raises SecretError."""
        values: dict[str, str] = {}

        def resolve(name: str) -> str:
            if name not in values:
                values[name] = self.resolve(name)
            return values[name]

        return {name: fill_secrets(value, resolve) for name, value in arguments.items()}

    def warn(self, names: Iterable[str]) -> list[str]:
        """Return what an operator should mend about the sources of the secrets."""
        chosen = {name: choose_source(name, self._sources, self._environ) for name in names}
        return [
            f"the file of the secret {name} can be read by every user here: chmod o-r {source.what}"
            for name, source in chosen.items()
            if is_open_to_all(source)
        ]
