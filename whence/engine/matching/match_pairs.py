"""MatchPairs: subscriptions that select pairs of rows: equal keys, ranges on both sides, perhaps a band.

Law: see `matching.py`: dL·R·P + L'·dR·P + L'·R'·dP. State, for each side: its rows in the order of their keys and
lead, and the subscriptions as boxes for its events (`hotspots.py`): ranges of this side, then the interval that groups
are made by (the other side's lead, or the band), then what else is asked of the other side. Cost: an event finds the
rows with its key next to the point of each hotspot, and goes through those subscriptions only whose boxes hold it and
reach such a row; the scattered ones are selected first. Where there is a band it is what groups are made by, and other
ranges of the other side are asked of the rows that it leaves. A new subscription reads the rows of the left in its
ranges.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.operator import Batch, Operator
from whence.engine.core.ordered import Ordered
from whence.engine.matching.bounds import LAST, ParameterBounds, SubscriptionBoxes
from whence.engine.matching.hotspots import Hotspots
from whence.engine.matching.kernels import pairs
from whence.engine.matching.matching import Matching, index_of
from whence.model.codes import NULL, Codes, Dictionary
from whence.model.types import Kind, Type
from whence.plan.algebra import logical
from whence.plan.algebra.logical import Side


class EventSide:
    """One side of the join: its rows, and the subscriptions as its events find them."""

    def __init__(
        self, node: logical.MatchPairs, number: int, inputs: list[Operator], parameters: list[Type], words: Dictionary
    ):
        own, other = node.sides[number], node.sides[1 - number]
        self.keys = node.keys
        types = inputs[number].schema.types
        self.rows = index_of(types, _ordered_columns(own, node.keys), words)
        self._falls = node.band is not None and number == 1
        self.mode = _mode(node, inputs[0].schema.types, number)
        interval = node.band or other.lead or logical.Range(node.keys, None, None)
        ranges = (*([own.lead] if own.lead else []), *own.ranges, interval)
        self.tested = len(own.equal) + len(ranges) - 1
        equals = range(node.keys + 1, node.keys + 1 + len(own.equal))
        self.columns = np.array([*equals, *(one.column for one in ranges[:-1])], np.int64)
        self.leads = len(own.equal) if own.lead else -1
        self._bounds = ParameterBounds(own.equal, ranges, parameters, words)
        self._beside = ParameterBounds(other.equal, other.ranges, parameters, words)
        self.is_labelled = self._bounds.is_labelled or self._beside.is_labelled
        self.subscriptions = Hotspots(len(self._bounds) + len(self._beside), len(own.equal), self.tested)

    def lines(self, rows: Codes) -> tuple[Codes, Codes]:
        """Return the boxes of rows of parameters as they are stored, and which rows have one."""
        found, beside = self._bounds.boxes(rows), self._beside.boxes(rows)
        if len(found.at) != len(rows) or len(beside.at) != len(rows):
            at = np.intersect1d(found.at, beside.at, assume_unique=True)
            found, beside = (_among(boxes, at) for boxes in (found, beside))
        lows, highs = found.lows, found.highs
        if self.mode != pairs.PLAIN:
            if self._falls:
                lows[:, -1], highs[:, -1] = ~highs[:, -1], ~lows[:, -1]
            np.maximum(lows[:, -1], NULL + 1, out=lows[:, -1])
            np.minimum(highs[:, -1], LAST - 1, out=highs[:, -1])
        boxes = self.subscriptions.boxes
        ends = np.column_stack((lows, beside.lows)), np.column_stack((highs, beside.highs))
        return boxes.lines(*ends, found.ids), found.at

    def events(self, delta: Batch) -> tuple[Batch, Codes, Codes, Codes]:
        """Return the rows of a delta that can be in a pair: with their points, keys and leads as they are ordered."""
        ranked = self.rows.encode(delta.rows)
        known = (ranked[:, : self.keys] != NULL).all(axis=1)
        if self.mode != pairs.PLAIN:
            known &= ranked[:, self.keys] != NULL
        if not known.all():
            delta, ranked = Batch(delta.rows[known], delta.ann[known]), ranked[known]
        points = np.ascontiguousarray(ranked[:, self.columns])
        return delta, points, np.ascontiguousarray(ranked[:, : self.keys]), np.ascontiguousarray(ranked[:, self.keys])

    def affected(self, other: EventSide, points: Codes, keys: Codes, leads: Codes, plans: Codes | None = None) -> Codes:
        """Return the pairs (event, entry) of events of this side and the subscriptions that they affect."""
        spots = self.subscriptions
        boxes = spots.boxes
        if plans is None:
            plans = np.full(len(points), pairs.HOTSPOT, np.int64)
        return pairs.affected(
            boxes.entries, boxes.alive, boxes.nodes, boxes.trees, boxes.used, boxes.dims, spots.points,
            points, keys, leads, plans, *other.rows.leaves, self.keys, self.mode,
        )  # fmt: skip

    def expand(self, other: EventSide, entries: Codes, found: Codes, keys: Codes, leads: Codes) -> Codes:
        """Return the rows of the other side behind pairs (event, entry), as (place of the pair, line of the row)."""
        return pairs.expand(
            entries, self.subscriptions.boxes.dims, self.tested, found, keys, leads,
            *other.rows.leaves, self.keys, self.mode,
        )  # fmt: skip


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
                self.sides[number].rows.add(delta.rows, delta.ann)
        return found

    def _meet(self, number: int, delta: Batch) -> Batch:
        side, other = self.sides[number], self.sides[1 - number]
        delta, points, keys, leads = side.events(delta)
        found = side.affected(other, points, keys, leads)
        if not len(found):
            return Batch.empty(self._width)
        entries = side.subscriptions.boxes.entries
        expanded = side.expand(other, entries, found, keys, leads)
        at = found[expanded[:, 0]]
        rows, counts = other.rows.rows_at(expanded[:, 1])
        own, ids = delta.rows[at[:, 0]], entries[at[:, 1], -2]
        both = (own, rows) if number == 0 else (rows, own)
        return Batch(np.column_stack((ids, *both)), delta.ann[at[:, 0]] * counts)

    def change(self, gone: Codes, come: Codes) -> None:
        for side in self.sides:
            if len(gone):
                side.subscriptions.take(side.lines(gone)[0])
            if len(come):
                side.subscriptions.put(side.lines(come)[0])

    def select(self, rows: Codes) -> tuple[Codes, Batch]:
        left, right = self.sides
        lines, at = left.lines(rows)
        dims = left.subscriptions.boxes.dims
        columns = left.columns[: left.tested]
        found = pairs.candidates(lines, dims, columns, left.leads, *left.rows.leaves, left.keys)
        own, counts = left.rows.rows_at(found[:, 1])
        batch, _, keys, leads = left.events(Batch(own, np.arange(len(own))))
        found = found[batch.ann]
        events = np.column_stack((np.arange(len(batch.ann)), found[:, 0]))
        expanded = left.expand(right, lines, events, keys, leads)
        place = expanded[:, 0]
        others, more = right.rows.rows_at(expanded[:, 1])
        ids = lines[found[place, 0], -2]
        picked = Batch(np.column_stack((ids, batch.rows[place], others)), counts[batch.ann][place] * more)
        return at[found[place, 0]], picked

    def forget(self) -> None:
        for side in self.sides:
            side.subscriptions.clear()

    def indexes(self) -> list[Ordered]:
        return [side.rows for side in self.sides]

    @property
    def state_rows(self) -> int:
        return sum(len(side.subscriptions) + len(side.rows) for side in self.sides)

    @property
    def state_bytes(self) -> int:
        return sum(side.subscriptions.nbytes + side.rows.nbytes for side in self.sides)

    def describe(self) -> str:
        spots = self.sides[0].subscriptions
        return f"{self._node.describe()}; {spots.hotspots} hotspots, {spots.groups} scattered groups"


def _among(boxes: SubscriptionBoxes, at: Codes) -> SubscriptionBoxes:
    place = np.searchsorted(boxes.at, at)
    return SubscriptionBoxes(at, boxes.lows[place], boxes.highs[place], boxes.ids[place])


def _ordered_columns(side: Side, keys: int) -> set[int]:
    """Return the columns of a side that are compared by order."""
    return {keys, *(one.column for one in side.ranges)}


def _mode(node: logical.MatchPairs, left: tuple[Type, ...], number: int) -> int:
    if node.band is None:
        return pairs.PLAIN
    modes = (pairs.RISING, pairs.FALLING)
    if left[node.keys].kind is Kind.DOUBLE:
        modes = (pairs.RISING_DOUBLE, pairs.FALLING_DOUBLE)
    return modes[number]
