"""What is there for every set of base rows that may be left: the truth that answers to questions are held against.

All subsets of a handful of base rows are walked in Gray code, one row lost or back at a time, and every row of every
view is noted. So the tables of truth come from the views themselves, and from no derivation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

import whence

Row = tuple[Any, ...]
Fact = tuple[str, Row]  # a table and a row of it


class Truth:
    """Of a program and some base rows: `present[view, row][mask]`, where bit i of a mask says base row i is left."""

    def __init__(self, sql: str, facts: Sequence[Fact], views: Iterable[str]) -> None:
        self.facts = list(dict.fromkeys(facts))
        self.db = whence.open()
        self.db.execute(sql)
        with self.db.transaction():
            for table, row in self.facts:
                self.db.insert(table, [row])
        self.full = (1 << len(self.facts)) - 1
        names = list(views)
        self.rows = {name: sorted(set(self.db[name]), key=repr) for name in names}
        size = 1 << len(self.facts)
        self.present = {(n, r): np.zeros(size, bool) for n in names for r in self.rows[n]}
        mask = self.full
        self._note(names, mask)
        for step in range(1, size):
            bit = (step & -step).bit_length() - 1
            mask ^= 1 << bit
            table, row = self.facts[bit]
            (self.db.insert if mask >> bit & 1 else self.db.delete)(table, [row])
            self._note(names, mask)
        with self.db.transaction():
            for i, (table, row) in enumerate(self.facts):
                if not mask >> i & 1:
                    self.db.insert(table, [row])

    def _note(self, names: list[str], mask: int) -> None:
        for name in names:
            for row in set(self.db[name]):
                if (name, row) in self.present:
                    self.present[name, row][mask] = True

    def bits(self, facts: Iterable[Fact]) -> int:
        """The mask of some base rows."""
        return sum(1 << self.facts.index(fact) for fact in set(facts))

    def monotone(self, view: str, row: Row) -> bool:
        """Whether losing more never brings the row back."""
        table = self.present[view, row]
        masks = np.arange(len(table))
        return all(bool(np.all(table[masks] <= table[masks | 1 << i])) for i in range(len(self.facts)))

    def witnesses(self, view: str, row: Row) -> set[int]:
        """The minimal sets of base rows that suffice."""
        table = self.present[view, row]
        enough = [int(m) for m in np.flatnonzero(table)]
        return {m for m in enough if not any(table[m & ~(1 << i)] for i in range(len(self.facts)) if m >> i & 1)}

    def critical(self, view: str, row: Row) -> int:
        """The base rows whose loss alone removes the row."""
        table = self.present[view, row]
        return sum(1 << i for i in range(len(self.facts)) if not table[self.full & ~(1 << i)])

    def resilience(self, view: str, row: Row) -> int | None:
        """The least number of base rows whose loss removes the row; None if nothing does."""
        table = self.present[view, row]
        for size in range(len(self.facts) + 1):
            for lost in combinations(range(len(self.facts)), size):
                if not table[self.full & ~sum(1 << i for i in lost)]:
                    return size
        return None

    def reliability(self, view: str, row: Row, chance: Mapping[int, float]) -> float:
        """Its probability when base row i is left with `chance[i]`, independently."""
        table = self.present[view, row]
        return sum(
            float(np.prod([chance[i] if m >> i & 1 else 1 - chance[i] for i in range(len(self.facts))]))
            for m in map(int, np.flatnonzero(table))
        )

    def banzhaf(self, view: str, row: Row, i: int) -> float:
        """Of all sets of the other base rows, the share in which base row i decides (signed, if not monotone)."""
        table = self.present[view, row].astype(int)
        without = np.array([m for m in range(len(table)) if not m >> i & 1])
        return float(np.mean(table[without | 1 << i] - table[without]))

    def shapley(self, view: str, row: Row, i: int) -> float:
        """The same over orders in which base rows come."""
        table, n = self.present[view, row].astype(int), len(self.facts)
        total = 0.0
        for m in range(len(table)):
            if not m >> i & 1:
                total += (table[m | 1 << i] - table[m]) / (n * comb(n - 1, m.bit_count()))
        return total
