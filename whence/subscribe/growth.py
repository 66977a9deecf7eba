"""Growth: which rows can still come to a part of a relation, given horizons.

A row can come only if some source has a row to come that makes it: its ordered column lies beyond the horizon, or in a
gap of what is known; its key is not closed; it satisfies the conditions on the way and has the values that are asked
for. All of that is checked by interval arithmetic over the ranges that are left, so every monotone function of an
ordered column closes when the horizon passes it, without being named anywhere.

The law: what is not `is_open` gets no row in any completion that the promises allow; `room` is at least the number of
rows that any completion brings, `arguments` contain what is aggregated of them.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from whence.plan.knowledge.bounds import NULL_BOUNDS, Bounds, exactly, is_less
from whence.plan.knowledge.checks import Places, narrow_by_checks
from whence.plan.knowledge.model import (
    Branch,
    Growth,
    KeyTest,
    LiteralTerm,
    Operation,
    RelationKnowledge,
    SourceFacts,
    Term,
    Variable,
)
from whence.plan.knowledge.terms import bound, column_bounds
from whence.plan.knowledge.truths import is_surely_true, may_be_true
from whence.subscribe.horizons import HorizonView

_SPLITS = 400  # of ranges of whole numbers, to count those that matter
_MOST_GAPS = 256


@dataclass(frozen=True)
class Remaining:
    """What may still come: whether anything, how many rows at most (None: any number), the bounds of arguments."""

    is_open: bool
    room: int | None
    arguments: tuple[Bounds, ...] = ()


class KeyValue(NamedTuple):
    """What a row to come must be: a term of it that compares so with a value."""

    term: Term
    test: KeyTest
    value: Any


CLOSED = Remaining(False, 0)


def remaining_rows(
    knowledge: RelationKnowledge, growth: Growth, known: Mapping[int, Any], horizons: HorizonView
) -> Remaining:
    """Return what may still come to rows whose columns have the values `known`."""
    room: int | None = 0
    arguments: list[Bounds] | None = None
    for branch in growth.branches:
        for found in _remaining_of(knowledge, growth, branch, known, horizons):
            room = None if room is None or found.room is None else room + found.room
            more = found.arguments
            arguments = list(more) if arguments is None else [a.hull(b) for a, b in zip(arguments, more, strict=True)]
    return CLOSED if arguments is None else Remaining(True, room, tuple(arguments))


def _remaining_of(
    knowledge: RelationKnowledge, growth: Growth, branch: Branch, known: Mapping[int, Any], horizons: HorizonView
) -> Iterator[Remaining]:
    """Yield what may still come of one branch, for each of its bases of which a row may be the new one."""
    tests: Sequence[KeyTest] = growth.tests or ["="] * len(growth.columns)
    keys = [
        KeyValue(term, test, known[column])
        for column, term, test in zip(growth.columns, branch.keys, tests, strict=True)
        if column in known
    ]
    everything = _places(knowledge, branch, keys)
    if everything is None:
        return
    for base in range(len(branch.bases)) if branch.new is None else branch.new:
        use = branch.bases[base]
        source = knowledge.sources[use]
        if not source.is_stream:
            if _is_possible(branch, keys, everything):
                yield Remaining(True, None, _arguments(branch, everything))
            continue
        if source.closes and _is_closed(source, base, use, everything, horizons):
            continue
        counted = branch.single and len(branch.bases) == 1 and source.ordered is not None and source.strictly
        found: list[Bounds] | None = None
        room: int | None = 0
        for places in _pieces(source, base, use, everything, horizons):
            if not narrow_by_checks(places, source, base) or not _is_possible(branch, keys, places):
                continue
            if counted and source.ordered is not None and room is not None:
                more = _count(branch, keys, places, (base, source.ordered))
                if more == 0:
                    continue
                room = None if more is None else room + more
            else:
                room = None
            more_arguments = _arguments(branch, places)
            found = (
                list(more_arguments)
                if found is None
                else [a.hull(b) for a, b in zip(found, more_arguments, strict=True)]
            )
        if found is not None:
            yield Remaining(True, room, tuple(found))


def possible_keys(
    knowledge: RelationKnowledge, growth: Growth, horizons: HorizonView
) -> Iterator[tuple[Branch, int, list[Bounds]]]:
    """Yield what the columns of rows to come can be, for each way in which one can: the branch, which of its bases has
    a new row, and bounds for each column of the growth."""
    for branch in growth.branches:
        everything = _places(knowledge, branch, ())
        if everything is None:
            continue
        for base in range(len(branch.bases)) if branch.new is None else branch.new:
            source = knowledge.sources[branch.bases[base]]
            pieces = (
                _pieces(source, base, branch.bases[base], everything, horizons) if source.is_stream else [everything]
            )
            for places in pieces:
                if narrow_by_checks(places, source, base) and _is_possible(branch, (), places):
                    yield branch, base, [_bound(term, places) for term in branch.keys]


def _places(knowledge: RelationKnowledge, branch: Branch, keys: Sequence[KeyValue]) -> Places | None:
    """Return the bounds of all source columns of a branch, given the keys and equalities; None if there are none."""
    places: Places = {}
    for base, use in enumerate(branch.bases):
        for column, facts in enumerate(knowledge.sources[use].columns):
            places[base, column] = column_bounds(facts)
    for term, test, value in keys:
        if test == "=" and isinstance(term, Variable) and not _narrow(places, term, exactly(value)):
            return None
    for _ in range(2):  # once more for what follows from what follows
        for condition in branch.where:
            match condition:
                case Operation(op="=", args=(Variable() as a, Variable() as b)):
                    first, second = places[a.base, a.column], places[b.base, b.column]
                    both = first.common(second)
                    both = None if both is None else both.not_null()
                    if both is None or not (_narrow(places, a, both) and _narrow(places, b, both)):
                        return None
                case Operation(
                    op="=", args=(Variable() as a, LiteralTerm() as given) | (LiteralTerm() as given, Variable() as a)
                ):
                    if given.plain is None or not _narrow(places, a, exactly(given.value)):
                        return None
        for base, use in enumerate(branch.bases):
            if not narrow_by_checks(places, knowledge.sources[use], base):
                return None
    return places


def _narrow(places: Places, variable: Variable, to: Bounds) -> bool:
    """Narrow the bounds of a variable; return False if nothing is left."""
    at = (variable.base, variable.column)
    try:
        found = places[at].common(to)
    except TypeError:  # values that do not compare
        return True
    if found is None:
        return False
    places[at] = found
    return True


def _is_possible(branch: Branch, keys: Sequence[KeyValue], places: Places) -> bool:
    """Return whether a source row within bounds can have the keys and satisfy the conditions."""
    return all(_may_be(key, _bound(key.term, places)) for key in keys) and all(
        may_be_true(_bound(term, places)) for term in branch.where
    )


def _is_certain(branch: Branch, keys: Sequence[KeyValue], places: Places) -> bool:
    """Return whether every source row within bounds has the keys and satisfies the conditions."""
    for key in keys:
        found = _bound(key.term, places)
        if key.test != "=" or not found.is_final or not _may_be(key, found):
            return False
    return all(is_surely_true(_bound(term, places)) for term in branch.where)


def _may_be(key: KeyValue, bounds: Bounds) -> bool:
    """Return whether a value within bounds can be one that is asked for."""
    value = key.value
    try:
        if key.test == "=":
            return bounds.allows(value)
        if key.test == "not after, nulls first":
            return bounds.null or (value is not None and _reaches(bounds, value))
        return value is None or _reaches(bounds, value)
    except TypeError:  # values that do not compare
        return True


def _reaches(bounds: Bounds, value: Any) -> bool:
    """Return whether something within bounds is not above a value."""
    return bounds.some and (bounds.low is None or not is_less(value, bounds.low))


def _bound(term: Term, places: Places) -> Bounds:
    return bound(term, lambda leaf: places[leaf.base, leaf.column] if isinstance(leaf, Variable) else Bounds())


def _arguments(branch: Branch, places: Places) -> tuple[Bounds, ...]:
    return tuple(NULL_BOUNDS if term is None else _bound(term, places) for term in branch.arguments)


def _is_closed(source: SourceFacts, base: int, use: int, places: Places, horizons: HorizonView) -> bool:
    """Return whether the key of a source that the values belong to is known and closed."""
    found = [places[base, column] for column in source.closes]
    if not all(bounds.is_final for bounds in found):
        return False
    return horizons.is_closed(use, tuple(bounds.low if bounds.some else None for bounds in found))


# -- ranges ----------------------------------------------------------------------------------------------------------


def _pieces(source: SourceFacts, base: int, use: int, places: Places, horizons: HorizonView) -> Iterator[Places]:
    """Yield the bounds of a row to come, one for each range that its ordered column may lie in."""
    if source.ordered is None:
        yield dict(places)
        return
    at = (base, source.ordered)
    column = places[at]
    if column.null:
        yield {**places, at: NULL_BOUNDS}
    for low, high in unknown_ranges(use, horizons, source.columns[source.ordered].type):
        found = column.common(Bounds(low, high, null=False)) if column.some else None
        if found is not None:
            yield {**places, at: found}


def unknown_ranges(use: int, horizons: HorizonView, type: str) -> list[tuple[Any, Any]]:
    """Return the ranges of an ordered column in which rows may still come, from a lowest to a highest value.

    >>> from whence.subscribe.horizons import KnownHorizons
    >>> unknown_ranges(0, KnownHorizons({0: (2, True)}, ranges={0: [(4, 5)]}), "INTEGER")
    [(3, 3), (6, None)]
    """
    reached = horizons.bound(use)
    low = None if reached is None else after(reached[0], type) if reached[1] else reached[0]
    found: list[tuple[Any, Any]] = []
    ranges = sorted(horizons.known_ranges(use))
    if len(ranges) > _MOST_GAPS:
        ranges = ranges[:_MOST_GAPS]
    for first, last in ranges:
        if low is not None and is_less(last, low):
            continue
        if low is None or is_less(low, first):
            found.append((low, before(first, type)))
        low = after(last, type)
    found.append((low, None))
    return [(first, last) for first, last in found if first is None or last is None or not is_less(last, first)]


def after(value: Any, type: str) -> Any:
    """Return the next value of a type; the value itself if there is none, which leaves too much, never too little."""
    return _stepped(value, type, 1)


def before(value: Any, type: str) -> Any:
    """Return the value before one of a type; the value itself if there is none."""
    return _stepped(value, type, -1)


def _stepped(value: Any, type: str, by: int) -> Any:
    try:
        match value:
            case bool():
                return value
            case int():
                return value + by
            case float():
                return math.nextafter(value, math.inf * by)
            case Decimal():
                scale = int(type.partition(",")[2].rstrip(")") or 0)
                return value + by * Decimal(1).scaleb(-scale)
            case dt.datetime():
                return value + by * dt.timedelta(microseconds=1)
            case dt.date():
                return value + by * dt.timedelta(1)
    except OverflowError:
        pass
    return value


def _count(branch: Branch, keys: Sequence[KeyValue], places: Places, at: tuple[int, int]) -> int | None:
    """Return how many whole numbers of a range may be those of rows to come; None if there is no end to them."""
    start = places[at]
    if not start.some:
        return None
    waiting, count, splits = [start], 0, 0
    while waiting:
        bounds = waiting.pop()
        here = {**places, at: bounds}
        if not _is_possible(branch, keys, here):
            continue
        low, high = bounds.low, bounds.high
        if high is None or low is None or not isinstance(low, int) or not isinstance(high, int):
            if not isinstance(low, int) or splits > 64:
                return None
            # Look ahead in growing steps: a condition or a key may put an end to it.
            reach = low + 2**splits
            splits += 1
            waiting.append(Bounds(low, reach, null=False))
            waiting.append(Bounds(reach + 1, None, null=False))
            continue
        if low == high or splits >= _SPLITS or _is_certain(branch, keys, here):
            count += high - low + 1
            continue
        splits += 1
        middle = (low + high) // 2
        waiting.append(Bounds(low, middle, null=False))
        waiting.append(Bounds(middle + 1, high, null=False))
    return count
