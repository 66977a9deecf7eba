"""Comparison and logic. Codes of one type compare as integers; interned ones by the dictionary's order labels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.engine.expressions.functions.common import Column, Strict
from whence.model.codes import NULL, Codes, Dictionary
from whence.model.types import Kind
from whence.plan.algebra.expressions import Call


def _ordering(test: Callable[[Codes, Codes], Codes]) -> Callable[[Call, Dictionary], Strict]:
    def build(call: Call, dictionary: Dictionary) -> Strict:
        type = call.args[0].type
        if not type.needs_dictionary:
            return lambda a, b: test(a, b).astype(np.int64)

        def by_label(a: Codes, b: Codes) -> Codes:
            both = dictionary.ranks(np.concatenate(spans(call, dictionary, [a, b])), type)
            return test(both[: len(a)], both[len(a) :]).astype(np.int64)

        return by_label

    return build


def spans(call: Call, dictionary: Dictionary, columns: list[Codes]) -> list[Codes]:
    """Return columns whose equality is that of values: intervals are equal when their spans are (30 days are a
    month)."""
    if call.args[0].type.kind is not Kind.INTERVAL:
        return columns
    width = len(columns[0])
    flat = np.concatenate(columns)
    known = flat != NULL
    distinct, at = np.unique(flat[known], return_inverse=True)
    number: dict[int, int] = {}
    first = np.array(
        [number.setdefault(v.span, int(c)) for v, c in zip(dictionary.values(distinct), distinct, strict=True)]
    )
    if len(first):
        flat[known] = first[at]
    return [flat[i * width : (i + 1) * width] for i in range(len(columns))]


def _equal(call: Call, dictionary: Dictionary) -> Strict:
    def apply(a: Codes, b: Codes) -> Codes:
        a, b = spans(call, dictionary, [a, b])
        return np.equal(a, b).astype(np.int64)

    return apply


def _unequal(call: Call, dictionary: Dictionary) -> Strict:
    equal = _equal(call, dictionary)
    return lambda a, b: 1 - equal(a, b)


def _distinct(call: Call, dictionary: Dictionary) -> Column:
    same = _not_distinct(call, dictionary)
    return lambda a, b: 1 - same(a, b)


def _not_distinct(call: Call, dictionary: Dictionary) -> Column:
    def apply(a: Codes, b: Codes) -> Codes:
        a, b = spans(call, dictionary, [a, b])
        return np.equal(a, b).astype(np.int64)

    return apply


def _not(_: Call, __: Dictionary) -> Strict:
    return lambda a: 1 - a


def _is_null(_: Call, __: Dictionary) -> Column:
    return lambda a: (a == NULL).astype(np.int64)


OPS: dict[str, Callable[[Call, Dictionary], Strict]] = {
    "=": _equal,
    "<>": _unequal,
    "<": _ordering(np.less),
    "<=": _ordering(np.less_equal),
    ">": _ordering(np.greater),
    ">=": _ordering(np.greater_equal),
    "not": _not,
}
WHOLE: dict[str, Callable[[Call, Dictionary], Column]] = {
    "is_distinct": _distinct,
    "is_not_distinct": _not_distinct,
    "is_null": _is_null,
}
