"""Plan a window operator: the integer tables that its kernels read (`kernels/window_state.py`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whence.engine.relational.kernels import aggregate as ak
from whence.engine.streams.windows.kernels import window_acc as acc
from whence.engine.streams.windows.kernels import window_show as show
from whence.engine.streams.windows.kernels import window_state as st
from whence.engine.streams.windows.kernels.window_distinct import WIDTH
from whence.model.codes import DAY, FIRST_DAY, LAST_DAY, Codes, Dictionary, encode_value
from whence.model.errors import EvaluationError
from whence.model.types import Kind, Schema, Type
from whence.plan.algebra.logical import Agg
from whence.plan.streams.model import FIRST, Span

_SAME = 1e-9  # a size in floats that is so close to a multiple of `every` is one


@dataclass(frozen=True)
class WindowPlan:
    """The tables of a window operator, and the width of its lines."""

    plan: Codes
    units: NDArray[np.float64]
    accs: Codes
    shows: Codes
    params: NDArray[np.float64]
    columns: Codes
    distincts: Codes
    orders: Codes
    group_words: int
    pane_words: int
    parted: tuple[int, ...]  # columns of wide decimals that are added up: their words stand before $at
    wide: tuple[int, ...]  # aggregates that are wide decimals: their high words stand behind the columns out

    @property
    def interned(self) -> bool:
        """Whether values are compared by their labels."""
        return bool(np.isin(self.accs[:, 0], (acc.LEAST, acc.MOST, acc.LOWEST, acc.HIGHEST)).any())


def plan_window(
    span: Span, keys: tuple[int, ...], aggs: tuple[Agg, ...], input: Schema, output: Schema, traced: bool
) -> WindowPlan:
    """Make the tables of a window. `output` is the operator's schema."""
    plan, units = _windows(span, input)
    plan[st.P_SINGLE] = set(keys) <= set(span.by)
    plan[st.P_TRACED] = traced
    tables = _Tables(input)
    shows = []
    for number, agg in enumerate(aggs):
        result = output.types[len(keys) + number]
        if agg.function in ("window_start", "window_end"):
            shows.append(_edge(agg, span, plan, result))
        else:
            shows.append(tables.show(agg, result))
    wide = tuple(n for n, line in enumerate(shows) if line[0] in (show.INT_WIDE, show.WIDE_SUM, show.D_INT_WIDE))
    for place, number in enumerate(wide):
        shows[number][3] = len(output) + place
    plan[st.P_KEEPS] = bool(tables.columns) and span.size is not None
    plan[st.P_KEYS] = tables.group_words
    return WindowPlan(
        plan,
        units,
        np.array(tables.accs, np.int64).reshape(-1, 3),
        np.array(shows, np.int64).reshape(-1, 4),
        np.array([0.5 if agg.parameter is None else agg.parameter for agg in aggs], np.float64),
        np.array(tables.columns, np.int64),
        np.array(tables.distincts, np.int64).reshape(-1, 3),
        np.array(tables.orders, np.int64).reshape(-1, 2),
        tables.group_words + len(keys),
        tables.pane_words,
        tuple(tables.parted),
        wide,
    )


def _windows(span: Span, input: Schema) -> tuple[Codes, NDArray[np.float64]]:
    plan, units = np.zeros(st.P_FIELDS, np.int64), np.zeros(3, np.float64)
    every, size = span.every, span.size
    if every is None or not every > 0 or (size is not None and not size > 0):
        raise EvaluationError("a window has a size, and `every`, larger than 0")
    if not span.lateness >= 0:
        raise EvaluationError("lateness is 0 or more")
    plan[st.P_LANDMARK] = size is None
    plan[st.P_ON] = len(input) - 1 if span.on is None else span.on
    plan[st.P_FROM_FIRST] = span.origin == FIRST
    origin = 0 if span.origin == FIRST else span.origin
    if span.on is not None:
        type = input.types[span.on]
        if type.needs_dictionary or type.kind is Kind.BOOLEAN:
            raise EvaluationError(f"windows cannot be over {input.names[span.on]}, which is {type}")
    if span.on is not None and input.types[span.on].kind is Kind.DOUBLE:
        plan[st.P_KIND] = st.REAL
        ratio = 1.0 if size is None else size / every
        near = abs(ratio - round(ratio)) <= _SAME * max(1.0, abs(ratio)) and round(ratio) >= 1
        blocks = round(ratio) if near else math.floor(ratio)
        rest = 0.0 if near or size is None else size - blocks * every
        units[:] = every, rest, span.lateness
        plan[st.P_ORIGIN] = encode_value(float(origin), input.types[span.on], Dictionary())
    else:
        plan[st.P_KIND] = st.ROWS if span.on is None else st.WHOLE
        every, origin, lateness = int(every), int(origin), int(span.lateness)
        if max(every, abs(origin), int(size or 0), lateness) > st.FAR:
            raise EvaluationError("a window is so large, or so far away, that its values have no numbers")
        blocks, rest = divmod(every if size is None else int(size), every)
        plan[st.P_EVERY], plan[st.P_REST] = every, rest
        plan[st.P_ORIGIN], plan[st.P_LATENESS] = origin, lateness
    plan[st.P_STRIDE], plan[st.P_DEPTH] = (2, 2 * blocks) if rest else (1, blocks - 1)
    return plan, units


def _edge(agg: Agg, span: Span, plan: Codes, result: Type) -> list[int]:
    """Return the output entry of window_start or window_end, with the least and the greatest value of its type."""
    if span.on is None:
        raise EvaluationError(f"{agg.function} is for windows over values; these are over rows")
    what = show.END if agg.function == "window_end" else show.BEGIN
    return [what, 0, *((0, 0) if plan[st.P_KIND] == st.REAL else _range(result))]


def _range(type: Type) -> tuple[int, int]:
    most = {Kind.INTEGER: 2**31 - 1, Kind.DECIMAL: 10**type.precision - 1}.get(type.kind, 2**63 - 1)
    if type.kind is Kind.DATE:
        return FIRST_DAY, LAST_DAY
    if type.kind is Kind.TIMESTAMP:
        return FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1
    return -most, most


class _Tables:
    """The tables under construction; what two aggregates share is stored once."""

    def __init__(self, input: Schema):
        self.input = input
        self.accs: list[list[int]] = []
        self.columns: list[int] = []
        self.distincts: list[list[int]] = []
        self.orders: list[list[int]] = []
        self.parted: list[int] = []
        self.group_words, self.pane_words = st.G_FIELDS, st.L_FIELDS

    def show(self, agg: Agg, result: Type) -> list[int]:
        """Return the output entry of an aggregate, after making room for what it needs."""
        if agg.column is None:
            return [show.ROWS, 0, 0, 0]
        column, arg = agg.column, self.input.types[agg.column]
        match agg.function:
            case "min" | "max":
                interned = acc.LEAST if agg.function == "min" else acc.MOST
                kept = interned if arg.is_interned else acc.MIN if agg.function == "min" else acc.MAX
                if arg.is_wide:
                    kept = acc.LOWEST if agg.function == "min" else acc.HIGHEST
                return [show.WORD, self._acc(kept, column), 0, 0]
            case "first" | "last":
                return [show.WORD, self._acc(acc.FIRST if agg.function == "first" else acc.LAST, column), 0, 0]
            case "stddev" | "stddev_pop":
                less = int(agg.function == "stddev")
                if arg.kind is Kind.DOUBLE:
                    return [show.REAL_SPREAD, self._acc(acc.FLOAT_SPREAD, column), 0, less]
                return [show.SPREAD, self._acc(acc.INT_SPREAD, column), arg.scale, less]
            case "quantile":
                if arg.is_interned:
                    raise EvaluationError(f"QUANTILE is for values in order, not for {arg}")
                return [show.ORDERED, self._order(column), 0, 0]
            case "count" | "sum" | "avg":
                return self._sum(agg, column, arg, result)
        raise EvaluationError(f"{agg.function} is not an aggregate of windows")

    def _sum(self, agg: Agg, column: int, arg: Type, result: Type) -> list[int]:
        real = arg.kind is Kind.DOUBLE
        kept = self._distinct if agg.distinct else self._acc
        counted, whole, floats = (ak.COUNT, ak.INT, ak.FLOAT) if agg.distinct else (acc.COUNT, acc.INT, acc.FLOAT)
        if agg.function == "count":
            return [show.D_COUNT if agg.distinct else show.WORD, kept(counted, column), 0, 0]
        if arg.is_wide:
            return self._wide(agg, column, arg)
        word = kept(floats if real else whole, column)
        if agg.function == "avg":
            if agg.distinct:
                return [show.D_REAL_MEAN if real else show.D_MEAN, word, arg.scale, 0]
            return [show.REAL_MEAN if real else show.MEAN, word, arg.scale, 0]
        if real:
            return [show.D_REAL_SUM if agg.distinct else show.REAL_SUM, word, 0, 0]
        if result.kind is Kind.DOUBLE:
            raise EvaluationError("SUM of exact numbers as DOUBLE is not kept; cast the argument")
        if result.is_wide:
            return [show.D_INT_WIDE if agg.distinct else show.INT_WIDE, word, 0, 0]
        return [show.D_SUM if agg.distinct else show.SUM, word, _range(result)[1], 0]

    def _wide(self, agg: Agg, column: int, arg: Type) -> list[int]:
        """Return the output entry of SUM and AVG of wide decimals."""
        if agg.distinct:
            raise EvaluationError(
                f"{agg.function.upper()}(DISTINCT …) in windows is for DECIMALs of up to 18 digits, not {arg}; "
                "cast its argument to one or to DOUBLE"
            )
        if column not in self.parted:
            self.parted.append(column)
        at = len(self.input) - 1 + 2 * self.parted.index(column)
        return [show.WIDE_MEAN if agg.function == "avg" else show.WIDE_SUM, self._acc(acc.WIDE, at), arg.scale, 0]

    def _acc(self, kept: int, column: int) -> int:
        """Return the word of an accumulator of panes."""
        for have, of, word in self.accs:
            if (have, of) == (kept, column):
                return word
        word = self.pane_words
        self.accs.append([kept, column, word])
        self.pane_words += acc.WIDTH[kept]
        return word

    def _kept_column(self, column: int) -> int:
        if column not in self.columns:
            self.columns.append(column)
        return self.columns.index(column)

    def _distinct(self, kept: int, column: int) -> int:
        """Return the word of an accumulator of distinct values of groups."""
        place = self._kept_column(column)
        for have, of, word in self.distincts:
            if (have, of) == (place, kept):
                return word
        word = self.group_words
        self.distincts.append([place, kept, word])
        self.group_words += WIDTH[kept]
        return word

    def _order(self, column: int) -> int:
        """Return the word of a root of ordered values."""
        place = self._kept_column(column)
        for have, word in self.orders:
            if have == place:
                return word
        word = self.group_words
        self.orders.append([place, word])
        self.group_words += 1
        return word
