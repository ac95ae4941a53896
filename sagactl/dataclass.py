"""`dataclass` as in the standard library, for a small part of the time that it takes there.

The standard decorator writes the source of six methods for each class and compiles it at every start: a quarter of the
time of a short run, for about a hundred classes. Here only `__init__` is made that way, and not before the first object
is. Comparing, hashing and showing are functions over all fields at once. And that a class is frozen is for the type
checker, which sees the standard decorator: nothing stops an assignment while the program runs, so that an object is
made in half the time as well.

What plugins receive and programs hand in uses the standard one, so that nobody changes it by mistake.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - what type checkers see
else:
    from dataclasses import MISSING, fields
    from dataclasses import dataclass as _dataclass

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True):
        """Return *cls*, or a decorator, as `dataclasses.dataclass` would, but for the promises above."""

        def make(cls):
            cls.__doc__ = cls.__doc__ or cls.__name__  # without one, the standard decorator spells the signature out
            made = _dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
            made.__init__ = _init_later(made)
            if "__repr__" not in vars(made):
                made.__repr__ = _show
            if eq and "__eq__" not in vars(made):
                names = [each.name for each in fields(made) if each.compare]
                _compare_by(made, attrgetter(*names) if names else type, is_hashable=frozen)
            return made

        return make if cls is None else make(cls)

    def _init_later(cls):
        """Return an `__init__` that, when the first object is made, gives way to the real one."""

        def __init__(self, *values, **named):  # noqa: N807
            cls.__init__ = _write_init(cls)
            cls.__init__(self, *values, **named)

        return __init__

    def _write_init(cls):
        parameters, lines, names = [], [], {"_MISSING": MISSING}
        for each in fields(cls):
            name, value = each.name, each.name
            if each.default_factory is not MISSING:
                names[f"_make_{name}"] = each.default_factory
                parameters += [f"{name}=_MISSING"] if each.init else []
                value = f"_make_{name}() if {name} is _MISSING else {name}" if each.init else f"_make_{name}()"
            elif each.default is not MISSING:
                names[f"_default_{name}"] = each.default
                parameters.append(f"{name}=_default_{name}")
            else:
                parameters.append(name)
            lines.append(f"self.{name} = {value}")
        lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else ["pass"]
        exec(f"def __init__(self, {', '.join(parameters)}):\n " + "\n ".join(lines), names)  # noqa: S102 - ours
        names["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
        return names["__init__"]

    def _compare_by(cls, key, *, is_hashable):
        def __eq__(self, other):  # noqa: N807
            return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

        cls.__eq__ = __eq__
        cls.__hash__ = (lambda self: hash(key(self))) if is_hashable else None

    def _show(self):
        shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"{type(self).__qualname__}({shown})"
