"""Reduce a chain to when results come, and of what inputs: drop columns that no condition and no window reads.

Tids do not depend on them, and a replay that starts cold knows its results without them.
"""

from __future__ import annotations

from dataclasses import replace

from whence.model.types import Schema
from whence.plan.algebra.expressions import Col, Expr, columns_of, substitute
from whence.plan.algebra.logical import Lateral, Node, Project, Select
from whence.plan.streams.model import Window

Places = dict[int, int]  # of columns that are left, where they are now


def strip_to_arrivals(query: Node) -> Node:
    """Reduce a query that `replay.copy_query` has made of a chain to `$at` alone."""
    node, places = _with(query, {len(query.schema) - 1})
    at = Col(query.schema.types[-1], places[len(query.schema) - 1])
    return Project(Schema(query.schema.columns[-1:]), node, (at,))


def _with(node: Node, needed: set[int]) -> tuple[Node, Places]:
    """Return the node with at least these columns."""
    match node:
        case Select():
            below, places = _with(node.input, needed | columns_of(node.predicate))
            return Select(below.schema, below, _over(node.predicate, places)), places
        case Project():
            kept = sorted(needed)
            below, places = _with(node.input, {c for k in kept for c in columns_of(node.exprs[k])})
            exprs = tuple(_over(node.exprs[k], places) for k in kept)
            made = Project(Schema(tuple(node.schema.columns[k] for k in kept)), below, exprs)
            return made, {k: n for n, k in enumerate(kept)}
        case Lateral():
            width = len(node.input.schema)
            args = {c for e in node.args for c in columns_of(e)}
            below, places = _with(node.input, {c for c in needed if c < width} | args)
            more = node.schema.columns[width:]
            schema = Schema((*below.schema.columns, *more))
            called = Lateral(schema, below, node.name, node.function, tuple(_over(e, places) for e in node.args))
            return called, {**places, **{width + n: len(below.schema) + n for n in range(len(more))}}
        case Window():
            return _window(node, needed)
    return node, {c: c for c in range(len(node.schema))}


def _window(node: Window, needed: set[int]) -> tuple[Node, Places]:
    keys, last = len(node.keys), len(node.schema) - 1
    aggs = [n for n in range(len(node.aggs)) if keys + n in needed]
    read = {*node.keys, len(node.input.schema) - 1, *(c for n in aggs if (c := node.aggs[n].column) is not None)}
    below, places = _with(node.input, read if node.span.on is None else read | {node.span.on})
    span = node.span if node.span.on is None else replace(node.span, on=places[node.span.on])
    left = [*range(keys), *(keys + n for n in aggs), last]
    made = Window(
        Schema(tuple(node.schema.columns[c] for c in left)),
        below,
        span,
        tuple(places[k] for k in node.keys),
        tuple(a if (a := node.aggs[n]).column is None else replace(a, column=places[a.column]) for n in aggs),
        node.owner,
    )
    return made, {c: n for n, c in enumerate(left)}


def _over(expr: Expr, places: Places) -> Expr:
    return substitute(expr, lambda c: Col(c.type, places[c.index]))
