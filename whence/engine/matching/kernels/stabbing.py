"""Stabbing partitions: intervals in groups, each with a point that is in all of its intervals.

Groups are kept in the order of their points: line g of `groups` is [greatest low end, least high end, number]. These
common intervals are pairwise disjoint, so an interval finds a group that it shares a point with by binary search.
"""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel

LOW, HIGH, NUMBER = range(3)


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
def assign(
    groups: Codes, count: int, sizes: Codes, numbers: int, lows: Codes, highs: Codes, out: Codes
) -> tuple[int, int]:
    """Put intervals into groups that they share a point with, or into new ones; return the numbers of groups, and of
    names that were given to groups. An interval changes one group."""
    for i in range(lows.shape[0]):
        first = 0
        last = count
        while first < last:
            middle = (first + last) >> 1
            if groups[middle, HIGH] < lows[i]:
                first = middle + 1
            else:
                last = middle
        if first < count and groups[first, LOW] <= highs[i]:
            groups[first, LOW] = max(groups[first, LOW], lows[i])
            groups[first, HIGH] = min(groups[first, HIGH], highs[i])
        else:
            for g in range(count, first, -1):
                for c in range(3):
                    groups[g, c] = groups[g - 1, c]
            groups[first, LOW] = lows[i]
            groups[first, HIGH] = highs[i]
            groups[first, NUMBER] = numbers
            sizes[numbers] = 0
            numbers += 1
            count += 1
        out[i] = groups[first, NUMBER]
        sizes[out[i]] += 1
    return count, numbers


@kernel
def join_hotspots(spots: Codes, count: int, lows: Codes, highs: Codes, out: Codes) -> None:
    """Put intervals into hotspots that they share a point with: lines of [low, high, size]; 0 for those into none."""
    for i in range(lows.shape[0]):
        out[i] = 0
        for b in range(1, count):
            if spots[b, 2] and max(spots[b, LOW], lows[i]) <= min(spots[b, HIGH], highs[i]):
                spots[b, LOW] = max(spots[b, LOW], lows[i])
                spots[b, HIGH] = min(spots[b, HIGH], highs[i])
                spots[b, 2] += 1
                out[i] = b
                break
