"""Windows: what each of them means, on the smallest streams that show it."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest

from tests.streams.window_reference import Row, Source, decode, encode, plain
from whence.annotate.covering import Covering
from whence.annotate.lineage import Lineage
from whence.engine.core.image import StaleImage
from whence.engine.core.operator import Batch
from whence.engine.streams.windows.window import Window
from whence.model import types as t
from whence.model.codes import Dictionary, floats_to_codes
from whence.model.errors import EvaluationError
from whence.model.types import Column, Schema, Type
from whence.plan.algebra.logical import Agg
from whence.plan.streams.model import FIRST, Span, with_at

READING = with_at(Schema((Column("time", t.INTEGER), Column("loc", t.TEXT), Column("temp", t.DOUBLE))))
TIME, LOC, TEMP = range(3)
COUNT, AVG, START, END = Agg("count", None), Agg("avg", TEMP), Agg("window_start", None), Agg("window_end", None)


class Bench:
    """A window over readings that are given as Python rows."""

    def __init__(
        self,
        span: Span,
        keys: tuple[int, ...] = (),
        aggs: tuple[Agg, ...] = (COUNT,),
        types: tuple[Type, ...] = (t.BIGINT,),
        schema: Schema = READING,
        tracer: Any = None,
    ):
        self.dictionary, self.input, self.tracer = Dictionary(), schema, tracer
        columns = [schema.columns[k] for k in keys] + [Column(f"a{n}", type) for n, type in enumerate(types)]
        source = Source(schema) if tracer is None else Source(schema, tracer)
        self.operator = Window(source, span, keys, aggs, with_at(Schema(tuple(columns))), self.dictionary)
        self.at = 0

    def batch(self, *rows: Row) -> Batch:
        numbered = [(*row, self.at + n) for n, row in enumerate(rows, 1)]
        codes = encode(numbered, self.input, self.dictionary)
        return plain(codes) if self.tracer is None else Batch(codes, self.tracer.generate("s", codes[:, -1]))

    def give(self, *rows: Row) -> list[Row]:
        out = self.operator.apply([self.batch(*rows)])
        self.operator.commit()
        self.at += len(rows)
        return decode(out.rows, self.operator.schema, self.dictionary)

    def temps(self, *temps: float | None) -> list[Row]:
        return self.give(*((0, "a", temp) for temp in temps))

    def times(self, *times: int | None) -> list[Row]:
        return self.give(*((time, "a", 0.0) for time in times))


def test_averages_of_three_sliding_by_one() -> None:
    bench = Bench(Span(3, 1), (), (Agg("min", TIME), AVG), (t.INTEGER, t.DOUBLE))
    assert bench.give((1, "a", 90.0), (2, "a", 60.0)) == []
    assert bench.give((3, "b", 120.0), (4, "b", 30.0)) == [(1, 90.0, 3), (2, 70.0, 4)]


def test_places_within_two_units_of_time() -> None:
    """The step of the overheating network that counts distinct locations."""
    places = Bench(Span(2, 1, TIME), (), (START, Agg("count", LOC, True)), (t.INTEGER, t.BIGINT))
    assert places.give((1, "a", 95.0), (2, "b", 92.0), (2, "b", 99.0)) == [(0, 1, 2)]
    assert places.give((5, "c", 91.0)) == [(1, 2, 4), (2, 1, 4)]


def test_windows_over_rows_overlap_touch_or_leave_gaps() -> None:
    rows = tuple(float(n) for n in range(1, 9))
    first_last = (Agg("first", TEMP), Agg("last", TEMP)), (t.DOUBLE, t.DOUBLE)
    assert Bench(Span(3, 2), (), *first_last).temps(*rows) == [(1.0, 3.0, 3), (3.0, 5.0, 5), (5.0, 7.0, 7)]
    assert Bench(Span(4, 4), (), *first_last).temps(*rows) == [(1.0, 4.0, 4), (5.0, 8.0, 8)]
    assert Bench(Span(2, 3), (), *first_last).temps(*rows) == [(1.0, 2.0, 2), (4.0, 5.0, 5), (7.0, 8.0, 8)]


def test_landmark_windows_hold_everything_since_the_start() -> None:
    assert Bench(Span(None, 2)).temps(*[1.0] * 5) == [(2, 2), (4, 4)]
    landmark = Bench(Span(None, 10, TIME, (), 5), (), (START, END, COUNT), (t.INTEGER, t.INTEGER, t.BIGINT))
    assert landmark.times(1, 6, 15) == [(5, 15, 1, 3)]
    assert landmark.times(36) == [(5, 25, 2, 4), (5, 35, 2, 4)]


def test_a_row_closes_windows_over_values_in_order_and_only_those_with_rows() -> None:
    bench = Bench(Span(4, 2, TIME), (), (START, END, COUNT), (t.INTEGER, t.INTEGER, t.BIGINT))
    assert bench.times(1, 3) == [(-2, 2, 1, 2)]
    assert bench.times(100) == [(0, 4, 2, 3), (2, 6, 1, 3)]


def test_rows_are_in_every_window_that_is_open_for_their_time() -> None:
    bench = Bench(Span(10, 5, TIME), (), (START, COUNT), (t.INTEGER, t.BIGINT))
    assert bench.times(1, 7, 4) == [(-5, 1, 2)]  # 4 comes too late for [-5, 5), not for [0, 10)
    assert bench.times(12, 3, 16) == [(0, 3, 4), (5, 2, 6)]
    late = decode(bench.operator.late.rows, Schema(READING.columns[:-1]), bench.dictionary)
    assert [row[0] for row in late] == [4, 3]


def test_windows_wait_for_rows_that_are_as_late_as_allowed() -> None:
    bench = Bench(Span(10, 10, TIME, lateness=5))
    assert bench.times(9, 14, 3, 15, 2, 25) == [(2, 4), (2, 6)]
    assert bench.operator.late.count == 1


def test_windows_begin_at_the_first_row_of_each_key() -> None:
    bench = Bench(Span(10, 10, TIME, (LOC,), FIRST), (LOC,), (START, COUNT), (t.INTEGER, t.BIGINT))
    rows = ((3, "a", 0.0), (7, "b", 0.0), (12, "a", 0.0), (13, "a", 0.0), (2, "a", 0.0), (17, "b", 0.0))
    assert bench.give(*rows) == [("a", 3, 2, 4), ("b", 7, 1, 6)]
    assert bench.operator.late.count == 1


def test_late_rows_are_kept_and_in_no_window() -> None:
    bench = Bench(Span(10, 10, TIME))
    assert bench.times(15, 4, None, 15, 22) == [(2, 5)]
    late = bench.operator.late
    assert late.count == 2
    assert decode(late.rows, Schema(READING.columns[:-1]), bench.dictionary) == [(4, "a", 0.0), (None, "a", 0.0)]
    bench.operator.apply([bench.batch((1, "a", 0.0))])
    assert late.count == 3
    bench.operator.undo()
    assert late.count == 2
    assert "2 late" in bench.operator.describe()


def test_each_key_has_its_own_clock() -> None:
    bench = Bench(Span(2, 2, None, (LOC,)), (LOC,), (AVG,), (t.DOUBLE,))
    rows = ((0, "a", 1.0), (0, "b", 5.0), (0, None, 7.0), (0, "a", 2.0), (0, None, 9.0))
    assert bench.give(*rows) == [("a", 1.5, 4), (None, 8.0, 5)]
    values = Bench(Span(5, 5, TIME, (LOC,)), (LOC,))
    assert values.give((9, "a", 0.0), (1, "b", 0.0), (3, "b", 0.0), (5, "b", 0.0)) == [("b", 2, 4)]
    assert values.operator.late.count == 0


def test_groups_of_a_window_come_in_the_order_of_their_first_rows() -> None:
    bench = Bench(Span(4, 2), (LOC,))
    rows = ((0, "b", 0.0), (0, "a", 0.0), (0, "c", 0.0), (0, "b", 0.0), (0, "a", 0.0), (0, "a", 0.0))
    assert bench.give(*rows) == [("b", 2, 4), ("a", 1, 4), ("c", 1, 4), ("c", 1, 6), ("b", 1, 6), ("a", 2, 6)]


def test_nulls_are_as_in_other_aggregates() -> None:
    functions = ("count", "sum", "avg", "min", "stddev", "stddev_pop", "quantile", "first", "last")
    aggs: Any = tuple(Agg(name, TEMP) for name in functions)  # type: ignore[arg-type]  # its names
    bench = Bench(Span(2, 1), (), (COUNT, *aggs), (t.BIGINT, t.BIGINT, *[t.DOUBLE] * 8))
    assert bench.temps(None, None, 4.0) == [
        (2, 0, *[None] * 8, 2),
        (2, 1, 4.0, 4.0, 4.0, None, 0.0, 4.0, None, 4.0, 3),
    ]


def test_what_has_left_a_window_leaves_no_trace_in_its_sums() -> None:
    aggs = (Agg("sum", TEMP), AVG, Agg("stddev", TEMP))
    bench = Bench(Span(3, 1), (), aggs, (t.DOUBLE,) * 3)
    shown = bench.temps(1e150, -1e134, float("inf"), float("nan"), 0.1, 0.2, 0.3, 0.1, 0.1, 0.1)
    assert shown[4][:2] == (0.6, 0.6 / 3)
    assert shown[-1] == (math.fsum([0.1] * 3), math.fsum([0.1] * 3) / 3, 0.0, 10)


def test_interned_values_are_compared_as_texts() -> None:
    bench = Bench(Span(3, 1), (), (Agg("min", LOC), Agg("max", LOC)), (t.TEXT, t.TEXT))
    names = [f"n{(n * 7919) % 1000:03}" for n in range(400)]  # come in no order, so labels move
    shown = [row for name in names for row in bench.give((0, name, 0.0))]
    assert shown == [(min(names[i : i + 3]), max(names[i : i + 3]), i + 3) for i in range(398)]


def test_a_sum_that_does_not_fit_names_its_aggregate_and_group_and_changes_nothing() -> None:
    schema = with_at(Schema((Column("k", t.TEXT), Column("n", t.BIGINT))))
    bench = Bench(Span(2, 1, None, (0,)), (0,), (Agg("sum", 1),), (t.BIGINT,), schema)
    assert bench.give(("x", 2**62), ("y", 1), ("y", 2)) == [("y", 3, 3)]
    with pytest.raises(EvaluationError, match=r"SUM does not fit BIGINT for the group k = 'x' .* cast .* DOUBLE"):
        bench.give(("y", 5), ("x", 2**62))
    bench.operator.undo()
    assert bench.give(("y", 5), ("x", -(2**62))) == [("y", 7, 4), ("x", 0, 5)]


def test_an_edge_that_does_not_fit_its_type() -> None:
    bench = Bench(Span(10, 10, TIME), (), (END, START), (t.INTEGER, t.INTEGER))
    assert bench.times(-(2**31) + 1) == []
    with pytest.raises(EvaluationError, match="WINDOW_START does not fit INTEGER"):
        bench.times(0)


def test_a_landmark_with_countless_windows_at_once_is_refused() -> None:
    schema = with_at(Schema((Column("time", t.BIGINT),)))
    bench = Bench(Span(None, 1, 0), schema=schema)
    with pytest.raises(EvaluationError, match=r"time = 1000000000000 closes more than .* windows"):
        bench.give((1,), (10**12,))


@pytest.mark.parametrize(("type", "far"), [(t.BIGINT, 2**62), (t.BIGINT, -(2**63) + 1), (t.DOUBLE, 1e17)])
def test_values_too_far_away_to_count_windows_are_refused(type: Type, far: float) -> None:
    bench = Bench(Span(10, 1, 0), schema=with_at(Schema((Column("v", type),))))
    with pytest.raises(EvaluationError, match=r"v = .* is out of range; set an origin nearer"):
        bench.give((far,))
    bench.operator.undo()
    assert bench.give((1,), (2,)) == [(1, 2)]


@pytest.mark.parametrize(
    ("span", "aggs", "message"),
    [
        (Span(3, 1), (START,), "over rows"),
        (Span(3, 1, LOC), (COUNT,), "cannot be over loc, which is TEXT"),
        (Span(3, None), (COUNT,), "every"),
        (Span(3, 1), (Agg("quantile", LOC),), "QUANTILE is for values in order"),
    ],
)
def test_what_is_refused(span: Span, aggs: tuple[Agg, ...], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        Bench(span, (), aggs)


def test_fractions_of_a_double_do_not_shift_windows() -> None:
    schema = with_at(Schema((Column("x", t.DOUBLE),)))
    bench = Bench(Span(0.3, 0.1, 0), (), (START, END, COUNT), (t.DOUBLE, t.DOUBLE, t.BIGINT), schema)
    shown = bench.give(*((n * 0.1,) for n in range(12)))
    assert [row[2] for row in shown] == [1, 2, *[3] * 9]
    assert [row[0] for row in shown] == [n * 0.1 for n in range(-2, 9)]
    assert [row[1] for row in shown] == [n * 0.1 for n in range(1, 12)]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_quantiles_of_a_large_window(share: float) -> None:
    schema = with_at(Schema((Column("v", t.BIGINT),)))
    bench = Bench(Span(500, 7), (), (Agg("quantile", 0, parameter=share),), (t.BIGINT,), schema)
    values = np.random.default_rng(1).integers(0, 300, 3000)
    out = bench.operator.apply([plain(np.column_stack((values, np.arange(3000))))]).rows[:, 0]
    at = max(0, int(np.ceil(share * 500)) - 1)
    assert out.tolist() == [np.sort(values[i : i + 500])[at] for i in range(0, 2501, 7)]


def test_state_stays_as_large_as_the_open_windows() -> None:
    schema = with_at(Schema((Column("time", t.BIGINT), Column("user", t.BIGINT), Column("x", t.DOUBLE))))
    aggs = (Agg("avg", 2), Agg("count", 1, True), Agg("quantile", 2))
    bench = Bench(Span(20, 10, 0), (1,), aggs, (t.DOUBLE, t.BIGINT, t.DOUBLE), schema, Covering(("s",)))
    sizes, rows = [], []
    for n in range(40):
        at = np.arange(n * 1000, (n + 1) * 1000)
        codes = np.column_stack((at // 10, at, floats_to_codes(at.astype(float)), at))  # every user comes once
        out = bench.operator.apply([Batch(codes, bench.tracer.generate("s", at))])
        bench.operator.commit()
        assert out.ann[:, 0].tolist() == out.rows[:, 0].tolist()
        sizes.append(bench.operator.state_bytes)
        rows.append(bench.operator.state_rows)
    assert max(rows) <= 250
    assert max(sizes[3:]) <= 1.1 * max(sizes[:3])


def test_one_batch_or_many_make_the_same_bits() -> None:
    rows = np.random.default_rng(2).normal(size=2000) * 10.0 ** np.random.default_rng(3).integers(-9, 9, 2000)
    codes = np.column_stack((np.arange(2000), np.zeros(2000, np.int64), floats_to_codes(rows), np.arange(2000)))
    aggs = (Agg("sum", TEMP), Agg("stddev", TEMP))
    whole = Bench(Span(90, 7), (), aggs, (t.DOUBLE, t.DOUBLE)).operator.apply([plain(codes)])
    cut = Bench(Span(90, 7), (), aggs, (t.DOUBLE, t.DOUBLE)).operator
    parts = [cut.apply([plain(codes[i : i + 13])]).rows for i in range(0, 2000, 13)]
    assert np.concatenate(parts).tolist() == whole.rows.tolist()


@pytest.mark.parametrize("by", [(), (LOC,)])
def test_clearing_makes_it_new(by: tuple[int, ...]) -> None:
    bench = Bench(Span(2, 1, None, by), by, tracer=Lineage(("s",)))
    bench.temps(1.0, 2.0, 3.0)
    bench.operator.clear()
    assert bench.operator.state_rows == 0
    bench.at = 0
    out = bench.operator.apply([bench.batch((0, "a", 1.0), (0, "a", 1.0))])
    assert bench.tracer.tids(out.ann, "s")[1].tolist() == [1, 2]


def test_an_image_of_other_windows_is_refused() -> None:
    bench, other = Bench(Span(2, 1)), Bench(Span(2, 1), (), (AVG,), (t.DOUBLE,))
    other.temps(1.0)
    bench.temps(1.0)
    with pytest.raises(StaleImage):
        bench.operator.restore(other.operator.image())
    assert bench.temps(1.0) == [(2, 2)]


def test_what_explain_shows() -> None:
    aggs = (COUNT, Agg("count", LOC, True), Agg("quantile", TEMP, parameter=0.9), START)
    bench = Bench(Span(60, 10, TIME, (LOC,)), (LOC,), aggs, (t.BIGINT, t.BIGINT, t.DOUBLE, t.INTEGER))
    text = "window 60 of #0 every 10 by #1: count(*), count(distinct #1), quantile(#2, 0.9), window_start group #1"
    assert bench.operator.describe() == text


def test_sums_near_the_largest_double_do_not_overflow_on_the_way() -> None:
    sums = Agg("sum", TEMP), Agg("sum", TEMP, True), AVG, Agg("stddev_pop", TEMP)
    for span in (Span(3, 1), Span(3, 1, TIME), Span(3, 3)):
        bench = Bench(span, (), sums, (t.DOUBLE,) * 4)
        temps = (1e308, 1.5e308, -1.2e308, 1.5e308, 1.7e308, -1.0, 1.0, 2.0, 3.0)
        rows = [row for n, temp in enumerate((*temps, 0.0)) for row in bench.give((n, "a", temp))]
        shown = {(s, d): (a, p) for s, d, a, p, _ in rows}
        assert shown[1.3e308, 1.3e308] == (pytest.approx(1.3e308 / 3), pytest.approx(1.17284e308, rel=1e-5))
        assert shown[6.0, 6.0] == (2.0, pytest.approx(math.sqrt(2 / 3)))
        if span.every == 1:
            assert shown[math.inf, math.inf][0] == pytest.approx(1.6e308 / 3 * 2)


def test_spread_of_whole_numbers_far_from_zero_keeps_its_digits() -> None:
    schema = with_at(Schema((Column("n", t.BIGINT),)))
    values = [2**60, 2**60 + 1, 2**60 + 5, 2**60 + 7, -(2**62), 2**62 + 3, 3, 4, 4, 6]
    for size in (2, 4, 7):
        bench = Bench(Span(size, 1), (), (Agg("stddev", 0),), (t.DOUBLE,), schema)
        got = [spread for value in values for spread, _ in bench.give((value,))]
        want = [statistics.stdev(values[at : at + size]) for at in range(len(values) - size + 1)]
        assert got == pytest.approx(want, rel=1e-12)
