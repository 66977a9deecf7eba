"""The embedded runtime: a database in this process, with everything that may be asked of it and said to it.

Reading is always of the last committed epoch. A change of the catalog happens whole or not at all, between two epochs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from whence.connect import rows as rows_
from whence.engine.core.epoch import Epoch
from whence.engine.core.image import SoundImages
from whence.engine.core.operator import Batch, Operator
from whence.engine.streams.retain import is_stream
from whence.model.codes import Codes
from whence.model.errors import CatalogError, WhenceError
from whence.model.progress import Progress
from whence.model.types import Schema
from whence.plan.algebra.logical import Node, TopK
from whence.plan.algebra.program import ScalarFunction, TableFunction, View, owed_name
from whence.plan.streams.model import with_at
from whence.runtime.catalog import Catalog, Saved, as_it_runs, table_kind
from whence.runtime.definitions import Contents
from whence.runtime.questions import explain as explaining
from whence.runtime.reading.adhoc import Adhoc, sort_order, uses_table_function
from whence.runtime.reading.calls import Narrow, TableFunctionCall
from whence.runtime.reading.changes import Changes
from whence.runtime.reading.late_rows import late_rows
from whence.runtime.writing.epochs import Epochs
from whence.runtime.writing.transaction import Transaction
from whence.sql import statements as st
from whence.sql.bind import bind_query_views, bind_views
from whence.sql.parse import parse_stored
from whence.sql.position import did_you_mean
from whence.state.folder import Folder, RecoveryPoint

log = logging.getLogger("whence")
_IN_MEMORY = "this database is in memory: whence.open(path) makes one that lasts"


class Embedded(Epochs):
    """Reading and declaring, on top of the epochs."""

    def __init__(self, recursion_limit: int, clock: Callable[[], float] | None = None) -> None:
        super().__init__(recursion_limit, clock)
        self._adhoc = Adhoc(self._read_all)

    def close(self) -> None:
        super().close()
        self._adhoc.close()  # not under our locks: a query holds its own while it reads under ours

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
            raise CatalogError(f'there is no table or view "{name:.100}"{did_you_mean(name, known)}')
        return view.schema

    def views(self) -> list[str]:
        return [name for name, view in self.program.views.items() if not view.hidden]

    def _operator(self, name: str) -> Operator:
        self.schema(name)
        flow = self.catalog.flow
        return flow.tables.get(name) or flow.views[name]

    def contents(self, name: str) -> tuple[Codes, Codes]:
        """The distinct rows, and how often each is there; of a stream all that are kept, in their order. Asked, as
        `count` is, while `reading`."""
        op = self._operator(name)
        batch = op.contents()
        if is_stream(op):
            return np.ascontiguousarray(batch.rows[:, :-1]), np.ones(len(batch.ann), np.int64)
        return batch.rows, batch.ann

    def count(self, name: str, wanted: Codes) -> Codes:
        """How often each of these rows is there."""
        return self._operator(name).count_of(wanted)

    def size(self, name: str) -> int:
        """Rows, copies counted."""
        with self.reading():
            return self._operator(name).size

    def read_arrow(self, name: str) -> tuple[int, pa.Table]:
        """The rows as Arrow, kept until they change, and the epoch in which they last did."""
        with self.reading():
            return self._read_arrow(name)

    def _read_arrow(self, name: str) -> tuple[int, pa.Table]:
        schema, changed = self.schema(name), self._changed.get(name, 0)
        kept = self._arrow.get(name)
        if kept is None or kept[0] != changed:
            kept = self._arrow[name] = (changed, rows_.to_arrow(*self.contents(name), schema, self.dictionary))
        return kept

    def read_tables(self) -> tuple[int, list[str], dict[str, tuple[Schema, Codes, Codes]]]:
        """Everything there is at one epoch: its number, the statements that declare it, and the tables' rows; those of
        a stream in their order and with `$at`."""
        with self.reading():
            tables: dict[str, tuple[Schema, Codes, Codes]] = {}
            for name, table in self.program.tables.items():
                if table.stream is None:
                    tables[name] = (table.schema, *self.contents(name))
                else:
                    batch = self._operator(name).contents()
                    tables[name] = (with_at(table.schema), batch.rows.copy(), batch.ann)
            return self.epoch, self.catalog.statements(), tables

    def _read_all(self, names: Iterable[str], calls: list[TableFunctionCall], narrow: Narrow) -> dict[str, pa.Table]:
        with self.reading():
            found = {name: self._read_arrow(name)[1] for name in names}
            if calls:
                from whence.runtime.questions.tracing import answer  # loaded with the first question

                found |= {call.relation: answer(self, self.catalog, call, narrow) for call in calls}
            return found

    def late(self, name: str) -> pa.Table:
        """The last of the rows that came too late for a view, as its operators got them."""
        with self.reading():
            return late_rows(self, name)

    def owed(self, name: str) -> pa.Table:
        """The rows that a table owes, each as often as it does."""
        with self.reading():
            table = self.program.tables.get(name)
            if table is None or table.stream is not None:
                self.schema(name)
                raise CatalogError(f'"{name}" is a {"view" if table is None else "stream"}: only tables owe rows')
            debts = self.catalog.flow.tables[owed_name(name)].contents()
            return rows_.to_arrow(debts.rows, debts.ann, table.debts.schema, self.dictionary)

    def query(self, query: exp.Expr) -> pa.Table:
        """The answer of an ad-hoc query over the last committed epoch.

        DuckDB does not know our table functions: a query that uses one runs on our own operators, once.
        """
        self._check_open()
        if not uses_table_function(query, self.program):
            return self._adhoc.run(query, self.program)
        with self._writer, self.reading():  # it may add to the dictionary, as only writers do
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
            if isinstance(what, st.CreateView):
                bound = bind_views([replace(what, replace=True, if_not_exists=False)], self.program)
                return explaining.explain_new(bound.views[what.name], bound, as_it_runs(bound))
            if not isinstance(what, str):
                plan, hidden = bind_query_views(what.query, self.program)
                flowed = self.catalog.flowed(plan, hidden) if uses_table_function(what.query, self.program) else {}
                return explaining.explain_query(plan, hidden, flowed)
            self.schema(what)
            if what in self.program.tables:
                kind = table_kind(self.program.tables[what])
                raise CatalogError(f'"{what}" is a {kind}; EXPLAIN is for views and queries')
            return explaining.explain_view(self, what)

    def changes(self, name: str, snapshot: bool) -> Changes:
        """A feed of what changes from now on, preceded by what is there if `snapshot`."""
        with self.reading():
            feed = Changes(name, self.schema(name), self.dictionary, self._stable_epoch, self.poll)
            if snapshot:
                rows, counts = self.contents(name)
                if len(rows):
                    feed.push(self.epoch, rows, counts)
            self._feeds.add(feed)
            return feed

    def _stable_epoch(self) -> int:
        """The last epoch that feeds may tell of; a follower fetches what is new."""
        if self.closed:
            return self.epoch
        with self.reading():
            epoch = self.epoch
        return epoch

    # -- declaring ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _declaring(self) -> Iterator[Catalog]:
        """A change of the catalog: it happens, and its statements are in the log, or nothing has changed."""
        with self._writer:
            self._ready_to_write()
            if self._open is not None:
                raise WhenceError("CREATE and DROP cannot stand inside a transaction: end it first")
            with self._state:
                yield self.catalog
                self._look_ahead()
            written = self._written()
        self._settle(written)

    def _log(self, statements: list[str], before: Saved, epoch: bool = False) -> None:
        """Write down what has changed the catalog, or change it back; with `epoch` it is in an epoch of its own."""
        try:
            if epoch:
                self._advance()
            self._write_statements(statements)
        except BaseException:
            self.catalog.go_back(before)
            raise
        self.catalog.stay()

    def create_table(self, create: st.CreateTable) -> bool:
        """Declare a table; False if it is there already and that is allowed."""
        with self._declaring() as catalog:
            before = catalog.save()
            made = catalog.create_table(create)
            if made:
                self._log([create.sql], before)
                log.info("%s %s created", table_kind(create.table), create.table.name)
            return made

    def create_views(self, creates: list[st.CreateView], progress: Progress | None = None) -> list[str]:
        """Declare views, which may refer to each other in any order, and fill them."""
        with self._declaring() as catalog:
            before, start = catalog.save(), time.perf_counter()
            followed = self._followed(creates)
            made, remade = catalog.create_views(creates, progress)
            if made or remade:
                self._log([create.sql for create in creates], before, epoch=bool(remade))
            catalog.stay()
            self._tell_redefined(remade, followed)
            for name in [*made, *remade]:
                rows = catalog.flow.views[name].size
                log.info("view %s created with %d rows in %.1f ms", name, rows, (time.perf_counter() - start) * 1000)
            return [*made, *remade]

    def drop(self, kind: str, name: str, cascade: bool = False, if_exists: bool = False) -> list[str]:
        """Remove a table or view, with CASCADE also the views that depend on it; the names that are gone."""
        with self._declaring() as catalog:
            before = catalog.save()
            gone = catalog.drop(kind, name, cascade, if_exists)
            if gone:
                quoted = name.replace('"', '""')
                self._log([f'DROP {kind} "{quoted}" CASCADE'], before)
                log.info("dropped %s", ", ".join(gone))
            self._forget(gone, "was dropped")
            return gone

    def redo(self, statements: list[str]) -> None:
        """Change the catalog as it was changed before."""
        found = [parse_stored(sql) for sql in statements]
        with self.paused():
            for statement in found:
                if isinstance(statement, st.CreateTable):
                    self.catalog.create_table(statement)
                    self.catalog.stay()
                elif isinstance(statement, st.Drop):
                    gone = self.catalog.drop(statement.kind, statement.name, statement.cascade)
                    self.catalog.stay()
                    self._forget(gone, "was dropped")
            views = [s for s in found if isinstance(s, st.CreateView)]
            if views:
                followed = self._followed(views)
                _, remade = self.catalog.create_views(views)
                self.catalog.stay()
                self._tell_redefined(remade, followed)
            self._look_ahead()

    def register(self, function: ScalarFunction | TableFunction) -> None:
        """Make a Python function known to SQL. (It is not written to disk: whoever opens the database gives it.)"""
        with self.paused():
            self._check_open()
            self.catalog.register(function)

    def _forget(self, names: list[str], why: str) -> None:
        for name in names:
            self._arrow.pop(name, None)
            self._changed[name] = self.epoch
            self._end_followers(name, f'"{name}" {why}: its changes have ended')

    # -- followers of views that are redefined -----------------------------------------------------------------------

    def _advance(self) -> None:
        """Begin an epoch in which no table changes: views are redefined in it, so that what changed has a number, and
        `at` can read both sides."""
        epoch = Epoch(self.epoch + 1, self.clock.now(), {}, {})
        self._write_epoch(epoch)
        self.epoch, self.time = epoch.number, epoch.time
        self._epoch_done()

    def _follows(self) -> set[str]:
        """The tables and views whose changes somebody follows."""
        return set(self._feeds.names)

    def _followed(self, creates: list[st.CreateView]) -> dict[str, Contents]:
        """What followers know of the views that these statements may make anew."""
        replaced = [create.name for create in creates if create.name in self.program.views]
        if not replaced:
            return {}
        again = {*replaced, *self.catalog.depending(replaced)}
        return {name: Contents.of(self, name) for name in again & self._follows()}

    def _tell_redefined(self, remade: list[str], followed: Mapping[str, Contents]) -> None:
        """Tell followers how views that were made anew differ from what they were, or end them."""
        for name in remade:
            self._arrow.pop(name, None)
            self._changed[name] = self.epoch
            if name in followed:
                before, now = followed[name], Contents.of(self, name)
                why = before.break_with(now)
                if why:
                    self._end_followers(name, f'"{name}" was replaced {why}: its changes have ended')
                else:
                    self._redefined(name, now.since(before))

    def _redefined(self, name: str, change: Batch) -> None:
        if name in self._feeds and len(change.ann):
            self._feeds.push(name, self.epoch, change.rows, change.ann)

    def _end_followers(self, name: str, why: str) -> None:
        self._feeds.end([name], why)

    # -- what lasts, see durable.py ----------------------------------------------------------------------------------

    def restore(
        self,
        creates: list[st.Statement],
        images: SoundImages,
        folder: Folder,
        start: RecoveryPoint,
        meta: dict[str, Any],
        progress: Progress | None,
    ) -> None:
        """Take up tables and views with their state from images, of which `meta` says more."""
        self.catalog.restore(creates, images, progress, None if start.partitions else images.note)

    def sync(self) -> None:
        """Make everything stable."""
        self._check_open()

    def snapshot(self) -> bool:
        """Write an image of all state."""
        raise WhenceError(_IN_MEMORY)

    def storage(self) -> dict[str, Any]:
        """What `metrics` says of the disk."""
        return {}

    @property
    def retained(self) -> range:
        """The epochs that `at` can read."""
        raise WhenceError(_IN_MEMORY)

    def at(self, epoch: int) -> Embedded:
        """The database as it was after an epoch."""
        raise WhenceError(_IN_MEMORY)
