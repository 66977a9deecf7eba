"""The broker: all sources of one database, and the thread that their messages come in by.

A database with sources is a broker, served or not. `reconcile` lets exactly the sources that are declared be fed; it is
called when the database is opened for writing, and after every CREATE and DROP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from sqlglot import exp

from whence.model.errors import CatalogError, WhenceError
from whence.plan.algebra.program import Source, Table, View, ordered_name
from whence.plan.order_sensitive import has_sources, ordered_groups
from whence.runtime.sources.connection import ServerAddress, SourceConnection
from whence.runtime.sources.curiosity import Curiosity
from whence.runtime.sources.definition import CLOSED
from whence.runtime.sources.nats_connection import NatsConnection
from whence.runtime.sources.ordered import OrderedRelease
from whence.runtime.sources.reflected import SOURCES, SourceRecord, declare_tables, internal_rows
from whence.runtime.sources.source_feed import SourceFeed
from whence.runtime.sources.source_writer import PROMISES_EVERY, SourceWriter
from whence.sql import statements as st
from whence.sql.addresses import source_address
from whence.sql.bind import bind_query_views, bind_views
from whence.sql.options import duration
from whence.sql.parse import parse_one
from whence.subscribe import messages as ms
from whence.subscribe.plain import column_from_plain

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
T = TypeVar("T")
WAIT = 10.0
"""Seconds that CREATE SOURCE waits for the rows that are there."""


class Broker:
    """The sources of one coordinator. Any thread may call it."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.feeds: dict[str, SourceFeed] = {}
        self.records: dict[str, SourceRecord] = {}
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="whence sources", daemon=True)
        self._connections: dict[ServerAddress, SourceConnection | NatsConnection] = {}
        self._room: asyncio.Event = self._made_in_loop()
        self._reconciling = threading.Lock()
        self._promised: dict[tuple[str, str], tuple[float, Any]] = {}
        self._listeners: list[Callable[[], object]] = []
        self._closed = False
        self._thread.start()
        self.ordered = OrderedRelease(self)
        self.writer = SourceWriter(self)
        self.curiosity = Curiosity(self)

    def _made_in_loop(self) -> asyncio.Event:
        room = asyncio.Event()
        room.set()
        return room

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.loop.close()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *args)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """Feed nothing any more."""
        if self._closed:
            return
        self._closed = True
        self.curiosity.close()
        self.writer.close()

        def end() -> None:
            for feed in self.feeds.values():
                feed.close()
            for connection in list(self._connections.values()):
                connection.close()
            self.loop.call_later(0.05, self.loop.stop)

        self.call(end)
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    # -- sources -----------------------------------------------------------------------------------------------------

    def reconcile(self, wait: bool = True) -> None:
        """Feed the sources that are declared, and no others, with what the views need; with `wait`, return when that is
        here, or after a while."""
        coordinator = self.coordinator
        if self._closed or coordinator.closed:
            return
        with self._reconciling:
            declared = {n: t for n, t in coordinator.program.tables.items() if t.source is not None}
            if declared:
                declare_tables(coordinator)
            gone = [name for name, feed in self.feeds.items() if feed.table != declared.get(name)]
            for name in gone:
                feed = self.feeds.pop(name)
                self.call(feed.close)
            self._forget(set(self._known()) - declared.keys())
            for name, table in declared.items():
                if name not in self.feeds:
                    self.feeds[name] = self._feed(table)
            self.ordered.drop_unused()
        self.writer.run(self.ordered.regroup)
        self.curiosity.reconcile(wait)
        for feed in list(self.feeds.values()):
            if not feed.is_started:
                feed.is_started = True
                self.call(feed.start)

    def prepare_views(self, creates: Sequence[st.CreateView]) -> None:
        """Have the ordered twins that new views will read."""
        if has_sources(self.coordinator.program):
            bound = bind_views(list(creates), self.coordinator.program)
            self.ordered.declare_twins(ordered_groups(bound))

    def prepare_query(self, query: exp.Expr) -> None:
        """Have the ordered twins that a query will read while somebody follows it."""
        program = self.coordinator.program
        if has_sources(program):
            plan, hidden = bind_query_views(query.copy(), program, "$query", keep_order=False)
            bound = program.copy()
            bound.views |= {**hidden, "$query": View("$query", plan.schema, plan)}
            if self.ordered.declare_twins(ordered_groups(bound)):
                self.call(self.loop.call_later, 0.01, self._regroup_soon)

    def _regroup_soon(self) -> None:
        self.loop.run_in_executor(None, self.writer.run, self.ordered.regroup)

    def _feed(self, table: Table) -> SourceFeed:
        coordinator = self.coordinator
        record = self.records[table.name] = SourceRecord(table.name)
        with coordinator.looking():
            record.load(coordinator)
            interrupted = table.name in self._known() and record.lineage is None and not len(record.reflected)
        if interrupted and table.stream is not None:  # it was to start over when the process ended
            self.ordered.begin_again(table.name)
        return SourceFeed(self, table, record)

    def _known(self) -> list[str]:
        with self.coordinator.looking():
            return [row[0] for row in internal_rows(self.coordinator, SOURCES)]

    def _forget(self, names: set[str]) -> None:
        """Forget what was reflected of sources that are gone."""
        coordinator = self.coordinator
        for name in names:
            record = self.records.pop(name, None) or SourceRecord(name)
            with coordinator.feeding(), coordinator.transaction() as writes:
                with coordinator.looking():
                    record.load(coordinator)
                record.forget(coordinator, writes)
                pending = writes.table(SOURCES)
                rows, counts = pending.contents()
                kept = [row[0] == name for row in internal_rows(coordinator, SOURCES)]
                pending.remove(rows[kept], counts[kept])

    def reload_soon(self) -> None:
        """Begin again from what is stored, soon."""
        self.call(self.loop.call_later, 0.2, self._reload)

    def _reload(self) -> None:
        def load() -> None:
            coordinator = self.coordinator
            coordinator.refresh()
            with coordinator.looking():
                for record in self.records.values():
                    record.load(coordinator)
            for feed in self.feeds.values():
                self.call(feed.reload)

        if not self._closed:
            self.loop.run_in_executor(None, load)

    def fail(self, feed: SourceFeed, why: str) -> None:
        """Begin a source again whose rows could not be written, after a while."""

        def again() -> None:
            if not self._closed and self.feeds.get(feed.table.name) is feed:
                feed.error = why
                feed.reload()

        feed.generation += 1
        self.call(self.loop.call_later, 1.0, again)

    # -- what feeds use ----------------------------------------------------------------------------------------------

    async def connection(self, address: ServerAddress) -> SourceConnection | NatsConnection:
        """Return a connection to a server that stands; those from one server share it."""
        found = self._connections.get(address)
        if found is None:
            kind = NatsConnection if address.is_bus else SourceConnection
            found = self._connections[address] = kind(address, self._ended, self._room)
        await asyncio.shield(found.ready)
        return found

    def _ended(self, connection: SourceConnection | NatsConnection) -> None:
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]

    def hold(self) -> None:
        """Read no more messages for a while."""
        self.call(self._room.clear)

    def release(self) -> None:
        """Read messages again."""
        if not self._room.is_set():
            self.call(self._room.set)

    def hurry(self, name: str) -> None:
        """Ask the publisher of a source where it is by now."""
        feed = self.feeds.get(name)
        if feed is not None:
            self.call(feed.hurry)

    def needs_every_change(self, name: str) -> bool:
        """Return whether a table's changes are to be told one by one, since something depends on their order."""
        return self.ordered.has(name)

    def promise(self, feed: SourceFeed, column: str, value: Any) -> None:
        """Promise what a publisher has promised, not more often than it is worth."""
        self.keep_promise(feed, column, value)

    def keep_promise(self, feed: SourceFeed, column: str, value: Any, twin: bool = False) -> None:
        """Promise what a publisher has promised, of its ordered twin, too; not more often than it is worth."""
        table = feed.table
        if column.startswith(CLOSED):
            self.writer.close_keys(table.name, value)
            return
        if table.stream is None or column not in table.schema.names:
            return
        place = table.schema.names.index(column)
        [bound] = column_from_plain([value], table.schema.types[place])
        last, before = self._promised.get((table.name, column), (0.0, None))
        now = time.monotonic()
        if bound == before or now - last < PROMISES_EVERY:
            return
        self._promised[table.name, column] = (now, bound)
        self.writer.promise(table.name, place, bound)
        if twin and ordered_name(table.name) in self.coordinator.program.tables:
            self.writer.promise(ordered_name(table.name), place, bound)

    def told(self) -> None:
        """Tell those who wait for sources that some have moved."""
        for listener in list(self._listeners):
            listener()

    def listen(self, listener: Callable[[], object]) -> None:
        """Call a function whenever a source has moved, from the writer's thread."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], object]) -> None:
        """Do not call it any more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    # -- CREATE SOURCE -----------------------------------------------------------------------------------------------

    def complete(self, create: st.CreateSource) -> st.CreateTable:
        """Return a CREATE SOURCE with what its servers say that it is."""
        definition = self.submit(self._describe(create)).result()
        made = parse_one(f"{create.sql} AS {definition}")
        assert isinstance(made, st.CreateTable)
        return made

    async def _describe(self, create: st.CreateSource) -> str:
        failures = []
        for url in create.source.urls:
            try:
                return await asyncio.wait_for(self._describe_at(url, create.source), WAIT)
            except (WhenceError, OSError, TimeoutError) as error:
                failures.append(f"{url}: {error or type(error).__name__}")
        raise CatalogError(f'source "{create.name}": {"; ".join(failures)}')

    async def _describe_at(self, url: str, source: Source) -> str:
        address = source_address(url)
        server = ServerAddress(address.server, source.option("token_file"), source.option("ca_file"))
        connection = await self.connection(server)
        found: asyncio.Future[str] = self.loop.create_future()

        class Describing:
            def receive(self, wire_id: int, message: Any) -> None:
                if found.done():
                    return
                if isinstance(message, ms.ErrorMessage):
                    found.set_exception(WhenceError(message.message))
                elif isinstance(message, ms.Subscribed):
                    found.set_result(message.definition or "")

            def lost(self, wire_id: int, why: str) -> None:
                if not found.done():
                    found.set_exception(WhenceError(why))

        wire_id = connection.attach(Describing())
        connection.send(ms.Subscribe(wire_id, [address.relation], ticks=True, have=""))
        try:
            return await found
        finally:
            connection.send(ms.Unsubscribe(wire_id))
            self.loop.call_later(0.5, connection.detach, wire_id)

    def wait_until_caught_up(self, name: str, seconds: float | None = None) -> bool:
        """Wait for the rows that a source had when it was first subscribed to; return whether they are in."""
        feed = self.feeds.get(name)
        if feed is None:
            return False
        option = feed.source.option("wait")
        patience = seconds if seconds is not None else WAIT if option is None else duration("wait", option) / 1e6
        try:
            self.submit(asyncio.wait_for(feed.caught_up.wait(), patience)).result()
        except TimeoutError:
            log.warning("source %s: %s", name, feed.error or "the rows that are there take their time")
            return False
        return True
