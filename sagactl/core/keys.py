"""Idempotency keys and the grammar of names.

Rule E8: the key of an operation is an injective function of run, step, item and direction alone. Steps match
`[a-z][a-z0-9_]*` and run ids have no slash, so joining with `/` is injective, readable in a vendor's dashboard, and
the same in every attempt, process, engine and release.
"""

from __future__ import annotations

import re
from typing import Final

from sagactl.core.records import Operation

STEP_ID: Final = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
SAGA_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}", re.ASCII)
TOOL_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)+", re.ASCII)
SECRET_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
RUN_ID: Final = re.compile(r"[0-9a-z]{13}", re.ASCII)

RUN_ALPHABET: Final = "23456789abcdefghjkmnpqrstvwxyz"
"""Digits and letters without those that look alike (0 o, 1 l i, u v)."""

SECRET_MARK: Final = "$secret"  # noqa: S105 - a key, no secret
"""A recorded argument `{"$secret": NAME}` stands for a secret that is resolved at each call (E19)."""

RESERVED_IDS: Final = frozenset(
    {"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"}
    | {"let", "loop", "package", "namespace", "return", "var", "void", "while"}
    | {"input", "steps", "item", "index", "run", "args", "output", "secrets"}
)
"""Words of the expression language (CEL reserves them) and the roots of our references: no step may bear them."""


def idempotency_key(run_id: str, operation: Operation) -> str:
    """Return the key of *operation*: `run/step/action`, `run/step/3/compensation`."""
    item = "" if operation.item is None else f"/{operation.item}"
    return f"{run_id}/{operation.step}{item}/{operation.direction}"
