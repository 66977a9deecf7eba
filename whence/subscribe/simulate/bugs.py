"""Planted bugs: faults that a first implementation has, each as a part that takes the place of the right one.

A simulation that finds nothing shows nothing until it is known to find what is there. `tests/subscribe/test_simulation`
plants each of these and expects a failing seed. The cores themselves have no switches: a bug is a subclass in here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from whence.engine.core.operator import Batch
from whence.subscribe.positions import Position
from whence.subscribe.publishing import (
    DeliveryFilter,
    FilterChange,
    Publication,
    PublishingSession,
    RangeChange,
)
from whence.subscribe.ranges import RangeSet
from whence.subscribe.recent import RecentChanges
from whence.subscribe.simulate.bags import batch_of
from whence.subscribe.simulate.clients import SimulatedClient
from whence.subscribe.simulate.completions import CompletionCheck
from whence.subscribe.simulate.database_bugs import DATABASE_BUGS, describe_bug
from whence.subscribe.simulate.node_parts import NodeSubscriber, ViewSpec
from whence.subscribe.simulate.nodes import SimulatedNode
from whence.subscribe.simulate.oracle import Cut
from whence.subscribe.simulate.plans import Row
from whence.subscribe.simulate.world import Parts
from whence.subscribe.sources import Action, Ask, SourceState


class _RepeatsTaken(SourceState):
    def _is_new(self, told: RangeChange) -> bool:
        return told.upto > told.since


class _NoRepeatCheck(SimulatedNode):
    """What was told twice is applied twice."""

    source_class = _RepeatsTaken


class _SilenceOfAnyInput(SimulatedNode):
    """A view counts as complete up to the last of its inputs' horizons, not the first."""

    def horizon_of(self, view: ViewSpec, own: int) -> int:
        return max(self._horizons(view, own), default=2**62)


class _ToldBeforeSynced(SimulatedNode):
    """What is committed is told, synced or not."""

    def told(self) -> int:
        self._told = len(self.log)
        return self._told


class _PromiseForgotten(SimulatedNode):
    """After a restart time goes on from the clock, whatever was promised."""

    def _first_time(self) -> int:
        return 0


class _AnyPast(SourceState):
    def _same_history(self, position: Position) -> bool:
        return True


class _BackupAccepted(SimulatedNode):
    """A position is taken by its number alone, although the publisher was restored from a backup."""

    source_class = _AnyPast

    def verdict_on(self, have: Position | None) -> str:
        return "unknown" if have is None else "resumed" if have.epoch <= self.told() else "behind"


class _NothingAsked(SourceState):
    def tick(self, now: float) -> list[Action]:
        self._stalls = 0
        return [action for action in super().tick(now) if not isinstance(action, Ask)]


class _GapsNeverAskedFor(SimulatedNode):
    """What was lost on the way to a broker is not asked for."""

    source_class = _NothingAsked


class _ArrivalOrder(SimulatedNode):
    """Rows of several publishers are taken in the order in which they arrived."""

    def order(self, row: Row) -> object:
        return self._arrivals[row]


class _VectorsMerged(SimulatedNode):
    """A client that moves here is told what there is, although it has seen more elsewhere."""

    def may_tell(self, subscriber: NodeSubscriber, told: int) -> bool:
        return bool(told)


class _QuenchedForever(PublishingSession):
    def _lift(self, rows: Batch, filter: DeliveryFilter) -> None:
        pass

    def amend(self, number: int, base: int, change: FilterChange) -> bool:
        return super().amend(number, base, replace(change, lift=frozenset()))


class _QuenchNeverLifted(SimulatedNode):
    """A key that was quenched stays so."""

    session_class = _QuenchedForever


class _RightsCheckedOnce(SimulatedNode):
    """Who may read is looked at when a client subscribes, and not when it is told something."""

    def may_read(self, client: str) -> bool:
        return client in self.subscribers or super().may_read(client)


class _QueuePerSubscriber(SimulatedNode):
    """A client is told what is new, whether or not it takes it."""

    def busy_until(self) -> float:
        return 0.0


class _WrongBase(SimulatedNode):
    """What a slow client is told is the change since the last epoch, not since what it has."""

    def difference(self, recent: RecentChanges, known: int, since: int, upto: int) -> Batch | None:
        changed = recent.last_change(upto)
        return recent.difference(max(since, changed[0] - 1) if changed is not None else since, upto)


class _StaleState(Publication):
    def amend(self, before: DeliveryFilter, change: FilterChange) -> tuple[DeliveryFilter, int, Batch | None]:
        now = self.read_state
        self.read_state = lambda: self._as_before(*now())
        try:
            return super().amend(before, change)
        finally:
            self.read_state = now

    def _as_before(self, epoch: int, batch: Batch) -> tuple[int, Batch]:
        """Return the state as it was before the last change."""
        changed = self.recent.last_change(epoch)
        last = None if changed is None else self.recent.difference(changed[0] - 1, epoch)
        if last is None or not len(last.ann):
            return epoch, batch
        rows: dict[Row, int] = {}
        for sign, part in ((1, batch), (-1, last)):
            for row, count in zip(map(tuple, part.rows.tolist()), part.ann.tolist(), strict=True):
                rows[row] = rows.get(row, 0) + sign * count
        return epoch, batch_of(((row, count) for row, count in rows.items() if count > 0), batch.rows.shape[1])


class _StaleAddedKeys(SimulatedNode):
    """The rows of keys that are added are older than the position they are told with."""

    publication_class = _StaleState


class _GapsAreKnown(CompletionCheck):
    def known_places(self, cut: Cut, unknown: int) -> list[int]:
        gaps = sum(upto - since for since, upto in self.gaps_of(cut))
        return super().known_places(cut._replace(ranges=RangeSet([(0, cut.ranges.last)])), max(0, unknown - gaps))


class _GapsTakenForSilence(SimulatedClient):
    """What a value can still become is read off the last tick that it reflects, as if there were no gaps before."""

    check_class = _GapsAreKnown


BUGS: dict[str, type[SimulatedNode] | type[SimulatedClient]] = {
    "no-repeat-check": _NoRepeatCheck,
    "silence-before-all-inputs": _SilenceOfAnyInput,
    "told-before-synced": _ToldBeforeSynced,
    "promise-forgotten": _PromiseForgotten,
    "backup-accepted": _BackupAccepted,
    "gaps-never-asked-for": _GapsNeverAskedFor,
    "arrival-order": _ArrivalOrder,
    "vectors-merged": _VectorsMerged,
    "quench-never-lifted": _QuenchNeverLifted,
    "wrong-base": _WrongBase,
    "stale-added-keys": _StaleAddedKeys,
    "gaps-taken-for-silence": _GapsTakenForSilence,
    "rights-checked-once": _RightsCheckedOnce,
    "queue-per-subscriber": _QueuePerSubscriber,
}
"""The planted bugs, by name."""


def parts_with(bug: str | None) -> Parts:
    """Return the parts of a run. `database_bugs` has the bugs of databases."""
    part: type[Any] = SimulatedNode if bug is None else BUGS[bug]
    return Parts(node=part) if issubclass(part, SimulatedNode) else Parts(client=part)


def describe_bugs() -> dict[str, Any]:
    """Return what each bug does wrong."""
    databases = {name: describe_bug(name) for name in DATABASE_BUGS}
    return databases | {name: part.__doc__ for name, part in BUGS.items()}
