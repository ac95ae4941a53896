"""States as values: nothing that makes a difference is missing from the key, and a copy shares nothing."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

from tests.core.builders import Play, saga
from tests.core.exploration.folding import HELD, copy_state, key_of
from tests.core.exploration.telling import begin_reading, copy_reading, tell


def test_the_key_holds_every_field_of_a_state_but_those_that_it_says_it_leaves_out() -> None:
    """V0: a field that is new must be added to the key, or states that differ would count as one."""
    for kind, (make_key, left_out) in HELD.items():
        text = inspect.getsource(make_key)
        for field in fields(kind):
            is_held = re.search(rf"\.{field.name}\b", text) is not None
            assert is_held != (field.name in left_out), f"{kind.__name__}.{field.name}"


def test_a_copy_of_a_state_is_equal_and_goes_its_own_way() -> None:
    """V0: what is folded into a copy changes nothing of the state that it was made from."""
    play = Play(saga("a -> [b | c] -> d"))
    play.run({"d": ["reject"], "b'": ["reject"]})
    before = copy_state(play.state)
    assert before == play.state
    assert key_of(play.saga, before, play.now) == key_of(play.saga, play.state, play.now)
    copy = Play(saga("a -> [b | c] -> d"))
    copy.turn()
    kept, key = copy_state(copy.state), key_of(copy.saga, copy.state, 0)
    copy.answer("a", "ok")
    assert key_of(copy.saga, kept, 0) == key
    assert key_of(copy.saga, copy.state, 0) != key


def test_a_copy_of_a_reading_goes_its_own_way() -> None:
    """V0: what the judge is told on one path it doesn't know on another."""
    play = Play(saga("a -> b"))
    play.run({})
    reading = begin_reading(play.saga)
    for record in play.records[:3]:
        reading.read_one(tell(record), 1)
    copy = copy_reading(reading)
    for record in play.records[3:]:
        copy.read_one(tell(record), 1)
    assert copy.ended is not None
    assert not copy.findings
    assert reading.ended is None
    assert reading.seq == 3
    assert reading.known[("a", None, "action")].is_open
