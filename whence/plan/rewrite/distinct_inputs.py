"""Make inputs of inner joins distinct where their copies cannot be seen: semi-joins of what gives no column.

DISTINCT, GROUP BY without aggregates, MIN, MAX and aggregates of DISTINCT values cannot tell a row from two copies of
it, nor can the right side of a semi or anti join, INTERSECT and EXCEPT. An input of an inner join under one of these of
which no column is read above the join only decides whether rows of the others have a partner. With each of its keys
once, a row has at most one partner for a key, and a change of the input that leaves a key there changes nothing. An
input whose columns are known to be a key is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from whence.plan.algebra.arrival import has_at
from whence.plan.algebra.constructors import at_most_one_row, distinct
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, columns_of
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    Lateral,
    Node,
    Project,
    Ref,
    Scan,
    Select,
    SetOp,
    Union,
    walk,
)
from whence.plan.algebra.program import Program
from whence.plan.streams.model import Stream

_DEEPEST = 16  # views through which keys are followed


def distinct_inputs(node: Node, program: Program | None = None) -> Node:
    """Make inputs distinct whose copies nothing above can see; `program` knows the keys of tables."""
    return _Rewrite(program or Program()).visit(node, False, set(range(len(node.schema))))


class _Rewrite:
    def __init__(self, program: Program) -> None:
        self.program = program

    def visit(self, node: Node, unseen: bool, read: set[int]) -> Node:
        """Rewrite a plan; `unseen` says that nothing can tell copies of its rows, `read` which columns are read, not
        counting conditions."""
        match node:
            case Project():
                below = self.visit(node.input, unseen, set().union(*(columns_of(node.exprs[c]) for c in read)))
                return node.with_inputs([below])
            case Select():
                return node.with_inputs([self.visit(node.input, unseen, read)])
            case Join():
                return self._join(node, unseen, read)
            case Aggregate():
                blind = all(agg.function in ("min", "max") or agg.distinct for agg in node.aggs)
                return node.with_inputs([self._all(node.input, blind)])
            case Distinct():
                return node.with_inputs([self._all(node.input, True)])
            case SetOp():
                return node.with_inputs([self._all(i, not node.all) for i in node.inputs])
            case Union() | Lateral():
                return node.with_inputs([self._all(i, unseen) for i in node.inputs])
        inputs = [self._all(i, False) for i in node.inputs]
        return node.with_inputs(inputs) if inputs else node

    def _all(self, node: Node, unseen: bool) -> Node:
        return self.visit(node, unseen, set(range(len(node.schema))))

    def _join(self, node: Join, unseen: bool, read: set[int]) -> Node:
        width = len(node.left.schema)
        left, right = {c for c in read if c < width}, {c - width for c in read if c >= width}
        if node.kind in ("semi", "anti", "mark"):
            return node.with_inputs([self._all(node.left, unseen), self._all(node.right, True)])
        if node.kind != "inner" or not unseen:
            return node.with_inputs([self._all(node.left, unseen), self._all(node.right, unseen)])
        return node.with_inputs([self._side(node.left, left), self._side(node.right, right)])

    def _side(self, node: Node, read: set[int]) -> Node:
        """Rewrite an input of a join whose copies are unseen, of which these columns are read above the join."""
        inner = node
        while isinstance(inner, (Project, Select)):
            inner = inner.input
        if isinstance(inner, Join) and inner.kind == "inner":
            return self.visit(node, True, read)
        below = self._all(node, True)
        if read or self._is_unique(node, frozenset(range(len(node.schema)))) or self._streams(node):
            return below
        return distinct(below)

    def _streams(self, node: Node) -> bool:
        """Return whether a plan reads a stream as a relation: not all of its rows can be had again."""
        views = self.program.views
        return any(
            isinstance(n, Stream)
            or has_at(n.schema)
            or (isinstance(n, Ref) and n.view in views and has_at(views[n.view].schema))
            for n in walk(node)
        )

    def _recurses(self, view: str) -> bool:
        """Return whether a view reads itself."""
        seen, waiting = set[str](), [view]
        while waiting:
            found = self.program.views.get(waiting.pop())
            names = {n.view for n in walk(found.query) if isinstance(n, Ref)} if found is not None else set()
            if view in names:
                return True
            waiting += names - seen
            seen |= names
        return False

    def _is_unique(self, node: Node, cols: frozenset[int], depth: int = 0) -> bool:
        """Return whether no two rows of a plan agree in these columns."""
        match node:
            case Scan():
                table = self.program.tables.get(node.table)
                return table is not None and bool(table.key) and cols.issuperset(table.key)
            case Ref():
                view = self.program.views.get(node.view)
                if view is None or depth > _DEEPEST:
                    return False
                if len(cols) == len(node.schema) and self._recurses(node.view):
                    return True  # a recursive view is a set
                return self._is_unique(view.query, cols, depth + 1)
            case Project():
                return self._is_unique(node.input, _determined([node.exprs[c] for c in cols]), depth)
            case Select():
                return self._is_unique(node.input, cols, depth)
            case Distinct():
                return len(cols) == len(node.schema) or self._is_unique(node.input, cols, depth)
            case Aggregate():
                return cols.issuperset(range(len(node.keys)))
            case Join(kind="semi" | "anti" | "mark"):
                return self._is_unique(node.left, cols - {len(node.left.schema)}, depth)
        return at_most_one_row(node)


def _determined(exprs: Iterable[Expr]) -> frozenset[int]:
    """Return the columns whose values follow from those of expressions: of themselves, or of the two that a comparison
    of NULLs makes of one (`null_safe_keys`)."""
    whole, null, filled = set[int](), set[int](), set[int]()
    for expr in exprs:
        match expr:
            case Col():
                whole.add(expr.index)
            case Call(op="is_null", args=(Col() as column,)):
                null.add(column.index)
            case Call(op="coalesce", args=(Col() as column, Lit())):
                filled.add(column.index)
    return frozenset(whole | (null & filled))
