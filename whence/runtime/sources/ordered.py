"""Rows of several sources in one order: that of (time, history, tick), as far as all of them are known.

Views that depend on the order of rows (`plan/order_sensitive.py`) read ordered twins of their sources. The sources that
they read together are a group. What comes from the sources of a group waits here until no source can still bring
anything before it; then it is released, to the twins of streams and to tables themselves. While something waits, the
sources that it waits for are asked where they are by now.

The law: the rows of the twins of a group, and the changes of its tables, are written in the order of (time, history,
tick), at every broker the same. Everything still to come of a source is behind its frontier: the time that it has
promised, its history, and the tick up to which all are here. So what is not behind any frontier of the group is
released. Where a table decides what is asked of a stream of the group, releasing pauses after its change until the
rows that it asks for are here.

Rows of a stream that wait are in the stream already and are found again after a restart by `$ticks`; changes of a table
that wait are asked for again, for its ticks are reflected only when they are released.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from whence.io.rows import encode
from whence.model.codes import Codes
from whence.plan.algebra.program import ordered_name
from whence.plan.order_sensitive import OrderedGroup, ordered_groups
from whence.runtime.sources.definition import define_table
from whence.runtime.sources.reflected import RELEASED, TickIndex, internal_rows
from whence.runtime.sources.source_writer import FeedEpoch, Work
from whence.runtime.writing.transaction import Transaction
from whence.sql import statements as st
from whence.sql.parse import parse_one
from whence.subscribe.sources import Apply, ApplyState, LoseRange

if TYPE_CHECKING:
    from whence.runtime.sources.broker import Broker
    from whence.runtime.sources.source_feed import SourceFeed

log = logging.getLogger("whence")
HURRY = 0.1
"""Seconds between two questions where a source is that others wait for."""

_PREFIX = ordered_name("")
_BEFORE = (-1, "", 0)  # everything


class _Waiting(NamedTuple):
    """Something that waits for its turn: rows of a stream, a change of a table, or a promise."""

    time: int
    history: str
    tick: int
    number: int  # of its arrival here: a promise follows the rows that it is about
    source: str
    rows: Codes | None = None
    work: Work | None = None
    promise: tuple[str, Any] | None = None

    @property
    def key(self) -> tuple[int, str, int]:
        return self.time, self.history, self.tick


class OrderedRelease:
    """The ordered groups of one broker. Used by the writer's thread, but where it says otherwise."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._coordinator = broker, broker.coordinator
        self._groups: list[OrderedGroup] = []
        self._waiting: dict[frozenset[str], list[_Waiting]] = {}
        self._done: dict[frozenset[str], tuple[int, str, int]] = {}  # up to where each group is released
        self._number = count()
        self._hurrying = False

    # -- twins -------------------------------------------------------------------------------------------------------

    def declare_twins(self, groups: Sequence[OrderedGroup]) -> bool:
        """Have a twin of each stream of some groups; return whether any is new. Not called with a lock held."""
        coordinator, made = self._coordinator, False
        for name in sorted({name for group in groups for name in group.sources}):
            table = coordinator.program.tables[name]
            if table.stream is None or ordered_name(name) in coordinator.program.tables:
                continue
            definition, _, promises = define_table(table).removeprefix("STREAM ").partition(" WITH (")
            retain = "retain = '" + table.stream.text.replace("'", "''") + "')"
            options = f"{promises.removesuffix(')')}, {retain}" if promises else retain
            create = parse_one(f'CREATE STREAM "{ordered_name(name)}" {definition} WITH ({options}')
            assert isinstance(create, st.CreateTable)
            made = coordinator.definitions.create_table(create, internal=True) or made
        return made

    def drop_unused(self) -> None:
        """Drop the twins of sources that are gone. Not called with a lock held."""
        program = self._coordinator.program
        for name in [name for name in program.tables if name.startswith(_PREFIX)]:
            if name.removeprefix(_PREFIX) not in program.tables:
                self._coordinator.definitions.drop("stream", name, cascade=True, if_exists=True)

    def begin_again(self, name: str) -> None:
        """Have a stream without rows, and its twin: its publisher has another past."""
        twin = ordered_name(name)
        streams = [name, *([twin] if twin in self._coordinator.program.tables else [])]
        self._coordinator.definitions.renew(streams, [name])
        self._set_released({name: None})
        self.regroup(anew=True)

    # -- groups ------------------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Return whether a source is read in order. Any thread may ask."""
        return any(name in group.sources for group in self._groups)

    def regroup(self, anew: bool = False) -> None:
        """Find the groups that there are now, and what waits in them."""
        coordinator = self._coordinator
        program = coordinator.program.copy()
        for transient in coordinator.catalog.transient.values():
            program.views |= transient.bound
        groups = ordered_groups(program)
        if {g.sources for g in groups} == {g.sources for g in self._groups} and not anew:
            self._groups = groups
            self.release()
            return
        former, self._groups = {group.sources for group in self._groups}, groups
        same = {group.sources for group in groups} & self._done.keys()
        self._done = {} if anew else {sources: self._done[sources] for sources in same}
        for group in groups:
            if group.sources not in former:
                self._merge_orders(group)
        kept = {each.number: each for heap in self._waiting.values() for each in heap if each.work is not None}
        self._waiting = {group.sources: [] for group in groups}
        for group in groups:
            for name in sorted(group.sources):
                self._load(name)
        for each in kept.values():
            self._add(each)
        self.release()

    def _merge_orders(self, group: OrderedGroup) -> None:
        """Begin the twins of a group anew that have rows in an order which the others had no part in."""
        coordinator = self._coordinator
        released, twins = self._released(), [n for n in sorted(group.sources) if self._has_twin(n)]
        if len(twins) > 1 and any(name in released for name in twins):
            coordinator.definitions.renew([ordered_name(name) for name in twins], sorted(group.sources))
            self._set_released(dict.fromkeys(twins))

    def _has_twin(self, name: str) -> bool:
        return ordered_name(name) in self._coordinator.program.tables

    def _load(self, name: str) -> None:
        """Find the rows of a stream that its twin does not have yet."""
        coordinator = self._coordinator
        record = self._broker.records.get(name)
        if not self._has_twin(name) or record is None or record.lineage is None:
            return
        last = self._released().get(name, 0)
        with coordinator.looking():
            index = TickIndex(coordinator, name)
            index.refresh()
            kept = coordinator.catalog.flow.streams[name].kept
            for entry in index.entries:
                if entry.tick > last:
                    first, end = kept.find_at(entry.first), kept.find_at(entry.first + entry.rows)
                    rows = kept.between(first, end - 1)[0][:, :-1].copy()
                    number = next(self._number)
                    self._add(_Waiting(entry.time, record.lineage.history, entry.tick, number, name, rows))

    def _add(self, waiting: _Waiting) -> None:
        for sources, heap in self._waiting.items():
            if waiting.source in sources and (waiting.rows is None or waiting.key > self._done.get(sources, _BEFORE)):
                heapq.heappush(heap, waiting)

    def released_tick(self, name: str) -> int:
        """Return a tick of a source such that all of it up to there is released, and hardly anything after it. Asked
        while a change is committed that decides what the source is asked for."""
        record = self._broker.records[name]
        done = next((key for sources, key in self._done.items() if name in sources), None)
        if done is None:
            return record.reflected.horizon
        history = "" if record.lineage is None else record.lineage.history
        passed = [mark.reflected.horizon for mark in record.marks if (mark.time, history) < done[:2]]
        return max(passed, default=0)

    # -- what comes --------------------------------------------------------------------------------------------------

    def divert(self, feed: SourceFeed, works: Sequence[Work]) -> list[Work]:
        """Keep back the changes of a table that others must come before; return what is to be done at once."""
        name = feed.table.name
        if feed.table.stream is not None or not self.has(name):
            return list(works)
        lineage = feed.lineage
        passed = list[Work]()
        for work in works:
            is_first = isinstance(work, ApplyState) and not len(feed.record.reflected)
            if not isinstance(work, (Apply, ApplyState, LoseRange)) or is_first or lineage is None:
                passed.append(work)
                continue
            time = self._time_of(work) or feed.record.time
            tick = work.at if isinstance(work, ApplyState) else work.upto
            self._add(_Waiting(time, lineage.history, tick, next(self._number), name, work=work))
        return passed

    @staticmethod
    def _time_of(work: Apply | ApplyState | LoseRange) -> int | None:
        if isinstance(work, Apply) and work.rows is not None and work.rows.ticks:
            return int(work.rows.ticks[-1][1])
        return None if isinstance(work, LoseRange) else work.time

    def add_rows(self, feed: SourceFeed, runs: Sequence[tuple[int, int, int]], rows: Codes) -> None:
        """Note rows that were appended to a stream."""
        name, lineage = feed.table.name, feed.record.lineage
        if not self.has(name) or not self._has_twin(name) or lineage is None:
            return
        start = 0
        for tick, time, number in runs:
            part = rows[start : start + number]
            self._add(_Waiting(time, lineage.history, tick, next(self._number), name, part))
            start += number

    def takes(self, feed: SourceFeed) -> bool:
        """Return whether promises of a stream wait for their turn: it is read in order."""
        table = feed.table.name
        return self.has(table) and self._has_twin(table) and feed.record.lineage is not None

    def add_promise(self, feed: SourceFeed, name: str, value: Any) -> bool:
        """Note a promise of a stream that is read in order; return False if it is none, and holds at once."""
        if not self.takes(feed):
            return False
        time, history, tick = feed.record.frontier
        self._add(_Waiting(time, history, tick, next(self._number), feed.table.name, promise=(name, value)))
        return True

    # -- releasing ---------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Write what nothing can come before any more."""
        stuck = set[str]()
        for sources, heap in self._waiting.items():
            frontiers = {name: self._frontier(name) for name in sources}
            least = min(frontiers.values())
            ready = list[_Waiting]()
            while heap and heap[0].key <= least:
                ready.append(heapq.heappop(heap))
            batches = _in_epochs(ready)
            while batches and not self._is_lacking(sources):
                batch = batches.pop(0)
                self._done[sources] = max(batch[0].key, self._done.get(sources, _BEFORE))
                self._write(batch)
                self._done[sources] = max(batch[-1].key, self._done[sources])
            for each in (each for batch in batches for each in batch):
                heapq.heappush(heap, each)
            if heap:
                stuck |= {name for name, frontier in frontiers.items() if frontier < heap[0].key}
        if stuck:
            self._hurry_soon(stuck)

    def _is_lacking(self, sources: frozenset[str]) -> bool:
        """Return whether rows were asked for that may come before what waits."""
        return any(name in sources for name in self._broker.curiosity.waiting)

    def _frontier(self, name: str) -> tuple[int, str, int]:
        """Return what everything that is still to come of a source is behind."""
        record, feed = self._broker.records.get(name), self._broker.feeds.get(name)
        if record is None or feed is None or record.lineage is None:
            return _BEFORE
        if feed.table.stream is not None:
            return record.frontier
        return max(feed.told_time, record.time), record.lineage.history, feed.state.reflected.horizon

    def _write(self, batch: Sequence[_Waiting]) -> None:
        coordinator, released = self._coordinator, dict[str, tuple[int, int]]()
        changes = list[FeedEpoch]()
        for name in dict.fromkeys(each.source for each in batch if each.work is not None):
            feed = self._broker.feeds.get(name)
            works = [each.work for each in batch if each.source == name and each.work is not None]
            if feed is not None:
                changes.append(FeedEpoch(self._broker.writer, feed, works))

        def write(writes: Transaction) -> None:
            for each in batch:
                if each.rows is not None and self._has_twin(each.source):
                    writes.table(ordered_name(each.source)).insert(each.rows)
                    released[each.source] = (each.tick, each.time)
            if released:
                rows = [(name, tick, time) for name, (tick, time) in released.items()]
                schema = coordinator.program.tables[RELEASED].schema
                writes.table(RELEASED).insert(encode(rows, schema, coordinator.dictionary, RELEASED))

        if changes or any(each.rows is not None for each in batch):
            self._broker.writer.commit(changes, write)
            for name, (tick, _) in released.items():
                self._broker.records[name].note_released(coordinator.epoch, tick)
        for each in batch:
            if each.promise is not None:
                self._promise(each.source, *each.promise)

    def _promise(self, source: str, name: str, value: Any) -> None:
        feed = self._broker.feeds.get(source)
        if feed is not None:
            self._broker.keep_promise(feed, name, value, twin=True)

    def _hurry_soon(self, names: set[str]) -> None:
        """Ask sources where they are by now, soon."""
        if not self._hurrying:
            self._hurrying = True

            def hurry() -> None:
                self._hurrying = False
                for name in names:
                    feed = self._broker.feeds.get(name)
                    if feed is not None:
                        feed.hurry()

            self._broker.call(self._broker.loop.call_later, HURRY, hurry)

    # -- what is released --------------------------------------------------------------------------------------------

    def _released(self) -> dict[str, int]:
        with self._coordinator.looking():
            return {row[0]: row[1] for row in internal_rows(self._coordinator, RELEASED)}

    def _set_released(self, names: dict[str, None]) -> None:
        """Forget what the twins of some sources had."""
        coordinator = self._coordinator
        if RELEASED not in coordinator.program.tables:
            return
        with coordinator.feeding(), coordinator.transaction(wait=False) as writes:
            pending = writes.table(RELEASED)
            rows, counts = pending.contents()
            gone = [row[0] in names for row in internal_rows(coordinator, RELEASED)]
            pending.remove(rows[gone], counts[gone])


def _in_epochs(ready: Sequence[_Waiting]) -> list[list[_Waiting]]:
    """Put together what may be one epoch: rows of streams after, or of the same tick as, the change of a table, and
    none before it; a promise ends one."""
    found = list[list[_Waiting]]()
    closed = True
    last: tuple[int, str, int] | None = None
    for each in ready:
        changes = each.work is not None and each.key != last
        if closed or changes:
            found.append([])
        found[-1].append(each)
        closed, last = each.promise is not None, each.key
    return found
