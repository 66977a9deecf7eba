"""Random SELECTs over the relations of a simulation: filters, joins, negation, aggregates, best-k, windows.

Publishers have streams `(t, k, v)`, ordered by `t`, and tables `(id, k, v)` with the primary key `id`. Keys and values
are few, so that they meet. A view says by which columns its rows are told apart, if it groups.

No stream is joined with a table, and no window goes by rows: what those are depends on the order of arrival, which
DuckDB cannot say (`tests/sources/test_ordered.py` has them).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

STREAM = "CREATE STREAM {} (t INT NOT NULL, k INT NOT NULL CHECK (k >= 0), v INT NOT NULL CHECK (v >= 0))"
STREAM += " WITH (ordered = 't')"
TABLE = "CREATE TABLE {} (id INT PRIMARY KEY, k INT NOT NULL, v INT NOT NULL)"


@dataclass(frozen=True)
class BaseRelation:
    """A publisher's relation."""

    name: str
    is_stream: bool

    @property
    def definition(self) -> str:
        return (STREAM if self.is_stream else TABLE).format(self.name)


@dataclass(frozen=True)
class RandomView:
    """A view, and the kind of its shape."""

    name: str
    kind: str
    sql: str
    reads: tuple[str, ...]

    @property
    def definition(self) -> str:
        return f"CREATE VIEW {self.name} AS {self.sql}"


def random_view(dice: random.Random, name: str, streams: list[str], tables: list[str]) -> RandomView:
    """Return a random view over relations, some of each kind or none."""
    kinds = [kind for kind, (some, more) in _NEEDS.items() if len(streams) >= some and len(tables) >= more]
    kind = dice.choice(kinds)
    some, more = _NEEDS[kind]
    reads = dice.sample(streams, some) + dice.sample(tables, more)
    low, most = dice.randrange(3), dice.choice([1, 2, 3])
    sql = _SHAPES[kind].format(*reads, low=low, most=most, width=dice.choice([2, 5]))
    return RandomView(name, kind, sql, tuple(reads))


_NEEDS = {
    "select": (1, 0), "group": (1, 0), "merge": (2, 0), "negate": (2, 0), "except": (2, 0), "buckets": (1, 0),
    "buckets of two": (2, 0), "distinct": (1, 0), "having": (1, 0),
    "filter": (0, 1), "totals": (0, 1), "best": (0, 1), "dearest": (0, 1), "join": (0, 2), "listed": (0, 2),
    "not listed": (0, 2), "full": (0, 2), "best listed": (0, 2), "left": (0, 2),
}  # fmt: skip
"""How many streams and tables each shape reads."""

_SHAPES = {
    "select": "SELECT k, v FROM {0} WHERE v >= {low}",
    "group": "SELECT k, MAX(v) AS high, MIN(v) AS low, SUM(v) AS total, COUNT(*) AS n FROM {0} GROUP BY k",
    "merge": "SELECT k, v FROM {0} UNION ALL SELECT k, v FROM {1}",
    "negate": "SELECT k FROM (SELECT DISTINCT k FROM {0}) x "
    "WHERE NOT EXISTS (SELECT 1 FROM (SELECT DISTINCT k FROM {1} WHERE v >= {low}) y WHERE y.k = x.k)",
    "except": "SELECT k FROM {0} EXCEPT SELECT k FROM {1}",
    "buckets": "SELECT t // {width} AS bucket, MAX(v) AS high, COUNT(*) AS n FROM {0} GROUP BY t // {width}",
    "buckets of two": "SELECT t // {width} AS bucket, SUM(v) AS total, COUNT(*) AS n "
    "FROM (SELECT t, v FROM {0} UNION ALL SELECT t, v FROM {1}) x GROUP BY t // {width}",
    "distinct": "SELECT DISTINCT v FROM {0} WHERE k >= {low}",
    "having": "SELECT k, COUNT(*) AS n FROM {0} GROUP BY k HAVING SUM(v) > {low}",
    "filter": "SELECT id, v FROM {0} WHERE k >= {low}",
    "totals": "SELECT k, SUM(v) AS total, COUNT(*) AS n FROM {0} GROUP BY k",
    "best": "SELECT id, v FROM {0} ORDER BY v, id LIMIT {most}",
    "dearest": "SELECT id, v FROM {0} WHERE k >= {low} ORDER BY v DESC, id LIMIT {most}",
    "join": "SELECT x.id, x.v, y.v AS other FROM {0} x JOIN {1} y ON x.k = y.id",
    "listed": "SELECT id, v FROM {0} WHERE k IN (SELECT id FROM {1} WHERE v >= {low})",
    "not listed": "SELECT id, v FROM {0} WHERE id NOT IN (SELECT k FROM {1})",
    "full": "SELECT x.id, x.v FROM {0} x JOIN {1} y ON x.id = y.id WHERE x.k > y.k",
    "best listed": "SELECT x.id, x.v FROM {0} x WHERE x.id NOT IN (SELECT id FROM {1}) ORDER BY x.v, x.id LIMIT {most}",
    "left": "SELECT x.id, x.v, y.v AS other FROM {0} x LEFT JOIN {1} y ON x.id = y.id WHERE x.k >= {low}",
}

KINDS = tuple(_SHAPES)
"""The shapes of views."""
