"""Open rows: those that a horizon can still make final, by what they wait for.

A row whose group is closed is final although it does not change. Which rows a move of a horizon closes must be found
without looking at all of them: rows are kept by the values that decide (the hour, the game), and these wait in a heap
for a horizon to pass them, or in a table for their key to be closed.

The law: after `advance(horizons)`, no row is open that the horizons make final, and each row was returned by exactly
one `advance`, if it was open before. Cost: by the rows that come, go and close, never by those that stay open.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from whence.subscribe.horizons import HorizonView

Values = tuple[Any, ...]


@dataclass(frozen=True)
class ClosingEvent:
    """Something that may make a row final: a horizon passes one of its deciding values, their key is closed, or nothing
    comes any more at all.

    use     the number of the horizon
    kind    "passes", "closes" or "ends"
    places  which of the deciding values it is about
    passed  returns the value that a horizon has passed everything below of; None for nothing. For "ends" it returns
            whether that is so"""

    use: int
    kind: Literal["passes", "closes", "ends"]
    places: tuple[int, ...] = ()
    passed: Callable[[HorizonView], Any] = lambda horizons: None

    def key(self, values: Values) -> Values:
        """Return the values that it goes by."""
        return tuple(values[place] for place in self.places)

    def has_happened(self, values: Values, horizons: HorizonView) -> bool:
        """Return whether it is so for a row with these deciding values."""
        if self.kind == "closes":
            return horizons.is_closed(self.use, self.key(values))
        passed = self.passed(horizons)
        if self.kind == "ends":
            return bool(passed)
        value = values[self.places[0]]
        return value is not None and passed is not None and bool(value < passed)


class OpenRows:
    """Rows, or whatever stands for them, by the values that decide when they are final.

    >>> from whence.subscribe.horizons import KnownHorizons
    >>> hour = ClosingEvent(0, "passes", (0,), lambda horizons: (horizons.bound(0) or (None,))[0])
    >>> rows = OpenRows([hour], lambda values, _, horizons: hour.has_happened(values, horizons)); rows.add((9,), "a")
    >>> rows.add((10,), "b")
    >>> rows.advance(KnownHorizons({0: (10, False)}))
    ['a']
    """

    def __init__(self, events: Sequence[ClosingEvent], is_final: Callable[[Values, Any, HorizonView], bool]) -> None:
        """`is_final` says whether rows with some deciding values are, of which it is given one; it may only change with
        one of the events."""
        self._events, self._is_final = list(events), is_final
        self._rows: dict[Values, dict[Hashable, int]] = {}
        self._heaps: list[list[tuple[Any, int, Values]]] = [[] for _ in self._events]
        self._keys: list[dict[Values, list[Values]]] = [{} for _ in self._events]
        self._closed = [0] * len(self._events)  # how many closed keys were seen
        self._ended = [False] * len(self._events)
        self._waiting: set[Values] = set()
        self._new: list[Values] = []  # those that do not wait yet
        self._number = count()

    def __len__(self) -> int:
        return sum(sum(rows.values()) for rows in self._rows.values())

    def add(self, values: Values, row: Hashable, times: int = 1) -> None:
        """Add a row; with negative `times`, take it away."""
        rows = self._rows.get(values)
        if rows is None:
            if times <= 0:
                return  # it was final when it came
            rows = self._rows[values] = {}
            if values not in self._waiting:
                self._waiting.add(values)
                self._new.append(values)
        left = rows.get(row, 0) + times
        if left > 0:
            rows[row] = left
        else:
            rows.pop(row, None)
            if not rows:
                del self._rows[values]

    def advance(self, horizons: HorizonView) -> list[Any]:
        """Return the rows that are final by these horizons, each as often as it is there; they are open no more."""
        new, self._new = self._new, []
        found = list[Any]()
        for values in [*new, *self._touched(horizons)]:
            rows = self._rows.get(values)
            if rows is None:
                self._waiting.discard(values)
            elif self._is_final(values, next(iter(rows)), horizons):
                del self._rows[values]
                self._waiting.discard(values)
                found += [row for row, times in rows.items() for _ in range(times)]
        for values in new:
            if values in self._rows:
                self._wait(values, horizons)
        return found

    def is_due(self, horizons: HorizonView) -> bool:
        """Return whether `advance` may find something."""
        if self._new:
            return True
        for place, event in enumerate(self._events):
            if event.kind == "closes":
                closed = horizons.closed_after(event.use, self._closed[place])
                if any(key in self._keys[place] for key in closed):
                    return True
            elif self._is_passed(place, horizons) if event.kind == "passes" else self._is_over(place, horizons):
                return True
        return False

    def _touched(self, horizons: HorizonView) -> list[Values]:
        """Return the deciding values that something has happened to, which they do not wait for any more."""
        found = list[Values]()
        for place, event in enumerate(self._events):
            if event.kind == "passes":
                while self._is_passed(place, horizons):
                    found.append(heapq.heappop(self._heaps[place])[2])
            elif event.kind == "closes":
                closed = horizons.closed_after(event.use, self._closed[place])
                self._closed[place] += len(closed)
                found += [values for key in closed for values in self._keys[place].pop(key, ())]
            elif self._is_over(place, horizons):
                self._ended[place] = True
                found += self._rows
        return found

    def _wait(self, values: Values, horizons: HorizonView) -> None:
        for place, event in enumerate(self._events):
            if event.has_happened(values, horizons):
                continue
            if event.kind == "closes":
                self._keys[place].setdefault(event.key(values), []).append(values)
            elif event.kind == "passes" and (value := values[event.places[0]]) is not None:  # NULL is never passed
                heapq.heappush(self._heaps[place], (value, next(self._number), values))

    def _is_passed(self, place: int, horizons: HorizonView) -> bool:
        heap, passed = self._heaps[place], self._events[place].passed(horizons)
        return bool(heap) and passed is not None and bool(heap[0][0] < passed)

    def _is_over(self, place: int, horizons: HorizonView) -> bool:
        return not self._ended[place] and bool(self._rows) and bool(self._events[place].passed(horizons))
