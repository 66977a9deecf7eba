"""When rows are derived again that were derived before: limits of recursion do not apply, and a derivation that fails
(a number out of range, a NULL where none may be) is passed over.

A limit ends what has no end. What a log or an image has was accepted once, perhaps by several epochs or in partitions
that count otherwise; doing it again, or going back to it, must not fail because it is done in another order.

Passing over is right because a derivation from rows of a state that existed does not fail: every row was joined forward
when it last changed, with all the others, and an error would have refused the epoch. So the state is the least fixpoint
of the rules without the derivations that fail, and it is enough that nothing on the way to it goes beyond it:

    sets      Rows go before rows come, so a state on the way is derived from fewer external rows (and absences), and
              has only rows of the state that existed; no derivation of them fails. What fails is half a binding that no
              other row completes, or (DRED) one through rows that are going, which gave no row when they were there.
    MIN, MAX  A group on the way has a value that is no better than the one it will have, for rules keep the order of
              values. A derivation from a worse value may fail (9e18 + 1e18) where the better one does not. It is not
              missed: a group that improves is joined forward again. Nor is it a better value that is passed over, as
              the best ones are derived from best ones, which do not fail.
    Python    What only Python can compute is never a value of MIN or MAX in its own recursion: as for sets.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_here = threading.local()


@contextmanager
def replaying(known: bool = True) -> Iterator[None]:
    """Inside, this thread derives what has been derived before, if that is known."""
    outside = is_replaying()
    _here.known = outside or known
    try:
        yield
    finally:
        _here.known = outside


def is_replaying() -> bool:
    """Whether this thread derives what has been derived before."""
    return getattr(_here, "known", False)
