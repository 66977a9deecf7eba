"""Epochs: tables and views in this process, and what changes them.

One writer at a time, any number of readers. A writer's pending rows lie beside the committed state until the commit
pushes them through the dataflow; readers are kept out only for that moment, so what they see is always a whole epoch.
The law: after epoch e every view equals its definition over the tables as of e; an epoch that fails has not happened.

Rows whose time is up leave with every commit, and in an epoch of their own before a read, by `expire`, or by the thread
of `expiry.py`. An epoch knows its time and all its changes, so `replay` does it again without looking at a clock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from whence.engine.core.batch import consolidate
from whence.engine.core.epoch import Epoch, Inputs
from whence.engine.core.lifetimes import NEVER, Lifetimes
from whence.engine.core.operator import Batch
from whence.engine.streams.promise import Promise, promise_in
from whence.engine.streams.retain import is_stream
from whence.model.codes import Codes
from whence.model.errors import CatalogError, OutOfMemoryError, StorageError, WhenceError
from whence.plan.algebra.program import Program, Table, is_owed, owed_name, owner_of
from whence.runtime.catalog import Catalog
from whence.runtime.reading.changes import Feeds
from whence.runtime.writing.expiry import BUSY, REFUSED, Clock, Expirer, gather, say_expired
from whence.runtime.writing.stream_writes import StreamWriteSet
from whence.runtime.writing.tables import WriteSet
from whence.runtime.writing.transaction import Transaction
from whence.sql.position import did_you_mean

if TYPE_CHECKING:
    from whence.runtime.durable.recovery import Recovery
    from whence.state.store import Folder

log = logging.getLogger("whence")
_IN_MEMORY = "this database is in memory: whence.open(path) makes one that lasts"
T = TypeVar("T")


@dataclass(frozen=True)
class Told:
    """What an epoch has done: rows of tables and views that changed, their names, and the changes that are known."""

    rows_in: int
    rows_out: int
    changed: set[str]
    changes: Mapping[str, Batch]


class Epochs:
    """The state of one database, and the epochs that move it."""

    def __init__(self, recursion_limit: int, clock: Callable[[], float] | None = None) -> None:
        self.recursion_limit = recursion_limit
        self.catalog = self._new_catalog()
        self.dictionary = self.catalog.dictionary
        self.clock = Clock(clock)
        self.epoch = 0
        self.time = 0  # of the last epoch, in microseconds since 1970
        self.marks: dict[str, int] = {}  # how far each stream has come, by the number of its last batch that is in
        self.closed = False
        self.seconds = 0.0
        self.rows_in = self.rows_out = self.expired = 0
        self.expiry_error: Exception | None = None  # why what is due has not left; cleared by the next change
        self._writer = threading.RLock()  # held from a transaction's first write to its end
        self._state = threading.RLock()  # held while the committed state changes or is read
        self._open: Transaction | None = None
        self._whose = 0  # the thread whose transaction it is
        self._feeds = Feeds()
        self._arrow: dict[str, tuple[int, pa.Table]] = {}
        self._changed: dict[str, int] = {}
        self._moving: dict[str, tuple[Lifetimes, Batch, Codes]] = {}  # by the epoch that is being run
        self._deadline = NEVER  # of the row that is due next
        self._expirer: Expirer | None = None

    @property
    def program(self) -> Program:
        return self.catalog.program

    def close(self) -> None:
        self._check_not_writing("close")
        with self._writer, self._state:
            if self.closed:
                return
            self.closed = True
            self._feeds.end()
        if self._expirer is not None:
            self._expirer.stop()

    def _check_not_writing(self, what: str) -> None:
        """An error inside a transaction of this thread."""
        if self.is_writing:
            raise WhenceError(f"{what} cannot stand inside a transaction: end it first")

    def _check_open(self) -> None:
        if self.closed:
            raise WhenceError("this database is closed")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is read or written inside."""
        with self._writer, self._state:
            yield

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Nothing is changed inside."""
        with self._state:
            yield

    def start_anew(self, why: str) -> None:
        """Forget everything but the Python functions, to be recovered from the disk; feeds end and say why."""
        with self.paused():
            functions = self.program
            self.catalog = self._new_catalog()
            self.catalog.program = replace(functions, tables={}, views={})
            self.dictionary = self.catalog.dictionary
            self.epoch = self.time = 0
            self.marks = {}
            self._arrow.clear()
            self._changed.clear()
            self._feeds.end(why=f"{why}: ask for the changes again", forget=True)

    # -- what a runtime that lasts does otherwise, see durable.py ----------------------------------------------------

    read_only = False
    folder: Folder | None = None
    poll: float | None = None  # seconds between two looks for changes that nobody tells of
    recovery: Recovery | None = None

    def can_take(self, epoch: Epoch) -> bool:
        """Whether it can replay the rows of an epoch that are in files as they are."""
        return False

    def _ready_to_write(self) -> None:
        """Called with the writer lock held, before anything is written."""
        self._check_open()

    def _write_epoch(self, epoch: Epoch) -> None:
        """Called when an epoch has run and nothing is committed yet; an error here undoes it."""

    def _epoch_done(self) -> None:
        """Called when an epoch that was written is committed here, too."""

    def _write_statements(self, statements: list[str]) -> None:
        """Called when the catalog has changed; an error here changes it back."""

    def refresh(self) -> None:
        """Be at the last epoch that may be told of, before names and numbers are looked up."""

    def _before_reading(self) -> None:
        self.catch_up()

    def _written(self) -> int:
        """What `_settle` is to be asked for, to be sure of everything done so far."""
        return 0

    def _settle(self, ticket: int) -> None:
        """Wait, without a lock, until what has been written or seen is stable."""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A look at the last committed epoch, without what is due by then; what was seen is stable when it ends."""
        self._check_open()
        self._before_reading()
        with self._state:
            yield
            seen = self._written()
        self._settle(seen)

    # -- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """All writes inside become one epoch when the outermost block ends, or none do if it raises."""
        with self._writer:
            self._ready_to_write()
            if self._open is not None:
                mark = self._open.mark()
                try:
                    yield self._open
                except BaseException:
                    self._open.back_to(mark)
                    raise
                return
            with self._outermost() as writes:
                yield writes
            written = self._written()
        self._settle(written)

    @contextmanager
    def _outermost(self) -> Iterator[Transaction]:
        self._open = writes = Transaction(self._pending)
        self._whose = threading.get_ident()
        try:
            self._begin(writes)
            yield writes
            self._commit(writes)
        finally:
            self._open = None

    @property
    def is_writing(self) -> bool:
        """Whether this thread has a transaction open."""
        return self._open is not None and self._whose == threading.get_ident()

    def table_of(self, name: str) -> Table:
        """A table that is to be written to."""
        table = self.program.tables.get(name)
        if table is None:
            if name in self.program.views:
                raise CatalogError(f'"{name}" is a view; only tables and streams are written to')
            raise CatalogError(f'there is no table "{name:.100}"{did_you_mean(name, self.program.tables)}')
        return table

    def _pending(self, name: str, now: int | None = None) -> WriteSet | StreamWriteSet:
        table = self.table_of(owner_of(name))
        if is_owed(name):
            table = table.debts
        if table.stream is not None:
            return StreamWriteSet(table, self.catalog.flow.streams[name].kept, self.catalog.flow.last_at)
        lifetimes = self.catalog.lifetimes.get(name)
        expired = None
        if lifetimes is not None:
            expired = lifetimes.due_rows(self.clock.now() if now is None else now)
        tables = self.catalog.flow.tables
        owed = None if is_owed(name) else tables[owed_name(name)].relation
        return WriteSet(table, tables[name].relation, self.dictionary, expired, owed)

    def _begin(self, writes: Transaction) -> None:
        """Let the transaction see no row whose time is up, in whatever table, and no promise of one that failed."""
        self.promised = None
        if self._is_due():
            now = self.clock.now()
            for name, lifetimes in self.catalog.lifetimes.items():
                if lifetimes.soonest <= now:
                    writes.table(name)

    def _commit(self, writes: Transaction) -> None:
        epoch = self._gathered(gather(writes, self.catalog.lifetimes, self.epoch + 1, self.clock.now()))
        if epoch.deltas or epoch.refreshed or epoch.inputs is not None:
            writes.expired = self._apply(epoch, record=True)

    def replay(self, epoch: Epoch) -> None:
        """Do an epoch again, at its own time; what expired in it is part of its changes."""
        with self._writer:
            self.clock.reach(epoch.time)
            self._apply(epoch, record=False)

    def _apply(self, epoch: Epoch, record: bool) -> int:
        """Carry an epoch through tables and views, all of it or nothing; how many rows expired in it."""
        number, start = epoch.number, time.perf_counter()
        with self._state:
            self._expired: Mapping[str, int] = {}
            try:
                told = self._run(epoch)
                if record:
                    self._write_epoch(epoch)
            except BaseException as error:
                self._take_back()
                say_expired(error, self._expired)
                if isinstance(error, MemoryError) and not isinstance(error, WhenceError):
                    raise self._out_of_memory(epoch) from error
                raise
            self._keep(epoch)
            self.epoch, self.time = number, epoch.time
            self.rows_in += told.rows_in
            self.rows_out += told.rows_out
            for name in told.changed:
                self._changed[name] = number
            for name, change in told.changes.items():
                if name in self._feeds:
                    self._push(name, change)
            gone = sum(self._expired.values())
            self.expired += gone
            self._look_ahead()
            self.seconds += time.perf_counter() - start
            self._epoch_done()
        if log.isEnabledFor(logging.DEBUG):
            what = ", ".join(sorted(told.changed)) or "nothing"
            log.debug("epoch %d committed in %.3f ms: %s", number, (time.perf_counter() - start) * 1000, what)
        return gone

    def _out_of_memory(self, epoch: Epoch) -> OutOfMemoryError:
        from whence.runtime.questions.explain import in_bytes

        rows, held = sum(len(delta.ann) for delta in epoch.deltas.values()), self.catalog.flow.state_bytes
        return OutOfMemoryError(
            f"out of memory in an epoch of {rows:,} rows, over tables and views of {in_bytes(held)}; it is undone. "
            "Insert in smaller transactions, drop views, or spread the database: whence.open(path, spark=spark)"
        )

    # -- supposing ---------------------------------------------------------------------------------------------------

    def suppose(
        self, write: Callable[[Transaction], object], names: Collection[str], tell: Callable[[Mapping[str, Batch]], T]
    ) -> T:
        """What `tell` makes of the changes of `names` in an epoch of these writes, which has not happened then.

        It is run and taken back under both locks: others wait for it as for an epoch. Who only reads supposes it at the
        time of the last epoch.
        """
        self._check_not_writing("what_if")
        with self._writer:
            self._check_open()
            now = self.clock.now()
            self._before_reading()
            with self._state:
                if self.read_only:
                    now = self.time
                found = self._suppose(write, names, tell, now)
                seen = self._written()
        self._settle(seen)
        return found

    def _suppose(
        self,
        write: Callable[[Transaction], object],
        names: Collection[str],
        tell: Callable[[Mapping[str, Batch]], T],
        now: int,
    ) -> T:
        words, self._expired = len(self.dictionary), {}
        writes = Transaction(lambda name: self._pending(name, now))
        try:
            write(writes)
            epoch = gather(writes, self.catalog.lifetimes, self.epoch + 1, now)
            return tell(self._supposed(epoch, names) if epoch.deltas or epoch.refreshed else {})
        except BaseException as error:
            say_expired(error, self._expired)
            raise
        finally:
            self._take_back()
            self._forget_words(words)

    def _supposed(self, epoch: Epoch, names: Collection[str]) -> Mapping[str, Batch]:
        """Run an epoch that will be taken back; the changes of some tables and views."""
        return self._run(epoch).changes

    def _forget_words(self, first: int) -> None:
        """Nothing has the words from `first` on any more."""
        self.dictionary.forget(first)

    # -- how an epoch is carried out; in partitions, see spark/sharded.py --------------------------------------------

    def _new_catalog(self) -> Catalog:
        return Catalog(self.recursion_limit)

    def _run(self, epoch: Epoch) -> Told:
        """Bring tables, lifetimes and views to the state after an epoch, such that it can be taken back."""
        flow, deltas = self.catalog.flow, epoch.deltas
        moved = self._moving = self._moved(epoch)
        self._expired = {
            name: life.overdue(delta, epoch.time) for name, (life, delta, _) in moved.items() if not is_owed(name)
        }
        for life, delta, _ in moved.values():
            life.before(delta)
        flow.context.enter(epoch.number, epoch.time)
        changes = flow.run(deltas, promise_in(epoch.inputs.marks) if epoch.inputs is not None else None)
        flow.context.enter(0, 0)
        for name in epoch.refreshed:
            flow.touch(flow.tables[name])
        for life, delta, refreshed in moved.values():
            life.after(delta, refreshed, epoch.time)
        rows_in = sum(len(d.ann) for name, d in deltas.items() if not is_owed(name))
        rows_out = sum(len(c.ann) for c in changes.values())
        return Told(rows_in, rows_out, {*deltas, *changes}, deltas | changes)

    def _take_back(self) -> None:
        try:
            self.catalog.flow.undo()
        finally:
            for life, _, _ in self._moving.values():
                life.undo()
            self._moving = {}

    def _keep(self, epoch: Epoch) -> None:
        self.catalog.flow.commit()
        for life, _, _ in self._moving.values():
            life.commit()
        self._moving = {}

    def _gathered(self, epoch: Epoch) -> Epoch:
        """What is to be done with the writes of a transaction."""
        promised, self.promised = self.promised, None
        return epoch if promised is None else replace(epoch, inputs=Inputs((), promised.marks()))

    promised: Promise | None = None  # what the transaction that is open promises of streams, see watermarks.py

    def _moved(self, epoch: Epoch) -> dict[str, tuple[Lifetimes, Batch, Codes]]:
        """The lifetimes that an epoch moves, with the table's changes and the rows that begin anew."""
        found = {}
        for name, lifetimes in self.catalog.lifetimes.items():
            if name in epoch.deltas or name in epoch.refreshed:
                delta = epoch.deltas.get(name, Batch.empty(lifetimes.width))
                found[name] = lifetimes, delta, epoch.refreshed.get(name, delta.rows[:0])
        return found

    def is_stream(self, name: str) -> bool:
        """Whether a table or view is a stream."""
        return is_stream(self.catalog.operator(name))

    def visible(self, name: str, batch: Batch) -> Batch:
        """What a table or view changes by, as users see it: each row once, or of a stream all in their order."""
        if self.is_stream(name):
            return Batch(np.ascontiguousarray(batch.rows[:, :-1]), np.ones(len(batch.ann), np.int64), True)
        return consolidate(batch)

    def _push(self, name: str, change: Batch) -> None:
        change = self.visible(name, change)
        if len(change.ann):
            self._feeds.push(name, self.epoch, change.rows, change.ann)

    # -- expiring ----------------------------------------------------------------------------------------------------

    def expire(self) -> int:
        """Let the rows leave whose time is up; how many did."""
        with self._writer:
            if self._open is not None:
                raise WhenceError("expire cannot stand inside a transaction: its end expires what is due")
        with self.transaction() as writes:
            pass
        return writes.expired

    def catch_up(self) -> bool:
        """Expire what is due before a read; False if a writer is at work, who will do it.

        An error is kept, for a reader cannot help it, and until something changes there is no other try. The epoch may
        not be stable yet: whoever tells of it sees to that.
        """
        if self.read_only or self.expiry_error is not None or not self._is_due():
            return True
        if not self._writer.acquire(blocking=False):
            return False
        try:
            if self._open is None and not self.closed:
                self._ready_to_write()
                with self._outermost():
                    pass
        except Exception as error:
            self.expiry_error = error
            log.warning("rows whose time is up cannot leave: %s", error)
        finally:
            self._writer.release()
        return True

    def expire_in_background(self, expirer: Expirer) -> float:
        """One turn of the thread; how many seconds it may sleep. A disk that refused may have come to its senses."""
        if isinstance(self.expiry_error, StorageError):
            self.expiry_error = None
        if not self.catch_up():
            return BUSY
        if isinstance(self.expiry_error, StorageError):
            return REFUSED
        with self._state:
            until = NEVER if self.expiry_error is not None else self._deadline
            return expirer.sleep_until(until, self.clock.now())

    def _is_due(self) -> bool:
        return self._deadline != NEVER and self._deadline <= self.clock.now()

    def _look_ahead(self) -> None:
        """Tables, views or lifetimes have changed: find the next deadline, and try anew what could not expire."""
        self.expiry_error = None
        self._deadline = min((life.soonest for life in self.catalog.lifetimes.values()), default=NEVER)
        if self._expirer is None and self.catalog.lifetimes and self.clock.real and not self.read_only:
            self._expirer = Expirer(self)
        if self._expirer is not None:
            self._expirer.expect(self._deadline)

    def stand_at(self, epoch: int, time: int) -> None:
        """Go on from an epoch whose tables, views and lifetimes have just been restored."""
        with self.paused():
            self.epoch, self.time = epoch, time
            self.clock.reach(time)
            self._look_ahead()
