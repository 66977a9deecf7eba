"""MatchPairs: subscriptions that select pairs of rows: equal keys, ranges on both sides, perhaps a band.

Law: see `matching.py`: dL·R·P + L'·dR·P + L'·R'·dP. State, for each side: its rows in the order of their keys and
lead, and the subscriptions as boxes for its events (`hotspots.py`): ranges of this side, then the interval that groups
are made by (the other side's lead, or the band), then what else is asked of the other side. Cost: an event finds the
rows with its key next to the point of each hotspot, and goes through those subscriptions only whose boxes hold it and
reach such a row; the scattered ones are selected first. Where there is a band it is what groups are made by, and other
ranges of the other side are asked of the rows that it leaves. A new subscription reads the rows in its ranges, of the
side that has fewer of them (`late_index.py`).
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.operator import Batch, Operator
from whence.engine.core.ordered import Ordered, Rank
from whence.engine.matching.bounds import ParameterBounds
from whence.engine.matching.hotspots import Hotspots
from whence.engine.matching.kernels import pair_rows, pairs, runs
from whence.engine.matching.late_index import LateIndex
from whence.engine.matching.match_cost import PlanRouter, describe_plans
from whence.engine.matching.matching import Matching, index_of
from whence.model.codes import NULL, Codes, Dictionary
from whence.model.types import Kind, Type
from whence.model.word_marks import WordMarks
from whence.plan.algebra import logical
from whence.plan.algebra.logical import Side

_SCRATCH = 1 << 22  # lines of results that are kept to be written over


class EventSide:
    """One side of the join: its rows, and the subscriptions as its events find them."""

    def __init__(
        self, node: logical.MatchPairs, number: int, inputs: list[Operator], parameters: list[Type], words: Dictionary
    ):
        own, other = node.sides[number], node.sides[1 - number]
        self.keys = node.keys
        types = inputs[number].schema.types
        ordered = _ordered_columns(own, node.keys)
        self.rows = index_of(types, ordered, words)
        self.mode = _mode(node, inputs[0].schema.types, number)
        interval = node.band or other.lead or logical.Range(node.keys, None, None)
        ranges = (*([own.lead] if own.lead else []), *own.ranges)
        self._equal, self.tested = len(own.equal), len(own.equal) + len(ranges)
        equals = range(node.keys + 1, node.keys + 1 + len(own.equal))
        self.columns = np.array([*equals, *(one.column for one in ranges)], np.int64)
        asked: tuple[int | logical.Range, ...] = (*own.equal, *ranges, interval, *other.equal, *other.ranges)
        difference = self.tested if node.band is not None else None
        self._bounds = ParameterBounds(asked, parameters, words, difference, turned=number == 1)
        self.is_labelled = self._bounds.is_labelled
        self.subscriptions = Hotspots(len(self._bounds), len(own.equal), self.tested)
        self.router = PlanRouter(self.subscriptions, self.tested)
        first = self.columns.tolist()
        order = [*first, *(c for c in range(len(types)) if c not in first)]
        self.asked = LateIndex(self.rows, [Rank(c, types[c]) if c in ordered else Rank(c) for c in order], words)
        self._places = np.array([order.index(c) for c in range(node.keys + 1)], np.int64)  # of keys and lead
        self._found = np.empty((256, 2), np.int64)
        self._runs = np.empty((256, 2), np.int64)
        self._expanded = np.empty((256, 2), np.int64)

    def change(self, gone: Codes, come: Codes) -> None:
        """Remove and add subscriptions, given as rows of parameters."""
        if len(gone):
            lines = self.lines(gone)[0]
            self.subscriptions.take(lines)
            self.router.change(lines, -1)
        if len(come):
            lines = self.lines(come)[0]
            self.subscriptions.put(lines)
            self.router.change(lines, 1)

    def forget(self) -> None:
        """Let go of all subscriptions."""
        self.subscriptions.clear()
        self.router.clear()

    def lines(self, rows: Codes) -> tuple[Codes, Codes]:
        """Return the boxes of rows of parameters as they are stored, and which rows have one."""
        return self._bounds.lines(rows)

    def add(self, delta: Batch) -> None:
        """Add a delta to the rows."""
        self.rows.add(delta.rows, delta.ann)
        self.asked.add(delta.rows, delta.ann)

    def events(self, delta: Batch) -> tuple[Batch, Codes, Codes, Codes]:
        """Return the rows of a delta that can be in a pair: with their points, keys and leads as they are ordered."""
        ranked = self.rows.encode(delta.rows)
        known = (ranked[:, : self.keys] != NULL).all(axis=1)
        if self.mode != runs.PLAIN:
            known &= ranked[:, self.keys] != NULL
        if not known.all():
            delta, ranked = Batch(delta.rows[known], delta.ann[known]), ranked[known]
        points = np.ascontiguousarray(ranked[:, self.columns])
        return delta, points, np.ascontiguousarray(ranked[:, : self.keys]), np.ascontiguousarray(ranked[:, self.keys])

    def affected(self, other: EventSide, points: Codes, keys: Codes, leads: Codes, plans: Codes | None = None) -> Codes:
        """Return the pairs (event, entry) of events of this side and the subscriptions that they affect; valid until
        the next call. Each event is processed by its plan; what is ROUTED gets the one that is chosen."""
        spots = self.subscriptions
        if plans is None:
            plans = np.full(len(points), pairs.ROUTED, np.int64)
        if len(self._runs) < len(points):
            self._runs = np.empty((2 * len(points), 2), np.int64)
        out, n = pairs.affected(
            spots.boxes.forest.address, spots.points, points, keys, leads, plans,
            *self.router.statistics(len(other.rows), points),
            *other.rows.leaves, self.keys, self.mode, self._runs, self._found,
        )  # fmt: skip
        self.router.count(plans)
        self._found = _kept(out)
        return out[:n]

    def expand(self, other: EventSide, found: Codes, leads: Codes) -> Codes:
        """Return the rows of the other side behind pairs (event, entry) that were found last, as (place of the pair,
        line of the row).

        As with `affected`, the answer is valid until the next one."""
        boxes = self.subscriptions.boxes
        store, size, top, _ = other.rows.leaves
        out, n = pair_rows.expand(
            boxes.entries, boxes.dims, self.tested, found, self._runs, leads,
            store, size, top, self.keys, self.mode, self._expanded,
        )  # fmt: skip
        self._expanded = _kept(out)
        return out[:n]

    def count_candidates(self, boxes: Codes) -> float:
        """Estimate how many rows of this side boxes ask for."""
        return pair_rows.count_sampled(boxes, self.subscriptions.boxes.dims, self.columns, *self.rows.leaves)

    def selected(self, other: EventSide, boxes: Codes) -> tuple[Codes, Codes, Codes, Codes] | None:
        """Return the pairs that boxes select: places of boxes, rows of this side and of the other, counts of pairs."""
        if not (len(self.rows) and len(other.rows) and len(boxes)):
            return None
        index, dims = self.asked.current(), self.subscriptions.boxes.dims
        found = pair_rows.selected(
            boxes, dims, self._equal, self.tested, self._places, *index.leaves, *other.rows.leaves, self.keys, self.mode
        )
        if not len(found):
            return None
        own, counts = index.rows_at(found[:, 1])
        rows, more = other.rows.rows_at(found[:, 2])
        return found[:, 0], own, rows, counts * more


class MatchPairs(Matching):
    """Ids of subscriptions, and the pairs of rows that they select."""

    def __init__(self, inputs: list[Operator], node: logical.MatchPairs, dictionary: Dictionary):
        super().__init__(inputs, node.exprs, node.schema, dictionary)
        self._node = node
        types = list(inputs[2].schema.types)
        self.sides = [EventSide(node, number, inputs, types, dictionary) for number in range(2)]
        self.is_labelled = any(side.is_labelled for side in self.sides)

    def meet(self, deltas: list[Batch]) -> list[Batch]:
        found = []
        for number, delta in enumerate(deltas):
            if len(delta.ann):
                found.append(self._meet(number, delta))
                self.sides[number].add(delta)
        return found

    def _meet(self, number: int, delta: Batch) -> Batch:
        side, other = self.sides[number], self.sides[1 - number]
        delta, points, keys, leads = side.events(delta)
        found = side.affected(other, points, keys, leads)
        if not len(found):
            return Batch.empty(self._width)
        entries = side.subscriptions.boxes.entries
        expanded = side.expand(other, found, leads)
        at = found[expanded[:, 0]]
        rows, counts = other.rows.rows_at(expanded[:, 1])
        own, ids = delta.rows[at[:, 0]], entries[at[:, 1], -2]
        both = (own, rows) if number == 0 else (rows, own)
        return Batch(np.column_stack((ids, *both)), delta.ann[at[:, 0]] * counts)

    def change(self, gone: Codes, come: Codes) -> None:
        for side in self.sides:
            side.change(gone, come)

    def select(self, rows: Codes) -> tuple[Codes, Batch]:
        lines = [side.lines(rows) for side in self.sides]
        number = int(self.sides[1].count_candidates(lines[1][0]) < self.sides[0].count_candidates(lines[0][0]))
        boxes, at = lines[number]
        found = self.sides[number].selected(self.sides[1 - number], boxes)
        if found is None:
            return at[:0], Batch.empty(self._width)
        place, own, others, counts = found
        both = (own, others) if number == 0 else (others, own)
        return at[place], Batch(np.column_stack((boxes[place, -2], *both)), counts)

    def commit(self) -> None:
        super().commit()
        for side in self.sides:
            side.asked.commit()

    def undo(self) -> None:
        super().undo()
        for side in self.sides:
            side.asked.undo()

    def mark_words(self, marks: WordMarks) -> None:
        for side in self.sides:
            side.asked.drop()
        super().mark_words(marks)

    def forget(self) -> None:
        for side in self.sides:
            side.forget()

    def indexes(self) -> list[Ordered]:
        return [side.rows for side in self.sides]

    @property
    def state_rows(self) -> int:
        return sum(len(side.subscriptions) + len(side.rows) for side in self.sides)

    @property
    def state_bytes(self) -> int:
        return sum(side.subscriptions.nbytes + side.rows.nbytes + side.asked.nbytes for side in self.sides)

    def describe(self) -> str:
        spots = self.sides[0].subscriptions
        plans = describe_plans(self.sides[0].router.used + self.sides[1].router.used)
        events = f"; events by {plans}" if plans else ""
        return f"{self._node.describe()}; {spots.hotspots} hotspots, {spots.groups} scattered groups{events}"


def _kept(scratch: Codes) -> Codes:
    """Return an array that is used again: memory that is new costs more than what is written there."""
    return scratch if len(scratch) <= _SCRATCH else scratch[:_SCRATCH].copy()


def _ordered_columns(side: Side, keys: int) -> set[int]:
    """Return the columns of a side that are compared by order."""
    return {keys, *(one.column for one in side.ranges)}


def _mode(node: logical.MatchPairs, left: tuple[Type, ...], number: int) -> int:
    if node.band is None:
        return runs.PLAIN
    modes = (runs.RISING, runs.FALLING)
    if left[node.keys].kind is Kind.DOUBLE:
        modes = (runs.RISING_DOUBLE, runs.FALLING_DOUBLE)
    return modes[number]
