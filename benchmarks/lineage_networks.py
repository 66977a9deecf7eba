"""The query networks of paper 001's experiments as SQL, and their generated input.

| network | operators |
|---|---|
| basic | selection (of 25 %), an average of the last `size` rows every `slide`, selection (of everything) |
| nested | the same with `depth` averages, one over the other |
| complex | the overheating network of Figure 1: two places, averages of `size`, b-sort, threshold, distinct places |

Rows have five numeric columns, 40 bytes, uniformly distributed but for the time. The last selection lets all pass, so
that no result is spared its provenance. Both places of the complex network report to one stream by turns: as two
streams they would come in batches, one place after the other, and all of a batch would be late for a sort with little
slack.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

VIEW, STREAM = "result", "reading"


@dataclass(frozen=True)
class Mode:
    """How a network is instrumented; `options` of its last view."""

    name: str
    options: str

    @property
    def traced(self) -> bool:
        return "'none'" not in self.options


NONE = Mode("no provenance", "provenance = 'none'")
SINGLE = Mode("lineage, ids", "provenance = 'lineage', encoding = 'ids'")
ADAPTIVE = Mode("lineage, adaptive", "provenance = 'lineage', encoding = 'adaptive'")
COVERING = Mode("covering", "provenance = 'covering'")
MODES = (NONE, SINGLE, ADAPTIVE, COVERING)


@dataclass(frozen=True)
class Network:
    """A stream and the query of the view over it."""

    name: str
    columns: str
    query: str

    def script(self, mode: Mode) -> str:
        """Everything is kept, so that all provenance can be asked for when all rows have come."""
        return f"""
            CREATE STREAM {STREAM} ({self.columns}) WITH (retain = 'all');
            CREATE VIEW {VIEW} WITH ({mode.options}, retain = 'all') AS {self.query};
        """


NUMBERS = "time BIGINT NOT NULL, pick BIGINT NOT NULL, a BIGINT NOT NULL, x DOUBLE NOT NULL, y DOUBLE NOT NULL"


def nested(size: int, slide: int = 1, percent: int = 25, depth: int = 1) -> Network:
    """Averages over averages; `depth` 1 is the basic network.

    >>> nested(10, 2).query.rpartition(", rows")[2]
    ' => 10, every => 2)) AS w1 WHERE x >= 0'
    """
    inner = f"SELECT time, x FROM {STREAM} WHERE pick < {percent}"
    for level in range(1, depth + 1):
        inner = f"SELECT MIN(time) AS time, AVG(x) AS x FROM slide(({inner}), rows => {size}, every => {slide})"
        if level == depth:
            inner = f"SELECT time, x FROM ({inner}) AS w{level} WHERE x >= 0"
    return Network(f"{depth} × {size} rows every {slide}, {percent} %", NUMBERS, inner)


def numbers(count: int, seed: int = 0) -> pa.Table:
    """Rows for `nested`."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "time": np.arange(count),
            "pick": rng.integers(0, 100, count),
            "a": rng.integers(0, 1 << 40, count),
            "x": rng.random(count),
            "y": rng.random(count),
        }
    )


HEAT = "time BIGINT NOT NULL, location BIGINT NOT NULL, temp DOUBLE NOT NULL, x DOUBLE NOT NULL, y DOUBLE NOT NULL"


def overheating(size: int) -> Network:
    """The overheating network with front windows of `size` readings."""
    means = [
        f"""SELECT MIN(time) AS time, MIN(location) AS location, AVG(temp) AS temp
            FROM slide((SELECT time, location, temp FROM {STREAM} WHERE temp <= 350 AND location = {place}),
                       rows => {size}, every => 1)"""
        for place in (1, 2)
    ]
    ordered = f"bsort(({means[0]} UNION ALL {means[1]}), on => time, slack => 10)"
    hot = f"SELECT time, location FROM {ordered} AS h WHERE temp >= 90"
    query = f"""
        SELECT time, places FROM (
          SELECT window_start AS time, COUNT(DISTINCT location) AS places
          FROM slide(({hot}), on => time, width => 2, every => 1) GROUP BY window_start) AS w
        WHERE places >= 2"""
    return Network(f"overheating, averages of {size}", HEAT, query)


def heat(count: int, seed: int = 0) -> pa.Table:
    """Rows for `overheating`: both places by turns, a temperature between 40 and 160, one in a hundred an outlier."""
    rng = np.random.default_rng(seed)
    temp = rng.uniform(40.0, 160.0, count)
    temp[rng.random(count) < 0.01] = 399.0
    return pa.table(
        {
            "time": np.arange(count) // 2,
            "location": np.arange(count) % 2 + 1,
            "temp": temp,
            "x": rng.random(count),
            "y": rng.random(count),
        }
    )
