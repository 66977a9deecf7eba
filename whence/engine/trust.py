"""When rows are derived again that were derived before: limits of recursion do not apply.

A limit ends what has no end. What a log or an image has was accepted once, perhaps by several epochs or in partitions
that count otherwise; doing it again must not fail because it is done all at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_here = threading.local()


@contextmanager
def derived_before(known: bool = True) -> Iterator[None]:
    """Inside, this thread derives what has been derived before, if that is known."""
    outside = is_known()
    _here.known = outside or known
    try:
        yield
    finally:
        _here.known = outside


def is_known() -> bool:
    """Whether this thread derives what has been derived before."""
    return getattr(_here, "known", False)
