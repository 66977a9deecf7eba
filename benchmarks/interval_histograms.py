"""Errors of histograms of intervals by number of buckets (paper 002, 4.6.6): ours, as printed, equal width, the best.

| histogram | what it is |
|---|---|
| SSI-HIST | `whence/engine/matching/interval_histogram.py` |
| SSI-HIST as printed | the sum of one histogram per half of a stabbing group, with buckets by size of the group |
| equal width | the mean of each bucket |
| the best | least squared relative error, by dynamic programming over 1,000 cells |

All have so many steps as there are buckets; of the printed one, buckets overlap where groups do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whence.engine.matching.interval_histogram import IntervalHistogram
from whence.engine.matching.kernels import histogram, stabbing

Numbers = NDArray[np.int64]
Values = NDArray[np.float64]

SPAN = 10_000
PROBES = 5_000
_CELLS = 1_000
PAPER_INTERVALS = "the paper's"


@dataclass
class HistogramError:
    """Mean relative errors with so many buckets."""

    intervals: str
    groups: int
    buckets: int
    errors: dict[str, float]


def paper_intervals(n: int, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Midpoints N(5000, 1500), lengths N(1000, 130), which gives about the 18 groups of the paper."""
    return _clipped(rng.normal(SPAN / 2, 1_500, n), rng.normal(1_000, 130, n))


def clustered_intervals(n: int, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Three in four in 12 narrow clusters by Zipf's law, the others anywhere."""
    weights = 1 / np.arange(1, 13)
    middle = rng.integers(0, SPAN, 12)[rng.choice(12, n, p=weights / weights.sum())] + rng.normal(0, 15, n)
    middle[: n // 4] = rng.uniform(0, SPAN, n // 4)
    return _clipped(middle, np.abs(rng.normal(120, 30, n)))


def _clipped(middle: Values, length: Values) -> tuple[Numbers, Numbers]:
    length = np.maximum(length, 1)
    low, high = (np.clip(middle + sign * length / 2, 0, SPAN - 1).round().astype(np.int64) for sign in (-1, 1))
    return low, high


def histogram_errors(buckets: Sequence[int], n: int) -> list[HistogramError]:
    """Estimate how many intervals hold points, all of which are equally likely."""
    out = []
    for name, make in ((PAPER_INTERVALS, paper_intervals), ("clustered", clustered_intervals)):
        rng = np.random.default_rng(1)
        lows, highs = make(n, rng)
        held = np.zeros(SPAN + 1)
        np.add.at(held, lows, 1)
        np.subtract.at(held, highs + 1, 1)
        truth = np.cumsum(held)[:SPAN]
        probes = rng.integers(0, SPAN, PROBES)
        probes = probes[truth[probes] > 0]
        groups = _partition(lows, highs)
        for k in buckets:
            made = IntervalHistogram(k)
            made.build(lows, highs)
            found = {
                "SSI-HIST": made.estimate(np.arange(SPAN)),
                "SSI-HIST as printed": as_printed(lows, highs, groups, k),
                "equal width": _heights(truth, np.linspace(0, SPAN, k + 1).astype(np.int64)),
                "the best": best(truth, k),
            }
            errors = {
                one: float(np.mean(np.abs(h[probes] - truth[probes]) / truth[probes])) for one, h in found.items()
            }
            out.append(HistogramError(name, len(groups[0]), k, errors))
    return out


def _partition(lows: Numbers, highs: Numbers) -> tuple[Numbers, Numbers]:
    """Return a point of each group of the smallest stabbing partition, and the group of each interval."""
    groups = np.empty((len(lows) + 1, 3), np.int64)
    owner, witnesses = np.empty(len(lows), np.int64), np.empty(len(lows), np.int64)
    order = np.argsort(lows, kind="stable")
    count = stabbing.partition(lows, highs, order, groups, owner, witnesses)
    return groups[:count, stabbing.LOW].copy(), owner


def as_printed(lows: Numbers, highs: Numbers, groups: tuple[Numbers, Numbers], buckets: int) -> Values:
    """Return the sum of histograms of halves, each cut by weighted k-means, with buckets by size; some have none."""
    points, owner = groups
    sizes = np.repeat(np.bincount(owner, minlength=len(points)), 2)
    share = buckets * sizes / sizes.sum()
    given = np.floor(share).astype(np.int64)
    given[np.argsort(given - share, kind="stable")[: buckets - int(given.sum())]] += 1
    out = np.zeros(SPAN)
    for half, k in enumerate(given.tolist()):
        members = owner == half // 2
        held = np.zeros(SPAN + 1)
        np.add.at(held, lows[members], 1)
        np.subtract.at(held, highs[members] + 1, 1)
        point = int(points[half // 2])
        places = np.arange(point)[::-1] if half % 2 == 0 else np.arange(point, SPAN)
        places = places[np.cumsum(held)[places] > 0][::-1]  # from few to many
        if k and len(places):
            values = np.cumsum(held)[places]
            weights = 1 / values**2
            begins = histogram.cluster(values, weights, k)
            heights = np.add.reduceat(weights * values, begins) / np.add.reduceat(weights, begins)
            out[places] += np.repeat(heights, np.diff(np.append(begins, len(places))))
    return out


def _heights(truth: Values, edges: Numbers) -> Values:
    """Return the mean of each bucket."""
    means = np.add.reduceat(truth, edges[:-1]) / np.diff(edges)
    return np.repeat(means, np.diff(edges))


def best(truth: Values, buckets: int) -> Values:
    """Return the histogram with the least squared relative error, whose edges are at cells."""
    cells = truth.reshape(_CELLS, -1)
    weights = (1 / np.maximum(cells, 1) ** 2).sum(axis=1)
    values = (cells / np.maximum(cells, 1) ** 2).sum(axis=1) / weights
    begins = histogram.segment(values, weights, buckets)
    heights = np.add.reduceat(values * weights, begins) / np.add.reduceat(weights, begins)
    return np.repeat(heights, np.diff(np.append(begins, _CELLS)) * (SPAN // _CELLS))
