"""Streams in a database: appending, reading in order, changes, retention, late rows, and what is refused."""

from __future__ import annotations

import datetime as dt
import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import whence
from tests import inside
from whence.model.errors import CatalogError, DataError, EvaluationError, SqlError, WhenceError

READING = "CREATE STREAM reading (time INT, loc INT, temp DOUBLE)"
ROWS = [(3, 1, 20.5), (1, 2, None), (3, 1, 20.5), (2, 1, 21.0)]


@pytest.fixture
def db():
    with whence.open() as made:
        made.execute(READING)
        yield made


def tids(db: whence.Database, name: str) -> list[tuple]:
    return db.query(f"SELECT * FROM numbered({name})").rows


def counters(db: whence.Database) -> tuple:
    flow = inside.dataflow(db)
    return flow.last_at, {name: (s.kept.first, s.kept.next) for name, s in flow.streams.items()}


def fail(db: whence.Database, rows: list[tuple]) -> None:
    """A transaction that its user breaks off."""
    with suppress(ZeroDivisionError), db.transaction():
        db.insert("reading", rows)
        raise ZeroDivisionError


# -- appending and reading -------------------------------------------------------------------------------------------


def test_rows_are_read_in_the_order_they_came_copies_and_all(db):
    assert db.insert("reading", ROWS) == 4
    db.insert("reading", (0, 0, 0.0))
    handle = db["reading"]
    assert handle.rows == list(handle) == [*ROWS, (0, 0, 0.0)]
    assert (len(handle), handle.columns) == (5, ["time", "loc", "temp"])
    assert handle.to_arrow().column_names == ["time", "loc", "temp"]
    assert handle.to_dicts()[1] == {"time": 1, "loc": 2, "temp": None}
    assert (3, 1, 20.5) in handle
    assert (3, 2, 20.5) not in handle
    assert db.query("SELECT loc, count(*) AS n FROM reading GROUP BY loc ORDER BY loc").rows == [(0, 1), (1, 3), (2, 1)]
    assert tids(db, "reading")[-1] == (5, 0, 0, 0.0)


def test_streams_are_no_tables(db):
    db.execute("CREATE TABLE t (x INT); CREATE VIEW v AS SELECT loc FROM reading")
    assert (db.streams, db.tables, db.views) == (["reading"], ["t"], ["v"])
    assert "reading" in db
    assert "1 streams" in repr(db)


@pytest.mark.parametrize("kind", ["tuples", "arrow", "chunks", "pandas", "polars", "sql"])
def test_rows_of_every_kind_are_the_same_rows(db, kind):
    table = pa.table({"time": [r[0] for r in ROWS], "loc": [r[1] for r in ROWS], "temp": [r[2] for r in ROWS]})
    match kind:
        case "tuples":
            db.insert("reading", ROWS)
        case "arrow":
            db.insert("reading", table.select(["temp", "loc", "time"]))
        case "chunks":
            db.insert("reading", pa.concat_tables([table.slice(0, 3), table.slice(3)]))
        case "pandas":
            db.insert("reading", table.to_pandas())
        case "polars":
            db.insert("reading", pytest.importorskip("polars").from_arrow(table))
        case "sql":
            values = ", ".join(str(row).replace("None", "NULL") for row in ROWS)
            db.execute(f"INSERT INTO reading VALUES {values}")
    assert sorted(map(str, db["reading"].rows)) == sorted(map(str, ROWS))
    if kind != "sql":
        assert db["reading"].rows == ROWS


def test_numbers_keep_their_values(db):
    values = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 5e-324, -1.5, 1e308]
    given = pa.table({"time": pa.array(range(8), pa.int32()), "loc": range(8), "temp": values})
    db.insert("reading", given)
    db.insert("reading", list(zip(range(8), range(8), values, strict=True)))
    rows = inside.coordinator(db).reader.contents("reading")[0]
    assert (rows[:8] == rows[8:]).all()
    out = db["reading"].to_arrow()["temp"].to_numpy()[:8]
    assert np.array_equal(out, np.array(values), equal_nan=True)


def test_what_does_not_fit_is_refused_whole(db):
    with pytest.raises(DataError, match="table reading, row 2, column time"):
        db.insert("reading", pa.table({"time": [1, 2**40], "loc": [1, 1], "temp": [1.0, 1.0]}))
    with pytest.raises(DataError, match="2 values for the 3 columns"):
        db.insert("reading", [(1, 2)])
    db.execute("CREATE STREAM strict (x INT NOT NULL)")
    with pytest.raises(DataError, match="NULL in a NOT NULL column"):
        db.insert("strict", pa.table({"x": [1, None]}))
    assert counters(db) == (0, {"reading": (1, 1), "strict": (1, 1)})


@pytest.mark.parametrize(
    "change",
    [
        lambda db: db.delete("reading", ROWS[:1]),
        lambda db: db.delete("reading", ROWS[:1], strict=True),
        lambda db: db.update("reading", {"loc": 1}),
        lambda db: db.update("reading", {"loc": 1}, {"time": 3}),
        lambda db: db.execute("DELETE FROM reading"),
        lambda db: db.execute("UPDATE reading SET loc = 1"),
        lambda db: db.what_if(delete={"reading": ROWS[:1]}),
        lambda db: db.what_if(update={"reading": {"loc": 1}}),
        lambda db: db.execute("CREATE STREAM keyed (x INT PRIMARY KEY)"),
        lambda db: db.execute("CREATE STREAM soft (x INT) WITH (ttl = '1 s')"),
        lambda db: db.insert("v", [(1,)]),
        lambda db: db.late("reading"),
    ],
)
def test_nothing_but_appending(db, change):
    db.execute("CREATE VIEW v AS SELECT loc FROM reading")
    db.insert("reading", ROWS)
    before = counters(db)
    with pytest.raises((DataError, SqlError, CatalogError), match=r"stream|view"):
        change(db)
    assert (counters(db), db.epoch) == (before, 1)


# -- transactions ----------------------------------------------------------------------------------------------------


def test_arrivals_are_numbered_over_all_streams_in_the_order_of_the_calls(db):
    db.execute("CREATE STREAM other (x INT); CREATE VIEW both AS SELECT loc AS x FROM reading UNION ALL TABLE other")
    with db.transaction():
        db.insert("other", [(1,)])
        db.insert("reading", [(0, 2, 0.0), (0, 3, 0.0)])
        db.insert("other", [(4,), (5,)])
        db.execute("INSERT INTO reading VALUES (0, 6, 0.0)")
    assert db["both"].rows == [(1,), (2,), (3,), (4,), (5,), (6,)]
    assert db["reading"].rows == [(0, 2, 0.0), (0, 3, 0.0), (0, 6, 0.0)]
    assert counters(db) == (6, {"reading": (1, 4), "other": (1, 4)})
    assert db.epoch == 1


def test_what_is_forgotten_leaves_no_gap(db):
    with db.transaction():
        db.insert("reading", ROWS[:1])
        fail(db, ROWS)
        db.insert("reading", ROWS[1:2])
    fail(db, ROWS)
    assert db["reading"].rows == ROWS[:2]
    assert counters(db) == (2, {"reading": (1, 3)})


def test_an_epoch_that_fails_leaves_everything_as_it_was(db):
    db.execute("CREATE VIEW sorted AS SELECT time, loc FROM bsort(reading, on => time, slack => 1)")
    db.execute("CREATE VIEW narrow AS SELECT CAST(loc * 1000000000 AS INT) AS x FROM reading")
    db.insert("reading", ROWS)
    feed = db.changes("sorted")
    before = counters(db), tids(db, "sorted"), tids(db, "narrow")
    with pytest.raises(EvaluationError):
        db.insert("reading", [(5, 1, 0.0), (0, 1, 0.0), (6, 9, 0.0)])
    assert (counters(db), tids(db, "sorted"), tids(db, "narrow")) == before
    assert list(feed) == []
    assert db.late("sorted").count == 0
    db.insert("reading", (7, 2, 0.0))
    assert tids(db, "narrow")[-1] == (5, 2000000000)


def test_a_transaction_reads_what_it_has_written_in_its_own_statements(db):
    db.execute("CREATE TABLE t (loc INT)")
    db.insert("reading", (1, 1, 0.0))
    with db.transaction():
        db.insert("reading", (2, 2, 0.0))
        db.execute("INSERT INTO t SELECT loc FROM reading")
        assert db["reading"].rows == [(1, 1, 0.0)]  # readers see what is committed
    assert sorted(db["t"].rows) == [(1,), (2,)]


def test_an_insert_keeps_the_order_of_its_query(db):
    db.execute("CREATE TABLE t (a INT, b DOUBLE); CREATE STREAM s (x BIGINT, y TEXT)")
    db.insert("t", [(2, 0.5), (3, None), (1, 9.0), (2, 0.25), (2, 0.25)])
    db.execute("INSERT INTO s (x) SELECT a * 10 FROM t ORDER BY a * 10 DESC")
    db.execute("INSERT INTO reading SELECT a, a + 1, b FROM t ORDER BY b, a LIMIT 3")
    assert db["s"].rows == [(30, None), (20, None), (20, None), (20, None), (10, None)]
    assert db["reading"].rows == [(2, 3, 0.25), (2, 3, 0.25), (2, 3, 0.5)]


def test_what_if(db):
    db.execute("CREATE VIEW v AS SELECT loc FROM reading WHERE loc > 1; CREATE VIEW n AS SELECT COUNT(*) AS n FROM v")
    db.insert("reading", ROWS)
    before = counters(db)
    what = db.what_if(insert={"reading": [(9, 9, 0.0), (9, 0, 0.0)]})
    assert what["v"].inserted == [(9,)]
    assert (what["n"].deleted, what["n"].inserted) == ([(1,)], [(2,)])
    assert what.tables["reading"].inserted == [(9, 0, 0.0), (9, 9, 0.0)]
    assert (counters(db), len(db["v"]), db.epoch) == (before, 1, 1)


# -- changes and views -----------------------------------------------------------------------------------------------


def test_changes_come_in_order(db):
    db.execute("CREATE VIEW v AS SELECT loc FROM reading WHERE loc < 3")
    db.insert("reading", ROWS)
    base, view, anew = db.changes("reading"), db.changes("v"), db.changes("v", snapshot=True)
    db.insert("reading", [(1, 2, 0.0), (1, 3, 0.0), (1, 1, 0.0), (1, 2, 0.0)])
    assert [c.row[1] for c in base] == [2, 3, 1, 2]
    assert [(c.epoch, c.row, c.sign) for c in view] == [(2, (2,), 1), (2, (1,), 1), (2, (2,), 1)]
    assert [c.row[0] for c in anew] == [1, 2, 1, 1, 2, 1, 2]


@pytest.mark.parametrize("how", ["lineage", "covering"])
def test_changes_of_a_traced_view_are_rows_that_come_once(db, how):
    query = "SELECT SUM(loc) AS s FROM slide(reading, rows => 2, every => 1)"
    db.execute(f"CREATE VIEW v WITH (provenance = '{how}') AS {query}")
    feed = db.changes("v")
    db.insert("reading", ROWS)
    assert [(c.row, c.sign) for c in feed] == [((3,), 1), ((3,), 1), ((2,), 1)]
    what = db.what_if(insert={"reading": [(9, 9, 0.0)]})
    assert (what["v"].inserted, what["v"].deleted) == ([(10,)], [])
    assert (db["v"].rows, len(db["v"]), (2,) in db["v"]) == ([(3,), (3,), (2,)], 3, True)


def test_a_view_made_later_begins_with_what_is_kept():
    with whence.open() as db:
        db.execute("CREATE STREAM s (x INT) WITH (retain = '3 rows')")
        db.insert("s", [(i,) for i in range(10)])
        db.execute("CREATE VIEW v AS SELECT x * 10 AS y FROM s")
        assert tids(db, "v") == [(1, 70), (2, 80), (3, 90)]
        db.insert("s", [(10,)])
        assert tids(db, "v")[-1] == (4, 100)
        assert tids(db, "s") == [(9, 8), (10, 9), (11, 10)]


def test_views_of_streams_keep_what_they_say():
    now = [1000.0]
    with whence.open(clock=lambda: now[0]) as db:
        db.execute("CREATE STREAM s (x INT) WITH (retain = '10 min')")
        db.execute("CREATE VIEW few WITH (retain = '2 rows') AS SELECT x FROM s")
        db.execute("CREATE VIEW bytes WITH (retain = '48 B') AS SELECT x FROM s")
        for x in range(6):
            now[0] += 240
            db.insert("s", [(x,)])
        assert db["s"].rows == [(3,), (4,), (5,)]
        assert db["few"].rows == [(4,), (5,)]
        assert db["bytes"].rows == [(3,), (4,), (5,)]
        assert db.metrics()["streams"]["few"] == {"rows": 6, "kept": 2, "dropped": 4, "bytes": 1024}


def test_relations_count_what_has_left():
    with whence.open() as db:
        db.execute("CREATE STREAM s (x INT) WITH (retain = '2 rows'); CREATE VIEW n AS SELECT SUM(x) AS n FROM s")
        for x in range(5):
            db.insert("s", [(x,)])
        assert db["n"].rows == [(10,)]
        assert len(db["s"]) == 2


def test_late_rows_are_counted_and_kept(db):
    db.execute("CREATE VIEW sorted AS SELECT time, loc FROM bsort(reading, on => time, slack => 0)")
    db.execute("CREATE VIEW twice AS SELECT time FROM bsort(sorted, on => loc, slack => 0)")
    db.insert("reading", [(5, 9, 0.0), (7, 8, 0.0), (1, 1, 1.0), (8, 1, 0.0), (None, 1, 0.0)])
    late = db.late("sorted")
    assert (late.count, late.rows, late.columns) == (2, [(1, 1, 1.0), (None, 1, 0.0)], ["time", "loc", "temp"])
    assert db.query("SELECT * FROM late(sorted) WHERE time IS NOT NULL").rows == [(1, 1, 1.0)]
    assert db.late("twice").rows == []
    assert db.metrics()["late"] == {"sorted": 2}
    db.execute("CREATE VIEW plain AS SELECT loc FROM reading")
    assert (db.late("plain").count, db.late("plain").columns) == (0, ["loc"])
    with pytest.raises(CatalogError, match="no table or view"):
        db.late("nothing")


NETWORK = """
    CREATE VIEW sorted AS SELECT time, loc FROM bsort(reading, on => time, slack => 2);
    CREATE VIEW averages AS SELECT loc, AVG(temp) AS t, COUNT(*) AS n
      FROM slide(reading, rows => 3, every => 2, by => loc) GROUP BY loc;
    CREATE VIEW merged AS SELECT loc FROM sorted UNION ALL SELECT loc FROM averages;
    CREATE VIEW minutes AS SELECT window_start, SUM(loc) AS s
      FROM slide(sorted, on => time, width => 4, every => 2) GROUP BY window_start;
"""
readings = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2), st.floats(0, 9)), max_size=40)


@given(readings, st.randoms(use_true_random=False))
def test_what_comes_out_does_not_depend_on_epochs(rows, rng: random.Random):
    with whence.open() as whole, whence.open() as cut:
        for db in (whole, cut):
            db.execute(READING)
            db.execute(NETWORK)
        whole.insert("reading", rows)
        at = 0
        while at < len(rows):
            step = rng.randint(1, 6)
            if rng.random() < 0.3:
                fail(cut, rows[: rng.randint(0, 9)])
            if rng.random() < 0.3:
                cut.what_if(insert={"reading": rows[:5]})
            cut.insert("reading", rows[at : at + step])
            at += step
        for name in ("reading", *whole.views):
            assert tids(cut, name) == tids(whole, name)
            if name != "reading":
                assert cut.late(name).rows == whole.late(name).rows


# -- the rest of a database ------------------------------------------------------------------------------------------


def test_dropping(db):
    db.execute("CREATE STREAM other (x INT); CREATE VIEW v AS SELECT loc FROM reading; CREATE TABLE t (x INT)")
    db.insert("reading", ROWS)
    for sql, said in [
        ("DROP TABLE reading", "is a stream, not a table"),
        ("DROP STREAM t", "is a table, not a stream"),
        ("DROP STREAM v", "is a view, not a stream"),
        ("DROP STREAM reading", "v depends on"),
        ("DROP STREAM nothing", "there is no stream"),
    ]:
        with pytest.raises(CatalogError, match=said):
            db.execute(sql)
    assert db.execute("DROP STREAM IF EXISTS nothing").message == "nothing to drop"
    assert db.execute("DROP STREAM reading CASCADE").message == "dropped reading, v"
    assert db.streams == ["other"]
    assert db.execute("CREATE STREAM IF NOT EXISTS other (x INT)").message == "stream other exists already"
    db.insert("other", [(1,)])
    assert db["other"].rows == [(1,)]


def test_export_and_import_keep_rows_and_their_order(db, tmp_path: Path):
    db.execute("CREATE STREAM other (loc INT, at TIMESTAMP) WITH (retain = '2 rows')")
    db.execute("CREATE VIEW both AS SELECT loc FROM reading UNION ALL SELECT loc FROM other")
    day = dt.datetime(2024, 1, 1)
    with db.transaction():
        for i in range(4):
            db.insert("reading", ROWS[i])
            db.insert("other", (10 + i, day))
    db.export(tmp_path / "out")
    made = whence.import_database(tmp_path / "out", tmp_path / "db")
    assert made.tables == {"reading": 4, "other": 2}
    with whence.open(tmp_path / "db") as copy:
        assert copy["reading"].rows == ROWS
        assert tids(copy, "other") == [(1, 12, day), (2, 13, day)]
        assert copy["both"].rows == [(1,), (2,), (1,), (12,), (1,), (13,)]
        copy.insert("other", (14, day))
        assert copy["both"].rows[-1] == (14,)
    assert whence.check(tmp_path / "db").ok


def test_a_stream_for_reading_only(db):
    with pytest.raises(WhenceError, match="is a stream"):
        db.what_if("DELETE FROM reading")
    db.insert("reading", ROWS)
    assert db.query("SELECT max(tid) FROM numbered(reading)").rows == [(4,)]
    with pytest.raises(WhenceError):
        db.query("SELECT * FROM numbered(nothing)")


def test_a_view_is_not_traced_through_one_whose_past_is_gone() -> None:
    """A copy of it would begin where the stream now does, and have windows that the view itself never had."""
    db = whence.open()
    db.execute(
        "CREATE STREAM s (x INT) WITH (retain = '4 rows'); "
        "CREATE VIEW sums AS SELECT SUM(x) AS x FROM slide(s, rows => 3, every => 3)"
    )
    traced = "CREATE VIEW t WITH (provenance = 'lineage') AS SELECT x FROM sums WHERE x > 0"
    db.insert("s", [(1,), (2,), (3,)])
    db.execute(traced)
    db.execute("DROP VIEW t")
    for x in range(4, 9):
        db.insert("s", (x,))
    with pytest.raises(whence.CatalogError, match='would be traced through "sums"'):
        db.execute(traced)
    db.execute(traced.replace("'lineage'", "'lineage', provenance_of = 'sums'"))
    db.insert("s", (9,))
    assert list(db["t"]) == [(6,), (15,), (24,)]
    assert db.query("SELECT x, sums_tid FROM provenance(t, sums)").rows == [(6, 1), (15, 2), (24, 3)]
