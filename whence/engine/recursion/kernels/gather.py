"""Every derivation there is, written down: through given rows (forward) or of given rows (backward).

Where the fixpoint asks for one derivation, annotations and explanations ask for all of them. A derivation is written
into `foreign` as (rule, body rows by atom…, head's terms…).
"""

from __future__ import annotations

from whence.engine.recursion.kernels.search import run
from whence.engine.recursion.kernels.store import (
    PAUSED,
    R_BACKWARD,
    R_BACKWARDS,
    R_FORWARD,
    R_FORWARDS,
    RELATION,
    S_CURSOR,
    S_FOREIGN,
    S_META,
    S_PAUSE,
    S_STATUS,
    S_WORK,
    Ints,
    store,
)
from whence.model.jit import kernel


@kernel
def gather(address: int, rows: Ints, counts: Ints, mode: int, backward: bool) -> None:
    """Append to `foreign` the derivations from live rows that have one of `rows` (slots) in their body, or, going
    backward, as their head; `counts[i]` of them belong to `rows[i]`. Goes on from S_CURSOR after an interruption.

    Under GATHER a MIN or MAX head comes with whatever value it gets; under GATHER_SAME, going backward, only with its
    own."""
    k = store(address)
    scalar = k.scalar
    m = scalar[S_META]
    at = R_BACKWARD if backward else R_FORWARD
    count = R_BACKWARDS if backward else R_FORWARDS
    for i in range(scalar[S_CURSOR], len(rows)):
        scalar[S_CURSOR] = i
        scalar[S_PAUSE] -= 1
        if scalar[S_WORK] > scalar[S_PAUSE]:
            scalar[S_STATUS] = PAUSED
            return
        start = scalar[S_FOREIGN]
        relation = k.meta[rows[i], m] & RELATION
        first = k.relations[relation, at]
        for plan in range(first, first + k.relations[relation, count]):
            if not run(k, k.plans[plan], mode, rows[i]):
                scalar[S_FOREIGN] = start  # this row is done anew
                return
        counts[i] = scalar[S_FOREIGN] - start
    scalar[S_CURSOR] = len(rows)
