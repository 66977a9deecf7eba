"""Push conditions as near to the tables as they may go; equalities across a join become its keys.

A condition may pass an operator when it is true of a row above exactly when it is true of the rows below that make it.
So it never passes the padded side of an outer join, a top-k, or an aggregate whose keys it does not stick to. Inside ON
it may move only into the side that is not kept whole. One that is an error for some rows (a cast, a division) does not
move to where it would meet rows that are not there above. Of an OR that has to stay, what it says of the rows below
alone goes down beside it. One that calls a function that is not deterministic stays where it was written, and none
moves below such a call.

Streams: what is before a window, a b-sort or a retention decides what is in it, so conditions stay after those; they
pass a lookup as they pass a join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whence.model.types import Schema
from whence.plan.algebra.constructors import columns, conjunction, join_schema, key_pair, project, select
from whence.plan.algebra.expressions import (
    Call,
    Col,
    Expr,
    columns_of,
    conjuncts,
    is_volatile,
    may_fail,
    shift,
    substitute,
)
from whence.plan.algebra.logical import Aggregate, Distinct, Join, Lateral, Node, Project, Select, SetOp, Union
from whence.plan.algebra.size import size_of
from whence.plan.rewrite.factor_disjunctions import infer_conditions
from whence.plan.rewrite.null_safe_keys import null_safe_keys
from whence.plan.streams.model import Lookup, ProvenanceJoin, StreamToRelation, WindowJoin, with_at

_GROWTH, _DEPTH = 200, 100  # how many more expressions a condition may have below a projection, and how deep


def push_predicates(node: Node) -> Node:
    """Push the conditions of a plan down."""
    return _push(node, [])


def _push(node: Node, terms: list[Expr]) -> Node:
    """Select the node's rows for which the terms, over its columns, are true."""
    if not isinstance(node, Select) and any(map(is_volatile, terms)):
        return select(_push(node, [t for t in terms if not is_volatile(t)]), [t for t in terms if is_volatile(t)])
    match node:
        case Select():
            return _push(node.input, conjuncts(node.predicate) + terms)  # in the order they were to be decided
        case Project():
            down, stay = _through(node, terms)
            return select(replace(node, input=_push(node.input, down)), stay)
        case Distinct():
            return replace(node, input=_push(node.input, terms))
        case Union():
            return node.with_inputs([_push(child, terms) for child in node.inputs])
        case SetOp():
            stay = [term for term in terms if may_fail(term)]
            down = [term for term in terms if not may_fail(term)]
            return select(node.with_inputs([_push(child, down) for child in node.inputs]), stay)
        case Aggregate():
            keys = range(len(node.keys)) if node.keys else ()
            down, stay = _split(terms, keys)
            down += infer_conditions(stay, keys)
            below = [substitute(term, lambda c: Col(c.type, node.keys[c.index])) for term in down]
            return select(replace(node, input=_push(node.input, below)), stay)
        case Lateral():
            down, stay = _split(terms, range(len(node.input.schema)))
            down += infer_conditions(stay, range(len(node.input.schema)))
            return select(replace(node, input=_push(node.input, down)), stay)
        case Join():
            return _push_join(node, terms)
        case StreamToRelation():
            return replace(node, input=_push(node.input, terms))
        case Lookup():
            return _push_lookup(node, terms)
        case ProvenanceJoin(copy=Node()):  # less is replayed
            down, stay = _sure(terms, range(len(node.input.schema)))
            where = conjunction([*conjuncts(node.where), *down])
            return select(replace(node, input=_push(node.input, []), where=where), stay)
        case WindowJoin():
            left, right = _push(node.left, []), _push(node.right, [])
            return _keyed_stream(node, left, right, conjuncts(node.residual) + terms)
    inputs = [_push(child, []) for child in node.inputs]
    return select(node.with_inputs(inputs) if inputs else node, terms)


def _through(node: Project, terms: list[Expr]) -> tuple[list[Expr], list[Expr]]:
    """Rewrite terms over a projection's input; return those, and those that would grow too much: `x` may stand for `y +
    y`."""
    down, stay = list[Expr](), list[Expr]()
    for term in terms:
        below, size = substitute(term, lambda c: _retyped(node.exprs[c.index], c)), size_of(term)
        grown = size_of(below)
        fits = grown.nodes - size.nodes <= _GROWTH and grown.depth <= max(size.depth, _DEPTH) and not is_volatile(below)
        (down if fits else stay).append(below if fits else term)
    return down, stay


def _retyped(expr: Expr, like: Col) -> Expr:
    return Col(like.type, expr.index) if isinstance(expr, Col) else expr


def _split(terms: Sequence[Expr], allowed: Sequence[int] | range) -> tuple[list[Expr], list[Expr]]:
    """Split terms into those that read the allowed columns only (and some), and the others."""
    fits = [bool(columns_of(term)) and columns_of(term) <= set(allowed) for term in terms]
    down = [term for term, fit in zip(terms, fits, strict=True) if fit]
    return down, [term for term, fit in zip(terms, fits, strict=True) if not fit]


def _sure(terms: Sequence[Expr], allowed: range) -> tuple[list[Expr], list[Expr]]:
    """Split as `_split`, but keep a term that may fail: below it would meet rows that have no partner.

    What a term that stays implies goes down too."""
    down, stay = _split([term for term in terms if not may_fail(term)], allowed)
    staying = set(stay)
    kept = [term for term in terms if term in staying or may_fail(term)]
    return down + infer_conditions(kept, allowed), kept


def _push_join(node: Join, terms: list[Expr]) -> Node:
    width = len(node.left.schema)
    on = conjuncts(node.residual)
    to_left: list[Expr] = []
    to_right: list[Expr] = []
    if node.kind == "inner":
        on, terms = on + terms, []
    ours, theirs = range(width), range(width, width + len(node.right.schema))
    if node.kind in ("left", "semi", "anti", "mark"):
        to_left, terms = _sure(terms, ours)
    elif node.kind == "right":
        moved, terms = _sure(terms, theirs)
        to_right += [shift(term, -width) for term in moved]
    if node.kind in ("inner", "right", "semi"):
        moved, on = _sure(on, ours)
        to_left += moved
    if node.kind in ("inner", "left", "semi", "anti", "mark"):
        moved, on = _sure(on, theirs)
        to_right += [shift(term, -width) for term in moved]
    left, right = _push(node.left, to_left), _push(node.right, to_right)
    return select(_keyed(node, left, right, on), terms)


def _keyed(node: Join, left: Node, right: Node, on: list[Expr]) -> Node:
    """Make every equality between the sides of a join a key; sides that are expressions are computed first."""
    width, far = len(left.schema), len(right.schema)
    on = [key for term in on for key in null_safe_keys(term, left.schema, right.schema)]
    keys, rest, extra_left, extra_right = _keys(node.keys, on, width, far)
    if not extra_left and not extra_right:
        return replace(node, left=left, right=right, keys=tuple(keys), residual=conjunction(rest))
    more = len(extra_left)
    left = project(left, [*columns(left), *extra_left]) if extra_left else left
    right = project(right, [*columns(right), *extra_right]) if extra_right else right
    rest = [substitute(t, lambda c: Col(c.type, c.index + more if c.index >= width else c.index)) for t in rest]
    schema = join_schema(left, right, node.kind)
    joined = replace(node, schema=schema, left=left, right=right, keys=tuple(keys), residual=conjunction(rest))
    kept = [*range(width)]
    if node.kind == "mark":
        kept.append(width + more)
    elif node.kind not in ("semi", "anti"):
        kept += range(width + more, width + more + far)
    return Project(node.schema, joined, tuple(columns(joined)[i] for i in kept))


def _keys(
    given: Sequence[tuple[int, int]], on: list[Expr], width: int, far: int
) -> tuple[list[tuple[int, int]], list[Expr], list[Expr], list[Expr]]:
    """Find the keys of a join, the conditions that are none, and what either side must compute for the keys."""
    keys = list(given)
    rest: list[Expr] = []
    extra_left: list[Expr] = []
    extra_right: list[Expr] = []
    for term in on:
        pair = key_pair(term, width)
        sides = _sides(term, width) if pair is None else None
        if pair is not None:
            if pair not in keys:
                keys.append(pair)
        elif sides is not None and not may_fail(term):
            keys.append((_place(sides[0], extra_left, width), _place(shift(sides[1], -width), extra_right, far)))
        else:
            rest.append(term)
    return keys, rest, extra_left, extra_right


def _push_lookup(node: Lookup, terms: list[Expr]) -> Node:
    width = len(node.input.schema) - 1
    ours, theirs = range(width), range(width, width + len(node.relation.schema))
    on, to_left = conjuncts(node.residual), list[Expr]()
    if node.kind == "inner":
        on, terms = on + terms, []
    else:
        to_left, terms = _sure(terms, ours)
    if node.kind in ("inner", "semi"):
        moved, on = _sure(on, ours)
        to_left += moved
    if node.outside:  # a key that is not there has to be fetched, whatever is asked of its row
        below = replace(node, input=_push(node.input, to_left), residual=conjunction(on))
        return select(below, terms)
    to_right, on = _sure(on, theirs)
    relation = _push(node.relation, [shift(term, -width) for term in to_right])
    return select(_keyed_stream(node, _push(node.input, to_left), relation, on), terms)


def _keyed_stream(node: Lookup | WindowJoin, left: Node, right: Node, on: list[Expr]) -> Node:
    """Do as `_keyed` for streams; `$at` stays the last column of either stream and of the join."""
    width, far = len(left.schema) - 1, len(right.schema) - isinstance(node, WindowJoin)
    keys, rest, extra_left, extra_right = _keys(node.keys, on, width, far)
    more = len(extra_left)
    left, right = _widened(left, extra_left, width), _widened(right, extra_right, far)
    rest = [substitute(t, lambda c: Col(c.type, c.index + more if c.index >= width else c.index)) for t in rest]
    shown = left.schema.columns[:-1]
    kept = [*range(width)]
    if isinstance(node, Lookup) and node.kind == "mark":
        shown += (node.schema.columns[width],)
        kept.append(width + more)
    elif not (isinstance(node, Lookup) and node.kind in ("semi", "anti")):
        padded = isinstance(node, Lookup) and node.kind == "left"
        own = right.schema.columns[: far + len(extra_right)]
        shown += tuple(replace(c, nullable=c.nullable or padded) for c in own)
        kept += range(width + more, width + more + far)
    schema = with_at(Schema(shown)) if extra_left or extra_right else node.schema
    if isinstance(node, Lookup):
        found: Node = Lookup(schema, left, right, node.kind, tuple(keys), conjunction(rest), node.is_matched)
    else:
        found = replace(node, schema=schema, left=left, right=right, keys=tuple(keys), residual=conjunction(rest))
    if not extra_left and not extra_right:
        return found
    return Project(node.schema, found, tuple(columns(found)[i] for i in [*kept, len(shown)]))


def _widened(node: Node, extra: list[Expr], width: int) -> Node:
    """Add computed columns after the first ones of a node, before `$at`."""
    if not extra:
        return node
    own = columns(node)
    return project(node, [*own[:width], *extra, *own[width:]])


def _sides(term: Expr, width: int) -> tuple[Expr, Expr] | None:
    """Return the left and right side of an equality of an expression over each."""
    if isinstance(term, Call) and term.op == "=":
        for a, b in (term.args, term.args[::-1]):
            left, right = columns_of(a), columns_of(b)
            if left and right and max(left) < width <= min(right):
                return a, b
    return None


def _place(expr: Expr, extra: list[Expr], width: int) -> int:
    """Return the column of an expression among the side's own and those computed for the join."""
    if isinstance(expr, Col):
        return expr.index
    if expr not in extra:
        extra.append(expr)
    return width + extra.index(expr)
