"""A seeded workload on a small database, and what the database holds after each of its operations.

An operation is atomic: one epoch, one statement, or something that changes no rows (a snapshot, closing and opening
again, a transaction that fails). `history` carries the operations out in memory; what lasts must hold one of the states
found there.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import whence
from tests import inside
from tests.oracle import Recompute, assert_rows, view_text
from whence.io.rows import to_tuples
from whence.plan.recursion.settings import DEPTH_LIMIT
from whence.runtime.coordinator import Coordinator
from whence.runtime.deployment import InlineDeployment
from whence.runtime.durable.journal import Journal
from whence.state.disk import Disk
from whence.state.store import Store

Row = tuple[Any, ...]

TABLES = [
    "CREATE TABLE link (src TEXT, dst TEXT, cost INT, PRIMARY KEY (src, dst))",
    "CREATE TABLE seen (who TEXT, n INT) WITH (ttl = '60 s')",
    "CREATE TABLE tag (label TEXT)",
]
COLUMNS = {"link": "src TEXT, dst TEXT, cost INT", "seen": "who TEXT, n INT", "tag": "label TEXT"}
VIEW_COLUMNS = {"reachable": "src TEXT, dst TEXT"}  # of those that depend on themselves
BUSY = (
    "CREATE VIEW busy AS SELECT link.src, COUNT(*) AS n, SUM(link.cost) AS cost "
    "FROM link JOIN seen ON seen.who = link.src GROUP BY link.src"
)
REACHABLE = (
    "CREATE VIEW reachable AS SELECT src, dst FROM link "
    "UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src"
)
DEAREST = "CREATE VIEW dearest AS SELECT src, dst, cost FROM link ORDER BY cost DESC, src, dst LIMIT 3"
NUMBERS = "CREATE VIEW numbers AS SELECT CAST(label AS INT) AS n FROM tag"
HUBS = "CREATE OR REPLACE VIEW hubs AS SELECT src, COUNT(*) AS n FROM reachable GROUP BY src"
FAR_HUBS = "CREATE OR REPLACE VIEW hubs AS SELECT src, MAX(dst) AS dst FROM reachable GROUP BY src"
SHOUTED = "CREATE VIEW shouted AS SELECT UPPER(who) AS who, SUM(n) AS n FROM seen GROUP BY UPPER(who)"


class OwnError(Exception):
    """A user's own error inside a transaction."""


@dataclass(frozen=True)
class Op:
    """Something to do at a moment, by a kind and what that needs."""

    kind: str
    at: float
    what: Any = None


class State(NamedTuple):
    """Everything a database holds. Rows of the table with a time-to-live come with their deadlines."""

    epoch: int
    tables: dict[str, Counter[Row]]
    views: dict[str, tuple[str, Counter[Row]]]


def workload(seed: int, size: int, snapshots: int = 2, reopenings: int = 1) -> list[Op]:
    """The schema, so many random operations, and snapshots and reopenings among them; what it does to which rows is
    known beforehand, so that it can be carried out twice."""
    rng = random.Random(seed)
    now = 1000.0
    ops = [Op("sql", now, sql) for sql in (*TABLES, BUSY, REACHABLE, DEAREST, NUMBERS)]
    special = ["snapshot"] * snapshots + ["reopen"] * reopenings
    places = {size * (i + 1) // (len(special) + 1): kind for i, kind in enumerate(rng.sample(special, len(special)))}
    declared = {"hubs": False, "shouted": False}
    for number in range(size):
        now += rng.choice([0, 1, 7, 25])
        if number in places:
            ops.append(Op(places[number], now))
        ops.append(_random_op(rng, now, number, declared))
    return ops


def _random_op(rng: random.Random, now: float, number: int, declared: dict[str, bool]) -> Op:
    node = lambda: f"n{rng.randrange(6)}"  # noqa: E731
    link = lambda: (node(), node(), rng.randrange(50))  # noqa: E731
    seen = lambda: (node(), rng.randrange(3))  # noqa: E731
    match rng.choice(
        ("link", "link", "seen", "seen", "both", "delete", "update", "fail", "bad", "ddl", "words", "sync")
    ):
        case "link":
            return Op("write", now, [("link", link()) for _ in range(rng.randrange(1, 5))])
        case "seen":
            return Op("write", now, [("seen", seen()) for _ in range(rng.randrange(1, 4))])
        case "both":
            return Op("write", now, [("link", link()), ("seen", seen()), ("tag", (str(number),)), ("link", link())])
        case "delete":
            return Op("delete", now, (("link", f"src = '{node()}'"), ("seen", f"n = {rng.randrange(3)}")))
        case "update":
            return Op("sql", now, f"UPDATE link SET cost = cost + 1 WHERE src = '{node()}'")
        case "fail":
            return Op("fail", now, [("link", (f"lost{number}", node(), 1)), ("seen", (f"gone{number}", 1))])
        case "bad":
            return Op("bad", now, [("link", (f"odd{number}", node(), 1)), ("tag", (f"word{number}",))])
        case "words":
            return Op("write", now, [("seen", (f"new{number}", rng.randrange(3))), ("tag", (str(number % 3),))])
        case "sync":
            return Op("sync", now)
    name = rng.choice(sorted(declared))
    declared[name] = not declared[name]
    if not declared[name]:
        return Op("sql", now, f"DROP VIEW {name}")
    return Op("sql", now, SHOUTED if name == "shouted" else rng.choice([HUBS, FAR_HUBS]))


class Session:
    """A database that operations are carried out on, and its clock."""

    def __init__(self, path: Path | None = None, disk: Disk | None = None, now: float = 1000.0, **options: Any):
        self.path, self.disk, self.now, self.options = path, disk, now, options
        self.db = self._open()

    def _open(self) -> whence.Database:
        if self.path is None:
            return whence.open(clock=self.clock)
        return open_small(self.path, self.disk or Disk(), self.clock, **self.options)

    def clock(self) -> float:
        return self.now

    def perform(self, op: Op) -> None:
        """Carry out an operation; one that is meant to fail does so in silence."""
        db, self.now = self.db, op.at
        match op.kind:
            case "sql":
                db.execute(op.what)
            case "write":
                self._write(op.what)
            case "delete":
                with db.transaction():
                    for table, where in op.what:
                        db.execute(f"DELETE FROM {table} WHERE {where}")
            case "fail":
                with suppress(OwnError):
                    self._write(op.what, OwnError())
            case "bad":
                with suppress(whence.EvaluationError):
                    self._write(op.what)
                    raise AssertionError("a view was to refuse this")
            case "snapshot" if self.path is not None:
                db.snapshot()
            case "sync":
                db.sync()
            case "reopen" if self.path is not None:
                db.close()
                self.db = self._open()

    def _write(self, rows: list[tuple[str, Row]], fault: Exception | None = None) -> None:
        with self.db.transaction():
            for table, row in rows:
                self.db.insert(table, [row])
            if fault is not None:
                raise fault


def open_small(path: Path, disk: Disk, clock: Callable[[], float] | None = None, **options: Any) -> whence.Database:
    """`whence.open`, with the options of `Store` besides."""
    store = {name: options.pop(name) for name in list(options) if name.startswith("snapshot_")}
    if not store:
        return whence.open(path, disk=disk, clock=clock, **options)
    coordinator = Coordinator(InlineDeployment(), DEPTH_LIMIT, clock)
    coordinator.keep(Journal(coordinator, Store(path, disk, **store, **options)))
    return whence.Database(coordinator)


def abandon(db: whence.Database) -> None:
    """Leave a database as a process does that is killed: what it has not written, it never writes."""
    store = inside.store(db)
    store.log._closed = True
    store.log._stop.set()
    store.close()
    inside.coordinator(db).closed = True


def state_of(db: whence.Database) -> State:
    """What a database holds as of its last epoch, without letting anything expire for being looked at."""
    runtime = inside.coordinator(db)
    catalog = runtime.catalog

    def rows(name: str) -> Counter[Row]:
        found, counts = runtime.reader.contents(name)
        values = to_tuples(found, runtime.reader.schema(name), runtime.dictionary)
        if name in catalog.backend.lifetimes:
            relation = catalog.flow.tables[name].relation
            deadlines = catalog.backend.lifetimes[name]._deadlines(relation.lookup(found)).tolist()
            values = [(*row, deadline) for row, deadline in zip(values, deadlines, strict=True)]
        return Counter(dict(zip(values, counts.tolist(), strict=True)))

    views = {name: (runtime.program.views[name].sql, rows(name)) for name in runtime.reader.views()}
    return State(runtime.epoch, {name: rows(name) for name in runtime.program.tables}, views)


def history(ops: list[Op]) -> list[State]:
    """The states before the first operation and after each of them."""
    session = Session()
    states = [state_of(session.db)]
    for op in ops:
        session.perform(op)
        states.append(state_of(session.db))
    session.db.close()
    return states


def check_views(state: State) -> None:
    """Every view is what DuckDB makes of the tables."""
    texts = [text for sql, _ in state.views.values() if (text := view_text(sql)) is not None]
    assert len(texts) == len(state.views)
    oracle = Recompute(COLUMNS, texts)
    for name, rows in state.tables.items():
        bare = Counter({row[: len(COLUMNS[name].split(","))]: count for row, count in rows.items()})
        oracle.load(name, list(bare.elements()))
    for name, rows in oracle.run(VIEW_COLUMNS, {}).items():
        assert_rows(state.views[name][1].elements(), rows, name)
