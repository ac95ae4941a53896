"""What is noted about one tool while it is tried; of several findings about a rule the gravest counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sagactl.conformance.report import Finding, Verdict
from sagactl.conformance.rules import Rule

_GRAVITY: Final = {
    verdict: number
    for number, verdict in enumerate((Verdict.HOLDS, Verdict.UNTRIED, Verdict.NOT_PROMISED, Verdict.BROKEN))
}


class Book:
    """Findings by rule."""

    def __init__(self) -> None:
        self._found: dict[Rule, Finding] = {}

    def note(self, rule: Rule, verdict: Verdict, seen: str = "") -> None:
        """Note a verdict."""
        known = self._found.get(rule)
        if known is None or _GRAVITY[verdict] > _GRAVITY[known.verdict]:
            self._found[rule] = Finding(rule, verdict, seen)

    def hold(self, rule: Rule) -> None:
        """Note that a rule holds, as far as was tried."""
        self.note(rule, Verdict.HOLDS)

    def breach(self, rule: Rule, seen: str) -> None:
        """Note that a rule is broken."""
        self.note(rule, Verdict.BROKEN, seen)

    def require(self, rule: Rule, seen: str) -> bool:
        """Note a breach where something was *seen* that must not be; tell whether the rule holds."""
        self.note(rule, Verdict.BROKEN if seen else Verdict.HOLDS, seen)
        return not seen

    def leave(self, rule: Rule, why: str) -> None:
        """Note why a rule can't be tried."""
        self.note(rule, Verdict.UNTRIED, why)

    def concede(self, rule: Rule, engine: str) -> None:
        """Note that the tool doesn't promise it, and what the engine does."""
        self.note(rule, Verdict.NOT_PROMISED, engine)

    def remark(self, rule: Rule, text: str) -> None:
        """Add something to be known to a rule that holds."""
        if rule in self._found and self._found[rule].verdict is Verdict.HOLDS:
            self._found[rule] = Finding(rule, Verdict.HOLDS, text)

    def finish(self, excused: Mapping[Rule, str]) -> dict[Rule, Finding]:
        """Return the findings in the order of the rules, with the reasons that the check file gives."""
        found = {rule: self._found[rule] for rule in Rule if rule in self._found}
        for rule, reason in excused.items():
            if rule in found and found[rule].verdict in {Verdict.BROKEN, Verdict.UNTRIED}:
                found[rule] = Finding(rule, Verdict.EXCUSED, f"{found[rule].seen}. {reason}")
            elif rule in found and found[rule].verdict is Verdict.HOLDS:
                found[rule] = Finding(rule, Verdict.HOLDS, "the check file excuses it, and it holds")
        return found
