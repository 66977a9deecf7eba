"""Indexes that are built in slices while rows come, go and come back: when whole they have what an index built at once
has."""

from __future__ import annotations

import numpy as np
import pytest

from tests.depth import seeds
from whence.engine.core.batch import consolidate
from whence.engine.core.operator import Batch
from whence.engine.core.relation import Relation


def batch(rng: np.random.Generator, rows: int) -> Batch:
    """Return random changes of rows of two columns."""
    return consolidate(Batch(rng.integers(0, 40, (rows, 2)), rng.choice([1, 1, -1], rows)))


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("ordered", [False, True])
def test_index_built_in_slices_has_the_rows_of_the_relation(seed: int, ordered: bool) -> None:
    rng = np.random.default_rng(seed)
    relation, cols = Relation(2), (0, 1) if ordered else (1,)
    relation.apply(batch(rng, 600))
    relation.commit()
    slices = 0
    while not relation.grow_index(cols, ordered, 50):
        slices += 1
        assert cols not in (relation.ranges if ordered else relation.indexes), "not used before it is whole"
        relation.add(batch(rng, 30))
        if rng.random() < 0.4:
            relation.undo()
        else:
            relation.commit()
    assert slices > 5
    assert not relation.growing
    for _ in range(3):
        check(relation, cols, ordered)
        relation.add(batch(rng, 30))
        relation.commit()


def check(relation: Relation, cols: tuple[int, ...], ordered: bool) -> None:
    """Compare what an index finds with all rows."""
    live = relation.scan().rows
    if ordered:
        keys = np.array([[k, 10] for k in range(40)])
        at, ids = relation.ranges[cols].between(keys, np.full(40, 25))
        wanted = sorted((k, *row) for k in range(40) for row in live.tolist() if row[0] == k and 10 <= row[1] <= 25)
    else:
        keys = np.arange(40)[:, None]
        at, ids = relation.probe(cols, keys)
        wanted = sorted((k, *row) for k in range(40) for row in live.tolist() if row[1] == k)
    assert sorted((int(a), *relation.rows[i].tolist()) for a, i in zip(at, ids, strict=True)) == wanted


def test_index_that_is_not_wanted_is_forgotten() -> None:
    relation = Relation(2)
    relation.apply(batch(np.random.default_rng(0), 600))
    relation.commit()
    assert not relation.grow_index((1,), False, 10)
    relation.stop_growing()
    assert not relation.growing
    assert (1,) not in relation.indexes
