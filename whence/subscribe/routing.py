"""Routing of rectangle messages: by which of its links a broker passes a message on.

A broker knows of each link the ranges that are subscribed to behind it, as points in the plane of (low, high). The law:
a message goes out by a link exactly when some range behind it lies in the message's rectangle. So a message reaches
every broker that has a subscriber for it, and no link carries one that nobody behind it needs.
"""

from __future__ import annotations

import numpy as np

from whence.engine.matching.boxes import Boxes
from whence.model.codes import Codes


class RoutingTable:
    """The ranges behind each link of a broker: rows of [low, high], as closed codes.

    >>> table = RoutingTable()
    >>> table.subscribe(1, np.array([[25, 60]])); table.subscribe(2, np.array([[35, 60], [10, 90]]))
    >>> table.links(np.array([[21, 30, 50, 69], [0, 10, 50, 99]]))  # lowest and highest low, lowest and highest high
    [(0, 1), (1, 2)]
    >>> table.unsubscribe(1, np.array([[25, 60]])); table.links(np.array([[21, 30, 50, 69]]))
    []
    """

    def __init__(self) -> None:
        self._ranges = Boxes(2)

    def subscribe(self, link: int, ranges: Codes) -> None:
        """Add ranges behind a link."""
        self._ranges.add(ranges, ranges, np.full(len(ranges), link, np.int64))
        self._ranges.commit()

    def unsubscribe(self, link: int, ranges: Codes) -> None:
        """Remove ranges that are behind a link."""
        self._ranges.remove(ranges, ranges, np.full(len(ranges), link, np.int64))
        self._ranges.commit()

    def links(self, rectangles: Codes) -> list[tuple[int, int]]:
        """Return all pairs of the position of a rectangle and a link that it goes out by, each once."""
        bounds = np.ascontiguousarray(rectangles, np.int64)
        at, links = self._ranges.find(np.ascontiguousarray(bounds[:, ::2]), np.ascontiguousarray(bounds[:, 1::2]))
        return sorted(set(zip(at.tolist(), links.tolist(), strict=True)))
