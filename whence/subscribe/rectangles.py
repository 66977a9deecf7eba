"""Messages for a content-based network: what an epoch changes for ranges, whoever subscribes to them.

A server that tells **rectangles** need not know its subscribers: a message says which ranges [low, high] have a new
answer, as an inner range that they contain and an outer one whose ends they do not. A range is a point in the plane of
(low, high), and those that a message reaches are a rectangle of that plane. The law: in an epoch a range is reached by
at most one message of a MIN or MAX, with the answer at the epoch's end, and by none if that has not changed.

Over several ranges the subscriptions that an update reaches are no rectangle. A **contour** says which contain an inner
box and none of some points: the paper's MAR2d.

Other queries are told row by row: a broker asks of each row whether it passes the conditions of a subscription.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RectangleMessage:
    """A new answer of all ranges that contain `inner` and neither end of `outer`.

    epoch   the number of the epoch
    value   the new MIN or MAX, None for an empty range; of a DISTINCT, a tuple of values that comes or goes
    inner   the two ends of the inner range
    outer   the two ends of the outer range; None where it has no end
    key     the values of the columns that parameters equal
    sign    -1 for a value of a DISTINCT that goes; else 1
    strict  whether the ends of ranges are not part of them, low and high

    >>> message = whence.RectangleMessage(7, 8, inner=(30, 50), outer=(20, 70))
    >>> message.reaches(25, 60), message.reaches(35, 60), message.reaches(25, None)
    (True, False, False)
    """

    epoch: int
    value: Any
    inner: tuple[Any, Any]
    outer: tuple[Any, Any]
    key: tuple[Any, ...] = ()
    sign: int = 1
    strict: tuple[bool, bool] = (False, False)

    def reaches(self, low: Any, high: Any, key: tuple[Any, ...] = ()) -> bool:
        """Return whether a range has the new answer; None is no bound."""

        def holds(end: Any, is_low: bool) -> bool:
            bound, strict = (low, self.strict[0]) if is_low else (high, self.strict[1])
            if bound is None or bound == end:
                return bound is None or not strict
            return bool(bound < end) == is_low

        left, right = self.outer
        return (
            key == self.key
            and holds(self.inner[0], True)
            and holds(self.inner[1], False)
            and not (left is not None and holds(left, True))
            and not (right is not None and holds(right, False))
        )


@dataclass(frozen=True, slots=True)
class ContourMessage:
    """A new MIN or MAX of all boxes that contain `inner` and none of the points `outside`.

    epoch    the number of the epoch
    value    the new MIN or MAX, None for an empty box
    inner    the two ends of the inner box in each dimension
    outside  points, each with a value per dimension
    key      the values of the columns that parameters equal
    strict   for each dimension whether its ends are not part of ranges, low and high

    >>> message = whence.ContourMessage(7, 8, inner=((3, 5), (1, 1)), outside=((2, 1), (4, 9)))
    >>> message.reaches((3, 9), (0, 5)), message.reaches((2, 9), (0, 5)), message.reaches((3, None), (0, None))
    (True, False, False)
    """

    epoch: int
    value: Any
    inner: tuple[tuple[Any, Any], ...]
    outside: tuple[tuple[Any, ...], ...]
    key: tuple[Any, ...] = ()
    strict: tuple[tuple[bool, bool], ...] = ()

    def reaches(self, *ranges: tuple[Any, Any], key: tuple[Any, ...] = ()) -> bool:
        """Return whether a box, given by its range in each dimension, has the new answer; None is no bound."""
        strict = self.strict or ((False, False),) * len(ranges)

        def holds(point: tuple[Any, ...]) -> bool:
            return all(map(_holds, ranges, point, strict))

        low, high = zip(*self.inner, strict=True)
        return key == self.key and holds(low) and holds(high) and not any(map(holds, self.outside))


def _holds(range: tuple[Any, Any], value: Any, strict: tuple[bool, bool]) -> bool:
    low, high = range
    above = low is None or low < value or (low == value and not strict[0])
    return above and (high is None or value < high or (high == value and not strict[1]))


@dataclass(frozen=True, slots=True)
class RowMessage:
    """A row of the query without its parameters that came or went; brokers evaluate the conditions on it.

    epoch  the number of the epoch
    sign   1 for a row that came, -1 for one that went
    row    its columns by name

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
    >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
    >>> with db.messages("above") as messages:
    ...     _ = db.insert("a", (7,)); list(messages)
    [RowMessage(epoch=1, sign=1, row={'x': 7})]
    """

    epoch: int
    sign: int
    row: dict[str, Any]


Message = RectangleMessage | ContourMessage | RowMessage

ENDS, STRICT = ("inner_low", "inner_high", "outer_low", "outer_high"), ("strict_low", "strict_high")
KEY, VALUE, VALUES, ROW, DIMENSION = "key:", "value:", "values:", "row:", "inner_low:"
"""Prefixes of the columns of messages on the wire: of a key, of a MIN or MAX, of a DISTINCT, of a row, and of a
dimension of a contour."""
CONTOUR_ENDS = (DIMENSION, "inner_high:", "strict_low:", "strict_high:")


def wire_rows(message: Message) -> list[tuple[Any, ...]]:
    """Return a message as rows: epoch and sign; of a rectangle its ends, strictness, key and values; or a row. A
    contour is a row like a rectangle, with ends in each dimension, and one with sign 0 for each point outside.

    >>> wire_rows(RectangleMessage(7, 8, inner=(30, 50), outer=(20, None), key=("tea",)))
    [(7, 1, 30, 50, 20, None, False, False, 'tea', 8)]
    >>> wire_rows(ContourMessage(7, 8, ((3, 5), (1, 1)), ((2, 1),), strict=((False, False), (False, True))))
    [(7, 1, 3, 5, False, False, 1, 1, False, True, 8), (7, 0, 2, None, False, False, 1, None, False, True, None)]
    """
    if isinstance(message, RowMessage):
        return [(message.epoch, message.sign, *message.row.values())]
    if isinstance(message, ContourMessage):
        first = [end for ends, strict in zip(message.inner, message.strict, strict=True) for end in (*ends, *strict)]
        rows = [(message.epoch, 1, *first, *message.key, message.value)]
        for point in message.outside:
            ends = [end for x, strict in zip(point, message.strict, strict=True) for end in (x, None, *strict)]
            rows.append((message.epoch, 0, *ends, *message.key, None))
        return rows
    values = message.value if isinstance(message.value, tuple) else (message.value,)
    return [(message.epoch, message.sign, *message.inner, *message.outer, *message.strict, *message.key, *values)]


def from_wire(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Message]:
    """Return the messages that rows are.

    >>> from_wire(["epoch", "sign", "row:x"], [(7, 1, 5)])
    [RowMessage(epoch=7, sign=1, row={'x': 5})]
    """
    keys = sum(name.startswith(KEY) for name in columns)
    if columns[2].startswith(DIMENSION):
        return _contours(rows, keys)
    if columns[2] != "inner_low":
        names = [name.removeprefix(ROW) for name in columns[2:]]
        return [RowMessage(row[0], row[1], dict(zip(names, row[2:], strict=True))) for row in rows]
    found: list[Message] = []
    for row in rows:
        values = tuple(row[8 + keys :])
        value = values if columns[-1].startswith(VALUES) else values[0]
        strict = (bool(row[6]), bool(row[7]))
        ends = tuple(row[2:4]), tuple(row[4:6])
        found.append(RectangleMessage(row[0], value, *ends, tuple(row[8 : 8 + keys]), row[1], strict))
    return found


def _contours(rows: Sequence[Sequence[Any]], keys: int) -> list[Message]:
    found: list[Message] = []
    outside: list[tuple[Any, ...]] = []
    for row in reversed(rows):  # the points outside of a contour come after it
        ends = row[2 : len(row) - keys - 1]
        if row[1] == 0:
            outside.append(tuple(ends[::4]))
            continue
        inner = tuple(zip(ends[::4], ends[1::4], strict=True))
        strict = tuple((bool(a), bool(b)) for a, b in zip(ends[2::4], ends[3::4], strict=True))
        key = tuple(row[len(row) - keys - 1 : -1])
        found.append(ContourMessage(row[0], row[-1], inner, tuple(reversed(outside)), key, strict))
        outside = []
    return found[::-1]
