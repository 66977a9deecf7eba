"""Find external relations of a component with the same rows, so that a base row is one variable wherever it is read.

Two queries that take the same columns of one table or view, each perhaps only the rows that meet a condition on those
columns, have a row in common exactly while the same base rows are there: it may be told by one name.
"""

from __future__ import annotations

from whence.plan.algebra.expressions import Col, columns_of
from whence.plan.algebra.logical import Hold, Node, Project, Ref, Scan, Select
from whence.plan.recursion.rule_model import RuleProgram


def find_same_rows(program: RuleProgram) -> tuple[int, ...]:
    """Find for each relation the first one whose rows its rows are, or itself."""
    first: dict[object, int] = {}
    return tuple(
        first.setdefault(_origin(relation.source) or number, number)
        if relation.kind == "external" and relation.source is not None
        else number
        for number, relation in enumerate(program.relations)
    )


def _origin(node: Node) -> tuple[str, str, tuple[int, ...]] | None:
    """Find the table or view and its columns that a query takes; None if a row of it says more, or less, than that."""
    columns, tested = tuple(range(len(node.schema))), set[int]()
    while True:
        match node:
            case Scan():
                return ("table", node.table, columns) if tested <= set(columns) else None
            case Ref():
                return ("view", node.view, columns) if tested <= set(columns) else None
            case Hold():
                node = node.input
            case Select():
                tested |= columns_of(node.predicate)
                node = node.input
            case Project():
                moved: dict[int, int] = {}
                for place in {*columns, *tested}:
                    expr = node.exprs[place]
                    if not isinstance(expr, Col):
                        return None
                    moved[place] = expr.index
                columns, tested = tuple(moved[c] for c in columns), {moved[c] for c in tested}
                node = node.input
            case _:
                return None
