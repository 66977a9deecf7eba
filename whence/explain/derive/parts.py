"""Rows with the rows they came from, and what can be done with them a column at a time.

A row of a **part** is one way in which a result row comes about: for each source, the place of the row it came from,
and a weight, the number of its copies. `Wanted` says which rows matter, by values that some columns must have.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from whence.engine.streams.replay.ragged import ranges
from whence.explain.derive.graph_builder import number_distinct
from whence.explain.graph import Ints
from whence.model.codes import Codes
from whence.model.errors import WhenceError

Wanted = tuple[tuple[tuple[int, ...], Codes], ...]  # columns, and the values they may have together
Mask = NDArray[np.bool_]
SIDEWAYS = 200_000  # rows of one side of a join that the other side is still cut down to
PAIRS = 20_000_000  # of a join that are still looked at


class PartSource(Protocol):
    """Where rows of parts come from; `places` are into its own rows."""

    name: str

    def nodes(self, places: Codes) -> Ints:
        """Return the nodes of the rows at some places."""


@dataclass
class Part:
    """Rows, and for each source the places of the rows that they came from."""

    rows: Codes
    weight: Codes
    refs: list[tuple[PartSource, Codes]]

    def take(self, at: Codes) -> Part:
        return Part(self.rows[at], self.weight[at], [(s, p[at]) for s, p in self.refs])

    def with_rows(self, rows: Codes) -> Part:
        return Part(rows, self.weight, self.refs)

    def and_also(self, source: PartSource, places: Codes) -> Part:
        return Part(self.rows, self.weight, [*self.refs, (source, places)])


def match_values(rows: Codes, values: Codes) -> Mask:
    """Test which rows are among some values."""
    if len(values) == 1:
        found: Mask = (rows == values[0]).all(axis=1)
        return found
    if not len(values) or not len(rows):
        return np.zeros(len(rows), bool)
    number, first = number_distinct(np.concatenate([values, rows]))
    known = np.zeros(len(first), bool)
    known[number[: len(values)]] = True
    return known[number[len(values) :]]


def pair_equal(left: Codes, right: Codes) -> tuple[Codes, Codes]:
    """Return the positions of all pairs of equal rows, ordered by the left."""
    number, _ = number_distinct(np.concatenate([left, right]))
    mine, other = number[: len(left)], number[len(left) :]
    order = np.argsort(other, kind="stable")
    first = np.searchsorted(other[order], mine, "left")
    count = np.searchsorted(other[order], mine, "right") - first
    if int(count.sum()) > PAIRS:
        raise WhenceError(f"a join behind these rows has more than {PAIRS:,} pairs to look at; ask about fewer rows")
    return np.repeat(np.arange(len(left)), count), order[ranges(first, count)]


def keep_wanted(parts: list[Part], wanted: Wanted) -> list[Part]:
    """Keep the parts' rows that have the values they may have."""
    inside = [match_wanted(p.rows, wanted) for p in parts]
    return [p if i.all() else p.take(np.flatnonzero(i)) for p, i in zip(parts, inside, strict=True)]


def restrict_wanted(wanted: Wanted, to: range) -> Wanted:
    """Return what is wanted of some adjacent columns, numbered from their first."""
    found = []
    for cols, values in wanted:
        inside = [i for i, c in enumerate(cols) if c in to]
        if inside:
            found.append((tuple(cols[i] - to.start for i in inside), drop_duplicates(values[:, inside])))
    return tuple(found)


def match_wanted(rows: Codes, wanted: Wanted) -> Mask:
    """Test which rows have all values that they must have."""
    found = np.ones(len(rows), bool)
    for cols, values in wanted:
        found &= match_values(rows[:, list(cols)], values)
    return found


def is_ambiguous(wanted: Wanted, keys: Collection[int]) -> bool:
    """Return whether rows with the same values in the columns `keys` may be wanted with different values in others."""
    for cols, values in wanted:
        inside = [i for i, c in enumerate(cols) if c in keys]
        if len(inside) < len(cols) and len(number_distinct(values[:, inside])[1]) < len(number_distinct(values)[1]):
            return True
    return False


def drop_duplicates(values: Codes) -> Codes:
    return values[number_distinct(values)[1]]
