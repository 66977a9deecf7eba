"""Tick time in queries: which column of a relation is the time at which its rows became known."""

from __future__ import annotations

from sqlglot import exp

from whence.plan.algebra.expressions import Col
from whence.plan.algebra.logical import Node, Project, Scan, Select
from whence.plan.algebra.program import Program
from whence.plan.streams.model import BSort, Latest, Slide

TICK_TIME = "tick_time"  # the function that stands for the time of an epoch


def is_tick_time(node: exp.Expr) -> bool:
    """Tell whether an expression is the call `tick_time()`."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == TICK_TIME and not node.expressions


def tick_column(node: Node, program: Program) -> int | None:
    """Return the column of a bound plan that is the tick time of a stream, passed on as it is; the first of several.

    Views are not looked into: of some that are declared together, only the names and types of columns are known yet."""
    match node:
        case Scan():
            table = program.tables.get(node.table)
            return None if table is None else table.tick
        case Select() | Slide() | Latest() | BSort():
            return tick_column(node.input, program)
        case Project():
            below = tick_column(node.input, program)
            if below is None:
                return None
            passed = (at for at, expr in enumerate(node.exprs) if isinstance(expr, Col) and expr.index == below)
            return next(passed, None)
    return None
