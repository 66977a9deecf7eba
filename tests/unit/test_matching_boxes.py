"""Boxes: what a query meets, while boxes come, go and are undone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.depth import seeds
from whence.engine.matching.boxes import Boxes

FIRST, LAST = -(2**63) + 1, 2**63 - 1  # ends that are missing


def _ends(rng: np.random.Generator, span: int, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes, of which some have no low or no high end, or end just before."""
    lows = rng.integers(-span, span, shape)
    highs = lows + rng.integers(0, span, shape)
    lows[rng.random(shape) < 0.2] = FIRST
    for last in (LAST, LAST - 1):
        highs[rng.random(shape) < 0.1] = last
    return lows, highs


@pytest.mark.parametrize("seed", seeds(12))
def test_ends_far_apart_or_missing_are_compared_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    span = [3, 40, 2**31, 2**40, 2**61][seed % 5]
    boxes = Boxes(2)
    lows, highs = _ends(rng, span, (300, 2))
    if seed % 2:  # points, which may be anything there is
        lows[rng.random(lows.shape) < 0.1] = FIRST - 1
        highs = lows.copy()
    boxes.add(lows, highs, np.arange(300))
    gone = rng.permutation(300)[:40]
    boxes.remove(lows[gone], highs[gone], gone)
    kept = np.setdiff1d(np.arange(300), gone)
    ends = np.concatenate((lows, highs))
    first = ends[rng.integers(0, len(ends), 60), 0][:, None] + rng.integers(-1, 2, (60, 2)) * (
        rng.random((60, 1)) < 0.5
    )
    first = np.concatenate((first, [[FIRST - 1, FIRST - 1], [FIRST, LAST], [LAST, LAST - 1], [0, FIRST - 1]]))
    last = np.where(first < LAST - span, first + rng.integers(0, 2, first.shape) * span, first)
    at, found = boxes.find(first, last)
    meets = (lows[kept, None] <= last) & (highs[kept, None] >= first)
    wanted = [(int(q), int(kept[i])) for i, q in np.argwhere(meets.all(axis=2))]
    assert sorted(zip(at.tolist(), found.tolist(), strict=True)) == sorted(wanted)


@pytest.mark.parametrize("seed", seeds(12))
def test_find_gives_the_boxes_that_meet(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dims = 1 + seed % 3
    boxes, held = Boxes(dims, equal=int(rng.integers(0, 2))), {}
    for step in range(40):
        n = int(rng.integers(0, 60))
        lows = rng.integers(0, 50, (n, dims))
        highs, tags = lows + rng.integers(0, 20, (n, dims)), np.arange(n) + 1000 * step
        gone = [tag for tag in held if rng.random() < 0.3]
        boxes.add(lows, highs, tags)
        if gone:
            boxes.remove(*(np.array([held[tag][end] for tag in gone]) for end in (0, 1)), np.array(gone))
        if rng.random() < 0.3:
            boxes.undo()
        else:
            boxes.commit()
            held = {tag: box for tag, box in held.items() if tag not in gone}
            held |= {int(tag): (low, high) for tag, low, high in zip(tags, lows, highs, strict=True)}
        first = rng.integers(0, 70, (4, dims))
        last = first + rng.integers(0, 3, (4, dims))
        at, found = boxes.find(first, last)
        wanted = [
            (q, tag)
            for q in range(4)
            for tag, (low, high) in held.items()
            if (low <= last[q]).all() and (high >= first[q]).all()
        ]
        assert sorted(zip(at.tolist(), found.tolist(), strict=True)) == sorted(wanted)
        assert len(boxes) == len(held)


def test_equal_boxes_are_removed_one_by_one() -> None:
    boxes, ends = Boxes(1), np.zeros((100, 1), np.int64)
    boxes.add(ends, ends, np.arange(100))
    for tag in range(0, 100, 2):
        boxes.remove(ends[:1], ends[:1], np.array([tag]))
    assert sorted(boxes.find(ends[:1], ends[:1])[1].tolist()) == list(range(1, 100, 2))


def test_memory_of_removed_boxes_is_used_again() -> None:
    boxes, ends = Boxes(1), np.arange(20_000)[:, None]
    for turn in range(20):
        tags = np.arange(20_000) + turn
        boxes.add(ends, ends, tags)
        boxes.remove(ends, ends, tags)
        boxes.commit()
    boxes.add(ends, ends, ends[:, 0])
    assert len(boxes) == 20_000
    assert boxes.nbytes < 20_000 * 3 * 40
