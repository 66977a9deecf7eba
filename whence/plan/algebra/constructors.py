"""Construct logical nodes: schemas follow from the inputs, equalities of plain columns become join keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from whence.model import types as t
from whence.model.types import Column, Schema
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, conjuncts
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    JoinKind,
    Node,
    Project,
    Ref,
    Scan,
    Select,
    TopK,
    Values,
    walk,
)
from whence.plan.streams.model import Stream

ONE_ROW = Values(Schema(()), ((),))


def columns(node: Node) -> list[Expr]:
    """Return a node's own columns as expressions."""
    return [Col(c.type, i) for i, c in enumerate(node.schema.columns)]


def project(node: Node, exprs: Iterable[Expr], names: Sequence[str] | None = None) -> Node:
    """Make a projection; columns keep what is known of them."""
    exprs = tuple(exprs)
    made = []
    for i, expr in enumerate(exprs):
        source = node.schema.columns[expr.index] if isinstance(expr, Col) else None
        name = names[i] if names is not None else (source.name if source else f"c{i}")
        may_be_null = source.nullable if source else not (isinstance(expr, Lit) and expr.value is not None)
        made.append(Column(name, expr.type, may_be_null))
    schema = Schema(tuple(made))
    if exprs == tuple(columns(node)) and len(exprs) == len(node.schema):
        return relabel(node, schema)
    return Project(schema, node, exprs)


def relabel(node: Node, schema: Schema) -> Node:
    """Give the columns other names."""
    if node.schema == schema:
        return node
    if isinstance(node, (Scan, Ref, Stream)):
        return Project(schema, node, tuple(columns(node)))
    return replace(node, schema=schema)


def label(node: Node, name: str) -> Node:
    """Return a plan whose rows are known by a name: the node that makes them and the projections and conditions over
    it. Tables, views and what has a label keep their own."""
    if isinstance(node, (Scan, Ref, Stream)) or node.label:
        return node
    if isinstance(node, (Project, Select, Distinct)):
        node = replace(node, input=label(node.input, name))
    return replace(node, label=name)


def names_read(node: Node) -> list[str]:
    """Return the tables and views that a plan reads, each once."""
    found = (n.table if isinstance(n, Scan) else n.view for n in walk(node) if isinstance(n, (Scan, Ref)))
    return list(dict.fromkeys(found))


def conjunction(terms: Sequence[Expr]) -> Expr | None:
    """Join terms to one condition; None if there are none."""
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else Call(t.BOOLEAN, "and", tuple(terms))


def select(node: Node, terms: Sequence[Expr]) -> Node:
    """Select the rows for which all the terms are true."""
    predicate = conjunction(list(dict.fromkeys(term for given in terms for term in conjuncts(given))))
    return node if predicate is None else Select(node.schema, node, predicate)


def join(left: Node, right: Node, kind: JoinKind, terms: Iterable[Expr] = ()) -> Join:
    """Join on conditions over left then right columns."""
    width = len(left.schema)
    keys: list[tuple[int, int]] = []
    rest: list[Expr] = []
    for term in terms:
        pair = key_pair(term, width)
        if pair is None:
            rest.append(term)
        elif pair not in keys:
            keys.append(pair)
    return Join(join_schema(left, right, kind), left, right, kind, tuple(keys), conjunction(rest))


def key_pair(term: Expr, width: int) -> tuple[int, int] | None:
    """Return the (left, right) columns that a term says are equal; None if it does not."""
    if isinstance(term, Call) and term.op == "=":
        a, b = term.args
        if isinstance(a, Col) and isinstance(b, Col):
            if a.index < width <= b.index:
                return a.index, b.index - width
            if b.index < width <= a.index:
                return b.index, a.index - width
    return None


def join_schema(left: Node, right: Node, kind: JoinKind) -> Schema:
    ours, theirs = left.schema.columns, right.schema.columns
    if kind in ("semi", "anti"):
        return left.schema
    if kind == "mark":
        return Schema((*ours, Column("mark", t.BOOLEAN, nullable=False)))
    if kind in ("right", "full"):
        ours = tuple(replace(c, nullable=True) for c in ours)
    if kind in ("left", "full"):
        theirs = tuple(replace(c, nullable=True) for c in theirs)
    return Schema(ours + theirs)


def distinct(node: Node) -> Node:
    return node if isinstance(node, Distinct) else Distinct(node.schema, node)


def negation(expr: Expr) -> Expr:
    """NOT, with a double NOT taken away."""
    if isinstance(expr, Call) and expr.op == "not":
        return expr.args[0]
    return Call(t.BOOLEAN, "not", (expr,))


def exactly_one_row(node: Node) -> bool:
    """Return whether a plan has one row whatever its tables hold: an aggregate without GROUP BY, a constant row."""
    match node:
        case Project():
            return exactly_one_row(node.input)
        case Aggregate():
            return not node.keys
        case Values():
            return len(node.rows) == 1
        case Join(kind="inner", keys=(), residual=None):
            return exactly_one_row(node.left) and exactly_one_row(node.right)
        case Join(kind="left"):
            return exactly_one_row(node.left) and at_most_one_row(node.right)
    return False


def at_most_one_row(node: Node) -> bool:
    """Return whether a plan never has a second row."""
    match node:
        case Project() | Select() | Distinct():
            return at_most_one_row(node.input)
        case TopK(limit=int(limit)) if limit <= 1:
            return True
        case Values():
            return len(node.rows) <= 1
        case Join(kind="inner" | "left"):
            return at_most_one_row(node.left) and at_most_one_row(node.right)
        case Join(kind="semi" | "anti" | "mark"):
            return at_most_one_row(node.left)
    return exactly_one_row(node)
