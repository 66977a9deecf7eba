"""Rows that come out of order: which windows they are in, and what is said of those that come too late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import whence

FIVE_MINUTES = (
    "SELECT window_start, COUNT(*) AS n, SUM(v) AS v FROM slide(s, on => t, width => 300, every => {}) GROUP BY 1"
)


def disordered(rows: int, disorder: int) -> pa.Table:
    """Twenty rows per second, each as much as `disorder` seconds late."""
    luck = np.random.default_rng(13)
    due = np.arange(rows) // 20
    order = np.argsort(due + luck.integers(0, disorder + 1, rows), kind="stable")
    return pa.table({"t": due[order], "v": luck.integers(0, 100, rows)[order]})


@pytest.mark.parametrize("every", [300, 60])
def test_rows_within_the_lateness_are_all_counted(every: int) -> None:
    rows = disordered(200_000, 26)
    with whence.open() as db:
        db.execute("CREATE STREAM s (t INT, v INT)")
        lateness = f"{every}, lateness => 30"
        db.execute(f"CREATE VIEW w AS {FIVE_MINUTES.format(lateness)}")
        db.insert("s", rows)
        db.insert("s", [(20_000, 0)])
        t, v = rows["t"].to_numpy(), rows["v"].to_numpy()
        starts = range(-300 + every, 9_901, every)
        expected = [
            (start, int(inside.sum()), int(v[inside].sum()))
            for start in starts
            if (inside := (t >= start) & (t < start + 300)).any()
        ]
        assert db["w"].rows[: len(expected)] == expected
        assert db.late("w").count == 0


def test_only_windows_that_have_closed_miss_a_row() -> None:
    rows = disordered(200_000, 26)
    with whence.open() as db:
        db.execute("CREATE STREAM s (t INT, v INT)")
        db.execute(f"CREATE VIEW w AS {FIVE_MINUTES.format(300)}")
        db.insert("s", rows)
        db.insert("s", [(20_000, 0)])
        missed = db.late("w").count
        assert sum(n for _, n, _ in db["w"].rows) == 200_000 - missed
        assert 0 < missed < 33 * 26 * 20  # rows of the last 26 seconds before the ends of 33 windows


def test_results_do_not_depend_on_the_cuts() -> None:
    rows = disordered(600, 26).to_pylist()
    found = []
    for size in (1, 7, 600):
        with whence.open() as db:
            db.execute("CREATE STREAM s (t INT, v INT)")
            query = (
                "SELECT window_end, COUNT(*) AS n, FIRST(v) AS f, MEDIAN(v) AS m FROM slide(s, on => t, width => 10, "
            )
            db.execute(f"CREATE VIEW w AS {query} every => 3, lateness => 4) GROUP BY 1")
            for start in range(0, 600, size):
                db.insert("s", rows[start : start + size])
            found.append((db["w"].rows, db.late("w").rows))
    assert found[0] == found[1] == found[2]
    assert found[0][1]


@pytest.mark.parametrize(
    ("type", "within", "values"),
    [
        ("INT", "3", [5, 9, 7, 6, 13, 12, 20]),
        ("DOUBLE", "0.5", [1.0, 1.5, 1.25, 1.75, 2.5, 4.0]),
        ("TIMESTAMP", "INTERVAL '30 s'", ["2020-01-01 00:00:10", "2020-01-01 00:00:40", "2020-01-01 00:00:20"]),
        ("DATE", "2", ["2020-01-03", "2020-01-05", "2020-01-04", "2020-01-09"]),
    ],
)
def test_bsort_within_a_length_sorts_what_is_no_farther_apart(type: str, within: str, values: list[Any]) -> None:
    with whence.open() as db:
        db.execute(f"CREATE STREAM s (x {type})")
        db.execute(f"CREATE VIEW sorted AS SELECT x FROM bsort(s, on => x, within => {within})")
        for value in values:
            db.insert("s", [(value,)])
        rows = db["sorted"].rows
        assert rows
        assert rows == db.query("SELECT x FROM s ORDER BY x").rows[: len(rows)]
        assert db.late("sorted").count == 0


def test_bsort_by_rows_or_by_length() -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (x INT)")
        for wrong in ("", ", slack => 1, within => 2"):
            with pytest.raises(whence.SqlError, match="slack => …, how many rows it holds back, or within"):
                db.execute(f"CREATE VIEW v AS SELECT x FROM bsort(s, on => x{wrong})")
        with pytest.raises(whence.SqlError, match="lateness is of windows on a column"):
            db.execute("CREATE VIEW v AS SELECT COUNT(*) AS n FROM slide(s, rows => 2, every => 1, lateness => 3)")
        with pytest.raises(whence.SqlError, match="lateness must be zero or more"):
            db.execute("CREATE VIEW v AS SELECT COUNT(*) AS n FROM slide(s, on => x, every => 1, lateness => -3)")


def test_windows_from_the_first_row_survive_a_restart(tmp_path: Any) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute("CREATE STREAM s (t INT, k INT)")
        db.execute(
            "CREATE VIEW w AS SELECT k, window_start, COUNT(*) AS n FROM "
            "slide(s, on => t, width => 10, every => 10, origin => 'first', by => k) GROUP BY 1, 2"
        )
        db.insert("s", [(3, 1), (7, 2), (12, 1)])
        db.snapshot()
    with whence.open(tmp_path / "db") as db:
        db.insert("s", [(13, 1), (16, 2), (17, 2)])
        assert db["w"].rows == [(1, 3, 2), (2, 7, 2)]


def test_the_first_late_rows_of_a_view_warn(caplog: pytest.LogCaptureFixture) -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (t INT, v INT)")
        db.execute("CREATE VIEW w AS SELECT COUNT(*) AS n FROM slide(s, on => t, width => 10, every => 10)")
        db.insert("s", [(3, 0), (15, 0)])
        assert not caplog.records
        db.insert("s", [(4, 0), (5, 0)])
        db.insert("s", [(6, 0)])
        (record,) = caplog.records
        assert record.getMessage() == (
            "view w: a row came too late (t = 4 is 11 behind 15). Windows that have closed do not have it: "
            "give slide(…) a (larger) lateness => …. SELECT * FROM late(w) shows such rows; others are only counted"
        )
        assert db.metrics()["late"] == {"w": 3}


WINDOWS = (
    "CREATE STREAM s (t INT, k INT);"
    "CREATE VIEW w WITH (provenance = 'lineage') AS SELECT k, window_start, COUNT(*) AS n FROM "
    "slide((SELECT t, k FROM s WHERE k > 0), on => t, width => 10, every => 5, by => k) GROUP BY 1, 2;"
    "CREATE VIEW sorted AS SELECT t FROM bsort(s, on => t, slack => 100)"
)


def test_a_promise_closes_the_windows_of_every_key() -> None:
    with whence.open() as db:
        db.execute(WINDOWS)
        db.insert("s", [(3, 1), (7, 2), (4, 1)])
        db.advance("s", 10, on="t")
        assert db["w"].rows == [(1, -5, 2), (1, 0, 2), (2, 0, 1)]
        assert db["sorted"].rows == [(3,), (4,), (7,)]
        db.advance("s", 8, on="t")  # behind the last promise
        db.insert("s", [(9, 3), (12, 2)])  # a key that comes later has the same watermark
        assert db.late("w").rows == [(9, 3)]
        db.advance("s", 15, on="t")
        assert db["w"].rows[3:] == [(2, 5, 2), (3, 5, 1)]
        assert db.provenance("w", "s").rows[-2:][1][-1] == 3


def test_a_flush_closes_the_last_windows_and_the_stream_goes_on() -> None:
    with whence.open() as db:
        db.execute(WINDOWS)
        db.insert("s", [(3, 1), (7, 2)])
        db.flush()
        assert db["w"].rows == [(1, -5, 1), (1, 0, 1), (2, 0, 1), (2, 5, 1)]
        db.insert("s", [(16, 1), (20, 1)])
        assert db["w"].rows[4:] == [(1, 10, 1)]
        assert not db.late("w").count


def test_promises_are_durable(tmp_path: Any) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(WINDOWS)
        db.insert("s", [(3, 1), (7, 2)])
        db.advance("s", 10, on="t")
        db.insert("s", [(11, 1)])
        db.flush("s")
        rows = db["w"].rows
    with whence.open(tmp_path / "db") as db:
        assert db["w"].rows == rows
        db.snapshot()
    with whence.open(tmp_path / "db") as db:
        db.insert("s", [(9, 4), (30, 4)])
        assert db["w"].rows[len(rows) :] == [(4, 5, 1)]


def test_a_promise_says_what_it_is_of() -> None:
    with whence.open() as db:
        db.execute(WINDOWS)
        db.execute("CREATE TABLE x (a INT); CREATE VIEW by_k AS SELECT k FROM bsort(s, on => k, slack => 1)")
        with pytest.raises(whence.CatalogError, match="windows and sorts are over t, k: say which"):
            db.advance("s", 3)
        with pytest.raises(whence.CatalogError, match='has no column "tt"'):
            db.advance("s", 3, on="tt")
        with pytest.raises(whence.CatalogError, match="only streams have watermarks"):
            db.flush("x")
        with pytest.raises(whence.DataError):
            db.advance("s", "soon", on="t")
        with pytest.raises(whence.WhenceError, match="cannot stand inside a transaction"), db.transaction():
            db.flush("s")


def test_a_result_that_a_flush_brought_about_is_not_replayed() -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (t INT)")
        db.execute(
            "CREATE VIEW w WITH (provenance = 'covering') AS "
            "SELECT COUNT(*) AS n FROM "
            "slide((SELECT t FROM bsort(s, on => t, within => 2)), on => t, width => 4, every => 4)"
        )
        db.insert("s", [(1,), (5,), (4,), (9,)])
        db.flush()
        assert db["w"].rows == [(1,), (2,), (1,)]
        with pytest.raises(whence.WhenceError, match=r"db\.flush brought about cannot be replayed"):
            db.why("w", tid=3)


def test_a_check_leaves_out_what_a_promise_closed(tmp_path: Any) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(WINDOWS + "; CREATE VIEW plain AS SELECT k FROM s")
        db.insert("s", [(3, 1), (7, 2)])
        db.flush()
    report = whence.check(tmp_path / "db")
    assert report.ok
    assert {view.name for view in report.views if view.unknown} == {"w", "sorted"}
