"""The broker: all sources of one database, and the thread that their messages come in by.

A database with sources is a broker, served or not. `reconcile` lets exactly the sources that are declared be fed; it is
called when the database is opened for writing, and after every CREATE and DROP.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from sqlglot import exp

from whence.model.errors import CatalogError, WhenceError
from whence.plan.algebra.program import Source, Table, View, ordered_name, with_source_names
from whence.plan.order_sensitive import IN_ORDER, has_sources, ordered_groups
from whence.runtime.sources.connection import ServerAddress
from whence.runtime.sources.curiosity import Curiosity
from whence.runtime.sources.definition import CLOSED
from whence.runtime.sources.fetched_rows import FetchedTicks
from whence.runtime.sources.host import Connection, make_host
from whence.runtime.sources.ordered import OrderedRelease
from whence.runtime.sources.reflected import SOURCES, SourceRecord, declare_tables, internal_rows
from whence.runtime.sources.results import Results
from whence.runtime.sources.source_feed import SourceFeed
from whence.runtime.sources.source_writer import PROMISES_EVERY, SourceWriter
from whence.sql import statements as st
from whence.sql.addresses import source_address
from whence.sql.bind import bind_query_views, bind_views
from whence.sql.options import duration
from whence.sql.parse import parse_one
from whence.subscribe import messages as ms
from whence.subscribe.plain import column_from_plain
from whence.subscribe.ranges import Range

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
        self.host = make_host()
        self.loop = self.host.loop
        self._connections: dict[ServerAddress, Connection] = {}
        self._room: asyncio.Event = self._made_in_loop()
        self._reconciling = threading.Lock()
        self._promised: dict[tuple[str, str], tuple[float, Any]] = {}
        self._late_promises: dict[tuple[str, str], tuple[Any, bool]] = {}  # that came too soon after the last
        self._listeners: list[Callable[[], object]] = []
        self._closed = False
        self.ordered = OrderedRelease(self)
        self.writer = SourceWriter(self)
        self.curiosity = Curiosity(self)
        self.results = Results(self)

    def _made_in_loop(self) -> asyncio.Event:
        room = asyncio.Event()
        room.set()
        return room

    # -- the loop ----------------------------------------------------------------------------------------------------

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop."""
        self.host.call(function, *args)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop."""
        return self.host.submit(work)

    def close(self) -> None:
        """Feed nothing any more."""
        if self._closed:
            return
        self._closed = True
        self.curiosity.close()
        self.results.close()
        self.writer.close()

        def end() -> None:
            for feed in self.feeds.values():
                feed.close()
            for connection in list(self._connections.values()):
                connection.close()

        self.call(end)
        self.host.close()

    # -- sources -----------------------------------------------------------------------------------------------------

    def reconcile(self, wait: bool = True) -> None:
        """Feed the sources that are declared, and no others, with what the views need; with `wait`, return when that is
        here, or after a while."""
        coordinator = self.coordinator
        if self._closed or coordinator.closed:
            return
        self.results.drop_unused()
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
        anew = self._follow_every_change()
        for feed in list(self.feeds.values()):
            if not feed.is_started and not feed.is_resting:
                feed.is_started = True
                self.call(feed.start)
        for name in anew if wait else ():
            self.wait_until_caught_up(name)

    @contextmanager
    def preparing_views(self, creates: Sequence[st.CreateView]) -> Iterator[None]:
        """Have the ordered twins and the results that new views will read, while they are made."""
        program = self.coordinator.program
        if not has_sources(program):
            yield
            return
        bound = bind_views(list(creates), program)
        self.ordered.declare_twins(ordered_groups(bound))
        new = [name for name, view in bound.views.items() if program.views.get(name) is not view]
        with self.results.preparing(bound, new):
            yield

    @contextmanager
    def preparing_query(self, query: exp.Expr, ordered: bool = False) -> Iterator[None]:
        """Have the ordered twins and the results that a query will read, while somebody begins to follow it."""
        program = self.coordinator.program
        if not has_sources(program):
            yield
            return
        plan, hidden = bind_query_views(query.copy(), program, "$query", keep_order=False)
        bound = program.copy()
        options = ((IN_ORDER, "true"),) if ordered else ()
        new = {**hidden, "$query": View("$query", plan.schema, plan, options)}
        bound.views |= new
        self.ordered.declare_twins(ordered_groups(bound))
        with self.results.preparing(bound, new, for_query=True):
            yield

    def follow_in_order(self, reads: Iterable[str], ordered: bool = False) -> None:
        """Let rows go on to the twins among the relations that a new query reads. With `ordered` somebody wants them in
        order: no change that comes from now on is put together with others."""
        if ordered:
            self.writer.run(self.ordered.regroup)
            self._follow_every_change()
        elif any(name == ordered_name(with_source_names(name)) for name in reads):
            self.writer.later(self.ordered.regroup)

    def _follow_every_change(self) -> list[str]:
        """Subscribe again to tables that are followed by net changes, and that something depends on the order of;
        return their names. When they have caught up, no change that comes is put together with others."""
        found = list[str]()

        def subscribe_again() -> None:
            for name, feed in self.feeds.items():
                if self.needs_every_change(name) and not feed.takes_every_change:
                    feed.catch_up_anew()
                    feed.subscribe_again()
                    found.append(name)

        self.curiosity.in_loop(subscribe_again)
        return found

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
                self.call(feed.subscribe_again)

        if not self._closed:
            self.loop.run_in_executor(None, load)

    def fail(self, feed: SourceFeed, why: str) -> None:
        """Begin a source again whose rows could not be written, after a while."""

        def again() -> None:
            if not self._closed and self.feeds.get(feed.table.name) is feed:
                feed.error = why
                feed.subscribe_again()

        feed.generation += 1
        self.call(self.loop.call_later, 1.0, again)

    # -- what feeds use ----------------------------------------------------------------------------------------------

    async def connection(self, address: ServerAddress) -> Connection:
        """Return a connection to a server that stands; those from one server share it."""
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = self.host.connect(address, self._ended, self._room)
        await asyncio.shield(found.ready)
        return found

    def _ended(self, connection: Connection) -> None:
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]

    def hold(self) -> None:
        """Read no more messages for a while."""
        self.call(self._room.clear)

    def release(self) -> None:
        """Read messages again."""
        if not self._room.is_set():
            self.call(self._room.set)

    def fetch(self, name: str, take: Callable[[FetchedTicks], object], ranges: Sequence[Range]) -> None:
        """Ask the publisher of a source for ticks that are reflected, for somebody who is called with what comes."""
        feed = self.feeds.get(name)
        if feed is not None:
            self.call(feed.fetch, take, ranges)

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
        if feed.is_result:
            self.results.promise(feed, column, value)
            return
        if column.startswith(CLOSED):
            self.writer.close_keys(table.name, value)
            if twin:
                self.writer.close_keys(ordered_name(table.name), value)
            return
        if table.stream is None or column not in table.schema.names:
            return
        place = table.schema.names.index(column)
        [bound] = column_from_plain([value], table.schema.types[place])
        last, before = self._promised.get((table.name, column), (0.0, None))
        now = self.host.now()
        if bound == before:
            return
        if now - last < PROMISES_EVERY:
            self._promise_later(feed, column, value, twin, last + PROMISES_EVERY - now)
            return
        self._late_promises.pop((table.name, column), None)
        self._promised[table.name, column] = (now, bound)
        self.writer.promise(table.name, place, bound)
        if twin and ordered_name(table.name) in self.coordinator.program.tables:
            self.writer.promise(ordered_name(table.name), place, bound)

    def note_promise(self, feed: SourceFeed, column: str, bound: Any) -> None:
        """Note that a promise was written with the rows that it came with."""
        if bound is not None:
            key = feed.table.name, column
            self._promised[key] = (self.host.now(), bound)
            self._late_promises.pop(key, None)

    def _promise_later(self, feed: SourceFeed, column: str, value: Any, twin: bool, seconds: float) -> None:
        """Keep a promise after a while, unless another one has come by then, or another past."""
        key, lineage = (feed.table.name, column), feed.record.lineage
        is_planned = key in self._late_promises
        self._late_promises[key] = value, twin

        def keep() -> None:
            late = self._late_promises.pop(key, None)
            if late is not None and feed.record.lineage == lineage and self.feeds.get(key[0]) is feed:
                self.keep_promise(feed, column, *late)

        if not is_planned:
            self.call(self.loop.call_later, seconds, self.writer.later, keep)

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
