"""Cells: what the values of a row can still become, read from the knowledge of its relation and from horizons.

`evaluate` says it of a row that is there: bounds per column, whether the row may go, whether all of it is final.
`about_absent` says of a key that is not there whether a row may still come. Both are pure; the knowledge
(`plan/knowledge`) was derived by the compiler, the horizons (`horizons.py`) are those of the row's position, or older.

The law: for every completion of the sources that the promises allow, the final value of each column lies in its bounds,
and a row that is final stays as it is. Bounds only shrink as horizons rise and values move along with their sources.
Columns that bounds need and that are not given make bounds wider, never wrong.

How a column grows depends on the **room** of its group: the rows that may still come to it. It is 0 if the group is
closed; for a stream that is strictly ordered by a column of whole numbers, the numbers that are still unknown; else
any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whence.plan.knowledge.bounds import ANYTHING, TRUE, UNDECIDED, Bounds, BoundsError, exactly
from whence.plan.knowledge.intervals import plus, times
from whence.plan.knowledge.model import Doubt, Growing, Operation, Padded, RelationKnowledge, Shown, Term
from whence.plan.knowledge.terms import bound, walk
from whence.plan.knowledge.truths import is_surely_true
from whence.subscribe.growth import CLOSED, Remaining, remaining_rows
from whence.subscribe.horizons import NO_HORIZONS, HorizonView

__all__ = ["Bounds", "BoundsError", "RowKnowledge", "about_absent", "evaluate"]

Absence = Literal["may come", "finally absent"]


@dataclass(frozen=True, slots=True)
class RowKnowledge:
    """What a row can still become: the bounds of each column, whether it may go, and whether nothing of it changes."""

    bounds: tuple[Bounds, ...]
    may_go: bool
    is_final: bool

    def __le__(self, other: RowKnowledge) -> bool:
        """Return whether a row that this is known of may evolve to one that the other is known of."""
        goes = self.may_go or not other.may_go
        return goes and all(a <= b for a, b in zip(self.bounds, other.bounds, strict=True))


def evaluate(
    knowledge: RelationKnowledge,
    row: Sequence[Any],
    extras: Sequence[Any] | None = None,
    horizons: HorizonView = NO_HORIZONS,
) -> RowKnowledge:
    """Return what a row that is there can still become. `extras` are the columns behind it, if they are known."""
    reading = _Reading(knowledge, (*row, *(extras or ())), horizons)
    bounds = tuple(reading.column(index, term) for index, term in enumerate(knowledge.cells))
    may_go = not all(is_surely_true(reading.bounds(term)) for term in knowledge.presence)
    return RowKnowledge(bounds, may_go, not may_go and all(b.is_final for b in bounds))


def about_absent(
    knowledge: RelationKnowledge,
    given: Mapping[int, Any],
    horizons: HorizonView = NO_HORIZONS,
    *,
    was_there: bool = False,
) -> Absence:
    """Return whether a row that is not there may still come, given some of its values by their columns.

    With `was_there`, it was there before, and went."""
    if was_there and not knowledge.returns:
        return "finally absent"
    growth = knowledge.growths[knowledge.growth]
    known = {column: given[column] for column in growth.columns if column in given}
    return "may come" if remaining_rows(knowledge, growth, known, horizons).is_open else "finally absent"


class _Reading:
    """Evaluates terms for one row."""

    def __init__(self, knowledge: RelationKnowledge, values: tuple[Any, ...], horizons: HorizonView) -> None:
        self._knowledge, self._values, self._horizons = knowledge, values, horizons
        self._remaining: dict[int, Remaining] = {}

    def column(self, index: int, term: Term) -> Bounds:
        """Return the bounds of a column that is shown."""
        value = self._values[index]
        if isinstance(term, Shown):
            return exactly(value)
        if isinstance(term, (Operation, Padded)) and self._is_settled(term):
            return exactly(value)
        return self.bounds(term)

    def _is_settled(self, term: Term) -> bool:
        """Return whether nothing that a term depends on changes any more."""
        return all(
            self.bounds(part).is_final if isinstance(part, (Growing, Shown)) else self._growth(part.growth) is CLOSED
            for part in walk(term)
            if isinstance(part, (Growing, Shown, Doubt, Padded))
        )

    def bounds(self, term: Term) -> Bounds:
        """Return the bounds of a term."""
        return bound(term, self._leaf)

    def _leaf(self, term: Term) -> Bounds:
        match term:
            case Shown():
                return exactly(self._values[term.index]) if term.index < len(self._values) else ANYTHING
            case Growing():
                return _within_type(self._growing(term), term.type)
            case Doubt():
                return TRUE if self._growth(term.growth) is CLOSED else UNDECIDED
            case Padded():
                return self._padded(term)
        return ANYTHING

    def _growth(self, number: int) -> Remaining:
        """Return what may still come to a growth."""
        found = self._remaining.get(number)
        if found is None:
            growth = self._knowledge.growths[number]
            known = {column: self._values[column] for column in growth.columns if column < len(self._values)}
            found = self._remaining[number] = remaining_rows(self._knowledge, growth, known, self._horizons)
        return found

    def _padded(self, term: Padded) -> Bounds:
        if term.matched >= len(self._values):
            return ANYTHING
        if self._values[term.matched] is not None:
            return self.bounds(term.term)
        return exactly(None) if self._growth(term.growth) is CLOSED else term.fresh.bounds.or_null()

    def _growing(self, term: Growing) -> Bounds:
        if term.index >= len(self._values):
            return ANYTHING
        value, remaining = self._values[term.index], self._growth(term.growth)
        if remaining is CLOSED:
            return exactly(value)
        comes = ANYTHING
        if term.argument is not None and term.argument < len(remaining.arguments):
            comes = remaining.arguments[term.argument]
        match term.function:
            case "count":
                return Bounds(value, None if remaining.room is None else value + remaining.room, null=False)
            case "up":
                return Bounds(value, None, null=False) if value is not None else ANYTHING
            case "down":
                return Bounds(None, value, null=False) if value is not None else ANYTHING
            case "within":
                return exactly(value).hull(comes)
            case "max" | "min" | "avg":
                return _best(term.function, value, comes)
            case "sum":
                return _sum(value, comes, remaining.room, term.type)
        return ANYTHING


def _within_type(bounds: Bounds, type: str) -> Bounds:
    """Return bounds that are no wider than their type is."""
    if type != "BOOLEAN" or not bounds.some or None not in bounds.pair:
        return bounds
    return Bounds(bool(bounds.low), bounds.high is not False, bounds.null)


def _best(function: str, value: Any, comes: Bounds) -> Bounds:
    """Return the bounds of MAX, MIN or AVG, given what may still come."""
    new = comes.not_null()
    if new is None:
        return exactly(value)
    if function == "avg":
        return _average(new).or_null() if value is None else _average(new).hull(exactly(value))
    if value is None:
        return new.or_null()
    both = exactly(value).hull(new)
    return Bounds(value, both.high, null=False) if function == "max" else Bounds(both.low, value, null=False)


def _average(numbers: Bounds) -> Bounds:
    """Return the bounds of an average: a DOUBLE of rounded sums, it may lie a step outside of the numbers."""
    low, high = numbers.pair
    if any(isinstance(end, float) and not math.isfinite(end) for end in (low, high)):
        return Bounds(null=False)
    low = None if low is None else math.nextafter(float(low), -math.inf)
    high = None if high is None else math.nextafter(float(high), math.inf)
    return Bounds(low, high, null=False)


def _sum(value: Any, comes: Bounds, room: int | None, type: str) -> Bounds:
    """Return the bounds of SUM: up to `room` more numbers, each within `comes`."""
    new = comes.not_null()
    if new is None:
        return exactly(value)
    low, high = new.low, new.high
    if type == "DOUBLE":
        ends = (value, low, high)
        if any(end is not None and not math.isfinite(end) for end in ends) or (high is None and low is None):
            return ANYTHING if value is None else Bounds(null=False)
        if high is None:  # NaN may come, which is above all
            low = low if low is not None and low >= 0 else None
            return Bounds(value, None, null=False) if low is not None and value is not None else ANYTHING
    if value is None:
        first, last = _most(low, room, min), _most(high, room, max)
        return _outwards(first, last, type, room).or_null()
    least = 0 if low is not None and low >= 0 else None if low is None or room is None else times(room, low)
    most = 0 if high is not None and high <= 0 else None if high is None or room is None else times(room, high)
    if least == 0 and most == 0:
        return exactly(value)
    return _outwards(
        value if least == 0 else None if least is None else plus(value, least),
        value if most == 0 else None if most is None else plus(value, most),
        type,
        room,
        keep=value,
    )


def _most(end: Any, room: int | None, choose: Any) -> Any:
    """Return the extreme sum of one to `room` numbers whose extreme is `end`."""
    if end is None:
        return None
    grows = end < 0 if choose is min else end > 0
    if not grows:
        return end
    return None if room is None else times(room, end)


def _outwards(low: Any, high: Any, type: str, room: int | None, keep: Any = None) -> Bounds:
    """Return bounds, those of a DOUBLE a little wider: its sum is rounded once, at the end."""
    if type == "DOUBLE":
        slack = (room or 1) * 2.0**-50
        low = low if low is None or low == keep else low - abs(low) * slack - slack * 2.0**-1000
        high = high if high is None or high == keep else high + abs(high) * slack + slack * 2.0**-1000
    return Bounds(low, high, null=False)
