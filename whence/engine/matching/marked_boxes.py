"""MarkedBoxes: boxes whose mark is one more dimension, unbounded below, that may be changed in place.

Law: `find_from` gives exactly the stored boxes that meet a query and whose mark is not below the query's. State: that
of `boxes.py`, and the greatest mark of each node. Cost: as there; changing a mark takes O(log n).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.engine.matching.boxes import Boxes
from whence.engine.matching.kernels import marked
from whence.model.codes import Codes


class MarkedBoxes(Boxes):
    """Boxes that are found by a point or a box, and by their marks.

    >>> boxes, ends = MarkedBoxes(1), np.array([[1], [5]])
    >>> boxes.put(boxes.lines(ends, ends + 3, np.array([7, 8]), np.array([10, 20])))
    >>> point = np.array([[4]]); boxes.entries[boxes.find_from(point, point, np.array([10])), -2].tolist()
    [7]
    >>> boxes.mark(boxes.find_from(point, point, np.array([10])), np.array([9]))
    >>> boxes.find_from(point, point, np.array([10])).tolist()
    []
    """

    _tops: Codes
    _hit: NDArray[np.uint8]

    def clear(self) -> None:
        super().clear()
        self._tops, self._hit = np.empty(len(self.nodes), np.int64), np.zeros(len(self.alive), np.uint8)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._tops.nbytes + self._hit.nbytes

    def put(self, lines: Codes, bin: int = 0) -> None:
        nodes = self.nodes
        super().put(lines, bin)
        if len(self._tops) != len(self.nodes):
            self._tops = np.resize(self._tops, len(self.nodes))
        if len(self._hit) != len(self.alive):
            self._hit = np.zeros(len(self.alive), np.uint8)
        trees = int(self.used[2])
        for tree in range(0 if self.nodes is not nodes else trees - 1, trees):
            marked.bound_marks(self.entries, self.alive, self._tops, self.trees[tree])

    def mark(self, places: Codes, marks: Codes) -> None:
        """Change the marks of entries."""
        marked.set_marks(self.entries, self.alive, self._tops, self.trees, self.used, places, marks)

    def find_from(self, lows: Codes, highs: Codes, marks: Codes) -> Codes:
        """Positions in `entries`, each once, of boxes that meet one of the queries and have at least its mark."""
        arrays = (self.entries, self.alive, self.nodes, self._tops, self.trees, self.used)
        return marked.find_from(*arrays, lows, highs, marks, self.dims, self._hit)
