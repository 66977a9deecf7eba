"""Random programs over a lookup: rows join what was last fetched for their key, whatever fails or is evicted."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

import whence
from tests.depth import seeds
from tests.oracle import on_partitions


class _Numbered:
    """An outside that gives every call another number, and fails now and then."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.calls, self.fresh = rng, 0, dict[int, int]()

    def __call__(self, key: int) -> int | None:
        if self.rng.random() < 0.05:
            raise OSError("down")
        self.calls += 1
        self.fresh[key] = self.calls
        return self.calls


class _Run:
    def __init__(self, rng: random.Random, path: Path | None, partitions: int | None) -> None:
        self.rng, self.path, self.partitions = rng, path, partitions
        self.outside, self.last = _Numbered(rng), dict[int, int]()
        self.capacity = rng.randint(1, 8)
        self.options = {"keep": rng.choice(("heeb", "lru", "lfu", "prob", "random"))}
        self.memory = f"{self.capacity} rows"
        self.rows: list[tuple[int, int, int]] = []
        self.sums: dict[int, int] = {}
        self.open()
        self.db.execute("""
          CREATE STREAM s (k INT, x INT); CREATE STREAM t (k INT);
          CREATE VIEW j AS SELECT k, x, value FROM s JOIN f ON k = key;
          CREATE VIEW few AS SELECT k, value FROM t LEFT JOIN f ON k = key WHERE k % 2 = 0;
          CREATE VIEW total AS SELECT k, SUM(value) AS n FROM j WHERE value > 3 GROUP BY k;
        """)
        self.few: list[tuple[int, int]] = []
        self.asked: set[int] = set()

    def open(self) -> None:
        with on_partitions(self.partitions):
            self.db = whence.open(self.path)
        self.db.create_lookup("f", self.outside, key="INT", returns="BIGINT", memory=self.memory, **self.options)

    def step(self) -> None:
        what = self.rng.random()
        if what < 0.8:
            self.write()
        elif what < 0.9:
            self.db.refresh_lookup("f", None if self.rng.random() < 0.3 else [self.rng.randrange(12)])
        elif what < 0.95 and self.path is not None:
            if self.rng.random() < 0.5:
                self.db.snapshot()
            self.db.close()
            self.open()
        else:
            self.outside.fresh = {}
            with suppress(whence.FetchError):
                self.db.what_if(insert={"s": [(self.rng.randrange(20), 1)]})

    def write(self) -> None:
        around = self.rng.randrange(10)
        s = [(around + self.rng.randrange(4), self.rng.randrange(9)) for _ in range(self.rng.randrange(4))]
        t = [around + self.rng.randrange(4) for _ in range(self.rng.randrange(3))]
        self.outside.fresh = {}
        try:
            with self.db.transaction():
                self.db.insert("s", s)
                self.db.insert("t", [(k,) for k in t])
        except whence.FetchError:
            return
        self.last |= self.outside.fresh
        self.rows += [(k, x, self.last[k]) for k, x in s]
        self.few += [(k, self.last[k]) for k in t if k % 2 == 0]
        if s or t:
            self.asked = {k for k, _ in s} | {k for k in t if k % 2 == 0}
        assert len(self.db["f"]) <= self.capacity + len(self.asked)

    def check(self) -> None:
        assert sorted(self.db["j"].rows) == sorted(self.rows)
        assert sorted(self.db["few"].rows) == sorted(self.few)
        sums: dict[int, int] = {}
        for k, _, value in self.rows:
            if value > 3:
                sums[k] = sums.get(k, 0) + value
        assert dict(self.db["total"].rows) == sums


@pytest.mark.parametrize("partitions", [None, 2])
@pytest.mark.parametrize("seed", seeds(6))
def test_rows_join_what_was_last_fetched(tmp_path: Path, seed: int, partitions: int | None) -> None:
    rng = random.Random(100 * seed + (partitions or 0))
    run = _Run(rng, tmp_path / "db" if rng.random() < 0.6 else None, partitions)
    for step in range(60):
        run.step()
        if step % 10 == 0:
            run.check()
    run.check()
    run.db.close()
