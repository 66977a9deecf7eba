"""What a review of streams found: names, ends of ranges, and queries that are asked once. Each was wrong once."""

from __future__ import annotations

import math
from typing import Any

import pytest

import whence
from whence.model.errors import CatalogError, SqlError

LEAST = -(2**63) + 1


def opened(script: str, **streams: list[Any]) -> Any:
    db = whence.open()
    db.execute(script)
    for name, rows in streams.items():
        db.insert(name, rows)
    return db


# -- names -----------------------------------------------------------------------------------------------------------


def test_a_column_may_be_called_like_the_hidden_one() -> None:
    db = opened(
        """
        CREATE STREAM s (t INT, "$at" BIGINT);
        CREATE TABLE tab (a INT, "$at" INT);
        CREATE VIEW w AS SELECT MAX("$at") AS "$at" FROM slide(s, rows => 2, every => 1);
        CREATE VIEW r AS SELECT DISTINCT a, "$at" FROM tab;
        CREATE VIEW d AS SELECT DISTINCT "$at" FROM s;
        """,
        s=[(1, 20), (2, 10)],
        tab=[(1, 2)],
    )
    assert (list(db["s"]), list(db["w"]), list(db["r"])) == ([(1, 20), (2, 10)], [(20,)], [(1, 2)])
    assert sorted(db["d"]) == [(10,), (20,)]
    with pytest.raises(SqlError, match='"r" is a relation'):
        db.execute("CREATE VIEW x AS SELECT COUNT(*) AS n FROM slide(r, rows => 1, every => 1)")


def test_a_recursive_cte_takes_no_name_of_a_view() -> None:
    db = opened('CREATE STREAM s (t INT); CREATE VIEW "v$q" AS SELECT t FROM s', s=[(1,)])
    db.execute("""
        CREATE VIEW v AS WITH RECURSIVE q AS (SELECT t FROM s UNION SELECT t + 1 FROM q WHERE t < 3) SELECT * FROM q
    """)
    assert (list(db["v$q"]), sorted(db["v"])) == ([(1,)], [(1,), (2,), (3,)])


def test_errors_name_a_cte_as_it_was_written() -> None:
    db = opened("CREATE STREAM s (t INT)")
    with pytest.raises(SqlError, match='in "v": a window needs a stream, and "q" is a relation'):
        db.execute("""
            CREATE VIEW v AS WITH RECURSIVE q AS (SELECT t FROM s UNION SELECT t + 1 FROM q WHERE t < 3)
            SELECT COUNT(*) AS n FROM slide(q, rows => 1, every => 1)
        """)


def test_functions_may_be_quoted() -> None:
    db = opened('CREATE STREAM s (t INT); CREATE VIEW w AS SELECT MAX(t) AS t FROM "slide"(s, rows => 1, every => 1)')
    db.insert("s", [(1,)])
    assert list(db["w"]) == [(1,)]


# -- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("on => ts, width => 1, every => 1, origin => TRUE", "origin is a value of the column, which is TIMESTAMP"),
        ("on => x, width => 1, every => 1, origin => 'NaN'::DOUBLE", "origin is too far away"),
        ("on => x, width => 1, every => 1, origin => 'inf'::DOUBLE", "origin is too far away"),
        ("on => t, width => 1, every => 1, origin => 9223372036854775807", "origin is too far away"),
        ("on => t, width => 4611686018427387904, every => 1", "width is too large"),
        ("on => t, width => 'inf'::DOUBLE, every => 1", "width is too large"),
        ("on => x, width => 'NaN'::DOUBLE, every => 1", "width is not a number"),
        ("on => ts, width => 0.0000015, every => 1", "width is finer than a microsecond"),
        ("on => ts, width => 1, every => 1, origin => 0.0000015", "origin is finer than a microsecond"),
    ],
)
def test_arguments_are_refused_where_they_stand(arguments: str, message: str) -> None:
    db = opened("CREATE STREAM s (t BIGINT, x DOUBLE, ts TIMESTAMP)")
    with pytest.raises(SqlError, match=message) as failure:
        db.execute(f"CREATE VIEW v AS SELECT COUNT(*) AS n FROM slide(s, {arguments})")
    assert failure.value.line == 1
    assert not db.views


def test_value_joins_that_are_by_other_columns_name_the_view() -> None:
    db = opened("CREATE STREAM s (t INT, k TEXT)")
    with pytest.raises(SqlError, match='in "j": windows on a column that are joined must be `by` columns'):
        db.execute("""
            CREATE VIEW j AS SELECT a.t FROM slide(s, on => t, width => 1, by => k) AS a
            JOIN slide(s, on => t, width => 1) AS b ON a.k = b.k
        """)


def test_value_joins_by_columns_that_equal_several() -> None:
    db = opened(
        """
        CREATE STREAM s (t INT, k INT, m INT);
        CREATE VIEW j AS SELECT a.t AS x, b.t AS y
          FROM slide(s, on => t, width => 9, by => (k, m)) AS a JOIN slide(s, on => t, width => 9, by => (k, m)) AS b
          ON a.k = b.m AND a.k = b.k AND a.m = b.m WHERE a.m = b.k;
        """,
        s=[(1, 1, 2), (2, 2, 1), (3, 1, 1), (4, 1, 1)],
    )
    assert sorted(db["j"]) == [(3, 3), (3, 4), (4, 3), (4, 4)]


# -- the ends of ranges ----------------------------------------------------------------------------------------------


def test_the_least_value_is_in_windows_that_reach_below_it() -> None:
    db = opened(
        """
        CREATE STREAM s (t BIGINT);
        CREATE VIEW l AS SELECT * FROM latest(s, on => t, width => 100);
        CREATE VIEW j AS SELECT a.t AS x, b.t AS y
          FROM slide(s, on => t, width => 100) AS a JOIN slide(s, on => t, width => 100) AS b ON TRUE;
        """,
        s=[(LEAST,), (LEAST + 2,)],
    )
    assert sorted(db["l"]) == [(LEAST,), (LEAST + 2,)]
    assert sorted(db["j"]) == [(x, y) for x in (LEAST, LEAST + 2) for y in (LEAST, LEAST + 2)]


def test_a_row_is_in_its_own_window_however_coarse_floats_are() -> None:
    db = opened("CREATE STREAM s (x DOUBLE); CREATE VIEW l AS SELECT * FROM latest(s, on => x, width => 1)")
    for value in (-math.inf, -1e300, 0.0, 1e20, math.inf):
        db.insert("s", [(value,)])
        assert list(db["l"]) == [(value,)]


# -- streams and relations -------------------------------------------------------------------------------------------


def test_marks_keep_the_order_of_rows_that_come_together() -> None:
    db = opened(
        """
        CREATE STREAM s (k TEXT); CREATE TABLE tab (k TEXT);
        CREATE VIEW w AS SELECT k, COUNT(*) AS n FROM slide(s, rows => 4, every => 4) GROUP BY k;
        CREATE VIEW m AS SELECT k, EXISTS (SELECT 1 FROM tab WHERE tab.k = w.k) AS known FROM w;
        CREATE VIEW c AS SELECT k FROM w WHERE n > 1 OR EXISTS (SELECT 1 FROM tab WHERE tab.k || 'x' = w.k || 'x');
        """,
        tab=[("b",), ("b",)],
        s=[("a",), ("b",), ("c",), (None,)],
    )
    assert list(db["m"]) == [("a", False), ("b", True), ("c", False), (None, False)]
    assert list(db["c"]) == [("b",)]


# -- queries that are asked once, and plans --------------------------------------------------------------------------


def test_queries_read_streams_that_are_newer_than_all_views() -> None:
    db = opened("CREATE STREAM s (t INT)", s=[(1,), (2,)])
    assert db.query("SELECT SUM(t) AS t FROM slide(s, rows => 2, every => 1)").rows == [(3,)]
    db.execute("CREATE VIEW v AS SELECT * FROM s; CREATE STREAM r (t INT)")
    db.insert("r", [(4,), (5,)])
    assert db.query("SELECT * FROM latest(r, rows => 1)").rows == [(5,)]


def test_queries_and_inserts_keep_the_order_of_a_stream() -> None:
    db = opened("CREATE STREAM s (t INT); CREATE STREAM r (t INT)", s=[(3,), (1,), (3,), (2,)])
    query = "SELECT MAX(t) AS t FROM slide(s, rows => 1, every => 1)"
    assert db.query(query).rows == [(3,), (1,), (3,), (2,)]
    db.execute(f"INSERT INTO r {query}")
    assert list(db["r"]) == [(3,), (1,), (3,), (2,)]


def test_explain_shows_what_a_query_over_streams_would_be() -> None:
    db = opened("CREATE STREAM s (t INT, k TEXT); CREATE STREAM r (k TEXT); CREATE VIEW n AS SELECT DISTINCT k FROM s")
    window = "SELECT MAX(t) AS t FROM slide(s, rows => 2, every => 1)"
    plan = db.execute(f"EXPLAIN CREATE VIEW v WITH (provenance = 'lineage') AS {window}").message.splitlines()
    assert plan[:3] == ["stream, keeps 64 MB", "provenance lineage of s, as adaptive", "logical plan"]
    assert plan[plan.index("stream plan") + 1 :] == [
        "  keep 64 MB",
        "  └─ window of 2 rows, every 1: max(#0) by nothing",
        "     └─ trace s",
        "        └─ stream s",
    ]
    assert "window of 2 rows, every 1" in db.execute(f"EXPLAIN {window}").message
    assert db.execute("EXPLAIN CREATE VIEW v AS SELECT k FROM n").message.startswith("logical plan")
    with pytest.raises(SqlError, match="two streams are joined without windows"):
        db.execute("EXPLAIN CREATE VIEW v AS SELECT t FROM s JOIN r ON s.k = r.k")
    with pytest.raises(CatalogError, match='"s" is a stream; EXPLAIN is for views and queries'):
        db.execute("EXPLAIN s")
    assert db.views == ["n"]
