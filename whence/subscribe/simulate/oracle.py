"""What must be true in a simulation, and what is: views evaluated over the publishers' logs.

A value that is shown has a vector: which ticks of which publishers it reflects, for each place where a publisher stands
in the view's tree. The oracle cuts the publishers' logs there, evaluates the whole tree, and compares.

| law | what is checked |
|-----|-----------------|
| S1  | bounds hold for every completion (`completions`); what is final never changes; no row is below a promised time |
| S2  | a value shown at a vector is the view over exactly those ticks |
| S3  | within a history, a vector never goes back |
| S4  | no tick is reflected twice |
| S5  | nothing is told that is not synced |
| S6  | nothing is told to whom it is not allowed |
| R   | what waits at a broker is bounded |
| F1  | with loss that never heals, every position is reached or passed in bounded time |
| L1  | after healing everyone holds the final state, with everything final that can be |
| L2  | then only heartbeats are sent |
| L3  | a gap is asked for at most once per timeout |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from whence.subscribe.positions import HistoryLineage, Position
from whence.subscribe.ranges import RangeSet
from whence.subscribe.simulate.plans import Bag, PlanInputs, Row, ViewTree


class SimulationError(AssertionError):
    """A law does not hold in a run."""

    def __init__(self, law: str, what: str) -> None:
        super().__init__(f"{law}: {what}")
        self.law = law


class Cut(NamedTuple):
    """Which ticks of a publisher a value reflects; `time`: nothing more comes before it."""

    publisher: int
    history: str
    era: str
    ranges: RangeSet
    lost: RangeSet
    time: int


NOTHING = Cut(-1, "", "", RangeSet(), RangeSet(), 0)
"""That of an input that has not been heard of."""

Vector = Mapping[str, Cut | frozenset[int] | None]
"""Per place in a tree (`/0/1`) what it reflects; None where a view has not been heard of; `/0:pins` the pinned keys."""

Delta = list[tuple[Row, int]]


class EpochRecord(NamedTuple):
    """An epoch in the log of a node."""

    epoch: int
    time: int
    deltas: dict[str, Delta]
    metas: dict[str, object]
    pins: frozenset[int]
    vectors: dict[str, Vector]
    sufficient: bool


class Oracle:
    """The publishers' logs, in every era that there was."""

    def __init__(self) -> None:
        self.logs: dict[
            tuple[str, str], list[EpochRecord]
        ] = {}  # by history and era; the list of the current era grows
        self.lineages: dict[str, HistoryLineage] = {}
        self.lasts: dict[str, int] = {}
        self.promised: dict[str, list[tuple[int, int]]] = {}  # by history: times that were told, with their ticks
        self._bags: dict[tuple[str, str, RangeSet, RangeSet], Bag] = {}

    def bag_of(self, cut: Cut, relation: str, is_table: bool) -> Bag:
        """Return the rows of a publisher's relation at exactly the ticks of a cut."""
        if not cut.history:
            return Counter()
        ranges = cut.ranges.upto(cut.ranges.horizon) if is_table else cut.ranges.minus(cut.lost)
        key = (cut.history, cut.era, ranges, cut.lost)
        found = self._bags.get(key)
        if found is None:
            log, found = self.logs[cut.history, cut.era], Counter()
            for since, upto in ranges:
                if upto > len(log):
                    raise SimulationError("S5", f"tick {upto} of {relation} is reflected, and there are {len(log)}")
                for record in log[since:upto]:
                    for row, count in record.deltas.get(relation, ()):
                        found[row] += count
            found = Counter({row: count for row, count in found.items() if count})
            if len(self._bags) > 500:
                self._bags.clear()
            self._bags[key] = found
        return found

    def evaluate(self, tree: ViewTree, vector: Vector, path: str = "") -> Bag:
        """Return what a view is at a vector."""
        if path in vector and vector[path] is None:
            return Counter()
        if tree.publisher >= 0:
            cut = vector[path]
            assert isinstance(cut, Cut)
            return self.bag_of(cut, tree.name, tree.kind == "table")
        assert tree.plan is not None
        bags, horizon = [], 2**62
        for i, child in enumerate(tree.inputs):
            bags.append(self.evaluate(child, vector, f"{path}/{i}"))
            cut = vector.get(f"{path}/{i}")
            if child.kind == "stream" and isinstance(cut, Cut):
                horizon = min(horizon, cut.time)
        pins = vector.get(f"{path}:pins", frozenset())
        assert isinstance(pins, frozenset)
        return tree.plan.compute(PlanInputs(bags, horizon, pins))

    def check_value(self, tree: ViewTree, vector: Vector, shown: Bag, who: str) -> None:
        """Check S2: what is shown is the view at its vector."""
        expected = self.evaluate(tree, vector)
        if expected != shown:
            more, less = shown - expected, expected - shown
            raise SimulationError("S2", f"{who} shows {tree.name} with {dict(more)} too many, {dict(less)} missing")

    def check_onward(self, before: Vector, after: Vector, who: str) -> None:
        """Check S3: no part of a vector goes back, as long as the publisher's past is the same."""
        for path, old in before.items():
            new = after.get(path)
            if not isinstance(old, Cut) or not old.history or (new is not None and not isinstance(new, Cut)):
                continue
            if new is not None and new.history == old.history:
                promised = new.time >= old.time or new.lost != old.lost  # with a lost range its promise is lost
                if promised and all(new.ranges.covers(*one) for one in old.ranges):
                    continue
            elif new is not None and new.history:
                continue
            if self.is_past(old):
                raise SimulationError("S3", f"{who} goes back at {path} from {old} to {new}")

    def is_past(self, cut: Cut) -> bool:
        """Return whether a cut is still part of its publisher's past."""
        lineage = self.lineages[cut.history]
        return lineage.knows(Position(cut.history, cut.era, cut.ranges.last), self.lasts[cut.history])

    def promise(self, history: str, tick: int, time: int) -> None:
        """Note that somebody was told that nothing more comes before a time, as of a tick."""
        told = self.promised.setdefault(history, [])
        if not told or told[-1][1] < time:
            told.append((tick, time))

    def cut_back(self, history: str, tick: int) -> None:
        """Note that a history was cut back to a tick: promises of later ones are void."""
        self.promised[history] = [one for one in self.promised.get(history, []) if one[0] <= tick]

    def check_promises(self, history: str, time: int) -> None:
        """Check S1 of a row that is published with a time."""
        told = self.promised.get(history)
        if told and time < told[-1][1]:
            raise SimulationError("S1", f"a row comes at {time}, below {told[-1][1]}, which was promised")
