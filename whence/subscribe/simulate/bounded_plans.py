"""The transforms of a simulation as SQL, for what the compiler knows of them.

Streams whose rows are told apart by places of a small world are `a` and `b`, streams that are ordered by time `c` and
`d`, tables `f` and `g`; `e` is a stream that is joined with a table as if it were one, as the transforms do. A view
over a view is a query over its query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import whence
from whence.plan.knowledge.derive import knowledge_of
from whence.plan.knowledge.model import RelationKnowledge
from whence.subscribe.simulate.plans import BEST, BUCKET, ViewTree

PLACES = 9
"""Ticks of a world that bounds are evaluated in: all but the unknown ones are known."""

LeafKind = Literal["places", "time", "table", "joined"]


@dataclass(frozen=True)
class BoundedPlan:
    """A view as SQL, its columns among those that the transform has, how many of them name a row, and for each leaf
    of its tree how its ticks are counted. With `by_flag` the transform says itself which rows are final."""

    sql: str
    columns: slice
    key: int
    leaves: tuple[LeafKind, ...]
    by_flag: bool = False


_PLACED = f"""(t INT NOT NULL CHECK (t BETWEEN 1 AND {PLACES}), k INT NOT NULL CHECK (k BETWEEN 0 AND 3),
    v INT NOT NULL CHECK (v BETWEEN 0 AND 3)) WITH (ordered = 't strictly')"""
_TIMED = """(at BIGINT NOT NULL, k INT NOT NULL CHECK (k BETWEEN 0 AND 3), v INT NOT NULL CHECK (v BETWEEN 0 AND 3))
    WITH (ordered = 'at')"""
_TABLE = "(id INT PRIMARY KEY, a INT NOT NULL, b INT NOT NULL)"
_SCHEMA = f"""
CREATE STREAM a {_PLACED}; CREATE STREAM b {_PLACED}; CREATE STREAM c {_TIMED}; CREATE STREAM d {_TIMED};
CREATE TABLE e (k INT NOT NULL, v INT NOT NULL); CREATE TABLE f {_TABLE}; CREATE TABLE g {_TABLE};
"""
_WINDOWS = f"SELECT at // {BUCKET} AS bucket, MAX(v) AS high, COUNT(*) AS n FROM {{}} x GROUP BY at // {BUCKET}"
_BOTH = "(SELECT at, k, v FROM c UNION ALL SELECT at, k, v FROM d)"

_PLANS = {
    "group": BoundedPlan(
        "SELECT k, MAX(v) AS high, MIN(v) AS low, SUM(v) AS s, COUNT(*) AS n FROM a GROUP BY k",
        slice(0, 5),
        1,
        ("places",),
    ),
    "select": BoundedPlan("SELECT k, v FROM a WHERE v >= 1", slice(0, 2), 2, ("places",)),
    "merge": BoundedPlan("SELECT k, v FROM a UNION ALL SELECT k, v FROM b", slice(1, 3), 2, ("places", "places")),
    "negate": BoundedPlan("SELECT k FROM a EXCEPT SELECT k FROM b", slice(0, 1), 1, ("places", "places")),
    "windows": BoundedPlan(_WINDOWS.format("c"), slice(0, 3), 1, ("time",), by_flag=True),
    "windows of two": BoundedPlan(_WINDOWS.format(_BOTH), slice(0, 3), 1, ("time", "time"), by_flag=True),
    "latest": BoundedPlan(
        f"SELECT k, LAST(v ORDER BY at) AS v FROM {_BOTH} x GROUP BY k", slice(0, 2), 1, ("time", "time")
    ),
    "join": BoundedPlan("SELECT e.k, e.v, f.a FROM e JOIN f ON e.k = f.id", slice(0, 3), 3, ("joined", "table")),
    "available": BoundedPlan("SELECT id, b FROM f WHERE a > 0", slice(0, 2), 1, ("table",)),
    "best": BoundedPlan(f"SELECT id, b FROM f ORDER BY b, id LIMIT {BEST}", slice(0, 2), 1, ("table",)),
    "listed": BoundedPlan("SELECT * FROM f WHERE id IN (SELECT id FROM g)", slice(0, 3), 1, ("table", "table")),
    "listed events": BoundedPlan(
        "SELECT k, v FROM e WHERE k IN (SELECT id FROM g)", slice(4, 6), 2, ("joined", "table")
    ),
}


@cache
def bounded_plan(tree: ViewTree) -> BoundedPlan | None:
    """Return a view as SQL; None for a publisher's relation."""
    if tree.plan is None:
        return None
    if tree.plan.name not in ("copy", "total"):
        return _PLANS[tree.plan.name]
    below = bounded_plan(tree.inputs[0])
    if below is None or tree.plan.name == "copy":
        return below
    return replace(below, sql=f"SELECT COUNT(*) AS n FROM ({below.sql}) y", columns=slice(0, 1), key=0, by_flag=False)


@cache
def knowledge_of_sql(sql: str) -> RelationKnowledge:
    """Return what the compiler knows of a query."""
    with whence.open() as db:
        db.execute(f"{_SCHEMA}; CREATE VIEW shown AS {sql}")
        return knowledge_of(db._coordinator.catalog.planned, "shown")
