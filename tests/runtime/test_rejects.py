"""Records that do not fit: left out or rejected, with their places, in the epoch of those that do."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import whence
from whence.io.rejects import isolate
from whence.model.errors import CatalogError, DataError

LINK = "CREATE TABLE link (src TEXT NOT NULL, cost INT)"
PLACED = "SELECT source, batch, file, line, reason, record FROM rejects ORDER BY line"
CSV = 'src,cost\na,1\nb,x\n"c\nd",3\ne,1,2\n,4\nf,6'
JSON = '{"src": "a", "cost": 1}\n\nnot json\n{"src": "b", "cost": "x"}\n[1]\n{"src": null}\n{"src": "f", "other": 6}\n'


@pytest.fixture
def db() -> whence.Database:
    db = whence.open()
    db.execute(LINK)
    return db


@pytest.mark.parametrize("bad", [set(), {0}, {6}, {2, 3}, set(range(7))])
def test_isolate_keeps_order_and_finds_every_fault(bad: set[int]) -> None:
    def attempt(start: int, stop: int) -> list[int]:
        if bad & set(range(start, stop)):
            raise DataError("bad")
        return list(range(start, stop))

    done, faults = isolate(7, attempt)
    assert [n for part in done for n in part] == [n for n in range(7) if n not in bad]
    assert [at for at, _ in faults] == sorted(bad)


def test_bad_csv_records_are_rejected_with_their_lines(db: whence.Database, tmp_path: Path) -> None:
    path = tmp_path / "link.csv"
    path.write_text(CSV)
    assert db.insert("link", path, on_error="reject") == 3
    assert db["link"].rows == [("a", 1), ("c\nd", 3), ("f", 6)]
    rows = db.query(PLACED).rows
    assert [(row[0], row[1], row[2], row[3], row[5]) for row in rows] == [
        ("link", None, str(path), 3, "b,x"),
        ("link", None, str(path), 6, "e,1,2"),
        ("link", None, str(path), 7, ",4"),
    ]
    assert [row[4] for row in rows][2] == "column src: NULL in a NOT NULL column"
    assert all(str(path.parent) not in row[4] for row in rows)
    assert db.epoch == 1  # rows and rejects together


def test_bad_json_lines_are_rejected_with_their_lines(db: whence.Database, tmp_path: Path) -> None:
    path = tmp_path / "link.jsonl"
    path.write_text(JSON)
    assert db.insert("link", path, on_error="reject") == 1
    assert [(row[3], row[5]) for row in db.query(PLACED).rows] == [
        (3, "not json"),
        (4, '{"src": "b", "cost": "x"}'),
        (5, "[1]"),
        (6, '{"src": null}'),
        (7, '{"src": "f", "other": 6}'),
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [("a", 1), ("b", "x"), (None, 2), ("c", 3)],
        [{"src": "a", "cost": 1}, {"src": "b", "cost": "x"}, {"src": None, "cost": 2}, {"src": "c", "cost": 3}],
    ],
)
def test_bad_rows_are_counted_from_one(db: whence.Database, rows: Any) -> None:
    assert db.insert("link", rows, on_error="reject") == 2
    assert db["link"].rows == [("a", 1), ("c", 3)]
    assert [(row[2], row[3]) for row in db.query(PLACED).rows] == [(None, 2), (None, 3)]


def test_skipped_rows_are_logged_and_leave_no_table(db: whence.Database, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "whence"):
        assert db.insert("link", [("a", 1), ("b", "x")], on_error="skip") == 1
    assert "table link: 1 records skipped, the first: line 2: column cost: 'x'" in caplog.text
    assert db.tables == ["link"]


def test_wrong_header_is_an_error_whatever_is_said(db: whence.Database, tmp_path: Path) -> None:
    path = tmp_path / "link.csv"
    path.write_text("src,price\na,1\n")
    with pytest.raises(DataError, match="no column price"):
        db.insert("link", path, on_error="skip")


def test_failing_epoch_rejects_nothing(db: whence.Database) -> None:
    db.execute("CREATE VIEW inverse AS SELECT 10 // cost AS n FROM link")
    with pytest.raises(whence.EvaluationError):
        db.insert("link", [("a", 0), ("b", "x")], on_error="reject")
    assert len(db["rejects"]) == 0
    assert len(db["link"]) == 0


def test_table_named_rejects_with_other_columns_is_refused(db: whence.Database) -> None:
    db.execute("CREATE TABLE rejects (x INT)")
    with pytest.raises(CatalogError, match=r'on_error="reject" writes to a table rejects \(source TEXT'):
        db.insert("link", [("a", 1)], on_error="reject")


def test_unknown_choice_is_refused(db: whence.Database) -> None:
    with pytest.raises(DataError, match="'fail', 'skip' or 'reject', not 'ignore'"):
        db.insert("link", [("a", 1)], on_error="ignore")  # type: ignore[arg-type]


def test_rejects_survive_reopening_and_partitions(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db", partitions=2) as db:
        db.execute(LINK)
        db.insert("link", [("a", 1), ("b", "x")], on_error="reject")
    with whence.open(tmp_path / "db") as db:
        assert db.query("SELECT line, reason FROM rejects").rows == [
            (2, "column cost: 'x' (str) is not a value of type INTEGER")
        ]


@pytest.mark.parametrize("rows", [5, "ab", b"ab"])
def test_what_is_no_rows_is_an_error_whatever_is_said(db: whence.Database, rows: Any) -> None:
    with pytest.raises(DataError, match="table link: expected rows"):
        db.insert("link", rows, on_error="skip")
