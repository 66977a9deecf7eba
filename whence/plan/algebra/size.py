"""Measure how deep and how large a plan is: most of what is done with plans and expressions follows them recursively.

A plan may hold one object many times (a CTE that is read twice), and whoever walks it meets that object as often. So
sizes are those of the tree that is walked, but they are found by looking at each object once, and without recursion.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical import Node


class PlanSize(NamedTuple):
    """The longest way down, and the number of nodes and expressions."""

    depth: int
    nodes: int


def size_of(plan: Node | Expr) -> PlanSize:
    """Measure a plan or an expression.

    >>> from whence.plan.algebra.expressions import Call, Lit
    >>> from whence.model.types import BIGINT
    >>> expr = Lit(BIGINT, 1)
    >>> for _ in range(60):
    ...     expr = Call(BIGINT, "+", (expr, expr))
    >>> size_of(expr).depth, size_of(expr).nodes == 2**61 - 1
    (61, True)
    """
    found: dict[int, PlanSize] = {}
    waiting: list[Node | Expr] = [plan]
    while waiting:
        at = waiting[-1]
        if id(at) in found:
            waiting.pop()
            continue
        parts = _parts(at)
        missing = [p for p in parts if id(p) not in found]
        if missing:
            waiting.extend(missing)
            continue
        sizes = [found[id(p)] for p in parts]
        depth = 1 + max((s.depth for s in sizes), default=0)
        found[id(at)] = PlanSize(depth, 1 + sum(s.nodes for s in sizes))
        waiting.pop()
    return found[id(plan)]


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.name not in ("schema", "type", "rows"))


def _parts(at: Node | Expr) -> list[Node | Expr]:
    """Return what stands directly in a node or an expression; these objects live as long as it does."""
    out: list[Node | Expr] = []
    waiting: list[Any] = [getattr(at, name) for name in _fields(type(at))]  # type: ignore[arg-type]  # a class is hashable
    while waiting:
        value = waiting.pop()
        if isinstance(value, (Node, Expr)):
            out.append(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], (Node, Expr, tuple)):
            waiting.extend(value)
    return out
