"""Sets of ticks as ranges: which epochs of a publisher's history a receiver reflects, and which are missing.

A range is a pair `since, upto`: every tick after `since`, up to `upto` and including it. Ticks are counted from 1, so
the whole history up to epoch 17 is `0-17`.

The law: a `RangeSet` is the set of its ticks. Two sets with the same ticks are equal, `add` is their union and `minus`
their difference, whatever order the ranges come in.

Cost: a range that goes on where the last one ends is added in constant time, however many gaps there are before it;
any other takes time by the number of gaps. Memory is by the number of gaps, never by the number of ticks.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping

from whence.model.errors import DataError

Range = tuple[int, int]
"""Every tick after the first number, up to the second."""

EVER = 2**53 - 1
"""Later than any tick; a number that JavaScript can hold. A range that ends here is open."""

_TEXT = re.compile(r"(\d{1,19})-(\d{1,19})", re.ASCII)


class RangeSet:
    """A set of ticks. It is never changed: what changes it returns another one, which shares what stayed the same.

    >>> ticks = RangeSet.parse("0-2,3-4"); ticks = ticks.add(4, 7); str(ticks)
    '0-2,3-7'
    >>> ticks.horizon, ticks.last, ticks.gaps(9)
    (2, 7, [(2, 3), (7, 9)])
    >>> str(ticks.add(2, 3)), ticks.covers(3, 6), ticks.covers(2, 4)
    ('0-7', True, False)
    """

    __slots__ = ("_before", "_since", "_upto")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        merged = _merge(ranges)
        self._before: tuple[Range, ...] = tuple(merged[:-1])  # all ranges but the last, in their order
        self._since, self._upto = merged[-1] if merged else (0, 0)

    @classmethod
    def _of(cls, before: tuple[Range, ...], since: int, upto: int) -> RangeSet:
        made = cls.__new__(cls)
        made._before, made._since, made._upto = before, since, upto
        return made

    def __iter__(self) -> Iterator[Range]:
        yield from self._before
        if self._upto > self._since:
            yield self._since, self._upto

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._before) + (self._upto > self._since)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __contains__(self, tick: int) -> bool:
        return self.covers(tick - 1, tick)

    def __repr__(self) -> str:
        return f"RangeSet.parse({str(self)!r})"

    def __str__(self) -> str:
        return ",".join(f"{since}-{upto}" for since, upto in self)

    @classmethod
    def parse(cls, text: str) -> RangeSet:
        """Read what `str` wrote; DataError for anything else.

        >>> RangeSet.parse("0-17,19")
        Traceback (most recent call last):
        whence.model.errors.DataError: '0-17,19' is not a set of ranges: those look like 0-17,19-30
        """
        found = [_TEXT.fullmatch(part) for part in text.split(",")] if text else []
        ranges = [(int(part[1]), int(part[2])) for part in found if part is not None]
        if len(ranges) < len(found) or any(since >= upto for since, upto in ranges):
            raise DataError(f"{text[:60]!r} is not a set of ranges: those look like 0-17,19-30")
        return cls(ranges)

    @property
    def horizon(self) -> int:
        """The doubt horizon: the last tick up to which every tick is here."""
        first, upto = self._before[0] if self._before else (self._since, self._upto)
        return upto if first == 0 else 0

    @property
    def last(self) -> int:
        """The last tick that is here; 0 if there is none."""
        return self._upto

    def add(self, since: int, upto: int) -> RangeSet:
        """Return the set with a range more.

        >>> str(RangeSet().add(0, 3).add(5, 6).add(2, 5))
        '0-6'
        """
        if since >= upto:
            return self
        if since == self._upto:
            return RangeSet._of(self._before, self._since, upto)
        if since > self._upto:
            return RangeSet._of((*self._before, (self._since, self._upto)) if len(self) else (), since, upto)
        if since >= self._since:
            return RangeSet._of(self._before, self._since, max(self._upto, upto))
        return RangeSet([*self, (since, upto)])

    def union(self, other: RangeSet) -> RangeSet:
        """Return the ticks of both."""
        return RangeSet([*self, *other]) if len(other) else self

    def covers(self, since: int, upto: int) -> bool:
        """Return whether every tick of a range is here.

        >>> RangeSet.parse("0-2,3-4").covers(1, 2), RangeSet.parse("0-2,3-4").covers(1, 4)
        (True, False)
        """
        if since >= upto:
            return True
        if since >= self._since:
            return upto <= self._upto
        at = bisect_right(self._before, since, key=lambda one: one[0]) - 1
        return at >= 0 and upto <= self._before[at][1]

    def missing(self, since: int, upto: int) -> list[Range]:
        """Return the parts of a range that are not here, in their order.

        >>> RangeSet.parse("0-2,3-4").missing(1, 9)
        [(2, 3), (4, 9)]
        """
        if since >= upto:
            return []
        if since >= self._upto:
            return [(since, upto)]
        found = []
        ranges = self._from(since)
        for first, last in ranges:
            if first >= upto:
                break
            if first > since:
                found.append((since, first))
            since = max(since, last)
        if since < upto:
            found.append((since, upto))
        return found

    def _from(self, since: int) -> Iterator[Range]:
        """Yield the ranges that end after a tick."""
        at = bisect_left(self._before, since + 1, key=lambda one: one[1])
        yield from self._before[at:]
        if self._upto > max(self._since, since):
            yield self._since, self._upto

    def gaps(self, upto: int | None = None) -> list[Range]:
        """Return what is missing up to a tick; without one, up to the last tick that is here."""
        return self.missing(0, self._upto if upto is None else upto)

    def minus(self, other: RangeSet) -> RangeSet:
        """Return the ticks of this set that another one lacks.

        >>> str(RangeSet.parse("0-9").minus(RangeSet.parse("2-3,8-12")))
        '0-2,3-8'
        """
        return RangeSet(part for since, upto in self for part in other.missing(since, upto))

    def upto(self, tick: int) -> RangeSet:
        """Return the ticks of this set up to one.

        >>> str(RangeSet.parse("0-4,6-9").upto(7))
        '0-4,6-7'
        """
        return self if tick >= self._upto else RangeSet((since, min(last, tick)) for since, last in self)


def reflects_as_much(mine: Mapping[str, RangeSet], seen: Mapping[str, RangeSet]) -> bool:
    """Return whether a position over several histories reflects all that was seen elsewhere. Two positions of which
    neither reflects as much as the other are not to be merged: whoever moves waits. Of a history that is unknown here
    nothing is reflected; it may only not have been heard of yet.

    >>> here, there = {"a": RangeSet.parse("0-7"), "b": RangeSet.parse("0-2")}, {"a": RangeSet.parse("0-5")}
    >>> reflects_as_much(here, there), reflects_as_much(here, there | {"b": RangeSet.parse("0-3")})
    (True, False)
    """
    return all(of in mine and mine[of].covers(*one) for of, ranges in seen.items() for one in ranges)


def _merge(ranges: Iterable[Range]) -> list[Range]:
    merged: list[Range] = []
    for since, upto in sorted(ranges):
        if since >= upto:
            continue
        if merged and since <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], upto))
        else:
            merged.append((since, upto))
    return merged
