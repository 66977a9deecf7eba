"""Random writes and a clock that moves at random, against a dictionary of rows and deadlines, after every step.

The tables are of both kinds, by arrival and by a column, with and without a key; the views are recomputed by DuckDB.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whence
from tests import inside
from tests.depth import examples
from tests.oracle import Recompute, Row, assert_rows, bag, every_policy, same_rows, statements, view_text, with_policy

TTL = 10
TABLES = {"link": "src INT, dst INT", "seat": "x INT, y INT", "beacon": "x INT, seen TIMESTAMP"}
TABLES["badge"] = TABLES["beacon"]
OPTIONS = {
    "link": "(src INT, dst INT) WITH (ttl = '10 s')",
    "seat": "(x INT PRIMARY KEY, y INT) WITH (ttl = '10 s')",
    "beacon": "(x INT, seen TIMESTAMP) WITH (ttl = '10 s', ttl_column = 'seen')",
    "badge": "(x INT PRIMARY KEY, seen TIMESTAMP) WITH (ttl = '10 s', ttl_column = 'seen')",
}
VIEWS = """
    CREATE VIEW reachable AS
      SELECT src, dst FROM link
      UNION
      SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
    CREATE VIEW per_seat AS
      SELECT seat.y, COUNT(*) AS n, MIN(beacon.seen) AS first
      FROM seat JOIN beacon ON seat.x = beacon.x GROUP BY seat.y;
    CREATE VIEW alone AS SELECT src FROM link EXCEPT SELECT x FROM badge
"""
KEYED, DATED = {"seat", "badge"}, {"beacon", "badge"}


def moment(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)


@dataclass
class Model:
    """The tables as they should be: each row's deadline in seconds."""

    now: float = 0
    rows: dict[str, dict[Row, float]] = field(default_factory=lambda: {name: {} for name in TABLES})

    def insert(self, table: str, row: Row) -> None:
        there = self.rows[table]
        if table in KEYED:
            for old in [r for r in there if r[0] == row[0]]:
                del there[old]
        there[row] = self.now + TTL
        if table in DATED:
            there[row] = math.inf if row[1] is None else (row[1] - moment(0)).total_seconds() + TTL

    def update(self, table: str, old: int, new: Any) -> None:
        for row in [r for r in self.rows[table] if r[0] == old]:
            del self.rows[table][row]
            self.insert(table, (old, new))

    def expire(self) -> int:
        gone = [(t, r) for t, rows in self.rows.items() for r, deadline in rows.items() if deadline <= self.now]
        for table, row in gone:
            del self.rows[table][row]
        return len(gone)


number = st.integers(0, 3)
time = st.one_of(st.none(), st.integers(0, 40).map(moment))


def second_of(table: str) -> st.SearchStrategy[Any]:
    return time if table in DATED else number


def write_to(table: str) -> st.SearchStrategy[tuple[Any, ...]]:
    row = st.tuples(number, second_of(table))
    return st.one_of(
        st.tuples(st.just("insert"), st.just(table), row),
        st.tuples(st.just("insert"), st.just(table), row),
        st.tuples(st.just("delete"), st.just(table), row),
        st.tuples(st.just("update"), st.just(table), row),
    )


writes = st.lists(st.sampled_from(sorted(TABLES)).flatmap(write_to), min_size=1, max_size=5)
step = st.one_of(
    st.tuples(st.just("commit"), writes),
    st.tuples(st.just("commit"), writes),
    st.tuples(st.just("fail"), writes),
    st.tuples(st.just("clock"), st.integers(-5, 12)),
    st.tuples(st.just("clock"), st.integers(0, 3)),
    st.tuples(st.just("expire"), st.none()),
)


class Play:
    """A database, its model and its recomputation, moved together."""

    def __init__(self, policy: str) -> None:
        self.seconds, self.model = 0.0, Model()
        self.db = whence.open(clock=lambda: self.seconds)
        for name, columns in OPTIONS.items():
            self.db.execute(f"CREATE TABLE {name} {columns}")
        self.db.execute(with_policy(VIEWS, policy))
        self.db.execute("CREATE TABLE poison (x TEXT); CREATE VIEW poisoned AS SELECT CAST(x AS INT) AS n FROM poison")
        self.views = [view for s in statements(VIEWS) if (view := view_text(s)) is not None]
        self.again = Recompute(TABLES, self.views)
        self.feeds = {view.name: self.db.changes(view.name) for view in self.views}
        self.seen = {view.name: bag(self.db[view.name].rows) for view in self.views}
        self._look()

    def _look(self) -> None:
        """Time that was never looked at has not been."""
        assert inside.coordinator(self.db).clock.now() == self.model.now * 1_000_000

    def close(self) -> None:
        self.db.close()
        self.again.con.close()

    def move(self, what: str, value: Any) -> None:
        if what == "clock":
            self.seconds += value
            self.model.now = max(self.model.now, self.seconds)
            self._look()
        elif what == "expire":
            assert self.db.expire() == self.model.expire()
        elif what == "fail":
            with pytest.raises(whence.EvaluationError):
                self.commit([*value, ("insert", "poison", ("no number",))])
        else:
            self.commit(value)
            self.model.expire()
            for each in value:
                self.note(*each)

    def commit(self, given: list[tuple[Any, ...]]) -> None:
        with self.db.transaction():
            for what, table, row in given:
                if what == "update":
                    column = self.db[table].columns
                    self.db.update(table, {column[1]: row[1]}, {column[0]: row[0]})
                else:
                    getattr(self.db, what)(table, [row])

    def note(self, what: str, table: str, row: Row) -> None:
        if what == "insert":
            self.model.insert(table, row)
        elif what == "update":
            self.model.update(table, *row)
        else:
            self.model.rows[table].pop(row, None)

    def check(self) -> None:
        """Tables, views and changes are what they should be."""
        self.model.expire()
        for name, there in self.model.rows.items():
            assert_rows(self.db[name].rows, there, f"table {name}")
            self.again.load(name, list(there))
        schemas = {v.name: ", ".join(f"{c.name} {c.type}" for c in self.db[v.name].schema.columns) for v in self.views}
        for name, wanted in self.again.run(schemas, {}).items():
            assert_rows(self.db[name].rows, wanted, f"view {name}")
            for _, row, sign in self.feeds[name]:
                self.seen[name][row] += sign
            assert all(n >= 0 for n in self.seen[name].values())
            assert same_rows(+self.seen[name], bag(wanted)), f"changes of {name} do not add up"


@every_policy
@settings(max_examples=examples(25), deadline=None)
@given(steps=st.lists(step, max_size=12))
def test_rows_live_as_long_as_they_should(policy: str, steps: list[tuple[str, Any]]) -> None:
    play = Play(policy)
    try:
        for what, value in steps:
            play.move(what, value)
            if what != "clock":
                play.check()
        play.check()
    finally:
        play.close()
