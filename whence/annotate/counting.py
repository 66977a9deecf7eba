"""Counting: an annotation is a row's signed multiplicity; derivations add and joins multiply.

The ring of integers: changes are integers too, so `plus` both merges derivations and applies changes, and `total` of
a run is its sum. Exact for every non-recursive view; through recursion a row could support itself, so policies take
over.
"""

from __future__ import annotations

import numpy as np

from whence.model.codes import Codes
from whence.model.errors import EvaluationError
from whence.model.jit import kernel


@kernel
def _multiply(a: Codes, b: Codes, out: Codes) -> bool:
    """The products of two columns; False if one does not fit."""
    for i in range(len(a)):
        x, y = a[i], b[i]
        # Asked before multiplying: the compiler takes it that a product never overflows.
        if (abs(x) > 0x7FFFFFFF or abs(y) > 0x7FFFFFFF) and y != 0 and abs(x) > 0x7FFFFFFFFFFFFFFF // abs(y):
            return False
        out[i] = x * y
    return True


class Counting:
    """The integer algebra.

    >>> COUNTING.total(np.array([1, 2, -3]), np.array([0, 2])).tolist()
    [3, -3]
    """

    name = "counting"
    zero = 0
    one = 1
    additive = True

    def of_tid(self, tids: Codes) -> Codes:
        return np.ones(len(tids), np.int64)

    def times(self, a: Codes, b: Codes) -> Codes:
        out = np.empty(len(a), np.int64)
        if not _multiply(a, b, out):
            raise EvaluationError("a row is there more often than can be counted (2^63 times)")
        return out

    def plus(self, a: Codes, b: Codes) -> Codes:
        return a + b

    def total(self, a: Codes, starts: Codes) -> Codes:
        return np.add.reduceat(a, starts) if len(starts) else np.empty(0, np.int64)

    def change(self, old: Codes, new: Codes) -> Codes:
        return new - old

    def without(self, a: Codes, tids: Codes) -> Codes:
        return a  # a count does not know which base rows it counts

    def holds(self, a: Codes) -> Codes:
        return (a > 0).astype(np.int64)

    def multiplicity(self, a: Codes) -> Codes:
        return a

    def nbytes(self, a: Codes) -> int:
        return int(a.nbytes)

    def to_bytes(self, a: Codes) -> bytes:
        return a.tobytes()

    def from_bytes(self, data: bytes) -> Codes:
        return np.frombuffer(data, np.int64).copy()


COUNTING = Counting()
