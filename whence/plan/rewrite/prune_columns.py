"""Drop columns that nothing above reads before an operator would keep them in its state.

Each row stays one row: a projection never removes duplicates. Where a whole row is what counts (DISTINCT, INTERSECT,
EXCEPT, the ties of a top-k) every column is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from whence.model.types import Schema
from whence.plan.algebra.constructors import columns, join_schema, project
from whence.plan.algebra.expressions import Col, Expr, columns_of, conjuncts, substitute
from whence.plan.algebra.logical import Aggregate, Join, Lateral, Node, Project, Select, Union

Kept = list[int]


def prune_columns(node: Node) -> Node:
    """Drop unused columns early; the plan's own columns stay."""
    found, kept = _prune(node, set(range(len(node.schema))))
    return _narrow(found, kept, range(len(node.schema)))


def _prune(node: Node, needed: set[int]) -> tuple[Node, Kept]:
    """Drop columns that are not needed; return the node and which of its columns are left, in order."""
    match node:
        case Project():
            keep = sorted(needed)
            exprs = [node.exprs[i] for i in keep]
            below, kept = _prune(node.input, _read(exprs))
            schema = Schema(tuple(node.schema.columns[i] for i in keep))
            return replace(node, schema=schema, input=below, exprs=tuple(_moved(e, kept) for e in exprs)), keep
        case Select():
            below, kept = _prune(node.input, needed | columns_of(node.predicate))
            return replace(node, schema=below.schema, input=below, predicate=_moved(node.predicate, kept)), kept
        case Join():
            return _join(node, needed)
        case Aggregate():
            return _aggregate(node, needed)
        case Union():
            keep = sorted(needed)
            branches = tuple(_exactly(branch, keep) for branch in node.branches)
            schema = Schema(tuple(node.schema.columns[i] for i in keep))
            return replace(node, schema=schema, branches=branches), keep
        case Lateral():
            return _lateral(node, needed)
    inputs = [_exactly(child, range(len(child.schema))) for child in node.inputs]
    return (node.with_inputs(inputs) if inputs else node), list(range(len(node.schema)))


def _read(exprs: Iterable[Expr]) -> set[int]:
    return set().union(*(columns_of(e) for e in exprs))


def _moved(expr: Expr, kept: Kept) -> Expr:
    place = {column: at for at, column in enumerate(kept)}
    return substitute(expr, lambda c: Col(c.type, place[c.index]))


def _narrow(node: Node, kept: Kept, wanted: Iterable[int]) -> Node:
    """Reduce a pruned node to exactly the wanted columns, in their order."""
    place = {column: at for at, column in enumerate(kept)}
    own = columns(node)
    exprs = [own[place[i]] for i in wanted]
    return node if exprs == own else project(node, exprs)


def _exactly(node: Node, wanted: Iterable[int]) -> Node:
    wanted = list(wanted)
    found, kept = _prune(node, set(wanted))
    return _narrow(found, kept, wanted)


def _join(node: Join, needed: set[int]) -> tuple[Node, Kept]:
    width = len(node.left.schema)
    residual = node.residual
    read = needed | (columns_of(residual) if residual is not None else set())
    if node.kind == "mark":
        read -= {width}  # the mark itself is no input; a residual never reads it
        read |= columns_of(residual) if residual is not None else set()
    left_wanted = sorted({i for i in read if i < width} | {a for a, _ in node.keys})
    right_read = {i - width for i in read if i >= width}
    if node.kind in ("semi", "anti", "mark"):
        right_read = {i - width for term in conjuncts(residual) for i in columns_of(term) if i >= width}
    right_wanted = sorted(right_read | {b for _, b in node.keys})
    left, right = _exactly(node.left, left_wanted), _exactly(node.right, right_wanted)
    keys = tuple((left_wanted.index(a), right_wanted.index(b)) for a, b in node.keys)
    both = left_wanted + [width + i for i in right_wanted]
    moved = _moved(residual, both) if residual is not None else None
    schema = join_schema(left, right, node.kind)
    joined = replace(node, schema=schema, left=left, right=right, keys=keys, residual=moved)
    if node.kind == "mark":
        return joined, [*left_wanted, width]
    return joined, left_wanted if node.kind in ("semi", "anti") else both


def _aggregate(node: Aggregate, needed: set[int]) -> tuple[Node, Kept]:
    lead = len(node.keys)
    used = [i for i in range(len(node.aggs)) if lead + i in needed] or list(range(len(node.aggs)))[: 1 - bool(lead)]
    aggs = [node.aggs[i] for i in used]
    wanted = sorted(set(node.keys) | {c for a in aggs for c in a.reads})
    below = _exactly(node.input, wanted)
    moved = tuple(a.moved(wanted.index) for a in aggs)
    keep = [*range(lead), *(lead + i for i in used)]
    schema = Schema(tuple(node.schema.columns[i] for i in keep))
    keys = tuple(wanted.index(k) for k in node.keys)
    return replace(node, schema=schema, input=below, keys=keys, aggs=moved), keep


def _lateral(node: Lateral, needed: set[int]) -> tuple[Node, Kept]:
    width = len(node.input.schema)
    wanted = sorted({i for i in needed if i < width} | _read(node.args))
    below = _exactly(node.input, wanted)
    own = range(width, len(node.schema))
    schema = Schema((*below.schema.columns, *(node.schema.columns[i] for i in own)))
    return replace(node, schema=schema, input=below, args=tuple(_moved(e, wanted) for e in node.args)), [*wanted, *own]
