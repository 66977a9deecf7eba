"""Find the columns that a predicate restricts to constants, so that rows are looked up instead of scanned.

Law: every row for which the predicate is true has one of the returned keys in the returned columns. The converse need
not hold: whoever looks up by the keys evaluates the predicate over what is found.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from whence.plan.algebra.expressions import Call, Col, Expr, Lit, conjuncts

MOST = 100_000
"""Keys that one predicate may have."""


class PinnedKeys(NamedTuple):
    """Columns, and the combinations of constants that a row may have there."""

    cols: tuple[int, ...]
    values: tuple[tuple[Lit, ...], ...]


def pinned(predicate: Expr) -> PinnedKeys | None:
    """Return the keys of a predicate; None if it restricts no column to constants.

    >>> from whence.model.types import BIGINT, BOOLEAN
    >>> x, y = Col(BIGINT, 0), Call(BOOLEAN, ">", (Col(BIGINT, 1), Lit(BIGINT, 9)))
    >>> is_one = Call(BOOLEAN, "=", (x, Lit(BIGINT, 1)))
    >>> found = pinned(Call(BOOLEAN, "and", (is_one, y))); found.cols, [str(key[0]) for key in found.values]
    ((0,), ['1'])
    >>> pinned(Call(BOOLEAN, "or", (is_one, y))) is None
    True
    """
    match predicate:
        case Call(op="and"):
            return _all([found for term in conjuncts(predicate) if (found := pinned(term)) is not None])
        case Call(op="or", args=branches):
            parts = [pinned(branch) for branch in branches]
            return _any([part for part in parts if part is not None]) if None not in parts else None
        case Call(op="=" | "is_not_distinct", args=(Col() as column, Lit() as value)):
            return _one(column, (value,), predicate.op != "=")
        case Call(op="=" | "is_not_distinct", args=(Lit() as value, Col() as column)):
            return _one(column, (value,), predicate.op != "=")
        case Call(op="in", args=(Col() as column, *values)):
            constants = tuple(value for value in values if isinstance(value, Lit))
            return _one(column, constants, False) if len(constants) == len(values) else None
        case Call(op="is_null", args=(Col() as column,)):
            return _one(column, (Lit(column.type, None),), True)
        case Call(op="not", args=(Col() as column,)):
            return _one(column, (Lit(column.type, False),), False)
        case Col() as column:
            return _one(column, (Lit(column.type, True),), False)
    return None


def _one(column: Col, values: tuple[Lit, ...], null: bool) -> PinnedKeys | None:
    """Restrict one column; unless `null`, nothing equals NULL."""
    return PinnedKeys((column.index,), tuple((value,) for value in values if null or value.value is not None))


def _all(parts: list[PinnedKeys]) -> PinnedKeys | None:
    """Combine terms that must all be true; of two that restrict one column the first counts."""
    if not parts:
        return None
    found = parts[0]
    for part in parts[1:]:
        if set(part.cols) & set(found.cols) or len(found.values) * len(part.values) > MOST:
            continue
        found = PinnedKeys((*found.cols, *part.cols), tuple((*a, *b) for a, b in product(found.values, part.values)))
    return found


def _any(parts: list[PinnedKeys]) -> PinnedKeys | None:
    """Combine terms of which one must be true, by the columns that all of them restrict."""
    common = sorted(set.intersection(*(set(part.cols) for part in parts)))
    if not common or sum(len(part.values) for part in parts) > MOST:
        return None
    places = [[part.cols.index(c) for c in common] for part in parts]
    values = [tuple(key[i] for i in at) for part, at in zip(parts, places, strict=True) for key in part.values]
    return PinnedKeys(tuple(common), tuple(dict.fromkeys(values)))
