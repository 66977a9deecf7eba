"""Messages of a template: an epoch's changes as rectangles of ranges, or as rows, for a network that routes by content.

The feed follows the query of a template without its parameters, in a view of its own that nobody else sees. For a
MIN, MAX or DISTINCT over one range it has the points of that view in order (`engine/matching/range_minima.py`) and
turns each epoch's change into rectangles when it is read; for a MIN or MAX over several ranges, into contours
(`engine/matching/box_minima.py`). Subscriptions are not looked at: their number does not
matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from whence.engine.matching.box_minima import BoxMinima
from whence.engine.matching.kernels.hull import HIGHEST, LOWEST
from whence.engine.matching.range_minima import RangeMinima, Rectangles
from whence.io.rows import expand, to_tuples
from whence.model.codes import NULL, Codes
from whence.model.errors import WhenceError
from whence.model.types import BIGINT, BOOLEAN, Column, Schema
from whence.plan.algebra.logical import Join, MatchDistinct, MatchLeast, MatchTop, Node, Scan, walk
from whence.plan.templates.recognise import recognise
from whence.runtime.reading.changes import ChangeQueue
from whence.subscribe.rectangles import (
    CONTOUR_ENDS,
    ENDS,
    KEY,
    ROW,
    STRICT,
    VALUE,
    VALUES,
    ContourMessage,
    Message,
    RectangleMessage,
    RowMessage,
)

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


_Matched = MatchLeast | MatchDistinct | MatchTop
_DATED = (Column("epoch", BIGINT, nullable=False), Column("sign", BIGINT, nullable=False))


class Messages(ChangeQueue[Message]):
    """The messages of a template since this object was made (`Database.messages`). Iterating ends when it has caught
    up, and may be resumed; `close` ends the view that it follows.

    template         the name of the template
    since            the epoch that it begins after
    name             the view that it follows
    columns, schema  the names of the columns of that view; their names and types

    >>> db = whence.open(); _ = db.execute("CREATE TABLE stock (risk INT, per INT)")
    >>> _ = db.execute("CREATE TEMPLATE cheapest AS SELECT MIN(per) FROM stock WHERE risk BETWEEN :low AND :high")
    >>> with db.messages("cheapest") as messages:
    ...     _ = db.insert("stock", (40, 4))
    ...     [(m.value, m.inner, m.outer, m.reaches(30, 50)) for m in messages]
    [(4, (40, 40), (None, None), True)]
    """

    template: str
    since: int
    _drop: Callable[[], None]

    def _fill(self, node: _Matched, rows: Codes, counts: Codes) -> None:
        """Begin with the rows that there are of the data of a node."""

    def close(self) -> None:
        """End: the view that it follows is dropped.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low"); messages = db.messages("above")
        >>> messages.close(); _ = db.insert("a", (7,)); list(messages)
        []
        """
        self._drop()

    def __enter__(self) -> Messages:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RowMessages(Messages):
    """Messages of a selection, a join, or an aggregate that every row in a range changes: one per row."""

    def _decode(self, epoch: int, rows: Codes, counts: Codes) -> Iterator[Message]:
        values = to_tuples(expand(rows, np.abs(counts)), self.schema, self._dictionary)
        signs = np.repeat(np.sign(counts), np.abs(counts)).tolist()
        for sign, row in zip(signs, values, strict=True):
            yield RowMessage(epoch, sign, dict(zip(self.columns, row, strict=True)))


class RectangleMessages(Messages):
    """Messages of a MIN, MAX or DISTINCT over one range."""

    _node: MatchLeast | MatchDistinct
    _points: RangeMinima
    _shown: Schema  # of key, value, inner ends, outer ends

    def _fill(self, node: _Matched, rows: Codes, counts: Codes) -> None:
        assert not isinstance(node, MatchTop)
        self._node = node
        columns, types, equal = self.schema.columns, self.schema.types, len(node.equal)
        if isinstance(node, MatchLeast):
            self._points = RangeMinima(equal, types[equal], types[equal + 1], self._dictionary, node.greatest)
        else:
            self._points = RangeMinima(len(types) - 1, types[equal], BIGINT, self._dictionary)
        self._shown = Schema((*columns[:equal], *columns[equal + 1 :], *[columns[equal]] * 4))
        self._points.add(*self._points_of(rows, counts))
        self._points.commit()

    def _points_of(self, rows: Codes, counts: Codes) -> tuple[Codes, Codes]:
        equal, distinct = len(self._node.equal), isinstance(self._node, MatchDistinct)
        kept = (rows[:, equal : None if not distinct else equal + 1] != NULL).all(axis=1)
        rows, counts = rows[kept], counts[kept]
        if distinct:
            alike = np.zeros(len(rows), np.int64)
            rows = np.column_stack((rows[:, :equal], rows[:, equal + 1 :], rows[:, equal], alike))
        return np.ascontiguousarray(rows), counts

    def _decode(self, epoch: int, rows: Codes, counts: Codes) -> Iterator[Message]:
        found = self._points.change(*self._points_of(rows, counts))
        self._points.commit()
        equal, distinct = len(self._node.equal), isinstance(self._node, MatchDistinct)
        strict = (self._node.range.open_low, self._node.range.open_high)
        for at, row in enumerate(self._tuples(found, distinct)):
            value: Any = row[equal:-4] if distinct else row[equal]
            sign = -1 if distinct and found.values[at] == NULL else 1
            yield RectangleMessage(epoch, value, row[-4:-2], row[-2:], row[:equal], sign, strict)

    def _tuples(self, found: Rectangles, distinct: bool) -> list[tuple[Any, ...]]:
        """Rows of [key, value, inner ends, outer ends], decoded."""
        low1, high1, low2, high2 = found.bounds.T
        left = np.where(low1 == LOWEST, NULL, low1 - 1)
        right = np.where(high2 == HIGHEST, NULL, high2 + 1)
        told = [found.groups] if distinct else [found.groups, found.values]
        return to_tuples(np.column_stack([*told, high1, low2, left, right]), self._shown, self._dictionary)


class ContourMessages(Messages):
    """Messages of a MIN or MAX over several ranges."""

    _node: MatchTop
    _points: BoxMinima

    def _fill(self, node: _Matched, rows: Codes, counts: Codes) -> None:
        assert isinstance(node, MatchTop)
        self._node = node
        dims = len(node.ranges)
        greatest = node.order[0].descending
        self._points = BoxMinima(len(node.equal), dims, self.schema.types[-1], self._dictionary, greatest)
        self._points.add(*self._points_of(rows, counts))

    def _points_of(self, rows: Codes, counts: Codes) -> tuple[Codes, Codes]:
        kept = (rows[:, len(self._node.equal) :] != NULL).all(axis=1)
        return np.ascontiguousarray(rows[kept]), counts[kept]

    def _decode(self, epoch: int, rows: Codes, counts: Codes) -> Iterator[Message]:
        found = self._points.change(*self._points_of(rows, counts))
        equal, strict = len(self._node.equal), tuple((r.open_low, r.open_high) for r in self._node.ranges)
        for one in found:
            points = [(*one.group, *at, one.value) for at in (one.low, one.high, *one.outside)]
            low, high, *others = to_tuples(np.array(points, np.int64), self.schema, self._dictionary)
            inner = tuple(zip(low[equal:-1], high[equal:-1], strict=True))
            outside = tuple(point[equal:-1] for point in others)
            yield ContourMessage(epoch, low[-1], inner, outside, low[:equal], strict)


def is_ended(feed: Messages) -> bool:
    """Return whether no more will come, since what a feed follows was dropped."""
    return feed._end is not None


def reached(feed: Messages) -> int:
    """Return the last epoch that iterating over a feed tells now, if not more."""
    return feed._stable()


def wire_schema(feed: Messages) -> Schema:
    """Return the columns of the messages of a feed as rows (`wire_rows`)."""
    if isinstance(feed, ContourMessages):
        equal, columns = len(feed._node.equal), feed.schema.columns
        kinds = [None, None, BOOLEAN, BOOLEAN]  # ends have the type of their column
        ends = [
            Column(f"{prefix}{c.name}", kind or c.type)
            for c in columns[equal:-1]
            for prefix, kind in zip(CONTOUR_ENDS, kinds, strict=True)
        ]
        keys = [replace(c, name=f"{KEY}{c.name}", nullable=True) for c in columns[:equal]]
        return Schema((*_DATED, *ends, *keys, replace(columns[-1], name=f"{VALUE}{columns[-1].name}", nullable=True)))
    if not isinstance(feed, RectangleMessages):
        return Schema((*_DATED, *(replace(c, name=f"{ROW}{c.name}") for c in feed.schema.columns)))
    equal, columns = len(feed._node.equal), feed._shown.columns
    value = VALUES if isinstance(feed._node, MatchDistinct) else VALUE
    keys = [replace(c, name=f"{KEY}{c.name}", nullable=True) for c in columns[:equal]]
    values = [replace(c, name=f"{value}{c.name}", nullable=True) for c in columns[equal:-4]]
    ends = [replace(columns[-1], name=name, nullable=True) for name in ENDS]
    strict = [Column(name, BOOLEAN, nullable=False) for name in STRICT]
    return Schema((*_DATED, *ends, *strict, *keys, *values))


def follow_messages(coordinator: Coordinator, template: str) -> Messages:
    """Return a feed of the messages of a template from now on."""
    view, program = coordinator.reader.template_view(template), coordinator.program
    plan = recognise(view.query, program.tables[template], program).plan
    kind: type[Messages] = RowMessages
    data, node = None, None if plan is None else next(filter(_is_matched_by_value, walk(plan)), None)
    if node is not None:
        ends = node.data.schema.types[len(node.equal) :][: len(node.ranges) if isinstance(node, MatchTop) else 1]
        for type in ends:
            if type.needs_dictionary:
                raise WhenceError(
                    f"template {template} has a range of {type}, which has no rectangles: ask for its notifications"
                )
        kind, data = (ContourMessages if isinstance(node, MatchTop) else RectangleMessages), node.data
    if data is None:
        data = _without_parameters(view.query, template)
    definitions = coordinator.definitions
    name = definitions.create_transient_plan(data)
    with coordinator.reading():
        reader, storage = coordinator.reader, coordinator.storage
        feed = kind(name, data.schema, coordinator.dictionary, reader.stable_epoch, storage.poll)
        if node is not None:
            feed._fill(node, *reader.contents(name))
        feed.since = coordinator.epoch
        coordinator.feeds.add(feed)
    feed.template, feed._drop = template, lambda: definitions.drop_transient(name)
    return feed


def _is_matched_by_value(node: Node) -> TypeGuard[_Matched]:
    """Return whether a node is a MIN, MAX or DISTINCT, whose changes are contours or rectangles."""
    return isinstance(node, MatchLeast | MatchDistinct) or (isinstance(node, MatchTop) and node.is_value)


def _without_parameters(plan: Node, template: str) -> Node:
    """Return the query that a template's parameters are joined with."""
    for node in walk(plan):
        if (
            isinstance(node, Join)
            and node.kind == "inner"
            and isinstance(node.left, Scan)
            and node.left.table == template
        ):
            return node.right
    raise WhenceError(f"template {template} does not join its parameters with a query of its own")
