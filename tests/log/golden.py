"""Runs of the shipped sagas, written into a real log under a virtual clock, and taken up again from one.

What a release wrote is kept as it lay in its database, so that every later release reads it: see `test_golden_logs`.
Nothing here is drawn or asked for: a clock, ids and answers are given, so the same release writes the same log again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sagactl import open_project
from sagactl.core.canonical import Json, canonical, parse
from sagactl.core.definition import read_definition, take_snapshot
from sagactl.core.evolve import replay
from sagactl.core.records import Resolution, Verb
from sagactl.core.saga import Approval, Saga
from sagactl.core.state import RunState, call_of
from sagactl.core.summary import Summary, step_rows, summarize
from sagactl.core.world import AskProbe, MakeCall, Rest
from sagactl.log.base import Batch, Lease, Log, NewRun
from sagactl.log.memory import MemoryLog
from sagactl.log.migrate import APPLICATION_ID, SCHEMA_VERSION
from sagactl.log.sqlite import SqliteLog
from tests.core.builders import Plain, Play, operation, spell
from tests.log.samples import HOLDER, OTHER, Time

ROOT = Path(__file__).parent.parent.parent
STORE_ID = "c0ffee" + "0" * 26
INPUTS: dict[str, dict[str, Json]] = {
    "onboarding": {"email": "ada@example.com", "amount": 4900, "servers": ["web", "db"], "card": "ok"},
    "diamond": {"email": "ada@example.com", "amount": 4900, "servers": ["web", "db", "cache"], "card": "ok"},
    "migration": {
        "version": "1.2.0", "database": "/srv/app.db", "site": "/srv/site", "source": "build", "expand": "ALTER …",
        "revert": "ALTER …", "contract": ["DROP …"], "question": "SELECT 1", "answer": [[1]],
    },
    "release": {
        "version": "1.2.0", "repository": ".", "remote": "origin", "branch": "main", "build": ["make"],
        "artefact": "dist/a.tar.gz", "store": "/srv/releases", "notes": "better", "pass_env": [],
    },
}  # fmt: skip


class Kept(Play):
    """A run whose records go into a log as they come, each answer and what follows it in one transaction."""

    def __init__(self, log: Log, time: Time, lease: Lease, saga: Saga) -> None:
        self.log, self.time, self.lease, self.saga = log, time, lease, saga
        self.records = [each.record for each in log.read(lease.run_id)]
        self.state: RunState = replay(saga, self.records)
        self.written = len(self.records)
        self.now, self.slots = time.wall, 8
        self.draw = lambda floor, ceiling: (floor + ceiling) // 2
        self.evaluator = Plain()
        self.missing, self.no_secrets = frozenset(), frozenset()
        self.under_way, self.calls, self.requests, self.last = {}, [], 0, None

    def turn(self) -> Any:
        """Decide, and make durable what came of it."""
        found = super().turn()
        self.time.wall = max(self.time.wall, self.now)
        if self.written == len(self.records):
            return found
        batch = Batch(
            self.lease,
            self.written,
            tuple(self.records[self.written :]),
            summarize(self.saga, self.state),
            releases=isinstance(found.then, Rest),
        )
        assert self.log.append([batch]) == [], "nobody else drives it"
        self.written = len(self.records)
        return found

    def answer(self, name: str, word: str, **fields: Any) -> Any:
        """Answer a call; one that succeeds returns what its tool's schema asks for."""
        call = self.under_way[operation(name)]
        if word == "ok" and "output" not in fields:
            tool = call.intent.tool if isinstance(call, MakeCall) else call_of(self.saga, operation(name)).tool
            fields["output"] = make_sample(dict(self.saga.tools[tool].output_schema), name)
        return super().answer(name, word, **fields)

    def ask(self, verb: Verb, name: str | None = None, **fields: Any) -> Any:
        """Let an operator ask, who takes the lease of a run that rests."""
        if self.last is not None and isinstance(self.last.then, Rest):
            self.lease = self.log.claim(self.lease.run_id, holder=self.lease.holder)
            self.records = [each.record for each in self.log.read(self.lease.run_id)]
            self.state, self.written = replay(self.saga, self.records), len(self.records)
        return super().ask(verb, name, **fields)

    def come_to(self, name: str, words: Mapping[str, Iterable[str]] | None = None) -> None:
        """Answer until the call of *name* is under way, and leave it so."""
        script = {each: list(given) for each, given in (words or {}).items()}
        self.turn()
        while name not in (place := [self._name_of(op) for op in self.under_way]):
            assert place, f"{name} is never called"
            left = script.get(place[0], ["ok"])
            self.now += 10
            self.answer(place[0].rstrip("?"), left.pop(0) if len(left) > 1 else left[0])

    def _name_of(self, op: Any) -> str:
        return spell(op) + ("?" if isinstance(self.under_way[op], AskProbe) else "")


def make_sample(schema: Mapping[str, Any], name: str) -> Json:
    """Return a value that fits *schema*, the same each time."""
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        return {key: make_sample(child, f"{name}.{key}") for key, child in schema.get("properties", {}).items()}
    samples: dict[str | None, Json] = {"integer": 7, "number": 7, "boolean": True, "array": [], "null": None}
    return samples.get(kind, name)


def load_sagas() -> dict[str, Saga]:
    """Return the shipped sagas, and one whose contract a person must agree to."""
    with closing(open_project(ROOT)) as project:
        sagas = {name: project.load_saga(project.find_saga(name)).saga for name in LAST_BEFORE}
    onboarding = sagas["onboarding"]
    lead, contract = onboarding.by_id["lead"], onboarding.by_id["contract"]
    steps = (lead, replace(contract, needs=("lead",), approval=Approval(by=("eva",))))
    names = ("crm.create_lead", "crm.archive_lead", "crm.find_lead", "crm.sign_contract", "crm.find_contract")
    tools = {name: onboarding.tools[name] for name in names if name in onboarding.tools}
    return {**sagas, "agreed": replace(onboarding, name="agreed", steps=steps, tools=tools, output=None)}


@dataclass(frozen=True)
class Scene:
    """What happens to a run of a saga until it is left."""

    name: str
    saga: str
    play: Callable[[Kept], object]


def _ask(verb: Verb, name: str | None = None, **fields: Any) -> Callable[[Kept], object]:
    return lambda play: play.ask(verb, name, **fields)


def _then(*acts: Callable[[Kept], object]) -> Callable[[Kept], object]:
    def play(run: Kept) -> None:
        for act in acts:
            act(run)

    return play


def _run(**words: list[str]) -> Callable[[Kept], object]:
    named = {name.replace("_undo", "'").replace("_probe", "?"): given for name, given in words.items()}
    return lambda play: play.run(named)


LAST_BEFORE = {"onboarding": "contract", "diamond": "contract", "migration": "switch", "release": "publish"}
FIRST = {"onboarding": "lead", "diamond": "lead", "migration": "expand", "release": "tag"}


def list_scenes(sagas: Mapping[str, Saga]) -> Iterator[Scene]:
    """Yield what is kept: each end, each way of waiting, and a run left in each call that there is."""
    for saga, pivot in LAST_BEFORE.items():
        first = FIRST[saga]
        yield Scene("succeeded", saga, _run())
        yield Scene("rolledback", saga, _run(**{pivot: ["reject"]}))
        yield Scene("undofailed", saga, _run(**{pivot: ["reject"], f"{first}_undo": ["reject"]}))
        yield from _list_in_flight(saga, pivot, sagas)
    yield Scene("cancelled", "diamond", _then(lambda play: play.turn(), _ask(Verb.CANCEL), _run()))
    yield Scene("pivotindoubt", "onboarding", _run(contract=["lost"], contract_probe=["dunno"]))
    terminate = _then(lambda play: play.come_to("contract"), _ask(Verb.TERMINATE), _run())
    yield Scene("terminated", "diamond", terminate)
    yield Scene("forwardstuck", "onboarding", _run(welcome=["reject"]))
    skipped = _then(_run(announce=["reject"]), lambda play: play.resolve("announce", Resolution.SKIP), _run())
    yield Scene("skipped", "release", skipped)
    retrying = _then(lambda play: play.come_to("welcome"), lambda play: play.answer("welcome", "retry"))
    yield Scene("retrying", "onboarding", retrying)
    yield Scene("waiting", "agreed", _run())
    yield Scene("denied", "agreed", _then(_run(), _ask(Verb.DENY, "contract"), _run()))
    yield Scene("paused", "onboarding", _then(lambda play: play.come_to("deposit"), _ask(Verb.PAUSE)))


def _list_in_flight(saga: str, pivot: str, sagas: Mapping[str, Saga]) -> Iterator[Scene]:
    """Yield a run left in each of its calls; of other sagas than one, in those that no other call stands for.

    What is kept stays for ever, so it is kept small.
    """
    for words in ({}, {pivot: ["reject"]}):
        calls = [name for name in rehearse(sagas[saga], INPUTS[saga], words) if name.endswith("'") or not words]
        chosen = {FIRST[saga], "deposit", pivot, calls[0], calls[-1]} if saga != "onboarding" else set(calls)
        for place, name in enumerate(calls):
            if name not in chosen:
                continue
            title = f"in{name.replace(chr(39), 'undo').replace('[', '').replace(']', '')}".replace("_", "")
            yield Scene(f"{title}{place}", saga, partial(Kept.come_to, name=name, words=words))


def rehearse(saga: Saga, data: Json, words: Mapping[str, list[str]]) -> list[str]:
    """Return the calls of a run in order."""
    time = Time()
    play = begin(MemoryLog(lease_clock=time.clock()), time, saga, "rehearsal", data)
    play.run(words)
    return [name for name in play.calls if not name.endswith("?")]


def begin(log: Log, time: Time, saga: Saga, run_id: str, data: Json) -> Kept:
    """Create a run and return it."""
    new = NewRun(run_id, saga.name, take_snapshot(saga), data, "ada", key=run_id, deadline_ms=time.wall + 3_600_000)
    creation = log.create(new, holder=HOLDER)
    assert creation.lease is not None
    return Kept(log, time, creation.lease, saga)


def take_up(log: Log, time: Time, run_id: str) -> Kept:
    """Claim a run whose driver is dead, and return it under the definition that it was kept with."""
    lease = log.claim(run_id, holder=OTHER)
    return Kept(log, time, lease, read_definition(log.definition(log.row(run_id).definition)))


def describe(log: Log, run_id: str) -> dict[str, Json]:
    """Return where a run stands, as later releases must see it too."""
    saga = read_definition(log.definition(log.row(run_id).definition))
    state = replay(saga, [each.record for each in log.read(run_id)])
    summary = summarize(saga, state)
    told: Json = parse(canonical(_plain(summary)))
    rows: list[Json] = [
        [row.id, row.item, row.status.value, row.attempts, row.undo_attempts] for row in step_rows(saga, state)
    ]
    assert isinstance(told, dict)
    return {**told, "steps": rows}


def _plain(summary: Summary) -> dict[str, Json]:
    """Return a summary without what says nothing, so that what is kept stays small."""
    found = asdict(summary)
    return {name: value for name, value in found.items() if value not in (None, 0, (), [], False)}


def go_on(log: Log, time: Time, run_id: str) -> dict[str, Json]:
    """Let another driver take a run up, a minute after, and bring it to its end; return the end and the calls."""
    time.wall = log.row(run_id).updated_at_ms + 60_000
    play = take_up(log, time, run_id)
    play.run()
    summary = play.summary
    return {"status": summary.status.value, "cause": summary.cause, "calls": list(play.calls)}


def write(folder: Path) -> tuple[str, list[dict[str, Json]]]:
    """Write a log with all scenes; return its database as text, and what is known of each run."""
    path, time = folder / "written.db", Time()
    sagas = load_sagas()
    known: list[dict[str, Json]] = []
    with closing(SqliteLog(path, lease_clock=time.clock())) as log:
        for number, scene in enumerate(list_scenes(sagas)):
            run_id = f"r{number:02}"
            time.wall = 1_000_000
            scene.play(begin(log, time, sagas[scene.saga], run_id, INPUTS.get(scene.saga, INPUTS["onboarding"])))
            known.append({"run": run_id, "scene": f"{scene.saga} {scene.name}", "stands": describe(log, run_id)})
    text = dump(path)
    time.dead.add(HOLDER)
    restore(text, folder / "again.db")
    with closing(SqliteLog(folder / "again.db", lease_clock=time.clock())) as log:
        for each in known:
            each["ends"] = go_on(log, time, str(each["run"]))
    return text, known


def dump(path: Path) -> str:
    """Return a database as SQL, with the numbers that say whose and of which schema it is."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'store_id'", (STORE_ID,))
        connection.commit()
        head = f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {SCHEMA_VERSION};\n"
        return head + "\n".join(connection.iterdump()) + "\n"


def restore(text: str, path: Path) -> None:
    """Make the database that *text* tells of."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(text)
