"""Debezium's change events as insertions and deletions of rows, in Spark SQL functions alone.

    {"before": {"id": 1, …} | null, "after": {"id": 1, …} | null, "op": "u", …}

perhaps as the payload of {"schema": …, "payload": …}.

| op           | becomes |
|--------------|---------|
| c, r         | `after` comes |
| u            | `before` goes, if it is there, then `after` comes |
| d            | `before` goes; in a table with a primary key its other columns do not matter |
| t            | an error: a truncation says nothing of the rows |
| m            | nothing: a logical message of PostgreSQL |
| NULL value   | nothing: a tombstone, for Kafka |

A table without a primary key needs whole old rows for u and d (in PostgreSQL, REPLICA IDENTITY FULL).

What JSON does not say. A DECIMAL may be text (`decimal.handling.mode=string`) or a number (`double`, with a double's
precision); `precise`, the default, writes base64, which is refused unless it happens to look like a number. A number
for a DATE is days, and for an INTERVAL microseconds. A number for a TIMESTAMP is in milliseconds below 10**14 (the year
5138), in microseconds below 10**17 and else in nanoseconds; `timestamps` says which, where times before March 1973 are
among microseconds. Text for a TIMESTAMP is ISO 8601, taken to UTC. Columns are found by name, in any case; one that a
message does not have is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812

from whence.io.rejects import LONGEST
from whence.io.rows import list_names
from whence.model.errors import DataError
from whence.model.types import Column, Kind, Schema
from whence.runtime.spark.frames.columns import (
    FAULT,
    RECORD,
    SIGN,
    Faults,
    find_field,
    from_micros,
    or_fail,
    quote,
    spark_type,
    typed,
)

Unit = Literal["auto", "millis", "micros", "nanos"]

_IMAGE = T.MapType(T.StringType(), T.StringType())
_EVENT = [T.StructField("before", _IMAGE), T.StructField("after", _IMAGE), T.StructField("op", T.StringType())]
_MESSAGE = T.StructType([*_EVENT, T.StructField("payload", T.StructType(_EVENT))])
_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_SIGNS = "array<struct<sign:int,fault:string>>"
_PRECISE = " (Debezium's decimal.handling.mode has to be string or double)"


def read(
    df: Any,
    schema: Schema,
    table: str = "the table",
    key: tuple[int, ...] = (),
    faults: Faults | None = None,
    *,
    timestamps: Unit = "auto",
) -> Any:
    """Read events as the table's columns and `whence_sign`: one row per insertion or deletion, in the order of the
    messages.

    `df`, batch or streaming, has a column `value` with messages (text, bytes or a struct), or the columns before, after
    and op. A message that is none, or has a value that does not fit, is an error with its beginning; if `faults` are to
    be kept it is a row whose sign is 0 or whose value is NULL, with `whence_fault` and `whence_record` beside it. A
    truncation, and an update of an unknown row, are errors all the same: to go on without them would be wrong.
    """
    faults = faults or Faults()
    if timestamps not in ("auto", "millis", "micros", "nanos"):
        raise DataError(f"timestamps is 'auto', 'millis', 'micros' or 'nanos', not {timestamps!r}")
    df, sample = _events(df, table)
    images = {field.name: field.dataType for field in df.schema.fields}
    json = isinstance(images["after"], T.MapType)
    change, after, before = F.col("change"), F.col("after"), F.col("before")
    df = df.select("*", sample.alias("sample"), F.explode(_changes(sample, table, key, faults.raising)).alias("event"))
    fault, record = F.col("event.fault").alias(FAULT), F.substring("sample", 1, LONGEST).alias(RECORD)
    df = df.select(F.col("event.sign").alias("change"), "before", "after", *([] if faults.raising else [fault, record]))
    # Each of these steps uses what the one before has computed; in one they would compute it again for every column.
    if json:
        row = F.when(change == 1, after).when(change == -1, before).alias("row")
        df = df.select(change, row, *([] if faults.raising else [FAULT, RECORD]))
    raw, given, beside = [], [], []
    if not faults.raising:
        faults.add(F.col(FAULT))
    for i, column in enumerate(schema.columns):
        if json:
            named = _from_map(column, table, not key or i in key, faults)
        else:
            named = _from_struct(images, column, table, i in key)
        raw.append(named[0].alias(f"v{i}"))
        given.append(named[1])
    if not faults.raising:
        beside = [faults.column(), F.col(RECORD)]
        faults.add(F.col(FAULT))
    df = df.select(change, *raw, *beside)
    numbers = [_number(F.col(f"v{i}"), given[i], column).alias(f"n{i}") for i, column in enumerate(schema.columns)]
    df = df.select("*", *numbers)
    out = [
        _read(F.col(f"v{i}"), F.col(f"n{i}"), given[i], column, table, timestamps, faults).alias(column.name)
        for i, column in enumerate(schema.columns)
    ]
    beside = [] if faults.raising else [faults.column(), F.col(RECORD)]
    return df.select(*out, change.cast("tinyint").alias(SIGN), *beside)


def _events(df: Any, table: str) -> tuple[Any, Any]:
    """Return the columns before, after and op of every message (all NULL where it is none), and how to show one."""
    fields = df.schema.fields
    names = {field.name.lower() for field in fields}
    if {"before", "after", "op"} <= names:
        return _structured(df, fields, "", table)
    payload = find_field(fields, "payload", table).dataType if "payload" in names else None
    if isinstance(payload, T.StructType):
        return _structured(df, payload.fields, "payload.", table)
    if "value" not in names:
        raise DataError(
            f"table {table}: Debezium's messages are in a column value, or in before, after and op; "
            f"the DataFrame has {list_names([field.name for field in fields])}"
        )
    field = find_field(fields, "value", table)
    if isinstance(field.dataType, T.StructType):
        return _events(df.where(F.col("value").isNotNull()).select("value.*"), table)
    if not isinstance(field.dataType, (T.StringType, T.BinaryType)):
        raise DataError(
            f"table {table}: the column value is {field.dataType.simpleString()}, not text, bytes or a struct"
        )
    text = F.col(quote(field.name)).cast("string")
    parsed = df.where(text.isNotNull()).select(text.alias("text"), F.from_json(text, _MESSAGE).alias("m"))
    op = F.coalesce("m.op", "m.payload.op").alias("op")
    images = [
        F.transform_keys(F.coalesce(f"m.{name}", f"m.payload.{name}"), lambda key, _: F.lower(key)).alias(name)
        for name in ("before", "after")
    ]
    return parsed.select(*images, op, "text"), F.col("text")


def _structured(df: Any, fields: Sequence[T.StructField], prefix: str, table: str) -> tuple[Any, Any]:
    columns = []
    for name in ("before", "after", "op"):
        field = find_field(fields, name, table)
        if name != "op" and not isinstance(field.dataType, (T.StructType, T.NullType)):
            raise DataError(f"table {table}: the column {name} is {field.dataType.simpleString()}, not a struct")
        columns.append(F.col(f"{prefix}{quote(field.name)}").alias(name))
    df = df.select(*columns).where(F.col("op").isNotNull() | F.col("before").isNotNull() | F.col("after").isNotNull())
    return df, F.to_json(F.struct("before", "after", "op"))


def _changes(sample: Any, table: str, key: tuple[int, ...], raising: bool) -> Any:
    """Return the signs that an event brings as an array: -1 deletes its `before`, +1 inserts its `after`, 0 is a fault;
    and why."""
    op, before, after = F.lower(F.col("op")), F.col("before").isNotNull(), F.col("after").isNotNull()
    shown = F.concat(F.lit("'"), F.substring(F.regexp_replace(sample, r"\s+", " "), 1, 200), F.lit("'"))

    def signs(*values: int, fault: Any = None) -> Any:
        each = [F.struct(F.lit(v).alias("sign"), F.lit(fault).cast("string").alias("fault")) for v in values]
        return F.array(*each) if values else F.array().cast(_SIGNS)

    def fault_of(why: str) -> Any:
        return F.concat(F.lit(f"table {table}: {why}: "), shown)

    def failure(why: str) -> Any:
        return F.raise_error(fault_of(why)).cast(_SIGNS)

    def bad(why: str) -> Any:
        return failure(why) if raising else signs(0, fault=fault_of(why))

    update = F.when(before & after, signs(-1, 1)).when(~after, bad("an update without its new row"))
    if key:
        update = update.otherwise(signs(1))
    else:
        update = update.otherwise(failure("an update without its old row, in a table without PRIMARY KEY"))
    return (
        F.when(op.isin("c", "r"), F.when(after, signs(1)).otherwise(bad("a creation without its new row")))
        .when(op == "u", update)
        .when(op == "d", F.when(before, signs(-1)).otherwise(bad("a deletion without its old row")))
        .when(
            op == "t",
            failure("a truncation, which does not name its rows: delete them, or load the table again"),
        )
        .when(op == "m", signs())
        .otherwise(bad("no message of Debezium"))
    )


def _from_map(column: Column, table: str, needed: bool, faults: Faults) -> tuple[Any, T.DataType]:
    """Return a column of `row`, which was JSON; `needed` in old rows too. One that is missing is a fault."""
    row = F.col("row")
    value = F.try_element_at(row, F.lit(column.name))
    names = F.concat_ws(", ", F.map_keys(row))
    message = F.concat(F.lit(f"table {table}, column {column.name}: not in a message that has "), names)
    lacking = value.isNull() & ~F.map_contains_key(row, column.name)
    if not needed:
        lacking = lacking & (F.col("change") == 1)
    return faults.unless(lacking, message, value), T.StringType()


def _from_struct(images: dict[str, T.DataType], column: Column, table: str, is_key: bool) -> tuple[Any, T.DataType]:
    """Return a column of the structs `before` and `after`."""
    values: dict[str, Any] = {}
    types: list[T.DataType] = []
    for name in ("after", "before"):
        image = images[name]
        values[name] = F.lit(None)
        if not isinstance(image, T.StructType):
            continue
        if name == "before" and not is_key and column.name not in {field.name.lower() for field in image.fields}:
            continue
        field = find_field(image.fields, column.name, table)
        values[name] = F.col(f"{name}.{quote(field.name)}")
        types.append(field.dataType)
    if len({type.simpleString() for type in types}) > 1:
        raise DataError(f"table {table}, column {column.name}: of one type in before, of another in after")
    change = F.col("change")
    value = F.when(change == 1, values["after"]).when(change == -1, values["before"])
    return value, types[0] if types else T.NullType()


def _is_time(given: T.DataType, column: Column) -> bool:
    """Tell whether a column of times may hold whole numbers."""
    timely = column.type.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.INTERVAL)
    return timely and isinstance(given, (T.StringType, *_WHOLE))


def _number(value: Any, given: T.DataType, column: Column) -> Any:
    """Return the whole number that stands for a time."""
    return value.try_cast("bigint") if _is_time(given, column) else F.lit(None)


def _read(value: Any, number: Any, given: T.DataType, column: Column, table: str, unit: Unit, faults: Faults) -> Any:
    """Read a value as Debezium writes it: whole numbers may be times."""
    type, place = column.type, f"table {table}, column {column.name}"
    if type.kind is Kind.BOOLEAN and isinstance(given, _WHOLE):
        return or_fail(value, F.when(value.isin(0, 1), value == 1), place, type, faults)
    if type.kind is Kind.DECIMAL and isinstance(given, T.StringType):
        return or_fail(value, value.try_cast(spark_type(type)), place, type, faults, _PRECISE)
    if not _is_time(given, column):
        return typed(value, given, column, table, faults)
    if type.kind is Kind.DATE:
        made = F.date_add(F.lit("1970-01-01").cast("date"), number.try_cast("int"))
    elif type.kind is Kind.TIMESTAMP:
        made = from_micros(_micros(number, unit))
    else:
        made = F.make_interval(secs=(number.cast("decimal(20,0)") / 1_000_000).cast("decimal(18,6)"))
    if isinstance(given, T.StringType):
        made = F.when(number.isNotNull(), made.cast("string")).otherwise(value)  # read with all other text
    return or_fail(value, made, place, type, faults)


def _micros(number: Any, unit: Unit) -> Any:
    micros = {
        "millis": F.try_multiply(number, F.lit(1000)),
        "micros": number,
        "nanos": F.call_function("div", number, F.lit(1000)),
    }
    if unit != "auto":
        return micros[unit]
    size = F.abs(number)
    return F.when(size < 10**14, micros["millis"]).when(size < 10**17, micros["micros"]).otherwise(micros["nanos"])
