"""Read a database: always its last committed epoch, whole.

Rows are asked of tables and views by name, wherever they are (`backend.py`); ad-hoc queries are `adhoc.py`, feeds
`changes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from sqlglot import exp

from whence.engine.core.batch import consolidate
from whence.engine.core.operator import Batch
from whence.engine.streams.retain import is_stream
from whence.io import rows as rows_
from whence.model.budget import held, memory_limit
from whence.model.codes import Codes, Dictionary
from whence.model.errors import CatalogError
from whence.model.types import Schema
from whence.plan.algebra.constructors import names_read
from whence.plan.algebra.logical import Node, TopK
from whence.plan.algebra.program import (
    Table,
    View,
    closed_name,
    is_template,
    owed_name,
    subscription_of,
    template_name,
    template_of,
)
from whence.plan.streams.model import has_at, with_at
from whence.runtime.catalog import as_it_runs, table_kind
from whence.runtime.questions import explain as explaining
from whence.runtime.reading.adhoc import Adhoc, sort_order, uses_table_function
from whence.runtime.reading.calls import Narrow, TableFunctionCall
from whence.runtime.reading.changes import Changes
from whence.runtime.reading.late_rows import late_rows
from whence.runtime.reading.notifications import Notifications
from whence.runtime.reading.pinned_rows import Pins, SimpleQuery, simple_query
from whence.runtime.writing.conditions import keys_of
from whence.sql import statements as st
from whence.sql.bind import bind_query_views, bind_views
from whence.sql.position import did_you_mean

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.writing.transaction import Transaction


RelationRows = tuple[Schema, Codes, Codes]
"""The columns of a relation, its distinct rows, and how often each is there."""


class WholeEpoch(NamedTuple):
    """Everything there is at one epoch; rows of a stream are in their order and with `$at`."""

    epoch: int
    statements: list[str]  # that declare it
    tables: dict[str, RelationRows]
    closed: dict[str, RelationRows]  # the closed keys of streams
    horizons: dict[str, int]
    dictionary: Dictionary  # that decodes the rows


_FEW = 10_000  # rows that are made anew as Arrow for a query, rather than kept


class DatabaseReader:
    """Reads for one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._arrow: dict[str, tuple[int, pa.Table]] = {}
        self._adhoc = Adhoc()

    def close(self) -> None:
        self._adhoc.close()

    def forget(self, name: str) -> None:
        """Forget what is kept of a table or view that is another now."""
        self._arrow.pop(name, None)

    def forget_all(self) -> None:
        self._arrow.clear()

    # -- rows --------------------------------------------------------------------------------------------------------

    def schema(self, name: str) -> Schema:
        """Return the columns of a table or view."""
        return self.relation(name).schema

    def relation(self, name: str) -> Table | View:
        """Return the definition of a table or view; CatalogError if there is none."""
        self._coordinator.check_open()
        found = self._find_in_catalog(self._find_relation, name)
        if found is None:
            known = [*self._coordinator.program.tables, *self.views()]
            raise CatalogError(f'there is no table or view "{name:.100}"{did_you_mean(name, known)}')
        return found

    def _find_in_catalog(self, find: Callable[[str], Table | View | None], name: str) -> Table | View | None:
        """Find a definition; what is missing is looked for again under the lock, since a change of the catalog that is
        under way may have dropped what it creates next."""
        found = find(name)
        if found is None:
            with self._coordinator.looking():
                found = find(name)
        return found

    def _find_relation(self, name: str) -> Table | View | None:
        program, transient = self._coordinator.program, self._coordinator.catalog.transient
        table = program.tables.get(name)
        if table is not None:
            return table
        apart = subscription_of(name)
        if apart is not None:
            whole = self.template_view(template_of(apart[0]))
            return replace(whole, name=name, schema=Schema(whole.schema.columns[1:]))
        view = program.views.get(name)
        if view is None and name in transient:
            return transient[name].view
        return None if view is None or (view.hidden and not is_template(name)) else view

    def _find_view(self, name: str) -> View | None:
        return self._coordinator.program.views.get(name)

    def template_view(self, template: str) -> View:
        """Return the view behind a template; CatalogError if there is none."""
        self._coordinator.check_open()
        view = self._find_in_catalog(self._find_view, template_name(template))
        if view is None:
            program = self._coordinator.program
            there = template in program.tables or template in self.views()
            what = f'"{template}" is not a template' if there else f'there is no template "{template:.100}"'
            raise CatalogError(what + did_you_mean(template, program.templates))
        assert isinstance(view, View)
        return view

    def views(self) -> list[str]:
        return [name for name, view in self._coordinator.program.views.items() if not view.hidden]

    def _relation(self, name: str) -> Any:
        """Return what answers for a table or view, wherever its rows are."""
        coordinator = self._coordinator
        flow = coordinator.catalog.backend.flow
        if name in coordinator.program.tables:
            return flow.tables[name]
        self.relation(name)
        coordinator.held.refresh(name)
        return flow.views[name]

    def is_stream(self, name: str) -> bool:
        """Return whether a table or view is a stream."""
        apart = subscription_of(name)
        return is_stream(self._coordinator.catalog.backend.operator(name if apart is None else apart[0]))

    def visible(self, name: str, batch: Batch) -> Batch:
        """Return what a table or view changes by, as users see it: each row once, or of a stream all in their order."""
        return _without_at(batch) if self.is_stream(name) else consolidate(batch)

    def contents(self, name: str) -> tuple[Codes, Codes]:
        """Return the distinct rows, and how often each is there; of a stream all that are kept, in their order. Called,
        as `count` is, while `reading`."""
        apart = subscription_of(name)
        if apart is not None:
            rows, counts = self.find_keys(apart[0], (0,), np.array([[apart[1]]]))
            return np.ascontiguousarray(rows[:, 1:]), counts
        batch = self._relation(name).contents()
        if self.is_stream(name):
            batch = _without_at(batch)
        return batch.rows, batch.ann

    def find(self, name: str, values: Mapping[str, Any]) -> tuple[Codes, Codes]:
        """Return as `contents` does the rows that have some values, which may build an index. Called while
        `reading`."""
        return self.find_keys(name, *keys_of(values, self.relation(name), self._coordinator.dictionary))

    def find_keys(self, name: str, cols: tuple[int, ...], keys: Codes) -> tuple[Codes, Codes]:
        """Return as `contents` does the rows that have one of some distinct keys. Called while `reading`."""
        relation = self._relation(name)
        batch = relation.find(cols, keys)
        if has_at(relation.schema):
            batch = _without_at(batch)
        return batch.rows, batch.ann

    def meets(self, name: str, values: Mapping[str, Any], row: Codes) -> bool:
        """Return whether a row has some values."""
        cols, keys = keys_of(values, self.relation(name), self._coordinator.dictionary)
        return bool((keys == row[list(cols)]).all(axis=1).any())

    def count(self, name: str, wanted: Codes) -> Codes:
        """Return how often each of these rows is there."""
        found: Codes = self._relation(name).count_of(wanted)
        return found

    def size(self, name: str) -> int:
        """Return the number of rows, copies counted."""
        with self._coordinator.reading():
            return int(self._relation(name).size)

    def read_arrow(self, name: str) -> tuple[int, pa.Table]:
        """Return the rows as Arrow, kept until they change, and the epoch in which they last did."""
        with self._coordinator.reading():
            return self.arrow_contents(name)

    def arrow_contents(self, name: str) -> tuple[int, pa.Table]:
        """Return as `read_arrow` does. Called while `reading`."""
        self._coordinator.held.refresh(name)
        schema, changed = self.schema(name), self._coordinator.changed.get(name, 0)
        kept = self._arrow.get(name)
        if kept is None or kept[0] != changed:
            kept = self._arrow[name] = (
                changed,
                rows_.to_arrow(*self.contents(name), schema, self._coordinator.dictionary),
            )
        return kept

    def read_tables(self) -> WholeEpoch:
        """Return everything there is at one epoch."""
        with self._coordinator.reading():
            tables, closed = dict[str, RelationRows](), dict[str, RelationRows]()
            for name, table in self._coordinator.program.tables.items():
                if table.stream is None:
                    tables[name] = (table.schema, *self.contents(name))
                else:
                    batch = self._relation(name).contents()
                    tables[name] = (with_at(table.schema), batch.rows.copy(), batch.ann)
                if table.promises.closes is not None:
                    keys = self._coordinator.catalog.flow.tables[closed_name(name)].contents()
                    closed[name] = (table.closed_keys.schema, keys.rows.copy(), keys.ann)
            coordinator = self._coordinator
            return WholeEpoch(
                coordinator.epoch,
                coordinator.catalog.statements(),
                tables,
                closed,
                coordinator.horizon_history.image(),
                coordinator.dictionary.frozen(),
            )

    def _arrow_of(
        self, names: Iterable[str], calls: list[TableFunctionCall], narrow: Narrow, pinned: Mapping[str, Pins]
    ) -> dict[str, pa.Table]:
        """Return what a query needs as Arrow. Called while `reading`."""
        found = {name: self._read_pinned(name, pinned.get(name)) for name in names}
        if calls:
            from whence.runtime.questions.tracing import answer  # loaded with the first question

            found |= {call.relation: answer(self._coordinator, call, narrow) for call in calls}
        return found

    def _read_pinned(self, name: str, pins: Pins | None) -> pa.Table:
        """Return at least the rows that have some values, as Arrow: those, unless they are many."""
        if pins is None:
            return self.arrow_contents(name)[1]
        rows, counts = self.find(name, pins)
        if len(rows) > _FEW:
            kept = self._arrow.get(name)
            at_hand = kept is not None and kept[0] == self._coordinator.changed.get(name, 0)
            if at_hand or 2 * len(rows) > self._relation(name).size:
                return self.arrow_contents(name)[1]
        return rows_.to_arrow(rows, counts, self.schema(name), self._coordinator.dictionary)

    def late(self, name: str) -> pa.Table:
        """Return the last of the rows that came too late for a view, as its operators got them."""
        with self._coordinator.reading():
            return late_rows(self._coordinator, name)

    def owed(self, name: str) -> pa.Table:
        """Return the rows that a table owes, each as often as it does."""
        with self._coordinator.reading():
            table = self._coordinator.program.tables.get(name)
            if table is None or table.stream is not None:
                self.schema(name)
                raise CatalogError(f'"{name}" is a {"view" if table is None else "stream"}: only tables owe rows')
            debts = self._coordinator.catalog.flow.tables[owed_name(name)].contents()
            return rows_.to_arrow(debts.rows, debts.ann, table.debts.schema, self._coordinator.dictionary)

    def query(self, query: exp.Expr, adhoc: Adhoc | None = None) -> pa.Table:
        """Answer an ad-hoc query over the last committed epoch; the query is not changed.

        A simple look-up is answered here. DuckDB does not know our table functions: a query that uses one runs on our
        own operators, once. DuckDB answers all others, or `adhoc` does, which may have engines of its own.
        """
        return self.query_at(query, adhoc)[1]

    def query_at(self, query: exp.Expr, adhoc: Adhoc | None = None) -> tuple[int, pa.Table]:
        """Answer a query as `query` does; return the epoch that the answer is of, too."""
        coordinator, epoch = self._coordinator, 0
        coordinator.check_open()
        if coordinator.broker is not None:
            coordinator.broker.curiosity.check_query(query)
        simple = simple_query(query, coordinator.program)
        if simple is not None:
            with coordinator.reading():
                if self.relation(simple.relation.name) is simple.relation:
                    return coordinator.epoch, self._look_up(simple)
        query = query.copy()
        if not uses_table_function(query, coordinator.program):

            def read(*what: Any) -> dict[str, pa.Table]:
                nonlocal epoch
                with coordinator.reading():
                    epoch = coordinator.epoch
                    return self._arrow_of(*what)

            found = (adhoc or self._adhoc).run(query, coordinator.program, read)
            return epoch, found
        writer = held(coordinator.writer, "waiting for the end of a transaction")
        limit = memory_limit(adhoc.memory if adhoc is not None else None)
        with writer, coordinator.reading(), limit:  # it may add to the dictionary, as only writers do
            plan, hidden = bind_query_views(query, coordinator.program)
            rows, counts = self.evaluate(plan, hidden)
            if isinstance(plan, TopK):
                order = sort_order(rows, plan, coordinator.dictionary)
                rows, counts = rows[order], counts[order]
            return coordinator.epoch, rows_.to_arrow(rows, counts, plan.schema, coordinator.dictionary)

    def _look_up(self, asked: SimpleQuery) -> pa.Table:
        """Answer a simple query, while `reading`."""
        name = asked.relation.name
        if asked.count is not None:
            total = int(self.find(name, asked.pins)[1].sum()) if asked.pins else self._relation(name).size
            return pa.table({asked.count: pa.array([total], pa.int64())})
        rows, counts = self.find(name, asked.pins)
        chosen = rows[:, [place for place, _ in asked.columns]]
        return rows_.to_arrow(chosen, counts, asked.schema, self._coordinator.dictionary)

    def evaluate(
        self, plan: Node, hidden: dict[str, View] | None = None, writes: Transaction | None = None
    ) -> tuple[Codes, Codes]:
        """Return the distinct rows of a bound plan over the last committed epoch, and how often each is there.

        The tables are taken as the open transaction sees them, if it is given; views always as committed.
        """
        with self._coordinator.state:
            self._coordinator.held.refresh(
                *names_read(plan), *(n for v in (hidden or {}).values() for n in names_read(v.query))
            )
            batch = self._coordinator.catalog.evaluate(
                plan, hidden or {}, writes.contents if writes is not None else None
            )
            return batch.rows, batch.ann

    def explain(self, what: str | st.Query | st.CreateView, analyze: bool = False) -> str:
        """Explain how a view is kept, or how a query would be planned; with `analyze` what the operators of a view have
        done."""
        with self._coordinator.state:
            if isinstance(what, st.CreateView):
                bound = bind_views([replace(what, replace=True, if_not_exists=False)], self._coordinator.program)
                return explaining.explain_new(bound.views[what.name], bound, as_it_runs(bound))
            if not isinstance(what, str):
                plan, hidden = bind_query_views(what.query, self._coordinator.program)
                flowed = (
                    self._coordinator.catalog.flowed(plan, hidden)
                    if uses_table_function(what.query, self._coordinator.program)
                    else {}
                )
                return explaining.explain_query(plan, hidden, flowed)
            self.schema(what)
            if what in self._coordinator.program.templates:
                return explaining.explain_view(self._coordinator, template_name(what), analyze)
            if what in self._coordinator.program.tables:
                kind = table_kind(self._coordinator.program.tables[what])
                raise CatalogError(f'"{what}" is a {kind}; EXPLAIN is for views and queries')
            return explaining.explain_view(self._coordinator, what, analyze)

    def notifications(self, template: str) -> Notifications:
        """Return a feed of what changes from now on for the subscriptions of a template."""
        with self._coordinator.reading():
            view, table = self.template_view(template), self._coordinator.program.tables[template]
            feed = Notifications(
                view.name,
                view.schema,
                self._coordinator.dictionary,
                self.stable_epoch,
                self._coordinator.storage.poll,
                template=table.name,
            )
            self._coordinator.feeds.add(feed)
            return feed

    def changes(self, name: str, snapshot: bool) -> Changes:
        """Return a feed of what changes from now on, preceded by what is there if `snapshot`."""
        with self._coordinator.reading():
            feed = Changes(
                name,
                self.schema(name),
                self._coordinator.dictionary,
                lambda: self.stable_epoch(name),
                self._coordinator.storage.poll,
            )
            self._coordinator.held.refresh(name)
            if snapshot:
                rows, counts = self.contents(name)
                if len(rows):
                    feed.push(self._coordinator.epoch, rows, counts)
            self._coordinator.feeds.add(feed)
            return feed

    def stable_epoch(self, name: str | None = None) -> int:
        """Return the last epoch that feeds may report, those of a held view after it was refreshed; a follower fetches
        what is new."""
        if self._coordinator.closed:
            return self._coordinator.epoch
        with self._coordinator.reading():
            if name is not None:
                self._coordinator.held.refresh(name)
            epoch = self._coordinator.epoch
        return epoch


def _without_at(batch: Batch) -> Batch:
    """Return the rows of a stream as users see them."""
    return Batch(np.ascontiguousarray(batch.rows[:, :-1]), np.ones(len(batch.ann), np.int64), True)
