"""A held view equals its definition at every read: random programs of epochs, reads, failures and reopenings.

What is pending, and what is released when, is decided at random, too, beside the schedules. Every read is compared with
DuckDB over the rows that were written.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import whence
from tests.depth import seeds
from tests.oracle import on_partitions

Row = tuple[Any, ...]
VIEWS = {
    "joined": "SELECT a, c FROM r JOIN s ON r.b = s.b",
    "unequal": "SELECT a, MIN(c) AS c FROM r, s WHERE r.b < s.b GROUP BY a",
    "outer_": "SELECT r.a, s.c FROM r LEFT JOIN s ON r.b = s.b WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.x = r.a)",
    "over": "SELECT a, COUNT(*) AS n FROM joined GROUP BY a",
    "over_held": "SELECT joined.a, t.x FROM joined JOIN t ON t.x = joined.c",
    "paths": "SELECT a, b FROM r UNION SELECT paths.a, r.b FROM paths JOIN r ON paths.b = r.a",
    "first": "SELECT a, b FROM r ORDER BY a, b LIMIT 3",
}
UNHELD = {"over"}
BOUNDS = ("1 microsecond", "300 microseconds", "2 ms", "1 hour")
SCHEDULES = ("online", "naive", "planned for 7 epochs")


class _Run:
    """A database under test beside its tables in plain Python."""

    def __init__(self, rng: random.Random, path: Path | None, partitions: int | None) -> None:
        self.rng, self.path, self.partitions = rng, path, partitions
        self.tables: dict[str, Counter[Row]] = {"r": Counter(), "s": Counter(), "t": Counter()}
        self.feed_rows: Counter[Row] = Counter()
        self.open()
        self.db.execute("CREATE TABLE r (a INT, b INT); CREATE TABLE s (b INT, c INT); CREATE TABLE t (x INT)")
        self.db.execute("CREATE VIEW strict AS SELECT 1 // (x - 9) AS y FROM t")
        for name, query in VIEWS.items():
            options = f"respond_within = '{rng.choice(BOUNDS)}', refresh = '{rng.choice(SCHEDULES)}'"
            held = "" if name in UNHELD else f"WITH ({options})"
            self.db.execute(f"CREATE VIEW {name} {held} AS {query}")
        self.follow()

    def open(self) -> None:
        with on_partitions(self.partitions):
            self.db = whence.open(self.path) if self.path is not None else whence.open()

    def follow(self) -> None:
        self.feed = self.db.changes("joined")
        self.feed_rows = Counter(self.db["joined"].rows)
        list(self.feed)

    def write(self) -> None:
        """Commit an epoch of some rows, or one that fails."""
        rng, left = self.rng, {name: rows.copy() for name, rows in self.tables.items()}
        fails = rng.random() < 0.15
        try:
            with self.db.transaction():
                for _ in range(rng.randint(1, 5)):
                    name = rng.choice("rrsst")
                    row = tuple(rng.randint(0, 5) for _ in range(1 if name == "t" else 2))
                    if rng.random() < 0.6:
                        self.db.insert(name, [row])
                        left[name][row] += 1
                    elif left[name][row]:
                        self.db.delete(name, [row])
                        left[name][row] -= 1
                if fails:
                    self.db.insert("t", [(9,)])
        except whence.WhenceError:
            assert fails
            return
        assert not fails
        self.tables = left

    def release(self) -> None:
        """Release some holds, as a schedule might."""
        coordinator = self.db._coordinator
        with coordinator.state:
            pending = coordinator.catalog.backend.pending()
            due = [hold for hold in sorted(pending) if self.rng.random() < 0.4]
            if due:
                coordinator.push(coordinator.held._release(due, pending))

    def reopen(self) -> None:
        if self.path is None:
            return
        if self.rng.random() < 0.5:
            self.db.snapshot()
        self.db.close()
        self.open()
        self.follow()

    def read(self) -> None:
        name = self.rng.choice(list(VIEWS))
        expected = self.expected(name)
        assert Counter(map(tuple, self.db[name].rows)) == expected, name

    def read_feed(self) -> None:
        for change in self.feed:
            self.feed_rows[change.row] += change.sign
        assert +self.feed_rows == self.expected("joined")

    def suppose(self) -> None:
        row = (self.rng.randint(0, 5), self.rng.randint(0, 5))
        before = self.tables["r"]
        self.tables["r"] = before + Counter([row])
        expected = self.expected("joined")
        self.tables["r"] = before
        found = self.db.what_if(insert={"r": [row]})
        change = found.get("joined")
        came = Counter(change.inserted if change is not None else ())
        assert came == expected - self.expected("joined")

    def expected(self, name: str) -> Counter[Row]:
        con = duckdb.connect()
        for table, rows in self.tables.items():
            columns = {"r": "a INT, b INT", "s": "b INT, c INT", "t": "x INT"}[table]
            con.execute(f"CREATE TABLE {table} ({columns})")
            flat = [row for row, count in rows.items() for _ in range(count)]
            if flat:
                con.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(flat[0]))})", flat)
        for view, query in VIEWS.items():
            text = f"WITH RECURSIVE paths AS ({query}) SELECT * FROM paths" if view == "paths" else query
            con.execute(f"CREATE VIEW {view} AS {text}")
        return Counter(con.execute(f"SELECT * FROM {name}").fetchall())


@pytest.mark.parametrize("partitions", [None, 2])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("seed", seeds(2))
def test_held_view_equals_its_definition_at_every_read(
    tmp_path: Path, seed: int, stored: bool, partitions: int | None
) -> None:
    rng = random.Random(seed * 4 + 2 * stored + (partitions or 0))
    run = _Run(rng, tmp_path / "held.db" if stored else None, partitions)
    steps = {run.write: 10, run.release: 3, run.read: 4, run.read_feed: 1, run.suppose: 1, run.reopen: 1}
    for _ in range(40 if partitions else 70):
        rng.choices(list(steps), list(steps.values()))[0]()
    for name in VIEWS:
        assert Counter(map(tuple, run.db[name].rows)) == run.expected(name), name
    run.read_feed()
    run.db.close()
