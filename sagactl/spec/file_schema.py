"""The JSON Schema of saga files, for editors: `schema.json` beside this module."""

from __future__ import annotations

from typing import cast

from sagactl.core.canonical import Json, parse


def read_file_schema() -> dict[str, Json]:
    """Return the schema as JSON; it documents every key."""
    from importlib.resources import files

    text = files("sagactl.spec").joinpath("schema.json").read_text(encoding="utf-8")
    return cast("dict[str, Json]", parse(text))
