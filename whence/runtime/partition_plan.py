"""What a partition is to hold: tables, and views as components ready to be built; and who plans that.

A plan has a version, and says of every component since which version it has been there: a partition that takes up the
next plan keeps these as they are. `WholePlanner` plans for one partition, where nothing has to be distributed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from whence.plan.algebra.join_paths import JoinOrders
from whence.plan.algebra.logical import Node
from whence.plan.algebra.program import Program, Table, View
from whence.plan.partitions.distribute import Distributed, undistributed
from whence.plan.partitions.heavy_keys import Heavy
from whence.plan.recursion.strata import Component
from whence.plan.rewrite.hold_inputs import renewed
from whence.plan.rewrite.keep_joins import KeptJoin


@dataclass(frozen=True)
class PartitionPlan:
    """The tables, the components of views in the order of strata, and since when each component has been there."""

    version: int
    tables: Mapping[str, Table]
    distributed: Distributed
    since: Mapping[tuple[str, ...], int]
    views: Mapping[str, View] = field(default_factory=dict)  # as they are planned
    small: frozenset[str] = frozenset()  # the tables that were held to be so
    transient: frozenset[str] = frozenset()  # the views that belong to subscriptions
    orders: Mapping[str, JoinOrders] = field(default_factory=dict)  # of joins, by fingerprint, that were decided
    heavy: Heavy = field(default_factory=dict)  # keys whose rows are divided among partitions
    ranked: bool = True  # whether recursion sends rows with ranks; not in a folder whose images have none


NOTHING = PartitionPlan(0, {}, Distributed(0, {}, {}, ()), {})
Plans = Callable[[int], PartitionPlan]  # by their versions


def made_anew(plan: PartitionPlan, owners: Collection[str], touched: Collection[str], version: int) -> PartitionPlan:
    """Return a plan in which the holds of some held views begin anew, and so do the `touched` views."""

    def change(node: Node) -> Node:
        for owner in owners:
            node = renewed(node, owner, version)
        return node

    pieces = tuple(
        piece.with_plans(change) if {*piece.views} & {*touched} else piece for piece in plan.distributed.pieces
    )
    since = {views: version if {*views} & {*touched} else had for views, had in plan.since.items()}
    return replace(plan, version=version, distributed=replace(plan.distributed, pieces=pieces), since=since)


class Planner(Protocol):
    """Plans for the partitions of one database."""

    follows_sizes: bool  # whether plans depend on how many rows tables have
    keeps: frozenset[KeptJoin]  # the joins of some inputs that views keep

    def plan(
        self,
        old: PartitionPlan,
        bound: Program,
        planned: Program,
        ordered: Sequence[Component],
        new: set[str],
    ) -> PartitionPlan:
        """Return the plan after `old` for a program as users wrote it and as it runs, in which some views are `new`."""

    def replanned(
        self,
        old: PartitionPlan,
        bound: Program,
        planned: Program,
        ordered: Sequence[Component],
        added: Mapping[str, int],
    ) -> PartitionPlan | None:
        """Return a better plan for the same program, with so many rows that are about to come to tables; None if `old`
        will do."""

    def reordered(self, old: PartitionPlan, orders: Mapping[str, JoinOrders]) -> PartitionPlan:
        """Return the plan after `old` in which joins have these orders."""

    def anew(self, old: PartitionPlan, owners: Collection[str], touched: Collection[str]) -> PartitionPlan:
        """Return the plan after `old` for the same program in which holds begin anew, see `made_anew`."""


class WholePlanner:
    """Plans for one partition that has everything."""

    follows_sizes = False

    def __init__(self, recursion_limit: int, holds: bool = True) -> None:
        self._recursion_limit, self._holds = recursion_limit, holds
        self.keeps: frozenset[KeptJoin] = frozenset()

    def plan(
        self,
        old: PartitionPlan,
        bound: Program,
        planned: Program,
        ordered: Sequence[Component],
        new: set[str],
    ) -> PartitionPlan:
        version = old.version + 1
        standing = {frozenset(piece.views): piece for piece in old.distributed.pieces if not new & {*piece.views}}
        distributed = undistributed(planned, ordered, self._recursion_limit, standing, self.keeps, self._holds)
        kept = {id(piece) for piece in standing.values()}
        since = {p.views: old.since[p.views] if id(p) in kept else version for p in distributed.pieces}
        return PartitionPlan(version, dict(bound.tables), distributed, since, planned.views)

    def replanned(
        self,
        old: PartitionPlan,
        bound: Program,
        planned: Program,
        ordered: Sequence[Component],
        added: Mapping[str, int],
    ) -> PartitionPlan | None:
        return None

    def reordered(self, old: PartitionPlan, orders: Mapping[str, JoinOrders]) -> PartitionPlan:
        return replace(old, version=old.version + 1, orders=orders)

    def anew(self, old: PartitionPlan, owners: Collection[str], touched: Collection[str]) -> PartitionPlan:
        return made_anew(old, owners, touched, old.version + 1)
