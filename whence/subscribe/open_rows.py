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
class ClosingCondition:
    """What must happen before a row is final: a horizon passes one of its deciding values, or their key is closed.

    use     the number of the horizon
    kind    "passes" or "closes"
    places  which of the deciding values
    passed  returns the value up to which, without it, a horizon has passed everything; None if nothing"""

    use: int
    kind: Literal["passes", "closes"]
    places: tuple[int, ...]
    passed: Callable[[HorizonView], Any] = lambda horizons: None

    def key(self, values: Values) -> Values:
        """Return the values that it goes by."""
        return tuple(values[place] for place in self.places)

    def is_met(self, values: Values, horizons: HorizonView) -> bool:
        """Return whether it has happened."""
        if self.kind == "closes":
            return horizons.is_closed(self.use, self.key(values))
        value, passed = values[self.places[0]], self.passed(horizons)
        return value is not None and passed is not None and bool(value < passed)


class OpenRows:
    """Rows, or whatever stands for them, by the values that decide when they are final.

    >>> from whence.subscribe.horizons import KnownHorizons
    >>> hour = ClosingCondition(0, "passes", (0,), lambda horizons: (horizons.bound(0) or (None,))[0])
    >>> rows = OpenRows([hour]); rows.add((9,), "a"); rows.add((10,), "b")
    >>> rows.advance(KnownHorizons({0: (10, False)}))
    ['a']
    """

    def __init__(self, conditions: Sequence[ClosingCondition]) -> None:
        """All of the conditions must be met."""
        self._conditions = list(conditions)
        self._rows: dict[Values, dict[Hashable, int]] = {}
        self._heaps: list[list[tuple[Any, int, Values]]] = [[] for _ in self._conditions]
        self._keys: list[dict[Values, list[Values]]] = [{} for _ in self._conditions]
        self._closed = [0] * len(self._conditions)  # how many closed keys were seen
        self._waiting: set[Values] = set()
        self._new: list[Values] = []  # those whose condition is still to be found
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
        met, self._new = self._new, []
        for place, condition in enumerate(self._conditions):
            if condition.kind == "passes":
                while self._is_passed(place, horizons):
                    met.append(heapq.heappop(self._heaps[place])[2])
            else:
                closed = horizons.closed_after(condition.use, self._closed[place])
                self._closed[place] += len(closed)
                met += [values for key in closed for values in self._keys[place].pop(key, ())]
        found = list[Any]()
        for values in met:
            rows = self._rows.get(values)
            if rows is not None and self._wait(values, horizons):
                continue
            self._waiting.discard(values)
            if rows is not None:
                del self._rows[values]
                found += [row for row, times in rows.items() for _ in range(times)]
        return found

    def is_due(self, horizons: HorizonView) -> bool:
        """Return whether `advance` may find something."""
        return bool(self._new) or any(
            self._is_passed(place, horizons)
            if condition.kind == "passes"
            else any(key in self._keys[place] for key in horizons.closed_after(condition.use, self._closed[place]))
            for place, condition in enumerate(self._conditions)
        )

    def _wait(self, values: Values, horizons: HorizonView) -> bool:
        """Have values wait for the first condition that is not met; return False if all are."""
        for place, condition in enumerate(self._conditions):
            if condition.is_met(values, horizons):
                continue
            if condition.kind == "closes":
                self._keys[place].setdefault(condition.key(values), []).append(values)
            elif (value := values[condition.places[0]]) is not None:  # NULL is never passed
                heapq.heappush(self._heaps[place], (value, next(self._number), values))
            return True
        return False

    def _is_passed(self, place: int, horizons: HorizonView) -> bool:
        heap, passed = self._heaps[place], self._conditions[place].passed(horizons)
        return bool(heap) and passed is not None and bool(heap[0][0] < passed)
