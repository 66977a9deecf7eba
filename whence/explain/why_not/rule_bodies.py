"""The rule bodies of a query: each is one way to its rows, down to tables, named views and parts that stay whole.

Invariant: the rows of the query are those of its bodies, and every source of a body is `External`. Views that users do
not see are opened, unless they are recursive.
"""

from __future__ import annotations

from dataclasses import replace

from whence.explain.derive.extractor import Extractor
from whence.explain.why_not.gaps import find_classes
from whence.explain.why_not.goals import Goals
from whence.model.codes import Dictionary, encode_value
from whence.model.errors import WhenceError
from whence.plan.algebra.expressions import Call, Col, Lit, columns_of, conjuncts
from whence.plan.algebra.logical import Distinct, Join, Node, Project, Ref, Scan, Select, SetOp, Union, Values
from whence.plan.recursion.conjunctive import Body, External, Flattener, columns
from whence.plan.rewrite.fold_constants import fold


def flatten_query(owner: Extractor, query: Node) -> list[Body]:
    """Return the bodies of a query, without conditions that are always true."""
    views, is_recursive = owner.program.views, owner.is_recursive
    hidden = {name: v.query for name, v in views.items() if v.hidden and not is_recursive(name)}

    def opens(node: Node) -> bool:
        match node:
            case Ref():
                return node.view in hidden
            case Values(rows=((),)) | Select() | Project() | Union() | Distinct() | Join() | SetOp(all=False):
                return True
        return False

    return [_drop_true(b) for b in Flattener(hidden, {}, opens=opens, for_rules=False).flatten(query)]


def _drop_true(body: Body) -> Body:
    tests = [t for test in body.tests for t in conjuncts(fold(test))]
    return replace(body, tests=tuple(t for t in tests if not (isinstance(t, Lit) and t.value)))


def is_whole(query: Node, bodies: list[Body]) -> bool:
    """Return whether a query could not be taken apart: its only body is the query itself."""
    whole = Body((External(query),), (), columns(query.schema))
    return bodies == [whole] and not isinstance(query, (Scan, Ref))


def source_nodes(body: Body) -> list[Node]:
    """Return the queries that are the sources of a body."""
    found = []
    for source in body.sources:
        assert isinstance(source, External)
        found.append(source.node)
    return found


def is_view(node: Node, view: str | None) -> bool:
    """Return whether a source is the view of this name."""
    return isinstance(node, Ref) and node.view == view


def is_possible(body: Body, goals: Goals, dictionary: Dictionary) -> bool:
    """Return whether a body could lead to a goal with other rows: no condition is false whatever the rows, and the
    constants of the body are those of a goal."""
    strict = {c for t in body.tests if isinstance(t, Call) and t.op == "=" for c in columns_of(t)}
    for test in body.tests:
        match test:
            case Lit():  # what is always true has been dropped
                return False
            case Call(op="is_null", args=(Col(index=c),)) if c in strict:
                return False
    classes, met = find_classes(body), dict[int, int]()
    for at, c in enumerate(goals.cols):
        if isinstance(expr := body.out[c], Col):
            first = met.setdefault(classes[expr.index], at)
            if not (goals.values[:, first] == goals.values[:, at]).any():
                return False
        elif isinstance(expr, Lit):
            try:
                code = encode_value(expr.value, expr.type, dictionary)
            except WhenceError:
                return False
            if not (goals.values[:, at] == code).any():
                return False
    return True
