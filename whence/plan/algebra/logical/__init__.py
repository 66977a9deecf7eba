"""The logical algebra: what a query means, before anyone decides how to keep it up to date.

Nodes are frozen and compare by value, so two views that contain the same sub-query contain equal nodes, and the
physical plan keeps one operator for both. Columns are positions; names live in the schemas for people. A node says
itself what others must know of it (`node.py`).

| module | nodes: rows out |
|---|---|
| `node` | Node, Unary, Binary, Branching: the bases, with the questions that a node answers |
| `leaves` | Scan: a base table; Ref: another view (or this one: recursion); Values: constants |
| `rowwise` | Select: rows for which a predicate is true; Project: expressions of each; Lateral: each with more rows |
| `keep` | Keep: the same rows, arranged for the joins over it |
| `join` | Join: pairs of rows, padded or not, or rows that have a partner or none |
| `sets` | Union: all rows of all branches; Distinct: each once; SetOp: INTERSECT and EXCEPT |
| `aggregate` | Aggregate: one row per group |
| `topk` | TopK: the first rows in an order; TopKPerGroup: those of each group |
| `match` | MatchRows, MatchPairs: subscriptions with what they select |
| `match_aggregates` | MatchLeast, MatchDistinct, MatchTop: subscriptions with what is kept of rows in their ranges |
| `hold` | Hold: rows as of the last release for a view that is refreshed on demand |
| `moves` | Ship: the same rows in other partitions; LocalFilter: of rows that every partition has, this one's |
"""

from whence.plan.algebra.logical.aggregate import Agg, Aggregate
from whence.plan.algebra.logical.hold import Hold, HoldKey
from whence.plan.algebra.logical.join import Join, JoinKind
from whence.plan.algebra.logical.keep import Keep
from whence.plan.algebra.logical.leaves import Ref, Scan, Values
from whence.plan.algebra.logical.match import MatchPairs, MatchRows, Range, Side
from whence.plan.algebra.logical.match_aggregates import MatchDistinct, MatchLeast, MatchTop
from whence.plan.algebra.logical.moves import LocalFilter, Ship
from whence.plan.algebra.logical.node import Binary, Branching, Node, Unary, bottom_up, walk
from whence.plan.algebra.logical.rowwise import Lateral, Project, Select
from whence.plan.algebra.logical.sets import Distinct, SetOp, Union
from whence.plan.algebra.logical.topk import Order, TopK, TopKPerGroup

__all__ = [
    "Agg",
    "Aggregate",
    "Binary",
    "Branching",
    "Distinct",
    "Hold",
    "HoldKey",
    "Join",
    "JoinKind",
    "Keep",
    "Lateral",
    "LocalFilter",
    "MatchDistinct",
    "MatchLeast",
    "MatchPairs",
    "MatchRows",
    "MatchTop",
    "Node",
    "Order",
    "Project",
    "Range",
    "Ref",
    "Scan",
    "Select",
    "SetOp",
    "Ship",
    "Side",
    "TopK",
    "TopKPerGroup",
    "Unary",
    "Union",
    "Values",
    "bottom_up",
    "walk",
]
