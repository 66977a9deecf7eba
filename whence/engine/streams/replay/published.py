"""Compare the results of a replay with what a view has published.

Law: a replay of deterministic operators gives each result again, with the same `$at`, the same values and the same hull
of tids. A mismatch therefore means that a Python function gave another answer for the same arguments, or that a
promise (`engine/streams/promise.py`), which no replay sees, brought the result about. It is an error, since the tids
that were found belong to another result. Sums of DOUBLE may differ in their last digits: a copy that starts cold adds
the same numbers in another order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.model.codes import NULL, Codes, codes_to_floats
from whence.model.errors import ReplayError
from whence.model.types import Kind, Type

_CLOSE = 1e-6  # how much doubles may differ, as a part of the larger one


def mismatch(view: str, tid: int, what: str, functions: Sequence[str]) -> ReplayError:
    """Return the error of a result that a replay did not give as it was published."""
    if functions:
        way = (
            f"{', '.join(functions)} gave another answer for the same arguments. Declare what is not deterministic "
            "with deterministic=False, and give the view provenance = 'lineage', which needs no replay"
        )
    else:
        way = (
            "a result that db.advance or db.flush brought about cannot be replayed, as a replay sees rows only; any "
            "other is a fault of Whence, please report it. provenance = 'lineage' needs no replay"
        )
    return ReplayError(f"a replay of {view} did not give result {tid:,} as it was published ({what}): {way}")


def first_difference(published: Codes, replayed: Codes, types: Sequence[Type], floats: bool) -> int | None:
    """Return the first row where two arrays of rows differ, doubles compared only if asked for.

    >>> from whence.model.types import BIGINT
    >>> first_difference(np.array([[1], [2]]), np.array([[1], [3]]), (BIGINT,), True)
    1
    """
    same = np.ones(len(published), bool)
    for column, type in enumerate(types):
        ours, theirs = published[:, column], replayed[:, column]
        if type.kind is not Kind.DOUBLE:
            same &= ours == theirs
        elif floats:
            same &= (ours == theirs) | _close(ours, theirs)
    return None if same.all() else int(np.argmin(same))


def _close(a: Codes, b: Codes) -> np.ndarray:
    known = (a != NULL) & (b != NULL)
    x, y = codes_to_floats(a), codes_to_floats(b)
    with np.errstate(invalid="ignore"):
        found: np.ndarray = known & (np.abs(x - y) <= _CLOSE * np.maximum(np.abs(x), np.abs(y)))
    return found
