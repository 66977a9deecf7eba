"""Accumulators of panes: rows are added to them and they are combined; nothing is ever subtracted.

`accs` has a line for each: [what is kept, input column, first word]. Combining is associative, left before right.

| kept         | words |
|--------------|-------|
| COUNT        | rows that are not NULL |
| INT          | the same count, then the exact sum as high * 2**32 + low |
| FLOAT        | the same count, the finite sum as two doubles, which of +inf, -inf and NaN there were (bits 1, 2, 4) |
|              | and whether the sum is in units of 2**64 (bit 8), as it is from where it would overflow on |
| MIN, MAX     | a code, NULL if there is none |
| LEAST, MOST  | the same of interned values, compared by their labels |
| LOWEST, HIGHEST | the same of wide decimals (`model/wide.py`) |
| FIRST, LAST  | a code, NULL included, then the value that rows are ordered by; ties are decided by arrival |
| WIDE         | the count, then the exact sum of wide decimals in five words (`float_sum.py`); the column is of their |
|              | high words, the next one of the low words |
| INT_SPREAD   | the same count, the sum of the distances from a pivot as two doubles, the pivot, the sum of their |
|              | squares as two doubles; the pivot is the first value, so values far from zero lose no digits |
| FLOAT_SPREAD | as FLOAT, then the sum of squares as two doubles; with bit 16 values are in units of 2**600 |
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.kernels.doubles import to_float
from whence.engine.relational.kernels.float_sum import add_words
from whence.engine.streams.windows.kernels.window_lines import Ints, Reals
from whence.model.jit import kernel
from whence.model.wide import INLINE

COUNT, INT, FLOAT, MIN, MAX, LEAST, MOST, FIRST, LAST, INT_SPREAD, FLOAT_SPREAD, LOWEST, HIGHEST, WIDE = range(14)
WIDTH = (1, 3, 4, 1, 1, 1, 1, 2, 2, 6, 6, 1, 1, 6)
CODES = (MIN, MAX, LEAST, MOST, FIRST, LAST, LOWEST, HIGHEST)  # whose first word is a code of the column
A_KIND, A_COLUMN, A_WORD = range(3)

_NULL = -(2**63)
_LOW = 0xFFFFFFFF
_TWO32 = 4294967296.0
_SPLIT = 134217729.0  # 2**27 + 1
_TOO_LARGE_TO_SPLIT = 1e290

IN_UNITS, IN_WIDE_UNITS = 8, 16
DOWN, WIDE_DOWN = 2.0**-64, 2.0**-600


@kernel
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return a + b as rounded, and exactly what rounding lost."""
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)


@kernel
def two_product(a: float, b: float) -> tuple[float, float]:
    """Return a * b as rounded, and exactly what rounding lost (Dekker's splitting)."""
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
    """Add two numbers of two doubles each."""
    s, e = two_sum(high, x)
    t, f = two_sum(low, y)
    s, e = two_sum(s, e + t)
    return two_sum(s, e + f)


@kernel
def times_two(high: float, low: float, x: float, y: float) -> tuple[float, float]:
    """Multiply two numbers of two doubles each."""
    p, e = two_product(high, x)
    return two_sum(p, e + (high * y + low * x))


@kernel
def whole_parts(x: int) -> tuple[float, float]:
    """Split a whole number into two doubles, exactly."""
    return two_sum(float(x >> 32) * _TWO32, float(x & _LOW))


@kernel
def distance(x: int, pivot: int) -> tuple[float, float]:
    """Return x - pivot as two doubles, exactly."""
    f, g = whole_parts(x)
    h, k = whole_parts(pivot)
    return add_two(f, g, -h, -k)


@kernel
def _to_larger_units(data: Ints, real: Reals, line: int, o: int, kind: int) -> None:
    """Rescale a sum to larger units, so that what is added does not overflow."""
    if kind == FLOAT:
        data[line, o + 3] |= IN_UNITS
        real[line, o + 1] *= DOWN
        real[line, o + 2] *= DOWN
    else:
        data[line, o + 3] |= IN_WIDE_UNITS
        for w in (1, 2, 4, 4, 5, 5):  # squares twice
            real[line, o + w] *= WIDE_DOWN


@kernel
def _is_below(x: int, y: int, labels: Ints) -> bool:
    """Compare two wide decimals; the largest ones of a sign go by the labels of their texts."""
    if x >= INLINE and y >= INLINE:
        return bool(labels[x - INLINE] < labels[y - INLINE])
    if x <= -INLINE and y <= -INLINE:
        return bool(labels[-x - INLINE] > labels[-y - INLINE])
    return x < y


@kernel
def _is_extreme(kind: int) -> bool:
    """Tell whether an accumulator is a least or greatest value."""
    return MIN <= kind <= MOST or kind == LOWEST or kind == HIGHEST


@kernel
def _is_better(kind: int, x: int, y: int, labels: Ints) -> bool:
    """Tell whether x replaces y as the least or greatest value."""
    if kind == LOWEST or kind == HIGHEST:
        return _is_below(x, y, labels) if kind == LOWEST else _is_below(y, x, labels)
    if kind == LEAST or kind == MOST:
        x, y = labels[x], labels[y]
    return x < y if kind == MIN or kind == LEAST else x > y


@kernel
def _clear(data: Ints, line: int, accs: Ints) -> None:
    """Set the accumulators of a line to those of no rows."""
    for a in range(accs.shape[0]):
        kind = accs[a, A_KIND]
        o = accs[a, A_WORD]
        if kind == INT:
            data[line, o + 1] = 0
            data[line, o + 2] = 0
        elif kind == FLOAT:
            for w in range(1, 4):
                data[line, o + w] = 0
        elif kind == INT_SPREAD or kind == FLOAT_SPREAD or kind == WIDE:
            for w in range(1, 6):
                data[line, o + w] = 0
        elif kind == FIRST or kind == LAST:
            data[line, o + 1] = 0
        data[line, o] = _NULL if _is_extreme(kind) or kind == FIRST or kind == LAST else 0


@kernel
def add_rows(s, line, fresh, rows, first, end, on):
    """Add rows[first:end], ordered by the column `on`, to the accumulators of a line, which are new if `fresh`."""
    data, real, accs, labels = s.panes.data, s.panes.real, s.accs, s.labels
    if fresh:
        _clear(data, line, accs)
    for a in range(accs.shape[0]):
        kind = accs[a, A_KIND]
        col = accs[a, A_COLUMN]
        o = accs[a, A_WORD]
        if kind == FLOAT:
            n = data[line, o]
            high = real[line, o + 1]
            low = real[line, o + 2]
            unit = DOWN if data[line, o + 3] & IN_UNITS else 1.0
            for i in range(first, end):
                x = rows[i, col]
                if x == _NULL:
                    continue
                n += 1
                f = to_float(x)
                if f - f != 0.0:
                    data[line, o + 3] |= 4 if np.isnan(f) else (1 if f > 0.0 else 2)
                    continue
                total, e = two_sum(high, f * unit)
                if total - total != 0.0 and unit == 1.0:
                    real[line, o + 1] = high
                    real[line, o + 2] = low
                    _to_larger_units(data, real, line, o, FLOAT)
                    unit = DOWN
                    low = real[line, o + 2]
                    total, e = two_sum(real[line, o + 1], f * unit)
                high = total
                low += e
            data[line, o] = n  # and no more: the words must not depend on how rows fell into batches
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
        elif _is_extreme(kind):
            best = data[line, o]
            for i in range(first, end):
                x = rows[i, col]
                if x != _NULL and (best == _NULL or _is_better(kind, x, best, labels)):
                    best = x
            data[line, o] = best
        elif kind == WIDE:
            for i in range(first, end):
                if rows[i, col] != _NULL:
                    data[line, o] += 1
                    add_words(data, line, o + 1, rows[i, col], rows[i, col + 1], 1)
        elif kind == FIRST or kind == LAST:
            for i in range(first, end):
                v = rows[i, on]
                if (fresh and i == first) or (v < data[line, o + 1] if kind == FIRST else v >= data[line, o + 1]):
                    data[line, o] = rows[i, col]
                    data[line, o + 1] = v
        elif kind == INT_SPREAD:
            for i in range(first, end):
                x = rows[i, col]
                if x == _NULL:
                    continue
                if data[line, o] == 0:
                    data[line, o + 3] = x
                data[line, o] += 1
                f, g = distance(x, data[line, o + 3])
                high, low = add_two(real[line, o + 1], real[line, o + 2], f, g)
                real[line, o + 1] = high
                real[line, o + 2] = low
                square, rest = times_two(f, g, f, g)
                high, low = add_two(real[line, o + 4], real[line, o + 5], square, rest)
                real[line, o + 4] = high
                real[line, o + 5] = low
        else:
            for i in range(first, end):
                x = rows[i, col]
                if x == _NULL:
                    continue
                data[line, o] += 1
                f = to_float(x)
                if f - f != 0.0:
                    data[line, o + 3] |= 4 if np.isnan(f) else (1 if f > 0.0 else 2)
                elif not _add_spread(data, real, line, o, f):
                    _to_larger_units(data, real, line, o, FLOAT_SPREAD)
                    _add_spread(data, real, line, o, f)


@kernel
def _add_spread(data: Ints, real: Reals, line: int, o: int, f: float) -> bool:
    """Add a double to a sum and a sum of squares; False, and no change, if that needs larger units."""
    if data[line, o + 3] & IN_WIDE_UNITS:
        f *= WIDE_DOWN
    square, rest = two_product(f, f)
    high, low = add_two(real[line, o + 1], real[line, o + 2], f, 0.0)
    most, least = add_two(real[line, o + 4], real[line, o + 5], square, rest)
    if most - most != 0.0 and data[line, o + 3] & IN_WIDE_UNITS == 0:
        return False
    real[line, o + 1] = high
    real[line, o + 2] = low
    real[line, o + 4] = most
    real[line, o + 5] = least
    return True


@kernel
def _combine_spread(data: Ints, real: Reals, o: int, left: int, right: int, into: int) -> None:
    """Add up two INT_SPREADs over the left one's pivot."""
    if data[left, o] == 0 or data[right, o] == 0:
        only = right if data[left, o] == 0 else left
        for w in range(6):
            data[into, o + w] = data[only, o + w]
        return
    n = float(data[right, o])
    f, g = distance(data[right, o + 3], data[left, o + 3])
    sum_high, sum_low = real[right, o + 1], real[right, o + 2]
    moved_high, moved_low = times_two(f, g, n, 0.0)
    # Around the left pivot: sum + n d, and squares + d (2 sum + n d).
    twice_high, twice_low = add_two(2.0 * sum_high, 2.0 * sum_low, moved_high, moved_low)
    p, e = times_two(f, g, twice_high, twice_low)
    p, e = add_two(real[right, o + 4], real[right, o + 5], p, e)
    most, least = add_two(real[left, o + 4], real[left, o + 5], p, e)
    high, low = add_two(sum_high, sum_low, moved_high, moved_low)
    high, low = add_two(real[left, o + 1], real[left, o + 2], high, low)
    data[into, o] = data[left, o] + data[right, o]
    data[into, o + 3] = data[left, o + 3]
    real[into, o + 1] = high
    real[into, o + 2] = low
    real[into, o + 4] = most
    real[into, o + 5] = least


@kernel
def _combine_floats(data: Ints, real: Reals, kind: int, o: int, left: int, right: int, into: int) -> None:
    """Add up two FLOATs or two FLOAT_SPREADs, in larger units if one is or the sum must be."""
    own = IN_UNITS if kind == FLOAT else IN_WIDE_UNITS
    down = DOWN if kind == FLOAT else WIDE_DOWN
    flags = data[left, o + 3] | data[right, o + 3]
    x = down if flags & own and data[left, o + 3] & own == 0 else 1.0
    y = down if flags & own and data[right, o + 3] & own == 0 else 1.0
    most = least = 0.0
    for _ in range(2):
        high, low = add_two(
            real[left, o + 1] * x, real[left, o + 2] * x, real[right, o + 1] * y, real[right, o + 2] * y
        )
        if kind == FLOAT_SPREAD:
            most, least = add_two(
                real[left, o + 4] * x * x,
                real[left, o + 5] * x * x,
                real[right, o + 4] * y * y,
                real[right, o + 5] * y * y,
            )
        if flags & own or (high - high == 0.0 and most - most == 0.0):
            break
        flags |= own
        x = y = down
    data[into, o] = data[left, o] + data[right, o]
    data[into, o + 3] = flags
    real[into, o + 1] = high
    real[into, o + 2] = low
    if kind == FLOAT_SPREAD:
        real[into, o + 4] = most
        real[into, o + 5] = least


@kernel
def combine(s, left, right, into):
    """Write the accumulators of left's rows and then right's to `into`, which may be either of them."""
    data, real, accs, labels = s.panes.data, s.panes.real, s.accs, s.labels
    for a in range(accs.shape[0]):
        kind = accs[a, A_KIND]
        o = accs[a, A_WORD]
        x = data[left, o]
        y = data[right, o]
        if kind == FLOAT or kind == FLOAT_SPREAD:
            _combine_floats(data, real, kind, o, left, right, into)
        elif kind == INT_SPREAD:
            _combine_spread(data, real, o, left, right, into)
        elif kind == COUNT:
            data[into, o] = x + y
        elif kind == INT:
            data[into, o] = x + y
            lower = data[left, o + 2] + data[right, o + 2]
            data[into, o + 1] = data[left, o + 1] + data[right, o + 1] + (lower >> 32)
            data[into, o + 2] = lower & _LOW
        elif kind == WIDE:
            data[into, o] = x + y
            carry = 0
            for w in range(1, 5):
                carry += data[left, o + w] + data[right, o + w]
                data[into, o + w] = carry & _LOW
                carry >>= 32
            data[into, o + 5] = data[left, o + 5] + data[right, o + 5] + carry
        elif kind == FIRST:
            data[into, o] = x
            data[into, o + 1] = data[left, o + 1]
        elif kind == LAST:
            data[into, o] = y
            data[into, o + 1] = data[right, o + 1]
        elif x == _NULL or y == _NULL:
            data[into, o] = y if x == _NULL else x
        else:
            data[into, o] = y if _is_better(kind, y, x, labels) else x
