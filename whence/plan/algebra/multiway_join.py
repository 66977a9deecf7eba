"""Merge nested inner joins into one n-way join: a list of sources, what must be equal, and what else must hold.

Projections that only pick columns are seen through, down to the tables, so that a join can use a table's own rows and
indexes; conditions between sources become equalities where they can be. A join of single rows stays an operator of its
own: a change of some of them then costs a step each, not a path through all the others for each. So does what would
make a join of more than `_WIDEST` sources. Neither does if it has a test that may fail: that waits for all sources.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.model.types import BOOLEAN, Kind, Schema
from whence.plan.algebra.constructors import at_most_one_row
from whence.plan.algebra.expressions import Call, Col, Expr, columns_of, conjuncts, may_fail, strip_casts, substitute
from whence.plan.algebra.logical import Join, Node, Project, Select

_WIDEST = 32


@dataclass(frozen=True)
class MultiwayJoin(Node):
    """An inner join of `sources`, whose columns stand side by side; `out` picks columns of that row.

    Columns in one of `classes` must be equal and not NULL; `tests` must be true.
    """

    sources: tuple[Node, ...]
    classes: tuple[tuple[int, ...], ...]
    tests: tuple[Expr, ...]
    out: tuple[int, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.sources

    def shape(self) -> object:
        return ("inner", self.schema.types, self.classes, self.tests, self.out)


def merge_joins(node: Node) -> Node:
    """Return the inner joins that a plan is at its top as one; the plan itself if it is none."""
    top = node
    while isinstance(top, Project) and _picks(top):
        top = top.input
    if not (isinstance(top, Join) and top.kind == "inner"):
        return node
    return _assemble(node.schema, *_gather(node))


def flatten_joins(node: Node) -> MultiwayJoin:
    """Return a plan as an inner join of its sources, all of whose columns are shown; of one source if it is none."""
    return _assemble(node.schema, *_gather(node))


def join_sides(node: Join) -> MultiwayJoin:
    """Return the pairs of an outer join as an inner join of its two sides as they are."""
    width = len(node.left.schema)
    columns = [Col(t, i) for i, t in enumerate((*node.left.schema.types, *node.right.schema.types))]
    tests: list[Expr] = [Call(BOOLEAN, "=", (columns[a], columns[width + b])) for a, b in node.keys]
    return _assemble(node.schema, [node.left, node.right], tests + conjuncts(node.residual), list(columns))


def _assemble(schema: Schema, sources: list[Node], tests: list[Expr], out: list[Expr]) -> MultiwayJoin:
    owner = [i for i, s in enumerate(sources) for _ in s.schema.columns]
    classes: list[set[int]] = []
    rest: list[Expr] = []
    for test in tests:
        pair = _equal_columns(test)
        if pair is None or owner[pair[0]] == owner[pair[1]]:
            rest.append(test)
            continue
        met = [c for c in classes if c & set(pair)]
        classes = [c for c in classes if c not in met] + [set(pair).union(*met)]
    types = [t for s in sources for t in s.schema.types]
    for members in map(sorted, classes):  # columns of one source must agree whichever source a path begins with
        first: dict[int, int] = {}
        for c in members:
            if first.setdefault(owner[c], c) != c:
                own = Col(types[c], first[owner[c]]), Col(types[c], c)
                rest.append(Call(BOOLEAN, "=", own))
    picked = tuple(e.index for e in out if isinstance(e, Col))
    return MultiwayJoin(schema, tuple(sources), tuple(tuple(sorted(c)) for c in classes), tuple(rest), picked)


def _picks(node: Project) -> bool:
    return all(isinstance(e, Col) for e in node.exprs)


def _gather(node: Node) -> tuple[list[Node], list[Expr], list[Expr]]:
    """Sources, conditions and output columns (all plain) of a plan made of inner joins."""
    if isinstance(node, Project) and _picks(node):
        sources, tests, out = _gather(node.input)
        return sources, tests, [_over(e, out) for e in node.exprs]
    if isinstance(node, Select) and _joins(node.input):
        sources, tests, out = _gather(node.input)
        return sources, tests + [_over(t, out) for t in conjuncts(node.predicate)], out
    if isinstance(node, Join) and node.kind == "inner":
        (sources, tests, out), (more, extra, right) = _gather_side(node.left), _gather_side(node.right)
        if len(sources) + len(more) > _WIDEST and not any(map(may_fail, tests + extra)):
            (sources, tests, out), (more, extra, right) = _leaf(node.left), _leaf(node.right)
        width = sum(len(s.schema) for s in sources)
        moved = [substitute(e, lambda c: Col(c.type, c.index + width)) for e in right]
        both = out + moved
        tests = tests + [substitute(t, lambda c: Col(c.type, c.index + width)) for t in extra]
        tests += [Call(BOOLEAN, "=", (out[a], moved[b])) for a, b in node.keys]
        tests += [_over(t, both) for t in conjuncts(node.residual)]
        return sources + more, tests, both
    return _leaf(node)


def _gather_side(node: Node) -> tuple[list[Node], list[Expr], list[Expr]]:
    found = _gather(node)
    return _leaf(node) if at_most_one_row(node) and not any(map(may_fail, found[1])) else found


def _leaf(node: Node) -> tuple[list[Node], list[Expr], list[Expr]]:
    return [node], [], [Col(t, i) for i, t in enumerate(node.schema.types)]


def _joins(node: Node) -> bool:
    while isinstance(node, Select) or (isinstance(node, Project) and _picks(node)):
        node = node.input
    return isinstance(node, Join) and node.kind == "inner"


def _over(expr: Expr, columns: list[Expr]) -> Expr:
    return substitute(expr, lambda c: columns[c.index])


def _equal_columns(test: Expr) -> tuple[int, int] | None:
    if isinstance(test, Call) and test.op == "=":
        a, b = strip_casts(test.args[0]), strip_casts(test.args[1])
        # Intervals that compare equal (a month, thirty days) may have different codes: those are tested, not looked up.
        looked_up = a.type.kind is not Kind.INTERVAL
        if isinstance(a, Col) and isinstance(b, Col) and looked_up and len(columns_of(test)) == 2:
            return a.index, b.index
    return None
