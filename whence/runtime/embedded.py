"""The embedded runtime: tables, views and epochs in this process.

One writer at a time, any number of readers. A writer's pending rows lie beside the committed state until the commit
pushes them through the dataflow; readers are kept out only for that moment, so what they see is always a whole epoch.
The law: after epoch e every view equals its definition over the tables as of e; an epoch that fails has not happened.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from sqlglot import exp

from whence.annotate.counting import COUNTING
from whence.connect import rows as rows_
from whence.engine.batch import consolidate
from whence.engine.operator import Batch, Operator
from whence.errors import CatalogError, WhenceError
from whence.model.codes import Codes
from whence.model.types import Schema
from whence.plan.logical import Node, TopK
from whence.plan.program import Program, ScalarFunction, TableFunction, View
from whence.runtime import explaining
from whence.runtime.adhoc import Adhoc, sort_order, uses_table_function
from whence.runtime.catalog import Catalog, Progress
from whence.runtime.changes import Changes, Feeds
from whence.runtime.tables import Pending
from whence.runtime.transaction import Transaction
from whence.sql import statements as st
from whence.sql.bind import bind_query_views
from whence.sql.position import did_you_mean

log = logging.getLogger("whence")


class Embedded:
    """The state of one database and everything that may be done to it."""

    def __init__(self, recursion_limit: int) -> None:
        self.catalog = Catalog(recursion_limit)
        self.dictionary = self.catalog.dictionary
        self.epoch = 0
        self.closed = False
        self.seconds = 0.0
        self.rows_in = self.rows_out = 0
        self._writer = threading.RLock()  # held from a transaction's first write to its end
        self._state = threading.RLock()  # held while the committed state changes or is read
        self._open: Transaction | None = None
        self._feeds = Feeds()
        self._adhoc = Adhoc(self._read_all)
        self._arrow: dict[str, tuple[int, pa.Table]] = {}
        self._changed: dict[str, int] = {}

    @property
    def program(self) -> Program:
        return self.catalog.program

    def close(self) -> None:
        with self._writer, self._state:
            self.closed = True
            self._feeds.end()
        self._adhoc.close()  # not under our locks: a query holds its own while it reads under ours

    def _check_open(self) -> None:
        if self.closed:
            raise WhenceError("this database is closed")

    # -- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """All writes inside become one epoch when the outermost block ends, or none do if it raises."""
        with self._writer:
            self._check_open()
            if self._open is not None:
                mark = self._open.mark()
                try:
                    yield self._open
                except BaseException:
                    self._open.back_to(mark)
                    raise
                return
            self._open = writes = Transaction(self._pending)
            try:
                yield writes
                self._commit(writes)
            finally:
                self._open = None

    def _pending(self, name: str) -> Pending:
        table = self.program.tables.get(name)
        if table is None:
            if name in self.program.views:
                raise CatalogError(f'"{name}" is a view; only tables are written to')
            raise CatalogError(f'there is no table "{name}"{did_you_mean(name, self.program.tables)}')
        return Pending(table, self.catalog.flow.tables[name].relation, self.dictionary)

    def _commit(self, writes: Transaction) -> None:
        found = {name: consolidate(delta, COUNTING) for name, delta in writes.deltas().items()}
        deltas = {name: delta for name, delta in found.items() if len(delta.ann)}
        if not deltas:
            return
        flow, start = self.catalog.flow, time.perf_counter()
        with self._state:
            try:
                changes = flow.run(deltas)
            except BaseException:
                flow.undo()
                raise
            flow.commit()
            self.epoch = epoch = self.epoch + 1
            for name, delta in deltas.items():
                self._changed[name] = epoch
                self.rows_in += len(delta.ann)
                if name in self._feeds:
                    self._push(name, delta)
            for name, change in changes.items():
                self._changed[name] = epoch
                self.rows_out += len(change.ann)
                if name in self._feeds:
                    self._push(name, change)
            self.seconds += time.perf_counter() - start
        if log.isEnabledFor(logging.DEBUG):
            what = {name: len(batch.ann) for name, batch in (deltas | changes).items()}
            log.debug("epoch %d committed in %.3f ms: %s", epoch, (time.perf_counter() - start) * 1000, what)

    def _push(self, name: str, change: Batch) -> None:
        change = consolidate(change, COUNTING)
        if len(change.ann):
            self._feeds.push(name, self.epoch, change.rows, change.ann)

    # -- reading -----------------------------------------------------------------------------------------------------

    def schema(self, name: str) -> Schema:
        """The columns of a table or view."""
        self._check_open()
        found = self.program.tables.get(name)
        if found is not None:
            return found.schema
        view = self.program.views.get(name)
        if view is None or view.hidden:
            known = [*self.program.tables, *self.views()]
            raise CatalogError(f'there is no table or view "{name}"{did_you_mean(name, known)}')
        return view.schema

    def views(self) -> list[str]:
        return [name for name, view in self.program.views.items() if not view.hidden]

    def _operator(self, name: str) -> Operator:
        self.schema(name)
        flow = self.catalog.flow
        return flow.tables.get(name) or flow.views[name]

    def read(self, name: str) -> tuple[Codes, Codes]:
        """The distinct rows of the last committed epoch, and how often each is there."""
        with self._state:
            op = self._operator(name)
            batch = op.contents()
            return batch.rows, op.algebra.multiplicity(batch.ann)

    def count(self, name: str, wanted: Codes) -> Codes:
        """How often each of these rows is there."""
        with self._state:
            return self._operator(name).count_of(wanted)

    def size(self, name: str) -> int:
        """Rows, copies counted."""
        with self._state:
            return self._operator(name).size

    def read_arrow(self, name: str) -> tuple[int, pa.Table]:
        """The rows as Arrow, kept until they change, and the epoch in which they last did."""
        with self._state:
            schema, changed = self.schema(name), self._changed.get(name, 0)
            kept = self._arrow.get(name)
            if kept is None or kept[0] != changed:
                kept = self._arrow[name] = (changed, rows_.to_arrow(*self.read(name), schema, self.dictionary))
            return kept

    def _read_all(self, names: Iterable[str]) -> dict[str, pa.Table]:
        with self._state:
            return {name: self.read_arrow(name)[1] for name in names}

    def query(self, query: exp.Expr) -> pa.Table:
        """The answer of an ad-hoc query over the last committed epoch.

        DuckDB does not know our table functions: a query that uses one runs on our own operators, once.
        """
        self._check_open()
        if not uses_table_function(query, self.program):
            return self._adhoc.run(query, self.program)
        with self._writer, self._state:  # it may add to the dictionary, as only writers do
            plan, hidden = bind_query_views(query, self.program)
            rows, counts = self.evaluate(plan, hidden)
            if isinstance(plan, TopK):
                order = sort_order(rows, plan, self.dictionary)
                rows, counts = rows[order], counts[order]
            return rows_.to_arrow(rows, counts, plan.schema, self.dictionary)

    def evaluate(
        self, plan: Node, hidden: dict[str, View] | None = None, writes: Transaction | None = None
    ) -> tuple[Codes, Codes]:
        """The distinct rows of a bound plan over the last committed epoch, and how often each is there.

        The tables are taken as the open transaction sees them, if it is given; views always as committed.
        """
        with self._state:
            batch = self.catalog.evaluate(plan, hidden or {}, writes.contents if writes is not None else None)
            return batch.rows, batch.ann

    def explain(self, what: str | st.Query | st.CreateView) -> str:
        """How a view is kept, or how a query would be planned."""
        with self._state:
            if not isinstance(what, str):
                plan, hidden = bind_query_views(what.query, self.program)
                return explaining.explain_query(plan, hidden)
            self.schema(what)
            if what in self.program.tables:
                raise CatalogError(f'"{what}" is a table; EXPLAIN is for views and queries')
            return explaining.explain_view(self, what)

    def changes(self, name: str, snapshot: bool) -> Changes:
        """A feed of what changes from now on, preceded by what is there if `snapshot`."""
        with self._state:
            feed = Changes(name, self.schema(name), self.dictionary)
            if snapshot:
                rows, counts = self.read(name)
                if len(rows):
                    feed.push(self.epoch, rows, counts)
            self._feeds.add(feed)
            return feed

    # -- declaring ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _declaring(self) -> Iterator[Catalog]:
        with self._writer:
            self._check_open()
            if self._open is not None:
                raise WhenceError("CREATE and DROP cannot stand inside a transaction: end it first")
            with self._state:
                yield self.catalog

    def create_table(self, create: st.CreateTable) -> bool:
        """Declare a table; False if it is there already and that is allowed."""
        with self._declaring() as catalog:
            made = catalog.create_table(create)
            if made:
                log.info("table %s created", create.table.name)
            return made

    def create_views(self, creates: list[st.CreateView], progress: Progress | None = None) -> list[str]:
        """Declare views, which may refer to each other in any order, and fill them."""
        with self._declaring() as catalog:
            start = time.perf_counter()
            made, remade = catalog.create_views(creates, progress)
            self._forget(remade, "was replaced")
            for name in [*made, *remade]:
                rows = catalog.flow.views[name].size
                log.info("view %s created with %d rows in %.1f ms", name, rows, (time.perf_counter() - start) * 1000)
            return [*made, *remade]

    def drop(self, kind: str, name: str, cascade: bool = False, if_exists: bool = False) -> list[str]:
        """Remove a table or view, with CASCADE also the views that depend on it; the names that are gone."""
        with self._declaring() as catalog:
            gone = catalog.drop(kind, name, cascade, if_exists)
            self._forget(gone, "was dropped")
            if gone:
                log.info("dropped %s", ", ".join(gone))
            return gone

    def register(self, function: ScalarFunction | TableFunction) -> None:
        """Make a Python function known to SQL."""
        with self._declaring() as catalog:
            catalog.register(function)

    def _forget(self, names: list[str], why: str) -> None:
        for name in names:
            self._arrow.pop(name, None)
            self._changed[name] = self.epoch
            self._feeds.end([name], f'"{name}" {why}: its changes have ended')
