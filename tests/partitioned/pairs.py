"""A seeded workload (tests/workload.py) on two runtimes at once: after every operation both hold and tell the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import whence
from tests import inside
from tests.oracle import assert_rows, bag
from tests.workload import TABLES, Op, Row, Session, workload
from whence.runtime import database

VIEWS = [
    """CREATE VIEW cheapest AS
         SELECT src, dst, MIN(cost) AS cost FROM (
           SELECT src, dst, cost FROM link
           UNION SELECT link.src, cheapest.dst, link.cost + cheapest.cost
                 FROM link JOIN cheapest ON link.dst = cheapest.src) AS q GROUP BY src, dst""",
    "CREATE VIEW loud AS SELECT shout(who) AS who, COUNT(*) AS n FROM seen GROUP BY shout(who)",
    """CREATE VIEW strangers AS
         SELECT link.dst, seen.n FROM link LEFT JOIN seen ON seen.who = link.dst WHERE link.cost > 10""",
    "CREATE VIEW unseen AS SELECT dst FROM link EXCEPT SELECT who FROM seen",
    """CREATE VIEW pairs(a, b) WITH (partition = 'one') AS
         SELECT src, dst FROM link UNION SELECT x.a, y.b FROM pairs AS x JOIN pairs AS y ON x.b = y.a""",
    """CREATE VIEW apart(a, b) WITH (partition = 'exchange') AS
         SELECT src, dst FROM link UNION SELECT x.a, y.b FROM apart AS x JOIN apart AS y ON x.b = y.a""",
]


def shout(text: str) -> str:
    return f"{text}!"


def with_functions(db: whence.Database) -> None:
    db.create_function("shout", shout, args=["TEXT"], returns="TEXT")


class Side(Session):
    """One database of a pair."""

    def _open(self) -> whence.Database:
        return database.open(self.path, clock=self.clock, disk=self.disk, setup=with_functions, **self.options)


def busy(seed: int, size: int, snapshots: int = 1) -> list[Op]:
    """A workload with more views than it has by itself."""
    ops = workload(seed, size, snapshots, reopenings=0)
    at = len(TABLES)
    return [*ops[:at], *(Op("sql", ops[0].at, sql) for sql in VIEWS), *ops[at:]]


def held(db: whence.Database) -> dict[str, Counter[Row]]:
    """Everything that can be seen in a database."""
    return {name: bag(db[name].rows) for name in (*db.tables, *db.views)}


def held_here(db: whence.Database) -> dict[str, Counter[Row]]:
    """The same, read inline whatever way runs go: a job for each relation takes its time."""
    runner = inside.driver(db).runner if inside.is_partitioned(db) else None
    mode = runner.mode if runner is not None else ""
    if runner is not None:
        runner.mode = "inline"
    try:
        return held(db)
    finally:
        if runner is not None:
            runner.mode = mode


def assert_same(one: whence.Database, other: whence.Database, what: object = "") -> None:
    """Both have the same tables and views."""
    ours, theirs = held_here(one), held_here(other)
    assert ours.keys() == theirs.keys(), what
    for name, rows in ours.items():
        assert_rows(rows.elements(), theirs[name].elements(), f"{name}, {what}")
    assert one.epoch == other.epoch, what


class Pair:
    """An embedded database in memory, and another one that may change its runtime."""

    def __init__(self, path: Path | None = None, **options: Any):
        self.plain, self.other = Side(), Side(path, durability="none", **options)
        self._feeds: dict[str, tuple[Any, Any]] = {}

    def perform(self, op: Op) -> None:
        self.plain.perform(op)
        self.other.perform(op)
        self.check(op)

    def check(self, what: object = "") -> None:
        assert_same(self.other.db, self.plain.db, what)
        views = self.plain.db.views
        for name in views:
            if name in self._feeds:
                told = [Counter((c[0], tuple(c[1]), c[2]) for c in feed) for feed in self._feeds[name]]
                assert told[0] == told[1], f"changes of {name}, {what}: {told}"
        replaced = isinstance(what, Op) and what.kind == "sql" and "VIEW" in what.what
        if replaced or self._feeds.keys() != set(views):
            self._feeds = {n: (self.plain.db.changes(n), self.other.db.changes(n)) for n in views}

    def reopen(self, **options: Any) -> None:
        """Go on with the same folder otherwise."""
        self.other.db.close()
        self.other.options = {"durability": "none", **options}
        self.other.now = self.plain.now
        self.other.db = self.other._open()
        self._feeds = {}
        self.check(f"opened with {options}")

    def close(self) -> None:
        self.plain.db.close()
        self.other.db.close()
