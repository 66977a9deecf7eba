"""Runs: the rows of one side with one key, in the order of the values of their pairs.

A side is an ordered multiset (`core/kernels/ordered.py`) whose first columns are the keys; the next one is its
**lead**. Rows with one key are a *run*. The **value** of a pair is what a subscription's last tested interval is about:
the lead, or a difference of both leads (a band), in a form that rises with the lead of the other side:

| mode | value |
|---|---|
| PLAIN | the lead |
| RISING, FALLING | lead - own, the complement of own - lead; integers, which end at the last number there is |
| RISING_DOUBLE, FALLING_DOUBLE | the same, of doubles as SQL subtracts them: rounded, so they rise, if not strictly |

Intervals of differences end before the first and the last number, which stand for NULL.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.kernels.doubles import to_code, to_float
from whence.engine.core.kernels.ordered import LEAF, compare
from whence.model.codes import Codes
from whence.model.jit import kernel

PLAIN, RISING, FALLING, RISING_DOUBLE, FALLING_DOUBLE = range(5)
_LAST = 2**63 - 1
_FIRST = -(2**63)


@kernel
def subtract(a: int, b: int) -> int:
    """a - b, or the end that it is past."""
    if b < 0 and a > _LAST + b:
        return _LAST
    if b > 0 and a < _FIRST + b:
        return _FIRST
    return a - b


@kernel
def value_of(lead: int, own: int, mode: int) -> int:
    """The value of a pair by the leads of the other side and of one's own; least of all if the other one is NULL."""
    if mode == PLAIN or lead == _FIRST:
        return lead
    if mode == RISING:
        return subtract(lead, own)
    if mode == FALLING:
        return ~subtract(own, lead)
    a = to_float(lead)
    difference = a - to_float(own) if mode == RISING_DOUBLE else to_float(own) - a
    if np.isnan(difference):  # no number, which SQL takes for NULL: outside of every interval, where its lead is
        return _FIRST if a < 0 else _LAST
    return int(to_code(difference)) if mode == RISING_DOUBLE else ~int(to_code(difference))


@kernel
def bound(
    store: Codes, size: Codes, top: Codes, low: int, high: int, keys: Codes, i: int, columns: int, after: int
) -> int:
    """The position of the first row in [low, high) at or after a prefix; with `after`, of the first one behind it.

    A position is a leaf's place times LEAF, and a place in that leaf; that of a leaf's end is the next leaf's start."""
    first = low // LEAF
    last = (high + LEAF - 1) // LEAF
    while first < last:  # leaves whose first row is before
        middle = (first + last) >> 1
        line = top[middle] * LEAF
        if middle * LEAF < low:
            line += low - middle * LEAF
        if compare(store, line, keys, i, columns) < after:
            first = middle + 1
        else:
            last = middle
    if first * LEAF <= low:
        return low
    leaf = top[first - 1]
    start = low - (first - 1) * LEAF if (first - 1) * LEAF < low else 0
    end = size[leaf]
    if first * LEAF > high:
        end = high - (first - 1) * LEAF
    stop = end
    while start < end:
        middle = (start + end) >> 1
        if compare(store, leaf * LEAF + middle, keys, i, columns) < after:
            start = middle + 1
        else:
            end = middle
    if start == stop and first * LEAF <= high:
        return first * LEAF
    return (first - 1) * LEAF + start


@kernel
def run_of(store: Codes, size: Codes, top: Codes, meta: Codes, keys: Codes, i: int, columns: int) -> tuple[int, int]:
    """The positions of the first row with a key, and of the first one behind these; everything without columns."""
    everything = int(meta[0]) * LEAF
    if columns == 0:
        return 0, everything
    low = bound(store, size, top, 0, everything, keys, i, columns, 0)
    if low >= everything:
        return low, low
    near = (low // LEAF + 1) * LEAF  # most runs end in the leaf that they begin in
    if near < everything and compare(store, top[near // LEAF] * LEAF, keys, i, columns) <= 0:
        near = everything
    return low, bound(store, size, top, low, near, keys, i, columns, 1)


@kernel
def first_value(
    store: Codes, size: Codes, top: Codes, low: int, high: int, column: int, own: int, mode: int, target: int
) -> int:
    """The position of the first row of a run whose value is at least the target; `high` if there is none."""
    first = low // LEAF
    last = (high + LEAF - 1) // LEAF
    while first < last:
        middle = (first + last) >> 1
        line = top[middle] * LEAF
        if middle * LEAF < low:
            line += low - middle * LEAF
        if value_of(store[line, column], own, mode) < target:
            first = middle + 1
        else:
            last = middle
    if first * LEAF <= low:
        return low
    leaf = top[first - 1]
    start = low - (first - 1) * LEAF if (first - 1) * LEAF < low else 0
    end = size[leaf]
    if first * LEAF > high:
        end = high - (first - 1) * LEAF
    stop = end
    while start < end:
        middle = (start + end) >> 1
        if value_of(store[leaf * LEAF + middle, column], own, mode) < target:
            start = middle + 1
        else:
            end = middle
    if start == stop:
        return first * LEAF if first * LEAF <= high else high
    return (first - 1) * LEAF + start


@kernel
def line_at(top: Codes, position: int) -> int:
    return int(top[position // LEAF] * LEAF + position % LEAF)


@kernel
def step_back(size: Codes, top: Codes, position: int) -> int:
    """The position before one that is not the first."""
    if position % LEAF:
        return position - 1
    place = position // LEAF - 1
    return int(place * LEAF + size[top[place]] - 1)


@kernel
def step_on(size: Codes, top: Codes, position: int) -> int:
    place = position // LEAF
    if position % LEAF + 1 < size[top[place]]:
        return position + 1
    return (place + 1) * LEAF


@kernel
def count_rows(size: Codes, top: Codes, meta: Codes, low: int, high: int) -> int:
    """About how many rows there are between two positions: leaves between the first and the last are taken to be as
    full as leaves are in the mean."""
    first = low // LEAF
    last = high // LEAF
    if first == last:
        return high - low
    between = (last - first - 1) * meta[3] // meta[0]
    return int(size[top[first]] - low % LEAF + between + high % LEAF)
