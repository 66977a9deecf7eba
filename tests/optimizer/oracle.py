"""Costs of plans without an and-or graph: statistics by definition, all trees, and a plain dynamic program."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from math import log2
from random import Random

import numpy as np

from whence.adapt.optimizer import JoinGraph

SCAN, BUILD, PROBE, MATCH = 10, 30, 20, 10
Change = dict[str, dict[object, object]]
Part = frozenset[str]


def fixed(value: float) -> int:
    return round(log2(value) * 2**20)


def count(log: int) -> int:
    return max(1, min(2**40, int(2.0 ** (min(log, 60 << 20) / 2**20) + 0.5))) if log > 0 else 1


class Statistics:
    """Rows, selectivities and costs of a random query, as its changes leave them."""

    def __init__(self, shape: str, size: int, random: Random) -> None:
        names = [f"r{number}" for number in range(size)]
        pairs = {
            "chain": [(n, n + 1) for n in range(size - 1)],
            "star": [(0, n) for n in range(1, size)],
            "cycle": [(n, (n + 1) % size) for n in range(size if size > 2 else 1)],
            "clique": list(combinations(range(size), 2)),
        }[shape]
        self.names, self.random = names, random
        self.rows = {name: random.choice([5, 30, 100, 1_000, 20_000]) for name in names}
        self.edges = {(names[a], names[b]): random.choice([0.5, 0.1, 0.01, 0.001]) for a, b in pairs}
        self.base = {name: fixed(rows) for name, rows in self.rows.items()}
        self.found: dict[Part, int] = {}
        self.passed: dict[Part, int] = {}
        self.local: dict[tuple[Part, Part], int] = {}
        self.scan: dict[str, int] = {}

    def graph(self) -> JoinGraph:
        return JoinGraph(self.rows, self.edges)

    def connected(self, part: Part) -> bool:
        reached, waiting = set(), [min(part)]
        while waiting:
            reached.add(name := waiting.pop())
            for a, b in self.edges:
                for here, there in ((a, b), (b, a)):
                    if here == name and there in part and there not in reached:
                        waiting.append(there)
        return reached == part

    def splits(self, part: Part) -> list[tuple[Part, Part]]:
        names = sorted(part)
        sides = [frozenset(s) for size in range(1, len(names)) for s in combinations(names, size)]
        return [(s, part - s) for s in sides if self.connected(s) and self.connected(part - s)]

    def logs(self, part: Part) -> tuple[int, int]:
        found = sum(self.base[name] for name in part)
        found += sum(fixed(selectivity) for (a, b), selectivity in self.edges.items() if a in part and b in part)
        found += sum(log for each, log in self.found.items() if each <= part)
        found += sum(log for each, log in self.passed.items() if each < part)
        return found, found + self.passed.get(part, 0)

    def join(self, left: Part, right: Part) -> int:
        given = self.local.get((left, right))
        if given is not None:
            return given
        rows = [count(self.logs(side)[1]) for side in (left, right)]
        return PROBE * rows[0] + BUILD * rows[1] + MATCH * count(self.logs(left | right)[0])

    def leaf(self, name: str) -> int:
        return self.scan.get(name, SCAN * count(self.base[name]))

    def all_trees(self) -> int:
        """Return the least cost among all trees, each of which is costed."""

        @cache
        def costs(part: Part) -> np.ndarray:
            if len(part) == 1:
                return np.array([self.leaf(min(part))], np.int64)
            trees = [np.add.outer(costs(a), costs(b)).ravel() + self.join(a, b) for a, b in self.splits(part)]
            return np.concatenate(trees)

        return int(costs(frozenset(self.names)).min())

    def program(self) -> int:
        """Return the least cost by a dynamic program over sets."""

        @cache
        def best(part: Part) -> int:
            if len(part) == 1:
                return self.leaf(min(part))
            return min(best(a) + best(b) + self.join(a, b) for a, b in self.splits(part))

        return best(frozenset(self.names))

    def change(self) -> Change:
        """Make some changes at once, up and down, and return them."""
        change: Change = {}
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            kind = self.random.choice(["rows", "passed", "selectivity", "local", "scan"])
            getattr(self, f"_{kind}")(change)
        return change

    def _part(self) -> Part:
        while True:
            part = frozenset(name for name in self.names if self.random.random() < 0.5)
            if len(part) > 1 and self.connected(part):
                return part

    def _rows(self, change: Change) -> None:
        if any(isinstance(names, tuple) for names in change.get("rows", {})):
            return
        name, rows = self.random.choice(self.names), self.random.choice([2, 10, 400, 9_000])
        change.setdefault("rows", {})[name] = rows
        self.base[name] = fixed(rows)

    def _passed(self, change: Change) -> None:
        """Only with costs: with other statistics it would depend on their order what there was before."""
        if not change.keys() & {"rows", "selectivity"}:
            part, rows = self._part(), self.random.choice([3, 50, 7_000])
            change["rows"] = {tuple(sorted(part)): rows}
            self.passed[part] = fixed(rows) - self.logs(part)[0]

    def _selectivity(self, change: Change) -> None:
        if any(isinstance(names, tuple) for names in change.get("rows", {})):
            return
        part, factor = self._part(), self.random.choice([0.1, 0.5, 1, 2, 8])
        change.setdefault("selectivity", {})[tuple(sorted(part))] = factor
        self.found[part] = fixed(factor)

    def _local(self, change: Change) -> None:
        pair = self.random.choice(self.splits(self._part()))
        cost = self.random.choice([None, 0, 100, 100_000])
        change.setdefault("local", {})[tuple(tuple(sorted(side)) for side in pair)] = cost
        self.local.pop(pair, None)
        if cost is not None:
            self.local[pair] = cost

    def _scan(self, change: Change) -> None:
        name, cost = self.random.choice(self.names), self.random.choice([None, 1, 500, 100_000])
        change.setdefault("scan", {})[name] = cost
        self.scan.pop(name, None)
        if cost is not None:
            self.scan[name] = cost
