"""Cost functions that are learnt: monotone, subadditive, and linear only where a line fits."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tests.depth import seeds
from whence.adapt.refresh.learnt_cost import LearntCost, subadditive
from whence.adapt.refresh.view_costs import ViewCosts


def test_line_is_found_where_it_fits() -> None:
    cost, rng = LearntCost(), random.Random(1)
    for rows in (1, 5, 20, 80, 300, 400) * 10:
        cost.observe(rows, (0.28571 + 0.0001071 * rows) * rng.uniform(0.97, 1.03))
    assert cost.linear is not None
    assert cost(600) == pytest.approx(0.35, rel=0.05)
    assert cost(0) == 0.0


def test_steps_are_not_taken_for_a_line() -> None:
    cost = LearntCost()
    for rows in range(1, 41):
        cost.observe(rows, math.ceil(rows / 5))
    assert cost.linear is None
    for rows in (4, 9, 20, 40):
        assert cost(rows) == pytest.approx(math.ceil(rows / 5), abs=1.01)


@pytest.mark.parametrize("seed", seeds(20))
def test_learnt_cost_is_monotone_and_subadditive(seed: int) -> None:
    rng, cost = random.Random(seed), LearntCost()
    for _ in range(rng.randint(1, 30)):
        rows = rng.choice([1, 2, 3, 7, 20, 50, 90])
        cost.observe(rows, rng.uniform(0.01, 1.0) + rng.choice([0.0, 0.02]) * rows)
    top = 120
    values = [cost(rows) for rows in range(top + 1)]
    assert values[0] == 0.0
    assert all(one <= other + 1e-12 for one, other in itertools.pairwise(values))
    for one in range(1, top):
        for other in range(1, top - one):
            assert values[one + other] <= values[one] + values[other] + 1e-9


def test_larger_release_is_estimated_by_smaller_ones() -> None:
    """One observation says that k rows cost at most k times as much: so a held table may grow, and is learnt."""
    cost = LearntCost()
    assert not cost.known
    cost.observe(1, 0.01)
    assert cost(10) == pytest.approx(0.1)
    cost.observe(10, 0.02)
    assert cost(10) == pytest.approx(0.02)
    assert cost(20) == pytest.approx(0.04)


def test_drift_is_followed_and_an_outlier_is_not() -> None:
    cost = LearntCost()
    for _ in range(10):
        cost.observe(100, 1.0)
    cost.observe(100, 50.0)
    assert cost(100) < 1.5
    for _ in range(60):
        cost.observe(100, 2.0)
    assert cost(100) == pytest.approx(2.0, rel=0.05)


def test_closure_takes_the_cheapest_split() -> None:
    assert subadditive([0.0, 2.0, 5.0, 5.0, 9.0]) == [0.0, 2.0, 4.0, 5.0, 7.0]


def test_shared_part_of_a_job_is_paid_once() -> None:
    """A job costs 80 ms whatever it does: two tables together are known to cost less than one by one."""
    model, rng = ViewCosts([LearntCost(), LearntCost()], together=True), random.Random(2)
    for _ in range(60):
        counts = rng.choice([(5, 0), (0, 5), (5, 5), (40, 0), (40, 10)])
        model.observe(counts, 0.08 + 0.001 * counts[0] + 0.0005 * counts[1] + 0.02 * (counts[1] > 0))
    costs = model.costs(())
    assert costs.shared == pytest.approx(0.085)
    assert costs.incremental((5, 5)) == pytest.approx(0.1075, rel=0.1)
    assert costs.incremental((5, 5)) < 0.7 * (costs.incremental((5, 0)) + costs.incremental((0, 5)))


def test_recomputing_grows_with_the_rows_and_is_chosen_when_it_is_cheaper() -> None:
    model = ViewCosts([LearntCost()])
    model.observe((10,), 0.1)
    assert model.costs((1000,)).recompute == pytest.approx(10.0)  # as if all rows came again
    assert not model.costs((1000,)).everything((1000,)).recompute
    model.observe_recomputing((1000,), 0.5)
    assert model.costs((2000,)).recompute == pytest.approx(1.0)
    assert not model.costs((1000,)).everything((10,)).recompute
    assert model.costs((1000,)).everything((100,)).recompute


def test_margin_covers_all_but_one_in_a_hundred() -> None:
    model, rng = ViewCosts([LearntCost()]), random.Random(3)
    ratios = [rng.lognormvariate(0.0, 0.2) for _ in range(256)]
    for ratio in ratios:
        model.observe_refresh(1.0, ratio)
    assert sum(ratio > model.margin for ratio in ratios) <= 3
