"""What the built-in kinds of tools share: how they are declared, and how they say *unknown* in their own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from sagactl.core.answer import Answer
from sagactl.core.canonical import Json
from sagactl.tools.api import DECLARATIONS, Declaration, Seconds

VERSION: Final = "1"
"""Of the built-in tools: it grows when one of them comes to mean something else."""

F = TypeVar("F", bound=Callable[..., object])


class Unsure(Exception):  # noqa: N818 - an outcome and not a mistake, as `Rejected` is
    """Say that something may have happened; `raw` is a reply that did not fit, for a probe or a compensation.

    `retry_after` is when whoever was called wants to be asked again, where doubt lets it be asked at all.
    """

    def __init__(self, message: str, *, code: str, raw: Json = None, retry_after: Seconds | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.raw = raw
        self.retry_after = retry_after


class Answered(Exception):  # noqa: N818 - as above
    """Hand on the answer that was made elsewhere, by the same rules as here."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("answered elsewhere")
        self.answer = answer


def declares(name: str, schema: Mapping[str, Json], **facts: Any) -> Callable[[F], F]:
    """Make a built-in tool of a function or method that takes its arguments as they come, by name."""
    declaration = Declaration(name=name, version=VERSION, arguments_schema=schema, **facts)

    def decorate(function: F) -> F:
        setattr(function, DECLARATIONS, (declaration,))
        return function

    return decorate
