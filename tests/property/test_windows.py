"""Random windows over random rows, cut into random batches, with epochs taken back and images taken up in between:
what comes out, and what it came from, is what the definition says."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.depth import examples
from tests.streams.window_reference import Row, Source, decode, encode, reference, same
from whence.annotate.covering import Covering
from whence.annotate.lineage import Lineage
from whence.engine.core.operator import Batch
from whence.engine.streams.stream import ANN
from whence.engine.streams.windows.window import Window
from whence.model import types as t
from whence.model.codes import Dictionary, decode_value
from whence.model.types import Column, Schema
from whence.plan.algebra.logical import Agg
from whence.plan.streams.model import FIRST, Span, with_at

COLUMNS = {
    "k": t.INTEGER, "name": t.TEXT, "v": t.INTEGER, "x": t.DOUBLE, "price": t.decimal(9, 2), "day": t.DATE,
    "time": t.BIGINT, "real": t.DOUBLE, "stamp": t.TIMESTAMP,
}  # fmt: skip
SCHEMA = with_at(Schema(tuple(Column(name, type) for name, type in COLUMNS.items())))
K, NAME, V, X, PRICE, DAY, TIME, REAL, STAMP = range(9)
START = dt.datetime(2020, 1, 1)


def some_rows(r: random.Random, count: int) -> list[Row]:
    """Rows whose times rise, mostly; NULLs, ties and strange floats among them."""
    rows, now, back = [], r.randint(-20, 20), r.choice((0.0, 0.1, 0.1, 0.4))
    for at in range(1, count + 1):
        now += r.choice((0, 0, 1, 1, 2, 3, 30)) if r.random() >= back else -r.choice((1, 2, 4, 4, 20))
        real = (
            r.choice((now / 2, now / 2, now / 2, None)) if r.random() < 0.9 else r.choice((float("inf"), float("nan")))
        )
        row: list[Any] = [
            r.randint(1, 3),
            r.choice(("b", "a", "Zürich", "c")),
            r.randint(-5, 5) * r.choice((1, 1, 400_000_000)),
            r.choice((0.1, 0.5, -2.75, 1e16, 3.0, float("inf") if r.random() < 0.1 else 2.0)),
            Decimal(r.randint(-999, 999)) / 100,
            dt.date(2020, 1, 1) + dt.timedelta(r.randint(0, 9)),
            now,
            real,
            START + dt.timedelta(seconds=now),
        ]
        rows.append((*(None if r.random() < 0.08 else v for v in row), at))
    return rows


def some_span(r: random.Random) -> Span:
    on = r.choice((None, None, TIME, REAL, STAMP, DAY))
    by = r.choice(((), (), (K,), (NAME,), (NAME, K)))
    scale = {REAL: 0.5, STAMP: 1_000_000}.get(on or 0, 1)
    size = r.choice((None, 1, 2, 3, 5, 7, 40)) if r.random() < 0.9 else r.randint(1, 9)
    origin: Any = 0 if on is None else r.choice((FIRST, *(n * scale for n in range(-3, 4))))
    lateness = 0 if on is None else r.choice((0, 0, 1, 2, 3, 4, 50)) * scale
    every = r.choice((1, 1, 2, 3, 5, 9)) * scale
    return Span(None if size is None else size * scale, every, on, by, origin, lateness)


def some_aggs(r: random.Random, span: Span) -> tuple[Agg, ...]:
    numbers, all_columns = (V, X, PRICE), tuple(range(9))
    aggs = []
    for _ in range(r.randint(1, 5)):
        function = r.choice(("count", "sum", "avg", "min", "max", "first", "last", "stddev", "stddev_pop", "quantile"))
        column: int | None = r.choice(numbers if function in ("sum", "avg", "stddev", "stddev_pop") else all_columns)
        if function == "count" and r.random() < 0.3:
            column = None
        if function == "quantile" and column == NAME:
            column = DAY
        distinct = function in ("count", "sum", "avg") and column is not None and r.random() < 0.4
        if distinct and column == X and function != "count":
            column = V
        share = r.choice((None, 0.0, 0.25, 0.9, 1.0)) if function == "quantile" else None
        aggs.append(Agg(function, column, distinct, share))  # type: ignore[arg-type]  # one of its names
    if span.on is not None and r.random() < 0.5:
        aggs += [Agg("window_start", None), Agg("window_end", None)]
    return tuple(aggs)


def output_schema(span: Span, keys: tuple[int, ...], aggs: tuple[Agg, ...]) -> Schema:
    columns = [SCHEMA.columns[c] for c in keys]
    for n, agg in enumerate(aggs):
        arg = t.BIGINT if agg.column is None else SCHEMA.types[agg.column]
        if agg.function in ("window_start", "window_end"):
            arg = SCHEMA.types[span.on or 0]
        elif agg.function in ("avg", "stddev", "stddev_pop"):
            arg = t.DOUBLE
        elif agg.function == "count" or (agg.function == "sum" and arg == t.INTEGER):
            arg = t.BIGINT
        elif agg.function == "sum" and arg != t.DOUBLE:
            arg = t.decimal(18, arg.scale)
        columns.append(Column(f"a{n}", arg))
    return with_at(Schema(tuple(columns)))


def run(r: random.Random, rows: np.ndarray, operator: Window, tracer: Any) -> tuple[Window, np.ndarray, np.ndarray]:
    """All rows through the operator, in random batches; what comes out, with its annotations."""

    def batch(first: int, end: int) -> Batch:
        tids = np.arange(first + 1, end + 1)
        ann = np.ones(end - first, np.int64) if tracer is None else tracer.generate("s", tids)
        return Batch(np.ascontiguousarray(rows[first:end]), ann)

    out, anns, done = [], [], 0
    most = r.choice((1, 3, 10, 100))
    while done < len(rows):
        end = min(len(rows), done + r.randint(0, most))
        if r.random() < 0.2:
            operator.apply([batch(done, min(len(rows), done + 30))])
            operator.undo()
        given = operator.apply([batch(done, end)])
        operator.commit()
        out.append(given.rows)
        anns.append(given.ann)
        done = end
        if r.random() < 0.1:
            image = {name: array.copy() for name, array in operator.image().items()}
            operator = operator.fresh()  # type: ignore[assignment]  # a window again
            operator.restore(image)
        if tracer is not None and r.random() < 0.1:
            held = operator.held()
            tracer.collect([*held, *anns])
    width = len(operator.schema)
    return operator, np.concatenate([np.empty((0, width), np.int64), *out]), _joined(anns, tracer)


def _joined(anns: list[np.ndarray], tracer: Any) -> np.ndarray:
    return np.concatenate(anns) if anns else (np.ones(0, np.int64) if tracer is None else tracer.blank(0))


@given(some.integers(0, 2**48))
@settings(max_examples=examples(400))
def test_windows_are_what_they_are_defined_to_be(seed: int) -> None:
    r = random.Random(seed)
    span = some_span(r)
    keys = r.choice((span.by, (), (K,), (NAME, K)))
    aggs = some_aggs(r, span)
    rows, dictionary = some_rows(r, r.randint(0, 80)), Dictionary()
    codes = encode(rows, SCHEMA, dictionary)
    tracer: Any = r.choice((None, Lineage(("s",)), Covering(("s",))))
    schema = output_schema(span, keys, aggs)
    operator = Window(Source(SCHEMA, tracer), span, keys, aggs, schema, dictionary)
    operator, got, ann = run(r, codes, operator, tracer)

    on = SCHEMA.types[span.on or 0]
    expected, late = reference(
        rows, span, keys, aggs, SCHEMA, lambda v: decode_value(int(v), on, dictionary) if span.on != REAL else float(v)
    )
    shown = decode(got, schema, dictionary)
    assert len(shown) == len(expected)
    for one, (other, _) in zip(shown, expected, strict=True):
        assert same(one, other), (span, keys, aggs, one, other)
    assert operator.late.count == len(late)
    assert operator.late.rows.tolist() == codes[late, :-1].tolist()
    if isinstance(tracer, Lineage):
        offsets, tids = tracer.tids(ann, "s")
        for n, (_, inside) in enumerate(expected):
            assert tids[offsets[n] : offsets[n + 1]].tolist() == [i + 1 for i in inside]
    elif tracer is not None:
        assert ann.tolist() == [[inside[0] + 1, inside[-1] + 1] for _, inside in expected]
    else:
        assert ann.tolist() == [1] * len(expected)

    again = Window(Source(SCHEMA), span, keys, aggs, schema, dictionary).apply(
        [Batch(codes, np.ones(len(codes), np.int64))]
    )
    assert again.rows.tolist() == got.tolist(), "cuts are seen"


@given(some.integers(0, 2**48))
@settings(max_examples=examples(40))
def test_an_image_without_annotations_is_of_rows_from_nowhere(seed: int) -> None:
    r = random.Random(seed)
    span, aggs = some_span(r), (Agg("count", None),)
    keys = r.choice((span.by, (K,)))
    codes, dictionary = encode(some_rows(r, 40), SCHEMA, Dictionary()), Dictionary()
    schema = output_schema(span, keys, aggs)
    tracer = Lineage(("s",))
    plain = Window(Source(SCHEMA), span, keys, aggs, schema, dictionary)
    plain.apply([Batch(codes[:20], np.ones(20, np.int64))])
    plain.commit()
    traced = Window(Source(SCHEMA, tracer), span, keys, aggs, schema, dictionary)
    image = plain.image()
    assert not any(name.startswith(ANN) for name in image)
    traced.restore(image)
    out = plain.apply([Batch(codes[20:], np.ones(20, np.int64))])
    same_rows = traced.apply([Batch(codes[20:], tracer.generate("s", np.arange(21, 41)))])
    assert same_rows.rows.tolist() == out.rows.tolist()
    _, tids = tracer.tids(same_rows.ann, "s")
    assert len(same_rows.ann) == len(out.rows)
    assert (tids > 20).all()
