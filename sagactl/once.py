"""A property that is computed once, also where several threads ask for it first at the same moment.

`functools.cached_property` has had no lock since Python 3.12: two threads that come together compute it twice, and one
of the two values is lost. Where the value is what shall be closed one day (a process, a connection, a thread), what was
lost runs on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")
_LOCK_NAME = "_once_lock"


class once_property(Generic[T]):  # noqa: N801 - used as `property` is
    """Make a method an attribute whose value is kept; all such attributes of an object share one lock.

    One lock for all of them, which its holder may take again: they may need each other without waiting for each other.
    A method that raises leaves nothing behind and is asked again. As with `cached_property`, the value is in the
    object's `__dict__` once it is there, and found there without a lock.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """Note under which name the value is kept."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        """Return the value, computed by whoever comes first."""
        if instance is None:
            return self
        kept = vars(instance)
        lock: threading.RLock = kept.setdefault(_LOCK_NAME, threading.RLock())
        with lock:
            if self._name not in kept:
                kept[self._name] = self._compute(instance)
            value: T = kept[self._name]
            return value
