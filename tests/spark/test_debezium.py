from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.depth import some
from tests.spark.pretend import Pretend
from whence.io.rejects import OnError
from whence.model.codes import Interval
from whence.model.errors import DataError
from whence.runtime.spark.frames.columns import SIGN, Faults
from whence.runtime.spark.frames.debezium import read
from whence.runtime.spark.frames.routing import Routed, route_frame

SQL = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, who TEXT, total DECIMAL(9,2)); CREATE TABLE link (src TEXT, dst TEXT)"
)


def message(op: str | None, before: Any = None, after: Any = None, envelope: bool = False) -> str:
    event = {"before": before, "after": after, "source": {"table": "x"}, "op": op, "ts_ms": 1}
    return json.dumps({"schema": {"type": "struct"}, "payload": event} if envelope else event)


GOOD = message("c", None, {"id": 1, "who": "a", "total": 1})


def take(db: Pretend, df: Any, table: str, on_error: OnError = "fail", **options: Any) -> Routed:
    declared = db.program.tables[table]
    rows = read(df, declared.schema, table, declared.key, Faults(raising=on_error == "fail"), **options)
    keyed = bool(declared.key)
    found = route_frame(rows, table, db.routing(), db.dictionary, op=SIGN, keyed=keyed, on_error=on_error)
    db.ingest({table: found.parts}, {})
    return found


def values(spark: Any, *messages: str | None, type: str = "string") -> Any:
    df = spark.createDataFrame([(m,) for m in messages], "value string").coalesce(1)
    return df.selectExpr(f"cast(value as {type}) value")


@pytest.mark.parametrize(("type", "envelope"), [("string", True), ("binary", False)])
def test_all_operations(spark: Any, tmp_path: Path, type: str, envelope: bool) -> None:
    db = Pretend(spark, tmp_path, SQL)
    one, two = {"id": 1, "who": "ann", "total": "10.50"}, {"ID": 2, "Who": None, "total": 3}
    messages = [
        message("r", None, one, envelope),
        message("c", None, two, envelope),
        message("u", None, {**one, "total": "99.5"}, envelope),  # PostgreSQL without REPLICA IDENTITY FULL
        message("u", {"id": 2}, {**two, "ID": 3}, envelope),  # the key has changed
        message("c", None, {"id": 4, "who": "x", "total": 0, "new": {"nested": 1}}, envelope),
        message("d", {"id": 4}, None, envelope),
        None,
        message("m", None, None, envelope),
    ]
    found = take(db, values(spark, *messages, type=type), "orders")
    assert found.rows == 7
    assert db.rows("orders") == [(1, "ann", Decimal("99.50")), (3, None, Decimal("3.00"))]


def test_a_table_without_a_key_needs_old_rows(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path, SQL)
    a, b = {"src": "a", "dst": "b"}, {"src": "b", "dst": "c"}
    take(
        db,
        values(spark, message("c", None, a), message("c", None, a), message("u", a, b), message("c", None, b)),
        "link",
    )
    assert db.rows("link") == [("a", "b"), ("b", "c"), ("b", "c")]
    take(db, values(spark, message("d", b)), "link")
    assert db.rows("link") == [("a", "b"), ("b", "c")]
    with pytest.raises(DataError, match="table link: an update without its old row, in a table without PRIMARY KEY: "):
        take(db, values(spark, message("u", None, a)), "link")


def test_structured_columns(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path, SQL)
    image = "struct<ID: int, who: string, total: double>"
    rows = [(None, (1, "ann", 1.5), "c"), ((1, "ann", 1.5), (1, "bob", 2.5), "u"), (None, None, None)]
    df = spark.createDataFrame(rows, f"before {image}, after {image}, op string").coalesce(1)
    take(db, df, "orders")
    assert db.rows("orders") == [(1, "bob", Decimal("2.50"))]
    take(db, df.where("op = 'u'").selectExpr("struct(after before, null after, 'd' op) value"), "orders")
    assert db.rows("orders") == []
    take(db, df.where("op = 'c'").selectExpr("struct(before, after, op) payload", "1 schema"), "orders")
    assert db.rows("orders") == [(1, "ann", Decimal("1.50"))]


def test_times_and_numbers(spark: Any, tmp_path: Path) -> None:
    sql = "CREATE TABLE t (i INT, b BOOLEAN, day DATE, at TIMESTAMP, d DOUBLE, n DECIMAL(18,4), v INTERVAL)"
    db = Pretend(spark, tmp_path, sql)
    at = dt.datetime(2018, 6, 20, 15, 13, 16, 945000)
    micros = 1529507596945000
    same = {"i": 1, "b": True, "day": 18000, "at": micros // 1000, "d": 0.1, "n": "12345678901234.5678", "v": 1_500_000}
    others = [
        {**same, "b": 1, "at": micros},
        {**same, "at": micros * 1000, "day": "2019-04-14"},
        {**same, "at": "2018-06-20T15:13:16.945Z", "v": None},
        {**same, "at": "2018-06-20T17:13:16.945+02:00"},
    ]
    take(db, values(spark, *(message("c", None, row) for row in [same, *others])), "t")
    row = (1, True, dt.date(2019, 4, 14), at, 0.1, Decimal("12345678901234.5678"), Interval(0, 0, 1_500_000))
    assert sorted(db.db["t"].rows, key=lambda r: r[6] is None) == [row] * 4 + [(*row[:6], None)]
    take(db, values(spark, message("c", None, {**same, "i": 2, "at": 1000})), "t", timestamps="micros")
    assert (2, True, dt.date(2019, 4, 14), dt.datetime(1970, 1, 1, 0, 0, 0, 1000), *row[4:]) in db.db["t"]


MALFORMED = [
    ('{"before": ', "table orders: no message of Debezium: '{\"before\": '"),
    ('{"op": "u"}', "table orders: an update without its new row: "),
    ("[1, 2]", r"table orders: no message of Debezium: '\[1, 2\]'"),
    ('{"ddl": "ALTER TABLE"}', 'table orders: no message of Debezium: \'{"ddl"'),
    ('{"op": "x"}', 'table orders: no message of Debezium: \'{"op": "x"}\''),
    ('{"op": "c"}', "table orders: a creation without its new row: "),
    ('{"op": "d"}', "table orders: a deletion without its old row: "),
]


@pytest.mark.parametrize(("text", "why"), some(MALFORMED, 2))
def test_malformed_messages_are_named(spark: Any, tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(DataError, match=why):
        take(Pretend(spark, tmp_path, SQL), values(spark, GOOD, text), "orders")


def test_malformed_messages_are_skipped(spark: Any, tmp_path: Path) -> None:
    messages = values(spark, GOOD, *(text for text, _ in MALFORMED))
    found = take(Pretend(spark, tmp_path, SQL), messages, "orders", on_error="skip")
    assert (found.rows, found.skipped) == (1, len(MALFORMED))


def test_errors_that_are_not_skipped(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path, SQL)
    row = {"id": 1, "who": "a", "total": 1}
    with pytest.raises(DataError, match="table orders: a truncation, which does not name its rows"):
        take(db, values(spark, message("t")), "orders", on_error="skip")
    with pytest.raises(DataError, match=r"column total: 'F3A=' is not a value of type .* decimal.handling.mode"):
        take(db, values(spark, message("c", None, {**row, "total": "F3A="})), "orders")
    with pytest.raises(DataError, match="table orders, column who: not in a message that has id, total"):
        take(db, values(spark, message("c", None, {"id": 1, "total": 1})), "orders")
    with pytest.raises(DataError, match="messages are in a column value, or in before, after and op"):
        take(db, spark.range(1), "orders")
