"""Bounds that tests of an n-way join set to a column of an input, for an ordered index to look up.

A test that compares a column, or one plus or minus a constant, with an expression of other inputs is a bound of that
column once those are known: `a.x < b.y + 10` bounds `a.x` from above and `b.y` from below. It only says which rows are
worth a look. The test itself is made on all that is found, so a bound may let through more than it must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from whence.model.types import Kind
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, columns_of, may_fail, strip_casts

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LARGEST = 2**31  # constants that are added
_WHOLE = (Kind.INTEGER, Kind.BIGINT)


class ColumnBound(NamedTuple):
    """A column of the joined row is at most (`upper`) or at least `expr` plus `more`, if a test is to hold."""

    test: int
    column: int
    upper: bool
    expr: Expr
    more: int
    others: int  # the inputs that the expression reads, as bits


def bounds_of(tests: Iterable[Expr], owner: Callable[[int], int]) -> list[ColumnBound]:
    """Return the bounds that tests set; `owner` says of which input a column is."""
    found = []
    for number, test in enumerate(tests):
        if not isinstance(test, Call) or test.op not in _TURNED or may_fail(test):
            continue
        left, right = test.args
        for side, other, op in ((left, right, test.op), (right, left, _TURNED[test.op])):
            column, added = _column(side)
            if column is None or not _is_ordered(column, other):
                continue
            others = {owner(c) for c in columns_of(other)}
            if others and owner(column.index) not in others:
                strict = op in ("<", ">") and column.type.kind is Kind.INTEGER
                upper, bits = op in ("<", "<="), sum(1 << o for o in others)
                more = -added + (0 if not strict else -1 if upper else 1)
                found.append(ColumnBound(number, column.index, upper, other, more, bits))
    return found


def _column(side: Expr) -> tuple[Col | None, int]:
    """Return the column that a side of a comparison is, and what is added to it."""
    side = strip_casts(side)
    if isinstance(side, Col):
        return side, 0
    if isinstance(side, Call) and side.op in ("+", "-") and len(side.args) == 2:
        column, added = strip_casts(side.args[0]), strip_casts(side.args[1])
        if side.op == "+" and isinstance(column, Lit):
            column, added = added, column
        # Of 32 bits: then nothing that is added takes a bound past the end of 64.
        small = isinstance(added, Lit) and isinstance(added.value, int) and abs(added.value) < _LARGEST
        if isinstance(column, Col) and column.type.kind is Kind.INTEGER and side.type.kind in _WHOLE and small:
            assert isinstance(added, Lit)
            return column, added.value if side.op == "+" else -added.value
    return None, 0


def _is_ordered(column: Col, other: Expr) -> bool:
    """Return whether the codes of both order like their values, and like each other's."""
    plain = strip_casts(other).type
    same = column.type == plain or (column.type.kind in _WHOLE and plain.kind in _WHOLE)
    return same and not column.type.needs_dictionary and not plain.needs_dictionary
