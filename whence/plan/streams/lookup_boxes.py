"""Conditions of a lookup that make each row of the relation a box: which rows hold a point of the stream?

The relation is the parameters of a template. Equalities and ranges of what is computed from the stream alone are
dimensions of the boxes; whatever else is asked of a pair is tested afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.plan.algebra.constructors import conjunction
from whence.plan.algebra.expressions import Expr, conjuncts, may_fail
from whence.plan.algebra.logical import Range
from whence.plan.algebra.logical.match import describe_sides
from whence.plan.algebra.parameter_ranges import Comparison, is_ordered, pair_bounds, read_comparison


@dataclass(frozen=True)
class LookupBox:
    """Dimensions of boxes. `equal` pairs columns of the stream with those of the relation; `ranges` are of `values`,
    which are over the stream's columns, and have ends in the relation's; `rest` is the residual that is left."""

    equal: tuple[tuple[int, int], ...]
    values: tuple[Expr, ...]
    ranges: tuple[Range, ...]
    rest: Expr | None

    def describe(self) -> str:
        """Say how many dimensions of which kind there are."""
        return describe_sides([b for _, b in self.equal], self.ranges)


def box_of(keys: tuple[tuple[int, int], ...], residual: Expr | None, width: int) -> LookupBox | None:
    """Return the boxes of a lookup's relation, whose columns begin at `width` in its residual; None without a range.

    >>> from whence.model.types import BOOLEAN, INTEGER
    >>> from whence.plan.algebra.expressions import Call, Col
    >>> price, low = Col(INTEGER, 0), Col(INTEGER, 3)
    >>> free = Call(BOOLEAN, "not", (Call(BOOLEAN, "is_null", (price,)),))
    >>> free = Call(BOOLEAN, "and", (Call(BOOLEAN, "is_null", (low,)), free))
    >>> found = box_of((), Call(BOOLEAN, "or", (Call(BOOLEAN, ">", (price, low)), free)), 2)
    >>> found.ranges, found.rest
    ((Range(column=0, low=1, high=None, open_low=True, open_high=False),), None)
    """
    comparisons: list[Comparison] = []
    rest: list[Expr] = []
    for test in conjuncts(residual):
        found = read_comparison(test, lambda column: column >= width)
        if found is None or may_fail(found.value) or not is_ordered(found.value.type):
            rest.append(test)
        else:
            comparisons.append(Comparison(found.value, found.op, found.parameter - width))
    if not comparisons:
        return None
    values, ranges = pair_bounds(comparisons, len(keys))
    return LookupBox(keys, tuple(values), tuple(ranges), conjunction(rest))
