"""MarkedBoxes: boxes whose mark is one more dimension, unbounded below, that may be changed in place.

Law: `find_from` gives exactly the stored boxes that meet a query and whose mark is not below the query's. State: that
of `boxes.py`, and the greatest mark of each node. Cost: as there; changing a mark takes O(log n).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.engine.matching.boxes import Boxes
from whence.engine.matching.kernels import marked, search
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

    _hit: NDArray[np.uint8]

    def clear(self) -> None:
        super().clear()
        self._hit = np.zeros(len(self.forest.alive), np.uint8)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._hit.nbytes

    def put(self, lines: Codes, bin: int = 0) -> None:
        before = self.forest
        super().put(lines, bin)
        f = self.forest
        if len(f.tops) != len(f.frames):
            f.replace(tops=np.resize(f.tops, len(f.frames)))
        if len(self._hit) != len(f.alive):
            self._hit = np.zeros(len(f.alive), np.uint8)
        trees = len(self.trees)
        for tree in range(0 if f is not before else trees - 1, trees):
            marked.bound_marks(f.address, tree)

    def mark(self, places: Codes, marks: Codes) -> None:
        """Change the marks of entries."""
        marked.set_marks(self.forest.address, places, marks)

    def find_from(self, lows: Codes, highs: Codes, marks: Codes) -> Codes:
        """Positions in `entries`, each once, of boxes that meet one of the queries and have at least its mark."""
        return search.find(self.forest.address, lows, highs, marks, self._hit)[:, 1]
