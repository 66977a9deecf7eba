"""Interval histograms: cuts that are best, estimates near the truth, and intervals that come and go."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tests.depth import seeds
from whence.engine.matching.interval_histogram import IntervalHistogram
from whence.engine.matching.kernels import histogram as kernels
from whence.engine.matching.kernels.histogram import LAST, Heights
from whence.model.codes import NULL, Codes


def scatter_of(values: Heights, weights: Heights, begins: tuple[int, ...]) -> float:
    total = 0.0
    for i, j in zip(begins, (*begins[1:], len(values)), strict=True):
        mean = np.average(values[i:j], weights=weights[i:j])
        total += float((weights[i:j] * (values[i:j] - mean) ** 2).sum())
    return total


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("rising", [True, False])
def test_cuts_are_the_best_there_are(seed: int, rising: bool) -> None:
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 11)), int(rng.integers(1, 5))
    values, weights = rng.integers(1, 30, n).astype(float), rng.random(n) + 0.01
    if rising:
        values.sort()
    found = (kernels.cluster if rising else kernels.segment)(values, weights, k)
    every = [(0, *rest) for rest in combinations(range(1, n), min(k, n) - 1)]
    least = min(scatter_of(values, weights, begins) for begins in every)
    assert scatter_of(values, weights, tuple(found.tolist())) == pytest.approx(least, abs=1e-9)


def held(lows: Codes, highs: Codes, points: Codes) -> Codes:
    return np.array([int(((lows <= x) & (highs >= x)).sum()) for x in points.tolist()])


def random_intervals(rng: np.random.Generator, n: int) -> tuple[Codes, Codes]:
    """Clustered and scattered ones, some without an end."""
    lows = rng.choice([100, 105, 700], n) + rng.integers(-40, 41, n)
    lows[: n // 4] = rng.integers(0, 1000, n // 4)
    highs = lows + rng.integers(0, 60, n)
    lows[rng.random(n) < 0.1], highs[rng.random(n) < 0.1] = NULL + 1, LAST
    return lows.astype(np.int64), highs.astype(np.int64)


@pytest.mark.parametrize("seed", seeds(8))
def test_enough_buckets_are_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lows, highs = random_intervals(rng, int(rng.integers(0, 20)))
    made = IntervalHistogram(64)
    made.build(lows, highs)
    points = np.arange(-10, 1100)
    assert made.estimate(points) == pytest.approx(held(lows, highs, points))


@pytest.mark.parametrize("seed", seeds(8))
def test_intervals_that_come_and_go_are_followed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lows, highs = random_intervals(rng, 200)
    made, fresh = IntervalHistogram(20), IntervalHistogram(20)
    made.build(lows, highs)
    fresh.build(lows, highs)
    more = random_intervals(rng, 100)
    made.add(*more)
    made.add(lows[:50], highs[:50], -1)
    for part, sign in ((more, 1), ((lows[:50], highs[:50]), -1)):
        for low, high in zip(*part, strict=True):
            fresh.add(np.array([low]), np.array([high]), sign)
    assert made.size == fresh.size == 250
    points = np.arange(-10, 1100)
    assert made.estimate(points) == pytest.approx(fresh.estimate(points))
    now = np.concatenate((lows[50:], more[0])), np.concatenate((highs[50:], more[1]))
    error = np.abs(made.estimate(points) - held(*now, points)).mean()
    assert error < 0.1 * held(*now, points).max()


def test_a_fifth_of_a_hundred_buckets_errs_by_less_than_15_percent() -> None:
    """Paper 002, 4.6.6: 100,000 intervals, 20 buckets, 5,000 uniform probes; 14.9 % there."""
    rng = np.random.default_rng(0)
    middle, length = rng.normal(5000, 1500, 100_000), rng.normal(1000, 130, 100_000)
    lows, highs = (np.clip(middle + s * length / 2, 0, 10_000).round().astype(np.int64) for s in (-1, 1))
    probes = rng.integers(0, 10_001, 5_000)
    truth = np.searchsorted(np.sort(lows), probes, "right") - np.searchsorted(np.sort(highs), probes)
    made = IntervalHistogram(20)
    made.build(lows, highs)
    assert len(made.breaks) == 21
    assert np.mean(np.abs(made.estimate(probes) - truth) / truth) < 0.15


def test_ends_of_doubles_and_other_far_numbers() -> None:
    """Steps may be wider than the last number, and ends next to each other where floats are coarse."""
    far = 2**62
    lows, highs = np.array([-far, far, far + 1, NULL + 1]), np.array([far, far + 3, LAST - 5, -far])
    made = IntervalHistogram(16)
    made.build(lows, highs)
    points = np.array([NULL + 1, -far - 1, -far, 0, far, far + 1, far + 4, LAST])
    assert made.estimate(points) == pytest.approx(held(lows, highs, points))
