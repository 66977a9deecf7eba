"""Results of sources: queries that are computed by their publishers, while views of this broker read them.

`subscribe/results.py` says which parts of which views these are. Before a view is made, the tables of its results are,
and fed; so the view is filled with what there is. A result that no view reads any more is dropped.

When a server does not take the query, or when a new view reads the source in another way than one that runs, the
result is **given up**: first the rows that its views need are asked for, and when they are here these views are made
anew over them, in one epoch. Who follows them is told the difference.

The law: a view reads a result, or the rows of its sources, and nothing in between; what it shows is its query over the
ticks that the result, or the rows, reflect.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from whence.model.errors import WhenceError
from whence.plan.algebra.program import Program, Source, Table
from whence.runtime.sources.definition import CLOSED, define_columns, define_table
from whence.runtime.sources.source_writer import PROMISES_EVERY
from whence.runtime.subscriptions.queries import text_of_query
from whence.sql import statements as st
from whence.sql.addresses import source_address
from whence.sql.parse import parse_one, parse_query
from whence.subscribe.plain import column_from_plain
from whence.subscribe.results import (
    QUERY,
    SOURCES,
    ResultPlan,
    is_result,
    promise_twin,
    result_sources,
    results_beneath,
    wanted_results,
)
from whence.subscribe.source_needs import without_quotes

if TYPE_CHECKING:
    from whence.runtime.sources.broker import Broker
    from whence.runtime.sources.source_feed import SourceFeed

log = logging.getLogger("whence")


class Results:
    """The results that the views of one broker read. Any thread may call it, but with no lock held."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._coordinator = broker, broker.coordinator
        self._refused: dict[str, str] = {}  # and why
        self._held: Counter[str] = Counter()  # those that a view is about to read
        self.given_up: set[str] = set()  # rows are asked for in their place
        self._guard = threading.Lock()
        self._worker = broker.host.worker("results", self._step)
        self._promised: dict[tuple[str, int], float] = {}  # when a promise was passed on last
        self._promises: dict[tuple[str, int], Any] = {}  # those that wait

    def close(self) -> None:
        """Give up nothing more."""
        self._worker.close(wait=False)

    # -- which there are ---------------------------------------------------------------------------------------------

    @contextmanager
    def preparing(self, bound: Program, new: Collection[str], for_query: bool = False) -> Iterator[None]:
        """Have the results that new views of a program will read, for as long as it takes to make the views. For a
        query that somebody follows they are made only if its sources say `ask = 'results'`."""
        program = bound.copy()
        for transient in list(self._coordinator.catalog.transient.values()):
            program.views |= transient.bound
        wanted = wanted_results(program, self._refused)
        tables = self._coordinator.program.tables
        allowed = {name for plans in wanted.values() for name in plans}
        self.give_up({name for name in self._read() if name not in allowed})
        running = {name for view, plans in wanted.items() if view not in new for name in plans}
        mine = {name: plan for view in new for name, plan in wanted.get(view, {}).items()}
        made = {
            name: plan
            for name, plan in mine.items()
            if name not in tables and name not in running and (not for_query or self._are_asked_for(plan))
        }
        with self._guard:
            self._held.update(mine.keys())
        try:
            for plan in made.values():
                self._declare(plan)
            if made:
                self._broker.reconcile(wait=False)
                for name in made:
                    self._wait(name)
            yield
        finally:
            with self._guard:
                self._held.subtract(mine.keys())

    def _are_asked_for(self, plan: ResultPlan) -> bool:
        sources = [self._coordinator.program.tables[name].source for name in plan.sources]
        return all(source is not None and source.option("ask") == "results" for source in sources)

    def _read(self) -> set[str]:
        """Return the results that views and subscriptions read as they run."""
        coordinator = self._coordinator
        with coordinator.looking():
            planned = coordinator.catalog.planned.copy()
            planned.tables = dict(coordinator.program.tables)
            for transient in coordinator.catalog.transient.values():
                planned.views |= transient.planned
        return {result for name in planned.views for result in results_beneath(planned, name)}

    def _declare(self, plan: ResultPlan) -> None:
        """Make the table of a result, and the promise twins of its streams."""
        tables = self._coordinator.program.tables
        first = tables[plan.sources[0]].source
        assert first is not None
        kept = [(name, value) for name, value in first.options if name in ("token_file", "ca_file", "wait")]
        options = [*kept, (QUERY, plan.text), (SOURCES, ",".join(plan.sources))]
        given = ", ".join(f"{name} = {_text(value)}" for name, value in options)
        urls = ", ".join(map(_text, first.urls))
        shape = define_columns(plan.node.schema)
        self._create(f'CREATE SOURCE "{plan.name}" FROM {urls} WITH ({given}) AS TABLE {shape}')
        for name in plan.sources:
            if tables[name].stream is not None and tables[name].promises.follows_order:
                twin = promise_twin(plan.name, name)
                self._create(define_table(tables[name]).replace("STREAM (", f'CREATE STREAM "{twin}" (', 1))
        log.info("%s is asked for a result: %s", " and ".join(plan.sources), plan.text)

    def _create(self, sql: str) -> None:
        create = parse_one(sql)
        assert isinstance(create, st.CreateTable)
        self._coordinator.definitions.create_table(create, internal=True)

    def _wait(self, name: str) -> None:
        """Wait until the rows of a result are here; if its servers refuse it, drop it."""
        self._broker.wait_until_caught_up(name)
        if name in self._refused:
            self._coordinator.definitions.use_rows(self._with_twins([name]))

    def drop_unused(self) -> None:
        """Drop the results that nothing reads any more."""
        tables = self._coordinator.program.tables
        there = {name for name, table in tables.items() if is_result(table)}
        if there:
            read = self._read()
            with self._guard:
                unused = sorted(name for name in there if name not in read and self._held[name] <= 0)
            if unused:
                self._coordinator.definitions.use_rows(self._with_twins(unused))

    def _with_twins(self, names: Collection[str]) -> list[str]:
        tables = self._coordinator.program.tables
        twins = [promise_twin(name, source) for name in names for source in result_sources(tables[name])]
        return [*names, *(twin for twin in twins if twin in tables)]

    # -- rows in their place -----------------------------------------------------------------------------------------

    def refuse(self, feed: SourceFeed, why: str) -> None:
        """Note that a server does not take a result: its views are computed from rows. Called in the broker's loop."""
        name = feed.table.name
        if name in self._refused:
            return
        self._refused[name] = why
        log.warning("%s is refused, rows are asked for: %s", describe_result(feed.table), why)
        feed.caught_up.set()
        self._worker.wake()

    def _step(self) -> None:
        """Give up results that are refused, but for those that a new view waits for: it sees that they are."""
        with self._guard:
            names = {name for name in self._refused if self._held[name] <= 0}
        if not self._coordinator.closed:
            try:
                self.give_up(names & self._read())
            except WhenceError as error:
                log.error("sources: %s", error)

    def give_up(self, names: Collection[str]) -> None:
        """Have views read rows in place of some results."""
        if not names:
            return
        self.given_up |= set(names)
        try:
            self._broker.curiosity.reconcile(wait=True)
            there = [name for name in sorted(names) if name in self._coordinator.program.tables]
            self._coordinator.definitions.use_rows(self._with_twins(there))
        finally:
            self.given_up -= set(names)
        self._broker.reconcile(wait=False)

    # -- for feeds and for people ------------------------------------------------------------------------------------

    def queries(self, table: Table) -> tuple[str, ...]:
        """Return the query of a result for each of its addresses, by the names that relations have there."""
        assert table.source is not None
        text, tables = table.source.option(QUERY) or "", self._coordinator.program.tables
        found = []
        for place in range(len(table.source.urls)):
            query = parse_query(text).query.copy()
            called = {name: _relation(tables[name].source, place) for name in result_sources(table)}
            for each in query.find_all(exp.Table):
                if each.name in called:
                    each.set("this", exp.to_identifier(called[each.name], quoted=True))
            found.append(text_of_query(query))
        return tuple(found)

    def rests(self, name: str) -> bool:
        """Return whether a source that no view reads rows of is not asked for any: its results are enough."""
        tables = self._coordinator.program.tables
        source = tables[name].source
        if source is not None and source.option("ask") == "results":
            return True
        return any(name in result_sources(table) for table in tables.values() if is_result(table))

    def promise(self, feed: SourceFeed, column: str, value: Any) -> None:
        """Pass on what a publisher has promised of a stream beneath a result: `stream.column`, or closed keys."""
        tables = self._coordinator.program.tables
        relation, _, rest = column.removeprefix(CLOSED).rpartition(".")
        for name in result_sources(feed.table):
            twin = promise_twin(feed.table.name, name)
            if twin not in tables or _relation(tables[name].source, feed.state.url) != relation:
                continue
            if column.startswith(CLOSED):
                self._broker.writer.close_keys(twin, value)
            elif rest in tables[twin].schema.names:
                place = tables[twin].schema.names.index(rest)
                [bound] = column_from_plain([value], tables[twin].schema.types[place])
                self._promise_soon((twin, place), bound)

    def _promise_soon(self, key: tuple[str, int], bound: Any) -> None:
        """Promise the last that was said, not more often than it is worth. Called by the writer's thread."""
        is_waiting = key in self._promises
        self._promises[key] = bound
        if not is_waiting:
            pause = self._promised.get(key, 0.0) + PROMISES_EVERY - self._broker.host.now()
            pass_on = partial(self._pass_on, key)
            self._broker.call(self._broker.loop.call_later, max(pause, 0.0), self._broker.writer.later, pass_on)

    def _pass_on(self, key: tuple[str, int]) -> None:
        """Promise what waits. Called by the writer's thread."""
        self._promised[key] = self._broker.host.now()
        self._broker.writer.promise(*key, self._promises.pop(key))

    def describe(self, names: Collection[str] | None = None) -> list[str]:
        """Return what results are asked for, of some tables or all."""
        tables = self._coordinator.program.tables
        return [
            describe_result(table) for n, table in tables.items() if is_result(table) and (names is None or n in names)
        ]


def describe_result(table: Table) -> str:
    """Return what a result is asked for, for people."""
    assert table.source is not None
    query = without_quotes(table.source.option(QUERY) or "")
    return f"{' and '.join(result_sources(table))}: the publisher is asked for {query}"


def _relation(source: Source | None, place: int) -> str:
    """Return the name that a source has at one of its addresses."""
    assert source is not None
    return source_address(source.urls[place]).relation


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    return f"'{quoted}'"
