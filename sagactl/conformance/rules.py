"""The rules that a tool is held to, and what to change where one is broken."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Rule(StrEnum):
    """What is tried, in the order of the table."""

    SUCCEEDS = "succeeds"
    SCHEMA = "schema"
    REJECTS = "rejects"
    SAME_KEY = "same-key"
    AT_ONCE = "at-once"
    PROBE = "probe"
    UNDO = "undo"
    UNDO_TWICE = "undo-twice"
    UNDO_LOST_OUTPUT = "undo-lost-output"
    UNDO_NEVER_RAN = "undo-never-ran"
    LATE = "late"
    OTHER_KEY = "other-key"
    READS_ONLY = "reads-only"
    SECRETS = "secrets"
    DEADLINE = "deadline"


class Meaning(NamedTuple):
    """What a rule asks for, and what to change in a tool that breaks it."""

    asks: str
    change: str
    declared: str = ""
    """What to change in a tool that is declared, and has no code here, where that is said otherwise."""

    def change_in(self, file: str) -> str:
        """Return what to change in a tool that stands in *file*."""
        return self.declared if self.declared and file.endswith((".yaml", ".yml", ".json")) else self.change


MEANINGS: Final[Mapping[Rule, Meaning]] = {
    Rule.SUCCEEDS: Meaning(
        "it succeeds with the arguments that are given here, and its output fits its schema",
        "return what the output's schema says, or give arguments with which it can succeed",
    ),
    Rule.SCHEMA: Meaning(
        "arguments that it can't take are refused before it is called",
        "say in its schema what is required and of which type",
    ),
    Rule.REJECTS: Meaning(
        "a call that is rejected has no effect",
        "raise Rejected before anything happens, and only where nothing did",
        "take for rejected only what the server answers before anything happens",
    ),
    Rule.SAME_KEY: Meaning(
        "the same key twice has one effect and the same answer",
        "hand context.idempotency_key to the target, or look for its effect by that key before making it",
        "send ${{ key }} where the server heeds it, or don't declare it idempotent",
    ),
    Rule.AT_ONCE: Meaning(
        "two calls at once with the same key have one effect",
        "let the target refuse a second effect of a key: a unique column, a lock, a file that is made exclusively",
    ),
    Rule.PROBE: Meaning(
        "the probe says done, with the same output, after the effect and under its key alone, and not done before it",
        "look for the effect by context.forward_key, and answer CannotTell where that isn't possible",
        "ask for the effect by ${{ forward_key }}, and take for done and not_done only what says so for certain",
    ),
    Rule.UNDO: Meaning(
        "the compensation takes back all that the action did",
        "undo each effect of the action",
    ),
    Rule.UNDO_TWICE: Meaning(
        "the compensation twice is one undo, and both succeed",
        "let what finds nothing to undo succeed, and take nothing more",
    ),
    Rule.UNDO_LOST_OUTPUT: Meaning(
        "an action whose output was lost is found and undone by its key",
        "find the effect by context.forward_key where the arguments don't name it",
        "find the effect by ${{ forward_key }} where the arguments don't name it",
    ),
    Rule.UNDO_NEVER_RAN: Meaning(
        "the compensation of an action that never ran succeeds and does no harm",
        "let it succeed where there is nothing under context.forward_key, and touch nothing of anybody else",
        "let it succeed where there is nothing under ${{ forward_key }}, and touch nothing of anybody else",
    ),
    Rule.LATE: Meaning(
        "an action that arrives after its compensation is refused, or is found by the probe",
        "leave a mark under context.forward_key that refuses the action, or don't declare it late_safe",
        "don't declare it late_safe unless the server refuses an action whose ${{ forward_key }} was undone",
    ),
    Rule.OTHER_KEY: Meaning(
        "after an undo another key has its effect as before",
        "let what refuses late calls know them by their whole key",
    ),
    Rule.READS_ONLY: Meaning(
        "a tool that is read_only changes nothing",
        "don't declare it read_only, or don't change anything",
    ),
    Rule.SECRETS: Meaning(
        "nothing prints or returns a secret",
        "leave it out of what is printed, returned and raised",
    ),
    Rule.DEADLINE: Meaning(
        "a call ends within its deadline",
        "give each wait a limit of context.seconds_left(), and look at context.cancelled",
        "let the server answer in time, or give the call more with --timeout",
    ),
}
