"""CREATE INDEX: declared indexes serve look-ups from the first one on, and last as their tables and views do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import whence
from tests import inside
from whence.engine.core import arrangement, key_lookup
from whence.engine.core.operator import Batch
from whence.model.codes import Codes
from whence.model.errors import CatalogError, SqlError

PROGRAM = """
CREATE TABLE link (src TEXT, dst TEXT, cost INT);
CREATE VIEW reach AS
  SELECT src, dst FROM link UNION SELECT link.src, reach.dst FROM link JOIN reach ON link.dst = reach.src;
CREATE VIEW degree AS SELECT src, COUNT(*) AS n FROM link GROUP BY src;
CREATE VIEW cheap AS SELECT src, dst FROM link WHERE cost < 3;
CREATE STREAM event (x INT);
"""
INDEXES = """
CREATE INDEX by_cost ON link (cost);
CREATE INDEX by_dst ON reach (dst);
CREATE INDEX by_n ON degree (n);
CREATE INDEX IF NOT EXISTS cheap_dst ON cheap (dst);
"""
ROWS = [("A", "B", 1), ("B", "C", 2), ("C", "D", 3), ("A", "C", 1)]


@pytest.fixture
def db() -> Iterator[whence.Database]:
    with whence.open() as database:
        database.execute(PROGRAM + INDEXES)
        database.insert("link", ROWS)
        yield database


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is scanned by look-ups, from now on."""
    found: list[str] = []
    whole = key_lookup.among_rows

    def among_rows(batch: Batch, cols: tuple[int, ...], keys: Codes) -> Batch:
        found.append(f"{len(batch)} rows by {cols}")
        return whole(batch, cols, keys)

    for module in (key_lookup, arrangement):
        monkeypatch.setattr(module, "among_rows", among_rows)
        monkeypatch.setattr(module, "SMALL", 0)
    return found


def check(db: whence.Database) -> None:
    """All four indexes find the rows that are there."""
    for name, column in (("link", "cost"), ("reach", "dst"), ("degree", "n"), ("cheap", "dst")):
        place = db[name].columns.index(column)
        for value in {row[place] for row in db[name].rows}:
            expected = sorted(row for row in db[name].rows if row[place] == value)
            assert sorted(db[name].where({column: value}).rows) == expected


def test_lookups_use_declared_indexes_from_the_first_on(db: whence.Database, scans: list[str]) -> None:
    check(db)
    db.delete("link", ("B", "C", 2))
    db.insert("link", ("D", "E", 1))
    check(db)
    assert db.query("SELECT src FROM reach WHERE dst = 'E' ORDER BY src").rows == [("A",), ("C",), ("D",)]
    assert db.delete("link", where={"cost": 3}) == 1
    assert db.execute("UPDATE link SET cost = 9 WHERE cost = 1").count == 3
    check(db)
    assert not scans


def test_declared_indexes_are_not_dropped_for_others(db: whence.Database, scans: list[str]) -> None:
    for _ in range(2):
        for columns in ({"src": "A"}, {"dst": "B"}, {"src": "A", "dst": "B"}, {"src": "A", "cost": 1}):
            assert db["link"].where(columns)
    db.execute("CREATE VIEW more AS SELECT dst FROM link; DROP VIEW more")
    scans.clear()
    check(db)
    assert not scans


def test_indexes_are_shown(db: whence.Database) -> None:
    assert db.execute("SHOW INDEXES").rows == [
        ("by_cost", "link", "cost"),
        ("by_dst", "reach", "dst"),
        ("by_n", "degree", "n"),
        ("cheap_dst", "cheap", "dst"),
    ]
    assert db.describe("link").to_dicts()[2]["indexes"] == "by_cost"
    assert "index by_dst (dst)" in db.explain("reach")
    assert db.statements[-1] == "CREATE INDEX IF NOT EXISTS cheap_dst ON cheap (dst)"


def test_dropped_indexes_are_gone(db: whence.Database) -> None:
    assert db.execute("DROP INDEX by_n").message == "dropped by_n"
    assert db.execute("DROP INDEX IF EXISTS by_n").message == "nothing to drop"
    with pytest.raises(CatalogError, match='there is no index "by_nn"'):
        db.execute("DROP INDEX by_nn")
    db.execute("DROP VIEW reach; DROP VIEW cheap; DROP VIEW degree; DROP TABLE link")
    assert db.execute("SHOW INDEXES").rows == []


def test_replaced_views_keep_their_indexes(db: whence.Database, scans: list[str]) -> None:
    db.execute("CREATE OR REPLACE VIEW cheap AS SELECT dst, src FROM link WHERE cost < 4")
    check(db)
    assert not scans
    with pytest.raises(CatalogError, match='index "cheap_dst": no column "dst" in cheap'):
        db.execute("CREATE OR REPLACE VIEW cheap AS SELECT src FROM link")
    check(db)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE UNIQUE INDEX i ON link (src)", "does not make rows unique"),
        ("CREATE INDEX i ON link (src DESC)", "an index has no order"),
        ("CREATE INDEX i ON link (lower(src))", "an index is on columns, not on expressions"),
        ("CREATE INDEX i ON link (src) WHERE cost > 1", "an index has all rows"),
        ("CREATE INDEX i ON link (src, src)", "a column is named twice"),
        ("CREATE INDEX i ON link", "expected the columns"),
        ("CREATE INDEX i ON link USING hash (src)", "one kind of index"),
        ("CREATE OR REPLACE INDEX i ON link (src)", "CREATE OR REPLACE is for views"),
    ],
)
def test_other_indexes_are_refused(db: whence.Database, sql: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        db.execute(sql)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE INDEX by_n ON link (src)", 'index "by_n" exists already, on degree'),
        ("CREATE INDEX i ON lnk (src)", 'there is no table or view "lnk"; did you mean "link"'),
        ("CREATE INDEX i ON link (scr)", 'no column "scr" in link .*did you mean "src"'),
        ("CREATE INDEX i ON event (x)", '"event" is a stream'),
    ],
)
def test_indexes_of_what_is_not_there_are_refused(db: whence.Database, sql: str, message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        db.execute(sql)


def test_partitions_refuse_indexes() -> None:
    with whence.open(partitions=2) as db:
        db.execute("CREATE TABLE a (x INT)")
        with pytest.raises(CatalogError, match="CREATE INDEX is for a database without partitions"):
            db.execute("CREATE INDEX i ON a (x)")


def test_indexes_are_durable(tmp_path: Path, scans: list[str]) -> None:
    path = tmp_path / "db"
    with whence.open(path) as db:
        db.execute(PROGRAM)
        db.insert("link", ROWS)
        with whence.open(path, read_only=True) as other:
            db.execute(INDEXES)
            check(other)
            db.execute("CREATE INDEX extra ON link (dst); DROP INDEX extra")
            assert len(other.execute("SHOW INDEXES")) == 4
    for snapshot in (False, True):
        with whence.open(path) as db:
            assert len(db.execute("SHOW INDEXES")) == 4
            check(db)
            if not snapshot:
                db.insert("link", ("E", "A", 1))
                assert db.snapshot()
    assert not scans
    assert not whence.check(path).problems
    with whence.open(path) as db:
        db.export(tmp_path / "out")
    whence.import_database(tmp_path / "out", tmp_path / "again")
    with whence.open(tmp_path / "again") as db:
        assert len(db.execute("SHOW INDEXES")) == 4
        check(db)
    assert not scans
    with whence.open(path, partitions=2) as db:
        check(db)


def test_index_that_cannot_be_logged_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE a (x INT, y INT)")
        storage = inside.coordinator(db).storage
        monkeypatch.setattr(type(storage), "write_statements", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            db.execute("CREATE INDEX i ON a (x)")
        assert db.execute("SHOW INDEXES").rows == []
        assert not inside.table(db, "a").relation.lookups.declared
