"""What a partition is to hold: tables, and views as components ready to be built; and who plans that.

A plan has a version, and says of every component since which version it has been there: a partition that takes up the
next plan keeps these as they are. `WholePlanner` plans for one partition, where nothing has to be distributed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from whence.plan.algebra.program import Program, Table, View
from whence.plan.partitions.distribute import Distributed, undistributed
from whence.plan.recursion.strata import Component


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


NOTHING = PartitionPlan(0, {}, Distributed(0, {}, {}, ()), {})
Plans = Callable[[int], PartitionPlan]  # by their versions


class Planner(Protocol):
    """Plans for the partitions of one database."""

    def plan(
        self,
        old: PartitionPlan,
        bound: Program,
        planned: Program,
        ordered: Sequence[Component],
        new: set[str],
    ) -> PartitionPlan:
        """Return the plan after `old` for a program as users wrote it and as it runs, in which some views are `new`."""


class WholePlanner:
    """Plans for one partition that has everything."""

    def __init__(self, recursion_limit: int) -> None:
        self._recursion_limit = recursion_limit

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
        distributed = undistributed(planned, ordered, self._recursion_limit, standing)
        kept = {id(piece) for piece in standing.values()}
        since = {p.views: old.since[p.views] if id(p) in kept else version for p in distributed.pieces}
        return PartitionPlan(version, dict(bound.tables), distributed, since, planned.views)
