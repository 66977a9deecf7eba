"""Views that are redefined while somebody follows their changes: the difference is told, or the follower ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from whence.model.errors import CatalogError, StorageError
from whence.runtime.reading.changes import Change, Changes

SQL = """
    CREATE TABLE t (k INT, x INT);
    CREATE VIEW v AS SELECT k, SUM(x) AS x FROM t GROUP BY k;
    CREATE VIEW w AS SELECT k, x * 10 AS y FROM v;
    CREATE VIEW beside AS SELECT DISTINCT k FROM t;
    INSERT INTO t VALUES (1, 1), (1, 2), (2, 5)
"""
MAX = "CREATE OR REPLACE VIEW v AS SELECT k, CAST(MAX(x) AS BIGINT) AS x FROM t GROUP BY k"


@pytest.fixture(params=[{}, {"partitions": 3}], ids=["embedded", "partitions"])
def db(request: pytest.FixtureRequest) -> Iterator[whence.Database]:
    with whence.open(**request.param) as database:
        database.execute(SQL)
        yield database


class Copy:
    """A view as its follower knows it, which must be the view after every epoch."""

    def __init__(self, db: whence.Database, name: str) -> None:
        self.db, self.name, self.rows = db, name, Counter[tuple[Any, ...]]()
        self.feed = db.changes(name, snapshot=True)
        self.read()

    def read(self) -> list[Change]:
        told = list(self.feed)
        for change in told:
            self.rows[change.row] += change.sign
        assert +self.rows == Counter(self.db[self.name].rows)
        assert min(self.rows.values(), default=0) >= 0
        return told


def test_difference_is_told_in_an_epoch_of_its_own(db: whence.Database) -> None:
    v, w, beside = Copy(db, "v"), Copy(db, "w"), Copy(db, "beside")
    before = db.epoch
    db.execute(MAX)
    assert db.epoch == before + 1
    assert v.read() == [Change(db.epoch, (1, 3), -1), Change(db.epoch, (1, 2), 1)]
    assert w.read() == [Change(db.epoch, (1, 30), -1), Change(db.epoch, (1, 20), 1)]
    assert beside.read() == []
    db.insert("t", (1, 7))
    assert v.read() == [Change(db.epoch, (1, 2), -1), Change(db.epoch, (1, 7), 1)]
    assert w.read() == [Change(db.epoch, (1, 20), -1), Change(db.epoch, (1, 70), 1)]
    db.execute(MAX)  # the same again
    assert (v.read(), w.read()) == ([], [])


def test_new_views_make_no_epoch(db: whence.Database) -> None:
    before = db.epoch
    db.execute("CREATE VIEW more AS SELECT k FROM t; CREATE OR REPLACE VIEW other AS SELECT x FROM t")
    assert db.epoch == before


def test_dropping_is_an_epoch(db: whence.Database) -> None:
    """What is created in its place has another position."""
    db.execute("CREATE VIEW more AS SELECT k FROM t")
    before = db.epoch
    db.execute("DROP VIEW more; DROP VIEW IF EXISTS more")
    assert db.epoch == before + 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, MAX(x) AS x FROM t GROUP BY k",
        "SELECT k, SUM(x) AS z FROM t GROUP BY k",
        "SELECT k, SUM(x) AS x, COUNT(*) AS n FROM t GROUP BY k",
    ],
)
def test_other_columns_end_the_follower(db: whence.Database, query: str) -> None:
    db.execute("DROP VIEW w")
    feed = db.changes("v")
    db.insert("t", (3, 3))
    db.execute(f"CREATE OR REPLACE VIEW v AS {query}")
    changes = iter(feed)
    assert next(changes) == Change(db.epoch - 1, (3, 3), 1)
    with pytest.raises(
        CatalogError, match=r'"v" was replaced and has other columns, \(k .* in place of \(k INTEGER, x'
    ):
        next(changes)


def test_dropping_ends_followers(db: whence.Database) -> None:
    feeds = [db.changes(name) for name in ("v", "w", "t")]
    db.execute("DROP TABLE t CASCADE")
    for feed in feeds:
        with pytest.raises(CatalogError, match=f'"{feed.name}" was dropped: its changes have ended'):
            list(feed)


def test_redefined_streams_end_the_follower(db: whence.Database) -> None:
    db.execute("CREATE STREAM s (x INT); CREATE VIEW big AS SELECT x FROM s WHERE x > 1")
    feed = db.changes("big")
    db.insert("s", [(1,), (2,), (3,)])
    db.execute("CREATE OR REPLACE VIEW big AS SELECT x FROM s WHERE x > 2")
    changes = iter(feed)
    assert [next(changes).row, next(changes).row] == [(2,), (3,)]
    with pytest.raises(CatalogError, match=r'"big" was replaced and is a stream, which takes nothing back'):
        next(changes)


def test_failed_redefinition_tells_nothing(db: whence.Database) -> None:
    v, before = Copy(db, "v"), db.epoch
    with pytest.raises(whence.WhenceError):
        db.execute("CREATE OR REPLACE VIEW v AS SELECT k FROM t")  # w reads x
    with pytest.raises(whence.WhenceError):
        db.execute("CREATE OR REPLACE VIEW v AS SELECT k, CAST(1 // (x - 5) AS BIGINT) AS x FROM t")
    assert (db.epoch, v.read()) == (before, [])


def test_recursive_and_maintained_views_tell_the_difference(db: whence.Database) -> None:
    db.execute("CREATE TABLE link (a INT, b INT); INSERT INTO link VALUES (1, 2), (2, 3), (3, 4)")
    step = "SELECT a, b FROM link UNION SELECT link.a, reach.b FROM link JOIN reach ON link.b = reach.a"
    for options in ("", "WITH (maintain = 'absorption')"):
        db.execute(f"CREATE OR REPLACE VIEW reach {options} AS {step}")
        reach = Copy(db, "reach")
        db.execute(f"CREATE OR REPLACE VIEW reach {options} AS {step} WHERE reach.b < 4")
        assert {change.sign for change in reach.read()} == {-1}
        db.execute(f"CREATE OR REPLACE VIEW reach {options} AS {step}")
        assert {change.sign for change in reach.read()} == {1}
        db.delete("link", (2, 3))
        reach.read()
        db.insert("link", (2, 3))
        reach.read()


# -- databases that last -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"partitions": 2}], ids=["embedded", "partitions"])
def test_redefinition_is_part_of_the_past(tmp_path: Path, options: dict[str, Any]) -> None:
    with whence.open(tmp_path / "db", retain="all", **options) as db:
        db.execute(SQL)
        db.execute(MAX)
        db.insert("t", (1, 9))
        last = db.epoch
        for reopened in range(2):
            assert sorted(db.at(last - 2)["v"].rows) == [(1, 3), (2, 5)], reopened
            assert sorted(db.at(last - 1)["v"].rows) == [(1, 2), (2, 5)]
            assert sorted(db.at(last)["w"].rows) == [(1, 90), (2, 50)]
            db.snapshot()
    with whence.open(tmp_path / "db", **options) as db:
        assert (db.epoch, sorted(db["v"].rows)) == (last, [(1, 9), (2, 5)])
        assert sorted(db.at(last - 2)["v"].rows) == [(1, 3), (2, 5)]


def test_reader_in_another_process_is_told(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as writer:
        writer.execute(SQL)
        with whence.open(tmp_path / "db", read_only=True) as reader:
            v, w, dropped = Copy(reader, "v"), Copy(reader, "w"), reader.changes("beside")
            writer.execute(MAX)
            writer.insert("t", (1, 7))
            assert [(change.row, change.sign) for change in v.read()] == [
                *(((1, 3), -1), ((1, 2), 1)),
                *(((1, 2), -1), ((1, 7), 1)),
            ]
            assert {change.epoch for change in w.read()} == {writer.epoch - 1, writer.epoch}
            writer.execute("DROP VIEW beside; CREATE VIEW beside AS SELECT DISTINCT k FROM t")
            assert reader.epoch == writer.epoch
            with pytest.raises(CatalogError, match='"beside" was dropped'):
                list(dropped)


def test_disk_that_fails_between_epoch_and_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(SQL)
        v, before = Copy(db, "v"), db.epoch

        def refuse(statements: list[str]) -> None:
            raise StorageError("no space")

        with monkeypatch.context() as patched:
            patched.setattr(inside.coordinator(db).storage, "write_statements", refuse)
            with pytest.raises(StorageError, match="no space"):
                db.execute(MAX)
        assert (db.epoch, v.read()) == (before, [])  # the epoch is withdrawn with its definition
        db.insert("t", (2, 1))
        assert [change.row for change in v.read()] == [(2, 5), (2, 6)]
    with whence.open(tmp_path / "db") as db:
        assert sorted(db["v"].rows) == [(1, 3), (2, 6)]
        v = Copy(db, "v")
        db.execute(MAX)
        v.read()


def test_follow_goes_on_over_a_redefinition(db: whence.Database) -> None:
    feed: Changes = db.changes("v")
    db.execute(MAX)
    assert [change.row for change in feed.follow(timeout=0.01)] == [(1, 3), (1, 2)]
