"""What a relation says of its rows when a plan is chosen: distinct keys, and a sample.

Keys are counted exactly where an index has them, else estimated in one pass (some nanoseconds a row, within some two
percent). A sample has rows with equal chance, with repetition. Nothing is maintained while rows come and go.
"""

from __future__ import annotations

import math

import numpy as np

from whence.engine.core.kernels.distinct import REGISTERS, fill_registers
from whence.engine.core.relation import Relation
from whence.model.codes import Codes

_ALPHA = 0.7213 / (1 + 1.079 / REGISTERS)
_HASHES = 2.0**32
_TRIES = 8


def distinct_keys(relation: Relation, cols: tuple[int, ...]) -> float:
    """Return how many keys a relation has in some columns."""
    rows = len(relation)
    if not cols or rows <= 1:
        return float(min(rows, 1))
    found = relation.indexes.get(cols)
    if found is not None:
        return float(found.keys[0])
    if any(set(i) <= set(cols) and index.keys[0] == rows for i, index in relation.indexes.items()):
        return float(rows)  # some of the columns are a key already
    return _estimated(relation.rows, relation.ann, int(relation.meta[0]), cols, rows)


def distinct_in(rows: Codes, cols: tuple[int, ...]) -> float:
    """Return how many keys rows that are no relation have in some columns."""
    if not cols or len(rows) <= 1:
        return float(min(len(rows), 1))
    return _estimated(rows, np.ones(len(rows), np.int64), len(rows), cols, len(rows))


def _estimated(rows: Codes, ann: Codes, high: int, cols: tuple[int, ...], most: int) -> float:
    registers = np.zeros(REGISTERS, np.int64)
    fill_registers(rows, np.array(cols, np.int64), ann, high, registers)
    return float(min(most, max(1, round(_estimate(registers)))))


def _estimate(registers: Codes) -> float:
    estimate = _ALPHA * REGISTERS**2 / float(np.ldexp(1.0, -registers).sum())
    empty = int((registers == 0).sum())
    if estimate <= 2.5 * REGISTERS and empty:
        return REGISTERS * math.log(REGISTERS / empty)
    return -_HASHES * math.log1p(-estimate / _HASHES) if estimate < _HASHES else _HASHES


def sample_rows(relation: Relation, count: int, random: np.random.Generator) -> Codes:
    """Return that many random rows of a relation that has any."""
    high = int(relation.meta[0])
    ids = random.integers(0, high, _TRIES * count)
    ids = ids[relation.ann[ids] != 0][:count]
    if len(ids) < count:  # most ids are free
        live = relation.ids()
        ids = live[random.integers(0, len(live), count)]
    return relation.rows[ids]
