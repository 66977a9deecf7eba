"""Covering: an annotation is, for each source, the interval from the first to the last tid that a row came from.

Law: the hull of lineage, operation by operation: a union's hull is the hull of the hulls. It has a fixed size and is
made in constant time, whatever the window; the tids between are found by replaying them (paper 001, 5.2).
"""

from __future__ import annotations

import numpy as np

from whence.annotate.kernels import spans
from whence.annotate.sources import names_image, names_of, number_of, ready
from whence.annotate.tracing import Image
from whence.model.codes import Codes
from whence.model.errors import DataError, EvaluationError


class Covering:
    """Columns are [n, 2k] arrays for k sources: first and last tid of each, (1, 0) where there is none.

    >>> covering = Covering(("reading",))
    >>> a = covering.generate("reading", np.array([2, 3, 4, 6, 7]))
    >>> covering.over(a, np.array([0, 1]), np.array([4, 5])).tolist()
    [[2, 6], [3, 7]]
    """

    name = "covering"
    nbytes = 0
    grown = False

    def __init__(self, sources: tuple[str, ...]) -> None:
        self.sources = tuple(sources)
        self._none = np.tile(np.array([1, 0], np.int64), len(self.sources))

    def generate(self, source: str, tids: Codes) -> Codes:
        at = 2 * number_of(self.sources, source)
        a = self.blank(len(tids)) if len(self.sources) > 1 else np.empty((len(tids), 2), np.int64)
        a[:, at] = a[:, at + 1] = tids
        return a

    def blank(self, count: int) -> Codes:
        a = np.empty((count, len(self._none)), np.int64)
        a[:] = self._none
        return a

    def times(self, a: Codes, b: Codes) -> Codes:
        out = np.empty((len(a), len(self._none)), np.int64)
        spans.hull_both(ready(a), ready(b), out)
        return out

    def over(self, a: Codes, starts: Codes, ends: Codes) -> Codes:
        """O(1) a window and a row."""
        a, starts, ends = ready(a), ready(starts), ready(ends)
        out = np.empty((len(starts), len(self._none)), np.int64)
        if len(self.sources) == 1 and spans.hull_sorted(a, starts, ends, out):
            return out
        queues = np.empty((2, len(a)), np.int64)
        for source in range(len(self.sources)):
            spans.hull_queued(a, starts, ends, source, queues[0], queues[1], out)
        return out

    def tids(self, a: Codes, source: str) -> tuple[Codes, Codes]:
        raise EvaluationError(f"covering intervals do not tell single tids of {source}: replay them")

    def spans(self, a: Codes, source: str) -> Codes:
        at = 2 * number_of(self.sources, source)
        return np.ascontiguousarray(a[:, at : at + 2])

    def shown(self, row: Codes) -> str:
        """Return an annotation as people read it.

        >>> Covering(("a", "b")).shown(np.array([2, 6, 1, 0]))
        'a: [2, 6]'
        """
        pairs = zip(self.sources, row.reshape(-1, 2).tolist(), strict=True)
        named = [(name, f"[{low}, {high}]") for name, (low, high) in pairs if low <= high]
        return "; ".join(text if len(self.sources) == 1 else f"{name}: {text}" for name, text in named) or "none"

    def image(self, a: Codes) -> Image:
        return {"spans": a, "sources": names_image(self.sources)}

    def restore(self, image: Image) -> Codes:
        names = names_of(image)
        written = image.get("spans")
        if written is None or written.dtype != np.int64 or written.ndim != 2 or written.shape[1] != 2 * len(names):
            raise DataError("the covering intervals of an image are not as they were written")
        if not set(names) <= set(self.sources):
            raise DataError(f"covering intervals of {', '.join(names)}, where {', '.join(self.sources)} are traced")
        a = self.blank(len(written))
        for number, name in enumerate(names):
            at = 2 * number_of(self.sources, name)
            a[:, at : at + 2] = written[:, 2 * number : 2 * number + 2]
        return a

    def collect(self, held: list[Codes]) -> None:
        """Nothing to do: every annotation is all there is of it."""
