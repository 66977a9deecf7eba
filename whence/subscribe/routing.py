"""Routing of rectangle messages: by which of its links a broker passes a message on.

A broker knows of each link the ranges that are subscribed to behind it, as points in the plane of (low, high), in
packed trees (`engine/matching/boxes.py`). The law: a message goes out by a link exactly when it reaches some range
behind it (`RectangleMessage.reaches`). So a message gets to every broker that has a subscriber for it, and no link
carries one that nobody behind it needs. The database is not known here: only the types of what messages have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from whence.engine.matching.boxes import Boxes
from whence.model.codes import Codes, Dictionary, encode_value
from whence.model.errors import DataError
from whence.model.types import Type
from whence.subscribe.rectangles import RectangleMessage

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
Subscribed = tuple[Any, ...]
"""A range that is subscribed to: low, high (None is no bound), and the key, if there are any."""


class RoutingTable:
    """The ranges behind each link of a broker, whose ends are of one type; `keys` are the types of a message's key, and
    `strict` says which ends of ranges are not part of them, as messages do.

    >>> from whence.model.types import BIGINT
    >>> table = RoutingTable(BIGINT)
    >>> table.subscribe(1, [(25, 60)]); table.subscribe(2, [(35, 60), (10, None)])
    >>> table.links(RectangleMessage(7, 8, inner=(30, 50), outer=(20, 70)))
    [1]
    >>> table.links(RectangleMessage(8, 9, inner=(30, 50), outer=(None, None)))
    [1, 2]
    >>> table.unsubscribe(1, [(25, 60)]); table.links(RectangleMessage(7, 8, inner=(30, 50), outer=(20, 70)))
    []
    """

    def __init__(self, type: Type, keys: Sequence[Type] = (), strict: tuple[bool, bool] = (False, False)) -> None:
        if type.needs_dictionary:
            raise DataError(f"ranges of {type} have no rectangles")
        self._type, self._keys, self._strict, self._dictionary = type, tuple(keys), strict, Dictionary()
        self._ranges = Boxes(len(self._keys) + 2, len(self._keys))

    def subscribe(self, link: int, ranges: Iterable[Subscribed]) -> None:
        """Add ranges behind a link."""
        self._ranges.put(self._lines(link, ranges))

    def unsubscribe(self, link: int, ranges: Iterable[Subscribed]) -> None:
        """Remove ranges that are behind a link."""
        self._ranges.take(self._lines(link, ranges))

    def links(self, message: RectangleMessage) -> list[int]:
        """Return the links that a message goes out by."""
        if message.strict != self._strict:
            raise DataError(f"the ends of ranges are strict {self._strict} here, and {message.strict} in a message")
        key = self._key(message.key)
        left, right = message.outer
        lows = [*key, _LOWEST if left is None else self._code(left) + 1, self._code(message.inner[1])]
        highs = [*key, self._code(message.inner[0]), _HIGHEST if right is None else self._code(right) - 1]
        _, links = self._ranges.find(np.array([lows], np.int64), np.array([highs], np.int64))
        return sorted(set(links.tolist()))

    def _lines(self, link: int, ranges: Iterable[Subscribed]) -> Codes:
        points = [[*self._key(key), *self._ends(low, high)] for low, high, *key in ranges]
        found = np.array(points, np.int64).reshape(-1, self._ranges.dims)
        return self._ranges.lines(found, found, np.full(len(found), link, np.int64))

    def _ends(self, low: Any, high: Any) -> tuple[int, int]:
        """Return the closed ends of a range as codes; what is strict moves to the next one."""
        first = _LOWEST if low is None else self._code(low) + self._strict[0]
        return first, _HIGHEST if high is None else self._code(high) - self._strict[1]

    def _code(self, value: Any) -> int:
        return encode_value(value, self._type, self._dictionary)

    def _key(self, key: Sequence[Any]) -> list[int]:
        if len(key) != len(self._keys):
            raise DataError(f"a key of {len(key)} values, where {len(self._keys)} are expected")
        return [encode_value(value, type, self._dictionary) for value, type in zip(key, self._keys, strict=True)]
