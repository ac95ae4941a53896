"""One tool of a server, as the engine calls it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, cast

from sagactl.core.canonical import Json, NotJsonError
from sagactl.core.pinned import NOT_AS_PINNED, Misfit
from sagactl.core.saga import ToolFacts
from sagactl.core.template import (
    ExpressionError,
    MapOf,
    Reference,
    Scope,
    Template,
    follow_path,
    render,
)
from sagactl.tools.api import CallContext, CannotTell, Done, NotDone, Rejected, Unavailable
from sagactl.tools.convert import bound_line, write_json
from sagactl.tools.kind import Unsure
from sagactl.tools.mcp.connection import (
    CallEndedError,
    CallFailedError,
    Connection,
    NotReachedError,
)
from sagactl.tools.mcp.lock import Pin
from sagactl.tools.mcp.results import explain, has_mark, join_texts, read_output, shorten
from sagactl.tools.mcp.settings import Place, ToolTable

METHOD_NOT_FOUND: Final = -32601
SUMMARY_LENGTH_MAX: Final = 200
ALREADY_GONE: Final[dict[str, Json]] = {"already_gone": True}
"""The output of an undo that found nothing to undo."""


class McpTool:
    """Calls one tool of a server; what it raises are outcomes."""

    def __init__(self, pin: Pin, table: ToolTable, connection: Connection) -> None:
        self.__doc__ = _summarize(pin.description) or pin.tool
        self.pin = pin
        self.table = table
        self.connection = connection

    def guard(self, _: ToolFacts) -> Misfit | None:
        """Tell whether the server still says of the tool what was pinned; a server that can't be had, no (H33).

        Then the call itself finds out, before it leaves.
        """
        try:
            changes = self.connection.compare(self.pin.tool)
        except NotReachedError:
            return None
        return Misfit(NOT_AS_PINNED, changes) if changes else None

    def __call__(self, context: CallContext, **arguments: Any) -> object:
        """Make the call that *context* is about."""
        scope: dict[str, object] = {
            "args": arguments,
            "key": context.idempotency_key,
            "forward_key": context.forward_key,
        }
        if self.table.is_probe:
            return self._ask(context, scope)
        return self._call(context, scope)

    def _ask(self, context: CallContext, scope: Mapping[str, object]) -> object:
        """Make the call and read from it whether another one was done."""
        table = self.table
        try:
            output = self._call(context, scope)
        except Rejected as error:
            return NotDone() if error.code == "not_done" else CannotTell(error.message)
        except (Unavailable, Unsure) as error:
            return CannotTell(str(error))
        scope = {**scope, "output": output}
        if table.found is not None and not _has_something(_find(table.found, scope)):
            return NotDone()
        return Done(output if table.done_output is None else _render(table.done_output, scope))

    def _call(self, context: CallContext, scope: Mapping[str, object]) -> object:
        given = self._build_arguments(scope)
        sent = cast("dict[str, Any]", _write_numbers(given))
        try:
            result = self.connection.call(
                self.pin.tool,
                sent,
                self._build_meta(context),
                resolve=context.secrets.__getitem__,
                seconds_left=context.seconds_left,
                cancelled=context.cancelled,
            )
        except NotReachedError as error:
            raise Unavailable(str(error), code=error.code) from None
        except CallEndedError as error:
            raise Unsure(str(error), code="timeout") from None
        except CallFailedError as error:
            return self._judge_failure(error)
        except ValueError as error:  # of pydantic: the answer isn't of the protocol
            raise Unsure(f"what the server answered is {explain(error)}", code="bad_answer") from None
        return self._judge_result(result)

    def _judge_failure(self, error: CallFailedError) -> object:
        if error.what == "refused":
            raise Rejected(str(error), code="refused")
        if error.what is not None:
            raise Unsure(str(error), code="server_lost")
        return self._judge_error(str(error), error.code)

    def _judge_result(self, result: Any) -> object:
        if result.is_error:
            return self._judge_error(join_texts(result.content), 0)
        try:
            return write_json(read_output(result, self.table.output))
        except NotJsonError as error:
            raise Unsure(f"the output can't be taken: {error}", code="bad_output") from None

    def _judge_error(self, text: str, code: int) -> object:
        """Say what an error means: by the operator's marks; without one, nobody knows what happened before it."""
        table, message = self.table, shorten(text)
        if has_mark(table.gone, text, code):
            return ALREADY_GONE
        if has_mark(table.not_done, text, code):
            raise Rejected(message, code="not_done")
        if has_mark(table.rejected, text, code) or code == METHOD_NOT_FOUND:
            raise Rejected(message, code="tool_error")
        if has_mark(table.unavailable, text, code):
            raise Unavailable(message, code="tool_error")
        raise Unsure(message, code="tool_error")

    def _build_arguments(self, scope: Mapping[str, object]) -> dict[str, Json]:
        table = self.table
        arguments = cast("dict[str, Json]", scope["args"])
        if table.with_ is not None:
            arguments = _render_arguments(table.with_, scope)
        elif table.is_probe:  # it is handed all that the action was given
            known = self.pin.input.get("properties")
            arguments = {name: value for name, value in arguments.items() if isinstance(known, dict) and name in known}
        for word, place in self._places("argument"):
            arguments = {**arguments, place.name: cast("str", scope[word])}
        return arguments

    def _build_meta(self, context: CallContext) -> dict[str, Json]:
        keys = {"key": context.idempotency_key, "forward_key": context.forward_key}
        meta: dict[str, Json] = {"traceparent": context.traceparent}
        return {**meta, **{place.name: keys[word] for word, place in self._places("meta")}}

    def _places(self, kind: str) -> list[tuple[str, Place]]:
        found = {"key": self.table.key, "forward_key": self.table.forward_key}
        return [(word, place) for word, place in found.items() if place is not None and place.kind == kind]


def _summarize(description: str) -> str:
    """Return the first sentence of what servers write for models, at some length; all of it is in the lock file."""
    line = " ".join(description.split())
    sentence, dot, _ = line.partition(". ")
    return bound_line(f"{sentence}." if dot else line, SUMMARY_LENGTH_MAX)


class _Words:
    """Evaluates the few words that a template may have beside references."""

    def evaluate(self, expression: str, scope: Scope) -> Json:
        """Return the key that *expression* names."""
        return cast("Json", scope[expression])

    def check_arguments(self, tool: str, arguments: Json) -> str | None:  # noqa: ARG002 - not asked here
        """Return None: what is sent is checked by the server."""
        return None


_WORDS = _Words()


def _render(template: Template, scope: Scope) -> Json:
    try:
        return render(template, scope, _WORDS)
    except ExpressionError as error:
        raise Rejected(bound_line(str(error)), code="bad_arguments") from None


def _render_arguments(template: Template, scope: Scope) -> dict[str, Json]:
    """Return the arguments, without those that stand for one that wasn't given."""
    if not isinstance(template, MapOf):
        return cast("dict[str, Json]", _render(template, scope))
    given = cast("Mapping[str, Json]", scope["args"])
    return {name: _render(child, scope) for name, child in template.entries if not _is_left_out(child, given)}


def _is_left_out(template: Template, given: Mapping[str, Json]) -> bool:
    is_argument = isinstance(template, Reference) and template.path[0] == "args" and len(template.path) == 2
    return is_argument and isinstance(template, Reference) and template.path[1] not in given


def _find(template: Template, scope: Scope) -> Json:
    """Return what *template* leads to in an answer; None where it leads nowhere."""
    if isinstance(template, Reference):
        try:
            return follow_path(template, scope[str(template.path[0])])
        except ExpressionError:
            return None
    return _render(template, scope)


def _has_something(value: Json) -> bool:
    return value not in (None, False, "", [], {})


def _write_numbers(value: Json) -> object:
    """Return *value* as the library writes it to the wire; raises Rejected for a decimal that would change there."""
    if isinstance(value, Decimal):
        number = float(value)
        if Decimal(repr(number)) != value:
            raise Rejected(f"{value} can't be sent exactly", code="bad_arguments")
        return number
    if isinstance(value, dict):
        return {name: _write_numbers(member) for name, member in value.items()}
    return [_write_numbers(item) for item in value] if isinstance(value, list) else value
