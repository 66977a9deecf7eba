"""Hotspots: the partition's bounds and invariants after every change, whatever comes and goes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.depth import seeds
from whence.engine.matching import hotspots
from whence.engine.matching.hotspots import Hotspots
from whence.model.codes import Codes


def smallest_partition(intervals: list[tuple[int, int]]) -> int:
    count, last = 0, None
    for low, high in sorted(intervals, key=lambda one: one[1]):
        if last is None or low > last:
            count, last = count + 1, high
    return count


def check(spots: Hotspots, held: dict[int, tuple[int, int]]) -> None:
    """I1, I2, and that the points of bins and the sizes of groups are what they should be."""
    tau, n = smallest_partition(list(held.values())), len(held)
    assert len(spots) == n
    assert spots.hotspots <= 2 / spots.alpha
    assert spots.groups + spots.hotspots <= (1 + spots.epsilon) * tau + 2 / spots.alpha
    scattered = spots.boxes.members(0)
    assert spots.groups <= (1 + spots.epsilon) * smallest_partition([(int(r[0]), int(r[1])) for r in scattered])
    assert spots.groups == len(np.unique(scattered[:, -1] >> 1))
    seen = scattered[:, -2].tolist()
    for bin, point in enumerate(spots.points.tolist()[1:], 1):
        members = spots.boxes.members(bin)
        seen += members[:, -2].tolist()
        assert ((members[:, 0] <= point) & (members[:, 1] >= point)).all()
        assert not len(members) or len(members) >= spots.threshold / 2
    for number in np.unique(scattered[:, -1] >> 1):
        group = scattered[scattered[:, -1] >> 1 == number]
        assert group[:, 0].max() <= group[:, 1].min()
        assert len(group) < spots.threshold
    assert sorted(seen) == sorted(held)


def lines(spots: Hotspots, held: dict[int, tuple[int, int]], tags: list[int]) -> Codes:
    ends = np.array([held[tag] for tag in tags], np.int64).reshape(len(tags), 2)
    return spots.boxes.lines(ends[:, :1], ends[:, 1:], np.array(tags, np.int64))


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 3.0])
def test_bounds_hold_after_every_change(seed: int, epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotspots, "SMALLEST", 4)
    rng = np.random.default_rng(seed)
    spots = Hotspots(1, 0, 0, alpha=0.1, epsilon=epsilon)
    held: dict[int, tuple[int, int]] = {}
    changes = tags = 0
    for _ in range(120):
        if rng.random() < 0.55 or not held:
            n = int(rng.choice([1, 1, 1, 2, 20]))
            centers = rng.choice([100, 300, int(rng.integers(0, 2000))], n) + rng.integers(-5, 6, n)
            new = {
                tags + i: (int(c - rng.integers(0, 20)), int(c + rng.integers(0, 20))) for i, c in enumerate(centers)
            }
            tags += n
            held |= new
            spots.put(lines(spots, held, list(new)))
        else:
            low = int(rng.integers(0, 400))
            gone = [t for t, (a, _) in held.items() if low <= a <= low + int(rng.choice([2, 100]))][:30]
            spots.take(lines(spots, held, gone))
            n = len(gone)
            for tag in gone:
                del held[tag]
        changes += n
        check(spots, held)
    assert spots.moves <= 5 * changes


def groups_of(spots: Hotspots) -> set[frozenset[int]]:
    """Return the members of each hotspot and each scattered group."""
    scattered = spots.boxes.members(0)
    found = [scattered[scattered[:, -1] >> 1 == number, -2] for number in np.unique(scattered[:, -1] >> 1)]
    found += [spots.boxes.members(bin)[:, -2] for bin in range(1, len(spots.points))]
    return {frozenset(group.tolist()) for group in found if len(group)}


@pytest.mark.parametrize("seed", seeds(8))
def test_one_change_touches_one_group(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Theorem 13, second half: unless the partition is made anew, or a group changes its kind."""
    monkeypatch.setattr(hotspots, "SMALLEST", 4)
    rng = np.random.default_rng(seed)
    spots = Hotspots(1, 0, 0, alpha=0.1)
    held: dict[int, tuple[int, int]] = {}
    quiet = 0
    for tag in range(250):
        before, made, gone = groups_of(spots), (spots.rebuilt, spots.moves), None
        if rng.random() < 0.6 or not held:
            center = int(rng.choice([100, 300, int(rng.integers(0, 2000))]))
            held[tag] = (center - int(rng.integers(0, 20)), center + int(rng.integers(0, 20)))
            spots.put(lines(spots, held, [tag]))
        else:
            gone = int(rng.choice(list(held)))
            spots.take(lines(spots, held, [gone]))
            del held[gone]
        after = groups_of(spots)
        if made == (spots.rebuilt, spots.moves):
            quiet += 1
            assert len(before - after) <= 1
            assert len(after - before) <= 1
            old, new = (next(iter(some), frozenset()) for some in (before - after, after - before))
            assert old ^ new == {tag if gone is None else gone}
    assert quiet > 100


def test_numbers_of_groups_are_given_again() -> None:
    """Subscriptions that come and go one by one take no memory."""
    spots = Hotspots(1, 0, 0)
    held = {tag: (10 * tag, 10 * tag + 5) for tag in range(100)}
    spots.put(lines(spots, held, list(held)))
    held[100] = (5000, 5001)
    for _ in range(15_000):
        spots.put(lines(spots, held, [100]))
        spots.take(lines(spots, held, [100]))
    del held[100]
    check(spots, held)
    assert len(spots._sizes) < 10_000


def test_ten_intervals_with_two_hotspots(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Figure 4.1: of ten intervals, two groups of four are 0.4-hotspots, and two intervals are scattered."""
    monkeypatch.setattr(hotspots, "SMALLEST", 1)
    spots = Hotspots(1, 0, 0, alpha=0.4)
    ends = [(0, 4), (1, 5), (2, 6), (3, 7), (10, 14), (11, 15), (12, 16), (13, 17), (20, 21), (30, 31)]
    held = dict(enumerate(ends))
    spots.put(lines(spots, held, list(held)))
    check(spots, held)
    assert (spots.hotspots, spots.groups) == (2, 2)
    assert spots.points.tolist()[1:] == [3, 13]


def test_many_hotspots_at_once_and_one_by_one() -> None:
    spots = Hotspots(1, 0, 0)
    held = {tag: (100 * (tag % 40), 100 * (tag % 40) + 10) for tag in range(4000)}
    spots.put(lines(spots, held, list(held)))
    check(spots, held)
    assert (spots.hotspots, spots.groups) == (40, 0)
    held[4000] = (50, 60)
    spots.put(lines(spots, held, [4000]))
    check(spots, held)
    assert (spots.hotspots, spots.groups) == (40, 1)
