"""The tools that a program hands in, checked before anything else is done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sagactl.errors import InvalidError


def check_given(tools: object) -> tuple[Callable[..., object], ...]:
    """Return the functions of a program; raises InvalidError naming the one that is no tool, or is given twice."""
    hint = "give a list of functions with `@tool`: tools=[charge, refund]"
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise InvalidError(f"tools must be a list of functions, not {tools!r:.100}", code="invalid-tool", hint=hint)
    given, seen = tuple(tools), set[str]()
    if given:
        from sagactl.tools.api import declarations_of
    for function in given:
        names = [declaration.name for declaration in declarations_of(function)]
        if not names:
            raise InvalidError(f"{function!r:.100} is no tool: it has no @tool", code="invalid-tool", hint=hint)
        for name in names:
            if name in seen:
                raise InvalidError(f"tool {name!r} is given twice", code="invalid-tool", hint="give each tool once")
            seen.add(name)
    return given
