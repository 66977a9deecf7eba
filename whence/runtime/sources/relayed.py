"""A relation in the ticks of a history: how a server tells brokers of it.

The ticks of what a database has by itself are its own epochs. A source, and what is selected and projected of one, is
told in the ticks of the source's own history, so that whoever follows it may go on anywhere else where the same history
is to be had: at the publisher, or at another broker.

Rows of a stream are read from what it retains, by their arrival numbers: `EpochArrivals` and `$ticks` say which tick
each came in, also after a restart. Changes of a table are those that its followers share (`RecentChanges`).

The law: for ticks `since <= upto <= told`, `difference(since, upto)` is how the relation as of `upto` differs from the
relation as of `since`, or None if that is not known any more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

import numpy as np

from whence.engine.core.operator import Batch
from whence.engine.streams.connection_point import ConnectionPoint
from whence.model.codes import Codes
from whence.plan.algebra import logical
from whence.plan.algebra.expressions import Col, strip_casts
from whence.plan.algebra.logical import Project, Scan, Select
from whence.runtime.sources.reflected import SourceRecord, TickEntry, TickIndex
from whence.runtime.subscriptions.channels import Channel, FollowedRelation
from whence.subscribe.positions import HistoryLineage
from whence.subscribe.publishing import Publication
from whence.subscribe.ranges import RangeSet

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

Run = tuple[int, int, int]
"""A tick, its time, and how many rows in a row came in it."""

SMALL = 20_000
"""Rows that are told at once."""

_TICK, _FIRST = attrgetter("tick"), attrgetter("first")


class TickedRelation(Protocol):
    """A relation in the ticks of a history."""

    publication: Publication
    is_stream: bool

    @property
    def lineage(self) -> HistoryLineage:
        """The history whose epochs the ticks are."""

    def told(self, epoch: int) -> RangeSet:
        """Return the ticks that may be told as of an epoch of ours: of a stream all that are here, also beyond a gap,
        of a table those up to the first gap."""

    def time(self, epoch: int) -> int:
        """Return the time before which nothing more comes, as of an epoch of ours."""

    def small_step(self, sent: RangeSet, told: RangeSet, most: int = SMALL) -> RangeSet:
        """Return what of the ticks that may be told is not too large to be told at once, given those that were."""

    def runs(self, numbers: Codes) -> list[Run]:
        """Return the ticks of rows of a stream, given their arrival numbers."""

    def time_of_change(self, tick: int) -> int:
        """Return the time of the last change of a table up to a tick."""


def ticked_relation(coordinator: Coordinator, channel: Channel) -> TickedRelation:
    """Return what a channel of one relation follows, in the ticks that it is told in."""
    [part] = channel.parts
    record = _relayed(coordinator, part.name)
    if part.is_stream:
        return _OwnStream(coordinator, part) if record is None else _RelayedStream(coordinator, part, record)
    return _OwnTable(coordinator, channel) if record is None else _RelayedTable(coordinator, channel, record)


def _relayed(coordinator: Coordinator, name: str) -> SourceRecord | None:
    """Return the record of the source that a relation is, or is selected and projected of; None if it is another."""
    broker = coordinator.broker
    if broker is None:
        return None
    source = source_beneath(coordinator, name)
    return None if source is None else broker.records.get(source)


def source_beneath(coordinator: Coordinator, name: str) -> str | None:
    """Return the source that a relation is, or that it selects rows and columns of."""
    found = table_beneath(coordinator, name)
    return found if found is not None and coordinator.program.tables[found].source is not None else None


def table_beneath(coordinator: Coordinator, name: str) -> str | None:
    """Return the table or stream that a relation is, or that it selects rows and columns of."""
    if name in coordinator.program.tables:
        return name
    transient = coordinator.catalog.transient.get(name)
    view = coordinator.program.views.get(name) if transient is None else transient.view
    if view is None:
        return None
    nodes = list(logical.walk(view.query))
    if not all(isinstance(node, (Select, Project, Scan)) for node in nodes):
        return None
    [scanned] = [node.table for node in nodes if isinstance(node, Scan)]
    return table_beneath(coordinator, scanned)


# -- streams ---------------------------------------------------------------------------------------------------------


class _Retained:
    """The rows that a stream, or a view that is one, retains."""

    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self._coordinator, self._name = coordinator, name

    @property
    def kept(self) -> ConnectionPoint:
        flow = self._coordinator.catalog.flow
        found: ConnectionPoint = (flow.tables if self._name in flow.tables else flow.views)[self._name].kept
        return found

    def first_number(self) -> int:
        """Return the arrival number from which on every row is here: of the view, and of all streams beneath it."""
        streams, found = self._coordinator.catalog.flow.streams, 1
        for name in {self._name, *base_streams(self._coordinator, self._name)}:
            kept = self.kept if name == self._name else streams[name].kept
            if not kept.complete:
                found = max(found, int(kept.rows[0, -1]) if len(kept) else kept.reached + 1)
        return found

    def between(self, first: int, last: int) -> Codes:
        """Return the rows whose arrival numbers are from `first` to `last`, with these."""
        kept = self.kept
        start, end = kept.find_at(first), kept.find_at(last + 1)
        rows, _ = kept.between(start, end - 1)
        return rows.copy()


def base_streams(coordinator: Coordinator, name: str) -> set[str]:
    """Return the base streams beneath a relation."""
    found, waiting, seen = set[str](), [name], set[str]()
    catalog = coordinator.catalog
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        if one in catalog.flow.streams:
            found.add(one)
            continue
        transient = catalog.transient.get(one)
        view = catalog.planned.views.get(one) if transient is None else transient.view
        if view is not None:
            waiting += [other for node in logical.walk(view.query) for other in node.names]
    return found


class _StreamHistory:
    """A stream in ticks, with the questions that `RecentChanges` answers. Under the state's lock."""

    def __init__(self, coordinator: Coordinator, part: FollowedRelation) -> None:
        self.coordinator, self.rows = coordinator, _Retained(coordinator, part.name)
        self.width = len(part.schema) + 1

    @property
    def start(self) -> int:
        raise NotImplementedError

    def reaches(self, since: int) -> bool:
        """Return whether the rows after a tick are known."""
        return since >= self.start

    def difference(self, since: int, upto: int) -> Batch | None:
        raise NotImplementedError

    def _batch(self, rows: Codes) -> Batch:
        return Batch(rows, np.ones(len(rows), np.int64), True)


class _OwnHistory(_StreamHistory):
    """A stream in the epochs of its database."""

    @property
    def start(self) -> int:
        """The tick after which every row is known."""
        arrivals, first = self.coordinator.arrivals, self.rows.first_number()
        return 0 if first == 1 else int(arrivals.ticks(np.array([first - 1], np.int64))[0][0])

    def difference(self, since: int, upto: int) -> Batch | None:
        """Return the rows that came after `since` and up to `upto`, with their arrival numbers."""
        arrivals = self.coordinator.arrivals
        if not self.reaches(since) or 0 < since < arrivals.start:
            return None
        before, last = arrivals.span(since, upto)
        return self._batch(self.rows.between(before + 1, last))

    def next_change(self, since: int, upto: int) -> int | None:
        """Return the first tick after `since` and up to `upto` that brought rows."""
        return self.coordinator.arrivals.next_epoch(since, upto)


class _RelayedHistory(_StreamHistory):
    """A source that is a stream, in the ticks of its publisher."""

    def __init__(self, coordinator: Coordinator, part: FollowedRelation, record: SourceRecord) -> None:
        super().__init__(coordinator, part)
        self._record, self._index = record, TickIndex(coordinator, record.name)

    def entries(self, since: int, upto: int) -> list[TickEntry]:
        """Return the ticks after `since` and up to `upto` that brought rows."""
        self._index.refresh()
        found = self._index.entries
        first, last = (bisect_right(found, tick, key=_TICK) for tick in (since, upto))
        return found[first:last]

    def arrivals(self, numbers: Codes) -> list[TickEntry]:
        """Return the ticks that brought rows, given their arrival numbers, and those that came between them."""
        found = self._index.arrived
        first, last = (bisect_right(found, number, key=_FIRST) for number in (int(numbers.min()), int(numbers.max())))
        return found[first - 1 : last]

    @property
    def start(self) -> int:
        """The tick after which every row is known; `absent` says which ticks are not, one by one."""
        return 0

    def absent(self, since: int, upto: int) -> tuple[RangeSet, RangeSet]:
        """Return the ticks of a range that are lost, and those whose rows were let go of here."""
        self._index.refresh()
        lost, start = self._record.lost.within(since, upto), self._index.start(self.rows.first_number())
        return lost, RangeSet([(since, min(start, upto))]).minus(lost)

    def difference(self, since: int, upto: int) -> Batch | None:
        """Return the rows that came after `since` and up to `upto`, with their arrival numbers."""
        if any(self.absent(since, upto)):
            return None
        spans: list[list[int]] = []
        for entry in self.entries(since, upto):
            if spans and spans[-1][1] + 1 == entry.first:
                spans[-1][1] += entry.rows
            else:
                spans.append([entry.first, entry.first + entry.rows - 1])
        found = [self.rows.between(first, last) for first, last in spans]
        return self._batch(np.concatenate(found) if found else np.empty((0, self.width), np.int64))

    def next_change(self, since: int, upto: int) -> int | None:
        """Return the first tick after `since` and up to `upto` that brought rows."""
        found = self.entries(since, upto)
        return found[0].tick if found else None


class _OwnStream:
    is_stream = True

    def __init__(self, coordinator: Coordinator, part: FollowedRelation) -> None:
        self._coordinator, self._history = coordinator, _OwnHistory(coordinator, part)
        self.publication = _stream_publication(self._history, lambda: coordinator.durable_epoch)

    @property
    def lineage(self) -> HistoryLineage:
        return self._coordinator.lineage

    def told(self, epoch: int) -> RangeSet:
        return RangeSet([(0, epoch)])

    def time(self, epoch: int) -> int:
        return _time_of(self._coordinator, epoch)

    def small_step(self, sent: RangeSet, told: RangeSet, most: int = SMALL) -> RangeSet:
        arrivals, history = self._coordinator.arrivals, self._history
        for since, upto in told.minus(sent):
            before, last = arrivals.span(since, upto)
            if last - before > most and history.reaches(since):
                found = int(arrivals.ticks(np.array([before + most], np.int64))[0][0])
                return told.upto(min(max(found, since + 1), upto))
        return told

    def runs(self, numbers: Codes) -> list[Run]:
        return _in_runs(*self._coordinator.arrivals.ticks(numbers))

    def time_of_change(self, tick: int) -> int:
        return 0


class _RelayedStream:
    is_stream = True

    def __init__(self, coordinator: Coordinator, part: FollowedRelation, record: SourceRecord) -> None:
        self._coordinator, self._record = coordinator, record
        self._history = _RelayedHistory(coordinator, part, record)
        self.publication = _stream_publication(
            self._history, lambda: self.told(coordinator.durable_epoch).horizon, self._history.absent
        )

    @property
    def lineage(self) -> HistoryLineage:
        return _lineage_of(self._record)

    def told(self, epoch: int) -> RangeSet:
        return self._record.as_of(epoch).reflected

    def time(self, epoch: int) -> int:
        return self._record.as_of(epoch).time

    def small_step(self, sent: RangeSet, told: RangeSet, most: int = SMALL) -> RangeSet:
        rows = 0
        for since, upto in told.minus(sent):
            for entry in self._history.entries(since, upto):
                rows += entry.rows
                if rows > most:
                    return told.upto(entry.tick)
        return told

    def runs(self, numbers: Codes) -> list[Run]:
        entries = self._history.arrivals(numbers)
        firsts = np.array([entry.first for entry in entries], np.int64)
        at = np.searchsorted(firsts, numbers, "right") - 1
        ticks = np.array([entry.tick for entry in entries], np.int64)[at]
        return _in_runs(ticks, np.array([entry.time for entry in entries], np.int64)[at])

    def time_of_change(self, tick: int) -> int:
        return 0


def _stream_publication(
    history: _StreamHistory,
    told: Callable[[], int],
    absent: Callable[[int, int], tuple[RangeSet, RangeSet]] | None = None,
) -> Publication:
    def state() -> tuple[int, Batch]:
        return told(), Batch.empty(history.width)

    return Publication(history, state, append_only=True, read_absent=absent)  # type: ignore[arg-type]  # as recent changes


def _in_runs(ticks: Codes, times: Codes) -> list[Run]:
    if not len(ticks):
        return []
    starts = np.flatnonzero(np.diff(ticks, prepend=ticks[0] - 1))
    counts = np.diff(starts, append=len(ticks))
    return [(int(ticks[s]), int(times[s]), int(n)) for s, n in zip(starts, counts, strict=True)]


# -- tables ----------------------------------------------------------------------------------------------------------


class _OwnTable:
    is_stream = False

    def __init__(self, coordinator: Coordinator, channel: Channel) -> None:
        self._coordinator, [part] = coordinator, channel.parts
        self._recent = part.recent
        self.publication = Publication(part.recent, lambda: _state(coordinator, channel), _key(coordinator, part.name))

    @property
    def lineage(self) -> HistoryLineage:
        return self._coordinator.lineage

    def told(self, epoch: int) -> RangeSet:
        return RangeSet([(0, epoch)])

    def time(self, epoch: int) -> int:
        return _time_of(self._coordinator, epoch)

    def small_step(self, sent: RangeSet, told: RangeSet, most: int = SMALL) -> RangeSet:
        return told

    def runs(self, numbers: Codes) -> list[Run]:
        return []

    def time_of_change(self, tick: int) -> int:
        found = self._recent.last_change(tick)
        return 0 if found is None else found[1]


class _RelayedChanges:
    """The recent changes of a table that is a source, in the ticks of its publisher."""

    def __init__(self, part: FollowedRelation, record: SourceRecord) -> None:
        self._part, self._record = part, record

    def _epoch(self, tick: int) -> int | None:
        """Return the last epoch of ours in which everything up to a tick was there, and nothing after it."""
        found = None
        for mark in self._record.marks:
            if mark.reflected.horizon == tick:
                found = mark.epoch
        return found

    @property
    def start(self) -> int:
        """The tick after which every change is known."""
        known = (m.reflected.horizon for m in self._record.marks if self._part.recent.reaches(m.epoch))
        return next(known, self._record.reflected.horizon)

    def reaches(self, since: int) -> bool:
        """Return whether the changes after a tick are known."""
        epoch = self._epoch(since)
        return epoch is not None and self._part.recent.reaches(epoch)

    def difference(self, since: int, upto: int) -> Batch | None:
        """Return the net change after `since` and up to `upto`."""
        first, last = self._epoch(since), self._epoch(upto)
        return None if first is None or last is None else self._part.recent.difference(first, last)

    def next_change(self, since: int, upto: int) -> int | None:
        """Return the first tick after `since` and up to `upto` as of which the table was another."""
        first, last = self._epoch(since), self._epoch(upto)
        found = None if first is None or last is None else self._part.recent.next_change(first, last)
        return None if found is None else self._record.as_of(found).reflected.horizon


class _RelayedTable:
    is_stream = False

    def __init__(self, coordinator: Coordinator, channel: Channel, record: SourceRecord) -> None:
        self._coordinator, self._record, [part] = coordinator, record, channel.parts

        def state() -> tuple[int, Batch]:
            epoch, batch = _state(coordinator, channel)
            return self.told(epoch).last, batch

        changes = _RelayedChanges(part, record)
        self.publication = Publication(changes, state, _key(coordinator, part.name))  # type: ignore[arg-type]

    @property
    def lineage(self) -> HistoryLineage:
        return _lineage_of(self._record)

    def told(self, epoch: int) -> RangeSet:
        return RangeSet([(0, self._record.as_of(epoch).reflected.horizon)])

    def time(self, epoch: int) -> int:
        return self._record.as_of(epoch).time

    def small_step(self, sent: RangeSet, told: RangeSet, most: int = SMALL) -> RangeSet:
        return told

    def runs(self, numbers: Codes) -> list[Run]:
        return []

    def time_of_change(self, tick: int) -> int:
        return next((m.time for m in self._record.marks if m.reflected.horizon >= tick), 0)


def _state(coordinator: Coordinator, channel: Channel) -> tuple[int, Batch]:
    """Return the rows at the last epoch: never at one before what was told already."""
    with coordinator.reading():
        rows, counts = coordinator.reader.contents(channel.parts[0].name)
        return coordinator.epoch, Batch(rows, counts)


def _key(coordinator: Coordinator, name: str) -> tuple[int, ...]:
    """Return the columns of a relation that have the primary key of the table that it selects rows and columns of."""
    table = coordinator.program.tables.get(name)
    if table is not None:
        return table.key
    if table_beneath(coordinator, name) is None:
        return ()
    transient = coordinator.catalog.transient.get(name)
    node = (coordinator.program.views[name] if transient is None else transient.view).query
    places = list(range(len(node.schema)))  # columns of the node, by those of the relation; -1: none
    while isinstance(node, (Select, Project)):
        if isinstance(node, Project):
            exprs = [strip_casts(expr) for expr in node.exprs]
            found = [exprs[place] if place >= 0 else None for place in places]
            places = [expr.index if isinstance(expr, Col) else -1 for expr in found]
        node = node.input
    [beneath] = node.names
    below = _key(coordinator, beneath)
    return tuple(places.index(column) for column in below) if set(below) <= set(places) else ()


def _time_of(coordinator: Coordinator, epoch: int) -> int:
    """Return the time of an epoch, or an earlier one."""
    return coordinator.time if epoch >= coordinator.epoch else coordinator.arrivals.time_of(epoch)


def _lineage_of(record: SourceRecord) -> HistoryLineage:
    return record.lineage or HistoryLineage("0" * 12)


__all__ = ["TickedRelation", "base_streams", "source_beneath", "table_beneath", "ticked_relation"]
