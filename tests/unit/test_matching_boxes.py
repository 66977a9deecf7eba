"""Boxes: what a query meets, while boxes come, go and are undone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.depth import seeds
from whence.engine.matching.boxes import Boxes


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
