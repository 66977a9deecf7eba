"""Stabbing partitions: intervals in groups, each with a point that is in all of its intervals.

Groups are kept in the order of their points: line g of `groups` is [greatest low end, least high end, number]. These
common intervals are pairwise disjoint, so an interval finds a group that it shares a point with by binary search.
"""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel

LOW, HIGH, NUMBER = range(3)
SIZE = 2  # of a hotspot, in the place of a number
GROUPS, NUMBERS, LARGEST = range(3)  # of totals


@kernel
def partition(lows: Codes, highs: Codes, order: Codes, groups: Codes, out: Codes, witnesses: Codes) -> int:
    """Partition intervals, given in the `order` of their low ends, into as few groups as there can be; return how many.

    `out` gets the group of each interval, `witnesses` the interval of each group that ends first. No two of these have
    a point in common, so no partition has fewer groups than there are witnesses."""
    n = 0
    for at in range(order.shape[0]):
        i = order[at]
        if n == 0 or lows[i] > groups[n - 1, HIGH]:
            groups[n, HIGH] = highs[i]
            groups[n, NUMBER] = n
            witnesses[n] = i
            n += 1
        elif highs[i] < groups[n - 1, HIGH]:
            groups[n - 1, HIGH] = highs[i]
            witnesses[n - 1] = i
        groups[n - 1, LOW] = lows[i]
        out[i] = n - 1
    return n


@kernel
def join_hotspot(spots: Codes, bins: int, low: int, high: int) -> int:
    """Put an interval into a hotspot that it shares a point with: lines of [low, high, size]; return 0 if there is
    none."""
    for b in range(1, bins):
        if spots[b, SIZE] and spots[b, LOW] <= high and spots[b, HIGH] >= low:
            spots[b, LOW] = max(spots[b, LOW], low)
            spots[b, HIGH] = min(spots[b, HIGH], high)
            spots[b, SIZE] += 1
            return b
    return 0


@kernel
def join_hotspots(spots: Codes, bins: int, lines: Codes, low: int, high: int, out: Codes) -> None:
    """Put boxes into hotspots that their intervals, columns `low` and `high`, share a point with."""
    for i in range(lines.shape[0]):
        out[i] = join_hotspot(spots, bins, lines[i, low], lines[i, high])


@kernel
def find_group(groups: Codes, count: int, low: int, high: int) -> tuple[int, bool]:
    """The place of the first group that ends at or after an interval's low end, and whether it shares a point."""
    first = 0
    last = count
    while first < last:
        middle = (first + last) >> 1
        if groups[middle, HIGH] < low:
            first = middle + 1
        else:
            last = middle
    return first, first < count and groups[first, LOW] <= high


@kernel
def assign(
    spots: Codes, bins: int, groups: Codes, sizes: Codes, totals: Codes, lines: Codes, low: int, high: int, out: Codes
) -> None:
    """Put boxes into hotspots that their intervals share a point with, else into scattered groups that they do, else
    into new ones. `out` gets the bin of each; a scattered one's mark is twice its group's number. A box changes one
    group. Columns `low` and `high` of a line are its interval; `totals` is [scattered groups, numbers that were given
    to groups, size of the largest]."""
    for i in range(lines.shape[0]):
        first = lines[i, low]
        last = lines[i, high]
        out[i] = join_hotspot(spots, bins, first, last)
        if out[i]:
            continue
        at, shares = find_group(groups, totals[GROUPS], first, last)
        if shares:
            groups[at, LOW] = max(groups[at, LOW], first)
            groups[at, HIGH] = min(groups[at, HIGH], last)
        else:
            for g in range(totals[GROUPS], at, -1):
                for c in range(3):
                    groups[g, c] = groups[g - 1, c]
            groups[at, LOW] = first
            groups[at, HIGH] = last
            groups[at, NUMBER] = totals[NUMBERS]
            sizes[totals[NUMBERS]] = 0
            totals[NUMBERS] += 1
            totals[GROUPS] += 1
        number = groups[at, NUMBER]
        sizes[number] += 1
        totals[LARGEST] = max(totals[LARGEST], sizes[number])
        lines[i, lines.shape[1] - 1] = 2 * number


@kernel
def too_small(spots: Codes, bins: int, least: int) -> int:
    """A hotspot of less than so many boxes, or 0."""
    for b in range(1, bins):
        if 0 < spots[b, SIZE] < least:
            return b
    return 0
