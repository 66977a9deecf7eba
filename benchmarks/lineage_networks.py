"""The query networks of paper 001's experiments as SQL, and their generated input.

| network | operators |
|---|---|
| basic | selection (of 25 %), an average of the last `size` rows every `slide`, selection (of everything) |
| nested | the same with `depth` averages, one over the other |
| rewritten | nested, with its provenance computed by ordinary operators (below) |
| complex | the overheating network of Figure 1: two places, averages of `size`, b-sort, threshold, distinct places |

Rows have five numeric columns, 40 bytes, uniformly distributed but for the time. The last selection lets all pass, so
that no result is spared its provenance. The complex network is run twice: both places report to one stream by turns, or
each to a stream of its own, a hundred readings at a time, so that a sort with a slack of a few hundred rows can merge
them.

**Rewriting** is the paper's rival (Figure 11b, after Perm): the network is left as it is, and every average is joined
with the rewritten form of its own input. A row of the rewritten network is a result beside one input behind it; an
input that is behind it in several ways comes as often. So with windows of `size` rows a result of `depth` averages has
`size` to the power of `depth` rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

VIEW, STREAM, REWRITTEN = "result", "reading", "rewritten"


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
REWRITE = Mode("rewriting", "provenance = 'none'")
MODES = (NONE, SINGLE, ADAPTIVE, COVERING)


@dataclass(frozen=True)
class Network:
    """A stream and the query of the view over it."""

    name: str
    columns: str
    query: str
    streams: tuple[str, ...] = (STREAM,)
    rewritten: str = ""  # the views that compute its provenance by ordinary operators, the last one REWRITTEN
    rewritten_rows: float = 0.0  # of that view, for each row of the input

    def script(self, mode: Mode) -> str:
        """Everything is kept, so that all provenance can be asked for when all rows have come."""
        streams = [f"CREATE STREAM {name} ({self.columns}) WITH (retain = 'all');\n" for name in self.streams]
        view = f"CREATE VIEW {VIEW} WITH ({mode.options}, retain = 'all') AS {self.query};"
        return "".join(streams) + (self.rewritten if mode is REWRITE else view)


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
    rewritten = rewriting(size, slide, percent, depth)
    rows = percent / 100 / slide**depth * size**depth
    return Network(f"{depth} × {size} rows every {slide}, {percent} %", NUMBERS, inner, (STREAM,), rewritten, rows)


def rewriting(size: int, slide: int, percent: int, depth: int) -> str:
    """The views of `nested` with its provenance by joins: `mean1`, `mean2`, … and `from1`, `from2`, … beside them.

    A mean is known by the last input behind it, which is unique; `low` is that of the first row in its window. The time
    of an input is its number.
    """
    views = [f"CREATE VIEW mean0 AS SELECT time AS id, time, x, a, y FROM {STREAM} WHERE pick < {percent}"]
    views.append("CREATE VIEW from0 AS SELECT id, time AS source, a, x, y FROM mean0")
    width = 1
    for level in range(1, depth + 1):
        last = level == depth
        width *= size
        views.append(
            f"""CREATE VIEW mean{level} AS SELECT MIN(id) AS low, MAX(id) AS id, MIN(time) AS time, AVG(x) AS x
            FROM slide(mean{level - 1}, rows => {size}, every => {slide})"""
        )
        views.append(
            f"""CREATE VIEW {REWRITTEN if last else f"from{level}"} {"WITH (retain = 'all')" if last else ""} AS
            SELECT m.id, f.source, f.a, f.x, f.y
            FROM slide(mean{level}, rows => 1) AS m JOIN slide(from{level - 1}, rows => {width + width // size}) AS f
              ON f.id >= m.low AND f.id <= m.id"""
        )
    views.append(f"CREATE VIEW {VIEW} WITH (retain = 'all') AS SELECT time, x FROM mean{depth} WHERE x >= 0")
    return ";\n".join(views)


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


PLACES = ("reading_1", "reading_2")
CHUNK = 100
"""Readings of one place that come together, where each place has a stream of its own."""


def overheating(size: int, streams: tuple[str, ...] = (STREAM,)) -> Network:
    """The overheating network with front windows of `size` readings, from one stream or one of each place."""
    means = [
        f"""SELECT MIN(time) AS time, MIN(location) AS location, AVG(temp) AS temp
            FROM slide((SELECT time, location, temp FROM {stream} WHERE temp <= 350 AND location = {place}),
                       rows => {size}, every => 1)"""
        for place, stream in zip((1, 2), streams * (2 // len(streams)), strict=True)
    ]
    slack = 10 if len(streams) == 1 else 3 * CHUNK
    ordered = f"bsort(({means[0]} UNION ALL {means[1]}), on => time, slack => {slack})"
    hot = f"SELECT time, location FROM {ordered} AS h WHERE temp >= 90"
    query = f"""
        SELECT time, places FROM (
          SELECT window_start AS time, COUNT(DISTINCT location) AS places
          FROM slide(({hot}), on => time, width => 2, every => 1) GROUP BY window_start) AS w
        WHERE places >= 2"""
    return Network(f"overheating, averages of {size}, {len(streams)} streams", HEAT, query, streams)


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
