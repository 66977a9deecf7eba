"""Choices among values: NULLIF, LEAST, GREATEST (NULLs are skipped) and IN over literals.

COALESCE and CASE are lazy and live in `evaluate.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.engine.expressions.functions.common import Column, Strict
from whence.engine.expressions.functions.compare import spans
from whence.model.codes import NULL, Codes, Dictionary
from whence.plan.algebra.expressions import Call


def _nullif(call: Call, dictionary: Dictionary) -> Column:
    def apply(a: Codes, b: Codes) -> Codes:
        x, y = spans(call, dictionary, [a.copy(), b])
        return np.where((x == y) & (a != NULL), NULL, a)

    return apply


def _extreme(greatest: bool) -> Callable[[Call, Dictionary], Column]:
    def build(call: Call, dictionary: Dictionary) -> Column:
        def apply(*columns: Codes) -> Codes:
            n = len(columns[0])
            labels = dictionary.ranks(np.concatenate(columns), call.type)
            out, best = columns[0].copy(), labels[:n].copy()
            for i, column in enumerate(columns[1:], 1):
                label = labels[i * n : (i + 1) * n]
                better = (label > best) if greatest else (label < best)
                better = (column != NULL) & (better | (out == NULL))
                out[better], best[better] = column[better], label[better]
            return out

        return apply

    return build


def _in(call: Call, dictionary: Dictionary) -> Column:
    def apply(value: Codes, *options: Codes) -> Codes:
        value, *options_ = spans(call, dictionary, [value, *options])
        hit, unknown = np.zeros(len(value), bool), np.zeros(len(value), bool)
        for option in options_:
            hit |= value == option
            unknown |= option == NULL
        out = np.where(hit, 1, np.where(unknown, NULL, 0))
        out[value == NULL] = NULL
        return out

    return apply


STRICT: dict[str, Callable[[Call, Dictionary], Strict]] = {}
WHOLE: dict[str, Callable[[Call, Dictionary], Column]] = {
    "nullif": _nullif,
    "least": _extreme(False),
    "greatest": _extreme(True),
    "in": _in,
}
