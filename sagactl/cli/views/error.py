"""An error, or a warning, for people: a line, and what helps."""

from __future__ import annotations

from sagactl.cli.views.style import Hue, Style
from sagactl.errors import SagactlError


def render_error(error: SagactlError, style: Style) -> str:
    """Return `error[code]: message` and, where there is one, the hint on a line of its own."""
    head = style.paint(f"error[{style.show(error.code)}]:", Hue.BAD)
    lines = [f"{head} {style.show(error.message)}"]
    if error.hint:
        lines.append(f"hint: {style.command(style.show(error.hint))}")
    return "\n".join(lines)


def render_warning(message: str, style: Style, *, code: str | None = None) -> str:
    """Return a warning as a line for stderr."""
    head = f"warning[{code}]:" if code else "warning:"
    return f"{style.paint(head, Hue.ODD)} {style.show(message)}"
