"""Plan a program for partitions: where tables and views live, which of them stay, and since when they are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from whence.plan.algebra import logical
from whence.plan.algebra.distribution import Distribution
from whence.plan.algebra.logical import Node
from whence.plan.algebra.program import Program
from whence.plan.partitions.distribute import Optimized, PlannedComponent, distribute
from whence.plan.partitions.streams import MisplacedError
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.strata import Component, dependents
from whence.plan.streams.model import Stream
from whence.runtime.partition_plan import NOTHING, PartitionPlan

if TYPE_CHECKING:
    from whence.runtime.spark.driver.partitioned_backend import PartitionedBackend


class PartitionPlanner:
    """Plans for the partitions of a backend. Copies of tables of up to `copied_rows` may be in all of them."""

    def __init__(self, backend: PartitionedBackend, recursion_limit: int, copied_rows: int) -> None:
        self._backend, self._recursion_limit, self.copied_rows = backend, recursion_limit, copied_rows
        self.pinned: set[str] = set()  # tables that stay where they are, even empty
        self._optimized: Optimized = {}
        self._version = 0  # of the last plan, whether or not it was taken up: workers know plans by it

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
        tables = self._backend.flow.tables
        sizes = {name: tables[name].size for name in bound.tables if name in tables}
        while True:
            try:
                return self._plan(old, bound, planned, ordered, new, sizes)
            except MisplacedError as error:
                free = {name for name in error.streams if not self._backend.flow.arrivals[name].last_at}
                over = {view for name in free for view in dependents(planned, name)}
                if not free or over <= new:
                    raise
                new = new | over

    def _plan(
        self,
        old: PartitionPlan,
        bound: Program,
        planned: Program,
        ordered: Sequence[Component],
        new: set[str],
        sizes: Mapping[str, int],
    ) -> PartitionPlan:
        backend = self._backend
        kept = {views: v for views, v in old.since.items() if not new & {*views} and planned.views.keys() >= {*views}}
        used = {t for piece in old.distributed.pieces if piece.views in kept for t in tables_of(piece)}
        used |= {name for name, arrivals in backend.flow.arrivals.items() if arrivals.last_at}
        used |= self.pinned | {name for owed in backend.runner.owed for name in owed}
        fixed = {n: d for n, d in old.distributed.tables.items() if n in used or sizes.get(n)}
        tables = [name for name, table in bound.tables.items() if table.stream is None]
        small = frozenset(name for name in tables if sizes.get(name, 0) <= self.copied_rows)
        self._version += 1
        return self._placed(old, bound, planned, ordered, fixed, small, kept, {})

    def restored(
        self,
        bound: Program,
        planned: Program,
        ordered: Sequence[Component],
        fixed: Mapping[str, Distribution],
        small: frozenset[str],
        since: Mapping[str, int],
    ) -> PartitionPlan:
        """Return a first plan over tables that are `fixed`, or `small`, in which components have been there `since`
        some versions, by their first views."""
        self._version = 1 + max(since.values(), default=self._version)
        return self._placed(NOTHING, bound, planned, ordered, fixed, small, {}, since)

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
        )
        since = {p.views: kept.get(p.views, stamps.get(p.views[0], self._version)) for p in placed.pieces}
        pieces = tuple(p if p.views in kept else _stamped(p, since[p.views]) for p in placed.pieces)
        placed = replace(placed, pieces=pieces)
        return PartitionPlan(self._version, dict(bound.tables), placed, since, dict(planned.views), small)


def _stamped(piece: PlannedComponent, since: int) -> PlannedComponent:
    """Return a component whose ships say since when they have been."""

    def stamp(node: Node) -> Node:
        if node.inputs:
            node = node.with_inputs(tuple(map(stamp, node.inputs)))
        return replace(node, since=since) if isinstance(node, logical.Ship) else node

    def over(rules: RuleProgram) -> RuleProgram:
        relations = [r if r.source is None else replace(r, source=stamp(r.source)) for r in rules.relations]
        return replace(rules, relations=relations)

    return replace(
        piece,
        node=None if piece.node is None else stamp(piece.node),
        rules=None if piece.rules is None else over(piece.rules),
        after=tuple((name, stamp(node)) for name, node in piece.after),
        exchange=None if piece.exchange is None else replace(piece.exchange, rules=over(piece.exchange.rules)),
    )


def tables_of(piece: PlannedComponent) -> set[str]:
    """Return the tables that a component reads."""
    nodes = [piece.node] if piece.node is not None else []
    nodes += [r.source for r in piece.rules.relations if r.source is not None] if piece.rules is not None else []
    nodes += [node for _, node in piece.after]
    return {name for node in nodes for n in logical.walk(node) for name in tables_in(n)}


def tables_in(node: Node) -> tuple[str, ...]:
    """Return the table or stream that a node reads."""
    match node:
        case logical.Scan():
            return (node.table,)
        case Stream():
            return (node.stream,)
    return ()
