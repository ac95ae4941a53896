"""What came of a check: for each tool and rule whether it holds, and what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from sagactl.conformance.rules import Rule
from sagactl.dataclass import dataclass


class Verdict(StrEnum):
    """What is to be said of a rule and a tool; a later one outweighs those before it."""

    HOLDS = "holds"
    NOT_PROMISED = "not_promised"
    """The tool says itself that it doesn't keep the rule, and the engine acts on that."""
    UNTRIED = "untried"
    EXCUSED = "excused"
    """Broken, and the check file says why that can't be helped."""
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict on one rule; `seen` is what was seen, or why it wasn't tried or isn't promised."""

    rule: Rule
    verdict: Verdict
    seen: str = ""


@dataclass(frozen=True, slots=True)
class ToolReport:
    """All findings about one tool, in the order of the rules; a rule that doesn't concern it isn't among them."""

    tool: str
    plugin: str
    file: str = ""
    line: int = 0
    compensation: str | None = None
    probe: str | None = None
    findings: Mapping[Rule, Finding] = field(default_factory=dict)
    took_ms: int = 0
    """How long all of its cases took."""

    def count(self, verdict: Verdict) -> int:
        """Return how many rules have that verdict."""
        return sum(each.verdict is verdict for each in self.findings.values())


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What came of all tools; `notes` are what else went wrong, such as a tear-down."""

    tools: tuple[ToolReport, ...]
    notes: tuple[str, ...] = ()

    def count(self, verdict: Verdict) -> int:
        """Return how many findings have that verdict."""
        return sum(each.count(verdict) for each in self.tools)

    @property
    def is_tried(self) -> bool:
        """Tell whether a rule of any tool was tried at all."""
        tried = (Verdict.HOLDS, Verdict.BROKEN, Verdict.EXCUSED)
        return any(self.count(verdict) for verdict in tried)

    def is_good(self, *, strict: bool) -> bool:
        """Tell whether something was tried and nothing is broken; *strict* wants all of it tried."""
        return self.is_tried and not self.count(Verdict.BROKEN) and not (strict and self.count(Verdict.UNTRIED))
