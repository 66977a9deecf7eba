"""The gaps of a source: which ticks are missing, and when each gap is to be asked for next.

The law: gaps are apart, in the order of their ticks, and each has a timer. A part of a gap has the timer of the gap, so
a gap of which a part has come is not asked for any sooner.

Cost: a gap that opens at the end takes constant time, however many there are; one that closes takes the time to find
it. The gap that is due first is the first of a heap, from which gaps that are gone are dropped when they come up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from whence.subscribe.ranges import Range

NEVER = float("inf")
MOST_ASKED = 100
"""Gaps that are asked for at once."""

_DOUBLINGS = 3


@dataclass(slots=True)
class _Gap:
    since: int
    upto: int
    due: float
    asked: int = 0  # how often
    is_gone: bool = False


class SourceGaps:
    """The ticks of a source that are missing.

    >>> gaps = SourceGaps(); gaps.update(2, 9, [(2, 9)], due=1.0); gaps.update(2, 9, [(2, 4), (5, 9)], due=3.0)
    >>> list(gaps), gaps.due, gaps.ask(1.0, again_after=0.5), gaps.due
    ([(2, 4), (5, 9)], 1.0, ((2, 4), (5, 9)), 1.5)
    """

    def __init__(self) -> None:
        self._gaps: list[_Gap] = []
        self._heap: list[tuple[float, int, _Gap]] = []
        self._count = 0

    def __iter__(self) -> Iterator[Range]:
        return ((gap.since, gap.upto) for gap in self._gaps)

    def __len__(self) -> int:
        return len(self._gaps)

    def clear(self) -> None:
        """Have no gaps."""
        self._gaps, self._heap = [], []

    def around(self, since: int, upto: int) -> Range:
        """Return a region with all gaps that it touches.

        >>> gaps = SourceGaps(); gaps.update(2, 9, [(2, 4), (6, 9)], due=1.0); gaps.around(4, 5), gaps.around(9, 12)
        ((2, 5), (6, 12))
        """
        first, last = self._touched(since, upto)
        if first == last:
            return since, upto
        return min(since, self._gaps[first].since), max(upto, self._gaps[last - 1].upto)

    def _touched(self, since: int, upto: int) -> tuple[int, int]:
        gaps = self._gaps
        if not gaps or gaps[-1].upto < since:
            return len(gaps), len(gaps)
        return bisect_left(gaps, since, key=lambda gap: gap.upto), bisect_right(gaps, upto, key=lambda gap: gap.since)

    def update(self, since: int, upto: int, missing: Iterable[Range], due: float, at_once: float | None = None) -> None:
        """Note what is missing of a region, which has all gaps that it touches. What was known to be missing has the
        timer that it had, what is new is `due`; what was never asked for is due `at_once`, if that is given."""
        first, last = self._touched(since, upto)
        former, place, found = self._gaps[first:last], 0, list[_Gap]()
        for start, end in missing:
            while place < len(former) and former[place].upto <= start:
                place += 1
            known = former[place] if place < len(former) and former[place].since < end else None
            gap = _Gap(start, end, due) if known is None else _Gap(start, end, known.due, known.asked)
            if at_once is not None and not gap.asked:
                gap.due = at_once
            found.append(gap)
        for gap in former:
            gap.is_gone = True
        self._gaps[first:last] = found
        for gap in found:
            self._push(gap)

    def _push(self, gap: _Gap) -> None:
        self._count += 1
        heappush(self._heap, (gap.due, self._count, gap))
        if len(self._heap) > 64 + 4 * len(self._gaps):  # most are gone
            self._heap = [(gap.due, at, gap) for at, gap in enumerate(self._gaps)]
            self._heap.sort(key=lambda one: one[:2])
            self._count = len(self._heap)

    @property
    def due(self) -> float:
        """When a gap is to be asked for next."""
        heap = self._heap
        while heap and (heap[0][2].is_gone or heap[0][2].due != heap[0][0]):
            heappop(heap)
        return heap[0][0] if heap else NEVER

    def ask(self, now: float, again_after: float) -> tuple[Range, ...]:
        """Return the gaps that are due, to be asked for now; each again after a while, which doubles some times."""
        found = list[_Gap]()
        while self.due <= now and len(found) < MOST_ASKED:
            _, _, gap = heappop(self._heap)
            gap.due = now + again_after * 2 ** min(gap.asked, _DOUBLINGS)
            gap.asked += 1
            found.append(gap)
        for gap in found:
            self._push(gap)
        return tuple(sorted((gap.since, gap.upto) for gap in found))
