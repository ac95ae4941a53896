"""From a description in OpenAPI 3.0 or 3.1 to a file of declarations, and to what can't be taken over.

A description says how to ask; it doesn't say what undoes what, nor whether a second POST is a second order. So each
operation that changes something comes with a comment for its undo, with the operation that may be it where the paths
suggest one; reading ones are read-only, and named where they may serve as probes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from sagactl.core.canonical import Json
from sagactl.dataclass import dataclass
from sagactl.tools.http.fields import HEADER_NAME, OUR_HEADERS
from sagactl.tools.http.openapi_reading import follow
from sagactl.tools.http.openapi_schemas import Schemas, merge_all_of
from sagactl.tools.http.openapi_security import Access, find_access

METHODS: Final = ("get", "head", "post", "put", "patch", "delete")
OTHER_METHODS: Final = ("options", "trace")
SUMMARY_MAX: Final = 200
ELSEWHERE: Final = "it is described elsewhere"

_WORD_BREAK: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_NAME: Final = re.compile(r"[^a-z0-9]+")
_PLACE: Final = re.compile(r"\{([^{}/]+)\}")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_JSON: Final = re.compile(r"application/(?:[a-z0-9!#$&^_.+-]+\+)?json(?:;.*)?", re.ASCII | re.IGNORECASE)
_TEXT: Final = re.compile(r"text/(?!html).*", re.IGNORECASE)
_KEY_HEADERS: Final = frozenset({"idempotency-key", "x-idempotency-key", "x-request-id", "paypal-request-id"})


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that isn't taken over, and why."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation as a tool: the keys of its declaration, and the lines of comment that go with it."""

    name: str
    method: str
    path: str
    keys: Mapping[str, Json]
    comments: tuple[str, ...] = ()
    access: Access = field(default_factory=Access)


class NotTakenError(Exception):
    """The operation can't be a tool; the message says why."""


class NoOperationError(Exception):
    """No operation has a name that was asked for; the message is the name."""


def find_operations(
    root: Mapping[str, Any], system: str, only: Collection[str] = ()
) -> tuple[list[Operation], list[LeftOut]]:
    """Return the operations of a description as tools of *system*, and what isn't taken over.

    Raises NoOperationError where one of those in *only* isn't there.
    """
    found: list[Operation] = []
    left: list[LeftOut] = [LeftOut("webhooks", "they call you")] if root.get("webhooks") else []
    left += [] if only else [LeftOut(path, ELSEWHERE) for path in _list_elsewhere(root)]
    names: set[str] = set()
    wanted = set(only)
    for path, method, shared, described in _list_operations(root):
        where = f"{method.upper()} {path}"
        plain = name_operation(described, method, path)
        its_names = {plain, f"{system}.{plain}", str(described.get("operationId"))}
        if only and not its_names & set(only):
            continue
        wanted -= its_names
        name = _make_unique(plain, names)
        try:
            found.append(_Reader(root, described, shared, left, where).read(f"{system}.{name}", method, path))
            names.add(name)
        except NotTakenError as error:
            left.append(LeftOut(where, str(error)))
    if wanted:
        raise NoOperationError(", ".join(sorted(wanted)))
    return [_advise(each, found) for each in found], left


def _list_operations(root: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    paths = root.get("paths")
    for path, item in paths.items() if isinstance(paths, dict) else ():
        shared = follow(item, root)
        for method in (*METHODS, *OTHER_METHODS):
            described = shared.get(method) if isinstance(shared, dict) else None
            if isinstance(described, dict):
                yield str(path), method, shared, described


def _list_elsewhere(root: Mapping[str, Any]) -> list[str]:
    paths = root.get("paths")
    items = paths.items() if isinstance(paths, dict) else ()
    return [str(path) for path, item in items if isinstance(item, dict) and follow(item, root) is None]


def make_system(root: Mapping[str, Any], stem: str) -> str:
    """Return the first half of the tools' names: of the title, or of the file."""
    info = root.get("info")
    title = str(info.get("title", "")) if isinstance(info, dict) else ""
    name = slug(re.sub(r"(?i)\b(open)?api\b|\bv?\d[\d.]*\b|\bswagger\b|\b-\b", " ", title)) or slug(stem)
    return name if re.match("[a-z]", name) else f"api_{name}".rstrip("_")


def name_operation(described: Mapping[str, Any], method: str, path: str) -> str:
    """Return the second half of a tool's name: of the operation's id, else of method and path."""
    name = slug(str(described.get("operationId") or f"{method} {path}"))
    return name if re.match("[a-z]", name) else f"{method}_{name}".rstrip("_")


def slug(text: str) -> str:
    """Return *text* as a word of small letters, digits and `_`."""
    return _NOT_NAME.sub("_", _WORD_BREAK.sub("_", text).lower()).strip("_")[:60].strip("_")


def _make_unique(name: str, names: set[str]) -> str:
    number, made = 2, name
    while made in names:
        made, number = f"{name}_{number}", number + 1
    return made


class _Reader:
    """Reads one operation."""

    def __init__(
        self,
        root: Mapping[str, Any],
        described: Mapping[str, Any],
        shared: Mapping[str, Any],
        left: list[LeftOut],
        where: str,
    ) -> None:
        self._root = root
        self._described = described
        self._shared = shared
        self._left = left
        self._where = where
        self._dropped: list[str] = []
        self._schemas = Schemas(root, is_answer=False, dropped=self._dropped)
        self._properties: dict[str, Json] = {}
        self._required: list[str] = []
        self._places: dict[str, dict[str, Json]] = {"query": {}, "headers": {}}
        self._path_names: dict[str, str] = {}
        self._key: str | None = None
        self._comments: list[str] = []

    def read(self, name: str, method: str, path: str) -> Operation:
        if method in OTHER_METHODS:
            raise NotTakenError(f"a tool's request can't be {method.upper()}")
        for parameter in self._list_parameters():
            self._take_parameter(parameter)
        body = self._read_body(method)
        if self._described.get("callbacks"):
            self._skip("its callbacks: they call you")
        if self._described.get("servers") or self._shared.get("servers"):
            self._skip("servers of its own; it asks the server of the file")
        keys: dict[str, Json] = {}
        summary = str(self._described.get("summary") or self._described.get("description") or "")
        if summary.strip():
            keys["description"] = " ".join(summary.split("\n\n", maxsplit=1)[0].split())[:SUMMARY_MAX]
        keys["request"] = f"{method.upper()} {self._write_path(path)}"
        keys |= {place: dict(entries) for place, entries in self._places.items() if entries}
        keys |= body
        if self._properties:
            keys["arguments_schema"] = self._write_arguments()
        keys |= self._read_answer(method)
        for what in dict.fromkeys(self._dropped):
            self._skip(what)
        if self._key is not None and method in {"post", "patch"}:
            keys["key"] = {"header": self._key}
        access = find_access(self._root, self._described)
        return Operation(name, method, path, keys, tuple(self._comments), access)

    def _skip(self, why: str) -> None:
        self._left.append(LeftOut(self._where, why))

    def _list_parameters(self) -> list[Mapping[str, Any]]:
        given = [*_list(self._shared.get("parameters")), *_list(self._described.get("parameters"))]
        found = {}
        for each in given:
            parameter = follow(each, self._root)
            if not isinstance(parameter, dict) or "name" not in parameter:
                raise NotTakenError("a parameter of it is described elsewhere")
            found[str(parameter.get("in")), str(parameter["name"])] = parameter
        return list(found.values())

    def _take_parameter(self, parameter: Mapping[str, Any]) -> None:
        place, name = str(parameter.get("in")), str(parameter["name"])
        is_required = parameter.get("required") is True or place == "path"
        if place == "header" and name.lower() in _KEY_HEADERS:
            self._key = name
            return
        if place == "header" and (name.lower() in OUR_HEADERS | {"authorization", "accept", "content-type"}):
            return
        problem = _object_to(parameter, place, name)
        if problem is not None:
            if is_required:
                raise NotTakenError(problem)
            self._skip(problem)
            return
        argument = self._add(name, place, self._schema_of(parameter), is_required=is_required)
        if place == "path":
            self._path_names[name] = argument
        else:
            self._places["headers" if place == "header" else place][name] = _refer(argument)

    def _schema_of(self, parameter: Mapping[str, Any]) -> dict[str, Json]:
        schema = self._schemas.write(parameter.get("schema", {}))
        text = parameter.get("description")
        if isinstance(text, str) and text.strip() and "description" not in schema:
            schema["description"] = " ".join(text.split())[:SUMMARY_MAX]
        return schema

    def _add(self, name: str, place: str, schema: dict[str, Json], *, is_required: bool) -> str:
        argument = name if name not in self._properties else f"{place}_{name}"
        self._properties[argument] = schema
        if is_required:
            self._required.append(argument)
        return argument

    def _write_path(self, path: str) -> str:
        missing = [name for name in _PLACE.findall(path) if name not in self._path_names]
        if missing:
            raise NotTakenError(f"its path needs {missing[0]}, which isn't described")
        written = _PLACE.sub(lambda found: _refer(self._path_names[found[1]]), path)
        return written if written.startswith("/") else f"/{written}"

    def _write_arguments(self) -> dict[str, Json]:
        schema: dict[str, Json] = {"type": "object", "properties": self._properties, "additionalProperties": False}
        return {**schema, "required": list(self._required)} if self._required else schema

    def _read_body(self, method: str) -> dict[str, Json]:
        body = follow(self._described.get("requestBody"), self._root)
        if body is None and self._described.get("requestBody") is not None:
            raise NotTakenError("its body is described elsewhere")
        content = body.get("content") if isinstance(body, dict) else None
        if not isinstance(body, dict) or not isinstance(content, dict) or not content or method in {"get", "head"}:
            return {}
        is_required = body.get("required") is True
        for kind, described in content.items():
            schema = described.get("schema", {}) if isinstance(described, dict) else {}
            if _JSON.fullmatch(kind):
                return {"json": self._spread(merge_all_of(self._schemas.write(schema)), is_required=is_required)}
            if kind.startswith("application/x-www-form-urlencoded"):
                form = self._spread(merge_all_of(self._schemas.write(schema)), is_required=is_required)
                if isinstance(form, dict):
                    return {"form": form}
            if _TEXT.fullmatch(kind):
                return {"text": _refer(self._add("body", "body", {"type": "string"}, is_required=True))}
        if is_required:
            raise NotTakenError(f"its body is {next(iter(content))}")
        self._skip(f"its body, which is {next(iter(content))}: the tool sends none")
        self._comments.append(f"sends no body: the description has one that is {next(iter(content))}")
        return {}

    def _spread(self, schema: dict[str, Json], *, is_required: bool) -> Json:
        """Return the body made of an argument for each property, or of one argument where it is no plain object."""
        properties, required = schema.get("properties"), schema.get("required")
        is_plain = isinstance(properties, dict) and not schema.keys() & {"anyOf", "oneOf", "not"}
        if not is_plain or not isinstance(properties, dict) or not properties:
            return _refer(self._add("body", "body", schema, is_required=is_required))
        needed = required if isinstance(required, list) and is_required else []
        body: dict[str, Json] = {}
        for name, member in properties.items():
            inner = member if isinstance(member, dict) else {}
            body[name] = _refer(self._add(name, "body", inner, is_required=name in needed))
        return body

    def _read_answer(self, method: str) -> dict[str, Json]:
        responses = self._described.get("responses")
        if not isinstance(responses, dict):
            return {}
        codes = sorted(str(code) for code in responses if str(code).startswith("2"))
        for code in codes:
            answer = follow(responses[code], self._root)
            if answer is None:
                self._skip("its answer, which is described elsewhere")
            content = answer.get("content") if isinstance(answer, dict) else None
            if not isinstance(content, dict) or not content:
                continue
            for kind, described in content.items():
                if _JSON.fullmatch(kind) and isinstance(described, dict):
                    schema = Schemas(self._root, is_answer=True, dropped=self._dropped).write(
                        described.get("schema", {})
                    )
                    # An answer of another status may look otherwise, and one without a body has none.
                    return {"output_schema": schema} if schema and len(codes) == 1 else {}
            if any(_TEXT.fullmatch(kind) for kind in content):
                return {"answer": "text"}
            self._skip(f"its answer, which is {next(iter(content))}")
            return {"answer": "none"}
        return {"answer": "none"} if codes and method != "get" else {}


def _object_to(parameter: Mapping[str, Any], place: str, name: str) -> str | None:
    """Return why a parameter can't be sent, or None."""
    if place not in {"path", "query", "header"}:
        return f"its parameter {name} stands in a {place}"
    if "content" in parameter:
        return f"its parameter {name} is a document of its own"
    style = parameter.get("style", "form" if place == "query" else "simple")
    schema = parameter.get("schema")
    kind = schema.get("type") if isinstance(schema, dict) else None
    if style not in {"form", "simple"} or kind == "object":
        return f"its parameter {name} is written in the style {style}"
    if kind == "array" and (place != "query" or parameter.get("explode", True) is False):
        return f"its parameter {name} is a list in one value"
    if place == "header" and not HEADER_NAME.fullmatch(name):
        return f"its parameter {name} can't be a header"
    return None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _refer(argument: str) -> str:
    plain = _PLAIN_NAME.fullmatch(argument)
    return f"${{{{ args.{argument} }}}}" if plain else f'${{{{ args["{argument}"] }}}}'


def _advise(operation: Operation, others: list[Operation]) -> Operation:
    """Return the operation with what a person has to fill in, and with what the paths suggest."""
    if operation.method in {"get", "head"}:
        return operation
    comments = list(operation.comments)
    if operation.method == "post":
        comments += _propose_undo(operation, others)
    elif operation.method != "delete":
        before = [each.name for each in others if each.path == operation.path and each.method == "get"]
        keep = f": keep what {before[0]} gives before, and put it back" if before else ""
        comments.append(f"undo{keep}")
        comments.append("compensation: ")
    else:
        comments.append("undo: nothing brings back what is deleted, unless there is a tool for it")
        comments.append("compensation: ")
    if operation.method in {"post", "patch"} and "key" not in operation.keys:
        comments.append("idempotent: true   # only if the server heeds Idempotency-Key: then a retry is safe")
    return Operation(
        operation.name, operation.method, operation.path, operation.keys, tuple(comments), operation.access
    )


def _propose_undo(operation: Operation, others: list[Operation]) -> list[str]:
    below = re.compile(re.escape(operation.path.rstrip("/")) + r"/\{([^{}/]+)\}/?")
    undoing = [(each, found[1]) for each in others if each.method == "delete" and (found := below.fullmatch(each.path))]
    asking = [each.name for each in others if each.method == "get" and each.path == operation.path]
    if undoing:
        tool, argument = undoing[0]
        lines = [
            "undo, by its path:",
            f"compensation: {tool.name}",
            _propose_arguments(operation, argument),
        ]
    else:
        lines = ["undo: no operation's path suggests one", "compensation: "]
    if asking:
        lines.append(f"probe: {asking[0]}   # once it says done and not_done, found by ${{{{ forward_key }}}}")
    return lines


def _propose_arguments(operation: Operation, argument: str) -> str:
    found = _find_id(operation, argument)
    if found is None:
        return f"compensation_with: {{{argument}: }}   # which part of the output is it? none has its name"
    path = f"output.{found}" if _PLAIN_NAME.fullmatch(found) else f"output['{found}']"
    return f'compensation_with: {{{argument}: "${{{{ {path} }}}}"}}'


def _find_id(operation: Operation, argument: str) -> str | None:
    """Return the member of the output that is the argument by its name, None where its schema has no such one."""
    schema = operation.keys.get("output_schema", {})
    members = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(members, dict):
        return "id" if isinstance(schema, dict) and schema.get("type", "object") == "object" else None
    wanted = [argument, "id", f"{argument}_id", slug(argument)]
    return next((name for name in wanted if name in members and not set(name) & set("'\"\\")), None)
