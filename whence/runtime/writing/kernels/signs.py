"""What +1 and -1 in the order of a source make of the counts of rows.

A count below zero is a debt: deletions that came before their rows, and wait for them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.codes import Codes
from whence.model.jit import allocating


@allocating
def balance(
    signs: Codes, starts: Codes, counts: Codes, holds: NDArray[np.bool_], as_set: bool
) -> tuple[Codes, Codes, Codes]:
    """Count up and down: the last count of each row, how many of its -1 were passed over, and how many are held.

    The signs of row r are `signs[starts[r] : starts[r + 1]]`. A -1 at zero or below goes on downwards where the row
    `holds`, and is passed over elsewhere. In a set no count is above 1 or below -1.
    """
    rows = counts.shape[0]
    ends, passed, held = counts.copy(), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for r in range(rows):
        count = counts[r]
        for i in range(starts[r], starts[r + 1]):
            if signs[i] > 0:
                if not (as_set and count == 1):
                    count += 1
            elif count > 0:
                count -= 1
            elif holds[r]:
                held[r] += 1
                if not (as_set and count == -1):
                    count -= 1
            else:
                passed[r] += 1
        ends[r] = count
    return ends, passed, held


@allocating
def follow_keys(
    order: Codes,
    starts: Codes,
    signs: Codes,
    row_of: Codes,
    found: NDArray[np.bool_],
    owed: Codes,
    holds: NDArray[np.bool_],
    as_set: bool,
) -> tuple[Codes, Codes, Codes, Codes]:
    """Go through the changes of each key: which one brought the row that is there in the end, or -1; what is owed of
    each row then; and how many deletions of each row were passed over, and are held.

    The changes of key k are `order[starts[k] : starts[k + 1]]`, and `found[k]` says whether it had a row before. Change
    i is of the row `row_of[i]`. A row that is owed pays for its deletion and, as any row would, replaces the one that
    has its key.
    """
    keys = found.shape[0]
    last, after = np.full(keys, -1, np.int64), owed.copy()
    passed, held = np.zeros(owed.shape[0], np.int64), np.zeros(owed.shape[0], np.int64)
    for k in range(keys):
        there = found[k]
        for at in range(starts[k], starts[k + 1]):
            i = order[at]
            r = row_of[i]
            if signs[i] > 0:
                there = after[r] == 0
                if there:
                    last[k] = i
                else:
                    after[r] -= 1
                    last[k] = -1
            elif there:
                there = False
                last[k] = -1
            elif holds[r]:
                held[r] += 1
                if not (as_set and after[r] == 1):
                    after[r] += 1
            else:
                passed[r] += 1
    return last, after, passed, held
