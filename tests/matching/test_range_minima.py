"""Rectangles of range MIN and MAX: the paper's stock points and messages, and random epochs against brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEEP, examples
from whence.engine.matching.range_minima import RangeMinima, Rectangles, classify
from whence.model.codes import NULL, Dictionary, encode_value
from whence.model.types import BIGINT, TEXT

Point = tuple[int, int, int]  # group, x, y
STOCKS = [(20, 3), (30, 8), (40, 12), (50, 5), (70, 6), (70, 10), (100, 2)]  # Figure 5.1; t3 is the second
T4, T5, T7 = (40, 12), (50, 5), (70, 10)


def stocks() -> RangeMinima:
    points = RangeMinima(0, BIGINT, BIGINT, Dictionary())
    points.add(codes(STOCKS), np.ones(len(STOCKS), np.int64))
    points.commit()
    return points


def codes(rows: Sequence[tuple[int, ...]], width: int = 2) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, len(rows[0]) if rows else width)


def messages(found: Rectangles) -> list[tuple[int, int, int, int, int]]:
    """<new value, inner range, outer range>, as the paper writes them."""
    bounds = found.bounds.tolist()
    return [(v, h1, l2, l1 - 1, h2 + 1) for v, (l1, h1, l2, h2) in zip(found.values.tolist(), bounds, strict=True)]


def update(points: RangeMinima, old: tuple[int, int], new: tuple[int, int]) -> list[tuple[int, int, int, int, int]]:
    return messages(points.change(codes([old, new]), np.array([-1, 1])))


def test_easy_update_of_t4_is_one_message() -> None:
    assert classify(stocks(), codes([T4])[0], codes([(40, 4)])[0]) == "easy"
    assert update(stocks(), T4, (40, 4)) == [(4, 40, 40, 20, 100)]


def test_difficult_update_of_t5_exposes_three_values() -> None:
    points = stocks()
    assert classify(points, codes([T5])[0], codes([(50, 9)])[0]) == "difficult"
    assert update(points, T5, (50, 9)) == [(9, 50, 50, 30, 70), (8, 30, 50, 20, 70), (6, 50, 70, 20, 100)]


def test_mar_of_t5_ends_at_lower_points() -> None:
    points = stocks()
    points.add(codes([T5]), np.array([-1]))
    assert points.mar(codes([T5])[0]) == (21, 99)  # inside of (20, 100)


def test_update_of_t7_is_ignorable_because_of_t6() -> None:
    assert classify(stocks(), codes([T7])[0], codes([(70, 7)])[0]) == "ignorable"
    assert update(stocks(), T7, (70, 7)) == []


def test_t5_after_t4_gives_two_other_messages() -> None:
    points = stocks()
    update(points, T4, (40, 4))
    points.commit()
    assert update(points, T5, (50, 9)) == [(9, 50, 50, 40, 70), (6, 50, 70, 40, 100)]


def test_last_point_of_a_range_leaves_null() -> None:
    points = RangeMinima(0, BIGINT, BIGINT, Dictionary())
    (whole,) = points.change(codes([(5, 1)]), np.array([1])).bounds.tolist()
    assert whole == [-(2**63), 5, 5, 2**63 - 1]
    gone = points.change(codes([(5, 1)]), np.array([-1]))
    assert gone.values.tolist() == [NULL]
    assert gone.bounds.tolist() == [whole]


class Brute:
    """The points as a bag, and the least of a range by looking at all."""

    def __init__(self, greatest: bool):
        self.bag: Counter[Point] = Counter()
        self.best = max if greatest else min

    def least(self, group: int, x1: int, x2: int) -> int:
        return self.best((y for g, x, y in self.bag if g == group and x1 <= x <= x2), default=NULL)

    def change(self, epoch: list[Point], removals: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Add points and take others away; return the net change."""
        before = self.bag.copy()
        self.bag.update(epoch)
        for pick in removals:
            if self.bag:
                gone = sorted(self.bag)[pick % len(self.bag)]
                self.bag[gone] -= 1
                self.bag += Counter()
        net = {p: self.bag[p] - before[p] for p in self.bag.keys() | before.keys() if self.bag[p] != before[p]}
        return codes(list(net), 3), np.array(list(net.values()), np.int64)


def check_epoch(points: RangeMinima, brute: Brute, rows: np.ndarray, counts: np.ndarray, ranges: list[Point]) -> None:
    """Each range is in at most one rectangle: in one with its new value if that has changed, else in none."""
    asked = codes(ranges)
    before = points.least(asked).tolist()
    found = points.change(rows, counts)
    expected = [brute.least(*one) for one in ranges]
    assert points.least(asked).tolist() == expected
    low1, high1, low2, high2 = found.bounds.T
    for one, old, new in zip(ranges, before, expected, strict=True):
        group, x1, x2 = one
        hit = (found.groups[:, 0] == group) & (low1 <= x1) & (x1 <= high1) & (low2 <= x2) & (x2 <= high2)
        assert found.values[hit].tolist() == ([new] if new != old else []), one


EPOCHS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6), st.integers(0, 4)), max_size=6),
        st.lists(st.integers(0, 50), max_size=6),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=examples(60))
@given(EPOCHS, st.booleans())
def test_rectangles_hold_exactly_the_changed_ranges(
    epochs: list[tuple[list[Point], list[int], bool]], greatest: bool
) -> None:
    points, brute = RangeMinima(1, BIGINT, BIGINT, Dictionary(), greatest), Brute(greatest)
    every = [(g, a, b) for g in (0, 1) for a in range(-1, 8) for b in range(a, 8)]
    for come, gone, undone in epochs:
        kept = brute.bag.copy()
        check_epoch(points, brute, *brute.change(come, gone), every)
        if undone:
            points.undo()
            brute.bag = kept
            assert points.least(codes(every)).tolist() == [brute.least(*one) for one in every]
        else:
            points.commit()


@pytest.mark.parametrize("greatest", [False, True])
def test_many_points_over_many_leaves(greatest: bool) -> None:
    """Leaves that split, empty and are skipped in blocks; bursts of updates of x and y together."""
    random = np.random.default_rng(18)
    points, brute = RangeMinima(1, BIGINT, BIGINT, Dictionary(), greatest), Brute(greatest)
    start = np.column_stack([np.zeros(9000, np.int64), random.integers(0, 4000, 9000), random.integers(0, 10**6, 9000)])
    start = np.unique(start, axis=0)
    points.add(start, np.ones(len(start), np.int64))
    points.commit()
    brute.bag = Counter(tuple(row) for row in start.tolist())
    ends = np.sort(random.integers(-5, 4005, (150 if DEEP else 30, 2)), axis=1).tolist()
    ranges = [(0, a, b) for a, b in ends] + [(0, a, a + 3) for a, _ in ends]
    here = list(brute.bag)
    for size in [1] * 20 + [500] * (38 if DEEP else 2):
        before = brute.bag.copy()
        for pick in random.integers(0, len(here), size).tolist():
            _, x, y = here[pick]
            brute.bag[here[pick]] -= 1
            here[pick] = (0, (x + int(random.integers(-2, 3))) % 4000, max(0, y + int(random.normal(0, 10**5))))
            brute.bag[here[pick]] += 1
        brute.bag += Counter()
        net = {p: brute.bag[p] - before[p] for p in brute.bag.keys() | before.keys() if brute.bag[p] != before[p]}
        check_epoch(points, brute, codes(list(net)), np.array(list(net.values()), np.int64), ranges)
        points.commit()


def test_texts_are_told_by_their_order() -> None:
    words = Dictionary()
    points = RangeMinima(0, BIGINT, TEXT, words)

    def text(value: str) -> int:
        return encode_value(value, TEXT, words)

    points.add(codes([(1, text("pear")), (2, text("fig"))]), np.ones(2, np.int64))
    points.commit()
    for n in range(200):  # words come between: labels get dense and are moved
        found = points.change(codes([(1, text("apple" + "z" * n))]), np.array([1]))
        points.commit()
        assert len(found) == (n == 0)
    found = points.change(codes([(1, text("apple" + "z" * n)) for n in range(200)]), np.full(200, -1))
    assert [words.value(v) for v in found.values.tolist()] == ["pear", "fig"]
    assert found.bounds[:, 2:].tolist() == [[1, 1], [2, 2**63 - 1]]
