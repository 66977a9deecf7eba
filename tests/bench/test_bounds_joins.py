"""The yardsticks of joins in bounded memory: the offline optimum, and what runs beside it."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest

from benchmarks.bounds_joins import QUICK_JOINS, JoinSizes, compare, join, optimum, rates, streams


def best_by_trying(r: np.ndarray, s: np.ndarray, memory: int) -> int:
    """The most pairs of different steps after the warm-up, over every way to keep rows."""
    rows = [(step, side, int(values[step])) for step in range(len(r)) for side, values in enumerate((r, s))]

    @cache
    def best(number: int, kept: frozenset[int]) -> int:
        if number == len(rows):
            return 0
        step, side, value = rows[number]
        gain = sum(
            rows[k][1] != side and rows[k][2] == value and rows[k][0] != step and step >= 4 * memory for k in kept
        )
        choices = [*kept, number]
        return gain + max(
            best(number + 1, frozenset(some))
            for size in range(memory + 1)
            for some in itertools.combinations(choices, min(size, len(choices)))
        )

    return best(0, frozenset())


@pytest.mark.parametrize("seed", range(6))
def test_optimum_is_the_best_of_all_ways_to_keep_rows(seed):
    rng = np.random.default_rng(seed)
    r, s = rng.integers(0, 3, (2, 8))
    memory = 1 + seed % 2
    found = optimum(r, s, memory)
    assert found == best_by_trying(r, s, memory)
    assert all(join(r, s, memory, keep)[0] <= found for keep in ("heeb", "lru", "random"))


def test_heeb_is_ahead_where_the_future_can_be_told():
    lines, checks, figures = compare(JoinSizes(500, 2, (10,), 1))
    assert len(lines) == 5
    assert all(check.measured >= check.wanted for check in checks if "WALK" not in check.what)
    for name, counts in figures.items():  # each a dict of lists
        assert counts["opt"][0] >= counts["heeb"][0], name


def test_rates_are_of_both_joins():
    lines, (check,) = rates(JoinSizes(kept=500, arrivals=20_000))
    assert [line.split(":")[0] for line in lines] == ["windows", "heeb", "prob", "lru", "random"]
    assert check.measured > 0
    assert QUICK_JOINS.kept < JoinSizes().kept


def test_streams_have_the_noise_of_the_paper():
    r, s = streams("TOWER", 4000, np.random.default_rng(1))
    t = np.arange(4000)
    assert abs((r - t).mean() + 1) < 0.1
    assert abs((s - t).std() - 2) < 0.1
