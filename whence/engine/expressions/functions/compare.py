"""Comparisons where codes do not compare as their values do: interned values by the dictionary's order labels,
intervals by their spans. `conditions.py` has all others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.engine.expressions.functions.common import Column, Strict
from whence.model.codes import NULL, Codes, Dictionary
from whence.model.types import Kind
from whence.plan.algebra.expressions import Call


def _ordering(test: Callable[[Codes, Codes], Codes]) -> Callable[[Call, Dictionary], Strict]:
    def build(call: Call, dictionary: Dictionary) -> Strict:
        def by_label(a: Codes, b: Codes) -> Codes:
            both = dictionary.ranks(np.concatenate(spans(call, dictionary, [a, b])), call.args[0].type)
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


def _equality(test: Callable[[Codes, Codes], Codes]) -> Callable[[Call, Dictionary], Column]:
    def build(call: Call, dictionary: Dictionary) -> Column:
        return lambda a, b: test(*spans(call, dictionary, [a, b])).astype(np.int64)

    return build


OPS: dict[str, Callable[[Call, Dictionary], Strict]] = {
    "=": _equality(np.equal),
    "<>": _equality(np.not_equal),
    "<": _ordering(np.less),
    "<=": _ordering(np.less_equal),
    ">": _ordering(np.greater),
    ">=": _ordering(np.greater_equal),
}
WHOLE: dict[str, Callable[[Call, Dictionary], Column]] = {
    "is_distinct": _equality(np.not_equal),
    "is_not_distinct": _equality(np.equal),
}
