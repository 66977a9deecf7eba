"""Rewrite IS NOT DISTINCT FROM between the sides of a join as equalities that can be its keys.

`a IS NOT DISTINCT FROM b` holds exactly when both are NULL or neither is, and what stands in for NULL makes no
difference: `(a IS NULL) = (b IS NULL) AND coalesce(a, z) = coalesce(b, z)`, for any `z`. Columns that are never NULL
are simply equal.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from whence.model.types import BOOLEAN, Kind, Schema
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, columns_of, may_fail

_ZERO: dict[Kind, Any] = {
    Kind.BOOLEAN: False,
    Kind.INTEGER: 0,
    Kind.BIGINT: 0,
    Kind.DECIMAL: Decimal(0),
    Kind.DOUBLE: 0.0,
    Kind.TEXT: "",
    Kind.DATE: dt.date(1970, 1, 1),
    Kind.TIMESTAMP: dt.datetime(1970, 1, 1),
}


def null_safe_keys(term: Expr, left: Schema, right: Schema) -> list[Expr]:
    """Write a condition over the columns of both sides of a join as equalities, or leave it as it is."""
    if not (isinstance(term, Call) and term.op == "is_not_distinct") or may_fail(term):
        return [term]
    a, b = term.args
    width = len(left)
    if not _crosses(a, b, width) or a.type.kind is not b.type.kind or a.type.kind not in _ZERO:
        return [term]
    both = (*left.columns, *right.columns)
    if all(isinstance(e, Col) and not both[e.index].nullable for e in (a, b)):
        return [Call(BOOLEAN, "=", (a, b))]
    nulls = tuple(Call(BOOLEAN, "is_null", (e,)) for e in (a, b))
    values = tuple(Call(e.type, "coalesce", (e, Lit(e.type, _ZERO[e.type.kind]))) for e in (a, b))
    return [Call(BOOLEAN, "=", nulls), Call(BOOLEAN, "=", values)]


def _crosses(a: Expr, b: Expr, width: int) -> bool:
    sides = [{c < width for c in columns_of(e)} for e in (a, b)]
    return sides in ([{True}, {False}], [{False}, {True}])
