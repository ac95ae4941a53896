"""Checking values against JSON Schema 2020-12: compiled once, nothing fetched, no secret quoted.

A schema is refused when it could reach outside (a `$ref` that is no `#...`), when one of its patterns could take for
ever, or when it unfolds to more than `UNFOLDED_MAX` parts. Numbers are exact: decimals are numbers, never integers.
Formats that `formats` knows are checked, others are only notes. In a property marked `writeOnly` a reference to a
secret passes for the secret, and no message quotes what stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from sagactl.core.canonical import Json, NotJsonError, check_nesting, digest
from sagactl.core.keys import SECRET_MARK
from sagactl.schemas.formats import FORMATS
from sagactl.schemas.patterns import UnsafePatternError, compile_pattern, matches
from sagactl.secrets.masking import KNOWN
from sagactl.tools.convert import write_json
from sagactl.tools.explain import explain, join_path, place
from sagactl.tools.simple import compile_simple, is_integer, is_number

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

UNFOLDED_MAX: Final = 20_000
"""Parts of a schema with each local `$ref` replaced by what it points to."""

COMPILED_MAX: Final = 512
"""Compiled schemas that are kept; then the store starts anew."""

PROBLEM_LENGTH_MAX: Final = 200
"""Of what is wrong with a schema that is none."""

Verdict: TypeAlias = "Callable[[Json], str | None]"
"""Takes a value; returns what is wrong in one line, or None."""

_SECRET: Final[dict[str, Json]] = {
    "type": "object",
    "required": [SECRET_MARK],
    "properties": {SECRET_MARK: {"type": "string"}},
    "additionalProperties": False,
}
_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES: Final = frozenset({"enum", "const", "default", "examples", "required", "dependentRequired"})
_by_identity: dict[int, tuple[object, Verdict]] = {}
_by_digest: dict[str, Verdict] = {}


class InvalidSchemaError(ValueError):
    """The schema is none, or one that is refused; the message says which and where."""


def compile_schema(schema: Mapping[str, Any]) -> Verdict:
    """Return the verdict function of *schema*, the same for an equal one; raises InvalidSchemaError."""
    known = _by_identity.get(id(schema))
    if known is not None and known[0] is schema:
        return known[1]
    if len(_by_identity) >= COMPILED_MAX:
        _by_identity.clear()
    verdict = _compile_equal(schema)
    # The schema itself is kept, so that its identity can't become another's.
    _by_identity[id(schema)] = schema, verdict
    return verdict


def _compile_equal(schema: Mapping[str, Any]) -> Verdict:
    try:
        plain = write_json(schema)
        key = digest(plain)
    except NotJsonError as error:
        raise InvalidSchemaError(f"the schema is no JSON: {error}") from None
    if key not in _by_digest:
        if len(_by_digest) >= COMPILED_MAX:
            _by_digest.clear()
        _by_digest[key] = _compile(cast("dict[str, Json]", plain))
    return _by_digest[key]


def _compile(schema: dict[str, Json]) -> Verdict:
    check_schema(schema)
    simple = compile_simple(schema)
    if simple is not None:
        return lambda value: simple(value, "")
    return compile_with_library(schema)


def check_schema(schema: dict[str, Json]) -> None:
    """Refuse what a schema must not do to us: reach outside, run wild in a pattern, unfold without end."""
    try:
        check_nesting(schema)
        _check_parts(schema)
        if _unfold(schema, schema, {}) > UNFOLDED_MAX:
            raise InvalidSchemaError(f"the schema unfolds to more than {UNFOLDED_MAX} parts")
    except (NotJsonError, UnsafePatternError) as error:
        raise InvalidSchemaError(str(error)) from None


def _check_parts(part: Json) -> None:
    if not isinstance(part, dict):
        return
    for keyword in ("$ref", "$dynamicRef"):
        target = part.get(keyword, "#")
        if isinstance(target, str) and not target.startswith("#"):
            raise InvalidSchemaError(f"the schema refers to {target!r}; only `#/...` within itself is followed")
    patterns = part.get("patternProperties")
    for pattern in (part.get("pattern"), *(patterns if isinstance(patterns, dict) else ())):
        if isinstance(pattern, str):
            compile_pattern(pattern)
    for inner in _subschemas(part):
        _check_parts(inner)


def _subschemas(schema: dict[str, Json]) -> Iterator[Json]:
    for keyword, content in schema.items():
        if keyword in _MAPS and isinstance(content, dict):
            yield from content.values()
        elif keyword not in _VALUES:
            yield from content if isinstance(content, list) else (content,)


def _unfold(root: Json, part: Json, known: dict[int, int]) -> int:
    """Count the parts below *part*, each `$ref` as what it points to; a schema that contains itself counts once."""
    if id(part) in known:
        return known[id(part)]
    if not isinstance(part, dict | list):
        return 1
    known[id(part)] = 1
    members = list(part.values()) if isinstance(part, dict) else part
    total = 1 + sum(_unfold(root, member, known) for member in members)
    if isinstance(part, dict) and isinstance(part.get("$ref"), str):
        total += _unfold(root, _point(root, cast("str", part["$ref"])), known)
    known[id(part)] = total
    return total


def _point(root: Json, reference: str) -> Json:
    target = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        target = target.get(name) if isinstance(target, dict) else None
    return target


def compile_with_library(schema: dict[str, Json]) -> Verdict:
    """Return the verdict of jsonschema on *schema*, under our types, formats, patterns and exact arithmetic."""
    validator = _make_validator(schema)
    shows = not _holds_secrets(schema)

    def verdict(value: Json) -> str | None:
        try:
            error = next(iter(validator.iter_errors(cast("Any", value))), None)
        except RecursionError:
            return "the schema contains itself without end"
        except Exception as problem:  # a dangling `$ref` has no one class of error
            return f"the schema can't be applied: {type(problem).__name__}"
        return None if error is None else _explain(error, shows=shows)

    return verdict


def _make_validator(schema: dict[str, Json]) -> Validator:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import extend
    from referencing import Registry

    try:
        Draft202012Validator.check_schema(_write_floats(schema))
    except SchemaError as error:
        where = "/".join(str(step) for step in error.absolute_path) or "its top"
        problem = KNOWN.shorten(error.message, PROBLEM_LENGTH_MAX)
        raise InvalidSchemaError(f"no JSON Schema, at {where}: {problem}") from None
    checker = FormatChecker(formats=())
    for name, known in FORMATS.items():
        checker.checks(name)(lambda value, known=known: not isinstance(value, str) or known(value))
    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: is_integer(value),
            "number": lambda _, value: is_number(value),
        }
    )
    kind = cast("Any", extend)(
        Draft202012Validator,
        {"multipleOf": _check_multiple, "pattern": _check_pattern, "patternProperties": _check_pattern_properties},
        type_checker=types,
    )
    # An empty registry retrieves nothing: neither files nor addresses.
    return cast("Validator", kind(_admit_secrets(schema), registry=Registry(), format_checker=checker))


def _check_multiple(_: Any, step: Any, value: Any, __: Any) -> Any:
    from jsonschema.exceptions import ValidationError

    if is_number(value) and Fraction(value) % Fraction(step):
        yield ValidationError("no multiple")


def _check_pattern(_: Any, pattern: str, value: Any, __: Any) -> Any:
    from jsonschema.exceptions import ValidationError

    if isinstance(value, str) and not matches(compile_pattern(pattern), value):
        yield ValidationError("no match")


def _check_pattern_properties(validator: Any, members: dict[str, Any], value: Any, __: Any) -> Any:
    for pattern, member in members.items():
        for name, content in value.items() if isinstance(value, dict) else ():
            if matches(compile_pattern(pattern), name):
                yield from validator.descend(content, member, path=name, schema_path=pattern)


def _explain(error: ValidationError, *, shows: bool) -> str:
    path = ""
    for step in error.absolute_path:
        path = join_path(path, step)
    keyword, value = str(error.validator), cast("Json", error.instance)
    if keyword == "required" and isinstance(value, dict):
        missing = [name for name in cast("list[str]", error.validator_value) if name not in value]
        return place(path, f"`{missing[0]}` is missing")
    if keyword in {"additionalProperties", "unevaluatedProperties"} and isinstance(value, dict):
        return place(path, "has a property that its schema doesn't know")
    return place(path, explain(keyword, error.validator_value, value, hides=not shows))


def _holds_secrets(part: Json) -> bool:
    return isinstance(part, dict) and (part.get("writeOnly") is True or any(map(_holds_secrets, _subschemas(part))))


def _admit_secrets(part: Json) -> Json:
    """Return the schema in which each part marked `writeOnly` also takes a reference to a secret."""
    if isinstance(part, list):
        return [_admit_secrets(item) for item in part]
    if not isinstance(part, dict):
        return part
    inner = {keyword: _admit_secrets_below(keyword, content) for keyword, content in part.items()}
    return {"anyOf": [inner, _SECRET]} if part.get("writeOnly") is True else inner


def _admit_secrets_below(keyword: str, content: Json) -> Json:
    if keyword in _VALUES:
        return content
    if keyword in _MAPS and isinstance(content, dict):
        return {name: _admit_secrets(member) for name, member in content.items()}
    return _admit_secrets(content)


def _write_floats(part: Json) -> Any:
    """Return the schema as the library's own check of schemas wants it: it knows no decimals."""
    if isinstance(part, Decimal):
        return float(part)
    if isinstance(part, list):
        return [_write_floats(item) for item in part]
    return {key: _write_floats(member) for key, member in part.items()} if isinstance(part, dict) else part
