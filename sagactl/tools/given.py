"""The tools that a program hands in, checked before anything else is done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sagactl.errors import InvalidError

if TYPE_CHECKING:
    from sagactl.tools.registry import Registry


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


def check_described(registry: Registry, given: tuple[Callable[..., object], ...]) -> Registry:
    """Return *registry*; raises InvalidError where a tool of the program is unfit, or its undo or probe isn't there."""
    modules = {str(getattr(function, "__module__", "program")) for function in given}
    for broken in registry.broken:
        if broken.name in modules:
            hint = "give `open_project` every tool of the program: tools=[charge, refund], the undo beside its action"
            raise InvalidError(str(broken), code="invalid-tool", hint=hint)
    return registry
