"""What every saga log must do, whatever it keeps its records in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from sagactl.core.canonical import Json, NotJsonError, canonical
from sagactl.core.records import (
    Cause,
    Direction,
    Disposition,
    DriverClaimed,
    Failure,
    Record,
    RunCreated,
    RunStatus,
    Verb,
)
from sagactl.errors import DamagedLogError, InvalidError, NotFoundError, RefusedError
from sagactl.log.base import CAPTURED_BYTES_MAX, LEASE_MS, Captured, Creation, Lease, Log, RunFilter
from tests.log.samples import (
    HOLDER,
    ITEM,
    LATER,
    OTHER,
    STEP,
    UNDO,
    WAITING,
    Time,
    add,
    answered,
    batch,
    dead,
    ended,
    intent,
    new_run,
    outcome,
    rebind,
    request,
    rollback,
    start,
    summary,
)


class LogContract:
    """The suite; `log` and `time` are fixtures."""

    # Finding runs

    def test_short_ids_are_the_shortest_that_mean_a_run(self, log: Log) -> None:
        """A short id has the least length, or as many characters more as tell it from its neighbours."""
        for run_id in ("aaaaaaaa1", "aaaaaaaa2", "aaaabbbb", "b"):
            log.create(replace(new_run(), run_id=run_id), holder=None)
        ids = ["aaaaaaaa1", "aaaabbbb", "b"]
        assert log.shorten(ids, length_min=4) == {"aaaaaaaa1": "aaaaaaaa1", "aaaabbbb": "aaaab", "b": "b"}
        assert log.shorten([], length_min=4) == {}

    # Creating runs

    def test_create_writes_the_first_two_records(self, log: Log, time: Time) -> None:
        """E1: the first record holds input, definition and who asked; the claim follows in the same transaction."""
        creation = log.create(new_run(key="k1", deadline_ms=77), holder=HOLDER)
        created, claimed = [stored.record for stored in log.read("run1")]
        assert creation == Creation("run1", is_new=True, lease=Lease("run1", 1, HOLDER), records=(created, claimed))
        assert isinstance(created, RunCreated)
        assert (created.input, created.requested_by, created.run_key) == ({"amount": 1200}, "ada", "k1")
        assert (created.at_ms, created.deadline_ms) == (time.wall, 77)
        assert canonical(log.definition(created.definition)) == new_run().definition.text
        assert claimed == DriverClaimed(time.wall, 1, HOLDER, calls_ended=True)

    def test_create_without_a_holder_leaves_the_run_unclaimed(self, log: Log) -> None:
        """A run that is created for others to drive has one record and no holder."""
        creation = log.create(new_run(), holder=None)
        assert creation.lease is None
        assert log.row("run1").holder is None
        assert log.row("run1").seq == 1
        assert log.claim("run1", holder=OTHER) == Lease("run1", 1, OTHER)

    def test_row_of_a_new_run(self, log: Log, time: Time) -> None:
        """The row of a new run says where it stands and who drives it."""
        start(log, key="k1")
        row = log.row("run1")
        assert (row.status, row.direction, row.steps_total, row.steps_done) == (
            RunStatus.RUNNING,
            Direction.ACTION,
            2,
            0,
        )
        assert (row.seq, row.holder, row.key, row.created_at_ms) == (2, HOLDER, "k1", time.wall)
        assert row.head == list(log.read("run1"))[-1].hash

    def test_an_id_is_given_once(self, log: Log) -> None:
        """A second run of the same id is refused, never merged."""
        start(log)
        with pytest.raises(RefusedError) as caught:
            log.create(new_run(input={}), holder=HOLDER)
        assert caught.value.code == "run-exists"

    @pytest.mark.parametrize("changes", [{"run_id": ""}, {"saga": "\ud800"}, {"key": "\udcff"}, {"key": ""}])
    def test_names_that_cannot_be_stored_are_refused(self, log: Log, changes: dict[str, str]) -> None:
        """A run that could not be found again is not created."""
        with pytest.raises(InvalidError):
            log.create(replace(new_run(), **changes), holder=HOLDER)  # type: ignore[arg-type]
        assert log.rows(RunFilter()) == ([], 0)

    # Keys

    @pytest.mark.parametrize("is_explicit", [True, False])
    def test_a_key_makes_the_second_run_the_first(self, log: Log, is_explicit: bool) -> None:
        """E8: a second `run` with the same key and input is the same run, without a lease and without a record."""
        start(log, key="k1", key_is_explicit=is_explicit)
        again = log.create(new_run("run2", key="k1", key_is_explicit=is_explicit), holder=OTHER)
        assert again == Creation("run1", is_new=False, lease=None)
        assert log.rows(RunFilter())[1] == 1
        assert log.row("run1").seq == 2

    def test_a_key_with_another_input_is_refused(self, log: Log) -> None:
        """E8: the same key with another input is an error that names the run."""
        start(log, key="k1")
        with pytest.raises(RefusedError, match="run1") as caught:
            log.create(new_run("run2", key="k1", input={"amount": 1}), holder=HOLDER)
        assert caught.value.code == "key-taken"

    def test_equal_inputs_are_equal_however_written(self, log: Log) -> None:
        """E8: the order of keys in the input makes no other run."""
        start(log, key="k1", input={"a": 1, "b": Decimal("1.50")})
        assert log.create(new_run("run2", key="k1", input={"b": Decimal("1.50"), "a": 1}), holder=None).is_new is False

    def test_keys_of_different_sagas_are_different(self, log: Log) -> None:
        """E8: a key's scope is saga and log."""
        start(log, key="k1")
        assert log.create(new_run("run2", saga="other", key="k1"), holder=None).is_new

    @pytest.mark.parametrize(("is_explicit", "is_free"), [(True, False), (False, True)])
    def test_a_rolled_back_run_frees_its_run_key_only(self, log: Log, is_explicit: bool, is_free: bool) -> None:
        """E8: a run_key is free again after a rollback, an explicit key never."""
        lease = start(log, key="k1", key_is_explicit=is_explicit)
        add(log, lease, rollback(), ended(RunStatus.ROLLED_BACK), status=RunStatus.ROLLED_BACK)
        again = log.create(new_run("run2", key="k1", key_is_explicit=is_explicit), holder=None)
        assert again.is_new is is_free

    @pytest.mark.parametrize("status", [RunStatus.SUCCEEDED, RunStatus.STUCK, RunStatus.TERMINATED])
    def test_other_ends_keep_the_run_key(self, log: Log, status: RunStatus) -> None:
        """E8: only a complete rollback gives a run_key free."""
        lease = start(log, key="k1")
        add(log, lease, ended(status), status=status)
        assert log.create(new_run("run2", key="k1"), holder=None).run_id == "run1"

    def test_a_key_is_literal(self, log: Log) -> None:
        """H19: a key, a saga or a prefix is a value, never a part of a query."""
        odd = "'; DROP TABLE runs; --"
        start(log, key=odd, saga=odd)
        assert log.create(new_run("run2", saga=odd, key=odd), holder=None).run_id == "run1"
        assert log.rows(RunFilter(saga=odd))[1] == 1
        assert log.find("%") == log.find("_") == log.find("\ud800") == []
        assert log.rows(RunFilter(saga="\ud800")) == ([], 0)

    def test_many_at_once_make_one_run(self, log: Log) -> None:
        """C4: however many ask at once with one key, there is one run."""
        results: list[Creation] = []
        threads = [
            threading.Thread(target=lambda n=n: results.append(log.create(new_run(f"run{n}", key="k"), holder=HOLDER)))
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(result.is_new for result in results) == 1
        assert len({result.run_id for result in results}) == 1
        assert log.rows(RunFilter())[1] == 1

    # Appending and reading

    def test_what_is_appended_is_read_back(self, log: Log) -> None:
        """L1: records come back in order, equal, numbered without gaps from 1, each with its own hash."""
        lease = start(log)
        records: list[Record] = [
            intent(arguments={"amount": 10**30, "rate": Decimal("0.10")}),
            outcome(output=["é", None, "\0"]),
        ]
        add(log, lease, *records)
        stored = list(log.read("run1"))
        assert [each.record for each in stored[2:]] == records
        assert [each.seq for each in stored] == [1, 2, 3, 4]
        assert len({each.hash for each in stored}) == 4

    def test_reading_from_the_middle(self, log: Log) -> None:
        """A follower reads on from where it was; past the end there is nothing, and that is no error."""
        add(log, start(log), intent(), outcome())
        everything = list(log.read("run1"))
        for after in range(5):
            assert list(log.read("run1", after_seq=after)) == everything[after:]
        assert list(log.read("run1", after_seq=99)) == []

    def test_a_long_log_is_read_completely(self, log: Log) -> None:
        """B53: nothing is lost at the borders of pages."""
        lease = start(log)
        add(log, lease, *[outcome(at_ms=n) for n in range(2_998)])
        assert [each.seq for each in log.read("run1")] == list(range(1, 3_001))
        add(log, lease, outcome())
        assert [each.seq for each in log.read("run1", after_seq=999)] == list(range(1_000, 3_002))

    def test_a_run_that_is_not_there(self, log: Log) -> None:
        """Each question about an unknown run says that it is unknown."""
        asks: list[Callable[[], object]] = [
            lambda: list(log.read("nope")),
            lambda: log.row("nope"),
            lambda: log.row("\ud800"),
            lambda: log.claim("nope", holder=HOLDER),
            lambda: log.ask("nope", request("q")),
            lambda: log.verify("nope"),
        ]
        for ask in asks:
            with pytest.raises(NotFoundError):
                ask()
        assert log.captured("nope") == []
        assert log.append([batch(Lease("nope", 1, HOLDER), 0, intent())]) == [Lease("nope", 1, HOLDER)]

    def test_the_row_follows_the_records(self, log: Log) -> None:
        """The row says what the batch's summary says, as of its last record."""
        lease = start(log)
        stands = summary(
            RunStatus.WAITING,
            direction=Direction.COMPENSATION,
            cause=Cause.TIMEOUT,
            waiting_for=WAITING,
            failure=Failure("x", "why? \ud800"),
            failed_step="charge",
            steps_done=1,
            dead_letters=2,
            ended_at_ms=88,
        )
        log.append([replace(batch(lease, 2, intent(at_ms=123)), summary=stands)])
        row = log.row("run1")
        assert (row.status, row.direction, row.cause) == (RunStatus.WAITING, Direction.COMPENSATION, Cause.TIMEOUT)
        assert (row.waiting_for, row.waiting_until_ms) == ("timer", 77_000)
        assert (row.failure, row.failed_step) == (Failure("x", "why? ?"), "charge")
        assert (row.steps_done, row.dead_letters, row.ended_at_ms) == (1, 2, 88)
        assert (row.seq, row.updated_at_ms, row.head) == (3, 123, list(log.read("run1"))[-1].hash)

    def test_a_batch_after_the_wrong_record_is_refused(self, log: Log) -> None:
        """L1: a batch that doesn't follow the last record is refused as a whole, and nothing of it is there."""
        lease = start(log)
        assert log.append([batch(lease, 1, intent())]) == [lease]
        assert log.append([batch(lease, 3, intent())]) == [lease]
        assert log.row("run1").seq == 2

    def test_a_refused_batch_harms_no_other(self, log: Log) -> None:
        """E15: of several batches those that hold go through, the others are named."""
        first, second, third = start(log), start(log, "run2"), start(log, "run3")
        old = replace(second, fence=0)
        refused = log.append([batch(first, 2, intent()), batch(old, 2, intent()), batch(third, 2, intent(), outcome())])
        assert refused == [old]
        assert [log.row(run_id).seq for run_id in ("run1", "run2", "run3")] == [3, 2, 4]

    def test_two_batches_of_one_run_follow_each_other(self, log: Log) -> None:
        """A second batch of a run in the same call goes on where the first ended."""
        lease = start(log)
        assert log.append([batch(lease, 2, intent()), batch(lease, 3, outcome())]) == []
        assert log.append([]) == []
        assert [each.seq for each in log.read("run1")] == [1, 2, 3, 4]

    @pytest.mark.parametrize("value", [Decimal("NaN"), "\ud800"])
    def test_a_value_that_has_no_json_form_is_refused(self, log: Log, value: Json) -> None:
        """A record that can't be spelled spoils nothing: the error comes before the transaction."""
        lease = start(log)
        with pytest.raises(NotJsonError):
            log.append([batch(lease, 2, outcome(output=value))])
        add(log, lease, outcome())
        assert log.row("run1").seq == 3

    # Lists

    def test_lists_are_filtered_and_counted(self, log: Log, time: Time) -> None:
        """A list gives the newest first, at most the limit, and says how many there are."""
        for n in range(25):
            time.pass_ms(1_000)
            start(log, f"run{n:02}", saga=f"saga{n % 2}")
        rows, total = log.rows(RunFilter())
        assert (len(rows), total, rows[0].run_id, rows[-1].run_id) == (20, 25, "run24", "run05")
        assert [row.run_id for row in log.rows(RunFilter(limit=2))[0]] == ["run24", "run23"]
        assert len(log.rows(RunFilter(limit=0))[0]) == 25
        assert log.rows(RunFilter(saga="saga1"))[1] == 12
        assert log.rows(RunFilter(since_ms=time.wall - 1_000))[1] == 2
        assert log.rows(RunFilter(until_ms=time.wall - 1_000))[1] == 24
        assert log.rows(RunFilter(statuses=(RunStatus.STUCK,))) == ([], 0)
        assert log.rows(RunFilter(statuses=(RunStatus.STUCK, RunStatus.RUNNING), saga="saga0"))[1] == 13

    def test_what_is_not_at_rest(self, log: Log) -> None:
        """The unfinished runs are those that a driver has something to do for, oldest first."""
        for run_id, status in (
            ("b", RunStatus.RUNNING),
            ("a", RunStatus.WAITING),
            ("c", RunStatus.ROLLING_BACK),
            ("d", RunStatus.STUCK),
            ("e", RunStatus.SUCCEEDED),
            ("f", RunStatus.ROLLED_BACK),
            ("g", RunStatus.TERMINATED),
        ):
            add(log, start(log, run_id), intent(), status=status)
        assert log.unfinished() == ["b", "a", "c"]

    def test_runs_are_found_by_prefix(self, log: Log) -> None:
        """A prefix finds at most ten runs, the newest first."""
        for n in range(12):
            start(log, f"ab{n:02}")
        start(log, "b1")
        assert [row.run_id for row in log.find("ab")] == [f"ab{n:02}" for n in range(11, 1, -1)]
        assert [row.run_id for row in log.find("b1")] == ["b1"]
        assert log.find("ab000") == log.find("z") == []
        assert len(log.find("")) == 10

    # Requests

    def test_a_request_is_kept_until_it_is_answered(self, log: Log) -> None:
        """E22: a request is there, once, until a record says what became of it, and never again after."""
        lease, other = start(log), start(log, "run2")
        first, second = request("q1", Verb.CANCEL, operation=None), request("q2", Verb.RESOLVE, operation=ITEM)
        log.ask("run1", first)
        log.ask("run2", second)
        log.ask("run1", replace(first, who="eve"))
        assert log.requests(["run1", "run2"]) == [("run1", first), ("run2", second)]
        assert log.requests(["run2"]) == [("run2", second)]
        assert log.requests([]) == []
        log.append([replace(batch(lease, 2, answered("q1", Verb.CANCEL)), answered=("q1",)), batch(other, 2, intent())])
        log.ask("run1", first)
        assert log.requests(["run1", "run2"]) == [("run2", second)]

    def test_the_same_request_id_of_two_runs_is_two(self, log: Log) -> None:
        """A request's id counts within its run."""
        start(log)
        start(log, "run2")
        log.ask("run1", request("q"))
        log.ask("run2", request("q"))
        assert len(log.requests(["run1", "run2"])) == 2

    # Dead letters

    def test_a_dead_letter_is_its_record(self, log: Log) -> None:
        """L6: a dead letter opens with the decision, and says which one."""
        lease = start(log)
        add(log, lease, intent(), dead(), dead(ITEM, at_ms=4_100))
        first, second = log.dead_letters()
        assert (first.run_id, first.saga, first.seq, first.operation) == ("run1", "onboarding", 4, STEP)
        assert (first.reason, first.failure) == ("forward_stuck", Failure("unavailable", "the bank is closed"))
        assert (first.opened_at_ms, first.closed_at_ms) == (4_000, None)
        assert second.operation == ITEM
        assert log.dead_letters(run_id="run1") == [first, second]
        assert log.dead_letters(run_id="other") == []

    @pytest.mark.parametrize("verb", [Verb.RETRY, Verb.RESOLVE])
    def test_an_accepted_answer_closes_the_letter(self, log: Log, verb: Verb) -> None:
        """E23: retry and resolve close the letter of that very operation."""
        lease = start(log)
        add(log, lease, dead(), dead(ITEM), dead(UNDO), answered("q", verb, at_ms=6_500))
        assert [letter.operation for letter in log.dead_letters()] == [ITEM, UNDO]
        everything = log.dead_letters(is_open=False)
        assert [letter.closed_at_ms for letter in everything] == [6_500, None, None]

    @pytest.mark.parametrize(
        "record",
        [
            answered("q", disposition=Disposition.REFUSED),
            answered("q", disposition=Disposition.DEFERRED),
            answered("q", Verb.CANCEL),
            answered("q", operation=None),
            answered("q", operation=ITEM),
            outcome(),
        ],
    )
    def test_other_records_close_nothing(self, log: Log, record: object) -> None:
        """E23: a refused request, another verb or another operation leaves a letter open."""
        add(log, start(log), dead(), record)  # type: ignore[arg-type]
        assert [letter.operation for letter in log.dead_letters()] == [STEP]

    @pytest.mark.parametrize("record", [rollback(7_000), ended(RunStatus.TERMINATED, 7_000)])
    def test_turning_back_and_ending_close_all_letters(self, log: Log, record: object) -> None:
        """L6: once the run turned back or ended nobody is asked about its actions any more; other runs' stay."""
        add(log, start(log, "run2"), dead())
        add(log, start(log), dead(), dead(ITEM), record)  # type: ignore[arg-type]
        assert [letter.run_id for letter in log.dead_letters()] == ["run2"]
        assert [letter.closed_at_ms for letter in log.dead_letters(run_id="run1", is_open=False)] == [7_000, 7_000]

    def test_an_operation_has_one_open_letter(self, log: Log) -> None:
        """B67: failing again after a retry opens a new letter; the old one stays as history, one is open all along."""
        lease = start(log)
        for n in range(3):
            add(log, lease, dead(at_ms=n), answered(f"q{n}", at_ms=n))
        add(log, lease, dead(at_ms=9), dead(at_ms=10))
        assert [letter.opened_at_ms for letter in log.dead_letters()] == [9]
        assert [letter.opened_at_ms for letter in log.dead_letters(is_open=False)] == [0, 1, 2, 9]

    # Captured text

    def test_what_calls_print_is_kept_in_order(self, log: Log) -> None:
        """What a call printed is kept beside its record, odd characters included."""
        lease = start(log)
        texts = (Captured(STEP, 1, "hé\0llo\n"), Captured(ITEM, 2, "x\ud800y"), Captured(UNDO, 1, ""))
        log.append([replace(batch(lease, 2, outcome()), captured=texts)])
        assert log.captured("run1") == [texts[0], Captured(ITEM, 2, "x?y")]

    def test_what_calls_print_is_bounded(self, log: Log) -> None:
        """A run keeps so much printed text and no more, cut between characters."""
        lease = start(log)
        half = "é" * (CAPTURED_BYTES_MAX // 4)
        for seq in range(2, 6):
            printed = Captured(STEP, seq, half + "x" if seq == 2 else half)
            log.append([replace(batch(lease, seq, outcome()), captured=(printed,))])
        kept = log.captured("run1")
        assert sum(len(each.text.encode()) for each in kept) == CAPTURED_BYTES_MAX - 1
        assert [each.attempt for each in kept] == [2, 3]

    # Definitions and verification

    def test_an_unknown_definition_is_damage(self, log: Log) -> None:
        """E16: a run's definition must be there; its absence is damage of the log, not an empty saga."""
        with pytest.raises(DamagedLogError):
            log.definition("0" * 64)

    def test_a_run_is_bound_to_another_definition_with_the_record_that_says_so(self, log: Log) -> None:
        """E16: record, definition and row in one transaction; other runs, and the first definition, stay."""
        lease, other = start(log), start(log, "run2")
        first = log.row("run1").definition
        record = rebind(log, lease)
        assert log.row("run1").definition == LATER.digest
        assert [stored.record for stored in log.read("run1", after_seq=2)] == [record]
        assert canonical(log.definition(LATER.digest)) == LATER.text
        assert log.row("run2").definition == first
        assert canonical(log.definition(first)) == new_run().definition.text
        rebind(log, other)
        rebind(log, lease, new_run().definition)
        assert log.row("run1").definition == first
        assert log.verify().findings == ()

    def test_a_refused_batch_binds_nothing(self, log: Log) -> None:
        """E15, E16: a driver that lost its lease can't change a run's definition either."""
        lease = start(log)
        bound = replace(batch(lease, 1, answered("q")), definition=LATER)
        assert log.append([bound]) == [lease]
        assert log.row("run1").definition == new_run().definition.digest

    def test_a_chain_of_definitions_that_does_not_fit_is_noticed(self, log: Log) -> None:
        """E16, L5: each record names the definition that it replaces, and the row the last one."""
        lease = start(log)
        rebind(log, lease, replaces="0" * 64)
        assert [(each.run_id, each.seq) for each in log.verify().findings] == [("run1", 3)]

    def test_a_sound_log_verifies(self, log: Log, time: Time) -> None:
        """A log that went through everything has no findings, and its heads are the rows'."""
        lease = start(log, key="k")
        add(log, lease, intent(), outcome(), dead(), answered("q"), dead(ITEM), rollback())
        time.pass_ms(LEASE_MS)
        lease = log.claim("run1", holder=OTHER)
        add(log, lease, ended(RunStatus.ROLLED_BACK), status=RunStatus.ROLLED_BACK)
        log.release([lease])
        log.create(new_run("run2"), holder=None)
        found = log.verify()
        assert found.findings == ()
        assert (found.runs, found.records) == (2, 11)
        assert found.heads == {run_id: log.row(run_id).head for run_id in ("run1", "run2")}
        only = log.verify("run2")
        assert (only.runs, only.records, only.findings) == (1, 1, ())

    def test_an_empty_log_says_that_it_is_empty(self, log: Log) -> None:
        """An empty log verifies, and is told from a sound one by its counts."""
        found = log.verify()
        assert (found.runs, found.records, found.heads, found.findings) == (0, 0, {}, ())
