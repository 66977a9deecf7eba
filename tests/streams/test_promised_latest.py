"""Promises reach `latest`: exactly those rows leave that the next row beyond the promise would push out."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import whence
from tests.depth import seeds

WIDTH = 10
PROGRAM = f"""
    CREATE STREAM s (t INT, k INT);
    CREATE VIEW now AS SELECT t, k FROM latest(s, on => t, width => {WIDTH});
    CREATE VIEW keyed AS SELECT t, k FROM latest(s, on => t, width => {WIDTH}, by => k);
    CREATE VIEW many AS SELECT k, COUNT(*) AS n FROM latest((SELECT t, k FROM s WHERE k > 0), on => t, width => {WIDTH})
      GROUP BY k HAVING COUNT(*) > 1;
"""


class Model:
    """What is in the windows, by definition."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self.promised: int | None = None

    def window(self, rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Rows in the window of one key: in the order of arrival, without late ones."""
        newest, kept = None, list[tuple[int, int]]()
        for t, k in rows:
            if newest is None or t >= newest:
                newest = t
                kept.append((t, k))
        bounds = [b for b in (newest, self.promised) if b is not None]
        return [(t, k) for t, k in kept if t > max(bounds) - WIDTH] if bounds else []

    @property
    def now(self) -> Counter[tuple[int, int]]:
        return Counter(self.window(self.rows))

    @property
    def keyed(self) -> Counter[tuple[int, int]]:
        keys = {k for _, k in self.rows}
        return Counter(row for key in keys for row in self.window([row for row in self.rows if row[1] == key]))

    @property
    def many(self) -> dict[int, int]:
        counts = Counter(k for _, k in self.window([row for row in self.rows if row[1] > 0]))
        return {k: n for k, n in counts.items() if n > 1}


def compare(db: whence.Database, model: Model) -> None:
    assert Counter(db["now"].rows) == model.now
    assert Counter(db["keyed"].rows) == model.keyed
    assert dict(db["many"].rows) == model.many


@pytest.mark.parametrize("seed", seeds(12))
def test_rows_leave_as_the_definition_says(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    partitions = rng.choice((None, None, 2))
    model = Model()
    db = whence.open(tmp_path / "a", partitions=partitions)
    try:
        db.execute(PROGRAM)
        time = 0
        for _ in range(40):
            match rng.choice(("rows", "rows", "advance", "fail", "reopen", "snapshot")):
                case "rows":
                    time += rng.randrange(6)
                    rows = [
                        (max(0, time - rng.choice((0, 0, 0, 3))), rng.randrange(4)) for _ in range(rng.randrange(1, 5))
                    ]
                    least = model.promised if model.promised is not None else 0
                    rows = [(max(t, least), k) for t, k in rows]
                    time = max(time, *(t for t, _ in rows))
                    db.insert("s", rows)
                    model.rows += rows
                case "advance":
                    time += rng.randrange(8)
                    db.advance("s", time, on="t")
                    model.promised = time
                case "fail":
                    with suppress(KeyError), db.transaction():
                        db.insert("s", [(time + 99, 1)])
                        raise KeyError
                case "reopen":
                    db.close()
                    db = whence.open(tmp_path / "a", partitions=partitions)
                case "snapshot":
                    db.snapshot()
            compare(db, model)
    finally:
        db.close()


def test_a_row_below_a_promise_is_late() -> None:
    with whence.open() as db:
        db.execute(PROGRAM)
        db.insert("s", [(1, 1)])
        db.advance("s", 5)
        db.insert("s", [(4, 2), (5, 3)])
        assert sorted(db["keyed"].rows) == [(1, 1), (5, 3)]
        assert db.late("keyed").count == 1


def test_a_flush_empties_no_window() -> None:
    with whence.open() as db:
        db.execute(PROGRAM)
        db.insert("s", [(1, 1), (2, 1)])
        db.flush("s")
        assert db["now"].rows == [(1, 1), (2, 1)]


def test_the_high_trader_leaves_once_when_the_promise_passes() -> None:
    with whence.open() as db:
        db.execute("""
            CREATE STREAM trade (minute INT, trader TEXT, shares INT);
            CREATE VIEW high AS SELECT trader, SUM(shares) AS shares FROM latest(trade, on => minute, width => 60)
              GROUP BY trader HAVING SUM(shares) > 500000;
        """)
        feed = db.changes("high")
        db.insert("trade", [(0, "Ann", 300_000), (1, "Ben", 400_000), (2, "Ann", 300_000)])
        for minute in (30, 59, 60, 61, 62, 90):
            db.advance("trade", minute)
        assert [(change.sign, change.row) for change in feed] == [(1, ("Ann", 600_000)), (-1, ("Ann", 600_000))]
