"""AT TIME ZONE in queries that DuckDB answers, by the same data of time zones that views have.

DuckDB has data of its own, of another release. It keeps the types, TIMESTAMP and TIMESTAMP WITH TIME ZONE, and turns
one into the other at UTC; how far the clock moves is a function of ours: `x AT TIME ZONE z` becomes
`x AT TIME ZONE 'UTC' + to_microseconds(whence_shift(epoch_us(x), typeof(x), z))`.
"""

from __future__ import annotations

from typing import Any

import duckdb
import duckdb.func
import numpy as np
import pyarrow as pa
from sqlglot import exp

from whence.engine.expressions.functions.dates import in_range
from whence.model.errors import EvaluationError
from whence.model.zones import find_zone
from whence.sql.position import write_sql
from whence.sql.zones import named_zone

SHIFT = "whence_shift"
COPIES = 3  # of the operand


def uses_zones(query: exp.Expr) -> bool:
    return query.find(exp.AtTimeZone) is not None


def with_our_zones(query: exp.Expr) -> exp.Expr:
    """Return a copy of the query in which our function moves the clocks; columns are called as before."""
    query = query.copy()
    for select in query.find_all(exp.Select):
        for item in select.expressions:
            if not isinstance(item, (exp.Alias, exp.Star)) and uses_zones(item):
                item.replace(exp.alias_(item.copy(), write_sql(item), quoted=True))
    for node in reversed(list(query.find_all(exp.AtTimeZone))):  # what is inside first
        zone = exp.Literal.string(named_zone(node).name)
        moment = node.this
        shift = _call(SHIFT, _call("epoch_us", moment.copy()), _call("typeof", moment.copy()), zone)
        at_utc = exp.AtTimeZone(this=exp.Paren(this=moment.copy()), zone=exp.Literal.string("UTC"))
        moved = exp.Paren(this=exp.Add(this=at_utc, expression=_call("to_microseconds", shift)))
        node.replace(moved)
    return query


def _call(name: str, *args: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(args))


def register_shift(connection: duckdb.DuckDBPyConnection, failed: list[tuple[str, Exception]]) -> None:
    """Give DuckDB the function that says by how many microseconds AT TIME ZONE moves a time."""

    def shift(micros: Any, type: Any, zone: Any) -> Any:
        try:
            return shift_column(micros, type, zone)
        except Exception as failure:
            failed.append(("AT TIME ZONE", failure))
            raise

    number, text = duckdb.sqltype("BIGINT"), duckdb.sqltype("VARCHAR")
    connection.create_function(SHIFT, shift, [number, text, text], number, type=duckdb.func.ARROW)


def shift_column(micros: Any, type: Any, zone: Any) -> pa.Array:
    """Return by how many microseconds AT TIME ZONE moves each of some times; all have one type and one zone."""
    return pa.array(_shift(micros.to_numpy(), type[0].as_py(), zone[0].as_py()))


def _shift(micros: Any, type: str, zone: str) -> Any:
    found = find_zone(zone)
    given = np.asarray(micros, np.int64)
    if type not in ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"):
        raise EvaluationError(f"AT TIME ZONE takes a TIMESTAMP, found {type}; cast it if that is meant")
    moved = found.to_instants(given) if type == "TIMESTAMP" else found.to_local(given)
    return in_range(moved) - given
