"""The ticks of rows: found among those that they can be of, and let go of with their rows."""

from __future__ import annotations

import random

import numpy as np
import pytest

import whence
from tests import inside
from whence.runtime.sources import reflected
from whence.runtime.sources.reflected import TickIndex, declare_tables, write_ticks
from whence.runtime.writing.arrivals import EpochArrivals


@pytest.mark.parametrize("start", [0, 5])
def test_the_epochs_of_rows_are_those_that_brought_them(start: int) -> None:
    choose = random.Random(start)
    arrivals, number, epoch = EpochArrivals(), 0, 1
    if start:
        number, epoch = 20, 7
        arrivals.restore([6, number], 6, number)
    known = dict.fromkeys(range(1, number + 1), (6, 0))
    for _ in range(50):
        epoch += choose.randint(1, 3)
        count = choose.randint(1, 4)
        known |= dict.fromkeys(range(number + 1, number + count + 1), (epoch, 10 * epoch))
        number += count
        arrivals.add(epoch, 10 * epoch, number)
        asked = sorted(choose.sample(sorted(known), choose.randint(0, min(8, len(known)))))
        epochs, times = arrivals.ticks(np.array(asked, np.int64))
        assert list(zip(epochs.tolist(), times.tolist(), strict=True)) == [known[each] for each in asked]


def test_ticks_are_let_go_of_with_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflected, "_MOST_GONE", 3)
    choose = random.Random(17)
    with whence.open() as db:
        db.execute("CREATE STREAM s (x INT) WITH (retain = '20 rows')")
        coordinator = inside.coordinator(db)
        declare_tables(coordinator)
        index, brought = TickIndex(coordinator, "s"), list[tuple[int, int]]()  # ticks, and their first rows
        for tick in choose.sample(range(1, 101), 100):
            count = choose.randint(1, 3)
            with coordinator.feeding(), coordinator.transaction() as writes:
                db.insert("s", [(tick,)] * count)
                write_ticks(coordinator, writes, "s", [(tick, 0, count)], count)
            index.refresh()
            brought.append((tick, index.arrived[-1].first))
            with coordinator.looking():
                first = int(coordinator.catalog.flow.streams["s"].kept.rows[0, -1])
                start = index.start(first)
            assert start == max((tick for tick, at in brought if at < first), default=0)
            here = {tick for tick, at in brought if at >= first}
            assert here <= {entry.tick for entry in index.entries}
            assert index.entries == sorted(index.arrived)
            assert [entry.first for entry in index.arrived] == sorted(entry.first for entry in index.arrived)
            assert len(index.entries) <= 2 * max(len(here), 4) + 1
