"""The schemes that paper 000 compares, the views it keeps with them, and what one of them costs in one place.

A scheme is a set of options of a view; a program is a script in which the options of its recursive view are left open.
All schemes but one exchange rows, as the paper's do: base rows live in the partition of their first column, a join
finds its rows by shipping them there. Our own policy, support, needs all of a recursion's rows in one place, so its
base rows are copied to every partition and the derived ones stay where they are.

| scheme | options |
|---|---|
| DRed | derive again what may have been derived through what is gone |
| relative lazy | every row carries the derivation edges behind it |
| relative eager 1 s | the same; later derivations are shipped once a second, as the paper's eager propagation does |
| absorption lazy | every row carries its minimal function of base rows; later derivations wait |
| absorption eager 1 s | the same; later derivations are shipped once a second |
| absorption eager | the same, and later derivations are shipped as they come, in every round |
| support | one derivation a row, with ranks |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.engine.recursion.fixpoint import Fixpoint, annotated_policy

DRED, RELATIVE, LAZY, EAGER, SUPPORT = "DRed", "relative lazy", "absorption lazy", "absorption eager", "support"
RELATIVE_TIMED, TIMED = "relative eager 1 s", "absorption eager 1 s"
_POINTER = 4  # bytes of a rank, a rule, a row of a derivation and its links, see engine/recursion/kernels/store.py


@dataclass(frozen=True)
class Scheme:
    """How a view is kept: its options; `where` is the one that says how it is partitioned."""

    name: str
    options: tuple[tuple[str, str], ...]
    where: str = "exchange"

    def said(self, partitions: int, **more: str) -> str:
        """The WITH clause of a view; without partitions nothing is said of them."""
        said = dict(self.options) | more | ({"partition": self.where} if partitions > 1 else {})
        listed = ", ".join(f"{name} = '{value}'" for name, value in said.items())
        return f"WITH ({listed})" if said else ""


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme(DRED, (("policy", "dred"),)),
        Scheme(RELATIVE, (("maintain", "relative"), ("propagate", "lazy"))),
        Scheme(RELATIVE_TIMED, (("maintain", "relative"), ("propagate", "1 s"))),
        Scheme(LAZY, (("maintain", "absorption"), ("propagate", "lazy"))),
        Scheme(TIMED, (("maintain", "absorption"), ("propagate", "1 s"))),
        Scheme(EAGER, (("maintain", "absorption"), ("propagate", "eager"))),
        Scheme(SUPPORT, (("policy", "support"),), where="broadcast"),
    )
}


@dataclass(frozen=True)
class Program:
    """A script with {options} in its recursive view, and the view whose rows are compared."""

    name: str
    script: str
    view: str

    def sql(self, scheme: Scheme, partitions: int, **more: str) -> str:
        return self.script.format(options=scheme.said(partitions, **more))


_LINK = "CREATE TABLE link (src INTEGER, dst INTEGER, cost INTEGER) WITH (partition_by = 'src');"

REACHABLE = Program(
    "reachable",
    _LINK
    + """
    CREATE VIEW reachable {options} AS
      SELECT src, dst FROM link
      UNION
      SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;""",
    "reachable",
)

# A step joins isTriggered with its near end only, as the paper has it.
REGION = Program(
    "region",
    """
    CREATE TABLE sensor (sensorid INTEGER PRIMARY KEY, x INTEGER, y INTEGER) WITH (partition_by = 'sensorid');
    CREATE TABLE coordSensor (regionid INTEGER, sensorid INTEGER) WITH (partition_by = 'regionid');
    CREATE TABLE isTriggered (sensorid INTEGER) WITH (partition_by = 'sensorid');
    CREATE VIEW activeRegion (regionid, sensorid) {options} AS
      SELECT M.regionid, S.sensorid FROM sensor S, coordSensor M, isTriggered T
      WHERE M.sensorid = S.sensorid AND S.sensorid = T.sensorid
      UNION
      SELECT A.regionid, S2.sensorid FROM sensor S1, sensor S2, activeRegion A, isTriggered T
      WHERE (S1.x - S2.x) * (S1.x - S2.x) + (S1.y - S2.y) * (S1.y - S2.y) < 400
        AND S1.sensorid = A.sensorid AND S1.sensorid = T.sensorid;
    CREATE VIEW regionSizes (regionid, size) AS SELECT regionid, COUNT(sensorid) FROM activeRegion GROUP BY regionid;
    CREATE VIEW largestRegion (size) AS SELECT MAX(size) FROM regionSizes;
    CREATE VIEW largestRegions (regionid) AS
      SELECT R.regionid FROM regionSizes R, largestRegion L WHERE R.size = L.size;""",
    "activeregion",
)

_COST = """
    CREATE VIEW minCost {options} AS
      SELECT src, dst, MIN(cost) AS cost FROM (
        SELECT src, dst, cost FROM link
        UNION ALL
        SELECT link.src, minCost.dst, link.cost + minCost.cost FROM link JOIN minCost ON link.dst = minCost.src
      ) AS step GROUP BY src, dst;"""
_HOPS = """
    CREATE VIEW minHops {options} AS
      SELECT src, dst, MIN(length) AS length FROM (
        SELECT src, dst, 1 AS length FROM link
        UNION ALL
        SELECT link.src, minHops.dst, minHops.length + 1 FROM link JOIN minHops ON link.dst = minHops.src
      ) AS step GROUP BY src, dst;"""
_BOTH = """
    CREATE VIEW paths AS SELECT c.src, c.dst, c.cost, h.length FROM minCost c JOIN minHops h
      ON c.src = h.src AND c.dst = h.dst;"""

MULTI = Program(
    "multi",
    _LINK
    + """
    CREATE VIEW paths {options} AS
      SELECT src, dst, MIN(cost) AS cost, MIN(length) AS length FROM (
        SELECT src, dst, cost, 1 AS length FROM link
        UNION ALL
        SELECT link.src, paths.dst, link.cost + paths.cost, paths.length + 1
        FROM link JOIN paths ON link.dst = paths.src
      ) AS step GROUP BY src, dst;""",
    "paths",
)

# As the paper prints them, with numbers for names. Only the best paths are kept, by aggregate selection.
_PATH = """
    CREATE VIEW path (src, dst, vec, length, cost) {options} AS
      SELECT src, dst, src || '.' || dst, 1, cost FROM link
      UNION
      SELECT link.src, path.dst, link.src || '.' || vec, length + 1, link.cost + path.cost
      FROM link, path WHERE link.dst = path.src;"""
_CHEAPEST_PATH = """
    CREATE VIEW minCost AS SELECT src, dst, MIN(cost) AS cost FROM path GROUP BY src, dst;
    CREATE VIEW cheapestPath AS SELECT P.src, P.dst, vec, P.cost FROM path P, minCost C
      WHERE P.src = C.src AND P.dst = C.dst AND P.cost = C.cost;"""
_SHORTEST_PATH = """
    CREATE VIEW minHops AS SELECT src, dst, MIN(length) AS length FROM path GROUP BY src, dst;
    CREATE VIEW shortestPath AS SELECT P.src, P.dst, vec, P.length FROM path P, minHops H
      WHERE P.src = H.src AND P.dst = H.dst AND P.length = H.length;"""
PATHS = Program("paths", _LINK + _PATH + _CHEAPEST_PATH + _SHORTEST_PATH, "mincost")
CHEAPEST_PATHS = Program("cheapest paths", _LINK + _PATH + _CHEAPEST_PATH, "mincost")
EACH = Program("each", _LINK + _COST + _HOPS + _BOTH, "paths")


def cost_only(longest: int) -> Program:
    """Only the cost selects rows: paths are counted without a MIN inside, none longer than `longest` links."""
    unselected = f"""
    CREATE VIEW path {{options}} AS
      SELECT src, dst, 1 AS length FROM link
      UNION
      SELECT link.src, path.dst, path.length + 1 FROM link JOIN path ON link.dst = path.src
      WHERE path.length < {longest};
    CREATE VIEW minHops AS SELECT src, dst, MIN(length) AS length FROM path GROUP BY src, dst;"""
    return Program("cost only", _LINK + _COST + unselected + _BOTH, "paths")


def annotation_bytes(operators: Iterable[Any]) -> tuple[int, int]:
    """The bytes of all annotations, each by itself, and how many rows have one.

    Rows are counted where they are kept: a row that has copies in other partitions is annotated in each. What a row
    holds back is part of its annotation. Under support an annotation is a row's rank, rule, place in lists, and for
    each row of its derivation that row and two links; under DRed nothing, of every row."""
    size, rows = 0, 0
    for fixpoint in operators:
        if (policy := annotated_policy(fixpoint)) is not None:
            formulas, kept = policy.formulas, policy.annotations
            slots = np.flatnonzero(kept.published[: kept.slots])
            slots = slots[~np.isin(fixpoint.store.describe(slots)[0], fixpoint.mailbox.externals)]
            size += int(formulas.sizes(kept.published[slots]).sum() + formulas.sizes(kept.buffered[slots]).sum())
            rows += len(slots)
        elif isinstance(fixpoint, Fixpoint):
            rows += (derived := sum(fixpoint.count(relation) for relation in fixpoint.program.outputs.values()))
            if fixpoint.policy.name == "support":
                size += derived * _POINTER * (3 + 3 * fixpoint.runner.rules.body)
    return size, rows
