"""Spark's DataFrames in and out, as batches: rows to insert or delete, and a table or view as a DataFrame.

`to_spark` gives a snapshot of the last committed epoch: what changes later does not change it. A small one is handed to
Spark from memory; a large one the partitions write to Parquet files, which Spark reads where it needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from whence.engine.core.operator import Batch
from whence.io import files
from whence.io.files import Reject
from whence.io.rejects import TABLE, OnError, encode_rejects, report
from whence.io.rows import Missing, check_columns, folded
from whence.model.codes import Codes, Interval
from whence.model.errors import WhenceError
from whence.model.paths import local_path
from whence.model.types import Kind, Schema
from whence.plan.algebra.program import Table
from whence.runtime.spark.frames.routing import route_frame
from whence.runtime.writing.tables import Early

SMALL = 1_000_000
"""Rows up to which a snapshot is handed to Spark from memory."""


def is_frame(data: Any) -> bool:
    """Tell whether this is a DataFrame of Spark, without loading pyspark.

    >>> is_frame([(1, 2)])
    False
    """
    if type(data) in (tuple, list, dict):
        return False
    return any(
        base.__module__.startswith("pyspark.sql") and base.__name__ == "DataFrame" for base in type(data).__mro__
    )


def check(df: Any) -> None:
    """Raise WhenceError unless this is a DataFrame that Whence can read."""
    if not is_frame(df):
        raise WhenceError(f"expected a DataFrame of Spark, not {type(df).__name__:.80}")
    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise WhenceError(
            "this DataFrame is of Spark Connect, whose driver is another process; Whence runs in the driver: make the "
            "session without remote(), or hand over the rows by df.toArrow()"
        )


def to_arrow(df: Any) -> pa.Table:
    """Collect the rows of a DataFrame to the driver."""
    from whence.runtime.spark.session.errors import jvm_errors

    if df.isStreaming:
        raise WhenceError("this DataFrame is a stream: attach it to a table of a database on Spark")
    with jvm_errors("reading a DataFrame"):
        return df.toArrow()


def write(
    coordinator: Any,
    table: str,
    df: Any,
    *,
    sign: int = 1,
    op: str | None = None,
    strict: bool = False,
    on_error: OnError = "fail",
    early: Early = "ignore",
    missing: Missing = "error",
) -> int:
    """Insert (or with sign -1 delete) the rows of a DataFrame in one epoch; return the row count.

    With `op`, a column says of each row whether it comes or goes. `early` says what becomes of deletions whose rows are
    not there.
    """
    from whence.runtime.spark.frames.corrupt import with_corrupt_records
    from whence.runtime.spark.frames.lines import numbered

    check(df)
    if df.isStreaming:
        raise WhenceError(f"this DataFrame is a stream: attach it to {table}")
    known = coordinator.table_of(table)
    df, keyed = _with_columns(df, known, missing, [op or ""]), bool(known.key)
    df, routing = with_corrupt_records(df, f"a DataFrame for {table}"), coordinator.driver.routing()
    found = route_frame(
        df, table, routing, coordinator.dictionary, op=op, sign=sign, keyed=keyed, strict=strict, on_error=on_error
    )
    refused = numbered(df.sparkSession, found.rejects)
    if found.rows or refused:
        coordinator.driver.ingest({table: found.parts, **reject_parts(coordinator, refused, table, None)}, {}, early)
    report(f"table {table}", found.skipped, refused, on_error)
    return found.rows


def has_all_columns(df: Any, table: Table) -> bool:
    """Tell whether a DataFrame has every column of a table."""
    return {name.lower() for name in df.columns} >= set(table.schema.names)


def _with_columns(df: Any, table: Table, missing: Missing, beside: Sequence[str]) -> Any:
    """Return the DataFrame with the table's columns that it lacks as NULL, if that is wanted; raise for a column that
    is not the table's, and otherwise for one that is lacking."""
    from whence.runtime.spark.frames.columns import CORRUPT

    others = {name.lower() for name in (*beside, CORRUPT)}
    names = [name for name in df.columns if name.lower() not in others or name.lower() in table.schema.names]
    check_columns(f"table {table.name}", names, table.schema, missing)
    lacking = set(table.schema.names) - {folded(name, table.schema) for name in names}
    if not lacking:
        return df
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return df.withColumns({name: F.lit(None) for name in lacking})


def reject_parts(coordinator: Any, refused: Sequence[Reject], source: str, batch: int | None) -> dict[str, list[Batch]]:
    """Return rejected records as what an epoch takes in."""
    if not refused:
        return {}
    rows = encode_rejects(refused, source, batch, coordinator.dictionary)
    return {TABLE: [Batch(rows, np.ones(len(rows), np.int64))]}


def to_spark(coordinator: Any, name: str, folder: str | Path | None = None) -> Any:
    """Return a table or view as of now as a DataFrame.

    With `folder` it is written there as Parquet whatever its size, and is the caller's to remove. An INTERVAL comes out
    as text, and a TIMESTAMP as `timestamp_ntz`.
    """
    from whence.runtime.spark.session.errors import jvm_errors

    folder = None if folder is None else local_path(folder)
    large = folder is not None or coordinator.reader.size(name) > SMALL
    with jvm_errors(f"reading {name}"):
        if large:
            written = coordinator.driver.export_parts(name, folder)
            return coordinator.driver.spark.read.schema(spark_schema(coordinator.reader.schema(name))).parquet(
                str(written)
            )
        return frame(coordinator.driver.spark, coordinator.reader.read_arrow(name)[1], coordinator.reader.schema(name))


def spark_schema(schema: Schema) -> Any:
    """Return the columns as Spark's, INTERVAL as text."""
    from pyspark.sql import types as T  # noqa: N812 - as everybody calls it

    from whence.runtime.spark.frames.columns import spark_type

    return T.StructType(
        [
            T.StructField(c.name, T.StringType() if c.type.kind is Kind.INTERVAL else spark_type(c.type))
            for c in schema.columns
        ]
    )


def frame(spark: Any, table: pa.Table, schema: Schema) -> Any:
    """Convert an Arrow table with these columns to a DataFrame."""
    return spark.createDataFrame(plain(table), schema=spark_schema(schema))


def plain(table: pa.Table) -> pa.Table:
    """Convert intervals, which Spark does not take from Arrow, to text."""
    for i, field in enumerate(table.schema):
        if field.type == pa.month_day_nano_interval():
            spans = table.column(i).to_pylist()
            texts = [None if v is None else files.duration(Interval(v[0], v[1], v[2] // 1000)) for v in spans]
            table = table.set_column(i, field.name, pa.array(texts, pa.string()))
    return table


def changes_frame(spark: Any, rows: Codes, counts: Codes, schema: Schema, dictionary: Any, epoch: int) -> Any:
    """Return the changes of an epoch as a DataFrame: the columns, then whence_op, whence_count and whence_epoch."""
    from pyspark.sql import types as T  # noqa: N812

    from whence.io.rows import to_arrow

    order = np.argsort(counts > 0, kind="stable")  # what goes first, so that a row that is changed is there in the end
    rows, counts = rows[order], counts[order]
    table = plain(to_arrow(rows, np.ones(len(rows), np.int64), schema, dictionary))
    table = table.append_column("whence_op", pa.array(np.where(counts > 0, "+", "-").tolist(), pa.string()))
    table = table.append_column("whence_count", pa.array(np.abs(counts)))
    table = table.append_column("whence_epoch", pa.array(np.full(len(rows), epoch, np.int64)))
    columns = spark_schema(schema)
    columns = (
        columns.add("whence_op", T.StringType()).add("whence_count", T.LongType()).add("whence_epoch", T.LongType())
    )
    return spark.createDataFrame(table, schema=columns)
