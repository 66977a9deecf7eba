"""Distinct values of groups: how often each occurs, and sums over the distinct ones.

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

from whence.engine.core.kernels.doubles import to_float
from whence.engine.core.kernels.table import put_word, remove_slot
from whence.engine.relational.kernels import aggregate as ak
from whence.engine.streams.windows.kernels.window_lines import M_HIGH, allocate, release, touch
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
    """Return the slot of an entry, or the complement of the one where it would be."""
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
def add_value(entries, slots, group, which, value):
    """Count one more occurrence of a value; return whether it is the first."""
    tag = _tag(group, which, value)
    p = _find(entries, slots, tag, group, which, value)
    if p >= 0:
        e = (slots[p] & _LOW) - 1
        touch(entries, e)
        entries.data[e, E_COUNT] += 1
        return False
    e = allocate(entries)
    data = entries.data
    data[e, E_GROUP] = group
    data[e, E_WHICH] = which
    data[e, E_VALUE] = value
    data[e, E_COUNT] = 1
    slots[~p] = (tag << 32) | (e + 1)
    return True


@kernel
def remove_value(entries, slots, group, which, value):
    """Count one occurrence less of a value that is there; return whether it was the last."""
    p = _find(entries, slots, _tag(group, which, value), group, which, value)
    e = (slots[p] & _LOW) - 1
    touch(entries, e)
    entries.data[e, E_COUNT] -= 1
    if entries.data[e, E_COUNT] > 0:
        return False
    remove_slot(slots, p)
    release(entries, e)  # its count stays 0: that is how `rebuild_entries` knows it
    return True


@kernel
def rebuild_entries(entries, slots):
    """Rebuild the hash table of entries from their lines."""
    data = entries.data
    for p in range(slots.shape[0]):
        slots[p] = 0
    for e in range(entries.meta[M_HIGH]):
        if data[e, E_COUNT] > 0:
            put_word(slots, _tag(data[e, E_GROUP], data[e, E_WHICH], data[e, E_VALUE]), e)


@kernel
def find_entry(entries, slots, group, which, value):
    """Return the line of an entry, or -1."""
    p = _find(entries, slots, _tag(group, which, value), group, which, value)
    return (slots[p] & _LOW) - 1 if p >= 0 else -1


@kernel
def _add_term(real, line, o, x):
    """Add x to three doubles of falling magnitude, passing each addition's exact error on (two-sum)."""
    for k in range(o, o + 2):
        s = real[line, k] + x
        v = s - real[line, k]
        x = (real[line, k] - (s - v)) + (x - v)
        real[line, k] = s
    real[line, o + 2] += x
    for k in (o + 1, o, o + 1):  # let the larger ones take what they can hold
        s = real[line, k] + real[line, k + 1]
        v = s - real[line, k]
        real[line, k + 1] = (real[line, k] - (s - v)) + (real[line, k + 1] - v)
        real[line, k] = s


@kernel
def _add_double(data, real, line, o, x):
    """Add x to the sum at real[line, o + 1:], which goes over to units of 2**64 before it overflows."""
    if data[line, o + 6] & IN_UNITS:
        x *= DOWN
    high, middle, low = real[line, o + 1], real[line, o + 2], real[line, o + 3]
    _add_term(real, line, o + 1, x)
    if real[line, o + 1] - real[line, o + 1] != 0.0 and data[line, o + 6] & IN_UNITS == 0:
        real[line, o + 1] = high * DOWN
        real[line, o + 2] = middle * DOWN
        real[line, o + 3] = low * DOWN
        _add_term(real, line, o + 1, x * DOWN)
        data[line, o + 6] |= IN_UNITS


@kernel
def add_distinct(groups, g, kept, o, value, m):
    """Add a value (m = 1) to the accumulators at word `o` of a group's line, or take it out (m = -1)."""
    acc = groups.data
    acc[g, o] += m
    if kept == ak.INT:
        low = acc[g, o + 2] + (value & _LOW) * m
        acc[g, o + 1] += (value >> 32) * m + (low >> 32)
        acc[g, o + 2] = low & _LOW
    elif kept == ak.FLOAT:
        f = to_float(value)
        if np.isnan(f):
            acc[g, o + 6] += m
        elif f == np.inf:
            acc[g, o + 4] += m
        elif f == -np.inf:
            acc[g, o + 5] += m
        else:
            _add_double(acc, groups.real, g, o, f * m)
        if acc[g, o] == acc[g, o + 4] + acc[g, o + 5] + (acc[g, o + 6] & 1):  # nothing finite is left
            for w in range(1, 4):
                acc[g, o + w] = 0
            acc[g, o + 6] &= 1
