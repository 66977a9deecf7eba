"""Aggregate selection through the public API: what it sees through, keeps when readers go, and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import whence
from tests.oracle import on_partitions
from whence.model.errors import RecursionLimitError, SqlError

CYCLE = [("A", "B", 5), ("B", "C", -3), ("C", "A", 4), ("A", "C", 3)]


def path(value: str, options: str = "", condition: str = "") -> str:
    return f"""CREATE TABLE link (src TEXT, dst TEXT, w INT);
        CREATE VIEW path {options} AS
          SELECT src, dst, src || '.' || dst AS vec, w AS v FROM link
          UNION
          SELECT link.src, path.dst, link.src || '.' || vec, {value}
          FROM link JOIN path ON link.dst = path.src {condition};"""


CHEAPEST = "CREATE VIEW cheapest AS SELECT src, dst, MIN(v) AS v FROM path GROUP BY src, dst"
WIDEST = "CREATE VIEW widest AS SELECT src, dst, MAX(v) AS v FROM path GROUP BY src, dst;"
WIDEST_PATH = """CREATE VIEW widest_path AS SELECT path.src, path.dst, vec, path.v FROM path JOIN widest
    ON path.src = widest.src AND path.dst = widest.dst AND path.v = widest.v"""


@pytest.fixture(params=(None, 3), ids=("embedded", "partitions"))
def runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    with on_partitions(request.param):
        yield


@pytest.mark.parametrize(
    ("value", "condition"),
    [
        ("path.v + abs(link.w)", ""),
        ("path.v + CASE WHEN link.w < 0 THEN 1 ELSE link.w END", ""),
        ("path.v + 1", "WHERE path.v + abs(link.w) < 1000"),
    ],
)
@pytest.mark.usefixtures("runtime")
def test_any_expression_of_other_rows_may_be_added(value: str, condition: str) -> None:
    with whence.open() as db:
        db.execute(path(value, condition=condition) + CHEAPEST)
        assert "only rows with the MIN(v) of their src, dst are kept" in db.explain("path")
        db.insert("link", CYCLE)
        assert len(db["cheapest"].rows) == 9
        assert {(s, d): v for s, d, _, v in db["path"]} == {(s, d): v for s, d, v in db["cheapest"]}


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("gone", ["DROP VIEW cheapest", "CREATE OR REPLACE VIEW cheapest AS SELECT src FROM link"])
def test_view_stays_cut_down_when_its_last_reader_goes(tmp_path: Path, gone: str) -> None:
    with whence.open(tmp_path / "net.db") as db:
        db.execute(path("path.v + abs(link.w)") + CHEAPEST)
        db.insert("link", CYCLE)
        best = sorted(db["path"].rows)
        db.execute(gone)
        assert sorted(db["path"].rows) == best
        db.insert("link", [("C", "D", 1)])
        best = sorted(db["path"].rows)
        assert len(best) == 12
    with whence.open(tmp_path / "net.db") as db:  # from the log
        assert sorted(db["path"].rows) == best
        db.snapshot()
    with whence.open(tmp_path / "net.db") as db:  # from the image
        assert sorted(db["path"].rows) == best
        db.delete("link", [("C", "D", 1)])
        assert len(db["path"].rows) == 9
        # A reader decides anew: by the same aggregate it goes on, whole it has no end, and nothing changes.
        db.execute("CREATE VIEW again AS SELECT src, dst, MIN(v) AS v FROM path GROUP BY src, dst")
        assert len(db["again"].rows) == 9


def test_selection_can_be_spelled_out() -> None:
    with whence.open() as db:
        db.execute(path("LEAST(link.w, path.v)", "WITH (aggregate_selection = 'ONE max(v) BY src, dst')"))
        db.insert("link", CYCLE)
        assert ("A", "A", "A.C.A", 3) in db["path"].rows
        assert len(db["path"].rows) == 9
        assert "one row with the MAX(v) of their src, dst is kept" in db.explain("path")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("min(v) by src, dst", "path cannot be cut down to min\\(v\\) by src, dst"),
        ("max(v) by vec", "path cannot be cut down to max\\(v\\) by vec"),
        ("max(w) by src, dst", "names w, which is no column of path"),
        ("best", "'on' or 'off' or 'one', or spelled out, such as 'min\\(cost\\) by src, dst'"),
    ],
)
def test_selection_that_cannot_be_made_is_refused(option: str, message: str) -> None:
    with whence.open() as db, pytest.raises(SqlError, match=message):
        db.execute(path("LEAST(link.w, path.v)", f"WITH (aggregate_selection = '{option}')"))


def test_one_best_row_and_maintained_provenance_exclude_each_other() -> None:
    options = "WITH (aggregate_selection = 'one', maintain = 'absorption')"
    with whence.open() as db, pytest.raises(SqlError, match="leave one of the two options out"):
        db.execute(path("LEAST(link.w, path.v)", options) + WIDEST)


@pytest.mark.usefixtures("runtime")
def test_ties_without_end_name_the_way_out() -> None:
    """Paper 000's highest-bandwidth path: whoever joins the view with the aggregate sees every tie, unless 'one'."""
    with whence.open() as db:
        db.execute(path("LEAST(link.w, path.v)", "WITH (recursion_limit = 50)") + WIDEST + WIDEST_PATH)
        with pytest.raises(RecursionLimitError, match="aggregate_selection = 'one'"):
            db.insert("link", CYCLE)
        assert db["link"].rows == []
    with whence.open() as db:
        db.execute(path("LEAST(link.w, path.v)", "WITH (aggregate_selection = 'one')") + WIDEST + WIDEST_PATH)
        db.insert("link", CYCLE)
        assert {row[:2]: row[2] for row in db["widest_path"]} == {
            ("A", "A"): "A.C.A",
            ("A", "B"): "A.B",
            ("A", "C"): "A.C",
            ("B", "A"): "B.C.A",
            ("B", "B"): "B.C.A.B",
            ("B", "C"): "B.C",
            ("C", "A"): "C.A",
            ("C", "B"): "C.A.B",
            ("C", "C"): "C.A.C",
        }


@pytest.mark.usefixtures("runtime")
def test_groups_may_be_counted_beside_their_best_values() -> None:
    """Every group keeps a row, so what depends only on which groups there are sees no difference."""
    counts = """CREATE VIEW reached AS SELECT src, COUNT(DISTINCT dst) AS n, MAX(dst) AS last FROM path GROUP BY src;
        CREATE VIEW ties AS SELECT p.src, p.dst, COUNT(*) AS n FROM path AS p JOIN cheapest AS c
          ON p.src = c.src AND p.dst = c.dst AND p.v = c.v GROUP BY p.src, p.dst"""
    with whence.open() as db:
        db.execute(path("path.v + abs(link.w)") + CHEAPEST + ";" + counts)
        db.insert("link", [*CYCLE, ("C", "B", 9)])
        assert sorted(db["reached"].rows) == [("A", 3, "C"), ("B", 3, "C"), ("C", 3, "C")]
        assert {row[:2]: row[2] for row in db["ties"]}["C", "B"] == 2
        db.delete("link", [("C", "A", 4)])
        assert sorted(db["reached"].rows) == [("A", 2, "C"), ("B", 2, "C"), ("C", 2, "C")]


@pytest.mark.parametrize("reader", ["COUNT(*)", "SUM(v)", "AVG(DISTINCT v)"])
def test_aggregate_that_sees_every_row_keeps_the_view_whole(reader: str) -> None:
    with whence.open() as db:
        db.execute(path("path.v + abs(link.w)") + CHEAPEST)
        db.execute(f"CREATE VIEW every AS SELECT src, dst, {reader} AS n FROM path GROUP BY src, dst")
        assert "aggregate selection" not in db.explain("path")
        db.insert("link", [("A", "B", 1), ("B", "C", 1), ("A", "C", 5)])
        assert len(db["path"].rows) == 4
