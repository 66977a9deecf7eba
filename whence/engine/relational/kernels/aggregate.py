"""Accumulators of groups: adding rows to them, and the value they stand for.

A group's accumulators are int64 columns; `specs` has a line for each aggregate: [what is kept, input column (-1:
none), first accumulator column, what is shown, bound of an exact sum or power of ten of an average, the aggregate's
number, place and number of the words of a sum of doubles]. Where a wide decimal is shown, the seventh is the column of
a row that takes its high word, and its own column takes the low one; the input column of WIDE is one of high words
with the low ones behind it.

| kept  | columns |
|-------|---------|
| COUNT | rows that are not NULL |
| INT   | the same count, then the exact sum as high * 2**32 + low, for fewer than 2**31 rows |
| FLOAT | the same count, then counts of +inf, -inf and NaN, and the exact sum of the others (`float_sum.py`) |
| WIDE  | the same count, then the exact sum of wide decimals (`model/wide.py`) as five words (`float_sum.py`) |
| BEST  | the code of the least or greatest value, kept by the ordered index |
| FIRST | rows that have a place in the order, the code of the first one, and its place: two codes |
| LAST  | the same of the last one; `specs` has the columns of the place as the fifth and the seventh |
| LEAST | the least code so far, of rows that never go |
| MOST  | the greatest one |
"""

from __future__ import annotations

import math

import numpy as np

from whence.engine.core.kernels.batches import number_rows
from whence.engine.core.kernels.doubles import to_code
from whence.engine.core.kernels.relation import IDS, NEW, OLD, begin, settle, table, upsert
from whence.engine.relational.kernels.float_sum import DIGITS, WIDE_LIMBS, add_double, add_words, rounded, two_words
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel
from whence.model.wide import INLINE

COUNT, INT, FLOAT, BEST, WIDE, FIRST, LAST, LEAST, MOST = range(9)
SHOW_COUNT, SHOW_INT, SHOW_FLOAT, SHOW_INT_AVG, SHOW_FLOAT_AVG, SHOW_BEST = range(6)
SHOW_INT_WIDE, SHOW_WIDE, SHOW_WIDE_AVG, SHOW_PLACED = range(6, 10)
# Columns of the accumulators; of FLOAT, the words of its sum come on top.
WIDTH = {COUNT: 1, INT: 3, FLOAT: 4, BEST: 1, WIDE: 6, FIRST: 4, LAST: 4, LEAST: 1, MOST: 1}

_NULL = -(2**63)
_LOW = 0xFFFFFFFF
_TWO32 = 4294967296.0
_INFINITE = 0x7FF0000000000000  # the code of infinity; its complement is that of -infinity, and NaN is beyond both


@allocating
def group_rows(batch: Codes, cols: Codes, ann: Codes) -> tuple[Codes, Codes, Codes]:
    """Group number of each row, the keys of each group, the total of its annotations."""
    n = batch.shape[0]
    keys = np.empty((n, cols.shape[0]), np.int64)
    for i in range(n):
        for c in range(cols.shape[0]):
            keys[i, c] = batch[i, cols[c]]
    number, first = number_rows(keys)
    distinct = first.shape[0]
    out = np.empty((distinct, cols.shape[0]), np.int64)
    totals = np.zeros(distinct, np.int64)
    for g in range(distinct):
        for c in range(cols.shape[0]):
            out[g, c] = keys[first[g], c]
    for i in range(n):
        totals[number[i]] += ann[i]
    return number, out, totals


@kernel
def _place(acc: Codes, g: int, o: int, x: int, value: int, at: int, is_last: bool) -> None:
    """Take a row's code if its place in the order, by a value and then by arrival, is before or behind all others."""
    if value == _NULL:
        return
    if acc[g, o] > 0:
        before = value < acc[g, o + 2] or (value == acc[g, o + 2] and at < acc[g, o + 3])
        if before == is_last:
            acc[g, o] += 1
            return
    acc[g, o] += 1
    acc[g, o + 1] = x
    acc[g, o + 2] = value
    acc[g, o + 3] = at


@allocating
def accumulate(acc: Codes, specs: Codes, batch: Codes, mult: Codes, gids: Codes) -> None:
    """Add each row of a batch, times its multiplicity, to the accumulators of its group."""
    for i in range(batch.shape[0]):
        g = gids[i]
        m = mult[i]
        for a in range(specs.shape[0]):
            kept = specs[a, 0]
            if kept == BEST:
                continue
            col = specs[a, 1]
            o = specs[a, 2]
            x = batch[i, col] if col >= 0 else 0
            if kept == FIRST or kept == LAST:
                _place(acc, g, o, x, batch[i, specs[a, 4]], batch[i, specs[a, 6]], kept == LAST)
                continue
            if x == _NULL:
                continue
            if kept == MOST or kept == LEAST:
                if acc[g, o] == _NULL or (x > acc[g, o]) == (kept == MOST):
                    acc[g, o] = x
                continue
            acc[g, o] += m
            if kept == INT:
                low = acc[g, o + 2] + (x & _LOW) * m
                acc[g, o + 1] += (x >> 32) * m + (low >> 32)
                acc[g, o + 2] = low & _LOW
            elif kept == FLOAT:
                if x >= _INFINITE:
                    acc[g, o + (1 if x == _INFINITE else 3)] += m
                elif x <= ~_INFINITE:
                    acc[g, o + (2 if x == ~_INFINITE else 3)] += m
                else:
                    add_double(acc, g, o + 4, specs[a, 6], specs[a, 7], x, m)
            elif kept == WIDE:
                add_words(acc, g, o + 1, x, batch[i, col + 1], m)


@kernel
def show(acc: Codes, g: int, specs: Codes, width: int, row: Codes, digits: Codes) -> int:
    """Write a group's values to row[width:]; gives the number of an aggregate that does not fit its type, or -1."""
    for a in range(specs.shape[0]):
        o = specs[a, 2]
        shown = specs[a, 3]
        n = acc[g, o]
        value = _NULL
        if shown == SHOW_INT_WIDE or shown == SHOW_WIDE:
            above = _NULL
            if n != 0 and shown == SHOW_WIDE:
                above, value = two_words(acc, g, o + 1)
            elif n != 0:
                above = acc[g, o + 1] >> 32
                value = (acc[g, o + 1] << 32) | acc[g, o + 2]
            row[specs[a, 6]] = above
        elif shown == SHOW_COUNT or shown == SHOW_BEST:
            value = n
        elif n == 0:
            value = _NULL
        elif shown == SHOW_PLACED:
            value = acc[g, o + 1]
        elif shown == SHOW_WIDE_AVG:
            total, exponent = rounded(acc, g, o + 1, 0, WIDE_LIMBS, digits)
            value = to_code(math.ldexp(total, exponent) / (n * 10.0 ** specs[a, 4]))
        elif shown == SHOW_INT:
            high = acc[g, o + 1]
            if high < -2147483648 or high > 2147483647:
                return int(specs[a, 5])
            value = (high << 32) | acc[g, o + 2]
            if value > specs[a, 4] or value < -specs[a, 4]:
                return int(specs[a, 5])
        elif shown == SHOW_INT_AVG:
            high = acc[g, o + 1]
            if high >= -2147483648 and high <= 2147483647:
                total = float((high << 32) | acc[g, o + 2])
            else:
                total = float(high) * _TWO32 + float(acc[g, o + 2])
            value = to_code(total / (n * 10.0 ** specs[a, 4]))
        else:
            if acc[g, o + 3] > 0 or (acc[g, o + 1] > 0 and acc[g, o + 2] > 0):
                total = np.nan
            elif acc[g, o + 1] > 0:
                total = np.inf
            elif acc[g, o + 2] > 0:
                total = -np.inf
            else:
                total, exponent = rounded(acc, g, o + 4, specs[a, 6], specs[a, 7], digits)
                if shown == SHOW_FLOAT_AVG:
                    total /= n
                total = math.ldexp(total, exponent)
            value = to_code(total)
        row[width + specs[a, 5]] = value
    return -1


@allocating
def enter(
    address: int,
    specs: Codes,
    cols: Codes,
    batch: Codes,
    mult: Codes,
    keys: Codes,
    change: Codes,
    before: Codes,
    gids: Codes,
) -> None:
    """Add a batch to its groups: the keys and the change of each group, its accumulators before, each row's group.

    The groups' annotations count their rows; `settle` is still to come."""
    begin(table(address), change)
    n = batch.shape[0]
    for i in range(n):
        for c in range(cols.shape[0]):
            keys[i, c] = batch[i, cols[c]]
        gids[i] = 0
        change[NEW, 1 + i] = 0
    groups = n
    if n > 1:
        number, first = number_rows(keys)
        groups = first.shape[0]
        for g in range(groups):
            for c in range(cols.shape[0]):
                keys[g, c] = keys[first[g], c]
        for i in range(n):
            gids[i] = number[i]
    for i in range(n):
        change[NEW, 1 + gids[i]] += mult[i]
    upsert(address, keys, groups, change)
    acc = table(address).acc
    for g in range(groups):
        change[NEW, 1 + g] += change[OLD, 1 + g]
        for c in range(acc.shape[1]):
            before[g, c] = acc[change[IDS, 1 + g], c]
        if change[OLD, 1 + g] == 0:
            for a in range(specs.shape[0]):
                if specs[a, 0] == MOST or specs[a, 0] == LEAST:
                    acc[change[IDS, 1 + g], specs[a, 2]] = _NULL
    for i in range(n):
        gids[i] = change[IDS, 1 + gids[i]]
    accumulate(acc, specs, batch, mult, gids)


@allocating
def emit(
    address: int, specs: Codes, keys: Codes, change: Codes, old_acc: Codes, rows: Codes, ann: Codes, meta: Codes
) -> int:
    """For each touched group its old row with -1 and its new one with +1, unless equal; how many, or ~aggregate.

    `meta` gets the group that does not fit, and whether a wide decimal is not its own code."""
    acc = table(address).acc
    meta[1] = 0
    digits = np.empty(DIGITS, np.int64)
    width = keys.shape[1]
    columns = rows.shape[1]
    before = np.empty(columns, np.int64)
    after = np.empty(columns, np.int64)
    n = 0
    for i in range(change[4, 0]):
        for c in range(width):
            before[c] = keys[i, c]
            after[c] = keys[i, c]
        was = change[OLD, 1 + i] > 0
        now = change[NEW, 1 + i] > 0
        if was:
            show(old_acc, i, specs, width, before, digits)
        if now:
            bad = show(acc, change[IDS, 1 + i], specs, width, after, digits)
            if bad >= 0:
                meta[0] = i
                return ~bad
        if was and now:
            same = True
            for c in range(width, columns):
                if before[c] != after[c]:
                    same = False
            if same:
                continue
        if was:
            for c in range(columns):
                rows[n, c] = before[c]
            ann[n] = -1
            n += 1
        if now:
            for c in range(columns):
                rows[n, c] = after[c]
            ann[n] = 1
            n += 1
    for a in range(specs.shape[0]):
        if specs[a, 3] == SHOW_INT_WIDE or specs[a, 3] == SHOW_WIDE:
            for i in range(n):
                low = rows[i, width + specs[a, 5]]
                above = rows[i, specs[a, 6]]
                if above != _NULL and (above != low >> 63 or low >= INLINE or low <= -INLINE):
                    meta[1] = 1
    return n


@allocating
def update(
    address: int,
    direct: Codes,
    specs: Codes,
    cols: Codes,
    batch: Codes,
    mult: Codes,
    keys: Codes,
    change: Codes,
    before: Codes,
    gids: Codes,
    rows: Codes,
    ann: Codes,
    meta: Codes,
) -> int:
    """`enter`, `emit` and `settle` at once, where nothing but accumulators is kept."""
    enter(address, direct, cols, batch, mult, keys, change, before, gids)
    n = emit(address, specs, keys, change, before, rows, ann, meta)
    if n >= 0:
        settle(address, change)
    return n
