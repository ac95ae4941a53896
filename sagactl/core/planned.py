"""A plan as a value: what a run of a saga with an input would call, fit to be kept, shown to a person, and carried out.

Whoever made a plan may be an agent, and its file may have been changed since, so a plan is data and nothing more: it is
read strictly, bounded, and never evaluated. A run that carries it out takes only the input from it; all the rest is
made anew from the saga file and the tools that are there, and must be equal. So a plan can't do anything that `run`
with the same input couldn't, and a plan that a person agreed to is what is run, or nothing is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from sagactl.core.canonical import Json, digest
from sagactl.core.definition import write_definition
from sagactl.core.filled import Filled
from sagactl.core.saga import Saga
from sagactl.dataclass import dataclass

PLAN_FILE_SCHEMA: Final = "sagactl.plan-file/1"
PLAN_BYTES_MAX: Final = 8_388_608
TEXT_LENGTH_MAX: Final = 4_096
DIFFERENCES_MAX: Final = 20
"""How many differences are named."""


class BadPlanError(ValueError):
    """What was read is no plan that sagactl wrote."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan: the saga by its digests, the tools by theirs, the input, and each call as far as it is known."""

    saga: str
    version: str | None
    file: str
    plan_id: str
    """Random: who plans the same once more means another transaction, not the same again."""
    planned_by: str
    definition: str
    """The digest of the definition that a run would be bound to."""
    text_digest: str
    """The digest of the definition without its tools, which tells whether the file or a tool has changed."""
    tools: Mapping[str, Json]
    """Of each tool its version and the digest of its facts."""
    input: Json
    calls: Sequence[Json]

    @property
    def digest(self) -> str:
        """Return the digest of the plan, by which it is known; its id and who planned it are part of it."""
        return digest(self._write_body())

    def _write_body(self) -> dict[str, Json]:
        return {
            "schema": PLAN_FILE_SCHEMA,
            "saga": self.saga,
            "version": self.version,
            "file": self.file,
            "plan_id": self.plan_id,
            "planned_by": self.planned_by,
            "definition": self.definition,
            "text_digest": self.text_digest,
            "tools": dict(self.tools),
            "input_digest": digest(self.input),
            "input": self.input,
            "calls": list(self.calls),
        }

    def write(self) -> dict[str, Json]:
        """Return the plan as JSON; secrets stand in it as references."""
        return {**self._write_body(), "digest": self.digest}


def make_planned(
    saga: Saga, value: Json, filled: Mapping[str, Sequence[Filled]], *, plan_id: str, planned_by: str
) -> Planned:
    """Return the plan of a run of *saga* with the checked input *value*; *filled* are its calls."""
    definition = write_definition(saga)
    tools = cast("Mapping[str, Json]", definition["tools"])
    text: dict[str, Json] = {name: part for name, part in definition.items() if name != "tools"}
    return Planned(
        saga=saga.name,
        version=saga.version,
        file=saga.source or "",
        plan_id=plan_id,
        planned_by=planned_by[:TEXT_LENGTH_MAX],
        definition=digest(definition),
        text_digest=digest(text),
        tools={name: {"version": saga.tools[name].version, "digest": digest(facts)} for name, facts in tools.items()},
        input=value,
        calls=list(_write_calls(saga, filled)),
    )


def _write_calls(saga: Saga, filled: Mapping[str, Sequence[Filled]]) -> Iterator[Json]:
    for step in saga.steps:
        for each in filled.get(step.id, ()):
            yield {
                "step": step.id,
                "item": each.item,
                "tool": step.action.tool,
                "arguments": each.arguments,
                "undo": None if step.compensation is None else step.compensation.tool,
                "undo_arguments": each.undo_arguments,
                "refused": each.objection,
            }


TOOLS_NAMED_MAX: Final = 5
"""Tools that are named of those that changed in the same way."""

_TEXTS: Final = ("saga", "file", "plan_id", "planned_by", "definition", "text_digest")
_FIELDS: Final = frozenset(
    {"schema", *_TEXTS, "version", "tools", "input_digest", "input", "calls", "digest"},
)


def read_planned(document: Json) -> Planned:
    """Build the plan from a file's JSON; raises BadPlanError unless it is one, whole and unchanged."""
    if not isinstance(document, dict) or document.get("schema") != PLAN_FILE_SCHEMA:
        raise BadPlanError(f"it is no plan: its schema is not {PLAN_FILE_SCHEMA}")
    odd = sorted(document.keys() ^ _FIELDS)
    if odd:
        raise BadPlanError(f"{odd[0][:80]!r} is {'missing' if odd[0] in _FIELDS else 'unknown'}")
    body = cast("dict[str, Any]", document)
    for name in _TEXTS:
        if not isinstance(body[name], str) or len(body[name]) > TEXT_LENGTH_MAX:
            raise BadPlanError(f"{name!r} is no text of at most {TEXT_LENGTH_MAX} characters")
    if body["version"] is not None and not isinstance(body["version"], str):
        raise BadPlanError("'version' is no text")
    if not isinstance(body["tools"], dict) or not isinstance(body["calls"], list):
        raise BadPlanError("'tools' is no map, or 'calls' no list")
    planned = Planned(
        **{name: body[name] for name in (*_TEXTS, "version", "tools", "input", "calls")},
    )
    if body["digest"] != planned.digest or body["input_digest"] != digest(planned.input):
        raise BadPlanError("it was changed after it was made: its digest is another")
    return planned


def find_differences(planned: Planned, now: Planned) -> list[str]:
    """Return in what a plan that was made now, of the same saga and input, differs from the one that is to be run."""
    return [
        *([] if planned.saga == now.saga else [f"it is a plan of saga {planned.saga}, not of {now.saga}"]),
        *_compare_tools(planned.tools, now.tools),
        *_compare_texts(planned, now),
        *([] if planned.input == now.input else ["its input has other defaults now"]),
        *_compare_calls(planned.calls, now.calls),
    ]


def _compare_texts(planned: Planned, now: Planned) -> Iterator[str]:
    if planned.text_digest != now.text_digest:
        versions = "" if planned.version == now.version else f" (version {planned.version} -> {now.version})"
        yield f"the saga file changed{versions}"
    elif planned.definition != now.definition and planned.tools == now.tools:
        yield "its definition has another digest"


def _compare_tools(planned: Mapping[str, Json], now: Mapping[str, Json]) -> Iterator[str]:
    """Yield what became of the tools, once for all of which it is the same: those of one plugin change together."""
    alike: dict[str, list[str]] = {}
    for name in sorted({*planned, *now}):
        before, after = planned.get(name), now.get(name)
        if before == after:
            continue
        alike.setdefault(_say_change(before, after), []).append(name)
    for change, names in alike.items():
        more = len(names) - TOOLS_NAMED_MAX
        listed = ", ".join(names[:TOOLS_NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")
        yield f"the tool {listed} {change}" if len(names) == 1 else f"the tools {listed} {_PLURAL.get(change, change)}"


_PLURAL: Final = {"is new": "are new", "is gone": "are gone"}


def _say_change(before: Json, after: Json) -> str:
    if before is None or after is None:
        return "is new" if before is None else "is gone"
    versions = [_version_of(each) for each in (before, after)]
    return "changed" if versions[0] == versions[1] else f"changed (version {versions[0]} -> {versions[1]})"


def _version_of(tool: Json) -> str:
    return str(tool.get("version"))[:80] if isinstance(tool, dict) else "?"


def _compare_calls(planned: Sequence[Json], now: Sequence[Json]) -> Iterator[str]:
    if len(planned) != len(now):
        yield f"{len(planned):,} calls were planned, and it would be {len(now):,}"
    for before, after in zip(planned, now, strict=False):
        if before != after:
            assert isinstance(after, dict), "made just now"
            item = "" if after["item"] is None else f"[{after['item']}]"
            yield f"the call of {after['step']}{item} would be another"
