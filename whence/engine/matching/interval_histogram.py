"""Interval histograms: about how many of a changing set of intervals hold a point?

Law: the estimate is a step function of `buckets` buckets between the first and the last break, and a height on either
side. Where to put the breaks is found from a stabbing partition (SSI-HIST, paper 002, 4.4). To the left of its point a
group is a function that rises one interval at a time, to the right one that falls. Such a half is cut by weighted 1-d
k-means of its values y, a step weighing φ / y² for the share φ of points in it, so that the mean squared *relative*
error is least. Halves have cuts by the size of their group; groups too small for one share cuts at quantiles of their
ends. Then the sum of all is cut into the buckets, by the same error, exactly.
State: the breaks, the mean of each bucket, and by how much the best height for the relative error is below the mean.
Cost: intervals that come or go change the means of the buckets that they cover, in O(buckets) a call and O(log buckets)
an interval. Breaks stay until they are made anew, from a sample.

>>> import numpy as np
>>> lows, highs = np.array([0, 10, 12, 40]), np.array([20, 30, 32, 50])
>>> histogram = IntervalHistogram(buckets=8)
>>> histogram.build(lows, highs)
>>> histogram.estimate(np.array([-5, 5, 15, 25, 35, 45])).tolist()
[0.0, 1.0, 3.0, 2.0, 0.0, 1.0]
>>> histogram.add(np.array([40]), np.array([50])); histogram.estimate(np.array([45])).tolist()
[2.0]
"""

from __future__ import annotations

import numpy as np

from whence.engine.matching.kernels import histogram, stabbing
from whence.engine.matching.kernels.histogram import LAST, Heights
from whence.model.codes import NULL, Codes

BUCKETS = 100
SAMPLE = 1 << 14  # intervals that breaks are made from
_CUTS = 256  # of all groups, before they are put together
_FEWEST, _MOST = 4, 32  # cuts of a half


class StepTable:
    """Step functions, one per line, as kernels read them."""

    def __init__(self, lines: int, buckets: int):
        self.buckets = buckets
        self.breaks = np.zeros((lines, buckets + 1), np.int64)
        self.counts = np.zeros(lines, np.int64)
        self.means = np.zeros((lines, buckets + 2))
        self.ratios = np.ones((lines, buckets + 2))


class IntervalHistogram:
    """Intervals with closed ends, of which NULL + 1 and LAST stand for none. It may be a line of a table."""

    def __init__(self, buckets: int = BUCKETS, table: StepTable | None = None, line: int = 0):
        self.table, self._line = table or StepTable(1, buckets), line
        self.clear()

    def clear(self) -> None:
        """Forget all intervals, and the breaks."""
        self.size = 0
        self.table.counts[self._line] = 0
        self.table.means[self._line] = 0
        self.table.ratios[self._line] = 1

    @property
    def breaks(self) -> Codes:
        found: Codes = self.table.breaks[self._line, : int(self.table.counts[self._line])]
        return found

    def build(self, lows: Codes, highs: Codes, seen: Codes | None = None) -> None:
        """Be the histogram of intervals; `seen` has points like those to come, which are else taken to be uniform."""
        self.clear()
        table, line = self.table, self._line
        sample = np.arange(min(SAMPLE, len(lows))) * len(lows) // max(1, min(SAMPLE, len(lows)))
        cuts = _cuts(lows[sample], highs[sample])
        if len(cuts) > 1:
            means = _covered(cuts, lows[sample], highs[sample])[1:-1] * (len(lows) / len(lows[sample]))
            shares = _shares(cuts, seen)
            weights = shares / np.maximum(means, 1) ** 2
            begins = histogram.segment(means, weights, table.buckets)
            sums = [np.add.reduceat(values, begins) for values in (weights * means, weights, shares * means, shares)]
            best, mean = (a / np.maximum(b, 1e-300) for a, b in (sums[:2], sums[2:]))
            table.ratios[line, 1 : len(begins) + 1] = np.where(
                (best > 0) & (mean > 0), best / np.maximum(mean, 1e-300), 1
            )
            cuts = np.append(cuts[begins], cuts[-1])
        table.breaks[line, : len(cuts)] = cuts
        table.counts[line] = len(cuts)
        self.add(lows, highs)

    def add(self, lows: Codes, highs: Codes, sign: int = 1) -> None:
        """Count intervals that have come, or with sign -1 have gone."""
        table = self.table
        self.size += sign * len(lows)
        count = int(table.counts[self._line])
        histogram.cover(table.breaks, self._line, count, lows, highs, float(sign), table.means)

    def estimate(self, points: Codes) -> Heights:
        """Return about how many intervals hold each point."""
        place = np.searchsorted(self.breaks, points, "right")
        found: Heights = np.maximum(self.table.means[self._line, place] * self.table.ratios[self._line, place], 0)
        return found


def _covered(cuts: Codes, lows: Codes, highs: Codes) -> Heights:
    """Return how many intervals cover each step between cuts, in the mean."""
    out = np.zeros((1, len(cuts) + 1))
    histogram.cover(cuts[None], 0, len(cuts), lows, highs, 1.0, out)
    found: Heights = out[0]
    return found


def _shares(cuts: Codes, seen: Codes | None) -> Heights:
    """Return the share of points in each step between cuts: half of it by points that were seen, if there are any."""
    widths = _distances(cuts)
    shares: Heights = widths / widths.sum()
    if seen is not None and len(seen):
        place = np.searchsorted(cuts, seen, "right")
        inside = place[(place > 0) & (place < len(cuts))] - 1
        shares = (shares + np.bincount(inside, minlength=len(shares)) / len(seen)) / 2
    return shares


def _cuts(lows: Codes, highs: Codes) -> Codes:
    """Return where the function of all intervals is cut, in order: where it begins, where it ends, and between."""
    order = np.argsort(lows, kind="stable")
    groups = np.empty((len(lows) + 1, 3), np.int64)
    owner, witnesses = np.empty(len(lows), np.int64), np.empty(len(lows), np.int64)
    count = stabbing.partition(lows, highs, order, groups, owner, witnesses)
    ends = np.where(highs == LAST, LAST, highs + (highs != LAST))
    finite = np.concatenate((lows[lows != NULL + 1], ends[ends != LAST]))
    if not len(finite):
        return finite
    first, last = finite.min(), finite.max()
    sizes = np.bincount(owner, minlength=count)
    by_size = np.argsort(-sizes, kind="stable")
    share = np.clip(sizes * _CUTS // (2 * len(lows)), _FEWEST, _MOST)
    large = by_size[np.cumsum(2 * share[by_size]) <= _CUTS]
    found = [np.array([first, last])]
    members = np.split(np.argsort(owner, kind="stable"), np.cumsum(sizes)[:-1])
    for group in large.tolist():
        at, point = members[group], groups[group, stabbing.LOW]
        found.append(_cuts_of_half(np.clip(lows[at], first, last), max(point, first), int(share[group])))
        found.append(-_cuts_of_half(-np.clip(ends[at], first, last), -max(point, first), int(share[group])))
    rest = np.concatenate([members[group] for group in by_size[len(large) :].tolist()] or [order[:0]])
    if len(rest):
        both = np.sort(np.clip(np.concatenate((lows[rest], ends[rest])), first, last))
        found.append(both[np.linspace(0, len(both) - 1, min(len(both), _CUTS // 4)).astype(np.int64)])
    return np.unique(np.concatenate(found))


def _cuts_of_half(begins: Codes, point: int, cuts: int) -> Codes:
    """Return where a function is cut that rises by 1 where each interval begins, up to a point."""
    starts, counts = np.unique(begins, return_counts=True)
    values = np.cumsum(counts).astype(np.float64)
    widths = _distances(np.append(starts, max(point, starts[-1])))
    found: Codes = starts[histogram.cluster(values, widths / values**2, cuts)]
    return found


def _distances(places: Codes) -> Heights:
    """Return how far each place is from the one before; the farthest may be more than the last number."""
    return np.diff(places.view(np.uint64)).astype(np.float64)
