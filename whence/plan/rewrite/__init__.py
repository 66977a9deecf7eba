"""Rewrites of logical plans: pure functions from a plan to one that gives the same rows for less work, one per file.

| module | what it does |
|---|---|
| `fold_constants` | computes what is constant; drops conditions that are always true |
| `factor_disjunctions` | takes what stands in every branch of an OR out of it |
| `push_predicates` | moves conditions towards the tables and turns equalities across a join into its keys |
| `null_safe_keys` | makes equalities of IS NOT DISTINCT FROM, so that it can be a key too |
| `order_joins` | orders inner joins so that no cross product is formed where a connected order exists |
| `merge_projections` | makes one of adjacent projections and of adjacent selections |
| `prune_columns` | drops columns before a join, an aggregate or a union keeps them in its state |
| `distinct_inputs` | drops copies of rows before a join where nothing above it can see them |
| `keep_joins` | makes the join of some inputs a relation of its own, where that is decided |
| `linearize` | makes a transitive closure that reads itself twice read itself once |
| `select_aggregates` | decides which rows of a recursive view its readers can see |
| `hold_inputs` | lets changes wait before views that are refreshed on demand |
| `best_rows` | plans recursive views of which only the best rows are kept |
"""

from __future__ import annotations

from whence.plan.algebra.constructors import relabel
from whence.plan.algebra.logical import Node
from whence.plan.rewrite.distinct_inputs import distinct_inputs
from whence.plan.rewrite.factor_disjunctions import factor_disjunctions
from whence.plan.rewrite.fold_constants import fold_constants
from whence.plan.rewrite.keep_joins import keep_joins
from whence.plan.rewrite.merge_projections import merge_projections
from whence.plan.rewrite.order_joins import order_joins
from whence.plan.rewrite.prune_columns import prune_columns
from whence.plan.rewrite.push_predicates import push_predicates

__all__ = [
    "distinct_inputs",
    "factor_disjunctions",
    "fold_constants",
    "keep_joins",
    "merge_projections",
    "optimize",
    "order_joins",
    "prune_columns",
    "push_predicates",
]


def optimize(node: Node) -> Node:
    """Apply all rewrites: the same rows under the same schema."""
    found = fold_constants(node)
    found = factor_disjunctions(found)
    found = merge_projections(found)
    found = push_predicates(found)
    found = merge_projections(found)
    found = order_joins(found)
    found = prune_columns(found)
    found = merge_projections(found)
    return relabel(found, node.schema)
