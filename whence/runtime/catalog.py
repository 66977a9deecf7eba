"""What the database knows by name, and the plan behind it; a change that fails leaves both as they were.

A script's views are bound together, ordered into components, planned, and filled by the partitions; only when the last
one is filled, and the change is in the log, do they take their places (`stay`). Replacing a view binds again, in the
same change, everything that depends on it.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sqlglot import exp

from whence.engine.core.image import Images
from whence.engine.core.operator import Batch, upwards
from whence.engine.expressions.evaluate import compile_expr
from whence.engine.relational.scan import Scan
from whence.engine.streams.stream import StreamOperator
from whence.engine.streams.stream_scan import StreamScan
from whence.io.rows import encode
from whence.model.codes import Codes, Dictionary
from whence.model.errors import CatalogError, WhenceError
from whence.model.progress import Progress
from whence.plan.algebra import logical
from whence.plan.algebra.constructors import columns, project
from whence.plan.algebra.functions import check_recomputed, check_volatile, functions_of
from whence.plan.algebra.join_paths import JoinOrders
from whence.plan.algebra.logical import Node
from whence.plan.algebra.program import (
    Program,
    ScalarFunction,
    Table,
    TableFunction,
    View,
    is_template,
    subscription_of,
    template_name,
    template_of,
)
from whence.plan.knowledge.derive import knowledge_of
from whence.plan.knowledge.model import RelationKnowledge
from whence.plan.order_sensitive import read_in_order
from whence.plan.partitions.distribute import plan_component
from whence.plan.recursion.strata import Component, changed_views, components, dependents
from whence.plan.rewrite.best_rows import select_aggregates
from whence.plan.rewrite.hold_inputs import check_held, holds_in
from whence.plan.rewrite.keep_joins import KeptJoin
from whence.plan.rewrite.select_aggregates import OPTION, is_read, selections
from whence.plan.streams.instrument import copied_views, instrument, upstream_streams
from whence.plan.streams.networks import is_stream_node, plan_networks, plan_query
from whence.plan.streams.replay import with_copies
from whence.plan.templates.recognise import recognise
from whence.runtime.backend import PartitionBackend
from whence.runtime.durable.uniting import check_recomputable
from whence.runtime.partition_plan import NOTHING, PartitionPlan, Planner
from whence.runtime.transient_views import TransientView, anonymous, beside, plan_transient, untouched
from whence.sql import statements as st
from whence.sql.bind import bind_index, bind_table, bind_views, keep_indexes
from whence.sql.parse import with_view_option
from whence.sql.position import did_you_mean
from whence.sql.reader import deep_stack
from whence.sql.templates import bind_template
from whence.subscribe.results import has_results, is_result, read_promises, read_results

log = logging.getLogger("whence")
Written = Callable[[str], Batch | None]
_QUERY = "query"


class Saved(NamedTuple):
    """A catalog as it was before a change."""

    program: Program
    planned: Program
    components: list[Component]
    plan: PartitionPlan
    orders: Mapping[str, JoinOrders]
    transient: Mapping[str, TransientView]


class Catalog:
    """Program and plan, changed together, over the partitions of a backend. `recomputed` says why rows may be computed
    again, if they may."""

    def __init__(
        self,
        recursion_limit: int,
        dictionary: Dictionary,
        backend: PartitionBackend,
        planner: Planner,
        recomputed: str = "",
    ) -> None:
        self.recursion_limit, self.dictionary = recursion_limit, dictionary
        self.backend, self.planner, self.recomputed = backend, planner, recomputed
        self.program = Program()  # as the user wrote it
        self.planned = Program()  # as it runs, see plan/rewrite/select_aggregates.py
        self.components: list[Component] = []
        self.plan = NOTHING
        self.orders: Mapping[str, JoinOrders] = {}  # of joins, as they were decided
        self.transient: Mapping[str, TransientView] = {}  # beside the program: only their subscribers see them
        self.filled: Mapping[str, float] = {}  # the views that were last filled, and how many seconds that took
        self._bounds: tuple[Program, Program] | None = None  # a program, and what bounds of its views follow from

    @property
    def flow(self) -> Any:
        """Tables, streams and views by name, see `PartitionBackend.flow`."""
        return self.backend.flow

    # -- tables and functions ----------------------------------------------------------------------------------------

    def create_table(self, create: st.CreateTable) -> bool:
        """Add a table; return False if it is there already and IF NOT EXISTS is said."""
        program = bind_table(create, self.program)
        if program is self.program:
            return False
        self._install(program)
        return True

    @deep_stack()
    def create_template(self, create: st.CreateTemplate, progress: Progress | None = None) -> bool:
        """Add a template, its parameter table and the view behind it; False if it is there and that is allowed."""
        bound = bind_template(create, self.program)
        if bound is self.program:
            return False
        self._install(keep_selections(self.program, bound), progress)
        return True

    def create_index(self, create: st.CreateIndex) -> bool:
        """Add an index, until `stay` or `go_back`; return False if it is there already and IF NOT EXISTS is said."""
        if not self.backend.at_hand:
            raise CatalogError(
                "CREATE INDEX is for a database without partitions; in partitions the second look-up by the same "
                "columns builds the index that it needs"
            )
        program = bind_index(create, self.program)
        if program is self.program:
            return False
        self.program = program
        self.declare_indexes()
        return True

    def redo_index(self, create: st.CreateIndex) -> None:
        """Add an index that was made before, perhaps without partitions."""
        self.program = bind_index(create, self.program)
        self.declare_indexes()

    def declare_indexes(self) -> None:
        """Let the dataflow have the indexes that the program has; where rows are elsewhere, look-ups build them."""
        if not self.backend.at_hand:
            return
        wanted: dict[str, set[tuple[int, ...]]] = {}
        for index in self.program.indexes.values():
            relation = self.program.tables.get(index.relation) or self.program.views[index.relation]
            columns = tuple(sorted(relation.schema.names.index(name) for name in index.columns))
            wanted.setdefault(index.relation, set()).add(columns)
        self.flow.declare_indexes(wanted)

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
        self, creates: list[st.CreateView], progress: Progress | None = None
    ) -> tuple[list[str], list[str]]:
        """Add views; return the names of the new ones, and of those that were there and have been made anew."""
        before = self.program.views
        bound = bind_views(creates, self.program)
        fresh = [name for name, view in bound.views.items() if before.get(name) is not view]
        if fresh:
            self._install(keep_selections(self.program, bound), progress)
        seen = [name for name in fresh if not bound.views[name].hidden]
        return [name for name in seen if name not in before], [name for name in seen if name in before]

    def _install(self, bound: Program, progress: Progress | None = None) -> None:
        """Plan a program, and let the partitions build and fill what is new, until `stay` or `go_back`; on an error
        nothing changes."""
        bound = keep_indexes(bound)
        planned = self._as_it_runs(bound)
        ordered = components(planned)
        new = changed_views(self.planned, planned)
        self._check_copies(new, planned)
        transient = untouched(self.transient, self.planned, planned, new)
        self._take_up(bound, planned, ordered, new, transient, progress)

    def _take_up(
        self,
        bound: Program,
        planned: Program,
        ordered: list[Component],
        new: set[str],
        transient: Mapping[str, TransientView],
        progress: Progress | None = None,
    ) -> None:
        """Let the partitions run a program, as it is planned, and transient views beside it."""
        if not transient:
            plan = self.planner.plan(self.plan, bound, planned, ordered, new)
        else:
            plan = self.planner.plan(self.plan, bound, *beside(planned, ordered, transient), new)
            plan = replace(plan, transient=frozenset(name for each in transient.values() for name in each.planned))
        self._forget_orders()
        plan = replace(plan, orders=self.orders)
        start = time.perf_counter()
        self.backend.install(plan, progress)
        self.filled = dict.fromkeys(new, time.perf_counter() - start)
        self.program, self.planned, self.components, self.plan = bound, planned, ordered, plan
        self.transient = transient

    def replan(self, added: Mapping[str, int]) -> bool:
        """Let the partitions run a better plan for the same program, if there is one, before so many rows come to
        tables; return whether there was. One that cannot be taken up is left: the running one is as right."""
        if not self.planner.follows_sizes:
            return False
        planned, ordered = beside(self.planned, self.components, self.transient)
        plan = self.planner.replanned(self.plan, self.program, planned, ordered, added)
        if plan is None:
            return False
        plan = replace(plan, transient=self.plan.transient, orders=self.orders)
        try:
            self.backend.install(plan)
        except WhenceError as error:
            log.warning("views are not planned again: %s", error)
            return False
        self.plan = plan
        self.stay()
        return True

    def _forget_orders(self) -> None:
        """Forget the orders of joins that are no more: another that is made like them begins anew."""
        if self.orders:
            there = {op.fingerprint for op in self.flow.order}
            self.orders = {name: orders for name, orders in self.orders.items() if name in there}

    def reorder(self, orders: Mapping[str, JoinOrders]) -> None:
        """Let joins have other orders, until `stay` or `go_back`."""
        orders = {**self.orders, **orders}
        plan = self.planner.reordered(self.plan, orders)
        self.backend.install(plan)
        self.plan, self.orders = plan, orders

    def better_keeps(self, worth: int | None = None) -> frozenset[KeptJoin]:
        """Return the joins that views keep, and those that they should by what has been met; `worth` is what one must
        save, in picoseconds."""
        from whence.adapt.keeping import WORTH, choose_keeps  # most databases never ask

        keeps, transient = self.planner.keeps, self.plan.transient
        held = {keep.view for keep in keeps}
        held |= {name for name, view in self.planned.views.items() if view.option("adapt") == "off"}
        plans = {
            name: piece.node
            for piece in self.plan.distributed.pieces
            if piece.node is not None
            and (name := piece.views[0]) not in held
            and name not in transient
            and not holds_in(piece.node, {})
        }
        return keeps | choose_keeps(plans, self.flow.views, WORTH if worth is None else worth)

    def keep(self, keeps: Collection[KeptJoin]) -> bool:
        """Let views keep these joins of some of their inputs, and no others: they, and what reads them, are built and
        filled beside what runs, and take its place. Return whether that could be done; if not, nothing has changed."""
        before = self.planner.keeps
        changed = {keep.view for keep in before.symmetric_difference(keeps) if keep.view in self.planned.views}
        if not changed:
            return False
        both, _ = beside(self.planned, self.components, self.transient)
        new = changed | {view for name in changed for view in dependents(both, name)}
        queries = [both.views[view].query for view in new]
        nodes = queries if self.backend.at_hand else [node for query in queries for node in logical.walk(query)]
        if any(map(is_stream_node, nodes)):  # what was shipped, or put in order, is not there for newcomers
            return False
        self.planner.keeps = frozenset(keeps)
        try:
            self._take_up(self.program, self.planned, self.components, new, self.transient)
        except WhenceError as error:
            log.warning("joins are not kept: %s", error)
            self.planner.keeps = before
            return False
        except BaseException:
            self.planner.keeps = before
            raise
        self.stay()
        return True

    def recompute(self, owners: Collection[str], touched: Collection[str]) -> None:
        """Compute held views anew, with nothing pending, and all `touched` views that read them."""
        plan = self.planner.anew(self.plan, owners, touched)
        self.backend.install(plan)
        self.plan = plan
        self.backend.commit()

    # -- transient views ---------------------------------------------------------------------------------------------

    @deep_stack()
    def create_transient(
        self,
        name: str,
        query: exp.Expr | Node,
        sql: str,
        progress: Progress | None = None,
        extras: bool = False,
        ordered: bool = False,
    ) -> None:
        """Add a view of a SELECT that only its subscribers see, until `stay` or `go_back`; `sql` is its text. With
        `extras` it has the columns that bounds of its rows need; with `ordered` it takes rows in the order of ticks."""
        with anonymous(name):
            known = self._planned_for_bounds()
            made = plan_transient(name, query, sql, self.program, self._planned_now(), known, extras, ordered)
            both, _ = beside(self.planned, (), {name: made})
            if self.recomputed:
                check_recomputed(Program(views=dict(made.planned)), self.recomputed)
            self._check_copies({*made.planned}, both)
            self._run_beside({**self.transient, name: made}, {*made.planned}, progress)

    def knowledge(self, name: str) -> RelationKnowledge:
        """Return what the rows of a table, stream or view, or of a subscription to a template, can still become."""
        apart = subscription_of(name)
        if apart is None:
            return knowledge_of(self._planned_for_bounds(), name)
        schema = self.program.views[apart[0]].schema
        whole = logical.Ref(schema, apart[0])
        return knowledge_of(self._planned_for_bounds(), project(whole, columns(whole)[1:]))

    def _planned_for_bounds(self) -> Program:
        """Return the program as it runs, whose results are computed here from what their streams promise."""
        if not has_results(self.program):
            return self._planned_now()
        if self._bounds is None or self._bounds[0] is not self.program:
            self._bounds = self.program, as_it_runs(read_promises(self.program))
        return self._bounds[1]

    def drop_transient(self, names: Collection[str]) -> None:
        """Remove transient views, until `stay` or `go_back`."""
        self._run_beside({name: each for name, each in self.transient.items() if name not in names}, set())

    def _run_beside(
        self, transient: Mapping[str, TransientView], new: set[str], progress: Progress | None = None
    ) -> None:
        self._take_up(self.program, self.planned, self.components, new, transient, progress)

    def as_joined(self, view: str) -> Catalog:
        """Return this catalog as if a template were joined with its parameters, to be looked into only."""
        found = copy.copy(self)
        found.planned = self.planned.copy()
        found.planned.views[view] = self.program.views[view]
        return found

    def with_transient(self, name: str) -> Catalog:
        """Return this catalog as if a transient view were one of its views, to be looked into only."""
        found, own = copy.copy(self), self.transient[name]
        found.program, found.planned = self.program.copy(), self.planned.copy()
        found.program.views |= own.bound
        found.planned.views |= own.planned
        return found

    def blamed(self, error: WhenceError) -> list[str]:
        """Return the transient views that need the operator which an error says has failed."""
        if not error.transient:
            return []
        return [
            name
            for name in self.transient
            if any(op.fingerprint == error.transient for op in upwards([self.backend.operator(name)]))
        ]

    # -- planning ----------------------------------------------------------------------------------------------------

    def _as_it_runs(self, bound: Program) -> Program:
        """Plan a program; SqlError if it cannot run here."""
        same_results = [n for n in bound.tables if is_result(bound.tables[n])] == [
            n for n in self.program.tables if is_result(self.program.tables[n])
        ]
        if bound.views == self.program.views and same_results:  # only tables are others
            planned = self.planned.copy()
            planned.tables = dict(bound.tables)
            return planned
        planned = as_it_runs(read_results(bound))
        if self.recomputed:
            check_recomputed(planned, self.recomputed)
        return planned

    def _check_copies(self, new: set[str], planned: Program) -> None:
        """Refuse a new view whose copy of one that runs would begin later than that did, and have other windows."""
        for name in sorted(new):
            for other in sorted(copied_views(name, planned) - new):
                gone = [stream for stream in upstream_streams(other, planned) if self.backend.has_dropped(stream)]
                if gone:
                    raise CatalogError(
                        f'"{name}" would be traced through "{other}", which has run without provenance over rows that '
                        f'{", ".join(gone)} no longer has. Make "{other}" anew WITH (provenance = …), or trace from '
                        f"it: provenance_of = '{other}'"
                    )

    def declare(
        self, creates: Iterable[st.Statement], plan: Callable[[Program, Program, list[Component]], PartitionPlan]
    ) -> None:
        """Know tables and views, and their `plan`, without telling the partitions; the catalog must be empty but for
        functions."""
        creates = list(creates)
        for create in creates:
            if isinstance(create, st.CreateTable):
                self.program = bind_table(create, self.program)
        bound = bind_views([c for c in creates if isinstance(c, st.CreateView)], self.program)
        for create in creates:
            if isinstance(create, st.CreateIndex):
                bound = bind_index(create, bound)
        planned = self._as_it_runs(bound)
        ordered = components(planned)
        self.plan = replace(plan(bound, planned, ordered), orders=self.orders)
        self.program, self.planned, self.components = bound, planned, ordered

    @deep_stack()
    def restore(
        self,
        creates: Iterable[st.Statement],
        images: Images,
        progress: Progress | None = None,
        lost: Callable[[str], None] | None = None,
    ) -> None:
        """Take up tables and views as they were declared, with their state as of the epoch of the images, where one
        partition has everything.

        The dictionary must have been filled, and the Python functions registered. StaleImage if a table's own rows
        cannot be taken; a view whose image is missing or does not fit is computed. Where that takes rows which a stream
        no longer has, `lost` is called, or PastError raised without it."""

        def planned(bound: Program, planned: Program, ordered: list[Component]) -> PartitionPlan:
            return self.planner.plan(NOTHING, bound, planned, ordered, set(planned.views))

        self.declare(creates, planned)
        self.backend.restore(self.plan, images, progress)
        self._check_recomputed(lost)
        self.declare_indexes()

    def _check_recomputed(self, lost: Callable[[str], None] | None) -> None:
        """Find the views over streams that were computed but that only their images could have brought back."""
        flow = self.flow
        made = {id(op) for op in flow.recomputed if isinstance(op, StreamOperator)}
        flow.recomputed = []
        if made:
            views = [name for name, op in flow.views.items() if any(id(o) in made for o in upwards([op]))]
            check_recomputable(self.planned, {n: s.kept for n, s in flow.streams.items()}, views=views, lost=lost)

    @deep_stack()
    def evaluate(self, plan: Node, hidden: dict[str, View], written: Written | None = None) -> Batch:
        """Return the rows of a plan that is not kept, computed once over the committed views and the tables.

        `written` gives the rows of a table that the asking transaction has written to; the other tables are as
        committed.
        """
        if not hidden and (rows := constant_rows(plan, self.dictionary)) is not None:
            return Batch(rows, np.ones(len(rows), np.int64))
        scratch = self.backend.scratch(self.program, self.planned, [plan, *(view.query for view in hidden.values())])
        plan = scratch.rewrite(plan)
        hidden = {name: replace(view, query=scratch.rewrite(view.query)) for name, view in hidden.items()}
        bound = self._planned_now()
        bound.views |= self.flowed(plan, hidden)
        kept = scratch.partition.flow.views
        fresh = [c for c in components(bound) if c.views[0] not in kept]
        planned = [plan_component(component, bound, self.recursion_limit) for component in fresh]
        tables = self._overlaid(plan, written) if written is not None else {}
        found = scratch.partition.evaluate(planned, _QUERY, tables)
        if is_stream_node(bound.views[_QUERY].query):  # in the order of the stream
            return Batch(np.ascontiguousarray(found.rows[:, :-1]), np.ones(len(found), np.int64))
        return found

    def flowed(self, plan: Node, hidden: dict[str, View]) -> dict[str, View]:
        """Return a plan that is not kept as it is computed, the last of the views, and the hidden ones it reads."""
        return plan_query(plan, hidden, self._planned_now(), _QUERY)

    def planned_without(self, results: Collection[str]) -> Program:
        """Return a copy of the program as it runs, or as it would without some results."""
        if not results:
            return self.planned.copy()
        bound = self.program.copy()
        bound.tables = {name: table for name, table in bound.tables.items() if name not in results}
        return as_it_runs(read_results(bound))

    def _planned_now(self) -> Program:
        """Return a copy of the program as it runs."""
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

    @deep_stack()
    def drop(self, kind: str, name: str, cascade: bool = False, if_exists: bool = False) -> list[str]:
        """Remove a table, stream or view and, with CASCADE, what depends on it; the names that are gone."""
        kinds = {table: table_kind(found) for table, found in self.program.tables.items()}
        kinds |= dict.fromkeys(self._visible(), "view")
        kinds |= dict.fromkeys(self.program.templates, "template")
        if kind == "index":
            return self._drop_index(name, if_exists)
        known = [other for other in kinds if kinds[other] == kind]
        if name not in known:
            if name in kinds:
                raise CatalogError(f'"{name}" is a {kinds[name]}, not a {kind}')
            if if_exists:
                return []
            raise CatalogError(f'there is no {kind} "{name}"{did_you_mean(name, known)}')
        gone = self._gone_with(name)
        others = list(dict.fromkeys(template_of(other) for other in gone if template_of(other) != name))
        if others and not cascade:
            verb = "depends" if len(others) == 1 else "depend"
            raise CatalogError(f'{", ".join(others)} {verb} on "{name}"; drop them first, or use CASCADE')
        program = self._without(gone)
        for each in gone:
            program.tables.pop(each, None)
        self._install(keep_selections(self.program, program))
        return [name, *others]

    def _gone_with(self, name: str) -> list[str]:
        """Return a table, stream, view or template, and all that depends on it: of templates, the view and the table of
        parameters, and what reads that."""
        gone, waiting = list[str](), [name]
        while waiting:
            each = waiting.pop(0)
            if each in gone:
                continue
            gone.append(each)
            waiting += [template_of(each)] if is_template(each) else self.depending([each])
            if template_name(each) in self.program.views:
                waiting.append(template_name(each))
        return gone

    def _drop_index(self, name: str, if_exists: bool) -> list[str]:
        if name not in self.program.indexes:
            if if_exists:
                return []
            raise CatalogError(f'there is no index "{name}"{did_you_mean(name, self.program.indexes)}')
        self.program = self.program.copy()
        del self.program.indexes[name]
        return [name]

    # -- the whole of it ---------------------------------------------------------------------------------------------

    def statements(self) -> list[str]:
        """Return what makes these tables, views and indexes of an empty catalog."""
        views = (view.sql for view in self.program.views.values() if view.owner is None)
        indexes = (index.sql for index in self.program.indexes.values())
        return [*(table.sql for table in self.program.tables.values()), *views, *indexes]

    def save(self) -> Saved:
        """Return what `go_back` needs."""
        return Saved(self.program, self.planned, self.components, self.plan, self.orders, self.transient)

    def stay(self) -> None:
        """Commit the last change."""
        self.backend.commit()
        self.declare_indexes()

    def go_back(self, saved: Saved) -> None:
        """Undo the last change; views that it dropped or replaced are as they were."""
        self.program, self.planned, self.components, self.plan, self.orders, self.transient = saved
        self.backend.undo()
        self.declare_indexes()

    # -- helpers -----------------------------------------------------------------------------------------------------

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
    networks = plan_networks(read_in_order(_in_groups(bound)))
    check_volatile(networks)
    check_held(networks)
    traced = instrument(networks)
    for name, view in traced.views.items():
        query = with_copies(view.query, traced)
        if query is not view.query:
            traced.views[name] = replace(view, query=query)
    return select_aggregates(traced)


def _in_groups(bound: Program) -> Program:
    """Return the program with the views of templates that match subscriptions in groups, where they can."""
    found = bound.copy()
    for template in bound.templates:
        view = bound.views[template_name(template)]
        plan = recognise(view.query, bound.tables[template], bound).plan
        if plan is not None:
            found.views[view.name] = replace(view, query=plan)
    return found


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


def reselected(before: Saved, after: Saved) -> list[str]:
    """Return the views that a change has not touched, but that are cut down to other rows than before, or whole."""
    old, new = _cut_down(before), _cut_down(after)
    changed = [name for name in {*old, *new} if old.get(name) != new.get(name)]
    had, has = before.program.views, after.program.views
    return [name for name in changed if name in had and not had[name].hidden and had[name] == has.get(name)]


def _cut_down(saved: Saved) -> dict[str, dict[str, Node]]:
    """Return the views of best values by the views that they stand for."""
    found: dict[str, dict[str, Node]] = {}
    for name, view in saved.planned.views.items():
        if view.owner is not None and name not in saved.program.views:
            found.setdefault(view.owner, {})[name] = view.query
    return found


def table_kind(table: Table) -> str:
    if table.source is not None:
        return "source"
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
