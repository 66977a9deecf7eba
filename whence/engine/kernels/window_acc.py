"""What a pane of rows is worth: accumulators that rows are added to and that can be combined, never subtracted.

`accs` has a line for each: [what is kept, input column, first word]. Combining is associative, left before right.

| kept         | words |
|--------------|-------|
| COUNT        | rows that are not NULL |
| INT          | the same count, then the exact sum as high * 2**32 + low |
| FLOAT        | the same count, the finite sum as two doubles, which of +inf, -inf and NaN there were (bits 1, 2, 4) |
| MIN, MAX     | a code, NULL if there is none |
| LEAST, MOST  | the same of interned values, compared by their labels |
| FIRST, LAST  | a code, NULL included |
| INT_SPREAD, FLOAT_SPREAD | as FLOAT, then the sum of squares as two doubles |
"""

from __future__ import annotations

import numpy as np

from whence.engine.kernels.window_lines import Ints, Reals
from whence.model.jit import kernel

COUNT, INT, FLOAT, MIN, MAX, LEAST, MOST, FIRST, LAST, INT_SPREAD, FLOAT_SPREAD = range(11)
WIDTH = (1, 3, 4, 1, 1, 1, 1, 1, 1, 6, 6)
A_KIND, A_COLUMN, A_WORD = range(3)

_NULL = -(2**63)
_LOW = 0xFFFFFFFF
_FLIP = 0x7FFFFFFFFFFFFFFF
_TWO32 = 4294967296.0
_SPLIT = 134217729.0  # 2**27 + 1
_TOO_LARGE_TO_SPLIT = 1e290


@kernel
def two_sum(a: float, b: float) -> tuple[float, float]:
    """a + b as rounded, and exactly what rounding lost."""
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)


@kernel
def two_product(a: float, b: float) -> tuple[float, float]:
    """a * b as rounded, and exactly what rounding lost (Dekker's splitting)."""
    p = a * b
    if abs(a) > _TOO_LARGE_TO_SPLIT or abs(b) > _TOO_LARGE_TO_SPLIT:
        return p, 0.0
    t = _SPLIT * a
    ah = t - (t - a)
    al = a - ah
    t = _SPLIT * b
    bh = t - (t - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@kernel
def add_two(high: float, low: float, x: float, y: float) -> tuple[float, float]:
    """The sum of two numbers of two doubles each."""
    s, e = two_sum(high, x)
    t, f = two_sum(low, y)
    s, e = two_sum(s, e + t)
    return two_sum(s, e + f)


@kernel
def clear(data: Ints, line: int, accs: Ints) -> None:
    """No rows yet."""
    for a in range(accs.shape[0]):
        kind = accs[a, A_KIND]
        o = accs[a, A_WORD]
        if kind == INT:
            data[line, o + 1] = 0
            data[line, o + 2] = 0
        elif kind == FLOAT:
            for w in range(1, 4):
                data[line, o + w] = 0
        elif kind >= INT_SPREAD:
            for w in range(1, 6):
                data[line, o + w] = 0
        data[line, o] = _NULL if kind >= MIN and kind <= LAST else 0


@kernel
def add_rows(
    data: Ints,
    real: Reals,
    line: int,
    fresh: bool,
    accs: Ints,
    rows: Ints,
    first: int,
    end: int,
    labels: Ints,
    bits: Ints,
    floats: Reals,
) -> None:
    """Add rows[first:end] to the accumulators of a line, which are new if `fresh`."""
    if fresh:
        clear(data, line, accs)
    for a in range(accs.shape[0]):
        kind = accs[a, A_KIND]
        col = accs[a, A_COLUMN]
        o = accs[a, A_WORD]
        if kind == FLOAT:
            n = data[line, o]
            high = real[line, o + 1]
            low = real[line, o + 2]
            for i in range(first, end):
                x = rows[i, col]
                if x == _NULL:
                    continue
                n += 1
                bits[0] = x ^ ((x >> 63) & _FLIP)
                f = floats[0]
                if f - f != 0.0:
                    data[line, o + 3] |= 4 if np.isnan(f) else (1 if f > 0.0 else 2)
                    continue
                high, e = two_sum(high, f)
                low += e
            data[line, o] = n  # and no more: the words must not tell how rows fell into batches
            real[line, o + 1] = high
            real[line, o + 2] = low
        elif kind == COUNT:
            for i in range(first, end):
                if rows[i, col] != _NULL:
                    data[line, o] += 1
        elif kind == INT:
            n = data[line, o]
            upper = data[line, o + 1]
            lower = data[line, o + 2]
            for i in range(first, end):
                x = rows[i, col]
                if x != _NULL:
                    n += 1
                    lower += x & _LOW
                    upper += (x >> 32) + (lower >> 32)
                    lower &= _LOW
            data[line, o] = n
            data[line, o + 1] = upper
            data[line, o + 2] = lower
        elif kind == MIN or kind == MAX:
            best = data[line, o]
            for i in range(first, end):
                x = rows[i, col]
                if x != _NULL and (best == _NULL or (x < best if kind == MIN else x > best)):
                    best = x
            data[line, o] = best
        elif kind == LEAST or kind == MOST:
            best = data[line, o]
            for i in range(first, end):
                x = rows[i, col]
                if x != _NULL and (
                    best == _NULL or (labels[x] < labels[best] if kind == LEAST else labels[x] > labels[best])
                ):
                    best = x
            data[line, o] = best
        elif kind == FIRST:
            if fresh:
                data[line, o] = rows[first, col]
        elif kind == LAST:
            data[line, o] = rows[end - 1, col]
        else:
            for i in range(first, end):
                x = rows[i, col]
                if x == _NULL:
                    continue
                data[line, o] += 1
                if kind == INT_SPREAD:
                    f, g = two_sum(float(x >> 32) * _TWO32, float(x & _LOW))
                else:
                    bits[0] = x ^ ((x >> 63) & _FLIP)
                    f = floats[0]
                    g = 0.0
                if f - f != 0.0:
                    data[line, o + 3] |= 4 if np.isnan(f) else (1 if f > 0.0 else 2)
                    continue
                high, low = add_two(real[line, o + 1], real[line, o + 2], f, g)
                real[line, o + 1] = high
                real[line, o + 2] = low
                square, rest = two_product(f, f)
                high, low = add_two(real[line, o + 4], real[line, o + 5], square, rest + 2.0 * f * g)
                real[line, o + 4] = high
                real[line, o + 5] = low


@kernel
def combine(data: Ints, real: Reals, accs: Ints, left: int, right: int, into: int, labels: Ints) -> None:
    """The accumulators of left's rows and then right's, written to `into`, which may be either of them."""
    for a in range(accs.shape[0]):
        kind = accs[a, A_KIND]
        o = accs[a, A_WORD]
        x = data[left, o]
        y = data[right, o]
        if kind == FLOAT or kind >= INT_SPREAD:
            data[into, o] = x + y
            data[into, o + 3] = data[left, o + 3] | data[right, o + 3]
            high, low = add_two(real[left, o + 1], real[left, o + 2], real[right, o + 1], real[right, o + 2])
            real[into, o + 1] = high
            real[into, o + 2] = low
            if kind >= INT_SPREAD:
                high, low = add_two(real[left, o + 4], real[left, o + 5], real[right, o + 4], real[right, o + 5])
                real[into, o + 4] = high
                real[into, o + 5] = low
        elif kind == COUNT:
            data[into, o] = x + y
        elif kind == INT:
            data[into, o] = x + y
            lower = data[left, o + 2] + data[right, o + 2]
            data[into, o + 1] = data[left, o + 1] + data[right, o + 1] + (lower >> 32)
            data[into, o + 2] = lower & _LOW
        elif kind == FIRST:
            data[into, o] = x
        elif kind == LAST:
            data[into, o] = y
        elif x == _NULL or y == _NULL:
            data[into, o] = y if x == _NULL else x
        elif kind == MIN or kind == MAX:
            data[into, o] = x if (x < y) == (kind == MIN) else y
        else:
            data[into, o] = y if (labels[y] < labels[x] if kind == LEAST else labels[y] > labels[x]) else x
