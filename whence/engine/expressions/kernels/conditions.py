"""Conditions as programs: comparisons and three-valued logic over columns and constants.

A program has one line per step, [what, left, right]: a step reads the results of earlier steps, by their numbers, or a
column or a constant; the last one is the result. 1 is true, 0 false. The steps go over a block of rows at a time, so
that their results stay in the cache.
"""

from __future__ import annotations

import numpy as np

from whence.model.codes import Codes
from whence.model.jit import allocating

COLUMN, CONSTANT, NOT, IS_NULL, AND, OR, IS_DISTINCT, IS_NOT_DISTINCT, EQ, NE, LT, LE, GT, GE = range(14)
_NULL = -(2**63)
_BLOCK = 512


@allocating
def decide(program: Codes, rows: Codes) -> Codes:
    """The result of a program for each row."""
    steps, n = program.shape[0], rows.shape[0]
    out = np.empty(n, np.int64)
    results = np.empty((steps, min(n, _BLOCK)), np.int64)
    for first in range(0, n, _BLOCK):
        many = min(_BLOCK, n - first)
        for s in range(steps):
            what, a, b = program[s, 0], program[s, 1], program[s, 2]
            if what == COLUMN:
                for i in range(many):
                    results[s, i] = rows[first + i, a]
            elif what == CONSTANT:
                for i in range(many):
                    results[s, i] = a
            elif what == NOT:
                for i in range(many):
                    x = results[a, i]
                    results[s, i] = x if x == _NULL else 1 - x
            elif what == IS_NULL:
                for i in range(many):
                    results[s, i] = results[a, i] == _NULL
            elif what == AND or what == OR:
                stop = 0 if what == AND else 1
                for i in range(many):
                    x, y = results[a, i], results[b, i]
                    results[s, i] = y if y == stop or x == 1 - stop else x
            elif what == IS_DISTINCT:
                for i in range(many):
                    results[s, i] = results[a, i] != results[b, i]
            elif what == IS_NOT_DISTINCT:
                for i in range(many):
                    results[s, i] = results[a, i] == results[b, i]
            else:
                for i in range(many):
                    x, y = results[a, i], results[b, i]
                    if x == _NULL or y == _NULL:
                        results[s, i] = _NULL
                    elif what == EQ:
                        results[s, i] = x == y
                    elif what == NE:
                        results[s, i] = x != y
                    elif what == LT:
                        results[s, i] = x < y
                    elif what == LE:
                        results[s, i] = x <= y
                    elif what == GT:
                        results[s, i] = x > y
                    else:
                        results[s, i] = x >= y
        for i in range(many):
            out[first + i] = results[steps - 1, i]
    return out


@allocating
def select_each(programs: Codes, ends: Codes, rows: Codes) -> tuple[Codes, Codes]:
    """The positions of the rows for which each of some programs is true, one program after the other, and where those
    of each end. The programs stand one below the other; `ends` says where each does."""
    kept = np.empty(ends.shape[0] * rows.shape[0], np.int64)
    out = np.empty(ends.shape[0], np.int64)
    start, many = 0, 0
    for p in range(ends.shape[0]):
        result = decide(programs[start : ends[p]], rows)
        for i in range(rows.shape[0]):
            if result[i] == 1:
                kept[many] = i
                many += 1
        out[p] = many
        start = ends[p]
    return kept[:many], out
