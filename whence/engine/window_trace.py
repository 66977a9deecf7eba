"""The annotations of rows that are in open windows, and of what windows give out.

Law: an output comes from what any of its rows came from, `tracer.over` its slice of the group's sequence. What a
landmark window has had is carried on as one annotation. Each of these can go back to the last commit.

| kept by  | for |
|----------|-----|
| Nothing  | windows that are not traced |
| Carried  | one group: the sequence itself |
| Chunks   | many groups: a column of chunks, see `kernels/window_trace.py` |
"""

from __future__ import annotations

import numpy as np

from whence.annotate.tracing import Image, Tracer
from whence.engine.image import StaleImage
from whence.engine.kernels import window_state as st
from whence.engine.kernels import window_trace as tk
from whence.engine.window_lines import Lines
from whence.model.codes import Codes

_ROOM = 1024


class Nothing:
    """Nothing is traced."""

    rows = nbytes = 0

    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def undo(self) -> None: ...
    def clear(self) -> None: ...
    def restore(self, image: Image) -> None: ...

    def held(self) -> list[Codes]:
        return []

    def image(self) -> Image:
        return {}


class Carried:
    """The annotations of one group, as pieces that are put together when a window closes."""

    def __init__(self, tracer: Tracer, groups: Lines, landmark: bool):
        self._tracer, self._groups, self._landmark = tracer, groups, landmark
        self._pieces: list[Codes] = []
        self._before: list[Codes] | None = None

    def take(self, ann: Codes, active: Codes, owner: Codes, late: Codes, info: Codes) -> Codes:
        """The annotations of what comes out, taking in those of the batch."""
        if len(owner):
            ann = ann[owner >= 0]
        elif len(late):
            ann = np.delete(ann, late, axis=0)
        if not len(info):
            if len(ann):
                self._pieces = [*self._pieces, ann.copy()]
            return self._tracer.blank(0)
        line, starts, ends = self._groups.k.data[0], info[:, 1].copy(), info[:, 2].copy()
        if self._landmark:
            whole = self._whole(np.concatenate((*self._pieces, ann)), int(line[st.G_CARRIED]))
            self._pieces = [self._one(whole)]
            return self._tracer.over(whole, starts, ends)
        had = sum(map(len, self._pieces))
        both = int(np.searchsorted(starts, had))  # outputs that begin with rows from before; no others need them
        parts = []
        if both:
            whole = np.concatenate((*self._pieces, ann[: max(0, ends[both - 1] - had)]))
            parts.append(self._tracer.over(whole, starts[:both], ends[:both]))
        if both < len(info):
            parts.append(self._tracer.over(ann, starts[both:] - had, ends[both:] - had))
        gone = int(line[st.G_FIRST] - line[st.G_BASE])
        rest = ann[gone - had :].copy() if gone >= had else np.concatenate((*self._pieces, ann))[gone:]
        self._pieces = [rest]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _whole(self, whole: Codes, carried: int) -> Codes:
        """A landmark's sequence begins with one annotation for what was carried over."""
        had = sum(map(len, self._pieces))
        return np.concatenate((self._one(whole[:had]), whole[had:])) if had > carried else whole

    def _one(self, ann: Codes) -> Codes:
        end = np.array([len(ann)], np.int64)
        return self._tracer.over(ann, np.zeros(1, np.int64), end)

    def begin(self) -> None:
        self._before = self._pieces

    def commit(self) -> None:
        self._before = None

    def undo(self) -> None:
        if self._before is not None:
            self._pieces, self._before = self._before, None

    def clear(self) -> None:
        self._pieces, self._before = [], None

    def _together(self) -> list[Codes]:
        if len(self._pieces) > 1:
            self._pieces = [np.concatenate(self._pieces)]
        if self._landmark and self._pieces and len(self._pieces[0]) > 1:
            self._pieces = [self._one(self._pieces[0])]
        return self._pieces

    def held(self) -> list[Codes]:
        return self._together()

    def image(self) -> Image:
        pieces = self._together()
        return self._tracer.image(pieces[0] if pieces else self._tracer.blank(0))

    def restore(self, image: Image) -> None:
        data = self._groups.k.data[: self._groups.used]
        live = int((data[:, st.G_COUNT] - data[:, st.G_FIRST]).sum())
        count = min(live, 1) if self._landmark else live
        self._before = None
        self._pieces = [_restored(self._tracer, image, count)]

    @property
    def rows(self) -> int:
        return sum(map(len, self._pieces))

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self._pieces)


class Chunks:
    """The annotations of many groups in one column."""

    def __init__(self, tracer: Tracer, groups: Lines, landmark: bool):
        self._tracer, self._groups, self._landmark = tracer, groups, landmark
        self.clear()

    def clear(self) -> None:
        self._column, self._high, self._live = self._tracer.blank(0), 0, 0
        self._before: tuple[int, int] | None = None

    def take(self, ann: Codes, active: Codes, owner: Codes, late: Codes, info: Codes) -> Codes:
        """The annotations of what comes out, taking in those of the batch."""
        start = self._high
        source, begin, length, moves, self._high = tk.sequences(
            self._groups.address, active, owner, info, int(self._landmark), start
        )
        lines = self._groups.k.data[active]
        self._live += int((lines[:, st.G_COUNT] - lines[:, st.G_FIRST] - lines[:, st.G_CARRIED]).sum())
        sequence = self._gather(source, ann)
        self._make_room()
        if self._landmark:
            self._column[start : self._high] = self._tracer.over(sequence, begin, begin + length)
        elif len(moves):
            self._column[moves[:, 0]] = self._gather(np.ascontiguousarray(moves[:, 1]), ann)
        if not len(info):
            return self._tracer.blank(0)
        starts, ends, place = tk.by_group(active, begin, info, self._groups.capacity)
        return self._tracer.over(sequence, starts, ends)[place]

    def _gather(self, source: Codes, ann: Codes) -> Codes:
        out = np.empty((len(source), *ann.shape[1:]), np.int64)
        tk.gather(_flat(self._column), _flat(ann), source, _flat(out))
        return out

    def _make_room(self) -> None:
        if self._high > len(self._column):
            grown = np.zeros((2 * self._high + _ROOM, *self._column.shape[1:]), self._column.dtype)
            grown[: len(self._column)] = self._column
            self._column = grown

    def begin(self) -> None:
        self._before = self._high, self._live

    def commit(self) -> None:
        self._before = None
        if self._high > 4 * self.rows + _ROOM:
            self._settle()

    def undo(self) -> None:
        if self._before is not None:
            (self._high, self._live), self._before = self._before, None

    def _settle(self) -> None:
        """Leave no gaps; of a landmark's groups each has one annotation."""
        source = np.empty(self._high + len(self._groups), np.int64)
        self._high = tk.settle(self._groups.address, int(self._landmark), source)
        self._column = self._column[source[: self._high]]

    def held(self) -> list[Codes]:
        self._settle()
        return [self._column]

    def image(self) -> Image:
        self._settle()
        return self._tracer.image(self._column)

    def restore(self, image: Image) -> None:
        self._before = None
        data = self._groups.k.data[: self._groups.used]
        count = np.where(data[:, st.G_STATE] == st.FREE, 0, data[:, st.G_COUNT] - data[:, st.G_FIRST])
        self._live = int((np.minimum(count, 1) if self._landmark else count).sum())
        self._high = tk.settle(self._groups.address, int(self._landmark), np.empty(self._live, np.int64))
        self._column = _restored(self._tracer, image, self._high)

    @property
    def rows(self) -> int:
        return min(self._live, len(self._groups)) if self._landmark else self._live

    @property
    def nbytes(self) -> int:
        return int(self._column.nbytes)


def _restored(tracer: Tracer, image: Image, count: int) -> Codes:
    """So many annotations, of an image if there is one."""
    column = tracer.restore(image) if image else tracer.blank(count)
    if len(column) != count:
        raise StaleImage(f"annotations of {len(column)} rows where {count} were expected")
    return column


def _flat(column: Codes) -> Codes:
    """A column of annotations as two-dimensional, contiguous array."""
    return np.ascontiguousarray(column).reshape(len(column), -1 if len(column) else 1)
