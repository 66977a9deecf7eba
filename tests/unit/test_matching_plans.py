"""The four ways to process an event of a join find the same subscriptions."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.subscriptions_load import event_inputs, operator
from benchmarks.subscriptions_peers import numpy_peer
from tests.depth import seeds
from whence.engine.matching.kernels import pairs


@pytest.mark.parametrize("seed", seeds(6))
def test_plans_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.column_stack((rng.integers(0, 10, 300), rng.integers(0, 200, 300), np.arange(300)))
    low = rng.integers(0, 200, (500, 2))
    low[:300, 1] = rng.integers(40, 60, 300)  # a hotspot, and scattered ones
    high = low + rng.integers(0, 15, (500, 2))
    given = np.column_stack((np.arange(500), low[:, 0], high[:, 0], low[:, 1], high[:, 1]))
    made, events = operator(rows, given), np.column_stack((rng.integers(0, 12, 60), rng.integers(0, 200, 60)))
    side, other = made.sides
    assert side.subscriptions.hotspots
    assert side.subscriptions.groups
    wanted = {(int(q), int(id)) for q, id in numpy_peer(rows, given)(events, False)}
    for plan in (pairs.HOTSPOT, pairs.SELECT, pairs.JOIN, pairs.SCAN):
        found = side.affected(other, *event_inputs(side, events), np.full(len(events), plan, np.int64))
        ids = side.subscriptions.boxes.entries[found[:, 1], -2]
        assert len(found) == len(wanted)
        assert set(zip(found[:, 0].tolist(), ids.tolist(), strict=True)) == wanted
