"""A tool as it was declared, checked: the request it makes, and what its answer means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final

from sagactl.core.template import Reference, Template
from sagactl.dataclass import dataclass
from sagactl.tools.api import Declaration
from sagactl.tools.http.conditions import Condition

KEY_HEADER: Final = "Idempotency-Key"
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
IDEMPOTENT_METHODS: Final = SAFE_METHODS | {"PUT", "DELETE"}
METHODS: Final = (*sorted(IDEMPOTENT_METHODS), "PATCH", "POST")


class BodyKind(StrEnum):
    """How the body of a request is written."""

    JSON = "json"
    FORM = "form"
    TEXT = "text"


class AnswerKind(StrEnum):
    """How the body of an answer is read."""

    JSON = "json"
    TEXT = "text"
    NONE = "none"


class Meaning(StrEnum):
    """What a status means (E3)."""

    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Server:
    """Where requests go: scheme, host as written in ASCII, port, and the path that all of them begin with."""

    scheme: str
    host: str
    port: int
    base: str

    @property
    def origin(self) -> str:
        """Return it as it stands in a URL, without the path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = {"http": 80, "https": 443}[self.scheme]
        return f"{self.scheme}://{host}" + ("" if self.port == default else f":{self.port}")


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent. A path is its segments; where the whole URL is an argument, `url` is the reference to it."""

    method: str
    server: Server | None
    segments: tuple[Template, ...]
    url: Reference | None
    query: tuple[tuple[str, Template], ...]
    headers: tuple[tuple[str, Template], ...]
    body_kind: BodyKind | None
    body: Template | None
    key_header: str | None
    is_key_quoted: bool
    redirects_max: int
    written: str
    """Method and URL as they were written, for people."""


@dataclass(frozen=True, slots=True)
class Finding:
    """When a probe's answer says *done*, or *not done*: one of the statuses, and the condition where there is one."""

    statuses: frozenset[int]
    condition: Condition | None


@dataclass(frozen=True, slots=True)
class Reply:
    """What the answer means."""

    kind: AnswerKind
    output: Template | None
    statuses: Mapping[int, Meaning]
    done: Finding | None
    not_done: Finding | None

    @property
    def is_probe(self) -> bool:
        """Tell whether the answer says if something else was done."""
        return self.done is not None


@dataclass(frozen=True, slots=True)
class HttpDeclaration:
    """One tool of a file; `line` is where it stands."""

    request: Request
    reply: Reply
    declaration: Declaration
    description: str
    line: int
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Values of arguments that weren't given."""
