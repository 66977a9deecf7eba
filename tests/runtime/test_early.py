"""Deletions that come before their rows: passed over, held until the rows come, or an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import whence
from whence.model.errors import CatalogError, DataError, EvaluationError, MissingRowError, SqlError, WhenceError
from whence.runtime import database


@pytest.fixture
def db() -> Any:
    with whence.open() as db:
        db.execute("CREATE TABLE t (x INT, y INT)")
        db.execute("CREATE VIEW s AS SELECT COUNT(*) AS n, SUM(CAST(1000 * y AS INT)) AS s FROM t")
        yield db


def test_held_deletion_cancels_the_next_insertion(db: Any) -> None:
    assert db.delete("t", [(1, 1), (1, 1), (2, 1)], early="hold") == 0
    assert sorted(db.owed("t").rows) == [(1, 1), (1, 1), (2, 1)]
    assert db.metrics()["owed"] == {"t": 3}
    feed = db.changes("s")
    assert db.insert("t", [(1, 1), (2, 1)]) == 2
    assert (db["t"].rows, db.owed("t").rows, list(feed)) == ([], [(1, 1)], [])
    db.execute("INSERT INTO t VALUES (1, 1), (1, 1)")
    assert (db["t"].rows, db.owed("t").rows, db.metrics()["owed"]) == ([(1, 1)], [], {})


def test_owed_is_a_relation_of_queries(db: Any) -> None:
    db.delete("t", [(1, 1), (1, 1), (2, 5)], early="hold")
    assert db.query("SELECT x, COUNT(*) AS n FROM owed(t) AS o WHERE o.y < 3 GROUP BY x").rows == [(1, 2)]
    for name, why in (("s", "is a view: only tables owe rows"), ("nil", "there is no table or view")):
        with pytest.raises(CatalogError, match=why):
            db.owed(name)
    with pytest.raises(SqlError, match="owed takes the name of a table"):
        db.query("SELECT * FROM owed(t, t)")
    with pytest.raises(SqlError, match="for queries that are asked once"):
        db.execute("CREATE VIEW o AS SELECT * FROM owed(t)")


def test_condition_cannot_be_held(db: Any) -> None:
    for given in ({"data": {"x": 1}}, {"where": "x = 1"}):
        with pytest.raises(DataError, match="table t: only whole rows can be held until they come"):
            db.delete("t", early="hold", **given)


def test_early_error_is_strict(db: Any) -> None:
    for how in ({"early": "error"}, {"strict": True}, {"early": "error", "strict": True}):
        with pytest.raises(MissingRowError, match=r"table t: no row \(1, 1\) to delete"):
            db.delete("t", (1, 1), **how)
    with pytest.raises(MissingRowError, match=r"no row \(2, 1\) to delete"):
        db.insert("t", [(1, 1, "+"), (2, 1, "-")], op="op", early="error")
    with pytest.raises(WhenceError, match="early is 'ignore', 'hold' or 'error', not 'later'"):
        db.delete("t", (1, 1), early="later")
    with pytest.raises(WhenceError, match="give one"):
        db.delete("t", (1, 1), early="hold", strict=True)
    with pytest.raises(WhenceError, match="early is for rows that may go"):
        db.insert("t", (1, 1), early="hold")
    assert (db["t"].rows, db.owed("t").rows, db.epoch) == ([], [], 0)


@pytest.mark.parametrize(
    "data",
    [
        [(1, 1, "D"), (2, 2, "I"), (2, 2, "D"), (3, 3, "insert")],
        [{"op": o, "x": x, "y": x} for x, o in ((1, "-"), (2, "+"), (2, "-"), (3, "+"))],
        pa.table({"x": [1, 2, 2, 3], "y": [1, 2, 2, 3], "op": [-1, 1, -1, 1]}),
        pd.DataFrame({"x": [1, 2, 2, 3], "y": [1, 2, 2, 3], "OP": ["delete", "r", "-u", "+u"]}),
    ],
    ids=["tuples", "dicts", "arrow", "pandas"],
)
def test_operations_of_rows_stand_in_a_column(db: Any, data: Any) -> None:
    assert db.insert("t", data, op="op") == 4
    assert (db["t"].rows, db.owed("t").rows, db.epoch) == ([(3, 3)], [(1, 1)], 1)


def test_unknown_operation_is_an_error(db: Any) -> None:
    with pytest.raises(DataError, match="table t, column op: 'x' is no operation; there are I, "):
        db.insert("t", [(1, 1, "x")], op="op")
    with pytest.raises(DataError, match="'U' needs to know which row is changed"):
        db.insert("t", [(1, 1, "U")], op="op")
    with pytest.raises(DataError, match="the column x is one of the table's"):
        db.insert("t", [(1, 1)], op="x")


def test_debts_are_undone_with_their_epoch(db: Any) -> None:
    db.delete("t", (1, 1), early="hold")
    with pytest.raises(EvaluationError):
        db.insert("t", [(5, 5, "-"), (1, 1, "+"), (1, 2_000_000_000, "+")], op="op")  # the view cannot hold it
    assert (db["t"].rows, db.owed("t").rows) == ([], [(1, 1)])
    with db.transaction():
        try:
            with db.transaction():
                db.insert("t", (1, 1))
                db.delete("t", (6, 6), early="hold")
                raise KeyError
        except KeyError:
            pass
        db.delete("t", (7, 7), early="hold")
    assert (db["t"].rows, sorted(db.owed("t").rows)) == ([], [(1, 1), (7, 7)])


def test_what_if_pays_and_takes_back(db: Any) -> None:
    db.delete("t", (1, 1), early="hold")
    found = db.what_if(insert={"t": [(1, 1), (2, 1)]})
    assert found.tables["t"].inserted == [(2, 1)]
    assert (db["t"].rows, db.owed("t").rows) == ([], [(1, 1)])


def test_update_to_an_owed_row_pays(db: Any) -> None:
    db.delete("t", (1, 1), early="hold")
    db.insert("t", [(2, 1), (3, 1)])
    assert db.update("t", {"x": 1}, {"y": 1}) == 2
    assert (db["t"].rows, db.owed("t").rows) == ([(1, 1)], [])


def test_forgiven_rows_come(db: Any) -> None:
    db.delete("t", [(1, 1), (2, 2), (2, 2)], early="hold")
    assert db.forgive("t", [(2, 2), (9, 9)]) == 2
    assert db.forgive("t") == 1
    assert db.forgive("t") == 0
    db.insert("t", (1, 1))
    assert db["t"].rows == [(1, 1)]


def test_row_that_cannot_come_is_not_owed() -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE k (id INT PRIMARY KEY, v TEXT); CREATE TABLE n (x INT NOT NULL, y INT)")
        db.delete("n", [(None, 1)], early="hold")
        db.insert("k", [(1, None, "D")], op="op")  # only its key is told
        assert (db.owed("n").rows, db.owed("k").rows) == ([], [])


def test_key_waits_for_its_very_row() -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE k (id INT PRIMARY KEY, v TEXT)")
        db.insert("k", [(1, "b", "D")], op="op")
        db.insert("k", (1, "a"))
        assert (db["k"].rows, db.owed("k").rows) == ([(1, "a")], [(1, "b")])
        db.insert("k", (1, "b"))  # replaces the other, and is gone
        assert (db["k"].rows, db.owed("k").rows) == ([], [])
        db.insert("k", [(1, "b", "+"), (2, "x", "-"), (2, "x", "+")], op="op")
        assert (db["k"].rows, db.owed("k").rows) == ([(1, "b")], [])


def test_debts_leave_after_the_time_to_live() -> None:
    now = 0
    with whence.open(clock=lambda: now) as db:
        db.execute("CREATE TABLE t (x INT) WITH (ttl = '10 s')")
        db.delete("t", [(1,), (1,), (2,)], early="hold")
        assert sorted(db.owed("t").rows) == [(1,), (2,)]  # a set
        now = 9
        db.delete("t", (2,), early="hold")
        now = 10
        assert (db.expire(), db.owed("t").rows, db.metrics()["rows_expired"]) == (0, [(2,)], 0)
        db.insert("t", [(1,), (2,)])
        assert (db["t"].rows, db.owed("t").rows) == ([(1,)], [])
        db.insert("t", [(5, "D")], op="op")  # rows of such a table leave by themselves: not held if nobody says so
        assert db.owed("t").rows == []


def test_debts_go_with_their_table(tmp_path: Path) -> None:
    with database.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (x INT)")
        db.delete("t", (1,), early="hold")
        db.execute("DROP TABLE t; CREATE TABLE t (x INT)")
        assert db.owed("t").rows == []
        db.delete("t", (2,), early="hold")
    with database.open(tmp_path / "db") as db:
        assert (db.owed("t").rows, db.tables, db.metrics()["tables"]) == ([(2,)], ["t"], {"t": 0})


def test_streams_owe_nothing() -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (x INT)")
        for ask in (lambda: db.owed("s"), lambda: db.forgive("s"), lambda: db.delete("s", (1,), early="hold")):
            with pytest.raises(WhenceError, match=r'^"?s"? is a stream'):
                ask()
