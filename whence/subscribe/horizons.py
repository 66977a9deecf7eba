"""Horizons: what promises have established as of a position, as a subscriber knows it.

A relation's knowledge (`plan/knowledge.py`) says by which horizons its rows close: which stream's column, and which
keys that a stream closes. It refers to them by number, its *uses*; the names of streams need not be known here.

The law: horizons only grow. A bound never goes back, and a key that is closed stays so. So whoever evaluates with the
horizons of a position, or with older ones, claims nothing that later ones contradict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Key = tuple[Any, ...]
Bound = tuple[Any, bool]
"""A value, and whether it is passed itself: nothing more comes below it, or also at it."""


class HorizonView(Protocol):
    """The horizons of one relation as of a position, by the numbers that its knowledge has for them."""

    def bound(self, use: int) -> Bound | None:
        """Return the value of an ordered column that nothing more comes below; None if nothing is promised."""

    def known_ranges(self, use: int) -> Sequence[tuple[Any, Any]]:
        """Return the ranges of an ordered column, from a first to a last value, that are known beyond the bound: rows
        with these values are here, or do not come."""

    def is_closed(self, use: int, key: Key) -> bool:
        """Return whether no more rows with a key come."""

    def closed_after(self, use: int, count: int) -> Sequence[Key]:
        """Return the keys that were closed, without the first `count` of them."""


class KnownHorizons:
    """Horizons that were received. They do not change: `moved` returns those that follow.

    >>> none = KnownHorizons(); some = none.moved({0: (10, False)}, {1: [("NY",)]})
    >>> some.bound(0), some.is_closed(1, ("NY",)), none.is_closed(1, ("NY",)), some.moved({}, {}) is some
    ((10, False), True, False, True)
    """

    __slots__ = ("_bounds", "_closed", "_ranges")

    def __init__(
        self,
        bounds: Mapping[int, Bound] | None = None,
        closed: Mapping[int, tuple[ClosedKeys, int]] | None = None,
        ranges: Mapping[int, Sequence[tuple[Any, Any]]] | None = None,
    ) -> None:
        self._bounds, self._closed, self._ranges = bounds or {}, closed or {}, ranges or {}

    def bound(self, use: int) -> Bound | None:
        return self._bounds.get(use)

    def known_ranges(self, use: int) -> Sequence[tuple[Any, Any]]:
        return self._ranges.get(use, ())

    def is_closed(self, use: int, key: Key) -> bool:
        found = self._closed.get(use)
        return found is not None and found[0].places.get(key, found[1]) < found[1]

    def closed_after(self, use: int, count: int) -> Sequence[Key]:
        found = self._closed.get(use)
        return () if found is None else found[0].keys[count : found[1]]

    def moved(self, bounds: Mapping[int, Bound], closed: Mapping[int, Sequence[Key]]) -> KnownHorizons:
        """Return these with other bounds, and with more keys closed."""
        if not bounds and not closed:
            return self
        both = dict(self._closed)
        for use, keys in closed.items():
            known, count = both.get(use) or (ClosedKeys(), 0)
            if count < len(known.keys):  # others have gone on from these
                known = ClosedKeys(known.keys[:count])
            known.add(keys)
            both[use] = known, len(known.keys)
        return KnownHorizons({**self._bounds, **bounds}, both, self._ranges)


class ClosedKeys:
    """Keys in the order in which they were closed. Horizons of several positions share one: each knows the first so
    many of it."""

    __slots__ = ("keys", "places")

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        self.keys: list[Key] = []
        self.places: dict[Key, int] = {}
        self.add(keys)

    def add(self, keys: Sequence[Key]) -> None:
        """Add keys that are not there yet."""
        for key in keys:
            if key not in self.places:
                self.places[key] = len(self.keys)
                self.keys.append(key)


NO_HORIZONS = KnownHorizons()
"""Those of whom nothing was promised."""
