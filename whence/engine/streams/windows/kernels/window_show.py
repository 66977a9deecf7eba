"""Write the output rows of windows: the values of their aggregates.

| shown      | word of | and |
|------------|---------|-----|
| ROWS       | - | rows of the group in the window |
| WORD       | the pane | as it is |
| SUM, MEAN  | the pane | of whole numbers; the bound, or the power of ten |
| REAL_SUM, REAL_MEAN | the pane | of floats |
| SPREAD, REAL_SPREAD | the pane | the power of ten, and what is subtracted from the count |
| INT_WIDE, D_INT_WIDE | the pane, the group | the sum of whole numbers as a wide decimal: its low word, and the high |
|            |         | one in another column |
| WIDE_SUM, WIDE_MEAN | the pane | the same of wide decimals; the power of ten |
| D_COUNT, D_SUM, D_MEAN, D_REAL_SUM, D_REAL_MEAN | the group | of distinct values |
| ORDERED    | the group | the value at a share of the count |
| BEGIN, END | - | of the window: the least and the greatest value that fits |
"""

from __future__ import annotations

import math

import numpy as np

from whence.engine.core.kernels.doubles import to_code, to_float
from whence.engine.relational.kernels.float_sum import WIDE_LIMBS, two_words
from whence.engine.streams.windows.kernels import window_state as st
from whence.engine.streams.windows.kernels.window_acc import (
    DOWN,
    IN_UNITS,
    IN_WIDE_UNITS,
    WIDE_DOWN,
    add_two,
    two_product,
)
from whence.engine.streams.windows.kernels.window_distinct import IN_UNITS as D_IN_UNITS
from whence.engine.streams.windows.kernels.window_order import N_SIZE, select
from whence.engine.streams.windows.kernels.window_panes import activate, merge
from whence.model.jit import kernel

(
    ROWS, WORD, SUM, MEAN, REAL_SUM, REAL_MEAN, SPREAD,
    D_COUNT, D_SUM, D_MEAN, D_REAL_SUM, D_REAL_MEAN, ORDERED, BEGIN, END, REAL_SPREAD,
    INT_WIDE, WIDE_SUM, WIDE_MEAN, D_INT_WIDE,
) = range(20)  # fmt: skip

_NULL = -(2**63)
_TWO32 = 4294967296.0
SPECIAL = 7  # infinities and NaN


@kernel
def _total_line(s, g):
    """Return the line that stands for all rows of front and back; line 0 is scratch."""
    data = s.groups.data
    head, back = data[g, st.G_HEAD], data[g, st.G_BACK]
    if data[g, st.G_MERGED] == 0:
        return head
    if head == data[g, st.G_MIDDLE]:
        return back
    merge(s, head, back, 0)
    return 0


@kernel
def first_arrival(s, g):
    """Return the arrival number of the first of the rows of front and back."""
    data, lines = s.groups.data, s.panes.data
    head, back = data[g, st.G_HEAD], data[g, st.G_BACK]
    first = lines[head, st.L_ARRIVED]
    if data[g, st.G_MERGED] == 0:
        return first
    if head == data[g, st.G_MIDDLE]:
        return lines[back, st.L_ARRIVED]
    return min(first, lines[back, st.L_ARRIVED])


@kernel
def _total(data, real, line, o, n, wide):
    """Divide a sum of floats by `n`; infinite if it is out of range. `wide`: as window_distinct.py keeps it."""
    if wide:
        total = real[line, o + 1]
        flags = data[line, o + 6]
        up, down, none, scaled = data[line, o + 4] > 0, data[line, o + 5] > 0, flags & 1 > 0, flags & D_IN_UNITS
    else:
        total = real[line, o + 1] + real[line, o + 2]
        flags = data[line, o + 3]
        up, down, none, scaled = flags & 1 > 0, flags & 2 > 0, flags & 4 > 0, flags & IN_UNITS
    if none or (up and down):
        return np.nan
    if up:
        return np.inf
    if down:
        return -np.inf
    return total / n / DOWN if scaled else total / n


@kernel
def _spread(data, real, line, o, less, power, whole):
    """Return the standard deviation: the root of the mean square distance from the mean."""
    n = float(data[line, o])
    high, low = real[line, o + 1], real[line, o + 2]
    square, rest = two_product(high, high)
    rest += 2.0 * high * low
    part = square / n
    p, e = two_product(part, n)
    rest = ((square - p) - e + rest) / n
    high, low = add_two(real[line, o + 4], real[line, o + 5], -part, -rest)
    root = math.sqrt(max(high, 0.0) / (n - less))
    if whole:
        return root / 10.0**power
    if data[line, o + 3] & SPECIAL:
        return np.nan
    return root / WIDE_DOWN if data[line, o + 3] & IN_WIDE_UNITS else root


@kernel
def _window_edge(plan, k, end):
    """Return how many `every` after the origin window k begins or ends, and whether the rest of the size is added."""
    if plan[st.P_LANDMARK] == 1:
        return (k if end else 0), False
    if end:
        k += plan[st.P_DEPTH] // plan[st.P_STRIDE] + (plan[st.P_STRIDE] == 1)
    return k, end and plan[st.P_STRIDE] == 2


@kernel
def emit_row(s, g, k, at, out, info):
    """Write the row of a group of window k; False if a value does not fit."""
    activate(s, g)
    data, real = s.groups.data, s.groups.real
    lines, values = s.panes.data, s.panes.real
    shows, plan = s.shows, s.plan
    row = s.scalar[st.S_OUT]
    width = s.keys.shape[0]
    word = plan[st.P_KEYS]
    for c in range(width):
        out[row, c] = data[g, word + c]
    line = _total_line(s, g) if s.accs.shape[0] else 0
    for a in range(shows.shape[0]):
        what, o = shows[a, 0], shows[a, 1]
        value = _NULL
        fits = True
        if what == ROWS:
            value = data[g, st.G_SOLID]
        elif what == WORD:
            value = lines[line, o]
        elif what == REAL_SUM or what == REAL_MEAN:
            if lines[line, o] > 0:
                total = _total(lines, values, line, o, lines[line, o] if what == REAL_MEAN else 1, False)
                value = to_code(total)
        elif what == INT_WIDE or what == D_INT_WIDE or what == WIDE_SUM:
            above = _NULL
            if what == WIDE_SUM:
                if lines[line, o] > 0:
                    above, value = two_words(lines, line, o + 1)
            else:
                n, high, low = lines[line, o], lines[line, o + 1], lines[line, o + 2]
                if what == D_INT_WIDE:
                    n, high, low = data[g, o], data[g, o + 1], data[g, o + 2]
                if n > 0:
                    above = high >> 32
                    value = (high << 32) | low
            out[row, shows[a, 3]] = above
        elif what == WIDE_MEAN:
            if lines[line, o] > 0:
                total = 0.0
                for w in range(WIDE_LIMBS, 0, -1):
                    total = total * _TWO32 + lines[line, o + w]
                value = to_code(total / (lines[line, o] * 10.0 ** shows[a, 2]))
        elif what == SUM or what == MEAN or what == D_SUM or what == D_MEAN:
            if what == SUM or what == MEAN:
                n, high, low = lines[line, o], lines[line, o + 1], lines[line, o + 2]
            else:
                n, high, low = data[g, o], data[g, o + 1], data[g, o + 2]
            small = high >= -2147483648 and high <= 2147483647
            if n == 0:
                pass
            elif what == SUM or what == D_SUM:
                value = (high << 32) | low if small else 0
                fits = small and value <= shows[a, 2] and value >= -shows[a, 2]
            else:
                mean = float((high << 32) | low) if small else float(high) * _TWO32 + float(low)
                value = to_code(mean / (n * 10.0 ** shows[a, 2]))
        elif what == SPREAD or what == REAL_SPREAD:
            if lines[line, o] > shows[a, 3]:
                total = _spread(lines, values, line, o, shows[a, 3], shows[a, 2], what == SPREAD)
                value = to_code(total)
        elif what == D_COUNT:
            value = data[g, o]
        elif what == D_REAL_SUM or what == D_REAL_MEAN:
            if data[g, o] > 0:
                total = _total(data, real, g, o, data[g, o] if what == D_REAL_MEAN else 1, True)
                value = to_code(total)
        elif what == ORDERED:
            root = data[g, o]
            if root >= 0:
                n = s.nodes.data[root, N_SIZE]
                value = select(s.nodes, root, min(n - 1, max(0, math.ceil(s.params[a] * n) - 1)))
        else:
            times, more = _window_edge(plan, k, what == END)
            origin = s.clocks.data[data[g, st.G_CLOCK], st.C_ORIGIN]
            if plan[st.P_KIND] == st.REAL:
                edge = to_float(origin) + float(times) * s.units[0]
                value = to_code(edge + s.units[1] if more else edge)
            else:
                value = origin + times * plan[st.P_EVERY] + (plan[st.P_REST] if more else 0)
                fits = value >= shows[a, 2] and value <= shows[a, 3]
        if not fits:
            s.scalar[st.S_WHICH] = a
            s.scalar[st.S_WHERE] = g
            return False
        out[row, width + a] = value
    out[row, width + shows.shape[0]] = at
    if plan[st.P_TRACED] == 1:
        info[row, 0] = g
        info[row, 1] = 0 if plan[st.P_LANDMARK] == 1 else data[g, st.G_FIRST] - data[g, st.G_BASE]
        info[row, 2] = data[g, st.G_FIRST] + data[g, st.G_SOLID] - data[g, st.G_BASE]
    s.scalar[st.S_OUT] += 1
    return True
