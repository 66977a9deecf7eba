"""The horizons that a followed relation's rows close by, as of any epoch that may be told.

The law: `as_of(epoch)` has nothing that was established after that epoch, so what is told at a position is evaluated by
what was true then. What is not known any more of an old epoch is left out, which claims less.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

from whence.model.codes import decode_value
from whence.model.types import Type
from whence.plan.knowledge.model import RelationKnowledge
from whence.subscribe.horizons import NO_HORIZONS, Bound, ClosedKeys, Key, KnownHorizons
from whence.subscribe.plain import type_of

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


class ClosedKeyLog:
    """The keys that a stream has closed, by the epochs by which that was known."""

    def __init__(self, coordinator: Coordinator, stream: str) -> None:
        self._coordinator, self._stream = coordinator, stream
        self._guard = threading.Lock()
        with coordinator.looking():
            self._at = coordinator.epoch
            self.keys = ClosedKeys(coordinator.horizons().closed_keys(stream))
        self._epochs, self._counts = [self._at], [len(self.keys.keys)]

    def advance(self, upto: int) -> None:
        """Take in what was closed up to an epoch."""
        with self._guard:
            if upto <= self._at:
                return
            coordinator = self._coordinator
            with coordinator.looking():
                changed = coordinator.horizons(upto).changed_since(self._at)
                closed: Iterable[Key] = changed.closed.get(self._stream, ())
                if not changed.complete:
                    closed, upto = coordinator.horizons().closed_keys(self._stream), coordinator.epoch
            self._at = upto
            before = len(self.keys.keys)
            self.keys.add(list(closed))
            if len(self.keys.keys) > before:
                self._epochs.append(upto)
                self._counts.append(len(self.keys.keys))

    def count(self, epoch: int) -> int:
        """Return how many of the keys were closed as of an epoch."""
        at = bisect_right(self._epochs, epoch)
        return self._counts[at - 1] if at else 0


class RelationHorizons:
    """The horizons of the sources of one relation."""

    def __init__(self, coordinator: Coordinator, knowledge: RelationKnowledge, logs: dict[str, ClosedKeyLog]) -> None:
        """`logs` are the closed keys by stream that others follow already; what is missing is added."""
        self._coordinator = coordinator
        self._ordered = list[tuple[int, str, int, Type]]()
        self._logs = dict[int, ClosedKeyLog]()
        for use, source in enumerate(knowledge.sources):
            if source.is_stream and source.ordered is not None:
                type = type_of(source.columns[source.ordered].type)
                self._ordered.append((use, source.name, source.ordered, type))
            if source.is_stream and source.closes:
                if source.name not in logs:
                    logs[source.name] = ClosedKeyLog(coordinator, source.name)
                self._logs[use] = logs[source.name]
        self._last: tuple[int, KnownHorizons] = (-1, NO_HORIZONS)

    @property
    def can_move(self) -> bool:
        """Whether anything is ever established: else there is nothing to look for."""
        return bool(self._ordered or self._logs)

    @property
    def closes_keys(self) -> bool:
        """Whether keys are closed by a stream: then `advance` takes a lock."""
        return bool(self._logs)

    def advance(self, upto: int) -> None:
        """Take in what was established up to an epoch."""
        for log in self._logs.values():
            log.advance(upto)

    def as_of(self, epoch: int) -> KnownHorizons:
        """Return the horizons as of an epoch."""
        at, found = self._last
        if at != epoch:
            closed = {use: (log.keys, log.count(epoch)) for use, log in self._logs.items()}
            found = KnownHorizons(self._bounds(epoch), closed)
            self._last = epoch, found
        return found

    def changes(self, since: int | None, upto: int) -> tuple[dict[int, Bound], dict[int, list[Key]]]:
        """Return what was established after an epoch, or at all, and up to another."""
        bounds = self._bounds(upto)
        if since is not None:
            before = self._bounds(since)
            bounds = {use: bound for use, bound in bounds.items() if before.get(use) != bound}
        closed = {}
        for use, log in self._logs.items():
            keys = log.keys.keys[0 if since is None else log.count(since) : log.count(upto)]
            if keys:
                closed[use] = keys
        return bounds, closed

    def _bounds(self, epoch: int) -> dict[int, Bound]:
        found = dict[int, Bound]()
        history, dictionary = self._coordinator.horizon_history, self._coordinator.dictionary
        for use, stream, column, type in self._ordered:
            while True:
                try:
                    code = history.bound(stream, column, epoch)
                except IndexError:  # the thread that commits is adding one
                    continue
                break
            if code is not None:
                found[use] = decode_value(code, type, dictionary), False
        return found
