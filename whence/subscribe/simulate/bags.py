"""Bags of rows, and batches of codes, which the cores take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from whence.engine.core.operator import Batch
from whence.subscribe.simulate.oracle import Delta
from whence.subscribe.simulate.plans import Bag, Row


def bag_of(batch: Batch) -> Bag:
    found: Bag = Counter()
    for row, count in zip(map(tuple, batch.rows.tolist()), batch.ann.tolist(), strict=True):
        found[row] += count
    return found


def batch_of(bag: Iterable[tuple[Row, int]], width: int) -> Batch:
    items = list(bag)
    if not items:
        return Batch(np.empty((0, width), np.int64), np.empty(0, np.int64))
    return Batch(np.array([row for row, _ in items], np.int64), np.array([count for _, count in items], np.int64))


def add_to(bag: Bag, delta: Delta) -> None:
    for row, count in delta:
        left = bag[row] + count
        if left:
            bag[row] = left
        else:
            del bag[row]


def difference_of(before: Bag, after: Bag) -> Delta:
    return [
        (row, after[row] - before[row]) for row in sorted(before.keys() | after.keys()) if after[row] != before[row]
    ]
