from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.spark.pretend import Pretend
from whence.engine.core.epoch import InputSection
from whence.engine.core.operator import Batch
from whence.model.codes import Interval
from whence.model.errors import DataError
from whence.plan.partitions.distribute import Distribution
from whence.runtime.spark.frames.routing import Routed, route_frame

LINK = "CREATE TABLE link (src TEXT, dst TEXT, cost INT)"


def routed(runtime: Pretend, df: Any, table: str, **options: Any) -> Routed:
    keyed = bool(runtime.program.tables[table].key)
    return route_frame(df, table, runtime.routing(), runtime.dictionary, keyed=keyed, **options)


def take(runtime: Pretend, df: Any, table: str, **options: Any) -> Routed:
    found = routed(runtime, df, table, **options)
    runtime.ingest({table: found.parts}, {})
    return found


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "inputs").glob("*"))


def test_few_rows_come_back_without_a_file(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path, LINK)
    df = spark.createDataFrame([("a", "b", 1, 9), ("b", "c", 2, 9)], "SRC string, dst string, cost int, more int")
    found = take(db, df, "link")
    assert found.rows == 2
    assert all(isinstance(part, Batch) for part in found.parts)
    assert db.rows("link") == [("a", "b", 1), ("b", "c", 2)]
    assert not (tmp_path / "inputs").exists()


def test_many_rows_go_through_files_by_partition(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path, LINK, partitions=5)
    df = spark.range(0, 5000, 1, 3).selectExpr(
        "concat('n', id % 700) src", "concat('n', id % 900) dst", "cast(id as int) cost"
    )
    found = routed(db, df, "link", small_rows=100, section_rows=1000)
    assert found.rows == 5000
    assert [section.rows for section in found.sections] == [1000, 666, 1000, 667, 1000, 667]
    assert all(isinstance(part, InputSection) for part in found.parts)
    assert len(files(tmp_path)) == 6
    db.ingest({"link": found.parts}, {})
    assert db.rows("link") == sorted((f"n{i % 700}", f"n{i % 900}", i) for i in range(5000))
    words = db.dictionary.since(0)
    assert sorted(words) == sorted({f"n{i}" for i in range(900)})


def test_a_copied_table_is_written_once(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path, "CREATE TABLE t (x BIGINT)", t=Distribution("all"))
    found = take(db, spark.range(100).selectExpr("id x").coalesce(1), "t", small_rows=10)
    assert [(p.partition, p.rows) for p in found.parts if isinstance(p, InputSection)] == [(-1, 100)]
    assert db.rows("t") == [(i,) for i in range(100)]


@pytest.mark.parametrize("small", [0, 2000])
def test_operations_in_all_spellings(spark: Any, tmp_path: Path, small: int) -> None:
    db = Pretend(spark, tmp_path, "CREATE TABLE t (x INT)")
    comes = ["I", "insert", "+", "c", "R", " create ", "+1", "+I", "update_postimage"]
    goes = ["D", "delete", "-", "-1", "-d", "update_preimage"]
    rows = [(i, op) for i, op in enumerate(comes)] + [(i, op) for i, op in enumerate(goes)]
    df = spark.createDataFrame(rows, "x int, op string").coalesce(1)
    take(db, df, "t", op="op", small_rows=small)
    assert db.rows("t") == [(i,) for i in range(len(goes), len(comes))]
    numbers = spark.createDataFrame([(6, -1), (70, 1)], "x int, OP int").coalesce(1)
    take(db, numbers, "t", op="op", small_rows=small)
    assert db.rows("t") == [(7,), (8,), (70,)]


def test_update_needs_a_primary_key(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path, "CREATE TABLE k (id INT PRIMARY KEY, x TEXT); CREATE TABLE t (id INT, x TEXT)")
    df = spark.createDataFrame([(1, "old", "I"), (1, "new", "u"), (2, "x", "upsert")], "id int, x string, op string")
    take(db, df.coalesce(1), "k", op="op")
    assert db.rows("k") == [(1, "new"), (2, "x")]
    with pytest.raises(DataError, match=r"table t, column op: 'u' needs to know which row .* PRIMARY KEY"):
        routed(db, df, "t", op="op")


@pytest.mark.parametrize(("value", "shown"), [("x", "'x'"), (None, "NULL")])
def test_unknown_operation_is_named(spark: Any, tmp_path: Path, value: Any, shown: str) -> None:
    db = Pretend(spark, tmp_path, "CREATE TABLE t (x INT)")
    df = spark.createDataFrame([(1, value)], "x int, op string")
    with pytest.raises(DataError, match=f"table t, column op: {shown} is no operation; there are I, "):
        routed(db, df, "t", op="op")
    with pytest.raises(DataError, match="column op is boolean; operations are text or numbers"):
        routed(db, df.selectExpr("x", "true op"), "t", op="op")
    with pytest.raises(DataError, match=r"which has x, op, has no column opp; did you mean \"op\""):
        routed(db, df, "t", op="opp")


EVERYTHING = (
    "CREATE TABLE t (b BOOLEAN, i INT, l BIGINT, d DOUBLE, n DECIMAL(9,2), s TEXT, day DATE, at TIMESTAMP, v INTERVAL)"
)
ROW = (
    True, -5, 2**40, 1.5, Decimal("12.35"), "é", dt.date(2020, 2, 29), dt.datetime(2020, 10, 25, 1, 30, 0, 5),
    Interval(0, 1, 7_200_000_000),
)  # fmt: skip


@pytest.mark.parametrize("small", [0, 2000])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_types_agree_with_inserts(spark: Any, tmp_path: Path, small: int, ansi: str) -> None:
    db = Pretend(spark, tmp_path, EVERYTHING)
    native = """true b, cast(-5 as short) i, 1099511627776 l, cast(1.5 as float) d, cast(12.345 as decimal(20,4)) n,
        'é' s, date'2020-02-29' day, timestamp_ntz'2020-10-25 01:30:00.000005' at, interval '1 02' day to hour v"""
    text = """'true' b, ' -5' i, '1099511627776' l, '1.5' d, '12.345' n, 'é' s, '2020-02-29' day,
        '2020-10-25T01:30:00.000005' at, '1 day 2 hours' v"""
    zoned = text.replace(".000005' at", ".000005Z' at")
    instant = native.replace("timestamp_ntz'2020-10-25 01:30:00.000005'", "timestamp'2020-10-25 02:30:00.000005+01:00'")
    wide = native.replace("cast(-5 as short)", "-5L").replace("1099511627776", "1099511627776d")
    wide = wide.replace("interval '1 02' day to hour", "make_interval(0, 0, 0, 1, 2)")
    before = {name: spark.conf.get(name) for name in ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")}
    try:
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        for number, query in enumerate((native, text, zoned, instant, wide), 1):
            take(db, spark.sql(f"SELECT {query}"), "t", small_rows=small)
            assert db.db["t"].rows == [ROW] * number, query
        nothing = ", ".join(f"NULL {name}" for name in db.db["t"].columns)
        take(db, spark.sql(f"SELECT {nothing}"), "t", small_rows=small)
        assert (None,) * len(ROW) in db.db["t"]
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.mark.parametrize("small", [0, 2000])
@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("'x' i", "table t, column i: 'x' is not a value of type INTEGER"),
        ("1.5d i", "table t, column i: '1.5' is not a value of type INTEGER"),
        ("5000000000 i", "table t, column i: '5000000000' is not a value of type INTEGER"),
        ("true i", "table t, column i: boolean is not INTEGER; cast it in the DataFrame"),
        ("5 s", "table t, column s: int is not TEXT; cast it in the DataFrame"),
        ("'2020-13-01' day", "table t, column day: '2020-13-01' is not a value of type DATE"),
        ("'noon' at", "table t, column at: 'noon' is not a value of type TIMESTAMP"),
        ("99999999.5 n", r"table t, column n: '99999999.5' is not a value of type DECIMAL\(9,2\)"),
        ("date'12000-01-01' day", "column day: .* outside the years 1 to 9999|column day: a value that is not"),
    ],
)
def test_a_value_that_does_not_fit(spark: Any, tmp_path: Path, small: int, column: str, message: str) -> None:
    db = Pretend(spark, tmp_path, EVERYTHING)
    name = column.rsplit(" ", 1)[1]
    others = ", ".join(f"NULL {other}" for other in db.db["t"].columns if other != name)
    with pytest.raises(DataError, match=message) as error:
        routed(db, spark.sql(f"SELECT {column}, {others}"), "t", small_rows=small)
    assert "\n" not in str(error.value)


def test_columns_are_found_by_name(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path, LINK)
    with pytest.raises(DataError, match=r'which has src, dts, cost, has no column dst; did you mean "dts"'):
        routed(db, spark.sql("SELECT 'a' src, 'b' dts, 1 cost"), "link")
    with pytest.raises(DataError, match="column cost is given twice"):
        routed(db, spark.sql("SELECT 'a' src, 'b' dst, 1 Cost, 2 COST"), "link")
    with pytest.raises(DataError, match="no column more in"):
        routed(db, spark.sql("SELECT 'a' src, 'b' dst, 1 cost, 2 more"), "link", strict=True)


@pytest.mark.parametrize("small", [0, 2000])
def test_null_in_a_not_null_column(spark: Any, tmp_path: Path, small: int) -> None:
    db = Pretend(spark, tmp_path, "CREATE TABLE t (x INT NOT NULL, y TEXT NOT NULL)")
    with pytest.raises(DataError, match="table t, row 1, column y: NULL in a NOT NULL column"):
        routed(db, spark.sql("SELECT 1 x, cast(NULL as string) y"), "t", small_rows=small)
    assert not (tmp_path / "inputs").exists() or files(tmp_path) == []


def test_order_is_that_of_the_rows(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path, "CREATE TABLE k (id INT PRIMARY KEY, x INT)")
    df = spark.range(0, 3000, 1, 4).selectExpr("cast(id % 10 as int) id", "cast(id as int) x")
    take(db, df, "k", small_rows=0, section_rows=100)
    assert db.rows("k") == [(i, 2990 + i) for i in range(10)]


def test_what_a_failed_job_has_written_is_removed(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path, "CREATE TABLE t (x INT)")
    df = spark.range(0, 1000, 1, 2).selectExpr("if(id = 999, 'x', cast(id as string)) x")
    with pytest.raises(DataError, match="column x: 'x' is not a value"):
        routed(db, df, "t", small_rows=0, section_rows=100)
    assert files(tmp_path) == []


def test_a_retried_task_counts_once(spark: Any, tmp_path: Path) -> None:
    import pyspark.sql.functions as F  # noqa: N812

    db = Pretend(spark, tmp_path, "CREATE TABLE t (x BIGINT)")
    once = tmp_path / "once"

    @F.udf("bigint")
    def stumble(x: int) -> int:
        if x == 900 and not once.exists():
            once.touch()
            raise RuntimeError("stumbled")
        return x

    df = spark.range(0, 1000, 1, 2).select(stumble("id").alias("x"))
    found = take(db, df, "t", small_rows=0, section_rows=100)
    assert once.exists()
    assert found.rows == 1000
    assert db.rows("t") == [(i,) for i in range(1000)]
    assert files(tmp_path) == []


def test_the_size_of_batches_is_as_before(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path, "CREATE TABLE t (x BIGINT)")
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    take(db, spark.range(3).selectExpr("id x"), "t")
    assert spark.conf.get(name) == before
