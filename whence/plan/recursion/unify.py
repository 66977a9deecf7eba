"""Unify the columns of a body that must be equal: one variable each."""

from __future__ import annotations

from dataclasses import replace

from whence.model.types import BIGINT, BOOLEAN, Type
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, strip_casts
from whence.plan.recursion.conjunctive import Body


def unify(body: Body) -> tuple[dict[int, int], list[tuple[int, Lit]], list[Expr]]:
    """Variables for the body's columns, one for columns that must be equal; columns equal to constants; other tests."""
    parent = list(range(body.width))

    def root(c: int) -> int:
        while parent[c] != c:
            parent[c] = parent[parent[c]]
            c = parent[c]
        return c

    pending: list[Expr] = []
    literals: list[tuple[Col, Lit]] = []
    for test in body.tests:
        if isinstance(test, Call) and test.op in ("=", "is_not_distinct"):
            a, b = strip_casts(test.args[0]), strip_casts(test.args[1])
            if isinstance(a, Col) and isinstance(b, Col):
                if test.op == "=":
                    pending.append(Call(BOOLEAN, "not", (Call(BOOLEAN, "is_null", (a,)),)))
                parent[root(a.index)] = root(b.index)
                continue
            pair = (a, b) if isinstance(a, Col) else (b, a)
            if isinstance(pair[0], Col) and isinstance(pair[1], Lit) and pair[1].value is not None:
                literals.append((pair[0], pair[1]))
            else:
                pending.append(test)
        else:
            pending.append(test)
    constants: dict[int, tuple[int, Lit]] = {}
    for column, literal in literals:
        literal = replace(literal, type=_wider(column.type, literal.type))
        if constants.setdefault(root(column.index), (column.index, literal))[1] is not literal:
            pending.append(Call(BOOLEAN, "=", (column, literal)))  # a second constant for the same variable
    roots = {root(c): None for c in range(body.width)}
    number = {r: i for i, r in enumerate(roots)}
    return {c: number[root(c)] for c in range(body.width)}, list(constants.values()), pending


def _wider(a: Type, b: Type) -> Type:
    return BIGINT if a.is_integer and b.is_integer else b
