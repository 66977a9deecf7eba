"""Lift correlation out of a subquery: take the conditions that read the outer query to the top of its plan.

`lift(plan)` gives a plan without any `Outer`, the subquery's columns as expressions over that plan, and the conditions,
over that plan's columns and `Outer`s, under which a row of it belongs to a row of the query around. For every outer row
the rows that satisfy the conditions are the subquery's rows (in an existence test: at least one is, when at least one
is).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whence.model.types import BOOLEAN, Schema
from whence.plan.algebra.constructors import columns, join, project, select
from whence.plan.algebra.expressions import Call, Col, Expr, conjuncts, shift
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    Lateral,
    Node,
    Project,
    Select,
    SetOp,
    TopK,
    TopKPerGroup,
    Union,
    Values,
)
from whence.sql.placeholders import correlation, map_expr, outers_of, walk_expr

_NAMES: dict[type[Node], str] = {
    SetOp: "INTERSECT or EXCEPT",
    TopK: "LIMIT",
    TopKPerGroup: "LIMIT",
    Values: "VALUES",
    Lateral: "a table function",
}


class LiftError(Exception):
    """A correlation that cannot be lifted from where it stands; the message says where."""


@dataclass
class Lifted:
    """A plan whose correlation was lifted. `counts` are core columns that read 0, not NULL, when an outer row has no
    match."""

    core: Node
    outs: list[Expr]
    conds: list[Expr] = field(default_factory=list)
    counts: frozenset[int] = frozenset()
    one_row: bool = False  # stems from an aggregate without GROUP BY: exactly one row for every outer row


def lift(node: Node, exists: bool) -> Lifted:
    """Lift the correlation out of a plan; with `exists` only whether there are rows matters."""
    if not correlation(node):
        return Lifted(node, columns(node))
    match node:
        case Project():
            below = lift(node.input, exists)
            below.outs = [_over(e, below.outs) for e in node.exprs]
            return below
        case Select():
            return _select(node, exists)
        case Join():
            return _join(node, exists)
        case Distinct():
            return _distinct(node, exists)
        case Aggregate():
            return _aggregate(node)
        case Union():
            return _union(node, exists)
    where = _NAMES.get(type(node), "this part of it")
    raise LiftError(f"a reference to the query around it under {where} is not supported")


def _over(expr: Expr, outs: Sequence[Expr]) -> Expr:
    """Rewrite an expression over a subquery's columns as one over the lifted plan's."""
    return map_expr(expr, lambda e: _retyped(outs[e.index], e) if isinstance(e, Col) else None)


def _retyped(expr: Expr, like: Expr) -> Expr:
    return Col(like.type, expr.index) if isinstance(expr, Col) else expr


def _select(node: Select, exists: bool) -> Lifted:
    below = lift(node.input, exists)
    if below.one_row:
        raise LiftError("HAVING in a correlated subquery without GROUP BY is not supported")
    terms = [_over(term, below.outs) for term in conjuncts(node.predicate)]
    below.core = select(below.core, [term for term in terms if not outers_of(term)])
    below.conds += [term for term in terms if outers_of(term)]
    return below


def _join(node: Join, exists: bool) -> Lifted:
    if node.kind in ("right", "full"):
        raise LiftError(f"a reference to the query around it under a {node.kind} join is not supported")
    left, right = lift(node.left, exists), lift(node.right, exists or node.kind == "semi")
    if left.one_row or (right.one_row and node.kind != "inner"):
        raise LiftError("a correlated aggregate joined with something else is not supported")
    width = len(left.core.schema)
    outs = left.outs + [shift(e, width) for e in right.outs]
    terms: list[Expr] = [Call(BOOLEAN, "=", (outs[a], outs[len(left.outs) + b])) for a, b in node.keys]
    terms += [_over(term, outs) for term in conjuncts(node.residual)]
    terms += [shift(term, width) for term in right.conds]
    correlated = [term for term in terms if outers_of(term)]
    kind = node.kind
    if correlated and kind != "inner":
        if kind != "semi" or not exists:
            raise LiftError(f"a reference to the query around it in the condition of a {kind} join is not supported")
        kind = "inner"  # only existence matters, so doubles do no harm
    core = join(left.core, right.core, kind, [term for term in terms if not outers_of(term)])
    shown = outs if node.kind in ("inner", "left") else list(left.outs)
    if node.kind == "mark":
        shown = [*left.outs, Col(core.schema.columns[-1].type, len(core.schema) - 1)]
    return Lifted(core, shown, left.conds + correlated)


def _distinct(node: Distinct, exists: bool) -> Lifted:
    below = lift(node.input, exists)
    if exists:
        return below
    return _tied(below)


def _aggregate(node: Aggregate) -> Lifted:
    """Make an equality with the outer query a group key: the groups of one outer row are those with its value."""
    below = lift(node.input, exists=False)
    if below.one_row:
        raise LiftError("an aggregate of a correlated aggregate is not supported")
    pairs = [_equality(cond) for cond in below.conds]
    inner = [b for _, b in pairs]
    if any(outers_of(e) for e in below.outs):
        raise LiftError("an aggregate of the query around it is not supported inside a correlated subquery")
    plan = project(below.core, [*inner, *below.outs])
    lead = len(inner)
    keys = (*range(lead), *(lead + k for k in node.keys))
    aggs = tuple(a.moved(lambda column: column + lead) for a in node.aggs)
    schema = Schema((*plan.schema.columns[:lead], *node.schema.columns))
    core = Aggregate(schema, plan, keys, aggs)
    outs: list[Expr] = [Col(c.type, lead + i) for i, c in enumerate(node.schema.columns)]
    conds = [_equal(a, Col(schema.columns[i].type, i)) for i, (a, _) in enumerate(pairs)]
    first = len(keys)
    counts = frozenset(first + i for i, a in enumerate(aggs) if a.function == "count") if not node.keys else frozenset()
    return Lifted(core, outs, conds, counts, one_row=not node.keys)


def _union(node: Union, exists: bool) -> Lifted:
    """Lift out of a union, whose branches must read the same columns of the outer query."""
    branches = [lift(branch, exists) for branch in node.branches]
    ties = [[_equality(cond) for cond in b.conds] for b in branches]
    if any([a for a, _ in tie] != [a for a, _ in ties[0]] for tie in ties) or any(b.one_row for b in branches):
        raise LiftError("branches of a UNION that refer to the query around it in different ways are not supported")
    plans = []
    for branch, tie in zip(branches, ties, strict=True):
        if any(outers_of(e) for e in branch.outs):
            raise LiftError("a UNION whose branches return columns of the query around it is not supported")
        plans.append(project(branch.core, [*branch.outs, *(b for _, b in tie)]))
    core = Union(plans[0].schema, tuple(plans))
    width = len(node.schema)
    conds = [_equal(a, Col(b.type, width + i)) for i, (a, b) in enumerate(ties[0])]
    return Lifted(core, columns(core)[:width], conds)


def _tied(below: Lifted) -> Lifted:
    if any(outers_of(e) for e in below.outs) or below.one_row:
        raise LiftError("DISTINCT over columns of the query around it is not supported")
    pairs = [_equality(cond) for cond in below.conds]
    plan = project(below.core, [*below.outs, *(b for _, b in pairs)])
    core = Distinct(plan.schema, plan)
    width = len(below.outs)
    return Lifted(core, columns(core)[:width], [_equal(a, Col(b.type, width + i)) for i, (a, b) in enumerate(pairs)])


def _equality(cond: Expr) -> tuple[Expr, Expr]:
    """Split a condition `outer = inner` into its two sides."""
    if isinstance(cond, Call) and cond.op == "=":
        for a, b in (cond.args, cond.args[::-1]):
            if outers_of(a) and not _reads_columns(a) and not outers_of(b):
                return a, b
    raise LiftError("here the subquery may refer to the query around it only by equality (inner = outer)")


def _reads_columns(expr: Expr) -> bool:
    return any(isinstance(e, Col) for e in walk_expr(expr))


def _equal(a: Expr, b: Expr) -> Expr:
    return Call(BOOLEAN, "=", (a, b))
