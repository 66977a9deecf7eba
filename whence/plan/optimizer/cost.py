"""What operators cost: integers per row, or costs that are given alternative by alternative.

A cost model is a table of rates: a constant, and so much per row of the left and right input, per row found, and per
row and bit of its count for a sort. Costs are integers throughout, so a sum is the same in any order, and the best
plan's cost is found again by equality (rule R10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from whence.model.codes import Codes
from whence.model.errors import DataError
from whence.plan.algebra.work_costs import WorkCosts
from whence.plan.optimizer.physical import (
    HASH,
    HASH_AGGREGATE,
    INDEX_SCAN,
    NESTED_LOOP,
    PIPE_HASH,
    SCAN,
    SORT,
    SORT_AGGREGATE,
    SORT_MERGE,
)

Names = str | Sequence[str]


@dataclass(frozen=True)
class CostModel:
    """Rates in hundredths of a nanosecond, or any other unit, per row."""

    scan: int = 10
    build: int = 30
    probe: int = 20
    match: int = 10
    merge: int = 8
    sort: int = 4
    lookup: int = 35
    group: int = 25

    @classmethod
    def of_work(cls, costs: WorkCosts) -> CostModel:
        """Return the rates of a machine whose work was measured, in hundredths of a nanosecond.

        >>> CostModel.of_work(WorkCosts(probe=14_000, match=10_500)).probe
        1400
        """
        return cls(
            scan=costs.match // 10,
            build=costs.upkeep // 10,
            probe=costs.probe // 10,
            match=costs.match // 10,
            merge=(costs.match + costs.test) // 10,
            sort=costs.test // 10,
            lookup=costs.seek // 10,
            group=costs.keep // 10,
        )

    def rates(self, operator: str) -> tuple[int, int, int, int, int]:
        """Return a constant, and rates per left row, right row, row found, and sorted row and bit."""
        table = {
            HASH.name: (0, self.probe, self.build, self.match, 0),
            PIPE_HASH.name: (0, self.probe + self.build, self.probe + self.build, self.match, 0),
            SORT_MERGE.name: (0, self.merge, self.merge, self.match, 0),
            NESTED_LOOP.name: (0, 0, self.lookup, self.match, 0),
            SCAN: (0, self.scan, 0, 0, 0),
            INDEX_SCAN: (1, 0, 0, 0, 0),
            SORT: (0, 0, 0, 0, self.sort),
            HASH_AGGREGATE: (0, self.group, 0, self.match, 0),
            SORT_AGGREGATE: (0, self.merge, 0, self.match, 0),
        }
        if operator not in table:
            raise DataError(f'the cost model has no operator "{operator}"')
        return table[operator]


@dataclass(frozen=True)
class GivenCosts:
    """Costs of a textbook: of scans by relation, and of joins by their pairs, in either order if only one is given."""

    scan: Mapping[str, int] = field(default_factory=dict)
    local: Mapping[tuple[Names, Names], int] = field(default_factory=dict)


Costs = CostModel | GivenCosts


def rate_table(costs: Costs, operators: Sequence[str]) -> Codes:
    """Return the rates of some operators, by their numbers; those of costs that are given are 0."""
    zero = (0, 0, 0, 0, 0)
    rows = [costs.rates(name) if isinstance(costs, CostModel) else zero for name in operators]
    return np.array(rows or [zero], np.int64)
