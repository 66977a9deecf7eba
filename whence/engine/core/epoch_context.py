"""The epoch that is being run, for operators that go by its time or its number; a replay runs at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_here = threading.local()


class EpochContext(NamedTuple):
    """An epoch's number, and its time in microseconds since 1970."""

    number: int
    time: int


@contextmanager
def epoch_context(number: int, time: int) -> Iterator[None]:
    """Inside, this thread runs that epoch."""
    outside = moment()
    _here.moment = EpochContext(number, time)
    try:
        yield
    finally:
        _here.moment = outside


def moment() -> EpochContext | None:
    """The epoch that this thread runs; None where views are only being filled."""
    return getattr(_here, "moment", None)
