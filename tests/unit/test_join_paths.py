"""Orders of an n-way join's paths: which are chosen, when they are chosen again, and that none changes a row."""

from __future__ import annotations

import random
from collections import Counter
from itertools import permutations

import duckdb
import numpy as np
import pytest

import whence
from tests.depth import examples
from whence.engine.core.kernels.distinct import REGISTERS
from whence.engine.core.operator import Batch, upwards
from whence.engine.core.relation import Relation
from whence.engine.core.statistics import distinct_keys, sample_rows
from whence.engine.relational.join import Join, connected_joins

STAR = """
CREATE TABLE a (k INT, g INT); CREATE TABLE b (k INT, x INT); CREATE TABLE c (g INT, y INT);
CREATE VIEW v AS SELECT a.k, b.x, c.y FROM a, c, b WHERE a.g = c.g AND a.k = b.k AND b.x + c.y < 60;
"""
QUERY = "SELECT a.k, b.x, c.y FROM a, c, b WHERE a.g = c.g AND a.k = b.k AND b.x + c.y < 60"


def join_of(db: whence.Database, view: str = "v") -> Join:
    """Return the join that a view runs."""
    top = db._coordinator.catalog.backend.operator(view)
    return next(op for op in upwards([top]) if isinstance(op, Join))


def fill(db: whence.Database) -> None:
    """Give each row of `a` one partner in `b` and a hundred in `c`."""
    with db.transaction():
        db.insert("a", [(i, i % 3) for i in range(300)])
        db.insert("b", [(i, i % 50) for i in range(300)])
        db.insert("c", [(i % 3, i) for i in range(300)])


def test_path_goes_where_fewest_rows_match() -> None:
    with whence.open() as db:
        db.execute(STAR)
        assert join_of(db).orders[0] == (1, 2), "of no rows nothing is known: as the query names them"
        fill(db)
        assert join_of(db).orders[0] == (2, 1)
        assert [join_of(db).orders[i] for i in (1, 2)] == [(0, 2), (0, 1)]


def test_view_over_filled_tables_has_the_same_orders() -> None:
    with whence.open() as db:
        db.execute(STAR.split("CREATE VIEW")[0])
        fill(db)
        db.execute(f"CREATE VIEW v AS {QUERY}")
        assert join_of(db).orders[0] == (2, 1)


def test_orders_by_connectedness_stay() -> None:
    with connected_joins(), whence.open() as db:
        db.execute(STAR)
        fill(db)
        assert join_of(db).orders[0] == (1, 2)


def test_orders_are_chosen_again_when_sizes_have_moved() -> None:
    with whence.open() as db:
        db.execute(STAR)
        fill(db)
        db.delete("c", [(i % 3, i) for i in range(300)])
        db.insert("c", [(i, i) for i in range(3)])
        db.insert("b", [(i % 3, i) for i in range(2000)])
        db.insert("b", [(0, -1)])
        assert join_of(db).orders[0] == (1, 2)
        assert Counter(db["v"].rows) == Counter(db.query(QUERY).rows)


def test_input_that_does_not_change_keeps_no_index() -> None:
    with whence.open() as db:
        db.execute(STAR)
        fill(db)
        db.insert("a", [(7, 1)])
        tables = db._coordinator.catalog.flow.tables
        indexes = {name: set(tables[name].relation.indexes) - {()} for name in "abc"}
        assert indexes == {"a": set(), "b": {(0,)}, "c": {(0,)}}


def test_input_that_is_emptied_and_filled_keeps_its_indexes() -> None:
    with whence.open() as db:
        db.execute(STAR)
        fill(db)
        indexes = db._coordinator.catalog.flow.tables["a"].relation.indexes
        for kept in (True, True, True):
            db.delete("b", [(i, i % 50) for i in range(300)])
            db.insert("b", [(i, i % 50) for i in range(300)])
            assert ((0,) in indexes) == kept
        assert Counter(db["v"].rows) == Counter(db.query(QUERY).rows)


def test_undone_epoch_that_chose_orders_leaves_the_rows() -> None:
    with whence.open() as db:
        db.execute(STAR)
        db.insert("a", [(1, 1)])
        db.insert("b", [(1, 2)])
        db.insert("c", [(1, 3)])
        before = db["v"].rows
        many = [(1, i) for i in range(500)]
        db.what_if(insert={"b": many, "c": many})
        assert db["v"].rows == before
        db.insert("c", [(1, 4)])
        assert Counter(db["v"].rows) == Counter(db.query(QUERY).rows)


def test_explain_says_orders_and_estimates() -> None:
    with whence.open() as db:
        db.execute(STAR)
        fill(db)
        db.insert("a", [(7, 1)])
        lines = [str(row[0]).strip(" │") for row in db.execute("EXPLAIN v").rows]
        (path,) = [line for line in lines if line.startswith("order of 1:")]
        assert "3 on k (x 1, met 1), 2 on g (x 100 of which 0." in path
        assert "as connected" in path


@pytest.mark.parametrize("seed", range(examples(4)))
def test_any_order_gives_the_rows_of_duckdb(seed: int) -> None:
    """Orders that change before every epoch; `u` is not read."""
    rng = random.Random(seed)
    query = """SELECT a.k, b.x, c.y, d.z FROM a JOIN b ON a.k = b.k JOIN c ON c.g = a.g JOIN d ON d.z > c.y
               WHERE b.x <> d.z"""
    script = "CREATE TABLE a (k INT, g INT, u INT); CREATE TABLE b (k INT, x INT); CREATE TABLE c (g INT, y INT);"
    script += "CREATE TABLE d (z INT)"
    with whence.open() as db, duckdb.connect() as peer:
        for each in script.split(";"):
            db.execute(each)
            peer.execute(each)
        db.execute(f"CREATE VIEW v AS {query}")
        join = join_of(db)
        for _ in range(12):
            join.reorder([rng.choice(list(permutations(set(range(4)) - {i}))) for i in range(4)])
            with db.transaction():
                for table, width in (("a", 3), ("b", 2), ("c", 2), ("d", 1)):
                    if rng.random() < 0.6:
                        rows = [tuple(rng.randrange(4) for _ in range(width)) for _ in range(rng.randrange(1, 6))]
                        db.insert(table, rows)
                        peer.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * width)})", rows)
                    if rng.random() < 0.3:
                        gone = rng.randrange(4)
                        column = {"d": "z", "c": "y"}.get(table, "k")
                        db.execute(f"DELETE FROM {table} WHERE {column} = {gone}")
                        peer.execute(f"DELETE FROM {table} WHERE {column} = {gone}")
                if rng.random() < 0.5:
                    change = f"UPDATE a SET u = u + 1 WHERE g = {rng.randrange(4)}"
                    db.execute(change)
                    peer.execute(change)
            assert Counter(db["v"].rows) == Counter(peer.execute(query).fetchall())


def test_change_of_columns_that_are_not_read_ends_before_the_path() -> None:
    script = """CREATE TABLE a (k INT, u INT); CREATE TABLE b (k INT, x INT); CREATE TABLE c (k INT, y INT);
                CREATE VIEW v AS SELECT a.k, b.x, c.y FROM a, b, c WHERE a.k = b.k AND a.k = c.k"""
    with whence.open() as db:
        db.execute(script)
        with db.transaction():
            for table in "abc":
                db.insert(table, [(i, i) for i in range(9)])
        db.insert("a", [(1, 2)])
        path = join_of(db).paths[0]
        assert path is not None
        assert path.steps[0].probes == 1
        db.execute("UPDATE a SET u = u + 1 WHERE k < 5")
        assert path.steps[0].probes == 1
        db.execute("UPDATE a SET k = k + 1, u = 0 WHERE k = 5")
        assert path.steps[0].probes == 3
        query = "SELECT a.k, b.x, c.y FROM a, b, c WHERE a.k = b.k AND a.k = c.k"
        assert Counter(db["v"].rows) == Counter(db.query(query).rows)


@pytest.mark.parametrize("keys", [1, 40, 3_000, 50_000])
def test_distinct_keys_are_estimated(keys: int) -> None:
    rows = np.array([[i % keys, i] for i in range(50_000)], np.int64)
    relation = Relation(2)
    relation.apply(Batch(rows, np.ones(len(rows), np.int64), True))
    assert distinct_keys(relation, (0,)) == pytest.approx(keys, rel=5 / REGISTERS**0.5)
    relation.index((0,))
    assert distinct_keys(relation, (0,)) == keys
    assert distinct_keys(relation, ()) == 1


def test_sample_has_only_rows_that_are_there() -> None:
    relation = Relation(1)
    rows = np.arange(1000)[:, None]
    relation.apply(Batch(rows, np.ones(1000, np.int64), True))
    relation.apply(Batch(rows[3:].copy(), np.full(997, -1), True))
    found = sample_rows(relation, 100, np.random.default_rng(1))
    assert len(found) == 100
    assert set(found[:, 0].tolist()) == {0, 1, 2}
