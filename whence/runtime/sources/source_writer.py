"""The worker that makes transactions of what sources have received.

Everything that waits becomes one epoch, of all sources: so the faster rows come, the larger epochs are. After an epoch
the few rows of the next are gathered for a while (`writing/pace.py`): its costs, here and at everyone who is told of
it, are the same for one message as for several. A source whose rows do not fit fails alone, in a savepoint. What is
committed is synced while the next epoch runs.

The law: rows, and the ticks that they cover, are in one transaction.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from whence.engine.core.batch import consolidate
from whence.engine.core.operator import Batch
from whence.io.rows import encode, expand
from whence.model.codes import Codes
from whence.model.errors import WhenceError
from whence.runtime.sources.fetched_rows import encode_columns
from whence.runtime.sources.lost_changes import losing_changes
from whence.runtime.sources.promises import advance, close_keys, promise_along
from whence.runtime.sources.reflected import StoredRanges, write_ticks
from whence.runtime.writing.pace import EpochPace
from whence.runtime.writing.tables import WriteSet
from whence.runtime.writing.transaction import Transaction
from whence.subscribe.messages import PartChange, PlainColumns, State
from whence.subscribe.positions import HistoryLineage
from whence.subscribe.ranges import RangeSet
from whence.subscribe.sources import Apply, ApplyState, LoseRange, StartOver

if TYPE_CHECKING:
    from whence.runtime.sources.broker import Broker
    from whence.runtime.sources.source_feed import SourceFeed

log = logging.getLogger("whence")
MOST_ROWS = 50_000
"""Rows of an epoch, and of what waits before connections are not read for a while."""

GATHER_TIMES, GATHER_SECONDS, GATHER_ROWS = 4, 0.01, 256
"""How many times its duration lies between the beginnings of two epochs of few rows, at most how many seconds, and how
many rows are not few."""

PROMISES_EVERY = 0.1
"""Seconds between two epochs that only bring promises of one source."""

Work = Apply | ApplyState | LoseRange | StartOver | HistoryLineage
Call = tuple[Callable[[], object], asyncio.AbstractEventLoop | None]
"""What is to be called, and the event loop that does so; None: the writer's own thread."""


@dataclass(frozen=True)
class _Item:
    feed: SourceFeed
    generation: int
    work: Work
    rows: int


class SourceWriter:
    """Writes to the sources of one database."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._coordinator = broker, broker.coordinator
        self._guard = threading.Lock()
        self._waiting: deque[_Item | Call] = deque()
        self._rows = 0
        self._resting = self._urgent = False
        self._pace = EpochPace(GATHER_TIMES, GATHER_SECONDS)
        self._closing = False
        self._unsynced = self._synced = 0
        self._worker = broker.host.worker("writer", self._step)
        self._syncer = broker.host.worker("sync", self._sync)

    # -- for feeds ---------------------------------------------------------------------------------------------------

    def submit(self, feed: SourceFeed, *works: Work) -> None:
        """Have something written, after all that was submitted before, and in one epoch."""
        with self._guard:
            for work in works:
                rows = _size(work)
                self._waiting.append(_Item(feed, feed.generation, work, rows))
                self._rows += rows
                self._urgent |= not isinstance(work, Apply)
            if self._rows > MOST_ROWS:
                self._broker.hold()
            rests = self._resting and self._may_rest
        if not rests:
            self._worker.wake()

    def then(self, call: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        """Call a function in an event loop when all that was submitted before is written."""
        self._submit_call((call, loop))

    def _submit_call(self, call: Call) -> None:
        with self._guard:
            self._waiting.append(call)
            self._urgent = True
        self._worker.wake()

    @property
    def _may_rest(self) -> bool:
        """Whether what waits may wait for more."""
        return not self._urgent and self._rows < GATHER_ROWS

    def close(self) -> None:
        """Write nothing more."""
        self._closing = True
        self._worker.close()
        self._syncer.close()

    # -- the workers -------------------------------------------------------------------------------------------------

    def _step(self) -> float | None:
        """Write all that waits; return when the next epoch is due, if there is something for it."""
        now = self._broker.host.now
        while not self._closing:
            with self._guard:
                self._resting = False
                if not self._waiting:
                    return None
                due = self._pace.due
                if self._may_rest and now() < due:
                    self._resting = True
                    return due
                batch, calls = self._take()
            try:
                if batch:
                    self._pace.begin(now())
                    self._write(batch)
                    self._pace.end(now())
            except Exception as error:
                if self._closing or self._coordinator.closed:
                    return None
                log.error("sources: %s; they begin again from what is stored", error)
                self._broker.reload_soon()
            for call, loop in calls:
                if loop is None:
                    call()
                else:
                    _call_soon(loop, call)
        return None

    def _take(self) -> tuple[list[_Item], list[Call]]:
        """Return what the next epoch is made of, and what is to be called after it."""
        batch, calls, rows = list[_Item](), list[Any](), 0
        while self._waiting and rows <= MOST_ROWS:
            first = self._waiting[0]
            if isinstance(first, _Item):
                if calls:
                    break
                if isinstance(first.work, StartOver) and batch:
                    break
                batch.append(first)
                rows += first.rows
                self._waiting.popleft()
                if isinstance(first.work, StartOver):
                    break
            else:
                calls.append(first)
                self._waiting.popleft()
        self._rows -= rows
        self._urgent = any(not isinstance(each, _Item) or not isinstance(each.work, Apply) for each in self._waiting)
        if self._rows <= MOST_ROWS // 2:
            self._broker.release()
        return batch, calls

    def _sync(self) -> None:
        """Make stable what is written."""
        while self._synced < self._unsynced and not self._closing:
            ticket = self._unsynced
            try:
                self._coordinator.storage.make_durable(ticket)
            except Exception as error:
                if self._closing or self._coordinator.closed:
                    return
                log.error("sources: what was written is lost: %s", error)
                self._broker.reload_soon()
            self._synced = ticket

    # -- one epoch ---------------------------------------------------------------------------------------------------

    def _write(self, batch: list[_Item]) -> None:
        batch = [item for item in batch if item.generation == item.feed.generation]
        if not batch:
            return
        if isinstance(batch[0].work, StartOver):
            self._start_over(batch[0].feed)
            return
        coordinator = self._coordinator
        by_feed: dict[SourceFeed, list[_Item]] = {}
        for item in batch:
            by_feed.setdefault(item.feed, []).append(item)
        ordered = self._broker.ordered
        changes = [
            FeedEpoch(self, feed, works)
            for feed, items in by_feed.items()
            if (works := ordered.divert(feed, [item.work for item in items]))
        ]
        if any(change.has_rows for change in changes):
            self.commit(changes, lambda writes: None)
        else:
            for change in changes:
                change.committed(coordinator.epoch)
        for change in changes:
            change.promise()
        ordered.release()
        self._broker.told()

    def close_keys(self, name: str, keys: PlainColumns) -> None:
        """Make an epoch of it that no more rows with some keys come."""
        coordinator = self._coordinator
        with coordinator.feeding():
            with coordinator.transaction(wait=False) as writes:
                close_keys(coordinator, writes, name, keys)
            self._sync_soon()

    def commit(self, changes: Sequence[FeedEpoch], write: Callable[[Transaction], object]) -> None:
        """Make an epoch of what some sources do, and of what else is to be written."""
        coordinator = self._coordinator
        lost = [change.name for change in changes if change.loses_changes]
        with coordinator.feeding():
            with losing_changes(coordinator, lost), coordinator.transaction(wait=False) as writes:
                for change in changes:
                    change.write(writes)
                write(writes)
                for change in changes:
                    change.promise_along(writes)
            for change in changes:
                change.committed(coordinator.epoch)
            self._sync_soon()

    def _sync_soon(self) -> None:
        """Make stable what is committed, soon: nothing is told before."""
        self._unsynced = max(self._unsynced, self._coordinator.storage.last)
        self._syncer.wake()

    def later(self, call: Callable[[], object]) -> None:
        """Have something done by the writer's thread."""
        self._submit_call((call, None))

    def run(self, call: Callable[[], object]) -> None:
        """Have something done by the writer's thread, and wait for it."""
        done = threading.Event()
        failures: list[BaseException] = []

        def do() -> None:
            try:
                call()
            except BaseException as error:
                failures.append(error)
            finally:
                done.set()

        self.later(do)
        while not self._broker.host.wait(done, 0.1):
            if self._closing:
                return
        if failures:
            raise failures[0]

    def promise(self, table: str, column: int, value: Any) -> None:
        """Make an epoch that promises that nothing below a value of a column comes any more, nor at it if the column
        is ordered strictly."""
        coordinator = self._coordinator
        with coordinator.feeding():
            with coordinator.transaction(wait=False) as writes:
                advance(coordinator, writes, table, column, value)
            self._sync_soon()

    def _start_over(self, feed: SourceFeed) -> None:
        """Forget all ticks of a source, and the rows of a stream; those of a table are there until a state takes their
        place, so that readers go from one past to the other. If that is interrupted, it is done again (`Broker`)."""
        coordinator, name = self._coordinator, feed.table.name
        with coordinator.feeding():
            with coordinator.transaction() as writes:
                feed.record.forget(coordinator, writes)
                feed.record.write_lineage(coordinator, writes, None)
            self._broker.curiosity.forgot(name, feed.record.reflected.last if feed.table.stream is not None else 0)
            if feed.table.stream is not None:
                self._broker.ordered.begin_again(name)
            with coordinator.looking():
                feed.record.load(coordinator)


class FeedEpoch:
    """What one source does in an epoch."""

    def __init__(self, writer: SourceWriter, feed: SourceFeed, works: Sequence[Work]) -> None:
        self._writer, self._feed, self._works = writer, feed, works
        self._coordinator, self._record = feed.broker.coordinator, feed.record
        self._ranges: RangeSet | None = None
        self._lost = self._record.lost
        self._lineage: HistoryLineage | None = None
        self._time: int | None = None
        self._horizons: dict[str, Any] = {}
        self._stored: StoredRanges | None = None
        self._appended: list[tuple[list[tuple[int, int, int]], Codes]] = []
        self._promised: list[tuple[str, Any]] = []  # with the rows
        for work in works:
            match work:
                case HistoryLineage():
                    self._lineage = work
                case Apply() | ApplyState():
                    self._ranges = work.ranges
                    self._time = work.time if work.time is not None else self._time
                    self._horizons |= work.horizons or {}
                case LoseRange():
                    self._ranges, self._lost = work.ranges, self._lost.add(work.since, work.upto)

    @property
    def name(self) -> str:
        """The source."""
        return self._feed.table.name

    @property
    def loses_changes(self) -> bool:
        """Whether single changes are not known: ticks are lost, or a state takes the place of rows that are here."""
        is_begun = bool(len(self._record.reflected))
        return any(isinstance(each, LoseRange) or (isinstance(each, ApplyState) and is_begun) for each in self._works)

    @property
    def has_rows(self) -> bool:
        """Whether anything must be written."""
        if self._lineage is not None and self._lineage != self._record.lineage:
            return True
        return self._replaces_another_past or any(
            isinstance(work, (ApplyState, LoseRange)) or (isinstance(work, Apply) and work.rows is not None)
            for work in self._works
        )

    @property
    def _replaces_another_past(self) -> bool:
        """Whether a table has rows of another past, which changes from the beginning replace."""
        if self._feed.table.stream is not None or len(self._record.reflected):
            return False
        first = next((work for work in self._works if isinstance(work, (Apply, ApplyState))), None)
        if not isinstance(first, Apply):
            return False
        with self._coordinator.looking():
            return bool(len(self._coordinator.reader.contents(self._feed.table.name)[0]))

    def write(self, writes: Transaction) -> None:
        """Write rows, ticks and ranges; if they do not fit, none of them."""
        feed, coordinator = self._feed, self._coordinator
        table = coordinator.program.tables.get(feed.table.name)
        if table is None or table.source != feed.source:
            return  # it was dropped meanwhile
        try:
            with coordinator.transaction():
                if self._lineage is not None and self._lineage != self._record.lineage:
                    self._record.write_lineage(coordinator, writes, self._lineage)
                    self._record.lineage = self._lineage
                if self._replaces_another_past:
                    pending = writes.table(table.name)
                    assert isinstance(pending, WriteSet)
                    pending.remove(*pending.contents())
                for work in self._works:
                    if isinstance(work, Apply) and work.rows is not None:
                        self._apply(writes, work.rows)
                    elif isinstance(work, ApplyState):
                        self._replace(writes, work.rows)
                if self._ranges is not None:
                    self._stored = self._record.write_ranges(coordinator, writes, self._ranges, self._lost)
        except WhenceError as error:
            self._ranges = None
            log.error("source %s: %s", feed.table.name, error)
            feed.broker.fail(feed, str(error))

    def _apply(self, writes: Transaction, part: PartChange) -> None:
        table, pending = self._feed.table, writes.table(self._feed.table.name)
        came = self._codes(part.came) if part.came is not None else None
        if table.stream is not None:
            if came is not None and len(came):
                pending.insert(came)
                write_ticks(self._coordinator, writes, table.name, part.ticks or [], len(came))
                self._appended.append((part.ticks or [], came))
            return
        went = self._codes(part.went) if part.went is not None else None
        parts = [(rows, sign) for rows, sign in ((went, -1), (came, 1)) if rows is not None and len(rows)]
        if parts:
            signs = np.concatenate([np.full(len(rows), sign, np.int64) for rows, sign in parts])
            pending.take(np.concatenate([rows for rows, _ in parts]), signs)

    def _replace(self, writes: Transaction, chunks: Sequence[State]) -> None:
        """Have other rows than before: only those that differ are written."""
        pending = writes.table(self._feed.table.name)
        assert isinstance(pending, WriteSet)
        found = [self._chunk(chunk) for chunk in chunks]
        old, counts = pending.contents()
        new = np.concatenate([old[:0], *found])
        both = np.concatenate([old, new])
        change = consolidate(Batch(both, np.concatenate([-counts, np.ones(len(new), np.int64)])))
        goes, comes = change.ann < 0, change.ann > 0
        if goes.any():
            pending.remove(change.rows[goes], -change.ann[goes])
        if comes.any():
            pending.insert(expand(change.rows[comes], change.ann[comes]))

    def _chunk(self, chunk: State) -> Codes:
        if chunk.arrow is not None:
            with pa.ipc.open_stream(chunk.arrow) as stream:
                table = self._feed.table
                return encode(stream.read_all(), table.schema, self._coordinator.dictionary, table.name, missing="null")
        return self._codes(chunk.columns or [])

    def _codes(self, columns: PlainColumns) -> Codes:
        """Encode columns of plain values; columns that the query does not give are NULL."""
        return encode_columns(self._coordinator, self._feed.table, columns, self._feed.columns)

    def promise_along(self, writes: Transaction) -> None:
        """Write the promises that can be in the epoch of the rows."""
        if self._ranges is None:
            return
        for name, value in list(self._horizons.items()):
            promised = promise_along(self._feed, writes, name, value)
            if promised is not None:
                self._promised.append(promised)
                del self._horizons[name]

    def committed(self, epoch: int) -> None:
        """Note that it is in."""
        for promised in self._promised:
            self._feed.broker.note_promise(self._feed, *promised)
        if self._stored is not None:
            self._record.wrote(self._stored)
        if self._ranges is not None:
            self._record.lost = self._lost
            self._record.note(epoch, self._ranges, self._time)
            self._feed.broker.curiosity.reflects(self.name, epoch, self._ranges.horizon)
            for runs, rows in self._appended:
                self._feed.broker.ordered.add_rows(self._feed, runs, rows)

    def promise(self) -> None:
        """Pass on the horizons of the publisher that were not written with the rows."""
        for name, value in self._horizons.items():
            if self._feed.broker.ordered.add_promise(self._feed, name, value):
                continue  # it holds when all rows before it are there
            self._feed.broker.promise(self._feed, name, value)


def _size(work: Work) -> int:
    if isinstance(work, Apply) and isinstance(work.rows, PartChange):
        return sum(len(columns[0]) for columns in (work.rows.went, work.rows.came) if columns)
    if isinstance(work, ApplyState):
        return sum(len(chunk.columns[0]) if chunk.columns else 1_000 for chunk in work.rows)
    return 0


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop has ended
        log.debug("a source was written to after the end of its broker")
