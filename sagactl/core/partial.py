"""Templates filled in as far as that goes: what isn't known yet stays as it was written.

A plan shows arguments before any call is made, so inputs have values and the outputs of other steps have none. The
same parser and the same rendering as for a run are used for whatever is known (rule F3).
"""

from __future__ import annotations

from typing import assert_never

from sagactl.core.canonical import Json
from sagactl.core.template import (
    Evaluator,
    Expression,
    ListOf,
    Literal,
    MapOf,
    Reference,
    Scope,
    Template,
    Text,
    paths_of,
    render,
    write_template,
)


def is_known(template: Template, scope: Scope) -> bool:
    """Tell whether *scope* holds all that *template* looks at; a secret is never known, and never needed to be."""
    return all(path[0] in scope or path[0] == "secrets" for path in paths_of(template))


def render_partly(template: Template, scope: Scope, evaluator: Evaluator) -> Json:
    """Return the value of *template*, with what *scope* doesn't hold left as written; raises ExpressionError."""
    match template:
        case Literal(value):
            return value
        case Reference() | Expression():
            return render(template, scope, evaluator) if is_known(template, scope) else write_template(template)
        case Text(parts):
            return "".join(_render_part(part, scope, evaluator) for part in parts)
        case ListOf(items):
            return [render_partly(item, scope, evaluator) for item in items]
        case MapOf(entries):
            return {key: render_partly(child, scope, evaluator) for key, child in entries}
        case _:
            assert_never(template)


def _render_part(part: str | Reference | Expression, scope: Scope, evaluator: Evaluator) -> str:
    text = Text((part,))
    found = render(text, scope, evaluator) if is_known(text, scope) else write_template(text)
    assert isinstance(found, str), "a text renders to a text"
    return found
