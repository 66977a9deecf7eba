"""Sets of ticks as ranges: which epochs of a publisher's history a receiver reflects, and which are missing.

A range is a pair `since, upto`: every tick after `since`, up to `upto` and including it. Ticks are counted from 1, so
the whole history up to epoch 17 is `0-17`.

The law: a `RangeSet` is the set of its ticks. Two sets with the same ticks are equal, `add` is their union and `minus`
their difference, whatever order the ranges come in.

Cost: ranges are kept in blocks of some hundred, of which a changed set copies one. So to add or to find a range takes
about the same time however many gaps there are, at the end or in between. Memory is by the number of gaps, never by the
number of ticks.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from whence.model.errors import DataError

Range = tuple[int, int]
"""Every tick after the first number, up to the second."""

EVER = 2**53 - 1
"""Later than any tick; a number that JavaScript can hold. A range that ends here is open."""

BLOCK = 256
"""Ranges of a block at most."""

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

    __slots__ = ("_blocks", "_since", "_upto")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        merged = _merge(ranges)
        before = merged[:-1]  # all ranges but the last, in their order, some hundred to a block
        self._blocks: tuple[tuple[Range, ...], ...] = tuple(
            tuple(before[start : start + BLOCK]) for start in range(0, len(before), BLOCK)
        )
        self._since, self._upto = merged[-1] if merged else (0, 0)

    @classmethod
    def _of(cls, blocks: tuple[tuple[Range, ...], ...], since: int, upto: int) -> RangeSet:
        made = cls.__new__(cls)
        made._blocks, made._since, made._upto = blocks, since, upto
        return made

    def __iter__(self) -> Iterator[Range]:
        for block in self._blocks:
            yield from block
        if self._upto > self._since:
            yield self._since, self._upto

    def __len__(self) -> int:
        """Return the number of ranges."""
        return sum(map(len, self._blocks)) + (self._upto > self._since)

    def __bool__(self) -> bool:
        return self._upto > self._since

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return False
        return self._upto == other._upto and (self._is_like(other) or tuple(self) == tuple(other))

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
        first, upto = self._blocks[0][0] if self._blocks else (self._since, self._upto)
        return upto if first == 0 else 0

    @property
    def last(self) -> int:
        """The last tick that is here; 0 if there is none."""
        return self._upto

    def _is_like(self, other: RangeSet) -> bool:
        """Tell whether two sets are the same but for where they end, as far as that is seen at once."""
        return self._blocks is other._blocks and self._since == other._since

    def _place(self, upto: int) -> tuple[int, int]:
        """Return the block and the place of the first range that ends at a tick or later, but for the last range."""
        block = bisect_left(self._blocks, upto, key=lambda ranges: ranges[-1][1])
        if block == len(self._blocks):
            return block, 0
        return block, bisect_left(self._blocks[block], upto, key=lambda one: one[1])

    def _from(self, upto: int) -> Iterator[Range]:
        """Yield the ranges that end at a tick or later."""
        block, place = self._place(upto)
        for number in range(block, len(self._blocks)):
            ranges = self._blocks[number]
            for at in range(place, len(ranges)):
                yield ranges[at]
            place = 0
        if self._upto > self._since and self._upto >= upto:
            yield self._since, self._upto

    def touching(self, since: int, upto: int) -> list[Range]:
        """Return the ranges that a range overlaps with, or ends beside.

        >>> RangeSet.parse("0-2,3-4,6-9").touching(4, 5), RangeSet.parse("0-2,3-4").touching(2, 3)
        ([(3, 4)], [(0, 2), (3, 4)])
        """
        found = []
        for one in self._from(since):
            if one[0] > upto:
                break
            found.append(one)
        return found

    def add(self, since: int, upto: int) -> RangeSet:
        """Return the set with a range more.

        >>> str(RangeSet().add(0, 3).add(5, 6).add(2, 5))
        '0-6'
        """
        if since >= upto:
            return self
        if since > self._upto or not self:
            return RangeSet._of(_appended(self._blocks, (self._since, self._upto)) if self else (), since, upto)
        if since >= self._since:
            return RangeSet._of(self._blocks, self._since, max(self._upto, upto))
        block, place = self._place(since)
        merged = self.touching(since, upto)
        first, last = min([since, *(one[0] for one in merged[:1])]), max([upto, *(one[1] for one in merged[-1:])])
        if last >= self._since:
            kept = (*self._blocks[:block], self._blocks[block][:place]) if block < len(self._blocks) else self._blocks
            return RangeSet._of(tuple(ranges for ranges in kept if ranges), first, max(last, self._upto))
        if block == len(self._blocks):
            return RangeSet._of(_appended(self._blocks, (first, last)), self._since, self._upto)
        end, gone = block, place + len(merged)
        while gone > len(self._blocks[end]):
            gone -= len(self._blocks[end])
            end += 1
        made = (*self._blocks[block][:place], (first, last), *self._blocks[end][gone:])
        rest = self._blocks[end + 1 :]
        if rest and len(made) + len(rest[0]) <= BLOCK // 2:
            made, rest = (*made, *rest[0]), rest[1:]
        halves = (made,) if len(made) <= BLOCK else (made[: BLOCK // 2], made[BLOCK // 2 :])
        return RangeSet._of((*self._blocks[:block], *halves, *rest), self._since, self._upto)

    def union(self, other: RangeSet) -> RangeSet:
        """Return the ticks of both."""
        if not other or self is other:
            return self
        if not self:
            return other
        if self._is_like(other):
            return self if self._upto >= other._upto else other
        if len(other) == 1:
            return self.add(other._since, other._upto)
        return RangeSet([*self, *other])

    def covers(self, since: int, upto: int) -> bool:
        """Return whether every tick of a range is here.

        >>> RangeSet.parse("0-2,3-4").covers(1, 2), RangeSet.parse("0-2,3-4").covers(1, 4)
        (True, False)
        """
        if since >= upto:
            return True
        if since >= self._since:
            return upto <= self._upto
        block, place = self._place(upto)
        return block < len(self._blocks) and self._blocks[block][place][0] <= since

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
        for first, last in self._from(since + 1):
            if first >= upto:
                break
            if first > since:
                found.append((since, first))
            since = max(since, last)
        if since < upto:
            found.append((since, upto))
        return found

    def gaps(self, upto: int | None = None) -> list[Range]:
        """Return what is missing up to a tick; without one, up to the last tick that is here."""
        return self.missing(0, self._upto if upto is None else upto)

    def minus(self, other: RangeSet) -> RangeSet:
        """Return the ticks of this set that another one lacks.

        >>> str(RangeSet.parse("0-9").minus(RangeSet.parse("2-3,8-12")))
        '0-2,3-8'
        """
        if self._is_like(other):
            return RangeSet([(other._upto, self._upto)]) if other._upto < self._upto else RangeSet()
        return RangeSet(part for since, upto in self for part in other.missing(since, upto))

    def rewritten(self, before: RangeSet) -> tuple[list[Range], list[Range]]:
        """Return the ranges of an earlier set that are none of this one, and those of this one that were none of it.
        Blocks that both share are not looked at.

        >>> RangeSet.parse("0-4,6-9,11-12").rewritten(RangeSet.parse("0-2,3-4,6-9"))
        ([(0, 2), (3, 4)], [(0, 4), (11, 12)])
        """
        mine, theirs = self._blocks, before._blocks
        shared = min(len(mine), len(theirs))
        head = next((at for at in range(shared) if mine[at] is not theirs[at]), shared)
        tail = next((at for at in range(shared - head) if mine[-1 - at] is not theirs[-1 - at]), shared - head)
        here = {one for block in mine[head : len(mine) - tail] for one in block}
        there = {one for block in theirs[head : len(theirs) - tail] for one in block}
        here |= {(self._since, self._upto)} if self else set()
        there |= {(before._since, before._upto)} if before else set()
        return sorted(there - here), sorted(here - there)

    def within(self, since: int, upto: int) -> RangeSet:
        """Return the ticks of this set that are in a range.

        >>> str(RangeSet.parse("0-4,6-9").within(2, 7))
        '2-4,6-7'
        """
        return RangeSet((max(since, first), min(upto, last)) for first, last in self.touching(since, upto))

    def upto(self, tick: int) -> RangeSet:
        """Return the ticks of this set up to one.

        >>> str(RangeSet.parse("0-4,6-9").upto(7))
        '0-4,6-7'
        """
        return self if tick >= self._upto else RangeSet((since, min(last, tick)) for since, last in self)


def _appended(blocks: tuple[tuple[Range, ...], ...], one: Range) -> tuple[tuple[Range, ...], ...]:
    """Return blocks with one range more at the end."""
    if blocks and len(blocks[-1]) < BLOCK:
        return (*blocks[:-1], (*blocks[-1], one))
    return (*blocks, (one,))


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
