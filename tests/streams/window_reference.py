"""Windows by their definition: every window is looked for, and its rows are gone through, again and again.

Rows are tuples of Python values whose last one is `$at`. What comes out is (row, indexes of the rows behind it)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from whence.engine.core.operator import Batch, Operator
from whence.model.codes import Dictionary, decode_value, encode_value
from whence.model.types import Kind, Schema
from whence.plan.algebra.logical import Agg
from whence.plan.streams.model import Span

Row = tuple[Any, ...]
Window = tuple[Any, Any, list[int]]  # start, end, rows


class Source(Operator):
    """Stands for whatever rows come from."""

    def __init__(self, schema: Schema, tracer: Any = None):
        self.schema, self.inputs, self.tracer = schema, [], tracer


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
    clocks: dict[Row, Any] = {}
    for i, row in enumerate(rows):
        by = tuple(row[c] for c in span.by)
        if span.on is None:
            yield from _counted(clocks.setdefault(by, []), i, span)
            continue
        v = None if row[span.on] is None else unit(row[span.on])
        if v is None or not math.isfinite(v):
            late.append(i)
            continue
        yield from clocks.setdefault(by, Clock(span)).take(i, v, late)


def _counted(have: list[int], i: int, span: Span) -> Iterator[tuple[int, Window]]:
    """Windows of rows."""
    assert span.every is not None
    have.append(i)
    n = len(have)
    if span.size is None:
        if n % span.every == 0:
            yield i, (None, None, have[:])
    elif n >= span.size and (n - span.size) % span.every == 0:
        yield i, (None, None, have[n - int(span.size) :])


class Clock:
    """The windows over values of one key: which rows came before the watermark reached the end of each."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.origin: Any = None if span.origin == "first" else span.origin
        self.rows: list[tuple[int, Any, Any]] = []  # (index, value, the watermark when it came)
        self.newest = self.watermark = -math.inf
        self.done: set[int] = set()

    def take(self, i: int, v: Any, late: list[int]) -> Iterator[tuple[int, Window]]:
        """Take a row in; the windows that it closes."""
        self.origin = v if self.origin is None else self.origin
        self.newest = max(self.newest, v)
        yield from self.move(i, self.newest - self.span.lateness)
        late_for = [k for k in self._numbers(v, v) if self._has(k, v) and self._ends(k)[1] <= self.watermark]
        if late_for or (self.span.origin == "first" and v < self.origin):
            late.append(i)
        self.rows.append((i, v, self.watermark))

    def move(self, i: int, watermark: Any) -> Iterator[tuple[int, Window]]:
        """Let the watermark rise; the windows that close."""
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        if not self.rows:
            return
        values = [v for _, v, _ in self.rows]
        for k in self._numbers(min(values), max(values) if self.span.size is not None else watermark):
            start, end = self._ends(k)
            inside = [j for j, v, then in self.rows if self._has(k, v) and end > then]
            if end <= watermark and inside and k not in self.done:
                self.done.add(k)
                yield i, (start, end, inside)

    def flush(self, i: int) -> Iterator[tuple[int, Window]]:
        """Close every window that has a row, or would have had."""
        if self.rows:
            last = max(v for _, v, _ in self.rows)
            ends = [self._ends(k)[1] for k in self._numbers(last, last) if self._has(k, last)]
            if self.span.size is None:
                ends = ends[:1]
            yield from self.move(i, max(ends, default=self.watermark))

    def _numbers(self, low: Any, high: Any) -> range:
        """The windows that values between these may be in."""
        span = self.span
        assert span.every is not None
        if span.size is None:
            top = max(high, self.watermark if math.isfinite(self.watermark) else high)
            first = max(1, math.floor((low - self.origin) / span.every))
            return range(first, math.floor((top - self.origin) / span.every) + 2)
        first = math.floor((low - self.origin - span.size) / span.every) - 1
        return range(
            max(first, 0) if span.origin == "first" else first, math.floor((high - self.origin) / span.every) + 2
        )

    def _ends(self, k: int) -> tuple[Any, Any]:
        span = self.span
        assert span.every is not None
        edge = self.origin + k * span.every
        return (self.origin, edge) if span.size is None else (edge, edge + span.size)

    def _has(self, k: int, v: Any) -> bool:
        start, end = self._ends(k)
        return bool(start <= v < end)


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
                else aggregate(a, _values(a, rows, members, span, unit), schema)
                for a in aggs
            ]
            out.append(((*key, *values, rows[i][-1]), members))
    return out, late


def _values(agg: Agg, rows: Sequence[Row], members: list[int], span: Span, unit: Any) -> list[Any]:
    """What an aggregate is of: in the order that rows came, or of the column for the first and the last."""
    if agg.column is None:
        return members
    if span.on is not None and agg.function in ("first", "last"):
        members = sorted(members, key=lambda j: unit(rows[j][span.on]))
    return [rows[j][agg.column] for j in members]


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
