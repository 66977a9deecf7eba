"""FIRST and LAST over streams outside windows: by arrival, or by a column and then by arrival."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import whence
from tests.depth import seeds
from whence.model.errors import CatalogError, WhenceError

PROGRAM = """
    CREATE STREAM quote (issue TEXT, t INT, price DOUBLE, note TEXT) WITH (retain = '5 rows');
    CREATE VIEW last AS SELECT issue, LAST(price) AS last, FIRST(price) AS first, LAST(note) AS note,
      MAX(price) AS high, AVG(price) AS mean, COUNT(DISTINCT t) AS times FROM quote GROUP BY issue;
    CREATE VIEW timed AS SELECT issue, LAST(note ORDER BY t) AS last, FIRST(note ORDER BY t) AS first
      FROM quote GROUP BY issue;
    CREATE VIEW whole AS SELECT LAST(issue) AS last, FIRST(note ORDER BY t) AS first FROM quote WHERE price > 2;
"""
Row = tuple[str | None, int, float | None, str | None]


def expected(rows: list[Row]) -> dict[str, list[Any]]:
    """Answer the views by DuckDB, which is told the order of arrival."""
    columns = zip(*rows, strict=True) if rows else ([], [], [], [])
    names, types = ("issue", "t", "price", "note"), (pa.string(), pa.int64(), pa.float64(), pa.string())
    given = {name: pa.array(column, type) for name, type, column in zip(names, types, columns, strict=True)}
    quote = pa.table({**given, "n": pa.array(range(len(rows)), pa.int64())})
    with duckdb.connect() as db:
        db.register("quote", quote)

        def ask(sql: str) -> list[Any]:
            return sorted(db.execute(sql).fetchall(), key=str)

        return {
            "last": ask("""SELECT issue, LAST(price ORDER BY n), FIRST(price ORDER BY n), LAST(note ORDER BY n),
                MAX(price), AVG(price), COUNT(DISTINCT t) FROM quote GROUP BY issue"""),
            "timed": ask("SELECT issue, LAST(note ORDER BY t, n), FIRST(note ORDER BY t, n) FROM quote GROUP BY issue"),
            "whole": ask("SELECT LAST(issue ORDER BY n), FIRST(note ORDER BY t, n) FROM quote WHERE price > 2"),
        }


@pytest.mark.parametrize("seed", seeds(8))
def test_views_are_as_duckdb_says(seed: int, tmp_path: Path) -> None:
    """Also of rows that retention has dropped, after restarts from images and from the log, and in partitions."""
    rng = random.Random(seed)
    partitions = rng.choice((None, None, 2))
    db, rows = whence.open(tmp_path / "a", partitions=partitions), list[Row]()
    try:
        db.execute(PROGRAM)
        for number in range(25):
            some: list[Row] = [
                (
                    rng.choice("ABC"),
                    rng.randrange(9),
                    rng.choice((None, 1.5, 2.5, 4)),
                    rng.choice((None, f"n{number}.{i}")),
                )
                for i in range(rng.randrange(1, 5))
            ]
            match rng.choice(("insert", "insert", "insert", "fail", "reopen", "snapshot")):
                case "insert":
                    db.insert("quote", some)
                    rows += some
                case "fail":
                    with suppress(KeyError), db.transaction():
                        db.insert("quote", some)
                        raise KeyError
                case "reopen":
                    db.close()
                    db = whence.open(tmp_path / "a", partitions=partitions)
                case "snapshot":
                    db.snapshot()
            found = {name: sorted(db[name].rows, key=str) for name in ("last", "timed", "whole")}
            assert found == expected(rows)
    finally:
        db.close()


def test_hourly_high_low_and_latest() -> None:
    with whence.open() as db:
        db.execute("""
            CREATE STREAM trade (at TIMESTAMP, issue TEXT, price INT);
            CREATE VIEW hourly AS SELECT issue, date_trunc('hour', at) AS hour, MAX(price) AS high, MIN(price) AS low,
              LAST(price) AS latest FROM trade GROUP BY 1, 2;
        """)
        db.execute("""INSERT INTO trade VALUES ('2026-11-18 10:05', 'A', 80), ('2026-11-18 10:40', 'A', 60),
                      ('2026-11-18 11:00', 'A', 70), ('2026-11-18 10:59', 'B', 5)""")
        found = db.query("SELECT issue, hour(hour), high, low, latest FROM hourly ORDER BY ALL").rows
        assert found == [("A", 10, 80, 60, 60), ("A", 11, 70, 70, 70), ("B", 10, 5, 5, 5)]


def test_a_view_over_a_stream_view_and_a_merge_has_them() -> None:
    with whence.open() as db:
        db.execute("""
            CREATE STREAM a (x INT); CREATE STREAM b (x INT);
            CREATE VIEW both WITH (provenance = 'lineage') AS SELECT x FROM a UNION ALL SELECT x FROM b;
            CREATE VIEW ends AS SELECT FIRST(x) AS first, LAST(x) AS last, COUNT(*) AS n FROM both;
        """)
        with db.transaction():
            db.insert("b", [(1,), (2,)])
            db.insert("a", [(3,)])
        assert db["ends"].rows == [(1, 3, 3)]
        db.insert("b", [(4,)])
        assert db["ends"].rows == [(1, 4, 4)]
        db.execute("CREATE VIEW later AS SELECT LAST(x) AS last FROM both")
        assert db["later"].rows == [(4,)]


def test_statements_and_queries_beside_such_a_view_are_planned() -> None:
    """A program whose only stream view is none is planned again over its own networks."""
    with whence.open() as db:
        db.execute("CREATE STREAM s (x INT, t INT); CREATE TABLE t (x INT)")
        db.execute("CREATE VIEW v AS SELECT LAST(x) AS a, FIRST(x ORDER BY t) AS b FROM s")
        db.insert("s", [(1, 5), (2, 4)])
        db.execute("INSERT INTO t SELECT DISTINCT a FROM v; INSERT INTO t SELECT LAST(x) FROM s")
        assert sorted(db["t"].rows) == [(2,), (2,)]
        with db.subscribe("SELECT a + b AS c FROM v") as updates:
            assert next(iter(updates)).rows == [(4,)]
        with pytest.raises(WhenceError, match="LAST needs a stream"):
            db.execute("INSERT INTO t SELECT LAST(x) FROM t")


def test_words_that_only_an_accumulator_has_stay() -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (k INT, word TEXT) WITH (retain = '1 rows')")
        db.execute("CREATE VIEW v AS SELECT k, FIRST(word) AS word FROM s GROUP BY k")
        db.insert("s", [(k, f"word {k}") for k in range(50)])
        db.insert("s", [(0, "other")])
        db._coordinator.words.collect(asked=True)
        assert sorted(db["v"].rows) == [(k, f"word {k}") for k in range(50)]


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("LAST(x) FROM t", 'LAST needs a stream, and "t" is a table: rows of a table come in no order'),
        ("FIRST(x) FROM latest(s, rows => 3)", "FIRST needs a stream"),
        ("LAST(x) FROM (SELECT DISTINCT x FROM s) d", "LAST needs a stream"),
        ("LAST(x) FILTER (WHERE x > 1) FROM s", "last has no FILTER; say WHERE"),
        ("LAST(DISTINCT x) FROM s", "last does not take DISTINCT"),
        ("LAST(x ORDER BY x DESC) FROM s", "FIRST is from the other end"),
        ("LAST(x ORDER BY word) FROM s", "last goes by a number, a DATE or a TIMESTAMP, found TEXT"),
        ("MAX(x ORDER BY x) FROM s", "max with ORDER BY is not supported"),
        ("LAST(x ORDER BY x) FROM slide(s, rows => 2, every => 1)", "last with ORDER BY is not supported"),
        ("MEDIAN(x) FROM s", "median is for windows"),
    ],
)
def test_misuse_is_explained(select: str, message: str) -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (x INT, word TEXT); CREATE TABLE t (x INT)")
        with pytest.raises(WhenceError) as refused:
            db.execute(f"CREATE VIEW v AS SELECT {select}")
        assert message in str(refused.value)


def test_tables_alone_have_none() -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE t (x INT)")
        with pytest.raises(WhenceError, match="LAST needs a stream: rows of a table come in no order"):
            db.execute("CREATE VIEW v AS SELECT LAST(x) AS x FROM t")


def test_a_question_why_is_refused_with_the_way_out() -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (x INT); CREATE VIEW v AS SELECT LAST(x) AS x FROM s")
        db.insert("s", [(1,), (2,)])
        with pytest.raises(CatalogError, match="FIRST and LAST go by the arrival of rows"):
            db.why("v", x=2)
