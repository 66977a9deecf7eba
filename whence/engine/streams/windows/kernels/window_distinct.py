"""How often each value is among a group's rows: what counts is coming and going.

An entry's line: [group, which of the aggregates, value, count]. `slots` is a table of words (32 hash bits, line + 1) as
in `table.py`. Sums of what is there are accumulators at a word of the group's line:

| kept  | words |
|-------|-------|
| COUNT | values |
| INT   | the same count, then the exact sum as high * 2**32 + low |
| FLOAT | the same count, the finite sum as three doubles to be added, whether there is +inf, -inf and NaN (bit 1) |

With bit 2 of the word for NaN (IN_UNITS) the doubles are in units of 2**64. A stream's rows come and go in one order,
so a count that is zero is a set that is empty.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.kernels.table import put_word, remove_slot
from whence.engine.relational.kernels import aggregate as ak
from whence.engine.streams.windows.kernels.window_lines import M_HIGH, give, take, touch
from whence.model.jit import kernel

E_GROUP, E_WHICH, E_VALUE, E_COUNT = range(4)
E_FIELDS = 4
WIDTH = {ak.COUNT: 1, ak.INT: 3, ak.FLOAT: 7}
IN_UNITS = 2
DOWN = 2.0**-64

_LOW = 0xFFFFFFFF
_K = -7046029254386353131


@kernel
def _tag(group, which, value):
    h = (group * 64 + which) * _K
    h = (h ^ ((h >> 29) & _LOW) ^ value) * _K
    h ^= (h >> 29) & _LOW
    return ((h * _K) >> 32) & _LOW


@kernel
def _find(entries, slots, tag, group, which, value):
    """The slot of an entry, or the complement of the one where it would be."""
    mask = slots.shape[0] - 1
    p = tag & mask
    data = entries.data
    while slots[p] != 0:
        if ((slots[p] >> 32) & _LOW) == tag:
            e = (slots[p] & _LOW) - 1
            if data[e, E_GROUP] == group and data[e, E_WHICH] == which and data[e, E_VALUE] == value:
                return p
        p = (p + 1) & mask
    return ~p


@kernel
def come(entries, slots, group, which, value):
    """One more of a value; whether it is the first."""
    tag = _tag(group, which, value)
    p = _find(entries, slots, tag, group, which, value)
    if p >= 0:
        e = (slots[p] & _LOW) - 1
        touch(entries, e)
        entries.data[e, E_COUNT] += 1
        return False
    e = take(entries)
    data = entries.data
    data[e, E_GROUP] = group
    data[e, E_WHICH] = which
    data[e, E_VALUE] = value
    data[e, E_COUNT] = 1
    slots[~p] = (tag << 32) | (e + 1)
    return True


@kernel
def go(entries, slots, group, which, value):
    """One less of a value that is there; whether it was the last."""
    p = _find(entries, slots, _tag(group, which, value), group, which, value)
    e = (slots[p] & _LOW) - 1
    touch(entries, e)
    entries.data[e, E_COUNT] -= 1
    if entries.data[e, E_COUNT] > 0:
        return False
    remove_slot(slots, p)
    give(entries, e)  # its count stays 0: that is how `find_entries` knows it
    return True


@kernel
def find_entries(entries, slots):
    """Make the table anew."""
    data = entries.data
    for p in range(slots.shape[0]):
        slots[p] = 0
    for e in range(entries.meta[M_HIGH]):
        if data[e, E_COUNT] > 0:
            put_word(slots, _tag(data[e, E_GROUP], data[e, E_WHICH], data[e, E_VALUE]), e)


@kernel
def find_count(entries, slots, group, which, value):
    """The line of an entry, or -1."""
    p = _find(entries, slots, _tag(group, which, value), group, which, value)
    return (slots[p] & _LOW) - 1 if p >= 0 else -1


@kernel
def add_term(sums, x):
    """Add x to three doubles of falling magnitude, passing each addition's exact error on (two-sum)."""
    for k in range(2):
        s = sums[k] + x
        v = s - sums[k]
        x = (sums[k] - (s - v)) + (x - v)
        sums[k] = s
    sums[2] += x
    for k in (1, 0, 1):  # let the larger ones take what they can hold
        s = sums[k] + sums[k + 1]
        v = s - sums[k]
        sums[k + 1] = (sums[k] - (s - v)) + (sums[k + 1] - v)
        sums[k] = s


@kernel
def _add_double(acc, line, o, x, words, sums):
    """Add x to the sum at acc[line, o:], which goes over to units of 2**64 before it overflows."""
    unit = DOWN if acc[line, o + 6] & IN_UNITS else 1.0
    for k in range(3):
        words[k] = acc[line, o + 1 + k]
    add_term(sums, x * unit)
    if sums[0] - sums[0] != 0.0 and unit == 1.0:
        for k in range(3):
            words[k] = acc[line, o + 1 + k]
            sums[k] *= DOWN
        add_term(sums, x * DOWN)
        acc[line, o + 6] |= IN_UNITS
    for k in range(3):
        acc[line, o + 1 + k] = words[k]


@kernel
def flip(acc, line, kept, o, value, m, bits, floats, words, sums):
    """Add a value (m = 1) to the accumulators at a word, or take it out (m = -1)."""
    acc[line, o] += m
    if kept == ak.INT:
        low = acc[line, o + 2] + (value & _LOW) * m
        acc[line, o + 1] += (value >> 32) * m + (low >> 32)
        acc[line, o + 2] = low & _LOW
    elif kept == ak.FLOAT:
        f = ak.to_float(value, bits, floats)
        if np.isnan(f):
            acc[line, o + 6] += m
        elif f == np.inf:
            acc[line, o + 4] += m
        elif f == -np.inf:
            acc[line, o + 5] += m
        else:
            _add_double(acc, line, o, f * m, words, sums)
        if acc[line, o] == acc[line, o + 4] + acc[line, o + 5] + (acc[line, o + 6] & 1):  # nothing finite is left
            for w in range(1, 4):
                acc[line, o + w] = 0
            acc[line, o + 6] &= 1
