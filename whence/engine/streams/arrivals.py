"""Arrivals: the rows of a stream that an operator buffers, in order of arrival, with their annotations.

A row has a position, which rises with arrival. Rows are only added; `undo` removes what was added since `commit`.
Rows that are not needed any more stay until `keep` leaves them out, which gives the others new positions: called
between epochs, when the others are fewer, it costs a constant for each row that ever came.
"""

from __future__ import annotations

import numpy as np

from whence.annotate.tracing import Tracer
from whence.engine.core.image import Image, StaleImage, with_room
from whence.engine.streams.stream import ANN
from whence.model.codes import Codes

SPARE = 1024  # rows that are not needed may stay, besides as many as are


class Arrivals:
    """A buffer of rows at positions 0 to `end`; `ann` only if there is a tracer."""

    def __init__(self, columns: int, tracer: Tracer | None) -> None:
        self.columns, self.tracer = columns, tracer
        self.clear()

    def clear(self) -> None:
        self.rows = np.empty((0, self.columns), np.int64)
        self.ann = np.empty(0, np.int64) if self.tracer is None else self.tracer.blank(0)
        self.end = self._committed = 0

    def append(self, rows: Codes, ann: Codes) -> int:
        """Append rows; return the position of the first."""
        start, end = self.end, self.end + len(rows)
        if end > len(self.rows):
            room = max(2 * len(self.rows), end + 16)
            self.rows = with_room(self.rows, room)
            if self.tracer is not None:
                self.ann = with_room(self.ann, room)
        if end > start:
            self.rows[start:end] = rows
            if self.tracer is not None:
                self.ann[start:end] = ann
        self.end = end
        return start

    def carried(self, positions: Codes) -> Codes:
        """Return the annotations of the rows at these positions."""
        return self.ann[positions] if self.tracer is not None else np.ones(len(positions), np.int64)

    def retain_only(self, positions: Codes) -> None:
        """Keep only these rows, ascending, and renumber them from position 0."""
        room = 3 * len(positions) + SPARE  # for as many again, and as many that will have left
        self.rows = with_room(self.rows[positions], room)
        if self.tracer is not None:
            self.ann = with_room(self.ann[positions], room)
        self.end = self._committed = len(positions)

    @property
    def new(self) -> int:
        """The position of the first row since `commit`."""
        return self._committed

    def commit(self) -> None:
        self._committed = self.end

    def undo(self) -> None:
        self.end = self._committed

    def held(self) -> list[Codes]:
        return [self.ann[: self.end]] if self.tracer is not None else []

    def image(self, name: str = "rows") -> Image:
        image = {name: self.rows[: self.end]}
        if self.tracer is not None:
            carried = self.tracer.image(self.ann[: self.end])
            image |= {f"{ANN}{name}/{part}": array for part, array in carried.items()}
        return image

    def check(self, image: Image, name: str = "rows") -> None:
        """Raise StaleImage if the image is not of such rows."""
        rows = image.get(name)
        if rows is None or rows.ndim != 2 or rows.shape[1] != self.columns or rows.dtype != np.int64:
            raise StaleImage(f"no image of rows with {self.columns} columns")

    def restore(self, image: Image, name: str = "rows") -> None:
        """Take the rows of an image that was checked; if it says nothing of what they carried, they carry nothing."""
        rows, start = image[name], f"{ANN}{name}/"
        self.clear()
        carried = {part[len(start) :]: array for part, array in image.items() if part.startswith(start)}
        ann = self.ann
        if self.tracer is not None:
            ann = self.tracer.restore(carried) if carried else self.tracer.blank(len(rows))
            if len(ann) != len(rows):
                raise StaleImage(f"annotations of {len(ann)} rows where {len(rows)} were expected")
        self.append(rows, ann)
        self.commit()

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + (self.ann.nbytes if self.tracer is not None else 0)


def data(image: Image) -> Image:
    """Return an image without its annotations."""
    return {name: array for name, array in image.items() if not name.startswith(ANN)}
