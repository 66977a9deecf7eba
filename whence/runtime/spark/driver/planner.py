"""Plan a program for partitions: where tables and views live, which of them stay, and since when they are there.

A table that was small when a view was created may be copied to every partition. When it outgrows that, the views over
it are planned again: after its first load at once, else when it has grown fourfold beyond. Every partition then keeps
its own rows of the table and drops the others, so no row of a table travels; what views need elsewhere they ship, as
any new view does.

Views whose joins have heavy keys (`heavy_joins.py`) are planned again in the same way when such keys come or go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from whence.plan.algebra import logical
from whence.plan.algebra.arrival import has_at
from whence.plan.algebra.distribution import Distribution
from whence.plan.algebra.join_paths import JoinOrders
from whence.plan.algebra.logical import Node
from whence.plan.algebra.program import Program
from whence.plan.partitions.distribute import Optimized, PlannedComponent, distribute
from whence.plan.partitions.heavy_keys import Heavy
from whence.plan.partitions.streams import MisplacedError
from whence.plan.recursion.strata import Component, dependents
from whence.plan.rewrite.hold_inputs import holds_in
from whence.plan.rewrite.keep_joins import KeptJoin
from whence.plan.streams.model import Stream
from whence.runtime.partition_plan import PartitionPlan, made_anew
from whence.runtime.spark.driver.heavy_joins import HeavyJoins

if TYPE_CHECKING:
    from whence.runtime.spark.driver.partitioned_backend import PartitionedBackend


_OUTGROWN = 4  # how far a table that had rows may grow beyond what may be copied, before views are planned again


class PartitionPlanner:
    """Plans for the partitions of a backend. Copies of tables of up to `copied_rows` may be in all of them; a key of
    fewer rows than `heavy_rows` is never heavy."""

    follows_sizes = True

    def __init__(self, backend: PartitionedBackend, recursion_limit: int, copied_rows: int, heavy_rows: int) -> None:
        self._backend, self._recursion_limit, self.copied_rows = backend, recursion_limit, copied_rows
        self._heavy_joins = HeavyJoins(
            backend.partitions, heavy_rows, lambda asked: backend.runner.ask_all("heavy_keys", asked)
        )
        self.keeps: frozenset[KeptJoin] = frozenset()
        self.pinned: set[str] = set()  # tables that stay where they are, even empty
        self._optimized: Optimized = {}
        self._version = 0  # of the last plan, whether or not it was taken up: workers know plans by it
        self._rows: dict[str, int] = {}  # of tables: at most so many, as far as is known here
        self._empty: set[str] = set()  # tables that had none when they were first planned for

    def plan(
        self,
        old: PartitionPlan,
        bound: Program,
        planned: Program,
        ordered: Sequence[Component],
        new: set[str],
    ) -> PartitionPlan:
        """Return the next plan: what is kept stays as it is, and where it is. If a stream cannot stay, but nothing has
        come to it yet, it goes elsewhere, and what reads it is made anew."""
        sizes = self._sizes(bound)
        self._rows = dict(sizes)
        self._empty = {name for name in bound.tables if not sizes.get(name)}
        while True:
            try:
                return self._plan(old, bound, planned, ordered, new, sizes)
            except MisplacedError as error:
                free = {name for name in error.streams if not self._backend.flow.arrivals[name].last_at}
                over = {view for name in free for view in dependents(planned, name)}
                if not free or over <= new:
                    raise
                new = new | over

    def _sizes(self, bound: Program) -> dict[str, int]:
        tables = self._backend.flow.tables
        return {name: tables[name].size for name in bound.tables if name in tables}

    def replanned(
        self,
        old: PartitionPlan,
        bound: Program,
        planned: Program,
        ordered: Sequence[Component],
        added: Mapping[str, int],
    ) -> PartitionPlan | None:
        large = [name for name in added if self._outgrows(name, old, added[name])]
        tables = self._backend.flow.tables
        if large:
            self._rows |= {name: tables[name].size + added[name] for name in large}
            large = [name for name in large if self._outgrows(name, old, 0) and self._can_move(name, planned)]
        heavy, divided = self._heavy(old, planned, sum(added.values()))
        if not large and not divided:
            return None
        sizes = self._sizes(bound) | {name: self._rows[name] for name in large}
        new = divided | {view for name in large for view in dependents(planned, name)}
        self._empty.difference_update(large)
        return self._plan(replace(old, heavy=heavy), bound, planned, ordered, new, sizes, frozenset(large))

    def _heavy(self, old: PartitionPlan, planned: Program, added: int) -> tuple[Heavy, set[str]]:
        """Return the heavy keys of joins, and the views that have to be planned again for them."""
        pieces = [piece for piece in old.distributed.pieces if piece.joins]
        if not self._heavy_joins.is_due(added) or not pieces:
            return old.heavy, set()
        movable = [(p, over) for p in pieces if (over := _made_anew(p, old, planned)) is not None]
        joins = {join.name: join for piece, _ in movable for join in piece.joins}
        heavy = self._heavy_joins.choose(joins.values(), old.heavy)
        moved = {name for name in joins if heavy.get(name) != old.heavy.get(name)}
        new = {view for piece, over in movable if any(join.name in moved for join in piece.joins) for view in over}
        return {**{name: keys for name, keys in old.heavy.items() if name not in joins}, **heavy}, new

    def _outgrows(self, name: str, plan: PartitionPlan, added: int) -> bool:
        """Return whether a table that is copied to every partition, since it was small, may have too many rows."""
        if name not in plan.small or plan.tables[name].placement is not None:
            return False
        self._rows[name] = rows = self._rows.get(name, 0) + added
        most = self.copied_rows if name in self._empty else _OUTGROWN * self.copied_rows
        return rows > most and is_copied(name, plan)

    def _can_move(self, name: str, planned: Program) -> bool:
        """Return whether the views over a table can be made anew: not those whose streams may be gone."""
        queries = [planned.views[view].query for view in dependents(planned, name)]
        streams = any(
            isinstance(node, Stream) or has_at(node.schema) for query in queries for node in logical.walk(query)
        )
        owes = any(name in owed for owed in self._backend.runner.owed)
        return not streams and not owes and planned.tables[name].lifetime is None

    def _plan(
        self,
        old: PartitionPlan,
        bound: Program,
        planned: Program,
        ordered: Sequence[Component],
        new: set[str],
        sizes: Mapping[str, int],
        moved: frozenset[str] = frozenset(),
    ) -> PartitionPlan:
        backend = self._backend
        kept = {views: v for views, v in old.since.items() if not new & {*views} and planned.views.keys() >= {*views}}
        used = {t for piece in old.distributed.pieces if piece.views in kept for t in tables_of(piece)}
        used |= {name for name, arrivals in backend.flow.arrivals.items() if arrivals.last_at}
        free = moved - used
        used |= self.pinned | {name for owed in backend.runner.owed for name in owed}
        fixed = {n: d for n, d in old.distributed.tables.items() if n not in free and (n in used or sizes.get(n))}
        tables = [name for name, table in bound.tables.items() if table.stream is None]
        small = frozenset(name for name in tables if sizes.get(name, 0) <= self.copied_rows)
        self._version += 1
        return self._placed(old, bound, planned, ordered, fixed, small, kept, {})

    def anew(self, old: PartitionPlan, owners: Collection[str], touched: Collection[str]) -> PartitionPlan:
        self._version += 1
        return made_anew(old, owners, touched, self._version)

    def restored(
        self,
        bound: Program,
        planned: Program,
        ordered: Sequence[Component],
        fixed: Mapping[str, Distribution],
        small: frozenset[str],
        since: Mapping[str, int],
        decided: PartitionPlan,
    ) -> PartitionPlan:
        """Return a first plan over tables that are `fixed`, or `small`, in which components have been there `since`
        some versions, by their first views. Heavy keys, and whether rows have ranks, are as `decided` before."""
        self._version = 1 + max(since.values(), default=self._version)
        return self._placed(decided, bound, planned, ordered, fixed, small, {}, since)

    def reordered(self, old: PartitionPlan, orders: Mapping[str, JoinOrders]) -> PartitionPlan:
        self._version += 1
        return replace(old, version=self._version, orders=orders)

    def _placed(
        self,
        old: PartitionPlan,
        bound: Program,
        planned: Program,
        ordered: Sequence[Component],
        fixed: Mapping[str, Distribution],
        small: frozenset[str],
        kept: Mapping[tuple[str, ...], int],
        stamps: Mapping[str, int],
    ) -> PartitionPlan:
        before = old.distributed
        placed = distribute(
            planned,
            ordered,
            partitions=self._backend.partitions,
            fixed=fixed,
            small=small.__contains__,
            depth_limit=self._recursion_limit,
            kept=replace(before, pieces=tuple(piece for piece in before.pieces if piece.views in kept)),
            optimized=self._optimized,
            keeps=self.keeps,
            heavy=old.heavy,
            ranked=old.ranked,
        )
        since = {p.views: kept.get(p.views, stamps.get(p.views[0], self._version)) for p in placed.pieces}
        pieces = tuple(p if p.views in kept else _stamped(p, since[p.views]) for p in placed.pieces)
        placed = replace(placed, pieces=pieces)
        joins = {join.name for piece in placed.pieces for join in piece.joins}
        return replace(
            PartitionPlan(self._version, dict(bound.tables), placed, since, dict(planned.views), small),
            heavy={name: keys for name, keys in old.heavy.items() if name in joins},
            ranked=old.ranked,
        )


def _stamped(piece: PlannedComponent, since: int) -> PlannedComponent:
    """Return a component whose ships say since when they have been."""

    def stamp(node: Node) -> Node:
        if node.inputs:
            node = node.with_inputs(tuple(map(stamp, node.inputs)))
        return replace(node, since=since) if isinstance(node, logical.Ship) else node

    return piece.with_plans(stamp)


def _made_anew(piece: PlannedComponent, plan: PartitionPlan, planned: Program) -> set[str] | None:
    """Return the views that would be made anew with a component; None if they may not be: streams may have dropped
    rows, and what is held would no longer be."""
    over = {*piece.views, *(view for name in piece.views for view in dependents(planned, name))}
    nodes = [node for other in plan.distributed.pieces if over & {*other.views} for node in other.plans]
    if any(isinstance(n, Stream) or has_at(n.schema) for node in nodes for n in logical.walk(node)):
        return None
    return None if any(holds_in(node, {}) for node in nodes) else over


def is_copied(name: str, plan: PartitionPlan) -> bool:
    """Return whether every partition has a copy of a table, or is sent one."""
    if plan.distributed.tables[name].kind == "all":
        return True
    return any(
        isinstance(node, logical.Ship)
        and node.to == "all"
        and name in {t for n in logical.walk(node) for t in tables_in(n)}
        for piece in plan.distributed.pieces
        if piece.rules is not None
        for relation in piece.rules.relations
        if relation.source is not None
        for node in logical.walk(relation.source)
    )


def tables_of(piece: PlannedComponent) -> set[str]:
    """Return the tables that a component reads."""
    return {name for node in piece.plans for n in logical.walk(node) for name in tables_in(n)}


def tables_in(node: Node) -> tuple[str, ...]:
    """Return the table or stream that a node reads."""
    match node:
        case logical.Scan():
            return (node.table,)
        case Stream():
            return (node.stream,)
    return ()
