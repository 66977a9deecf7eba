"""Windows by their definition: every window is looked for, and its rows are gone through, again and again.

Rows are tuples of Python values whose last one is `$at`. What comes out is (row, indexes of the rows behind it)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from whence.annotate.counting import COUNTING
from whence.engine.operator import Batch, Operator
from whence.model.codes import Dictionary, decode_value, encode_value
from whence.model.types import Kind, Schema
from whence.plan.logical import Agg
from whence.plan.stream_model import Span

Row = tuple[Any, ...]
Window = tuple[Any, Any, list[int]]  # start, end, rows


class Source(Operator):
    """Stands for whatever rows come from."""

    def __init__(self, schema: Schema, algebra: Any = COUNTING):
        self.schema, self.inputs, self.algebra = schema, [], algebra


def encode(rows: Sequence[Row], schema: Schema, dictionary: Dictionary) -> np.ndarray:
    codes = [[encode_value(v, t, dictionary) for v, t in zip(row, schema.types, strict=True)] for row in rows]
    return np.array(codes, np.int64).reshape(len(rows), len(schema))


def decode(rows: np.ndarray, schema: Schema, dictionary: Dictionary) -> list[Row]:
    return [
        tuple(decode_value(v, t, dictionary) for v, t in zip(row, schema.types, strict=True)) for row in rows.tolist()
    ]


def plain(batch_rows: np.ndarray) -> Batch:
    return Batch(batch_rows, np.ones(len(batch_rows), np.int64))


def closed(rows: Sequence[Row], span: Span, unit: Any, late: list[int]) -> Iterator[tuple[int, Window]]:
    """(index of the row that closes it, window), as rows come; `unit` makes numbers of values."""
    clocks: dict[Row, list[int]] = {}
    newest: dict[Row, Any] = {}
    done: set[tuple[Row, int]] = set()
    assert span.every is not None
    for i, row in enumerate(rows):
        by = tuple(row[c] for c in span.by)
        have = clocks.setdefault(by, [])
        if span.on is None:
            have.append(i)
            n = len(have)
            if span.size is None:
                if n % span.every == 0:
                    yield i, (None, None, have[:])
            elif n >= span.size and (n - span.size) % span.every == 0:
                yield i, (None, None, have[n - int(span.size) :])
            continue
        v = row[span.on]
        if v is None or (by in newest and unit(v) < newest[by]) or not math.isfinite(unit(v)):
            late.append(i)
            continue
        v = unit(v)
        values = [unit(rows[j][span.on]) for j in have]
        if values:
            low = math.floor((min(values) - span.origin - (span.size or 0)) / span.every) - 1
            for k in range(low, math.floor((v - span.origin) / span.every) + 2):
                start = span.origin + k * span.every
                end = start + (span.size or 0)
                if span.size is None:
                    start, end = span.origin, start
                inside = [j for j, x in zip(have, values, strict=True) if start <= x < end]
                if end <= v and inside and (by, k) not in done:
                    done.add((by, k))
                    yield i, (start, end, inside)
        newest[by] = v
        have.append(i)


def reference(
    rows: Sequence[Row], span: Span, keys: tuple[int, ...], aggs: Sequence[Agg], schema: Schema, back: Any = None
) -> tuple[list[tuple[Row, list[int]]], list[int]]:
    """What comes out of these rows, and the indexes of those that are late. `back` makes values of numbers."""
    unit = _unit(schema, span)
    out: list[tuple[Row, list[int]]] = []
    late: list[int] = []
    for i, (start, end, inside) in closed(rows, span, unit, late):
        groups: dict[Row, list[int]] = {}
        for j in inside:
            groups.setdefault(tuple(rows[j][c] for c in keys), []).append(j)
        for key, members in groups.items():
            edges = {"window_start": start, "window_end": end}
            values = [
                (edges[a.function] if back is None else back(edges[a.function]))
                if a.function in edges
                else aggregate(a, [rows[j][a.column] for j in members] if a.column is not None else members, schema)
                for a in aggs
            ]
            out.append(((*key, *values, rows[i][-1]), members))
    return out, late


def _unit(schema: Schema, span: Span) -> Any:
    if span.on is None or (schema.types[span.on].is_numeric and schema.types[span.on].kind is not Kind.DECIMAL):
        return lambda v: v
    type, dictionary = schema.types[span.on], Dictionary()
    return lambda v: encode_value(v, type, dictionary)


def aggregate(agg: Agg, values: list[Any], schema: Schema) -> Any:
    """One aggregate of values in the order they came."""
    if agg.function == "first":
        return values[0]
    if agg.function == "last":
        return values[-1]
    if agg.column is None:
        return len(values)
    values = [v for v in values if v is not None]
    if agg.distinct:
        values = list({"NaN" if v != v else v: v for v in values}.values())  # all of them are one
    if agg.function == "count":
        return len(values)
    if not values:
        return None
    order = sorted(values, key=lambda v: (v != v, v) if isinstance(v, float) else v)
    if agg.function in ("min", "max"):
        return order[0 if agg.function == "min" else -1]
    if agg.function == "quantile":
        share = 0.5 if agg.parameter is None else agg.parameter
        return order[max(0, math.ceil(share * len(order)) - 1)]
    if any(isinstance(v, float) and not math.isfinite(v) for v in values):
        if agg.function.startswith("stddev"):
            return None if len(values) == 1 and agg.function == "stddev" else math.nan
        return sum(values)
    exact = [Fraction(v) for v in values]
    total = sum(exact)
    if agg.function == "sum":
        return float(total) if isinstance(values[0], float) else Decimal(0) + sum(values[1:], values[0])
    if agg.function == "avg":
        return float(total / len(exact))
    less = int(agg.function == "stddev")
    if len(exact) == less:
        return None
    return math.sqrt(sum((v - total / len(exact)) ** 2 for v in exact) / (len(exact) - less))


def same(a: Any, b: Any) -> bool:
    """Equal, floats nearly so."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (a != a and b != b) or a == b or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)
    return bool(a == b)
