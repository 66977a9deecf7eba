"""A table's cost function, learnt from releases that were timed.

Observations fall into bins, four to each doubling of the rows. A bin has the mean of its rows and of its seconds, in
which later observations count more. Through the bins goes the best monotone function (isotonic regression). Where
`fixed + each * rows` is near all bins it is used; else the subadditive closure on a grid: `f(n) = min(g(n), f(k) +
f(n - k))`. So a larger release than any before is estimated from above, by releases that together are as large.

Laws: monotone; subadditive; zero of nothing. Before the first observation it is zero of everything (`known` is False).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from whence.adapt.refresh.costs import Linear

_PER_DOUBLING = 4  # bins
_CELLS = 128  # of the grid, up to the largest bin
_FARTHEST = 2  # times the largest bin: from there on whole multiples are counted
_LEAST_WEIGHT = 0.1  # of a new observation
_OUTLIER = 4.0  # times a bin's mean: what an observation counts as at most, when it is not the only one
_STALE = 0.03  # relative change of a bin up to which the last fit is good enough
_NEAR = 0.15  # relative error up to which a line is near a bin


@dataclass
class _Bin:
    rows: float
    seconds: float
    count: int = 1
    fitted: float = 0.0  # the seconds that were last fitted

    def add(self, rows: int, seconds: float) -> None:
        self.count += 1
        weight = max(1.0 / self.count, _LEAST_WEIGHT)
        if self.count > 3:
            seconds = min(seconds, _OUTLIER * self.seconds)
        self.rows += weight * (rows - self.rows)
        self.seconds += weight * (seconds - self.seconds)


class LearntCost:
    """The seconds that a release of so many rows takes.

    >>> cost = LearntCost()
    >>> for rows in (1, 10, 100, 1000): cost.observe(rows, 0.2 + 0.001 * rows)
    >>> cost.linear is not None, round(cost(500), 3)
    (True, 0.7)
    """

    def __init__(self) -> None:
        self._bins: dict[int, _Bin] = {}
        self._fresh = True  # whether what follows is of all observations
        self._linear: Linear | None = None
        self._step, self._last, self._grid = 1, 0, [0.0]

    @property
    def known(self) -> bool:
        """Whether anything has been observed."""
        return bool(self._bins)

    @property
    def linear(self) -> Linear | None:
        """The line that is near all observations, if one is."""
        if not self._fresh:
            self._fit()
        return self._linear

    def observe(self, rows: int, seconds: float) -> None:
        """Take in that a release of so many rows took so long."""
        if rows <= 0:
            return
        place = math.floor(math.log2(rows) * _PER_DOUBLING)
        found = self._bins.get(place)
        if found is None:
            self._bins[place] = _Bin(rows, seconds)
            self._fresh = False
        else:
            found.add(rows, seconds)
            self._fresh = self._fresh and abs(found.seconds - found.fitted) <= _STALE * found.fitted

    def __call__(self, rows: int) -> float:
        if rows <= 0 or not self._bins:
            return 0.0
        line = self.linear
        if line is not None:
            return line(rows)
        grid, step = self._grid, self._step
        whole, cells = 0.0, -(-rows // step)
        last = self._last
        if cells > _FARTHEST * last:
            batches = cells // last - 1
            whole, cells = batches * grid[last], cells - batches * last
        if cells >= len(grid):
            grid.extend(_continued(grid, cells))
        return whole + grid[cells]

    def _fit(self) -> None:
        bins = [self._bins[place] for place in sorted(self._bins)]
        rows = np.array([each.rows for each in bins])
        weights = np.array([float(min(each.count, 10)) for each in bins])
        seconds = isotonic(np.array([each.seconds for each in bins]), weights)
        for each in bins:
            each.fitted = each.seconds
        self._linear = _line(rows, seconds, weights)
        self._fresh = True
        if self._linear is not None:
            return
        most = math.ceil(rows[-1])
        self._step = -(-most // _CELLS)
        at = np.arange(1, -(-most // self._step) + 1) * self._step
        self._grid = subadditive([0.0, *np.interp(at, rows, seconds).tolist()])
        self._last = len(self._grid) - 1


def isotonic(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the monotone values nearest to some, by weighted squares: neighbours that fall are pooled.

    >>> isotonic(np.array([1.0, 3.0, 2.0, 4.0]), np.ones(4)).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            (one, first, count), (other, second, more) = pools[-2:]
            pools[-2:] = [((one * first + other * second) / (first + second), first + second, count + more)]
    return np.repeat([mean for mean, _, _ in pools], [count for _, _, count in pools])


def subadditive(values: list[float]) -> list[float]:
    """Return the largest subadditive values below some monotone ones, of which the first is zero.

    >>> subadditive([0.0, 1.0, 3.0, 3.5])
    [0.0, 1.0, 2.0, 3.0]
    """
    found = np.array(values)
    for place in range(2, len(found)):
        half = place // 2
        apart = (found[1 : half + 1] + found[place - half : place][::-1]).min()
        found[place] = max(min(found[place], apart), found[place - 1])
    whole: list[float] = found.tolist()
    return whole


def _continued(values: list[float], upto: int) -> list[float]:
    """Return how subadditive values go on, as far as those before them say: by the cheapest split."""
    found = np.zeros(upto + 1)
    found[: len(values)] = values
    for place in range(len(values), upto + 1):
        half = place // 2
        found[place] = (found[1 : half + 1] + found[place - half : place][::-1]).min()
    more: list[float] = found[len(values) :].tolist()
    return more


def _line(rows: np.ndarray, seconds: np.ndarray, weights: np.ndarray) -> Linear | None:
    """Return the line through some bins, neither part below zero, if it is near all of them and they are enough."""
    if len(rows) < 3 or rows[-1] < 4 * rows[0]:
        return None
    relative = weights / np.maximum(seconds, 1e-12) ** 2  # so that small releases count, too
    mean_rows, mean = np.average(rows, weights=relative), np.average(seconds, weights=relative)
    spread = np.average((rows - mean_rows) ** 2, weights=relative)
    each = max(0.0, float(np.average((rows - mean_rows) * (seconds - mean), weights=relative) / spread))
    fixed = float(mean - each * mean_rows)
    if fixed < 0:
        fixed = 0.0
        each = float((relative * rows * seconds).sum() / (relative * rows**2).sum())
    errors = np.abs(fixed + each * rows - seconds) / np.maximum(seconds, 1e-12)
    return Linear(each, fixed) if errors.max() <= _NEAR else None
