"""The world that the simulated tools act on: effects that are there or not, and a ledger of all that ever happened.

It knows nothing of sagactl. A target honours idempotency keys or doesn't, keeps tombstones or doesn't, and its ledger
is ordered: the judge reads from it what really happened, when, and in which order.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Traits:
    """What the target of a step is like."""

    honours_keys: bool
    keeps_tombstones: bool
    finds_by_key: bool
    is_read_only: bool = False
    key_retention_ms: int | None = None
    """After this time the target knows nothing of a key any more, and of what was done under it; None is never."""


@dataclass
class Job:
    """One call of a tool under way at a target."""

    number: int
    step: str
    item: int | None
    direction: str
    attempt: int
    asking: int
    fence: int
    key: str
    forward_key: str
    arguments: str
    has_output: bool
    effect_id: str | None
    deadline_ms: int
    is_probe: bool = False
    has_begun: bool = False
    has_acted: bool = False
    has_ended: bool = False
    answer: dict[str, object] = field(default_factory=dict)


@dataclass
class World:
    """All targets and the ledger; `durable` is told from outside how many records the log holds."""

    traits: dict[str, Traits]
    now_ms: int = 0
    durable: int = 0
    ledger: list[dict[str, object]] = field(default_factory=list)
    effects: dict[str, list[str]] = field(default_factory=dict)
    answered: dict[str, str | None] = field(default_factory=dict)
    tombstones: set[str] = field(default_factory=set)
    seen: dict[str, int] = field(default_factory=dict)
    """When a call under a key first reached its target."""
    forgotten: int = 0
    """How often a target had forgotten a key that it was asked about."""

    def note(self, what: str, job: Job, detail: str | None = None) -> None:
        """Write a line into the ledger."""
        self.ledger.append(
            {
                "n": len(self.ledger),
                "at_ms": self.now_ms,
                "what": what,
                "job": job.number,
                "op": (job.step, job.item, job.direction),
                "attempt": job.attempt,
                "asking": job.asking,
                "fence": job.fence,
                "key": job.key,
                "forward_key": job.forward_key,
                "arguments": job.arguments,
                "has_output": job.has_output,
                "is_probe": job.is_probe,
                "durable": self.durable,
                "detail": detail,
            }
        )

    def begin(self, job: Job) -> None:
        """Note that a call reaches its target."""
        if not job.has_begun:
            job.has_begun = True
            if not job.is_probe:
                self.seen.setdefault(job.key, self.now_ms)
            self.note("begin", job)

    def end(self, job: Job) -> None:
        """Note that a call is over: from here on it can do nothing."""
        if job.has_begun and not job.has_ended:
            self.note("end", job)
        job.has_ended = True

    def act(self, job: Job) -> str | None:
        """Let the effect of *job* happen; return the id that its output names, or None where nothing is there."""
        if job.has_ended or job.has_acted:
            return None
        job.has_acted = True
        self.begin(job)
        return self._do(job) if job.direction == "action" else self._undo(job)

    def _do(self, job: Job) -> str | None:
        traits = self.traits[job.step]
        if traits.is_read_only:
            return f"read-{job.number}"
        if job.forward_key in self.tombstones:
            return None
        if traits.honours_keys and job.key in self.answered and self._knows(job.step, job.key):
            return self.answered[job.key]
        if job.asking > 1 and job.key in self.answered:
            return self.answered[job.key]  # to ask how a job is doing doesn't begin another
        effect = f"e{len(self.ledger)}"
        self.effects.setdefault(job.forward_key, []).append(effect)
        self.answered[job.key] = effect
        self.note("effect", job, effect)
        return effect

    def _knows(self, step: str, key: str) -> bool:
        """Tell whether the target still knows the key; one that it has forgotten is a new one from now on."""
        kept_ms = self.traits[step].key_retention_ms
        if kept_ms is None or self.now_ms < self.seen.get(key, self.now_ms) + kept_ms:
            return True
        self.forgotten += 1
        return False

    def _undo(self, job: Job) -> str | None:
        traits = self.traits[job.step]
        if traits.keeps_tombstones:
            self.tombstones.add(job.forward_key)
        there = self.effects.get(job.forward_key, [])
        finds_all = traits.finds_by_key and self._knows(job.step, job.forward_key)
        gone = list(there) if finds_all else [effect for effect in there if effect == job.effect_id]
        for effect in gone:
            there.remove(effect)
            self.note("undo", job, effect)
        self.answered[job.key] = "undone"
        return "undone"

    def is_there(self, forward_key: str) -> bool:
        """Tell whether an effect of the action with this key is there."""
        return bool(self.effects.get(forward_key))

    def tell_output(self, forward_key: str) -> str | None:
        """Return the id of the effect that is there."""
        there = self.effects.get(forward_key)
        return there[-1] if there else None

    def mend_by_hand(self, job: Job) -> None:
        """A person undoes at the target what sagactl could not."""
        for effect in self.effects.pop(job.forward_key, []):
            self.note("by_hand", job, effect)

    def rebuild(self, ledger: list[dict[str, object]], records_kept: int) -> None:
        """Become the world as it was when the log held *records_kept* records."""
        for line in ledger:
            if int(str(line["durable"])) > records_kept:
                break
            self._redo(line)

    def _redo(self, line: dict[str, object]) -> None:
        self.ledger.append(line)
        self.now_ms = int(str(line["at_ms"]))
        forward_key, key, detail = str(line["forward_key"]), str(line["key"]), str(line["detail"])
        op = line["op"]
        assert isinstance(op, tuple)
        match line["what"]:
            case "effect":
                self.effects.setdefault(forward_key, []).append(detail)
                self.answered[key] = detail
            case "undo" | "by_hand":
                self.effects[forward_key].remove(detail)
                self.answered[key] = "undone"
            case "begin":
                if not line["is_probe"]:
                    self.seen.setdefault(key, self.now_ms)
                if op[2] == "compensation" and self.traits[op[0]].keeps_tombstones:
                    self.tombstones.add(forward_key)
