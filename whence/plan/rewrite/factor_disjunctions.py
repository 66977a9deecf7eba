"""Take conditions that stand in every branch of an OR out of it, and infer what an OR says of some columns alone.

`(k = m AND x) OR (k = m AND y)` becomes `k = m AND (x OR y)`, so that a join finds its key. AND and OR distribute over
each other in SQL's three-valued logic too, and `x OR (x AND y)` is `x`, so the value is the same for every row. A
condition that is an error for some rows stays where it is: the conditions before it in its branch may be what keeps
those rows away from it.

`implied` is for conditions whose NULL and FALSE are the same, as in WHERE, ON and HAVING: it weakens an OR to a
condition over one side of a join, which is true wherever the OR is, and which may therefore be decided there first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from whence.model.types import BOOLEAN
from whence.plan.algebra.constructors import conjunction
from whence.plan.algebra.expressions import Call, Expr, columns_of, conjuncts, may_fail
from whence.plan.algebra.logical import Join, Node, Select, bottom_up
from whence.plan.streams.model import Lookup, WindowJoin

_TURNED = {"=": "=", "<>": "<>", ">": "<", ">=": "<="}


def factor_disjunctions(node: Node) -> Node:
    """Take the common conditions of every OR in WHERE, ON and HAVING out of it."""
    return bottom_up(node, _factor_node)


def _factor_node(node: Node) -> Node:
    match node:
        case Select():
            return replace(node, predicate=factor(node.predicate))
        case Join(residual=Expr()) | Lookup(residual=Expr()) | WindowJoin(residual=Expr()):
            assert node.residual is not None
            return replace(node, residual=factor(node.residual))
    return node


def factor(expr: Expr) -> Expr:
    """Rewrite a condition as one of the same value, with what all branches of an OR share before the OR.

    >>> from whence.plan.algebra.expressions import Col
    >>> a, b, x = (Col(BOOLEAN, i) for i in range(3))
    >>> str(factor(Call(BOOLEAN, "or", (Call(BOOLEAN, "and", (a, x)), Call(BOOLEAN, "and", (b, x))))))
    '(#2 and (#0 or #1))'
    """
    match expr:
        case Call(op="and"):
            return _all([term for arg in expr.args for term in conjuncts(factor(arg))])
        case Call(op="or"):
            return _factor_or(expr)
    return expr


def _factor_or(expr: Call) -> Expr:
    branches = [conjuncts(factor(branch)) for branch in _disjuncts(expr)]
    shared = set.intersection(*({_turned(term) for term in branch} for branch in branches))
    common = [term for term in branches[0] if _turned(term) in shared and not may_fail(term)]
    if not common:
        return expr
    taken = {_turned(term) for term in common}
    rest = [[term for term in branch if _turned(term) not in taken] for branch in branches]
    if not all(rest):
        return _all(common)
    return _all([*common, _any([_all(terms) for terms in rest])])


def infer_condition(expr: Expr, allowed: Collection[int]) -> Expr | None:
    """Infer what a condition that is true says of the allowed columns alone, if it says something that cannot fail.

    >>> from whence.plan.algebra.expressions import Col
    >>> a, b, c, d = (Col(BOOLEAN, i) for i in range(4))
    >>> cases = Call(BOOLEAN, "or", (Call(BOOLEAN, "and", (a, c)), Call(BOOLEAN, "and", (b, d))))
    >>> str(infer_condition(cases, {0, 1})), infer_condition(cases, {0, 2})
    ('(#0 or #1)', None)
    """
    read = columns_of(expr)
    if read and read <= set(allowed) and not may_fail(expr):
        return expr
    match expr:
        case Call(op="and"):
            found = [part for arg in expr.args if (part := infer_condition(arg, allowed)) is not None]
            return _all(found) if found else None
        case Call(op="or"):
            parts = [part for arg in expr.args if (part := infer_condition(arg, allowed)) is not None]
            return _any(parts) if len(parts) == len(expr.args) else None
    return None


def infer_conditions(terms: Sequence[Expr], allowed: Collection[int]) -> list[Expr]:
    """Infer what the ORs among some terms, none of which reads the allowed columns alone, say of those columns."""
    found = (infer_condition(term, allowed) for term in terms if isinstance(term, Call) and term.op == "or")
    return [part for part in found if part is not None]


def _disjuncts(expr: Expr) -> list[Expr]:
    if isinstance(expr, Call) and expr.op == "or":
        return [term for arg in expr.args for term in _disjuncts(arg)]
    return [expr]


def _turned(term: Expr) -> Expr:
    """Turn a comparison round."""
    if isinstance(term, Call) and term.op in _TURNED and (term.op[0] == ">" or str(term.args[0]) > str(term.args[1])):
        return replace(term, op=_TURNED[term.op], args=term.args[::-1])
    return term


def _all(terms: Iterable[Expr]) -> Expr:
    found = conjunction(list(dict.fromkeys(terms)))
    assert found is not None
    return found


def _any(terms: Iterable[Expr]) -> Expr:
    found = tuple(dict.fromkeys(terms))
    return found[0] if len(found) == 1 else Call(BOOLEAN, "or", found)
