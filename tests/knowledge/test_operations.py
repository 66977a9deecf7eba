"""Interval arithmetic, for each operation and each argument: sound, and v <= v' implies F(v) <= F(v').

Values are taken from the corners of each type; the engine says what the operation gives for them.
"""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.engine.expressions.evaluate import compile_expr
from whence.model import types as t
from whence.model.codes import Dictionary, Interval, decode_value, encode_value
from whence.model.errors import EvaluationError
from whence.model.types import Type
from whence.plan.algebra.expressions import Call, Case, Cast, Col, Expr
from whence.plan.knowledge.bounds import ANYTHING, Bounds, exactly, is_less
from whence.plan.knowledge.model import LiteralTerm
from whence.plan.knowledge.terms import bound, to_term, unknown

MONEY, FINE = t.decimal(10, 2), t.decimal(12, 4)
_DAY = dt.datetime(2024, 2, 29, 23, 59, 59, 999_999)
POOLS: dict[Type, list[Any]] = {
    t.BOOLEAN: [False, True, None],
    t.INTEGER: [-7, -2, -1, 0, 1, 2, 3, 10, 2**31 - 1, -(2**31), None],
    t.BIGINT: [-(2**60), -3, 0, 1, 2, 5, 2**53 + 1, 2**62, None],
    t.DOUBLE: [-np.inf, -1e308, -2.5, -0.5, 0.0, 0.1, 0.5, 1.0, 3.0, 1e16, 1e308, np.inf, np.nan, None],
    MONEY: [Decimal(x) for x in ("-12345678.90", "-1.25", "-0.01", "0.00", "0.50", "1.49", "99999999.99")] + [None],
    FINE: [Decimal(x) for x in ("-3.3333", "0.0000", "0.0001", "2.5000", "12345678.1234")] + [None],
    t.DATE: [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31), None],
    t.TIMESTAMP: [dt.datetime(1, 1, 1), _DAY, dt.datetime(2024, 3, 1), dt.datetime(9999, 12, 31, 23), None],
    t.TEXT: ["", "a", "B", "é", None],
}
POOLS = {type: [v.item() if isinstance(v, np.floating) else v for v in pool] for type, pool in POOLS.items()}
INTERVALS = [Interval(0, 1, 0), Interval(0, 0, 3_600_000_000), Interval(1, 0, 0), Interval(0, -1, 1)]
B, N, L, D, M, F, DAY, TIME, TEXT = t.BOOLEAN, t.INTEGER, t.BIGINT, t.DOUBLE, MONEY, FINE, t.DATE, t.TIMESTAMP, t.TEXT


def call(op: str, result: Type, *types: Type) -> Expr:
    return Call(result, op, tuple(Col(type, i) for i, type in enumerate(types)))


def cast(source: Type, target: Type, lenient: bool = False) -> Expr:
    return Cast(target, Col(source, 0), lenient)


OPERATIONS: list[Expr] = [
    *(call(op, kind, kind, kind) for op in "+-*" for kind in (N, L, D)),
    *(call(op, M, M, M) for op in "+-"),
    call("*", t.decimal(20, 4), M, M),
    call("*", M, M, N),
    *(call("/", D, kind, kind) for kind in (N, L, D, M)),
    *(call(op, kind, kind, kind) for op in ("//", "%") for kind in (N, L)),
    call("//", D, D, D),
    call("%", D, D, D),
    call("%", M, M, M),
    *(call(op, kind, kind) for op in ("neg", "abs") for kind in (N, L, D, M)),
    *(call("sign", N, kind) for kind in (N, D, M)),
    *(call(op, kind, kind) for op in ("floor", "ceil") for kind in (D,)),
    call("floor", t.decimal(10, 0), M),
    call("ceil", t.decimal(10, 0), M),
    call("round", D, D),
    call("round", t.decimal(10, 0), M),
    *(call(op, D, D) for op in ("sqrt", "exp", "ln", "log10")),
    *(call(op, B, kind, kind) for op in ("=", "<>", "<", "<=", ">", ">=") for kind in (N, D, M, DAY, TIME, TEXT, B)),
    *(call(op, B, kind, kind) for op in ("is_distinct", "is_not_distinct") for kind in (N, D, TEXT)),
    *(call(op, B, B, B) for op in ("and", "or")),
    call("not", B, B),
    *(call("is_null", B, kind) for kind in (N, D, TEXT)),
    *(call(op, kind, kind, kind) for op in ("coalesce", "nullif", "least", "greatest") for kind in (N, D, M, TEXT)),
    *(call("date_trunc:" + part, TIME, TIME) for part in ("hour", "minute", "day", "week", "month", "quarter", "year")),
    call("date_trunc:decade", TIME, TIME),
    call("date_trunc:month", DAY, DAY),
    call("extract:year", L, TIME),
    call("extract:hour", L, TIME),
    call("+", DAY, DAY, N),
    call("-", DAY, DAY, N),
    call("-", L, DAY, DAY),
    *(cast(a, b) for a in (N, L, D, M, F) for b in (N, L, D, M, F, B) if a != b),
    *(cast(a, b, lenient=True) for a, b in ((N, M), (D, N), (TEXT, N))),
    cast(B, N),
    cast(N, TEXT),
    cast(DAY, TIME),
    cast(TIME, DAY),
    Case(N, ((Col(B, 0), Col(N, 1)), (Col(B, 2), Col(N, 3))), Col(N, 4)),
    Call(B, "in", (Col(N, 0), Col(N, 1), Col(N, 2))),
]
WORDS = Dictionary()


def evaluated(expr: Expr, values: tuple[Any, ...], types: list[Type]) -> Any:
    codes = np.array([[encode_value(v, t, WORDS) for v, t in zip(values, types, strict=True)]], np.int64)
    return decode_value(int(compile_expr(expr, WORDS)(codes)[0]), expr.type, WORDS)


def around(values: list[Any], open_low: bool, open_high: bool) -> Bounds:
    """Bounds that contain some values."""
    found = exactly(values[0])
    for value in values[1:]:
        found = found.hull(exactly(value))
    if not found.some:
        return found
    return Bounds(None if open_low else found.low, None if open_high else found.high, found.null)


@st.composite
def argument(draw: Any, type: Type) -> tuple[list[Any], Bounds, Bounds]:
    """Some values, bounds around them, and wider bounds."""
    pool = POOLS[type]
    values = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3))
    more = draw(st.lists(st.sampled_from(pool), max_size=2))
    sides = draw(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()))
    inner = around(values, sides[0] and sides[1], sides[2] and sides[3])
    outer = around([*values, *more], sides[0], sides[2])
    return values, inner, outer


def bounded(expr: Expr, args: list[Bounds], types: list[Type]) -> Bounds:
    leaves = [_leaf(type, bounds) for type, bounds in zip(types, args, strict=True)]
    return bound(to_term(expr, leaves), lambda _: ANYTHING)


def _leaf(type: Type, bounds: Bounds) -> Any:
    return unknown(type, bounds) if bounds.some else LiteralTerm(str(type), None)


@pytest.mark.parametrize("expr", OPERATIONS, ids=lambda e: f"{e}:{','.join(str(c.type) for c in e.children)}->{e.type}")
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_operation_is_sound_and_monotone(expr: Expr, data: Any) -> None:
    types = [child.type for child in expr.children]
    args = [data.draw(argument(type)) for type in types]
    wide = bounded(expr, [outer for _, _, outer in args], types)
    for number, (_, inner, outer) in enumerate(args):
        assert outer <= inner
        narrowed = [a[1] if at == number else a[2] for at, a in enumerate(args)]
        assert wide <= bounded(expr, narrowed, types), f"{narrowed}"
    narrow = bounded(expr, [inner for _, inner, _ in args], types)
    assert wide <= narrow
    for values in itertools.product(*(values for values, _, _ in args)):
        try:
            result = evaluated(expr, values, types)
        except EvaluationError:
            continue
        assert narrow.allows(result), f"{values} gives {result}, not within {narrow}"


@pytest.mark.parametrize("op", ["+", "-"])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_time_is_moved_by_an_interval(op: str, data: Any) -> None:
    interval = data.draw(st.sampled_from(INTERVALS))
    values, inner, outer = data.draw(argument(TIME))
    expr = call(op, TIME, TIME, t.INTERVAL)
    types = [TIME, t.INTERVAL]
    wide, narrow = (bounded(expr, [bounds, exactly(interval)], types) for bounds in (outer, inner))
    assert wide <= narrow
    for value in values:
        try:
            result = evaluated(expr, (value, interval), types)
        except EvaluationError:
            continue
        assert narrow.allows(result)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_time_has_a_bucket(data: Any) -> None:
    width = data.draw(st.sampled_from([Interval(0, 0, 900_000_000), Interval(0, 1, 0), Interval(1, 0, 0)]))
    values, inner, _ = data.draw(argument(TIME))
    expr = call("time_bucket", TIME, t.INTERVAL, TIME)
    found = bounded(expr, [exactly(width), inner], [t.INTERVAL, TIME])
    for value in values:
        try:
            result = evaluated(expr, (width, value), [t.INTERVAL, TIME])
        except EvaluationError:
            continue
        assert found.allows(result)


@given(a=st.sampled_from(POOLS[D]), b=st.sampled_from(POOLS[D]))
def test_order_of_doubles_is_the_engines(a: Any, b: Any) -> None:
    if a is not None and b is not None:
        assert is_less(a, b) == evaluated(call("<", B, D, D), (a, b), [D, D])


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_bounds_are_a_lattice(data: Any) -> None:
    (_, a, _), (_, b, _), (values, c, _) = (data.draw(argument(N)) for _ in range(3))
    assert a.hull(b) <= a
    assert a.hull(b) <= b
    assert a.hull(b) == b.hull(a)
    common = a.common(b)
    if common is not None:
        assert a <= common
        assert b <= common
        assert common == a.join(b) == b.join(a)
    for value in values:
        assert c.allows(value)
        assert (common is not None and common.allows(value)) == (a.allows(value) and b.allows(value))
