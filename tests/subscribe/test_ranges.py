"""Sets of ticks as ranges: they are the sets of their ticks, whatever order the ranges come in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as some

from whence.model.errors import DataError
from whence.subscribe.ranges import EVER, RangeSet, reflects_as_much

RANGES = some.lists(
    some.tuples(some.integers(0, 30), some.integers(0, 30)).map(lambda two: (min(two), max(two))), max_size=40
) | some.lists(some.integers(0, 60).map(lambda at: (at, at + 1)), max_size=40)


def ticks_of(ranges: RangeSet) -> set[int]:
    return {tick for since, upto in ranges for tick in range(since + 1, upto + 1)}


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Have several blocks in sets that are small enough to be looked through."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whence.subscribe.ranges.BLOCK", 3)
        yield


@given(RANGES)
def test_a_range_set_is_the_set_of_its_ticks(ranges: list[tuple[int, int]]) -> None:
    grown, before, expected = RangeSet(), RangeSet(), set[int]()
    for since, upto in ranges:
        grown = grown.add(since, upto)
        expected |= set(range(since + 1, upto + 1))
        assert ticks_of(grown) == expected
        assert list(grown) == sorted(grown), "in order"
        assert all(a[1] < b[0] for a, b in zip(list(grown), list(grown)[1:], strict=False)), "apart"
        gone, new = grown.rewritten(before)
        assert (set(before) - set(gone)) | set(new) == set(grown)
        assert set(gone) <= set(before)
        assert not set(gone) & set(new)
        before = grown
    assert grown == RangeSet(ranges)
    assert hash(grown) == hash(RangeSet(ranges))
    assert RangeSet.parse(str(grown)) == grown
    assert len(grown) == len(list(grown))
    assert grown.last == max(expected, default=0)
    assert grown.horizon == next(tick for tick in range(63) if tick + 1 not in expected)


@given(RANGES, RANGES, some.integers(0, 61), some.integers(0, 61))
def test_questions_to_a_range_set_are_those_to_its_ticks(
    ranges: list[tuple[int, int]], others: list[tuple[int, int]], a: int, b: int
) -> None:
    mine, other = RangeSet(ranges), RangeSet(others)
    since, upto = min(a, b), max(a, b)
    wanted = set(range(since + 1, upto + 1))
    assert mine.covers(since, upto) == (wanted <= ticks_of(mine))
    assert ticks_of(RangeSet(mine.missing(since, upto))) == wanted - ticks_of(mine)
    assert ticks_of(mine.minus(other)) == ticks_of(mine) - ticks_of(other)
    assert ticks_of(mine.union(other)) == ticks_of(mine) | ticks_of(other)
    assert ticks_of(mine.upto(b)) == {tick for tick in ticks_of(mine) if tick <= b}
    assert ticks_of(RangeSet(mine.gaps())) == set(range(1, mine.last + 1)) - ticks_of(mine)
    assert (b in mine) == (b in ticks_of(mine))
    around = set(range(since, upto + 2))
    assert mine.touching(since, upto) == [one for one in mine if ticks_of(RangeSet([one])) & around]
    assert reflects_as_much({"h": mine}, {"h": other}) == (ticks_of(other) <= ticks_of(mine))


def test_a_range_at_the_end_shares_what_is_before_it() -> None:
    """Ranges in their order cost the same however many gaps there are."""
    gaps = RangeSet((4 * i, 4 * i + 2) for i in range(1000))
    onward = gaps.add(gaps.last, gaps.last + 5)
    assert onward._blocks is gaps._blocks
    assert len(onward) == 1000


@pytest.mark.parametrize("text", ["1", "0-", "3-3", "5-2", "0-1,", "a-b", "-1-2", "0 - 4", "0-99999999999999999999"])
def test_other_texts_are_no_ranges(text: str) -> None:
    with pytest.raises(DataError, match="not a set of ranges"):
        RangeSet.parse(text)


def test_an_unknown_history_is_not_reflected() -> None:
    assert not reflects_as_much({}, {"h": RangeSet.parse("0-1")})
    assert reflects_as_much({}, {"h": RangeSet()})
    assert RangeSet().gaps(EVER) == [(0, EVER)]
