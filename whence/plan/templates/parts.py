"""Templates of any shape over selections that are matched in groups, and conditions that are tested afterwards."""

from __future__ import annotations

from dataclasses import replace

from whence.model.types import BOOLEAN
from whence.plan.algebra.constructors import conjunction, join, project, select
from whence.plan.algebra.expressions import Call, Col, columns_of, conjuncts
from whence.plan.algebra.logical import (
    Join,
    MatchRows,
    Node,
    Project,
    walk,
)
from whence.plan.algebra.parameter_ranges import read_comparison
from whence.plan.algebra.program import Table
from whence.plan.templates.shapes import NotGroupedError, match_rows, moved, scans, selects, take_apart


def match_parts(plan: Node, parameters: Table) -> Node | None:
    """Return a plan of any shape in which every selection of each subscription is matched in groups; None if one cannot
    be. What is above such a selection stays, and reads the parameters beside its rows, by the subscription's id."""

    def change(node: Node) -> Node:
        if isinstance(node, Project) and selects(node.input, parameters):
            return _match_part(node, node.input, parameters)
        if scans(node, parameters.name) or not node.inputs:
            return node
        if selects(node, parameters):
            raise NotGroupedError("its rows are not projected")
        return node.with_inputs([change(child) for child in node.inputs])

    try:
        found = change(plan)
    except NotGroupedError:
        return None
    return found if any(isinstance(node, MatchRows) for node in walk(found)) else None


def _match_part(node: Project, joined: Join, parameters: Table) -> Node:
    """Return a projection of the parameters joined with a query, with the pairs matched in groups: by equalities and
    ranges first, then by what else is asked of them."""
    width, types = len(parameters.schema), joined.schema.types
    terms = conjuncts(joined.residual)
    ranges = [term for term in terms if read_comparison(term, lambda column: column < width) is not None]
    rest = conjunction([term for term in terms if term not in ranges])
    read = {0}.union(*(columns_of(e) for e in node.exprs), columns_of(rest) if rest is not None else ())
    shown = [0, *sorted(c for c in read if c >= width)]
    narrow = project(replace(joined, residual=conjunction(ranges)), [Col(types[c], c) for c in shown])
    rows: Node = replace(match_rows(take_apart(narrow, parameters)), is_read=True)
    if not (joined.keys or ranges):
        raise NotGroupedError("a part of it has neither an equality nor a range")
    place = {c: at for at, c in enumerate(shown)}
    if not read <= place.keys():
        same = Call(BOOLEAN, "=", (Col(types[0], 0), Col(types[0], width)))
        rows = join(joined.left, rows, "inner", [same])
        place = {c: width + place[c] if c in place else c for c in read}
    if rest is not None:
        rows = select(rows, list(moved([rest], place)))
    return Project(node.schema, rows, moved(node.exprs, place))
