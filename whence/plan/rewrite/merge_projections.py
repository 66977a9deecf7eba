"""Merge adjacent projections and adjacent selections, and drop projections that change nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from whence.plan.algebra.constructors import columns, relabel, select
from whence.plan.algebra.expressions import Col, Expr, Lit, substitute, walk
from whence.plan.algebra.logical import Distinct, Node, Project, Select, bottom_up
from whence.plan.algebra.size import size_of

_DEPTH = 150


def merge_projections(node: Node) -> Node:
    """Merge what is adjacent and alike."""
    return bottom_up(node, _merge)


def _merge(node: Node) -> Node:
    match node:
        case Select(input=Select() as below):
            return select(below.input, [below.predicate, node.predicate])
        case Project(input=Project() as below) if _may_merge(node, below):
            return _merge(_composed(node, below))
        case Project() if list(node.exprs) == columns(node.input):
            return relabel(node.input, node.schema) if node.schema != node.input.schema else node.input
        case Distinct(input=Distinct() as below):
            return relabel(below, node.schema)
    return node


def _composed(node: Project, below: Project) -> Project:
    exprs = tuple(substitute(e, lambda c: _retyped(below.exprs[c.index], c)) for e in node.exprs)
    return replace(node, input=below.input, exprs=exprs)


def _retyped(expr: Expr, like: Col) -> Expr:
    return Col(like.type, expr.index) if isinstance(expr, Col) else expr


def _may_merge(node: Project, below: Project) -> bool:
    """Return whether nothing costly would be computed twice, and no expression gets too deep."""
    if _depth(node) + _depth(below) > _DEPTH:
        return False
    used = Counter(e.index for expr in node.exprs for e in walk(expr) if isinstance(e, Col))
    return all(count == 1 or isinstance(below.exprs[i], (Col, Lit)) for i, count in used.items())


def _depth(node: Project) -> int:
    return max((size_of(e).depth for e in node.exprs), default=0)
