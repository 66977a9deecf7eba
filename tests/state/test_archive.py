"""Exports and imports: a database as Parquet and SQL, and back, with nothing lost on the way."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import whence
from tests.depth import examples
from whence.io.archive import file_name
from whence.sql.parse import parse
from whence.state.disk import Disk

ALL_TYPES = "b BOOLEAN, i INT, n BIGINT, f DOUBLE, d DECIMAL(18, 4), s TEXT, day DATE, at TIMESTAMP, span INTERVAL"
ROWS: list[tuple[Any, ...]] = [
    (None,) * 9,
    (True, -(2**31), 2**63 - 1, 0.1, Decimal("99999999999999.9999"), "", dt.date(1, 1, 1), dt.datetime.min, None),
    (
        False,
        2**31 - 1,
        -(2**63) + 1,
        float("-inf"),
        Decimal("-0.0001"),
        "\0 'quoted' \U0001f600\n",
        dt.date.max,
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
        whence.Interval(-13, 400, -(2**63 // 1000) + 1),
    ),
    (True, 0, 0, 1e308, Decimal(0), "x", None, None, whence.Interval(2**31 - 1, -(2**31), 2**63 // 1000 - 1)),
    (True, 0, 0, 5e-324, Decimal(0), "x", None, None, whence.Interval(0, 0, 0)),
]
HOSTILE = [
    "../up",
    "/etc/passwd",
    "a b",
    "con",
    "ß",
    "é",
    "e\u0301",
    "%2e",
    "a.parquet",
    "x" * 300,
    "naïve",
    "..",
    "\\",
    "*?",
]


def contents(export: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each table of an export, in an order that does not depend on how they came."""
    index = json.loads((export / "export.json").read_text())
    found = {}
    for entry in index["tables"]:
        table = pq.read_table(export / "tables" / entry["file"])
        assert table.num_rows == entry["rows"]
        columns = [column.to_pylist() for column in table.columns]
        found[entry["name"]] = sorted(zip(*columns, strict=True), key=repr)
    return found


def test_export_import_export_gives_the_same(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(f"CREATE TABLE every ({ALL_TYPES}); CREATE TABLE empty (x INT NOT NULL, span INTERVAL NOT NULL)")
        db.execute("CREATE TABLE keyed (k TEXT, v INT, PRIMARY KEY (k))")
        db.execute("CREATE VIEW late AS SELECT v FROM early; CREATE VIEW early AS SELECT DISTINCT v FROM keyed")
        db.insert("every", ROWS + ROWS[:2] + ROWS[:1])
        db.insert("keyed", [("a", 1), ("b", 2), ("a", 3)])
        made = db.export(tmp_path / "one")
        assert (made.epoch, made.views) == (2, ("late", "early"))
        assert {entry.name: entry.rows for entry in made.tables} == {"every": 8, "empty": 0, "keyed": 2}
    done = whence.import_database(tmp_path / "one", tmp_path / "copy")
    assert done.tables == {"every": 8, "empty": 0, "keyed": 2}
    assert done.epoch == 1
    with whence.open(tmp_path / "copy") as copy, whence.open(tmp_path / "db", read_only=True) as db:
        copy.export(tmp_path / "two")
        for name in [*db.tables, *db.views]:
            assert sorted(copy[name].rows, key=repr) == sorted(db[name].rows, key=repr)
            assert copy[name].schema == db[name].schema
        assert copy.insert("keyed", ("b", 9)) == 1
        assert sorted(copy["late"]) == [(3,), (9,)]
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert (tmp_path / "one/schema.sql").read_text() == (tmp_path / "two/schema.sql").read_text()


def test_the_schema_runs_as_it_is(tmp_path: Path) -> None:
    program = """
        CREATE TABLE link (src TEXT, dst TEXT) ; -- a comment; with a semicolon
        CREATE OR REPLACE VIEW r (a, b) WITH (policy = 'dred') AS SELECT src, dst FROM link /* ; */
          UNION SELECT link.src, r.b FROM link JOIN r ON link.dst = r.a;
        WITH RECURSIVE up AS (SELECT src FROM link UNION SELECT dst FROM link WHERE dst IN (SELECT src FROM down)),
                       down AS (SELECT dst AS src FROM link)
    """
    with whence.open() as db:
        db.execute(program)
        db.insert("link", [("a", "b"), ("b", "c")])
        db.export(tmp_path / "out")
        rows = {name: sorted(db[name]) for name in db.views}
    with whence.open() as other:
        other.execute((tmp_path / "out/schema.sql").read_text())
        other.insert("link", tmp_path / "out/tables/link.parquet")
        assert {name: sorted(other[name]) for name in other.views} == rows


def test_hostile_names(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        for i, name in enumerate(HOSTILE):
            db.execute(f'CREATE TABLE "{name}" ("{name}" INT, "a ""b" TEXT)')
            db.insert(name, (i, name))
        db.export(tmp_path / "deep" / "out")
    files = {path.relative_to(tmp_path / "deep/out") for path in (tmp_path / "deep/out").rglob("*") if path.is_file()}
    assert len(files) == len(HOSTILE) + 2
    assert all(len(path.name) < 200 for path in files)
    assert len({str(path).casefold() for path in files}) == len(files)
    assert not (tmp_path / "up.parquet").exists()
    whence.import_database(tmp_path / "deep/out", tmp_path / "copy")
    with whence.open(tmp_path / "copy", read_only=True) as copy:
        assert {name: copy[name].rows for name in copy.tables} == {n: [(i, n)] for i, n in enumerate(HOSTILE)}


@given(some.lists(some.text(max_size=80), min_size=2, max_size=2, unique_by=str.lower))
@settings(max_examples=examples(300))
def test_different_tables_have_different_files(names: list[str]) -> None:
    first, second = (file_name(name.lower()) for name in names)
    assert first.casefold() != second.casefold()
    assert first.isascii()
    assert not set('/\\:*?"<>| .') & set(first.removesuffix(".parquet"))


@given(
    some.lists(
        some.tuples(
            some.none() | some.floats(),
            some.none() | some.decimals(min_value=-(10**14) + 1, max_value=10**14 - 1, places=4),
            some.none() | some.text(max_size=4),
            some.none() | some.datetimes(),
            some.none()
            | some.builds(
                whence.Interval,
                some.integers(-(2**31), 2**31 - 1),
                some.integers(-(2**31), 2**31 - 1),
                some.integers(-(2**52), 2**52),
            ),
        ),
        max_size=6,
    )
)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_come_back_as_they_were(tmp_path: Path, rows: list[tuple[Any, ...]]) -> None:
    with whence.open() as db, whence.open() as other:
        db.execute("CREATE TABLE a (f DOUBLE, d DECIMAL(18, 4), s TEXT, at TIMESTAMP, span INTERVAL)")
        db.insert("a", [*rows, *rows])
        db.export(tmp_path / "out", force=True)
        other.execute((tmp_path / "out/schema.sql").read_text())
        other.insert("a", tmp_path / "out/tables/a.parquet")
        assert sorted(map(repr, other["a"].rows)) == sorted(map(repr, db["a"].rows))


def test_many_copies_and_many_rows_are_written_in_batches(tmp_path: Path) -> None:
    told = []
    with whence.open() as db:
        db.execute("CREATE TABLE a (x INT)")
        db.insert("a", [(1,)] * 100_000 + [(i,) for i in range(100_000)])
        db.export(tmp_path / "out", progress=lambda *step: told.append(step))
    assert told == [("writing a", min(65_536 * (i + 1), 200_000), 200_000) for i in range(4)]
    assert pq.ParquetFile(tmp_path / "out/tables/a.parquet").num_row_groups == 4
    done = whence.import_database(tmp_path / "out", tmp_path / "db")
    assert (done.tables, done.epoch) == ({"a": 200_000}, 1)
    with whence.open(tmp_path / "db", read_only=True) as db:
        assert db.query("SELECT COUNT(*) AS n FROM a WHERE x = 1").rows == [(100_001,)]


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with whence.open() as db:
        db.execute("CREATE TABLE a (x INT); CREATE TABLE b (x INT)")
        db.export(out)
        (out / "tables/mine.parquet").write_text("not yours")
        with pytest.raises(whence.StorageError, match="is not empty"):
            db.export(out)
        db.execute("DROP TABLE b")
        db.insert("a", (1,))
        db.export(out, force=True)
        assert sorted(path.name for path in (out / "tables").iterdir()) == ["a.parquet", "mine.parquet"]
        with pytest.raises(whence.StorageError, match="is a file"):
            db.export(out / "schema.sql")
        with pytest.raises(whence.WhenceError, match="compression is one of"):
            db.export(tmp_path / "other", compression="middle-out")
    assert whence.import_database(out, tmp_path / "db").tables == {"a": 1}


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_compression(tmp_path: Path, compression: str) -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE a (x INT)")
        db.insert("a", [(1,)])
        db.export(tmp_path / "out", compression=compression)
    column = pq.ParquetFile(tmp_path / "out/tables/a.parquet").metadata.row_group(0).column(0)
    assert column.compression == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    with whence.open() as db:
        db.execute("CREATE TABLE a (x INT); CREATE VIEW n AS SELECT COUNT(*) AS n FROM a")
        db.insert("a", [(1,), (2,)])
        db.export(tmp_path / "out")
    return tmp_path / "out"


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("export.json", '"rows": 2', '"rows": 3', "2 rows, where export.json speaks of 3"),
        ("export.json", '"format": 1', '"format": 2', "in a format that this one does not know"),
        ("export.json", "a.parquet", "../../a.parquet", "is not the name of a file in tables"),
        ("export.json", "a.parquet", "b.parquet", "b.parquet: "),
        ("export.json", '"tables"', '"table"', "not what an export writes"),
        ("export.json", "{", "", "not what an export writes"),
        ("schema.sql", "CREATE TABLE a", "CREATE TABLE b", "schema.sql: "),
        ("schema.sql", "COUNT(*)", "COUNTED(*)", "schema.sql: line 3"),
        ("schema.sql", "CREATE VIEW n", "DROP TABLE a; CREATE VIEW n", "only CREATE TABLE, STREAM, VIEW and INDEX"),
        ("schema.sql", "x INT", "y INT", "no column x"),
        ("schema.sql", "x INT", "x INT PRIMARY KEY, y INT NOT NULL", "y"),
    ],
)
def test_what_cannot_be_imported_leaves_nothing(out: Path, file: str, old: str, new: str, says: str) -> None:
    change(out / file, old, new)
    with pytest.raises(whence.WhenceError) as caught:
        whence.import_database(out, out.parent / "db")
    assert says in str(caught.value)
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_schema_may_be_edited(out: Path) -> None:
    change(out / "schema.sql", "x INT", "x BIGINT, note TEXT")
    whence.import_database(out, out.parent / "db")
    with whence.open(out.parent / "db", read_only=True) as db:
        assert sorted(db["a"].rows) == [(1, None), (2, None)]
        assert db["n"].rows == [(2,)]


def test_damage_in_a_parquet_file(out: Path) -> None:
    file = out / "tables/a.parquet"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(whence.DataError, match=r"a\.parquet: "):
        whence.import_database(out, out.parent / "db")
    file.unlink()
    with pytest.raises(whence.WhenceError, match=r"a\.parquet: "):
        whence.import_database(out, out.parent / "db")
    (out / "export.json").unlink()
    with pytest.raises(whence.DataError, match="is no export"):
        whence.import_database(out, out.parent / "db")


def test_import_makes_a_new_database_only(out: Path, tmp_path: Path) -> None:
    with whence.open(tmp_path / "db"):
        pass
    with pytest.raises(whence.StorageError, match="is there already"):
        whence.import_database(out, tmp_path / "db")
    (tmp_path / "empty").mkdir()
    assert whence.import_database(out, tmp_path / "empty", retain="7 days").tables == {"a": 2}
    assert whence.check(tmp_path / "empty").ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["db", "empty", "out"]


def test_a_disk_that_fails_leaves_nothing(out: Path, tmp_path: Path) -> None:
    def full(point: str, path: Path) -> None:
        if point == "sync" and path.suffix == ".log":
            raise OSError(28, "No space left on device")

    with pytest.raises(whence.StorageError, match="the disk is full"):
        whence.import_database(out, tmp_path / "db", disk=Disk(full))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_views_that_call_functions(tmp_path: Path) -> None:
    def setup(db: whence.Database) -> None:
        db.create_function("twice", lambda x: 2 * x, args=["INT"], returns="BIGINT")

    with whence.open(tmp_path / "db", setup=setup) as db:
        db.execute("CREATE TABLE a (x INT); CREATE VIEW t AS SELECT twice(x) AS y FROM a")
        db.insert("a", (4,))
        db.export(tmp_path / "out")
    with pytest.raises(whence.DataError, match="twice"):
        whence.import_database(tmp_path / "out", tmp_path / "copy")
    whence.import_database(tmp_path / "out", tmp_path / "copy", setup=setup)
    with whence.open(tmp_path / "copy", setup=setup) as copy:
        assert copy["t"].rows == [(8,)]


def test_rows_that_expire(tmp_path: Path) -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE soft (x INT) WITH (ttl = '1 day')")
        db.execute("CREATE TABLE dated (x INT, at TIMESTAMP) WITH (ttl = '1 day', ttl_column = 'at')")
        db.insert("soft", [(1,), (2,)])
        now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
        db.insert("dated", [(1, None), (2, now)])
        db.export(tmp_path / "out")
    done = whence.import_database(tmp_path / "out", tmp_path / "db")
    assert done.tables == {"soft": 2, "dated": 2}
    soon = now.replace(tzinfo=dt.UTC).timestamp() + 2 * 86_400
    with whence.open(tmp_path / "db", clock=lambda: soon) as db:
        assert db["soft"].rows == []
        assert db["dated"].rows == [(1, None)]


def test_an_export_is_of_one_epoch_and_in_few_statements(tmp_path: Path) -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE a (x INT); CREATE VIEW v AS SELECT x FROM a")
        db.export(tmp_path / "out")
        assert [type(s).__name__ for s in parse((tmp_path / "out/schema.sql").read_text())] == [
            "CreateTable",
            "CreateView",
        ]
        index = json.loads((tmp_path / "out/export.json").read_text())
    assert index == {
        "format": 1,
        "epoch": 0,
        "whence": whence.__version__,
        "tables": [{"name": "a", "file": "a.parquet", "rows": 0}],
        "views": ["v"],
    }
