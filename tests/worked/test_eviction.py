"""Chapter 3 of paper 002: expected benefits, dominance, lifetimes and models, with the numbers of the text."""

from __future__ import annotations

import numpy as np
import pytest

from whence.engine.streams.windows.cached_keys import CachedKeys
from whence.plan.eviction.benefit import benefits, expected_benefit
from whence.plan.eviction.lifetimes import lifetime
from whence.plan.eviction.value_models import Chain, Independent, Noise, choose_model
from whence.plan.streams.model import MemoryLimit

W_R, W_S, NOW = 10, 15, 100
STEPS = 60


def future(width: int, value: int) -> np.ndarray:
    """P(X(NOW + d) = value) for d = 1, 2, … of the stream t + uniform noise."""
    noise = Noise.uniform(width)
    return np.array([noise.at(np.array([value - (NOW + d)]))[0] for d in range(1, STEPS + 1)])


def cumulated(width: int, value: int) -> np.ndarray:
    """The expected cumulative benefit (ECB) over horizons 1, 2, …"""
    p = future(width, value)[:, None]
    return np.array([expected_benefit(p, lifetime("fixed", STEPS, t))[0] for t in range(1, STEPS + 1)])


def test_benefits_under_a_trend_are_those_of_appendix_a15():
    t = np.arange(1, STEPS + 1)
    for value in range(NOW - 30, NOW + W_R + 1):  # rows of R wait for S
        left = value - (NOW - W_S)
        expected = np.zeros(STEPS) if left <= 0 else np.minimum(t, left) / (2 * W_S + 1)
        assert np.allclose(cumulated(W_S, value), expected), value
    for value in range(NOW - 30, NOW + W_S + 1):  # rows of S wait for R
        left, before = value - (NOW - W_R), max(value - (NOW + W_R) - 1, 0)
        expected = np.clip(np.minimum(t, left) - before, 0, None) / (2 * W_R + 1) if left > 0 else np.zeros(STEPS)
        assert np.allclose(cumulated(W_R, value), expected), value


def test_dominance_is_as_corrected_not_as_printed():
    """S2 dominates R2 iff it gains as much in all, for its rate is the larger; R2 never dominates S2."""
    wrong_as_printed = 0
    for x in range(NOW - W_S + 1, NOW + W_R + 1):
        for y in range(NOW - W_R + 1, NOW + W_R + 2):
            of_r, of_s = cumulated(W_S, x), cumulated(W_R, y)
            gained = (y - NOW + W_R) / (2 * W_R + 1) - (x - NOW + W_S) / (2 * W_S + 1)
            assert bool((of_s >= of_r - 1e-12).all()) == (gained >= -1e-12)
            assert not (of_r > of_s + 1e-12).all()
            wrong_as_printed += ((x - NOW + W_S) / (2 * W_S + 1) >= (y - NOW + W_R) / (2 * W_R + 1)) != bool(
                (of_r >= of_s - 1e-12).all()
            )
    assert wrong_as_printed > 100


def test_a_dominated_row_has_the_smaller_score_for_every_lifetime():
    rng = np.random.default_rng(1)
    for kind, parameter in (("fixed", 7), ("infinite", 1), ("inverse", 1), ("exponential", 5.0)):
        weights = lifetime(kind, STEPS, parameter)
        assert (np.diff(weights) <= 0).all()
        assert 0 <= weights.min() <= weights.max() <= 1
        for _ in range(50):
            small = rng.random(STEPS) / 2
            large = small + rng.random(STEPS) / 2
            assert expected_benefit(large[:, None], weights)[0] >= expected_benefit(small[:, None], weights)[0]


def test_window_example_orders_the_rows_2_1_3():
    rows = [(0.50, 1), (0.49, 50), (0.01, 51)]
    score = [expected_benefit(np.full((60, 1), p), lifetime("exponential", 60, 10, w))[0] for p, w in rows]
    assert sorted(range(3), key=lambda i: -score[i]) == [1, 0, 2]
    assert max(range(3), key=lambda i: rows[i][0]) == 0  # PROB
    assert rows[2][0] * rows[2][1] > rows[0][0] * rows[0][1]  # LIFE


@pytest.mark.parametrize("drift", [0, 2, 4])
def test_walks_prefer_what_lies_in_their_direction(drift):
    low, table = benefits(Chain(1.0, Noise.normal(1, mean=drift)), 10.0)
    score = {o: table[0, o - low] for o in range(-12, 13)}
    if drift == 0:  # the nearest first, on both sides
        assert all(score[o] > score[o + 1] and score[-o] > score[-o - 1] for o in range(1, 12))
        assert all(abs(score[o] - score[-o]) < 1e-9 for o in range(12))
    else:
        assert all(score[o] > score[-o] for o in range(1, 12))
        assert score[drift] == max(score.values())


def test_chain_has_the_visits_that_stepping_through_it_counts():
    chain, alpha = Chain(0.6, Noise.normal(1.5)), 4.0
    low, table = benefits(chain, alpha)
    values = np.arange(low, -low + 1)
    step = chain.noise.at(values[None, :] - np.rint(0.6 * values).astype(int)[:, None])
    total, reach = np.zeros_like(step), np.eye(len(values))
    first = np.zeros_like(step)
    for d in range(1, 90):
        reach = reach @ step
        total += reach * np.exp(-d / alpha)
    assert np.allclose(table, total)
    cached = benefits(chain, alpha, cached=True)[1]
    for v in range(0, len(values), 3):
        away = step.copy()
        away[:, v] = 0
        arriving = step[:, v]
        for d in range(1, 90):
            first[:, v] += arriving * np.exp(-d / alpha)
            arriving = away @ arriving
        assert np.allclose(cached[:, v], first[:, v])


def test_models_are_told_apart_by_what_came():
    rng = np.random.default_rng(4)
    t = np.arange(1200)
    season = np.rint(40 * np.sin(2 * np.pi * t / 100) + rng.normal(0, 3, 1200)).astype(np.int64)
    assert isinstance(choose_model(t + rng.integers(-9, 10, 1200)), Independent)
    found = choose_model(season, period=100)
    assert isinstance(found, Chain)
    assert len(found.mean) == 100
    assert choose_model(rng.integers(0, 9, 1200)).describe() == "stationary"


def reduced(references: str) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Streams R and S whose join is the caching of some references (section 3.2.1)."""
    seen: dict[str, int] = {}
    r, s = [], []
    for value in references:
        count = seen.get(value, 0)
        r.append((value, count))
        s.append((value, count + 1))
        seen[value] = count + 1
    return r, s


def test_caching_reduces_to_joining_as_in_the_text():
    assert reduced("abaca") == (
        [("a", 0), ("b", 0), ("a", 1), ("c", 0), ("a", 2)],
        [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 3)],
    )


@pytest.mark.parametrize("keep", ["lru", "lfu", "heeb", "random"])
def test_hits_of_a_cache_are_the_pairs_of_the_reduced_join(keep):
    """Theorem 7: the row of S for a kept key, of its last reference, meets the next reference and no other."""
    rng = np.random.default_rng(5)
    references = "".join(rng.choice(list("abcdefgh"), 300, p=[0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05]))
    r, s = reduced(references)
    cache = CachedKeys(3, MemoryLimit(3, keep=keep), is_numeric=True)  # type: ignore[arg-type]  # one of the policies
    kept: dict[str, tuple[str, int]] = {}  # rows of S
    pairs = hits = 0
    for value, from_r, from_s in zip(references, r, s, strict=True):
        found, evicted = cache.refer(np.array([ord(value)]))
        pairs += sum(row == from_r for row in kept.values())
        hits += int(found[0])
        kept[value] = from_s  # in place of the row before it
        for code in evicted.tolist():
            del kept[chr(code)]
        assert len(kept) <= 3
    assert pairs == hits > 50


def test_benefits_of_a_row_for_several_joins_add_up():
    """Appendix A.3: a row that serves several joins is worth what it is worth to all."""
    weights = lifetime("exponential", STEPS, 5.0)
    one, other = future(W_R, NOW + 3)[:, None], future(W_S, NOW + 3)[:, None]
    both = expected_benefit(one, weights) + expected_benefit(other, weights)
    assert expected_benefit(one + other, weights) == pytest.approx(both)


def test_cached_walk_is_worth_more_the_nearer_it_is():
    low, table = benefits(Chain(1.0, Noise.uniform(2)), 10.0, cached=True)
    assert table.shape[0] == 1
    score = {o: table[0, o - low] for o in range(-9, 10)}
    assert all(score[o] > score[o + 1] and score[-o] > score[-o - 1] for o in range(1, 9))
    assert 0 < score[0] < 1
