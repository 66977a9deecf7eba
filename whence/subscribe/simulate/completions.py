"""What a value that is shown can still become: its bounds, against every way in which things can turn out.

The bounds are those that a subscriber is shown: knowledge that the compiler derived from SQL (`plan/knowledge`),
evaluated for a row and the ticks that its position reflects (`cells`). For every transform the knowledge of the SQL
that says the same is taken (`bounded_plans`). Then up to three ticks that are not known are put to silence or to one of
four rows, of a table to one of four changes, in every way, and the transform is computed over each.

The law (S1): every completion lies in the bounds: a row that may not go is there, its values are within theirs, and a
row that was absent and is there was one that may come.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from whence.plan.knowledge.model import RelationKnowledge
from whence.subscribe.cells import RowKnowledge, about_absent, evaluate
from whence.subscribe.horizons import KnownHorizons
from whence.subscribe.simulate.bounded_plans import PLACES, BoundedPlan, LeafKind, bounded_plan, knowledge_of_sql
from whence.subscribe.simulate.oracle import Cut, Oracle, SimulationError, Vector
from whence.subscribe.simulate.plans import BUCKET, Bag, PlanInputs, Row, ViewTree

UNKNOWN, VALUES = 3, 4
"""Ticks that are not known, and rows that each may turn out to be."""

_NAMES: dict[LeafKind, str] = {"places": "ab", "time": "cd", "table": "fg", "joined": "e"}


class CompletionCheck:
    """Checks the bounds of values that are shown."""

    def __init__(self, oracle: Oracle, seed: str) -> None:
        self._oracle, self._dice = oracle, random.Random(seed)
        self.completions = 0

    def check(self, tree: ViewTree, vector: Vector, shown: Bag, who: str) -> None:
        """Check S1 for one value, which is that of its vector."""
        plan = bounded_plan(tree)
        leaves = list(leaves_of(tree))
        cuts = [cut for path, _ in leaves if isinstance(cut := vector.get(path), Cut)]
        if plan is None or len(cuts) < len(leaves):
            return  # something has not been heard of
        bags = [
            self._oracle.bag_of(cut, leaf.name, leaf.kind == "table")
            for cut, (_, leaf) in zip(cuts, leaves, strict=True)
        ]
        unknown = self._share_out(len(leaves))
        knowledge, horizons = knowledge_of_sql(plan.sql), self._horizons(plan, cuts, unknown)
        rows = Counter(row[plan.columns] for row in shown.elements() if row[0] >= 0)
        told = {row: evaluate(knowledge, row, None, horizons) for row in rows}
        for row in shown if plan.by_flag else ():
            if told[row[plan.columns]].is_final != bool(row[3]):
                raise SimulationError("S1", f"{who} is shown {row}, of which is known {told[row[plan.columns]]}")
        by_key: dict[Row, list[tuple[Row, RowKnowledge]]] = {}
        for row, one in told.items():
            by_key.setdefault(row[: plan.key], []).append((row, one))
        for whole in self._completions(plan, cuts, bags, unknown):
            self.completions += 1
            made = _compute(tree, dict(zip((path for path, _ in leaves), whole, strict=True)), vector, "")
            final = Counter(row[plan.columns] for row in made.elements() if row[0] >= 0)
            wrong = _outside(plan, knowledge, horizons, rows, by_key, final)
            if wrong is not None:
                raise SimulationError("S1", f"{who} is shown {tree.name} with {wrong}, if there are {whole}")

    def _share_out(self, inputs: int) -> list[int]:
        """Return how many ticks of each input are not known."""
        if inputs == 1:
            return [UNKNOWN]
        first = self._dice.randrange(UNKNOWN + 1)
        return [first, UNKNOWN - first]

    def _horizons(self, plan: BoundedPlan, cuts: Sequence[Cut], unknown: Sequence[int]) -> KnownHorizons:
        """Return what bounds are evaluated with, by the numbers of the knowledge's sources."""
        bounds, ranges, used = {}, {}, Counter[LeafKind]()
        uses = {source.name: use for use, source in enumerate(knowledge_of_sql(plan.sql).sources)}
        for kind, cut, count in zip(plan.leaves, cuts, unknown, strict=True):
            use = uses.get(_NAMES[kind][used[kind] : used[kind] + 1])
            used[kind] += 1
            if use is not None and kind == "time":
                bounds[use] = (cut.time, False)
            elif use is not None and kind == "places":
                ranges[use] = [(tick, tick) for tick in self.known_places(cut, count)]
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
        self, plan: BoundedPlan, cuts: Sequence[Cut], bags: Sequence[Bag], unknown: Sequence[int]
    ) -> Iterator[Sequence[Bag]]:
        """Yield what the inputs may turn out to be, in every way."""
        ways = []
        for kind, cut, bag, count in zip(plan.leaves, cuts, bags, unknown, strict=True):
            ways.append(self._tables(bag, count) if kind == "table" else self._streams(kind, cut, bag, count))
        return iter(itertools.product(*ways))

    def _streams(self, kind: LeafKind, cut: Cut, bag: Bag, count: int) -> list[Bag]:
        """Return a stream with each choice of rows that may still come. The order of ticks makes no difference."""
        choices = itertools.combinations_with_replacement([(), *self._possible_rows(kind, cut)], count)
        return [bag + Counter(_as_ticks(cut, chosen)) for chosen in choices]

    def _possible_rows(self, kind: LeafKind, cut: Cut) -> list[Row]:
        """Return four rows that a tick may have: time, key and value. No time is below that which is promised."""
        dice = self._dice
        if kind == "time":
            return [(cut.time + later * BUCKET, dice.randrange(4), dice.randrange(4)) for later in (0, 0, 0, 1)]
        pairs = dice.sample(range(16), VALUES)
        return [(cut.time, pair // 4, pair % 4) for pair in pairs]

    def _tables(self, bag: Bag, count: int) -> list[Bag]:
        """Return a table after each sequence of changes: nothing, or a row that comes, changes or goes."""
        dice, found = self._dice, list[Bag]()
        changes: list[Row] = [(dice.randrange(4), dice.randrange(3), dice.randrange(4)) for _ in range(VALUES - 1)]
        for chosen in itertools.product([(), *changes, (dice.randrange(4),)], repeat=count):
            rows = {row[0]: row for row in bag}
            for change in chosen:
                if len(change) == 1:
                    rows.pop(change[0], None)
                elif change:
                    rows[change[0]] = change
            found.append(Counter(rows.values()))
        return found


def leaves_of(tree: ViewTree, path: str = "") -> Iterator[tuple[str, ViewTree]]:
    """Yield the publishers' relations that a view reads, with their places in its tree."""
    if tree.publisher >= 0:
        yield path, tree
    for i, child in enumerate(tree.inputs):
        yield from leaves_of(child, f"{path}/{i}")


def _compute(tree: ViewTree, bags: Mapping[str, Bag], vector: Vector, path: str) -> Bag:
    """Return a view over whole relations. Rows before a horizon are as they are; all of them are known in the end."""
    if tree.publisher >= 0:
        return bags[path]
    assert tree.plan is not None
    below = [_compute(child, bags, vector, f"{path}/{i}") for i, child in enumerate(tree.inputs)]
    pins = vector.get(f"{path}:pins", frozenset())
    assert isinstance(pins, frozenset)
    return tree.plan.compute(PlanInputs(below, 2**62, pins))


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
