"""What the database knows by name, and the running plan behind it; a change that fails leaves both as they were.

A script's views are bound together, ordered into components, and filled under names nobody sees; only when the last one
stands do they take their places. Replacing a view binds again, in the same step, everything that depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from whence.connect.rows import encode
from whence.engine.build import Builder
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.image import Image, Images, StaleImage
from whence.engine.core.lifetimes import Lifetimes
from whence.engine.core.operator import Batch, Operator, upwards
from whence.engine.core.operator_stats import OperatorStats, measure
from whence.engine.expressions.evaluate import compile_expr
from whence.engine.recursion.components import build_component
from whence.engine.relational.scan import Scan
from whence.engine.streams.stream import StreamOperator
from whence.engine.streams.stream_scan import StreamScan
from whence.model.codes import Codes, Dictionary
from whence.model.errors import CatalogError
from whence.model.progress import Progress
from whence.model.types import Schema
from whence.plan.algebra import logical
from whence.plan.algebra.functions import check_recomputed, check_volatile, functions_of
from whence.plan.algebra.logical import Node
from whence.plan.algebra.program import Program, ScalarFunction, Table, TableFunction, View, is_owed, owed_name
from whence.plan.recursion.settings import is_maintained
from whence.plan.recursion.strata import Component, changed_views, components, dependents
from whence.plan.rewrite import optimize
from whence.plan.rewrite.best_rows import select_aggregates
from whence.plan.rewrite.select_aggregates import OPTION, is_read, selections
from whence.plan.streams.instrument import copied_views, instrument, upstream_streams
from whence.plan.streams.networks import is_stream_node, plan_networks, plan_query
from whence.plan.streams.replay import with_copies
from whence.runtime.durable.uniting import check_recomputable
from whence.sql import statements as st
from whence.sql.bind import bind_table, bind_views
from whence.sql.parse import with_view_option
from whence.sql.position import did_you_mean
from whence.sql.reader import deep_stack

if TYPE_CHECKING:
    from whence.engine.streams.stream import Late
    from whence.explain.retrieve.site import Site

log = logging.getLogger("whence")
Written = Callable[[str], Batch | None]
_QUERY = "query"


class Before:
    """Operators and arrangements as they were before a change, as images: what it drops stands still, and of a stream
    not everything can be computed anew."""

    def __init__(self, order: Iterable[Operator]) -> None:
        self._found = {op.fingerprint: (op, op.arranged) for op in order}

    def get(self, key: str) -> Image | None:
        kind, _, fingerprint = key.partition("/")
        op, arranged = self._found.get(fingerprint, (None, None))
        if op is None or kind == "op":
            return None if op is None else op.image()
        return None if arranged is None else arranged.image()


class Saved(NamedTuple):
    """A catalog as it was before a change."""

    program: Program
    tables: dict[str, Scan]
    lifetimes: dict[str, Lifetimes]
    state: Before | None = None


class Catalog:
    """Program and dataflow, changed together. `recomputed` says why rows may be computed again, if they may."""

    recomputed = ""

    def __init__(self, recursion_limit: int, dictionary: Dictionary | None = None) -> None:
        self.recursion_limit = recursion_limit
        self.dictionary = dictionary if dictionary is not None else Dictionary()
        self.program = Program()  # as the user wrote it
        self.planned = Program()  # as it runs, see plan/rewrite/select_aggregates.py
        self.flow = Dataflow()
        self.lifetimes: dict[str, Lifetimes] = {}  # of the tables that have a time-to-live
        self.components: list[Component] = []
        self._making: dict[str, Operator] = {}
        self._builder = Builder(self.flow, self.dictionary, self._resolve)

    @property
    def replaying(self) -> bool:
        """Whether rows are derived that were derived before, see `engine/core/epoch_context.py`."""
        return self.flow.context.replaying

    @replaying.setter
    def replaying(self, known: bool) -> None:
        self.flow.context.replaying = known

    # -- tables and functions ----------------------------------------------------------------------------------------

    def create_table(self, create: st.CreateTable) -> bool:
        """Add a table; False if it is there already and IF NOT EXISTS is said."""
        program = bind_table(create, self.program)
        if program is self.program:
            return False
        table = create.table
        if table.stream is not None:
            self.flow.stream(table.name, table.schema, table.stream)
            self.program = program
            return True
        for each in (table, table.debts):
            scan = self.flow.table(each.name, each.schema, each.key, extra=int(each.notes_arrivals))
            if each.lifetime is not None:
                self.lifetimes[each.name] = Lifetimes(each.lifetime, scan.relation, self.dictionary)
        self.program = program
        return True

    def register(self, function: ScalarFunction | TableFunction) -> None:
        """Make a function known. One that a view uses is not replaced: its rows would no longer be right."""
        name = function.name
        users = [v.owner or v.name for v in self.program.views.values() if name in dict(functions_of(v.query))]
        if users:
            raise CatalogError(f'the function "{name}" is used by {", ".join(users)}; drop them first')
        program = self.program.copy()
        program.scalars.pop(name, None)
        program.table_functions.pop(name, None)
        if isinstance(function, ScalarFunction):
            program.scalars[name] = function
        else:
            program.table_functions[name] = function
        self.program = program

    # -- views -------------------------------------------------------------------------------------------------------

    @deep_stack()
    def create_views(
        self, creates: list[st.CreateView], progress: Progress | None = None, images: Images | None = None
    ) -> tuple[list[str], list[str]]:
        """Add views; the names of the new ones, and of those that were there and have been made anew.

        With images (of the same tables as they are now) their state is taken from there, as far as it is there."""
        before = self.program.views
        bound = bind_views(creates, self.program)
        fresh = [name for name, view in bound.views.items() if before.get(name) is not view]
        if fresh:
            self._install(keep_selections(self.program, bound), progress, images)
        seen = [name for name in fresh if not bound.views[name].hidden]
        return [name for name in seen if name not in before], [name for name in seen if name in before]

    def _install(self, bound: Program, progress: Progress | None = None, images: Images | None = None) -> None:
        """Plan a program, build and fill what is new, and let that take its place; on an error nothing changes."""
        flow = self.flow
        planned = self._as_it_runs(bound)
        ordered = components(planned)
        new = changed_views(self.planned, planned)
        kept = {name: op for name, op in flow.views.items() if name in planned.views and name not in new}
        if images is None:
            self._check_copies(new, planned)
        self._making = dict(kept)
        try:
            for component in ordered:
                if component.views[0] not in kept:
                    self._making |= self._build(component, planned)
            # All are built before the first is filled: by then an arrangement that any of them needs is known of.
            flow.install(self._making, images, progress)
            if images is None:
                flow.fill()
            flow.commit()
        except BaseException:
            flow.undo()
            raise
        finally:
            self._making = {}
            self._builder.forget()
        self.program, self.planned, self.components = bound, planned, ordered

    def _as_it_runs(self, bound: Program) -> Program:
        """Plan a program; SqlError if it cannot run here."""
        planned = as_it_runs(bound)
        if self.recomputed:
            check_recomputed(planned, self.recomputed)
        return planned

    def _check_copies(self, new: set[str], planned: Program) -> None:
        """Refuse a new view whose copy of one that runs would begin later than that did, and have other windows."""
        for name in sorted(new):
            for other in sorted(copied_views(name, planned) - new):
                gone = [stream for stream in upstream_streams(other, planned) if self._has_dropped(stream)]
                if gone:
                    raise CatalogError(
                        f'"{name}" would be traced through "{other}", which has run without provenance over rows that '
                        f'{", ".join(gone)} no longer has. Make "{other}" anew WITH (provenance = …), or trace from '
                        f"it: provenance_of = '{other}'"
                    )

    def _has_dropped(self, name: str) -> bool:
        """Whether it is a stream that no longer keeps all its rows."""
        stream = self.flow.streams.get(name)
        return stream is not None and not stream.kept.complete

    def restore_table(self, name: str, image: Image) -> None:
        """Take the rows of a table that is empty from its image; StaleImage if that is not of such a table."""
        scan = self.flow.tables[name]
        scan.restore(image)
        scan.changed = False

    def restore(
        self,
        creates: Iterable[st.Statement],
        images: Images,
        progress: Progress | None = None,
        lost: Callable[[str], None] | None = None,
    ) -> None:
        """Tables and views as they were declared, with their state as of the epoch of the images.

        The dictionary must have been filled, and the Python functions registered. StaleImage if a table's own rows
        cannot be taken; a view whose image is missing or does not fit is computed. Where that takes rows which a stream
        no longer has, `lost` is called, or PastError raised without it."""
        creates = list(creates)
        tables = [create for create in creates if isinstance(create, st.CreateTable)]
        for done, create in enumerate(tables):
            name = create.table.name
            if progress is not None:
                progress(f"loading table {name}", done, len(tables))
            image = images.get(f"table/{name}")
            if image is None:
                raise StaleImage(f"there is no image of table {name}")
            self.create_table(create)
            self.restore_table(name, image)
            owed = images.get(f"table/{owed_name(name)}") if create.table.stream is None else None
            if owed is not None:  # else it was written when nothing could be owed
                self.restore_table(owed_name(name), owed)
        views = [create for create in creates if isinstance(create, st.CreateView)]
        if views:
            self.create_views(views, progress, images)
        self._check_recomputed(lost)
        for lifetimes in self.lifetimes.values():
            lifetimes.rebuild()

    def _check_recomputed(self, lost: Callable[[str], None] | None) -> None:
        """Find the views over streams that were computed but that only their images could have brought back."""
        flow = self.flow
        made = {id(op) for op in flow.recomputed if isinstance(op, StreamOperator)}
        flow.recomputed = []
        if made:
            views = [name for name, op in flow.views.items() if any(id(o) in made for o in upwards([op]))]
            check_recomputable(self.planned, {n: s.kept for n, s in flow.streams.items()}, views=views, lost=lost)

    def _build(self, component: Component, program: Program) -> dict[str, Operator]:
        if component.recursive or is_maintained(component.views, program):
            return build_component(component, program, self._builder, self.recursion_limit)
        (name,) = component.views
        return {name: self._builder.build(optimize(program.views[name].query))}

    @deep_stack()
    def evaluate(self, plan: Node, hidden: dict[str, View], written: Written | None = None) -> Batch:
        """The rows of a plan that is not kept, computed once over the committed views and the tables.

        `written` gives the rows of a table that the asking transaction has written to; the other tables are as
        committed.
        """
        if not hidden and (rows := constant_rows(plan, self.dictionary)) is not None:
            return Batch(rows, np.ones(len(rows), np.int64))
        bound = self._planned_now()
        bound.views |= self.flowed(plan, hidden)
        flow, kept, tables = self.flow, self.flow.views, self.flow.tables
        self._making = dict(kept)
        try:
            if written is not None:
                flow.tables = {**tables, **self._overlaid(plan, written)}
            for component in components(bound):
                if component.views[0] not in kept:
                    self._making |= self._build(component, bound)
            flow.install(self._making)
            flow.fill()
            found = self._making[_QUERY].contents()
            if is_stream_node(bound.views[_QUERY].query):  # in the order of the stream
                return Batch(np.ascontiguousarray(found.rows[:, :-1]), np.ones(len(found), np.int64))
            return found
        finally:
            self._making = {}
            flow.tables = tables
            flow.undo()
            self._builder.forget()

    def flowed(self, plan: Node, hidden: dict[str, View]) -> dict[str, View]:
        """A plan that is not kept as it is computed, the last of the views, and the hidden ones it reads."""
        return plan_query(plan, hidden, self._planned_now(), _QUERY)

    def _planned_now(self) -> Program:
        """The program as it runs, with the tables that were made since a view was."""
        planned = self.planned.copy()
        planned.tables = dict(self.program.tables)
        return planned

    def _overlaid(self, plan: Node, written: Written) -> dict[str, Scan]:
        """Stand-ins for the tables a plan reads that have been written to."""
        found: dict[str, Scan] = {}
        for name in {node.table for node in logical.walk(plan) if isinstance(node, logical.Scan)}:
            rows = written(name)
            if rows is not None:
                table = self.program.tables[name]
                if table.stream is not None:
                    found[name] = stream = StreamScan(name, table.schema, table.stream)
                    stream.kept.append(rows.rows, rows.ann)
                    continue
                found[name] = Scan(name, table.schema, table.key)
                found[name].relation.apply(rows)
                found[name].relation.commit()
        return found

    def _resolve(self, name: str) -> Operator:
        """The operator behind a view while views are being made."""
        return self._making[name]

    @deep_stack()
    def drop(self, kind: str, name: str, cascade: bool = False, if_exists: bool = False) -> list[str]:
        """Remove a table, stream or view and, with CASCADE, what depends on it; the names that are gone."""
        kinds = {table: table_kind(found) for table, found in self.program.tables.items()}
        kinds |= dict.fromkeys(self._visible(), "view")
        known = [other for other in kinds if kinds[other] == kind]
        if name not in known:
            if name in kinds:
                raise CatalogError(f'"{name}" is a {kinds[name]}, not a {kind}')
            if if_exists:
                return []
            raise CatalogError(f'there is no {kind} "{name}"{did_you_mean(name, known)}')
        others = self.depending([name])
        if others and not cascade:
            verb = "depends" if len(others) == 1 else "depend"
            raise CatalogError(f'{", ".join(others)} {verb} on "{name}"; drop them first, or use CASCADE')
        gone = [name, *others]
        program = self._without(gone)
        program.tables.pop(name, None)
        self._install(keep_selections(self.program, program))
        if kind != "view":
            for gone_too in (name, owed_name(name)) if kind == "table" else (name,):
                self.flow.tables.pop(gone_too, None)
                self.lifetimes.pop(gone_too, None)
        return gone

    # -- the whole of it ---------------------------------------------------------------------------------------------

    def statements(self) -> list[str]:
        """What makes these tables and views of an empty catalog."""
        views = (view.sql for view in self.program.views.values() if not view.hidden)
        return [*(table.sql for table in self.program.tables.values()), *views]

    def save(self) -> Saved:
        """What `go_back` needs."""
        return Saved(self.program, dict(self.flow.tables), dict(self.lifetimes), Before(self.flow.order))

    def stay(self) -> None:
        """The last change is written down, and not undone any more."""

    def go_back(self, saved: Saved) -> None:
        """Undo the last change; views that it dropped or replaced are as they were."""
        self.flow.tables, self.lifetimes = saved.tables, saved.lifetimes
        self._install(saved.program, images=saved.state)
        for op in self.flow.order:
            op.changed = True  # since the last snapshot, perhaps: no image of it was read

    # -- helpers -----------------------------------------------------------------------------------------------------

    def operator(self, name: str) -> Operator:
        """The operator behind a table or view."""
        return self.flow.tables.get(name) or self.flow.views[name]

    def site(self) -> Site:
        """Where questions about streams are answered."""
        from whence.explain.retrieve.site import Site  # loaded with the first of them

        return Site(self.flow, self.planned, self.dictionary)

    def lates(self, name: str) -> Iterable[tuple[Late, Schema]]:
        """Where the operators of a view keep what came too late, and the columns that it has."""
        from whence.runtime.reading.late_rows import lates_under

        return lates_under(self.flow, name)

    def stream_figures(self) -> dict[str, dict[str, int]]:
        """What metrics say of each stream."""
        from whence.runtime.reading.late_rows import stream_figures

        return stream_figures(self.flow)

    def measure(self) -> Callable[[Operator], OperatorStats]:
        """What says how much an operator holds."""
        return measure

    def sizes(self) -> dict[str, int]:
        """Distinct rows of every table, rows of every stream that are kept, and rows of every view; of debts all."""
        tables = {n: scan.size if is_owed(n) else scan.state_rows for n, scan in self.flow.tables.items()}
        return tables | {name: op.size for name, op in self.flow.views.items()}

    def placement(self, name: str) -> list[str]:
        """What EXPLAIN says of where a view is kept."""
        return []

    def stratum_of(self, name: str) -> tuple[int, Component]:
        """The view's component and its place in the order they run in, from 1."""
        return next((i, c) for i, c in enumerate(self.components, 1) if name in c.views)

    def depending(self, names: Iterable[str]) -> list[str]:
        """The views users know that read any of these, directly or not, in the order they were made."""
        found = {d for name in names for d in dependents(self.program, name)} - set(names)
        owners = {self.program.views[d].owner or d for d in found}
        return [name for name in self.program.views if name in owners and name not in names]

    def _visible(self) -> list[str]:
        return [name for name, view in self.program.views.items() if not view.hidden]

    def _without(self, names: list[str]) -> Program:
        hidden = _with_hidden(self.program, names)
        program = self.program.copy()
        program.views = {n: v for n, v in program.views.items() if n not in hidden}
        return program


def as_it_runs(bound: Program) -> Program:
    """A program as it runs: streams as networks, instrumented, and aggregates that select."""
    networks = plan_networks(bound)
    check_volatile(networks)
    traced = instrument(networks)
    for name, view in traced.views.items():
        query = with_copies(view.query, traced)
        if query is not view.query:
            traced.views[name] = replace(view, query=query)
    return select_aggregates(traced)


def keep_selections(before: Program, after: Program) -> Program:
    """The program after a change, with the selections of views that have lost their last reader spelled out.

    Without a reader such a view would be made whole, which on cyclic data has no end: a DROP must not fail for that."""
    kept = after.copy()
    for name, view in after.views.items():
        if before.views.get(name) == view and not view.hidden and is_read(view, before) and not is_read(view, after):
            found = selections(view, before)
            if found:
                text = "; ".join(selection.text(view.schema) for selection in found)
                options = tuple(o for o in view.options if o[0] != OPTION)
                sql = with_view_option(view.sql, OPTION, text)
                kept.views[name] = replace(view, options=(*options, (OPTION, text)), sql=sql)
    return kept


def table_kind(table: Table) -> str:
    return "table" if table.stream is None else "stream"


def _with_hidden(program: Program, names: Iterable[str]) -> set[str]:
    """The names and the hidden views that belong to them."""
    chosen = set(names)
    return chosen | {name for name, view in program.views.items() if view.owner in chosen}


def constant_rows(plan: Node, dictionary: Dictionary) -> Codes | None:
    """The rows of a plan that reads nothing (INSERT … VALUES), or None if it does."""
    match plan:
        case logical.Values():
            return encode(list(plan.rows), plan.schema, dictionary, "VALUES")
        case logical.Project():
            rows = constant_rows(plan.input, dictionary)
            if rows is None:
                return None
            columns = [compile_expr(e, dictionary)(rows) for e in plan.exprs]
            return np.column_stack(columns) if columns else np.empty((len(rows), 0), np.int64)
        case logical.Union():
            parts = [constant_rows(branch, dictionary) for branch in plan.branches]
            found = [part for part in parts if part is not None]
            return np.concatenate(found) if len(found) == len(parts) else None
    return None
