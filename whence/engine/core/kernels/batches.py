"""Kernels on batches alone: numbering equal rows, adding up changes, joining two small batches."""

from __future__ import annotations

import numpy as np

from whence.engine.core.kernels.index import has_null
from whence.engine.core.kernels.table import BLOCK, find_row, hash_key, hash_row, same_key, touch_rows
from whence.model.codes import Codes
from whence.model.jit import allocating

_LOW = 0xFFFFFFFF


@allocating
def number_rows(batch: Codes) -> tuple[Codes, Codes]:
    """The number of each row's value, in order of first occurrence, and the first position of each value."""
    n = batch.shape[0]
    size = 16
    while size < 2 * n:
        size *= 2
    slots = np.zeros(size, np.int64)
    number = np.empty(n, np.int64)
    first = np.empty(n, np.int64)
    distinct = 0
    for start in range(0, n, BLOCK):
        end = min(start + BLOCK, n)
        for i in range(start, end):
            number[i] = hash_row(batch, i)
        first[start] = touch_rows(batch, slots, number[start:end])
        for i in range(start, end):
            tag = number[i]
            r = find_row(batch, slots, batch, i, tag)
            if r < 0:
                slots[~r] = (tag << 32) | (i + 1)
                first[distinct] = i
                number[i] = distinct
                distinct += 1
            else:
                number[i] = number[r]
    return number, first[:distinct]


@allocating
def sum_by(number: Codes, values: Codes, distinct: int) -> Codes:
    """Sums of values by group number."""
    out = np.zeros(distinct, np.int64)
    for i in range(number.shape[0]):
        out[number[i]] += values[i]
    return out


@allocating
def run_sums(number: Codes, values: Codes, distinct: int) -> tuple[Codes, Codes]:
    """Sums of values by group number, and the least that each was on the way, zero at its beginning."""
    out = np.zeros(distinct, np.int64)
    least = np.zeros(distinct, np.int64)
    for i in range(number.shape[0]):
        g = number[i]
        out[g] += values[i]
        least[g] = min(least[g], out[g])
    return out, least


@allocating
def add_up(batch: Codes, ann: Codes) -> tuple[Codes, Codes]:
    """Distinct rows with the sum of their changes, without zeros, in order of first occurrence."""
    number, first = number_rows(batch)
    totals = sum_by(number, ann, first.shape[0])
    kept = 0
    for g in range(first.shape[0]):
        if totals[g] != 0:
            kept += 1
    rows = np.empty((kept, batch.shape[1]), np.int64)
    out = np.empty(kept, np.int64)
    k = 0
    for g in range(first.shape[0]):
        if totals[g] != 0:
            for c in range(batch.shape[1]):
                rows[k, c] = batch[first[g], c]
            out[k] = totals[g]
            k += 1
    return rows, out


@allocating
def split_signs(batch: Codes, ann: Codes) -> tuple[Codes, Codes]:
    """The rows that go and those that come, each as often as it does, in their order."""
    goes, comes = 0, 0
    for i in range(ann.shape[0]):
        if ann[i] < 0:
            goes -= ann[i]
        else:
            comes += ann[i]
    went = np.empty((goes, batch.shape[1]), np.int64)
    came = np.empty((comes, batch.shape[1]), np.int64)
    goes, comes = 0, 0
    for i in range(ann.shape[0]):
        for _ in range(-ann[i]):
            for c in range(batch.shape[1]):
                went[goes, c] = batch[i, c]
            goes += 1
        for _ in range(ann[i]):
            for c in range(batch.shape[1]):
                came[comes, c] = batch[i, c]
            comes += 1
    return went, came


@allocating
def join_batches(left: Codes, lcols: Codes, right: Codes, rcols: Codes) -> tuple[Codes, Codes]:
    """Pairs of positions of two batches with equal keys; NULL equals nothing."""
    n = right.shape[0]
    size = 16
    while size < 2 * n:
        size *= 2
    slots = np.zeros(size, np.int64)
    nxt = np.empty(n, np.int64)
    mask = size - 1
    for i in range(n):
        if has_null(right, i, rcols):
            continue
        tag = hash_key(right, i, rcols)
        p = tag & mask
        nxt[i] = -1
        while slots[p] != 0:
            if ((slots[p] >> 32) & _LOW) == tag and same_key(right, (slots[p] & _LOW) - 1, rcols, right, i, rcols):
                nxt[i] = (slots[p] & _LOW) - 1
                break
            p = (p + 1) & mask
        slots[p] = (tag << 32) | (i + 1)
    room = left.shape[0] + 16
    a = np.empty(room, np.int64)
    b = np.empty(room, np.int64)
    found = 0
    for i in range(left.shape[0]):
        if has_null(left, i, lcols):
            continue
        tag = hash_key(left, i, lcols)
        p = tag & mask
        r = np.int64(-1)
        while slots[p] != 0:
            if ((slots[p] >> 32) & _LOW) == tag and same_key(right, (slots[p] & _LOW) - 1, rcols, left, i, lcols):
                r = (slots[p] & _LOW) - 1
                break
            p = (p + 1) & mask
        while r >= 0:
            if found == room:
                room *= 2
                a_ = np.empty(room, np.int64)
                b_ = np.empty(room, np.int64)
                a_[:found] = a
                b_[:found] = b
                a = a_
                b = b_
            a[found] = i
            b[found] = r
            found += 1
            r = nxt[r]
    return a[:found], b[:found]
