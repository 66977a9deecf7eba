"""The yardsticks of caches and FlowExpect: LFD by brute force, temperatures, and the example of section 3.3.4."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bounds_caches import compare_caches, furthest, surfaces, temperatures
from benchmarks.bounds_flow import Candidate, best_sequence, flow_expect
from benchmarks.bounds_joins import optimum, streams
from whence.plan.eviction.value_models import Noise


def most_hits(values: list[int], memory: int) -> int:
    """The most hits of all ways to keep keys."""

    @cache
    def best(i: int, kept: frozenset[int]) -> int:
        if i == len(values):
            return 0
        there = kept | {values[i]}
        ways = itertools.combinations(sorted(there), min(memory, len(there)))
        return (values[i] in kept) + max(best(i + 1, frozenset(way)) for way in ways)

    return best(0, frozenset())


@pytest.mark.parametrize("seed", range(6))
def test_lfd_has_the_most_hits(seed):
    values = np.random.default_rng(seed).integers(0, 6, 14).tolist()
    assert furthest(values, 1 + seed % 3) == most_hits(values, 1 + seed % 3)


def test_heeb_keeps_up_with_recency_and_frequency_on_temperatures():
    lines, checks, figures = compare_caches(temperatures(None, 700), (50,))
    assert len(lines) == 2
    for memory, found in figures.items():
        assert found["LFD"] >= max(found.values()), memory
        assert found["HEEB"] >= 0.97 * max(found["LRU"], found["LFU"]), memory
        assert found["HEEB"] > found["RAND"]
    assert {check.wanted for check in checks} == {0.97}


def test_temperatures_are_read_as_tenths(tmp_path: Path):
    path = tmp_path / "days.csv"
    path.write_text('"Date","Temperature"\n"1981-01-01",38.1\n"1981-01-02",9\n\n')
    assert temperatures(path).tolist() == [381, 90]


def test_surface_through_control_points_is_near_the_table():
    assert surfaces()[-1].startswith("bicubic through 25 points: off by 0.0")


# The example of section 3.3.4: one row fits; when R's and S's rows come, and with which values.
HELD = Candidate(0, (0, 0, 0.8, 0.8))  # R: 1 meets S at t0 + 2 and t0 + 3
TWO = Candidate(0, (0, 1.0, 0, 0.5))  # S: 2, which arrives at t0
THREE = Candidate(1, (0, 0, 0.5, 0))  # S: 3 with probability 0.5, meets R at t0 + 2


def test_flow_expect_takes_the_best_fixed_sequence_of_the_example():
    assert best_sequence([HELD], 1, 3)[0] == 1.6
    assert best_sequence([TWO], 1, 3)[0] == 1.5
    assert best_sequence([TWO, Candidate(1, (0, 0, 0.5, 0.0))], 1, 3)[0] == 1.5  # 2, then perhaps 3
    assert best_sequence([HELD, TWO, THREE], 1, 3) == (1.6, [0])


def test_strategy_that_looks_at_what_arrives_is_better_in_the_example():
    came = best_sequence([TWO, Candidate(1, (0, 0, 1.0, 0))], 1, 3)[0]
    did_not = best_sequence([TWO], 1, 3)[0]
    assert (came, did_not) == (2.0, 1.5)
    assert 0.5 * came + 0.5 * did_not == 1.75 > 1.6


def test_sequences_are_the_best_by_trying_all():
    rng = np.random.default_rng(3)
    for _ in range(20):
        rows = [Candidate(int(rng.integers(0, 3)), (0, *rng.random(3).round(2))) for _ in range(4)]
        rows[0] = Candidate(0, rows[0].gains)

        def best(step: int, kept: frozenset[int], rows: list[Candidate] = rows) -> float:
            if step == 4:
                return 0.0
            new = [i for i, row in enumerate(rows) if row.arrives == step]
            there = [*kept, *new]
            ways = [way for size in range(3) for way in itertools.combinations(there, size)]
            gains = (sum(rows[i].gains[step + 1] for i in way) if step < 3 else 0.0 for way in ways)
            return max(gain + best(step + 1, frozenset(way)) for gain, way in zip(gains, ways, strict=True))

        assert best_sequence(rows, 2, 3)[0] == pytest.approx(best(0, frozenset()))


def test_flow_expect_finds_more_when_it_looks_further_and_never_more_than_the_optimum():
    r, s = streams("FLOOR", 90, np.random.default_rng(6))
    noises = Noise.uniform(10), Noise.uniform(15)
    near, far = (flow_expect(r, s, noises, 1, 8, ahead) for ahead in (1, 4))
    assert near <= far <= optimum(r, s, 8)
