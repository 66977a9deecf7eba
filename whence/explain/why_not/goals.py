"""Goals: the rows that a question is about, by the values of some columns. Any row that has them would do.

Invariant: no question adds to the dictionary. A value that the dictionary does not have gets a code of its own, from
`UNKNOWN` down, which equals itself and no code of a row. Only `GoalReader` can turn it back into the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.explain.derive.parts import Mask, Wanted
from whence.explain.derive.plan_evaluator import PlanEvaluator
from whence.explain.derive.sql_text import write_value
from whence.explain.missing import MissingRows, Row
from whence.model.codes import NULL, Codes, Dictionary, decode_value, encode_value
from whence.model.types import Schema, Type
from whence.plan.algebra.logical import Node, Scan

UNKNOWN = -(2**61)  # codes from here down, of dictionary types, are values that no row has
NAMED = 20  # goals that are named one by one


@dataclass(frozen=True)
class Goals:
    """Rows that are asked for: the values of some columns of a query, a row each."""

    cols: tuple[int, ...]
    values: Codes

    @property
    def wanted(self) -> Wanted:
        return ((self.cols, self.values),) if self.cols else ()

    def of(self, cols: tuple[int, ...]) -> Codes:
        """Return the values of some of the known columns."""
        return self.values[:, [self.cols.index(c) for c in cols]]


def is_unknown(codes: Codes) -> Mask:
    """Test which codes of a dictionary type are no values of the dictionary, nor NULL."""
    found: Mask = (codes <= UNKNOWN) & (codes != NULL)
    return found


class GoalReader:
    """Translates goals of one question between values and codes, and reads the rows among them."""

    def __init__(self, query: PlanEvaluator):
        self.query = query
        self._dictionary = query.owner.dictionary
        self._unknown: dict[int, Any] = {}  # values that no row has, by the code they have here

    def encode(self, given: Mapping[str, Any], schema: Schema) -> Goals:
        """Return the goal that has the given values, its columns in the order of the schema."""
        cols = tuple(sorted(map(schema.names.index, given)))
        codes = [self._code(given[schema.names[c]], schema.types[c]) for c in cols]
        return Goals(cols, np.array([codes], np.int64).reshape(1, len(codes)))

    def _code(self, value: Any, kind: Type) -> int:
        scratch = Dictionary()
        code = scratch.translated(encode_value(value, kind, scratch), kind, self._dictionary)
        if code is None:
            code = UNKNOWN - len(self._unknown)
            self._unknown[code] = value
        return code

    def decode(self, code: int, kind: Type) -> Any:
        """Return the value of a code of a row or a goal."""
        return self._unknown[code] if code in self._unknown else decode_value(code, kind, self._dictionary)

    def write(self, code: int, kind: Type) -> str:
        """Write the value of a code in SQL."""
        return write_value(self.decode(int(code), kind))

    def decode_rows(self, node: Node, goals: Goals) -> list[Row]:
        """Return the first goals, by the names of their columns."""
        names, types = unique_names(node.schema.names), node.schema.types
        return [
            {names[c]: self.decode(v, types[c]) for c, v in zip(goals.cols, row, strict=True)}
            for row in goals.values[:NAMED].tolist()
        ]

    def describe(self, node: Node, goals: Goals, where: str = "") -> MissingRows:
        """Name the goals of a query, without a reason yet."""
        names, rows = unique_names(node.schema.names), self.decode_rows(node, goals)
        return MissingRows(self.query.name_of(node), isinstance(node, Scan), names, rows, len(goals.values), where)

    def rows_of(self, node: Node, goals: Goals) -> Codes:
        """Return the rows of a query that are among the goals."""
        known = goals.values[~is_unknown(goals.values).any(axis=1)]
        parts = self.query.parts(node, Goals(goals.cols, known).wanted) if len(known) else []
        return np.concatenate([np.empty((0, len(node.schema)), np.int64), *(p.rows for p in parts)])


def unique_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of which no two are equal.

    >>> unique_names(("a", "b", "a"))
    ('a', 'b', 'a_2')
    """
    count = [names[: i + 1].count(n) for i, n in enumerate(names)]
    return tuple(n if c == 1 else f"{n}_{c}" for n, c in zip(names, count, strict=True))
