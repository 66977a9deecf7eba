"""Messages for a content-based network: what an epoch changes for ranges, whoever subscribes to them.

A server that tells **rectangles** need not know its subscribers: a message says which ranges [low, high] have a new
answer, as an inner range that they contain and an outer one whose ends they do not. A range is a point in the plane of
(low, high), and those that a message reaches are a rectangle of that plane. The law: in an epoch a range is reached by
at most one message of a MIN or MAX, with the answer at the epoch's end, and by none if that has not changed.

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


Message = RectangleMessage | RowMessage

ENDS, STRICT = ("inner_low", "inner_high", "outer_low", "outer_high"), ("strict_low", "strict_high")
KEY, VALUE, VALUES, ROW = "key:", "value:", "values:", "row:"
"""Prefixes of the columns of messages on the wire: of a key, of a MIN or MAX, of a DISTINCT, and of a row."""


def wire_row(message: Message) -> tuple[Any, ...]:
    """Return a message as a row: epoch and sign; of a rectangle its ends, strictness, key and values; or a row.

    >>> wire_row(RectangleMessage(7, 8, inner=(30, 50), outer=(20, None), key=("tea",)))
    (7, 1, 30, 50, 20, None, False, False, 'tea', 8)
    """
    if isinstance(message, RowMessage):
        return (message.epoch, message.sign, *message.row.values())
    values = message.value if isinstance(message.value, tuple) else (message.value,)
    return (message.epoch, message.sign, *message.inner, *message.outer, *message.strict, *message.key, *values)


def from_wire(columns: Sequence[str], row: Sequence[Any]) -> Message:
    """Return the message that a row is.

    >>> from_wire(["epoch", "sign", "row:x"], (7, 1, 5))
    RowMessage(epoch=7, sign=1, row={'x': 5})
    """
    if "inner_low" not in columns:
        names = [name.removeprefix(ROW) for name in columns[2:]]
        return RowMessage(row[0], row[1], dict(zip(names, row[2:], strict=True)))
    keys = 8 + sum(name.startswith(KEY) for name in columns)
    values = tuple(row[keys:])
    value = values if columns[-1].startswith(VALUES) else values[0]
    strict = (bool(row[6]), bool(row[7]))
    return RectangleMessage(row[0], value, tuple(row[2:4]), tuple(row[4:6]), tuple(row[8:keys]), row[1], strict)
