"""Arguments against the schema of their tool, as far as they are known before anything runs (rule F5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from sagactl.core.canonical import Json
from sagactl.core.keys import SECRET_MARK
from sagactl.core.saga import ToolFacts
from sagactl.core.template import Literal, Path, TemplateSyntaxError, parse_template
from sagactl.dataclass import dataclass
from sagactl.spec.expressions import PlacedExpression
from sagactl.spec.fit import Budget, Hole, Misfit, Open, TooComplexError, find_misfits
from sagactl.spec.schema_types import NoSuchFieldError, Typed, Types, descend
from sagactl.written.findings import Findings
from sagactl.written.positions import Entry, ListNode, MapNode, Node, Scalar
from sagactl.written.source import Span
from sagactl.written.suggest import NAMES_SHOWN_MAX
from sagactl.written.visible import quote

COMPARISONS_MAX: Final = 1_000_000
"""For all arguments of one file together; what is left over is checked before the call, as everything is."""

TypesOf: TypeAlias = "Callable[[PlacedExpression], Types | None]"


CODE_MEDIA_TYPE: Final = "text/x-shellscript"
"""The `contentMediaType` by which the schema of a tool marks an argument that is run as a program."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """A `with` and what it is for; `span` is where to point when an argument is missing.

    `handed` is, of an undo, where in the action's arguments (`args`) secrets stand.
    """

    facts: ToolFacts
    arguments: Node
    expressions: tuple[PlacedExpression, ...]
    span: Span
    handed: tuple[Path, ...] = ()

    @property
    def secrets(self) -> tuple[Path, ...]:
        """List where in the arguments secrets stand."""
        return tuple(each.within for each in self.expressions if any(path[0] == "secrets" for path in each.paths))


def check_arguments(site: CallSite, types_of: TypesOf, budget: Budget, findings: Findings) -> None:
    """Note the arguments that are missing, unknown, or can't fit."""
    for entry in _reserved_keys(site.arguments):
        message = f"{SECRET_MARK} is how the log notes a secret; no argument has such a key"
        findings.error("reserved-key", message, entry.key_span, hint='write "${{ secrets.NAME }}"')
    _refuse_code(site, findings)
    holes = {each.within: _hole(each, types_of) for each in site.expressions}
    value = _open(site.arguments, (), holes)
    try:
        misfits = find_misfits(value, site.facts.arguments_schema, budget=budget)
    except TooComplexError:
        return
    for misfit in misfits:
        _report(misfit, site, findings)


def _refuse_code(site: CallSite, findings: Findings) -> None:
    """Note expressions in what a tool runs as a program: whoever chooses their values would choose what runs."""
    for placed in site.expressions:
        typed = Typed.of(site.facts.arguments_schema)
        try:
            for step in placed.within:
                typed = descend(typed, step)
        except NoSuchFieldError:
            continue
        schema = typed.resolve().schema
        if isinstance(schema, dict) and schema.get("contentMediaType") == CODE_MEDIA_TYPE:
            message = (
                f"{spell_argument(placed.within)} of {site.facts.name} is a program: what an expression gives would run"
            )
            hint = 'hand the value over in env, and write "$NAME" in the program'
            findings.error("code-place", message, placed.span, hint=hint)


def _hole(placed: PlacedExpression, types_of: TypesOf) -> Hole:
    found = types_of(placed)
    return Hole(found if placed.is_whole else frozenset({"string"}))


def _open(node: Node, within: Path, holes: Mapping[Path, Hole]) -> Open:
    if within in holes:
        return holes[within]
    if isinstance(node, ListNode):
        return [_open(item, (*within, index), holes) for index, item in enumerate(node.items)]
    if isinstance(node, MapNode):
        return {entry.key: _open(entry.node, (*within, entry.key), holes) for entry in node.entries}
    if isinstance(node.value, str) and "${{" in node.value:
        return _read_literal(node.value)
    return node.value


def _read_literal(text: str) -> Open:
    try:
        template = parse_template(text)
    except TemplateSyntaxError:
        return Hole()
    return template.value if isinstance(template, Literal) else Hole()


def _reserved_keys(node: Node) -> Iterator[Entry]:
    if isinstance(node, ListNode):
        for item in node.items:
            yield from _reserved_keys(item)
    elif isinstance(node, MapNode):
        for entry in node.entries:
            if entry.key == SECRET_MARK:
                yield entry
            yield from _reserved_keys(entry.node)


def _report(misfit: Misfit, site: CallSite, findings: Findings) -> None:
    tool, name = site.facts.name, spell_argument(misfit.path)
    entry, node = _find(site.arguments, misfit.path)
    if misfit.keyword == "required":
        span = site.span if len(misfit.path) == 1 or entry is None else entry.key_span
        hint = _hint_missing(misfit.path)
        findings.error("missing-argument", f"{tool} needs the argument {name}", span, hint=hint)
    elif misfit.keyword == "additionalProperties":
        span = site.span if entry is None else entry.key_span
        message = f"{tool} has no argument {name}"
        hint = f"it has {', '.join(misfit.known[:NAMES_SHOWN_MAX])}" if misfit.known else "it has none"
        word = str(misfit.path[-1])
        findings.unknown("unknown-argument", message, span, word=word, known=misfit.known, hint=hint)
    else:
        span = node.span if node is not None and node.span.start < node.span.end else site.span
        message = f"{name} of {tool} {misfit.message}" if misfit.path else f"the arguments of {tool}: {misfit.message}"
        findings.error("wrong-argument", message, span, hint=_hint_quotes(misfit, node))


def _hint_missing(path: Path) -> str:
    """Say where to write the argument: in its own map, which may lie within others."""
    holder, name = path[-2] if len(path) > 1 else "with", quote(str(path[-1]))
    if isinstance(holder, int):
        return f"add {name}: ... to {spell_argument(path[:-1])}"
    return f"write {quote(holder)}: {{{name}: ...}}"


def _hint_quotes(misfit: Misfit, node: Node | None) -> str | None:
    wants_text = misfit.keyword == "type" and misfit.message.startswith("must be text")
    if wants_text and isinstance(node, Scalar) and node.is_plain and node.raw:
        return f'write it as "{quote(node.raw)}" if it is text'
    return None


def _find(node: Node, path: Path) -> tuple[Entry | None, Node | None]:
    """Return the innermost entry on the way to *path*, and the node there; no node where the way ends early."""
    entry: Entry | None = None
    here: Node | None = node
    for step in path:
        if isinstance(here, MapNode) and (found := here.find(str(step))) is not None:
            entry, here = found, found.node
        elif isinstance(here, ListNode) and isinstance(step, int) and step < len(here.items):
            here = here.items[step]
        else:
            return entry, None
    return entry, here


def spell_argument(path: Path) -> str:
    """Return the name of an argument, or the path to a part of one."""
    first = quote(str(path[0])) if path else ""
    return first + "".join(f"[{step}]" if isinstance(step, int) else f".{quote(step)}" for step in path[1:])


def check_secrets(site: CallSite, declared: Mapping[str, Span], findings: Findings) -> set[str]:
    """Note secrets that are unknown or stand in the wrong place; return the names that are used."""
    used: set[str] = set()
    for placed in site.expressions:
        for path in placed.paths:
            if path[0] == "secrets":
                used.add(str(path[1]) if len(path) > 1 else "")
                _check_secret(path, placed, site, declared, findings)
            elif path[0] == "args":
                _check_handed(path[1:], placed, site, findings)
        _warn_of_input(placed, site, findings)
    return used


def _warn_of_input(placed: PlacedExpression, site: CallSite, findings: Findings) -> None:
    """Note an input that is given where a tool itself expects a secret: it is in the log, and shown."""
    given = next((path for path in placed.paths if path[0] == "input"), None)
    if given is not None and _is_write_only(placed.within, site.facts.arguments_schema, by_name=True):
        where = f"{spell_argument(placed.within)} of {site.facts.name} may be a secret"
        message = f"{where}, and {'.'.join(map(str, given[:2]))} is written to the log as it is, and shown"
        hint = "list it under secrets, and hand it over as ${{ secrets.NAME }}; fine if it holds none"
        findings.warning("stored-secret", message, placed.span, hint=hint)


def _check_secret(
    path: Path, placed: PlacedExpression, site: CallSite, declared: Mapping[str, Span], findings: Findings
) -> None:
    if len(path) != 2:
        findings.error("unknown-secret", "secrets is followed by one name, as in secrets.STRIPE_KEY", placed.span)
        return
    name = str(path[1])
    if name not in declared:
        message = f"the secret {quote(name)} is not listed under secrets"
        findings.unknown(
            "unknown-secret", message, placed.span, word=name, known=declared, hint=f"add secrets: [{name}] to the saga"
        )
    _check_place(path, placed, placed.within, site, findings)


def _check_handed(path: Path, placed: PlacedExpression, site: CallSite, findings: Findings) -> None:
    """Check a reference of an undo to arguments of the action: a secret in them stays one (E19)."""
    for secret in site.handed:
        shared = min(len(path), len(secret))
        if path[:shared] == secret[:shared]:
            _check_place(("args", *path), placed, (*placed.within, *secret[shared:]), site, findings)
            return


def _check_place(path: Path, placed: PlacedExpression, within: Path, site: CallSite, findings: Findings) -> None:
    if not placed.is_whole or path != getattr(placed.found, "path", None):
        message = "a secret must be the whole value: text around it would be written to the log"
        hint = "let the tool add what stands around it, or keep the whole text as the secret"
        findings.error("secret-place", message, placed.span, hint=hint)
    elif not _is_write_only(within, site.facts.arguments_schema):
        message = f"{spell_argument(within)} of {site.facts.name} is not marked writeOnly, so it may not hold a secret"
        findings.error(
            "secret-place", message, placed.span, hint="the schema of the tool says which arguments are secret"
        )


def _is_write_only(path: Path, schema: Mapping[str, Json], *, by_name: bool = False) -> bool:
    """Tell whether what stands at *path* may be a secret; *by_name*: not where any name may, as in an environment."""
    typed = Typed.of(schema)
    for step in path:
        is_listed = isinstance(step, int) or _lists(typed.resolve().schema, step)
        try:
            typed = descend(typed, step)
        except NoSuchFieldError:
            return False
        for each in (typed.schema, typed.resolve().schema):
            if isinstance(each, dict) and each.get("writeOnly") is True:
                return is_listed or not by_name
    return False


def _lists(schema: Json, name: str) -> bool:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return isinstance(properties, dict) and name in properties
