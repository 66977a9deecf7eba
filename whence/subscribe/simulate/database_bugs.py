"""Planted bugs of real databases: each takes the place of a part of what ships, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from whence.engine.core.operator import Batch
from whence.runtime.sources import source_feed
from whence.runtime.sources.curiosity import Curiosity
from whence.runtime.sources.reflected import SourceRecord
from whence.runtime.subscriptions.hub import SubscriptionHub
from whence.server.delivery.admissions import Admissions
from whence.subscribe.positions import HistoryLineage, Position
from whence.subscribe.publishing import DeliveryFilter, FilterChange, Publication, PublishingSession, RangeChange
from whence.subscribe.ranges import RangeSet
from whence.subscribe.simulate.node_links import NodeLink
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
    return self._written


def _told_at_once(self: SubscriptionHub) -> int:
    """What is committed is told, synced or not."""
    return self._coordinator.epoch


_amend_session, _amend_publication = PublishingSession.amend, Publication.amend


def _never_lift(self: PublishingSession, rows: Batch, filter: DeliveryFilter) -> None:
    """A key that was quenched stays so."""


def _amend_without_lifting(self: PublishingSession, number: int, base: int, change: FilterChange) -> bool:
    return _amend_session(self, number, base, replace(change, lift=frozenset()))


def _amend_with_old_rows(self: Publication, before: DeliveryFilter, change: FilterChange) -> Any:
    """The rows of keys that are added are older than the position they are told with."""
    filter, epoch, rows = _amend_publication(self, before, change)
    changed = self.recent.last_change(epoch) if not self.append_only else None
    if rows is None or changed is None or not self.recent.reaches(changed[0] - 1):
        return filter, epoch, rows
    last = self.recent.difference(changed[0] - 1, epoch)
    touched = set() if last is None else set(map(tuple, last.rows.tolist()))
    keep = [i for i, row in enumerate(map(tuple, rows.rows.tolist())) if row not in touched]
    return filter, epoch, Batch(rows.rows[keep], rows.ann[keep])


def _never_held(self: Curiosity) -> None:
    """What views show is told while rows that they need are still on their way."""


def _never_blocked(self: NodeLink) -> bool:
    """A client is told what is new, whether or not it takes it."""
    return False


def _rights_of_the_beginning(self: Admissions) -> bool:
    """Who may read is looked at when somebody subscribes, and not when something is told."""
    return True


DATABASE_BUGS: dict[str, list[tuple[Any, str, Any]]] = {
    "no-repeat-check": [(source_feed, "SourceState", _RepeatsTaken)],
    "backup-accepted": [(source_feed, "compare", _any_past)],
    "ticks-apart-from-rows": [(SourceRecord, "write_ranges", _ranges_forgotten)],
    "told-before-synced": [(SubscriptionHub, "told", property(_told_at_once))],
    "quench-never-lifted": [
        (PublishingSession, "_lift", _never_lift),
        (PublishingSession, "amend", _amend_without_lifting),
    ],
    "stale-added-keys": [(Publication, "amend", _amend_with_old_rows)],
    "told-while-rows-lack": [
        (Curiosity, "held", property(_never_held)),
        (Curiosity, "last_whole", lambda self, epoch: epoch),
        (Curiosity, "lacks_rows", lambda self, epoch: False),
    ],
    "queue-per-subscriber": [(NodeLink, "blocked", property(_never_blocked))],
    "rights-checked-once": [(Admissions, "are_current", property(_rights_of_the_beginning))],
}
"""By name: where each bug is planted, and what."""


def describe_bug(name: str) -> str:
    """Return what a bug does wrong."""
    part = DATABASE_BUGS[name][0][2]
    found = part.fget if isinstance(part, property) else part
    return str(found.__doc__)


@contextmanager
def planted(bug: str | None) -> Iterator[None]:
    """Have a bug; None for none."""
    with ExitStack() as stack:
        for where, name, part in DATABASE_BUGS[bug] if bug is not None else ():
            stack.enter_context(mock.patch.object(where, name, part))
        yield
