"""`dataclass` as in the standard library, for a third of the time that it takes there.

The standard decorator writes the source of six methods for each class and compiles it at every start: a quarter of the
time of a short run, for about a hundred classes. Here only `__init__` is made that way. Comparing, hashing and showing
are functions over all fields at once, and that a class is frozen is for the type checker, which sees the standard
decorator: nothing stops an assignment while the program runs, which makes an object in half the time as well.

What programs and plugins receive from us uses the standard one, so that nobody can change it by mistake.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - what type checkers see
else:
    from dataclasses import dataclass as _dataclass
    from dataclasses import fields

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True):
        """Return *cls*, or a decorator, as `dataclasses.dataclass` would, but for the promises above."""

        def make(cls):
            made = _dataclass(repr=False, eq=False, slots=slots)(cls)
            if "__repr__" not in vars(made):
                made.__repr__ = _show
            if eq and "__eq__" not in vars(made):
                names = [each.name for each in fields(made) if each.compare]
                _compare_by(made, attrgetter(*names) if names else type, is_hashable=frozen)
            return made

        return make if cls is None else make(cls)

    def _compare_by(cls, key, *, is_hashable):
        def __eq__(self, other):  # noqa: N807
            return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

        cls.__eq__ = __eq__
        cls.__hash__ = (lambda self: hash(key(self))) if is_hashable else None

    def _show(self):
        shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"{type(self).__qualname__}({shown})"
