"""The coordinator: numbers epochs, holds the writer's and the state's lock, and commits or undoes.

One writer at a time, any number of readers. A writer's pending rows lie beside the committed state until the commit
pushes them through the partitions; readers are kept out only for that moment, so what they see is always a whole epoch.
The law: after epoch e every view equals its definition over the tables as of e; an epoch that fails has not happened.

It is made of what it is given: a deployment says where partitions run (`backend.py`), a storage where epochs are
written (`durable/`). Reading is `reading/reader.py`, CREATE and DROP `schema_changes.py`, expiry `writing/expiry.py`.
An epoch knows its time and all its changes, so `replay` does it again without looking at a clock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from whence.engine.core.epoch import Epoch
from whence.engine.core.operator import Batch
from whence.model.budget import has_budget, held, shielded
from whence.model.codes import Codes, Dictionary
from whence.model.errors import CatalogError, OutOfMemoryError, SparkError, WhenceError
from whence.model.progress import Progress
from whence.model.sizes import in_bytes
from whence.plan.algebra.program import (
    Program,
    Table,
    has_closed_keys,
    is_beside,
    is_internal,
    is_owed,
    is_transient,
    owed_name,
    owner_of,
)
from whence.plan.promises import NO_PROMISES
from whence.runtime.adaptation import Adaptation
from whence.runtime.catalog import Catalog
from whence.runtime.durable.durable_epochs import DurableEpochs
from whence.runtime.durable.storage import InMemory, Storage, at, retained
from whence.runtime.epoch_result import EpochResult
from whence.runtime.held_views import HeldViews
from whence.runtime.lookups.caches import LookupCaches, UnansweredError, unanswered
from whence.runtime.reading.changes import Feeds
from whence.runtime.reading.reader import DatabaseReader
from whence.runtime.schema_changes import SchemaChanges
from whence.runtime.word_collector import WordCollector
from whence.runtime.writing.arrivals import EpochArrivals
from whence.runtime.writing.expiry import Clock, Expiry, gather
from whence.runtime.writing.horizons import HorizonHistory, Horizons
from whence.runtime.writing.promise_guard import PromiseGuard
from whence.runtime.writing.silence import SilenceEpochs
from whence.runtime.writing.stream_writes import StreamWriteSet
from whence.runtime.writing.tables import WriteSet
from whence.runtime.writing.transaction import Transaction
from whence.sql.position import did_you_mean
from whence.subscribe.positions import HistoryLineage, Position

if TYPE_CHECKING:
    from whence.runtime.deployment import Deployment
    from whence.runtime.sources.broker import Broker
    from whence.runtime.sources.doubt import SourceDoubt
    from whence.runtime.spark.driver.driver import SparkDriver
    from whence.runtime.subscriptions.channels import Channel
    from whence.runtime.subscriptions.hub import SubscriptionHub

log = logging.getLogger("whence")
T = TypeVar("T")
_PATIENCE = 1 << 13  # changed rows until it is asked first whether views should keep joins


class EpochSink(Protocol):
    """Is given the changes of one view with every epoch, by the thread that has committed it."""

    view: str

    def __call__(self, epoch: int, changes: Mapping[str, Batch]) -> None:
        """Take an epoch's changes."""

    def redefine(self) -> None:
        """Note that the view may have another definition now."""

    def end(self, why: str) -> None:
        """Take no more changes."""


class RecoverableStorage(Storage, Protocol):
    """A storage that has a past."""

    def recover(self, progress: Progress | None = None) -> None:
        """Bring the coordinator, which is empty, to where the storage is."""


class Coordinator:
    """The state of one database, and the epochs that move it."""

    def __init__(self, deployment: Deployment, recursion_limit: int, clock: Callable[[], float] | None = None) -> None:
        self.deployment, self.recursion_limit = deployment, recursion_limit
        self.storage: Storage = InMemory()
        self.clock = Clock(clock)
        self.catalog: Catalog = deployment.open(recursion_limit, self.storage.recomputed)
        self.dictionary: Dictionary = self.catalog.dictionary
        self.epoch = self.time = 0  # of the last epoch: its number, and its microseconds since 1970
        self.source_positions: dict[str, int] = {}  # the number of the last batch of each source that is in
        self.horizon_history = HorizonHistory()
        self._guards: dict[str, PromiseGuard] = {}  # of tables with promises that were written to
        self.seconds = self.processor_seconds = 0.0
        self.rows_in = self.rows_out = self.expired = self.last_rows_out = 0
        self.changed: dict[str, int] = {}  # the epoch in which tables and views last did
        self._unweighed, self._patience = 0, _PATIENCE  # changed rows since it was asked what views should keep
        self.closed = False
        self.restarts = 0  # how often the state was forgotten, to be recovered from the storage
        self.writer = threading.RLock()  # held from a transaction's first write to its end
        self.state = threading.RLock()  # held while the committed state changes or is read
        self.open_transaction: Transaction | None = None
        self._thread = 0  # whose transaction it is
        self._feeding = 0  # the thread that writes to sources
        self.arrivals = EpochArrivals()
        self.broker: Broker | None = None  # if there are sources
        self.durable = DurableEpochs(self.storage.lineage)
        self.feeds = Feeds()
        self.next_ids: dict[str, int] = {}  # the last id that a subscription to each template was given
        self.sinks: list[EpochSink] = []
        self.expiry = Expiry(self)
        self.silence = SilenceEpochs(self)
        self.reader = DatabaseReader(self)
        self.held = HeldViews(self)
        self.lookups = LookupCaches(self)
        self.words = WordCollector(self)
        self.adaptation = Adaptation(self)
        self.definitions = SchemaChanges(self)
        self.driver: SparkDriver | None = deployment.driver(self)

    @property
    def program(self) -> Program:
        return self.catalog.program

    # -- beginning and ending ----------------------------------------------------------------------------------------

    def keep(self, storage: RecoverableStorage, progress: Progress | None = None) -> None:
        """Take up what a storage has, and write to it everything that is done from now on."""
        with self.paused():  # nothing may expire before the past has been taken up
            self.storage = storage
            assert storage.folder is not None
            self.recursion_limit = storage.folder.recursion_limit or self.recursion_limit
            self.start_anew("the database was opened")
            try:
                storage.recover(progress)
            except BaseException:
                storage.close()
                raise
            self.held.settle()
        self.durable.report()
        self.look_after_sources()

    def check_can_have_sources(self) -> None:
        """Raise if this database cannot be a broker."""
        if not self.catalog.backend.at_hand:
            raise CatalogError("sources are for a database without partitions; let one have them, and serve it")

    def look_after_sources(self) -> None:
        """Let the sources that are declared be fed, and no others. Not called with a lock held."""
        if self.is_writing or self.storage.read_only:
            return
        if self.broker is None and any(table.source is not None for table in self.program.tables.values()):
            self.make_broker()
        if self.broker is not None:
            self.broker.reconcile()

    def doubt_of(self, channel: Channel) -> SourceDoubt | None:
        """Return what the relations of a channel reflect of sources; None if they read none."""
        if self.broker is None:
            return None
        from whence.runtime.sources.doubt import doubt_of

        return doubt_of(self, channel)

    def make_broker(self) -> Broker:
        """Return what feeds sources."""
        if self.broker is None:
            self.check_open()
            self.storage.ready_to_write()
            from whence.runtime.sources.broker import Broker  # loaded with the first source

            self.broker = Broker(self)
        return self.broker

    def start_anew(self, why: str) -> None:
        """Forget everything but the Python functions, to be recovered from the storage; feeds end and say why."""
        with self.paused():
            self.restarts += 1
            self.renew_catalog()
            self.adaptation.forget()
            self.epoch = self.time = 0
            self.source_positions = {}
            self.horizon_history = HorizonHistory()
            self.arrivals = EpochArrivals()
            self.changed.clear()
            self.reader.forget_all()
            self.feeds.end(why=f"{why}: ask for the changes again", forget=True)

    def renew_catalog(self) -> None:
        """Have a catalog that is empty but for the Python functions, and an empty dictionary."""
        functions = self.program
        self.catalog.backend.close()
        self.catalog = self.deployment.open(self.recursion_limit, self.storage.recomputed)
        self.catalog.program = replace(functions, tables={}, views={}, indexes={})
        self.dictionary = self.catalog.dictionary

    def close(self) -> None:
        self.check_not_writing("close")
        if self.broker is not None:
            self.broker.close()
        if self.driver is not None:
            self.driver.end_streams()
        try:
            with self.writer, self.state:
                if self.closed:
                    return
                self.closed = True
                self.feeds.end()
            self.expiry.stop()
            self.silence.stop()
            self.reader.close()  # not under our locks: a query holds its own while it reads under ours
            self.storage.close()
        finally:
            if self.driver is not None:
                self.driver.close()

    def check_not_writing(self, what: str) -> None:
        """Raise an error inside a transaction of this thread."""
        if self.is_writing:
            raise WhenceError(f"{what} cannot stand inside a transaction: end it first")

    def check_open(self) -> None:
        if self.closed:
            raise WhenceError("this database is closed")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep writers and readers out."""
        with self.writer, self.state:
            yield

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Keep the committed state from changing."""
        with self.state:
            yield

    # -- reading -----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Move to the last epoch that is safe to read."""
        if not self.closed:
            self.storage.refresh()

    def before_reading(self) -> None:
        """Move to the last epoch that is safe to read, without what is due by then."""
        self.storage.refresh()
        self.expiry.expire_due()
        self.silence.tell_due(fast=True)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read the last committed epoch, without what is due by then; what was read is stable when this ends."""
        self.check_open()
        with shielded() if has_budget() else nullcontext():
            self.before_reading()
        with self.state:
            yield
            seen = self.storage.last
        self.storage.wait_durable(seen)

    # -- writing -----------------------------------------------------------------------------------------------------

    def transaction(self, *, wait: bool = True) -> TransactionScope:
        """Make all writes inside one epoch when the outermost block ends, or none if it raises.

        Without `wait` it ends before the epoch is stable: the caller must ask `storage.make_durable` for the ticket
        `storage.last`, read under the writer's lock, before it tells of the epoch.
        """
        return TransactionScope(self, wait)

    def begin(self) -> Transaction:
        """Open the outermost transaction. Called with the writer's lock held."""
        self.check_open()
        self.storage.ready_to_write()
        self.silence.tell_due()
        self._thread = threading.get_ident()
        self.open_transaction = writes = Transaction(self._open_to_write)
        try:
            self.expiry.begin(writes)
        except BaseException:
            self.open_transaction = None
            raise
        return writes

    def commit(self, writes: Transaction) -> None:
        """Commit the outermost transaction as an epoch, if it changes anything."""
        epoch = gather(writes, self.catalog.backend.lifetimes, self.epoch + 1, self.clock.now())
        if epoch.deltas or epoch.refreshed or epoch.source_positions:
            self.replan({name: len(batch) for name, batch in epoch.deltas.items()})
            writes.expired = self.apply(epoch, record=True).expired_rows

    def replan(self, added: Mapping[str, int]) -> None:
        """Plan views again for which another plan is better, before so many rows come to tables. Under the writer's
        lock."""
        with self.state:
            self.catalog.replan(added)
            self._unweighed += sum(added.values())
            if self._unweighed >= self._patience and self.catalog.backend.at_hand:
                self._unweighed, self._patience = 0, 2 * self._patience
                self.keep_joins()

    def keep_joins(self, worth: int | None = None) -> bool:
        """Let views keep joins of some of their inputs, if what was met says that this pays; return whether there were
        any. Under both locks."""
        return self.catalog.keep(self.catalog.better_keeps(worth))

    @property
    def is_writing(self) -> bool:
        """Whether this thread has a transaction open."""
        return self.open_transaction is not None and self._thread == threading.get_ident()

    def table_of(self, name: str) -> Table:
        """Return a table that is to be written to."""
        table = self.program.tables.get(name)
        if table is None:
            if name in self.program.views:
                raise CatalogError(f'"{name}" is a view; only tables and streams are written to')
            raise CatalogError(f'there is no table "{name:.100}"{did_you_mean(name, self.program.tables)}')
        return table

    def open_table(self, name: str, now: int | None = None) -> WriteSet | StreamWriteSet:
        """Return an empty write set for a table, without the rows whose time is up."""
        table, backend, owed = self.table_of(owner_of(name)), self.catalog.backend, is_owed(name)
        flow = backend.flow
        if owed:
            table = table.debts
        if has_closed_keys(name):
            return WriteSet(table.closed_keys, flow.tables[name].relation, self.dictionary)
        is_ours = table.source is None and not is_internal(name)  # else a publisher has admitted it, in its order
        guarded = table.promises is not NO_PROMISES and is_ours
        guard = self.guard_of(table, dry=now is not None) if guarded else None
        if table.stream is not None:
            seen = 0 if table.tick is None else self.clock.now() if now is None else now
            ordered, reached = table.promises.ordered, None
            if ordered is not None:
                reached = self.horizon_history.bound(name, ordered.column)
            return StreamWriteSet(table, flow.streams[name].kept, flow.last_at, seen, guard, reached)
        lifetimes = backend.lifetimes.get(name)
        expired = None
        if lifetimes is not None:
            expired = lifetimes.due_rows(self.clock.now() if now is None else now)
        tables = flow.tables
        debts = None if owed else tables[owed_name(name)].relation
        return WriteSet(table, tables[name].relation, self.dictionary, expired, debts, guard)

    def guard_of(self, table: Table, dry: bool = False) -> PromiseGuard:
        """Return what enforces the promises of a table. What a dry run compiles is forgotten, for its words are."""
        found = self._guards.get(table.name)
        if found is None or found.table is not table or found.dictionary is not self.dictionary:
            found = PromiseGuard(table, self.dictionary)
            if not dry:
                self._guards[table.name] = found
        return found

    def _open_to_write(self, name: str) -> WriteSet | StreamWriteSet:
        """Return an empty write set for a table, which must be the writer's to write to."""
        table = self.program.tables.get(owner_of(name))
        if table is not None and self._feeding != threading.get_ident():
            if table.source is not None:
                raise CatalogError(f'"{table.name}" is a source: its rows come from {table.source.urls[0]} only')
            if is_internal(name):
                raise CatalogError(f'"{name}" is a table of the database\'s own: it is not for writing to')
            if table.lookup is not None:
                raise CatalogError(f'"{name}" is a lookup: its rows are fetched. db.refresh_lookup fetches them again')
        return self.open_table(name)

    @contextmanager
    def feeding(self) -> Iterator[None]:
        """Let this thread write to sources. It holds the writer's lock."""
        with self.writer:
            before, self._feeding = self._feeding, threading.get_ident()
            try:
                yield
            finally:
                self._feeding = before

    def replay(self, epoch: Epoch) -> None:
        """Do an epoch again, at its own time; what expired in it is part of its changes."""
        with self.writer:
            self.clock.reach(epoch.time)
            self.apply(epoch, record=False)

    def apply(self, epoch: Epoch, record: bool) -> EpochResult:
        """Carry an epoch through tables and views, all of it or nothing; write it to the storage, if it is to be. What
        it lacks of relations from outside is fetched without the state lock."""
        if record:
            epoch = self.lookups.prepare(epoch)
        while True:
            try:
                return self._apply(epoch, record)
            except UnansweredError as missing:
                epoch = self.lookups.answer(epoch, missing.keys)

    def _apply(self, epoch: Epoch, record: bool) -> EpochResult:
        number, start, backend = epoch.number, time.perf_counter(), self.catalog.backend
        processor = time.thread_time()
        with self.state:
            try:
                result = self._run(epoch, self.followed() if self.feeds or self.sinks else ())
                if record and result.asked:
                    self.check_answered(result.asked)
                if record:
                    self.adaptation.write_epoch(epoch)
            except BaseException as error:
                backend.undo()
                if isinstance(error, MemoryError) and not isinstance(error, WhenceError):
                    raise self._out_of_memory(epoch) from error
                raise
            backend.commit(epoch)
            self.epoch, self.time = number, epoch.time
            self.arrivals.note(epoch, self.program.tables, backend)
            if epoch.source_positions:
                self.source_positions.update(epoch.source_positions)
            self.horizon_history.note(epoch, self.program.tables)
            self.count(result, number)
            self.lookups.note(epoch, result.asked)
            changes = self.held.after_epoch(result.changes)
            if self.feeds:
                self.push(changes)
            self.expiry.look_ahead()
            self.silence.look_ahead(epoch)
            self.seconds += time.perf_counter() - start
            self.processor_seconds += time.thread_time() - processor
            self.storage.epoch_done()
        if record:
            self.note_committed()
        if record and self.sinks:
            self.hand_over(number, changes)
        if record:
            self.adaptation.consider()
        if log.isEnabledFor(logging.DEBUG):
            what = ", ".join(sorted(result.changed)) or "nothing"
            log.debug("epoch %d committed in %.3f ms: %s", number, (time.perf_counter() - start) * 1000, what)
        return result

    def check_answered(self, asked: Mapping[str, Codes]) -> None:
        """Raise UnansweredError if rows from outside were asked for that are not here."""
        missing = unanswered(asked)
        if missing:
            raise UnansweredError(missing)

    def _run(self, epoch: Epoch, wanted: Collection[str]) -> EpochResult:
        """Run an epoch until `commit` or `undo`; report the changes of `wanted`. Views of subscriptions that fail on it
        are dropped: a writer does not wait for those who only look."""
        while True:
            try:
                return self.catalog.backend.run(epoch, wanted)
            except WhenceError as error:
                if not error.transient:
                    raise
                self.catalog.backend.undo()
                if not self.definitions.drop_failed(error):
                    raise

    def count(self, result: EpochResult, number: int) -> None:
        """Count what an epoch, or a release after it, has changed."""
        changed, tables, rows_out = self.changed, self.program.tables, 0
        for name, rows in result.changed.items():
            changed[name] = number
            if name in tables:
                self.rows_in += rows
            elif not is_beside(name) and not is_transient(name):
                rows_out += rows
        self.last_rows_out = rows_out
        self.rows_out += rows_out
        if result.expired:
            self.expired += result.expired_rows

    def run_release(self, epoch: Epoch) -> EpochResult:
        """Run the release of pending rows until `commit` or `undo`. A view of a subscription that fails on them is
        dropped, unless a writer is at work."""
        if not self.writer.acquire(blocking=False):
            return self.catalog.backend.run(epoch, self.followed())
        try:
            return self._run(epoch, self.followed())
        finally:
            self.writer.release()

    def read_eagerly(self) -> set[str]:
        """Return the relations whose changes somebody has to be told with every epoch."""
        found = {sink.view for sink in self.sinks}
        return found | self.hub.followed_eagerly() if "hub" in self.__dict__ else found

    def _out_of_memory(self, epoch: Epoch) -> OutOfMemoryError:
        rows, held = sum(len(delta.ann) for delta in epoch.deltas.values()), self.catalog.flow.state_bytes
        return OutOfMemoryError(
            f"out of memory in an epoch of {rows:,} rows, over tables and views of {in_bytes(held)}; it is undone. "
            "Insert in smaller transactions, drop views, or spread the database: whence.open(path, spark=spark)"
        )

    def advance(self) -> None:
        """Begin an epoch in which no table changes: views are redefined in it, so that what changed has a number, and
        `at` can read both sides."""
        epoch = Epoch(self.epoch + 1, self.clock.now(), {})
        self.storage.write_epoch(epoch)
        self.epoch, self.time = epoch.number, epoch.time
        self.arrivals.reach(epoch.number, epoch.time)
        self.silence.look_ahead(epoch)
        self.storage.epoch_done()

    def be_silent(self) -> None:
        """Make an epoch in which nothing happens, so that its time is promised: nothing more comes before it."""
        with self.writer:
            self.check_open()
            self.storage.ready_to_write()
            if self.open_transaction is None:
                with self.state, self.storage.appending():
                    self.advance()
                self.note_committed()
            written = self.storage.last
        self.storage.wait_durable(written)

    def note_committed(self) -> None:
        """Note that the last epoch is complete, with all records that belong to it: it is durable when those are."""
        self.durable.commit(self.epoch, self.storage.last)
        self.durable.settle(self.storage.synced)

    def stand_at(self, epoch: int, time: int) -> None:
        """Go on from an epoch whose tables, views and lifetimes have just been restored."""
        with self.paused():
            self.epoch, self.time = epoch, time
            self.clock.reach(time)
            self.expiry.look_ahead()
            self.silence.declare()

    def horizons(self, epoch: int | None = None) -> Horizons:
        """Return what promises have established about rows to come, as of the last epoch or an earlier one."""
        return Horizons(self, self.epoch if epoch is None else epoch)

    # -- what is stable ----------------------------------------------------------------------------------------------

    @property
    def durable_epoch(self) -> int:
        """The last epoch on stable storage: in memory the last committed one, of a follower the last replayed one."""
        return self.durable.epoch

    @property
    def lineage(self) -> HistoryLineage:
        """Names the epochs that listeners are given: `lineage.at(epoch)`."""
        return self.durable.lineage

    @property
    def position(self) -> Position:
        """The position of the last epoch on stable storage."""
        return self.durable.position

    def on_durable(self, listener: Callable[[int], object], restarted: Callable[[int], object] | None = None) -> None:
        """Call a listener with `durable_epoch` each time it rises, after the epoch's changes were passed to feeds.

        Epochs that become stable together are one call. When the database has begun anew from its storage, because a
        sync failed or what a follower had read was cut off, `restarted` is called instead, with the epoch it is at:
        numbers go on from there, perhaps below those before. Feeds and transient views have ended then.

        Calls come one at a time, from any thread, which may hold locks of the database: a listener notes the number,
        wakes somebody up, and neither waits nor calls the database.
        """
        self.durable.add(listener, restarted)

    def off_durable(self, listener: Callable[[int], object]) -> None:
        """Do not call a listener any more. A call may still be under way in another thread."""
        self.durable.remove(listener)

    # -- followers ---------------------------------------------------------------------------------------------------

    def followed(self) -> set[str]:
        """Return the tables and views whose changes a feed or a sink takes."""
        return {*self.feeds.names, *(sink.view for sink in self.sinks)}

    def push(self, changes: Mapping[str, Batch]) -> None:
        """Push changes of relations to their feeds, as of the last epoch."""
        for name, change in changes.items():
            if name in self.feeds:
                change = self.reader.visible(name, change)
                if len(change.ann):
                    self.feeds.push(name, self.epoch, change.rows, change.ann)

    def hand_over(self, epoch: int, changes: Mapping[str, Batch]) -> None:
        """Hand an epoch's changes to every sink; raise the first error of any when all have been called."""
        failures = []
        for sink in list(self.sinks):
            try:
                sink(epoch, changes)
            except SparkError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    @cached_property
    def hub(self) -> SubscriptionHub:
        """What is subscribed to."""
        from whence.runtime.subscriptions.hub import SubscriptionHub  # loaded with the first subscription

        return SubscriptionHub(self)

    # -- dry runs ----------------------------------------------------------------------------------------------------

    def dry_run(
        self, write: Callable[[Transaction], object], names: Collection[str], tell: Callable[[Mapping[str, Batch]], T]
    ) -> T:
        """Run the writes as an epoch, pass the changes of `names` to `tell`, and undo the epoch; return its result.

        Both locks are held: others wait for it as for an epoch. A database that is only read runs it at the time of the
        last epoch.
        """
        self.check_not_writing("what_if")
        with held(self.writer, "waiting for the end of a transaction"):
            self.check_open()
            now = self.clock.now()
            with shielded():
                self.before_reading()
            with held(self.state, "waiting for readers"):
                found = self._dry_run(write, names, tell, self.time if self.storage.read_only else now)
                seen = self.storage.last
        self.storage.wait_durable(seen)
        return found

    def _dry_run(
        self,
        write: Callable[[Transaction], object],
        names: Collection[str],
        tell: Callable[[Mapping[str, Batch]], T],
        now: int,
    ) -> T:
        self.held.refresh(*names)
        words, backend = len(self.dictionary), self.catalog.backend
        writes = Transaction(lambda name: self.open_table(name, now))
        try:
            write(writes)
            epoch = gather(writes, backend.lifetimes, self.epoch + 1, now)
            epoch.released = self.held.holds_of(names)
            if not epoch.deltas and not epoch.refreshed:
                return tell({})
            while True:
                result = self._run(epoch, names)
                missing = unanswered(result.asked)
                if not missing:
                    return tell(result.changes)
                backend.undo()
                epoch = self.lookups.answer(epoch, missing)
        finally:
            backend.undo()
            backend.withdraw_words(words)

    # -- storage -----------------------------------------------------------------------------------------------------

    @property
    def retained(self) -> range:
        """The epochs that `at` can read."""
        return retained(self)

    def at(self, epoch: int) -> Coordinator:
        """Return the database as it was after an epoch, for reading only."""
        return at(self, epoch)

    def sync(self) -> None:
        """Make everything stable."""
        self.check_open()
        self.storage.sync()

    def snapshot(self) -> bool:
        """Write an image of all state."""
        self.check_open()
        self.check_not_writing("snapshot")
        return self.storage.snapshot()

    def storage_metrics(self) -> dict[str, Any]:
        """Return what `metrics` says of disk and partitions."""
        found = {**self.storage.metrics(), **self.catalog.backend.figures()}
        return {**found, **self.driver.figures()} if self.driver is not None else found


class TransactionScope:
    """A block of writes: the outermost one is a transaction, and one inside it a savepoint."""

    __slots__ = ("_coordinator", "_savepoint", "_wait", "_writes")

    def __init__(self, coordinator: Coordinator, wait: bool = True) -> None:
        self._coordinator, self._wait = coordinator, wait

    def __enter__(self) -> Transaction:
        coordinator = self._coordinator
        coordinator.writer.acquire()
        try:
            self._savepoint = None
            if coordinator.open_transaction is not None:
                coordinator.storage.ready_to_write()
                self._writes = coordinator.open_transaction
                self._savepoint = self._writes.savepoint()
            else:
                self._writes = coordinator.begin()
        except BaseException:
            coordinator.writer.release()
            raise
        return self._writes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        coordinator = self._coordinator
        try:
            if self._savepoint is not None:
                if kind is not None:
                    self._writes.rollback_to(self._savepoint)
                return
            try:
                if kind is None:
                    coordinator.commit(self._writes)
            finally:
                coordinator.open_transaction = None
            coordinator.words.consider()
            written = coordinator.storage.last
        finally:
            coordinator.writer.release()
        if kind is None and self._wait:
            coordinator.storage.wait_durable(written)
