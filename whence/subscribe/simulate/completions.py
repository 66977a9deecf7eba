"""What a value that is shown can still become: its bounds, against every way in which things can turn out.

The bounds are those that a subscriber is shown: knowledge that the compiler derived from SQL (`plan/knowledge`),
evaluated for a row and the ticks that its position reflects (`cells`). For the transforms over streams that SQL can say
the knowledge of that SQL is taken. Then up to three ticks that are not known are put to silence or to one of four rows,
in every way, and the transform is computed over each.

The law (S1): every completion lies in the bounds: a row that may not go is there, its values are within theirs, and a
row that was absent and is there was one that may come.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import whence
from whence.plan.knowledge.derive import knowledge_of
from whence.plan.knowledge.model import RelationKnowledge
from whence.subscribe.cells import RowKnowledge, about_absent, evaluate
from whence.subscribe.horizons import KnownHorizons
from whence.subscribe.simulate.oracle import Cut, Oracle, SimulationError, Vector
from whence.subscribe.simulate.plans import BUCKET, Bag, PlanInputs, Row, ViewTree

UNKNOWN, VALUES = 3, 4
"""Ticks that are not known, and rows that each may turn out to be."""

PLACES = 9
"""Ticks of a world that bounds are evaluated in: all but the unknown ones are known."""


@dataclass(frozen=True)
class BoundedPlan:
    """A transform as SQL over the streams `a` and `b`, or over `c` and `d`, which are ordered by time; its columns
    among those that the transform has, and how many of them name a row."""

    sql: str
    columns: slice
    key: int
    by_time: bool = False


_STREAMS = f"""
CREATE STREAM a (t INT NOT NULL CHECK (t BETWEEN 1 AND {PLACES}), k INT NOT NULL CHECK (k BETWEEN 0 AND 3),
    v INT NOT NULL CHECK (v BETWEEN 0 AND 3)) WITH (ordered = 't strictly');
CREATE STREAM b (t INT NOT NULL CHECK (t BETWEEN 1 AND {PLACES}), k INT NOT NULL CHECK (k BETWEEN 0 AND 3),
    v INT NOT NULL CHECK (v BETWEEN 0 AND 3)) WITH (ordered = 't strictly');
CREATE STREAM c (at BIGINT NOT NULL, v INT NOT NULL CHECK (v BETWEEN 0 AND 3)) WITH (ordered = 'at');
CREATE STREAM d (at BIGINT NOT NULL, v INT NOT NULL CHECK (v BETWEEN 0 AND 3)) WITH (ordered = 'at');
"""
_WINDOWS = f"SELECT at // {BUCKET} AS bucket, MAX(v) AS high, COUNT(*) AS n FROM {{}} x GROUP BY at // {BUCKET}"

BOUNDED = {
    "group": BoundedPlan(
        "SELECT k, MAX(v) AS high, MIN(v) AS low, SUM(v) AS s, COUNT(*) AS n FROM a GROUP BY k", slice(0, 5), 1
    ),
    "select": BoundedPlan("SELECT k, v FROM a WHERE v >= 1", slice(0, 2), 2),
    "merge": BoundedPlan("SELECT k, v FROM a UNION ALL SELECT k, v FROM b", slice(1, 3), 2),
    "negate": BoundedPlan("SELECT k FROM a EXCEPT SELECT k FROM b", slice(0, 1), 1),
    "windows": BoundedPlan(_WINDOWS.format("c"), slice(0, 3), 1, by_time=True),
    "windows of two": BoundedPlan(
        _WINDOWS.format("(SELECT at, v FROM c UNION ALL SELECT at, v FROM d)"), slice(0, 3), 1, by_time=True
    ),
}
"""The transforms whose bounds are checked."""


@cache
def knowledge_of_plan(name: str) -> RelationKnowledge:
    """Return what the compiler knows of a transform."""
    with whence.open() as db:
        db.execute(f"{_STREAMS}; CREATE VIEW shown AS {BOUNDED[name].sql}")
        return knowledge_of(db._coordinator.catalog.planned, "shown")


class CompletionCheck:
    """Checks the bounds of values that are shown."""

    def __init__(self, oracle: Oracle, seed: str) -> None:
        self._oracle, self._dice = oracle, random.Random(seed)
        self.completions = 0

    def check(self, tree: ViewTree, vector: Vector, shown: Bag, who: str) -> None:
        """Check S1 for one value, which is that of its vector."""
        assert tree.plan is not None
        plan, name = BOUNDED[tree.plan.name], tree.plan.name
        cuts = [vector[f"/{i}"] for i in range(len(tree.inputs))]
        known = [cut for cut in cuts if isinstance(cut, Cut)]
        bags = [self._oracle.bag_of(cut, below.name, False) for cut, below in zip(known, tree.inputs, strict=True)]
        unknown = self._share_out(len(known))
        knowledge, horizons = knowledge_of_plan(name), self._horizons(name, known, unknown)
        rows = Counter(row[plan.columns] for row in shown.elements())
        told = {row: evaluate(knowledge, row, None, horizons) for row in rows}
        if plan.by_time:
            for row in shown:
                if told[row[plan.columns]].is_final != bool(row[3]):
                    raise SimulationError("S1", f"{who} is shown {row}, of which is known {told[row[plan.columns]]}")
        by_key: dict[Row, list[tuple[Row, RowKnowledge]]] = {}
        for row, one in told.items():
            by_key.setdefault(row[: plan.key], []).append((row, one))
        horizon = min((cut.time for cut in known), default=0)
        for more in self._completions(plan, known, unknown):
            self.completions += 1
            whole = [bag + Counter(new) for bag, new in zip(bags, more, strict=True)]
            final = Counter(row[plan.columns] for row in tree.plan.compute(PlanInputs(whole, horizon)).elements())
            wrong = _outside(plan, knowledge, horizons, rows, by_key, final)
            if wrong is not None:
                raise SimulationError("S1", f"{who} is shown {name} with {wrong}, if there come {more}")

    def _share_out(self, inputs: int) -> list[int]:
        """Return how many ticks of each input are not known."""
        if inputs == 1:
            return [UNKNOWN]
        first = self._dice.randrange(UNKNOWN + 1)
        return [first, UNKNOWN - first]

    def _horizons(self, name: str, cuts: Sequence[Cut], unknown: Sequence[int]) -> KnownHorizons:
        """Return what bounds are evaluated with, by the numbers of the knowledge's sources."""
        by_time = BOUNDED[name].by_time
        bounds, ranges = {}, {}
        for use, source in enumerate(knowledge_of_plan(name).sources):
            if source.name not in ("c", "d") if by_time else source.name not in ("a", "b"):
                continue
            place = ("cd" if by_time else "ab").index(source.name)
            if by_time:
                bounds[use] = (cuts[place].time, False)
            else:
                ranges[use] = [(tick, tick) for tick in self.known_places(cuts[place], unknown[place])]
        return KnownHorizons(bounds, None, ranges)

    def known_places(self, cut: Cut, unknown: int) -> list[int]:
        """Return which places of a small world are known. First the gaps of what is reflected are unknown, each behind
        something that is known, then what comes after the last tick."""
        gaps = [tick for since, upto in self.gaps_of(cut) for tick in range(since + 1, upto + 1)][:unknown]
        places: list[bool] = []
        for i, tick in enumerate(gaps):
            places += [False] if i and tick == gaps[i - 1] + 1 else [True, False]
        places += [True, *[False] * (unknown - len(gaps))]
        places = [True] * (PLACES - len(places)) + places
        return [place for place, is_known in enumerate(places, 1) if is_known]

    def gaps_of(self, cut: Cut) -> list[tuple[int, int]]:
        """Return the ticks that a value does not reflect, although it reflects later ones."""
        return cut.ranges.minus(cut.lost).gaps()

    def _completions(
        self, plan: BoundedPlan, cuts: Sequence[Cut], unknown: Sequence[int]
    ) -> Iterator[Sequence[Mapping[Row, int]]]:
        """Yield the rows that may still come of each input, in every way. The order of ticks makes no difference."""
        ways = []
        for cut, count in zip(cuts, unknown, strict=True):
            choices = itertools.combinations_with_replacement([(), *self._possible_rows(plan, cut)], count)
            ways.append([_as_ticks(cut, chosen) for chosen in choices])
        return iter(itertools.product(*ways))

    def _possible_rows(self, plan: BoundedPlan, cut: Cut) -> list[Row]:
        """Return four rows that a tick may have: time, key and value. No time is below that which is promised."""
        dice = self._dice
        if plan.by_time:
            return [(cut.time + later * BUCKET, 0, dice.randrange(4)) for later in (0, 0, 0, 1)]
        pairs = dice.sample(range(16), VALUES)
        return [(cut.time, pair // 4, pair % 4) for pair in pairs]


def _as_ticks(cut: Cut, rows: Sequence[Row]) -> dict[Row, int]:
    """Return rows of a publisher's stream, each in a tick of its own; an empty one is silence."""
    return {(row[0], cut.publisher, 1_000_000 + tick, 0, *row[1:]): 1 for tick, row in enumerate(rows) if row}


def _outside(
    plan: BoundedPlan,
    knowledge: RelationKnowledge,
    horizons: KnownHorizons,
    rows: Bag,
    by_key: Mapping[Row, Sequence[tuple[Row, RowKnowledge]]],
    final: Bag,
) -> str | None:
    """Return what of a completion is not within bounds."""
    ends: dict[Row, list[Row]] = {}
    for row in final:
        ends.setdefault(row[: plan.key], []).append(row)
    for key, shown in by_key.items():
        for row, told in shown:
            found = ends.get(key, [])
            if not found or (plan.key == len(row) and final[row] < rows[row]):
                if not told.may_go:
                    return f"{row}, which stays, and it goes"
            elif not all(bounds.allows(value) for bounds, value in zip(told.bounds, found[0], strict=True)):
                return f"{row} within {told.bounds}, and it becomes {found[0]}"
    for key in ends.keys() - by_key.keys():
        if about_absent(knowledge, dict(enumerate(key)), horizons) == "finally absent":
            return f"{key} finally absent, and it comes"
    return None
