"""LateIndex: the rows of its source in another order, whatever is read, committed and undone in between."""

from __future__ import annotations

import numpy as np
import pytest

from tests.depth import seeds
from whence.engine.core.ordered import Ordered, Rank
from whence.engine.matching.late_index import LateIndex
from whence.model.codes import Dictionary


@pytest.mark.parametrize("seed", seeds(12))
def test_current_has_the_rows_of_the_source(seed: int) -> None:
    rng, words = np.random.default_rng(seed), Dictionary()
    source = Ordered([Rank(0), Rank(1)], words)
    late = LateIndex(source, [Rank(1), Rank(0)], words)
    for _ in range(60):
        for _ in range(int(rng.integers(0, 3))):
            rows = np.unique(rng.integers(0, 6, (int(rng.integers(1, 12)), 2)), axis=0)
            there = dict(zip(map(tuple, source.head(-1)[0].tolist()), source.head(-1)[1].tolist(), strict=True))
            counts = np.array([rng.integers(-there.get(tuple(row), 0), 3) for row in rows.tolist()])
            source.add(rows, counts)
            late.add(rows, counts)
            if rng.random() < 0.2:
                late.current()
        if rng.random() < 0.3:
            source.undo()
            late.undo()
        else:
            source.commit()
            late.commit()
        if rng.random() < 0.4:
            rows, counts = source.head(-1)
            order = np.lexsort((rows[:, 0], rows[:, 1]))
            found = late.current().head(-1)
            assert found[0].tolist() == rows[order].tolist()
            assert found[1].tolist() == counts[order].tolist()


def test_events_alone_do_not_pile_up() -> None:
    """Deltas wait for a reader; when as many wait as there are rows, the reader starts from the source."""
    words = Dictionary()
    source = Ordered([Rank(0)], words)
    late = LateIndex(source, [Rank(0)], words)
    source.add(np.arange(10)[:, None], np.ones(10, np.int64))
    late.current()
    for value in range(200):
        row, sign = np.array([[value % 10]]), np.array([-1 if value % 20 < 10 else 1])
        source.add(row, sign)
        late.add(row, sign)
        source.commit()
        late.commit()
        assert late.nbytes < 20_000
    assert late.current().head(-1)[0].tolist() == source.head(-1)[0].tolist()
