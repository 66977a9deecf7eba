"""Planted bugs of a broker that is a database: each takes the place of a part of `runtime/sources` for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from whence.runtime.sources import source_feed
from whence.runtime.sources.reflected import SourceRecord
from whence.subscribe.positions import HistoryLineage, Position
from whence.subscribe.publishing import RangeChange
from whence.subscribe.ranges import RangeSet
from whence.subscribe.sources import SourceState


class _RepeatsTaken(SourceState):
    """What was told twice is applied twice."""

    def _is_new(self, told: RangeChange) -> bool:
        return told.upto > told.since


def _any_past(ours: HistoryLineage | None, theirs: HistoryLineage, have: Position | None, at: Position) -> str:
    """A position is taken by its number alone, although the publisher was restored from a backup."""
    return "unknown" if have is None else "resumed" if have.epoch <= at.epoch else "behind"


def _ranges_forgotten(self: SourceRecord, coordinator: Any, writes: Any, reflected: RangeSet, lost: RangeSet) -> Any:
    """Rows are written without the ticks that they cover."""
    return {("", since + 1, upto, False) for since, upto in reflected}


BROKER_BUGS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "no-repeat-check": (source_feed, "SourceState", _RepeatsTaken),
    "backup-accepted": (source_feed, "compare", _any_past),
    "ticks-apart-from-rows": (SourceRecord, "write_ranges", _ranges_forgotten),
}
"""By name: where the bug is planted, and what."""


@contextmanager
def planted(bug: str | None) -> Iterator[None]:
    """Have a bug in brokers; None for none."""
    if bug is None:
        yield
        return
    where, name, part = BROKER_BUGS[bug]
    right = getattr(where, name)
    setattr(where, name, part)
    try:
        yield
    finally:
        setattr(where, name, right)
