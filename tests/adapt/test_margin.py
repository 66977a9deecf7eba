"""The margin: within it the running plan is the best there is, whatever costs did; and it is not narrower than it must
be."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.depth import seeds
from whence.adapt.margin import Margin
from whence.model.types import BIGINT, Column, Schema
from whence.plan.algebra.join_paths import JoinShape
from whence.plan.algebra.logical import Scan
from whence.plan.algebra.multiway_join import MultiwayJoin
from whence.plan.optimizer.paths import PathSpace


def chain(inputs: int) -> PathSpace:
    """Return the paths of a chain of inputs, each joined with the next."""
    source = Scan(Schema((Column("x", BIGINT), Column("y", BIGINT))), "a")
    classes = tuple((2 * i + 1, 2 * i + 2) for i in range(inputs - 1))
    return PathSpace(JoinShape(MultiwayJoin(source.schema, (source,) * inputs, classes, (), (0, 1))))


def fill(space: PathSpace, fan: np.ndarray) -> None:
    passing, met, passed = (np.ones(len(keys)) for keys in (space.test_keys, space.met_keys, space.pass_keys))
    space.fill(fan, passing, met, passed, np.ones(len(space.index_keys), np.int64))


def best_of_all(space: PathSpace, first: int) -> int:
    """Return the least cost of a delta's path, by trying all."""

    def least(entry: int) -> int:
        alternatives = range(int(space.entries[entry, 1]), int(space.entries[entry, 2]))
        left = {n: int(space.alternatives[n, 2]) for n in alternatives}
        return min(int(space.local[n]) + (least(left[n]) if left[n] >= 0 else 0) for n in alternatives)

    return least(space.roots[first])


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize("part", [0.0, 0.05])
def test_within_the_margin_no_plan_is_cheaper(seed: int, part: float) -> None:
    rng = np.random.default_rng(seed)
    space = chain(4)
    fan = rng.lognormal(1, 1, len(space.fan_keys))
    fill(space, fan)
    margin, running, kept, searched = None, list[list[int]](), 0, 0
    for _ in range(60):
        if margin is None or margin.used() > 1:
            costs = space.search()
            assert [int(costs.best[root]) for root in space.roots] == [best_of_all(space, i) for i in range(4)]
            running = [space.numbers_of(first, space.path_of(first, costs)) for first in range(4)]
            slack = [int(part * space.cost_of(path)) for path in running]
            margin = Margin(space, space.regrets(costs), running, [0] * 4, slack)
            searched += 1
        else:
            kept += 1
        for first, path in enumerate(running):
            assert space.cost_of(path) - slack[first] <= best_of_all(space, first)
        fan = fan * rng.lognormal(0, rng.choice([0.001, 0.01, 0.3], p=[0.6, 0.3, 0.1]), len(fan))
        fill(space, fan)
    assert kept > 30, "small changes do not use the margin up"
    assert searched > 2, "large ones do"


def test_margin_is_used_by_the_rise_that_flips_the_plan() -> None:
    """Two inputs to meet first, at 10 and 12 rows: the first is best until its fan-out passes that of the other."""
    space = chain(3)
    numbers = {key[0]: n for n, key in enumerate(space.fan_keys)}
    assert len(numbers) == 3

    def middle(left: float, right: float) -> np.ndarray:
        fan = np.ones(len(space.fan_keys))
        for number, (input, _, _) in enumerate(space.fan_keys):
            fan[number] = {0: left, 2: right}.get(input, 1.0)
        return fan

    fill(space, middle(10, 12))
    costs = space.search()
    assert space.path_of(1, costs) == (0, 2)
    running = [space.numbers_of(first, space.path_of(first, costs)) for first in range(3)]
    margin = Margin(space, space.regrets(costs), running, [0] * 3, [0] * 3)
    assert margin.used() == 0
    fill(space, middle(10.2, 12))
    assert 0 < margin.used() <= 1
    fill(space, middle(10, 12))
    assert margin.used() == 0, "changes that cancel use nothing"
    fill(space, middle(13, 12))
    assert margin.used() > 1
    assert space.path_of(1, space.search()) == (2, 0)


def test_costs_are_integers_whose_sums_do_not_depend_on_the_order() -> None:
    space = chain(4)
    fill(space, np.array([random.Random(1).uniform(0.1, 9) for _ in space.fan_keys]))
    assert space.local.dtype == np.int64
    costs = space.search()
    for first in range(4):
        path = space.numbers_of(first, space.path_of(first, costs))
        assert space.cost_of(path) == space.cost_of(path[::-1]) == int(costs.best[space.roots[first]])
