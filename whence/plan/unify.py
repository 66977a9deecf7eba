"""Columns of a body that must be equal, as one variable."""

from __future__ import annotations

from dataclasses import replace

from whence.model.types import BIGINT, BOOLEAN, Type
from whence.plan.conjunctive import Body
from whence.plan.expr import Call, Col, Expr, Lit
from whence.plan.native import strip


def unify(body: Body) -> tuple[dict[int, int], list[tuple[int, Lit]], list[Expr]]:
    """Variables for the body's columns, one for columns that must be equal; columns equal to constants; other tests."""
    parent = list(range(body.width))

    def root(c: int) -> int:
        while parent[c] != c:
            parent[c] = parent[parent[c]]
            c = parent[c]
        return c

    pending: list[Expr] = []
    constants: list[tuple[int, Lit]] = []
    for test in body.tests:
        if isinstance(test, Call) and test.op in ("=", "is_not_distinct"):
            a, b = strip(test.args[0]), strip(test.args[1])
            if isinstance(a, Col) and isinstance(b, Col):
                if test.op == "=":
                    pending.append(Call(BOOLEAN, "not", (Call(BOOLEAN, "is_null", (a,)),)))
                parent[root(a.index)] = root(b.index)
                continue
            for column, other in ((a, b), (b, a)):
                if not (isinstance(column, Col) and isinstance(other, Lit)) or other.value is None:
                    continue
                if all(root(c) != root(column.index) for c, _ in constants):
                    constants.append((column.index, replace(other, type=_wider(column.type, other.type))))
                    break
            else:
                pending.append(test)
        else:
            pending.append(test)
    roots = {root(c): None for c in range(body.width)}
    number = {r: i for i, r in enumerate(roots)}
    return {c: number[root(c)] for c in range(body.width)}, constants, pending


def _wider(a: Type, b: Type) -> Type:
    return BIGINT if a.is_integer and b.is_integer else b
