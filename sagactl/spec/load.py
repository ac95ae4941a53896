"""A saga file, from its text to the saga or to all that is wrong with it (rule F5).

Nothing is called, fetched or written. Neither jsonschema nor rich is needed, and CEL only by a saga that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sagactl.core.saga import Saga, ToolFacts
from sagactl.dataclass import dataclass
from sagactl.spec.check import check_saga
from sagactl.spec.classes import Toolset, WhyMissing
from sagactl.spec.shape import read_saga
from sagactl.written.findings import Findings
from sagactl.written.positions import read_yaml
from sagactl.written.problem import InvalidSagaError, Problem
from sagactl.written.source import Source, decode


@dataclass(frozen=True, slots=True)
class Loaded:
    """A saga that can run, what was noticed all the same, and the text for showing it."""

    saga: Saga
    warnings: tuple[Problem, ...]
    source_text: str


def load_saga(
    text: bytes | str, *, file: str, tools: Mapping[str, ToolFacts], why_missing: WhyMissing | None = None
) -> Loaded:
    """Load the saga in *text*; *file* is only its name. Raises InvalidSagaError with every problem.

    *why_missing* is asked about a tool that isn't among *tools*: it returns what keeps the tool from being used and
    the command that mends it, if one does; None where nobody has heard of the tool.
    """
    source, unreadable = decode(text, file)
    findings = Findings(source)
    if unreadable is not None:
        findings.error(unreadable.code, unreadable.message, unreadable.span, hint=unreadable.hint)
        raise _invalid(source, findings)
    root = read_yaml(source, findings)
    draft = None if root is None else read_saga(root, findings)
    saga = None if draft is None else check_saga(draft, Toolset(tools, findings, why_missing), findings)
    if saga is None or findings.has_errors:
        raise _invalid(source, findings)
    return Loaded(saga, findings.sorted(), source.text)


def _invalid(source: Source, findings: Findings) -> InvalidSagaError:
    return InvalidSagaError(source.file, findings.sorted(), source.text)
