"""Tools with one mistake each, and sound ones beside them; `tests/chaos` asks whether each mistake is named."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sagactl import CallContext, Done, NotDone, Rejected, Secret, tool

from ._shop import answer, books, find, name_of, note, put, put_another, shelf, take

Thing = Mapping[str, str]
THING = {"thing": "${{ output.thing }}"}


# What is sound


@tool("good.put", compensation="good.take", chaos_safe=True)
def put_well(context: CallContext) -> Thing:
    """Put a thing there once for a key; never after it was taken away."""
    if (books(context) / f"taken-{name_of(context.forward_key)}").exists():
        raise Rejected("it was taken away already", code="taken")
    return answer(put(context, context.idempotency_key))


@tool("good.take", null_safe=True, late_safe=True, chaos_safe=True)
def take_well(context: CallContext) -> Mapping[str, int]:
    """Take it away, found by its key, and leave a mark."""
    (books(context) / f"taken-{name_of(context.forward_key)}").write_text("taken")
    return {"taken": take(context)}


@tool("plain.take", null_safe=True, chaos_safe=True)
def take_plainly(context: CallContext) -> Mapping[str, int]:
    """Take it away, found by its key; a call that comes later isn't refused, and nobody says so."""
    return {"taken": take(context)}


@tool("good.sign", chaos_safe=True)
def sign(context: CallContext) -> Thing:
    """Put a thing there for good: a pivot."""
    return answer(put(context, context.idempotency_key))


# double-effect


@tool("double.put", compensation="double.take", chaos_safe=True)
def put_twice(context: CallContext) -> Thing:
    """Don't care for the key."""
    return answer(put_another(context))


@tool("double.take", null_safe=True, chaos_safe=True)
def take_both(context: CallContext) -> Mapping[str, int]:
    """Take all away."""
    return {"taken": take(context)}


# lost-effect


@tool("forgetful.put", compensation="forgetful.take", chaos_safe=True)
def put_later(context: CallContext) -> Thing:
    """Remember the key before the effect, and not with it."""
    if note(context, "put"):
        return answer("put before")
    put(context, context.idempotency_key)
    return answer("put before")


@tool("forgetful.take", null_safe=True, chaos_safe=True)
def take_later(context: CallContext) -> Mapping[str, int]:
    """Take it away."""
    return {"taken": take(context)}


@tool("deep.put", compensation="forgetful.take", chaos_safe=True)
def put_deeply(context: CallContext) -> Thing:
    """Leave it to another module, whose mistake it is."""
    from ._ledger import put_once

    put_once(context)
    return answer("put")


# left-behind


@tool("half.put", compensation="half.take", chaos_safe=True)
def put_two(context: CallContext) -> Thing:
    """Put two things there."""
    put(context, context.idempotency_key, suffix="-left")
    return answer(put(context, context.idempotency_key, suffix="-right"))


@tool("half.take", null_safe=True, chaos_safe=True)
def take_one(context: CallContext) -> Mapping[str, int]:
    """Take one of them away."""
    things = find(context)[:1]
    for thing in things:
        thing.unlink()
    return {"taken": len(things)}


@tool("torn.put", compensation="cut.take", compensation_with=THING, chaos_safe=True)
def put_in_two_moves(context: CallContext) -> Thing:
    """Put two things there; its undo knows of both together only."""
    put(context, context.idempotency_key, suffix="-left")
    return answer(put(context, context.idempotency_key, suffix="-right"))


@tool("cut.put", compensation="plain.take", probe="cut.find", chaos_safe=True)
def put_and_be_cut(context: CallContext) -> Thing:
    """Put two things there; its probe knows of both together only."""
    put(context, context.idempotency_key, suffix="-left")
    return answer(put(context, context.idempotency_key, suffix="-right"))


@tool("cut.take", null_safe=True, chaos_safe=True)
def take_in_one_move(context: CallContext, thing: str | None = None) -> Mapping[str, int]:
    """Take both away, where both are there."""
    del thing
    return {"taken": take(context) if len(find(context)) == 2 else 0}


@tool("cut.find", read_only=True, chaos_safe=True)
def find_both(context: CallContext) -> Done | NotDone:
    """Say done where both are there."""
    things = find(context)
    return Done({"thing": things[1].name}) if len(things) == 2 else NotDone()


# not-undone-without-word


@tool("silent.put", read_only=True, chaos_safe=True)
def put_silently(context: CallContext) -> Thing:
    """Say that nothing is changed, and put a thing there."""
    return answer(put(context, context.idempotency_key))


# compensation-not-null-safe


@tool("strict.put", compensation="strict.take", chaos_safe=True)
def put_strictly(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("strict.take", null_safe=True, chaos_safe=True)
def take_strictly(context: CallContext) -> Mapping[str, int]:
    """Say that it copes with nothing, and don't; a second call is fine."""
    if not find(context) and not note(context, "taking"):
        (books(context) / f"taking-{name_of(context.idempotency_key)}").unlink()
        raise Rejected("nothing there", code="not_found")
    note(context, "taking")
    return {"taken": take(context)}


@tool("greedy.put", compensation="greedy.take", chaos_safe=True)
def put_greedily(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("greedy.take", null_safe=True, chaos_safe=True)
def take_greedily(context: CallContext) -> Mapping[str, int]:
    """Where there is nothing of one's own, take what others have put there; a second call is fine."""
    if not find(context) and not note(context, "taking"):
        (shelf(context) / "of-somebody-else").unlink(missing_ok=True)
    note(context, "taking")
    return {"taken": take(context)}


# compensation-not-idempotent


@tool("once.put", compensation="once.take", compensation_with=THING, probe="once.find", chaos_safe=True)
def put_once(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("once.take", chaos_safe=True)
def take_once(thing: str, context: CallContext) -> Mapping[str, int]:
    """Fail where it is gone already."""
    place = shelf(context) / thing
    if not place.exists():
        raise Rejected("gone", code="not_found")
    place.unlink()
    return {"taken": 1}


@tool("once.find", read_only=True, chaos_safe=True)
def find_once(context: CallContext) -> Done | NotDone:
    """Find it."""
    things = find(context)
    return Done({"thing": things[0].name}) if things else NotDone()


# compensation-fails


@tool("locked.put", compensation="locked.take", chaos_safe=True)
def put_and_lock(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("locked.take", null_safe=True, chaos_safe=True)
def never_take(context: CallContext) -> Mapping[str, int]:
    """Never take it away."""
    if find(context):
        raise Rejected("it is locked", code="locked")
    return {"taken": 0}


# compensation-does-harm


@tool("wild.put", compensation="wild.take", chaos_safe=True)
def put_wildly(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("wild.take", null_safe=True, chaos_safe=True)
def take_wildly(context: CallContext) -> Mapping[str, int]:
    """Take away what belongs to somebody else, too."""
    if find(context):
        (shelf(context) / "of-somebody-else").unlink(missing_ok=True)
    return {"taken": take(context)}


# undo-needs-output


@tool("needy.put", compensation="needy.take", compensation_with=THING, chaos_safe=True)
def put_needily(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("needy.take", chaos_safe=True)
def take_by_name(thing: str, context: CallContext) -> Mapping[str, int]:
    """Take it away, by what its action returned; twice is fine."""
    (shelf(context) / thing).unlink(missing_ok=True)
    return {"taken": 1}


@tool("bold.put", compensation="bold.take", compensation_with=THING, chaos_safe=True)
def put_boldly(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("bold.take", null_safe=True, chaos_safe=True)
def take_boldly(thing: str, context: CallContext) -> Mapping[str, int]:
    """Be declared null_safe, and take no null."""
    (shelf(context) / thing).unlink(missing_ok=True)
    return {"taken": 1}


# probe-lies


@tool("denied.put", compensation="plain.take", probe="denied.find", chaos_safe=True)
def put_denied(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("denied.find", read_only=True, chaos_safe=True)
def find_never(context: CallContext) -> Done | NotDone:
    """Never find it."""
    del context
    return NotDone()


@tool("claimed.put", compensation="plain.take", probe="claimed.find", chaos_safe=True)
def put_claimed(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("claimed.find", read_only=True, chaos_safe=True)
def find_always(context: CallContext) -> Done | NotDone:
    """Always find it."""
    return Done({"thing": name_of(context.forward_key)})


@tool("misread.put", compensation="plain.take", probe="misread.find", chaos_safe=True)
def put_misread(context: CallContext) -> Thing:
    """Put a thing there."""
    return answer(put(context, context.idempotency_key))


@tool("misread.find", read_only=True, chaos_safe=True)
def find_another(context: CallContext) -> Done | NotDone:
    """Find it, and name another."""
    return Done({"thing": "another"}) if find(context) else NotDone()


# late-effect-after-undo


@tool("late.put", compensation="late.take", chaos_safe=True)
def put_late(context: CallContext) -> Thing:
    """Put a thing there, also after it was taken away."""
    return answer(put(context, context.idempotency_key))


@tool("late.take", null_safe=True, late_safe=True, chaos_safe=True)
def take_without_a_mark(context: CallContext) -> Mapping[str, int]:
    """Be declared late_safe, and leave no mark."""
    return {"taken": take(context)}


# stuck-on-retry, key-refused


@tool("proud.put", compensation="plain.take", chaos_safe=True)
def put_proudly(context: CallContext) -> Thing:
    """Refuse a key that is known."""
    if find(context):
        raise Rejected("it is there already", code="duplicate")
    return answer(put(context, context.idempotency_key))


# never-ends


@tool("hanging.put", compensation="plain.take", chaos_safe=True)
def put_behind_a_lock(context: CallContext) -> Thing:
    """Take a lock that outlives the process."""
    lock = books(context) / f"lock-{name_of(context.idempotency_key)}"
    while lock.exists():
        time.sleep(0.01)
    lock.touch()
    name = put(context, context.idempotency_key)
    lock.unlink()
    return answer(name)


# asks-a-person


@tool("blind.put", compensation="plain.take", idempotent=False, chaos_safe=True)
def put_blindly(context: CallContext) -> Thing:
    """Not be idempotent, and have no probe."""
    return answer(put_another(context))


# effect-not-seen


@tool("far.put", compensation="far.take", chaos_safe=True)
def put_far_away() -> Thing:
    """Do something that nobody sees."""
    return answer("far")


@tool("far.take", null_safe=True, chaos_safe=True)
def take_far_away() -> Mapping[str, int]:
    """Undo it."""
    return {"taken": 1}


# secret-printed


@tool("loud.put", compensation="plain.take", chaos_safe=True)
def put_loudly(key: Secret, context: CallContext) -> Thing:
    """Print what it was trusted with."""
    context.logger.info("using %s", key)
    return answer(put(context, context.idempotency_key))


# What needs a mark, and what shows what there is


@tool("shop.put", compensation="plain.take")
def put_unmarked(context: CallContext) -> Thing:
    """Put a thing there; nobody has said that it is safe."""
    return answer(put_another(context))


@tool("shop.list", read_only=True)
def list_things(context: CallContext) -> Mapping[str, list[str]]:
    """Show what there is."""
    return {"things": sorted(thing.name for thing in shelf(context).iterdir())}


@tool("switch.put", compensation="switch.take", chaos_safe=True)
def switch_on(context: CallContext) -> Thing:
    """Change a thing in place: there is as much after it as before."""
    (context.project / "switch").write_text("1")
    return answer("switch")


@tool("switch.take", null_safe=True, chaos_safe=True)
def switch_off(context: CallContext) -> Mapping[str, int]:
    """Change it back."""
    (context.project / "switch").write_text("0")
    return {"taken": 1}


@tool("stuck.put", compensation="stuck.take", chaos_safe=True)
def switch_on_for_ever(context: CallContext) -> Thing:
    """Change a thing in place."""
    (context.project / "switch").write_text("1")
    return answer("switch")


@tool("stuck.take", null_safe=True, chaos_safe=True)
def switch_elsewhere(context: CallContext) -> Mapping[str, int]:
    """Change it to what it never was, where it was changed."""
    place = context.project / "switch"
    if place.read_text() == "1":
        place.write_text("2")
    return {"taken": 1}
