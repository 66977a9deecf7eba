"""Annotations of the rows in open windows, and of the rows that windows emit.

Law: an output comes from what any of its rows came from, `tracer.over` its slice of the group's sequence. The
past of a landmark window is carried on as one annotation. Each class can undo to the last commit.

| kept by  | for |
|----------|-----|
| NoTrace  | windows that are not traced |
| Carried  | one group: the sequence itself |
| Chunks   | many groups: a column of chunks, see `kernels/window_trace.py` |
"""

from __future__ import annotations

import numpy as np

from whence.annotate.tracing import Image, Tracer
from whence.engine.core.image import StaleImage, with_room
from whence.engine.streams.replay.ragged import ranges
from whence.engine.streams.windows.kernels import window_state as st
from whence.engine.streams.windows.kernels import window_trace as tk
from whence.engine.streams.windows.window_lines import LineStore
from whence.model.codes import Codes

_ROOM = 1024


class NoTrace:
    """The annotations of windows that are not traced: none."""

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
    """The annotations of one group: pieces that are concatenated, in the order of panes, when a window closes."""

    def __init__(self, tracer: Tracer, groups: LineStore, panes: LineStore, landmark: bool):
        self._tracer, self._groups, self._panes, self._landmark = tracer, groups, panes, landmark
        self.clear()

    def clear(self) -> None:
        self._pieces: list[Codes] = []
        self._places: list[Codes] = []  # the panes of what is in the pieces
        self._sorted = True
        self._before: tuple[list[Codes], list[Codes], bool] | None = None

    def take(self, ann: Codes, active: Codes, owner: Codes, panes: Codes, info: Codes, disorder: bool) -> Codes:
        """Take in the annotations of the batch; return those of the rows out."""
        if len(owner):
            ann, panes = ann[owner >= 0], panes[owner >= 0]
        elif not len(panes):
            panes = np.zeros(len(ann), np.int64)  # of windows over rows: they are in order
        had, self._sorted = sum(map(len, self._pieces)), self._sorted and not disorder
        if not len(info):
            if len(ann):
                self._pieces, self._places = [*self._pieces, ann.copy()], [*self._places, panes.copy()]
            return self._tracer.blank(0)
        line, starts, ends = self._groups.k.data[0], info[:, 1].copy(), info[:, 2].copy()
        if self._sorted and not self._landmark:
            out = self._slices(ann, had, starts, ends)
            gone = int(line[st.G_FIRST] - line[st.G_BASE])
            self._pieces = [self._rest(self._pieces, ann, had, gone)]
            self._places = [self._rest(self._places, panes, had, gone)]
            return out
        self._pieces, self._places = [*self._pieces, ann], [*self._places, panes]
        whole, places = self._whole(had - int(line[st.G_CARRIED]))
        out = self._tracer.over(whole, starts, ends)
        gone = int(line[st.G_FIRST] - line[st.G_BASE])
        if self._landmark:
            whole, places = self._as_one(whole, places, gone + int(line[st.G_SOLID]))
            gone = 0
        self._pieces, self._places, self._sorted = [whole[gone:].copy()], [places[gone:].copy()], True
        return out

    def _slices(self, ann: Codes, had: int, starts: Codes, ends: Codes) -> Codes:
        """Return the annotations of outputs over the pieces and then `ann`."""
        both = int(np.searchsorted(starts, had))  # outputs that begin with rows from before; no others need them
        parts = []
        if both:
            whole = np.concatenate((*self._pieces, ann[: max(0, ends[both - 1] - had)]))
            parts.append(self._tracer.over(whole, starts[:both], ends[:both]))
        if both < len(starts):
            parts.append(self._tracer.over(ann, starts[both:] - had, ends[both:] - had))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @staticmethod
    def _rest(pieces: list[Codes], ann: Codes, had: int, gone: int) -> Codes:
        return ann[gone - had :].copy() if gone >= had else np.concatenate((*pieces, ann))[gone:]

    def _whole(self, more: int) -> tuple[Codes, Codes]:
        """Return all items in the order of panes. Of a landmark window the first, and `more` if any, become one."""
        if not self._pieces:
            return self._tracer.blank(0), np.empty(0, np.int64)
        whole, places = np.concatenate(self._pieces), np.concatenate(self._places)
        if not self._sorted:
            order = np.argsort(places, kind="stable")
            whole, places = whole[order], places[order]
        return self._as_one(whole, places, more + 1) if self._landmark and more else (whole, places)

    def _as_one(self, whole: Codes, places: Codes, count: int) -> tuple[Codes, Codes]:
        """Combine the first `count` items into one that stands before all panes."""
        first = self._tracer.over(whole, np.zeros(1, np.int64), np.array([count], np.int64))
        return np.concatenate((first, whole[count:])), np.concatenate(([st.NEVER], places[count:]))

    def begin(self) -> None:
        self._before = self._pieces, self._places, self._sorted

    def commit(self) -> None:
        self._before = None

    def undo(self) -> None:
        if self._before is not None:
            (self._pieces, self._places, self._sorted), self._before = self._before, None

    def _merge_pieces(self) -> Codes:
        """Merge the pieces into one; return it."""
        whole, places = self._whole(self.rows - _live(self._groups, self._landmark))
        self._pieces, self._places, self._sorted = [whole], [places], True
        return whole

    def held(self) -> list[Codes]:
        return [self._merge_pieces()]

    def image(self) -> Image:
        return self._tracer.image(self._merge_pieces())

    def restore(self, image: Image) -> None:
        self.clear()
        live = _live(self._groups, self._landmark)
        self._pieces = [_restored(self._tracer, image, live)]
        self._places = [_panes(self._groups, self._panes, self._landmark, live)]

    @property
    def rows(self) -> int:
        return sum(map(len, self._pieces))

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in (*self._pieces, *self._places))


class Chunks:
    """The annotations of many groups in one column, and the panes of what carries them in another."""

    def __init__(self, tracer: Tracer, groups: LineStore, panes: LineStore, landmark: bool):
        self._tracer, self._groups, self._panes, self._landmark = tracer, groups, panes, landmark
        self.clear()

    def clear(self) -> None:
        self._column, self._high, self._live = self._tracer.blank(0), 0, 0
        self._places = np.empty(0, np.int64)
        self._before: tuple[int, int] | None = None

    def take(self, ann: Codes, active: Codes, owner: Codes, panes: Codes, info: Codes, disorder: bool) -> Codes:
        """Take in the annotations of the batch; return those of the rows out."""
        panes = panes if len(panes) else np.zeros(len(ann), np.int64)  # windows over rows are in order
        lines = self._groups.k.data[active]
        if self._landmark or disorder:
            sequence, begin = self._rebuild(ann, active, owner, panes)
        else:
            source, begin, moves, self._high = tk.sequences(self._groups.address, active, owner, info, self._high)
            sequence = self._gather(source, self._column, ann)
            self._make_room()
            if len(moves):
                taken = np.ascontiguousarray(moves[:, 1])
                self._column[moves[:, 0]] = self._gather(taken, self._column, ann)
                self._places[moves[:, 0]] = self._gather(taken, self._places, panes)
        self._live += int((lines[:, st.G_COUNT] - lines[:, st.G_FIRST] - lines[:, st.G_CARRIED]).sum())
        if not len(info):
            return self._tracer.blank(0)
        starts, ends, place = tk.by_group(active, begin, info, self._groups.capacity)
        return self._tracer.over(sequence, starts, ends)[place]

    def _rebuild(self, ann: Codes, active: Codes, owner: Codes, panes: Codes) -> tuple[Codes, Codes]:
        """Return all sequences in the order of panes, and where each begins; move what stays of them to new chunks."""
        source, begin, length = tk.all_sequences(self._groups.address, active, owner)
        places = self._gather(source, self._places, panes)
        order = np.lexsort((places, np.repeat(np.arange(len(active)), length)))
        sequence, places = self._gather(source[order], self._column, ann), places[order]
        data = self._groups.k.data
        lines = data[active]
        gone = lines[:, st.G_FIRST] - lines[:, st.G_BASE]
        solid = gone + lines[:, st.G_SOLID]
        stays = np.where(lines[:, st.G_STATE] == st.FREE, 0, length - (solid if self._landmark else gone))
        some = (solid > 0).astype(np.int64) if self._landmark else 0 * solid  # one item for what was there
        sizes = stays + some
        chunks = self._high + np.cumsum(sizes) - sizes
        data[active, st.G_CHUNK], data[active, st.G_CHUNKS], data[active, st.G_SHIFT] = chunks, sizes, 0
        self._high += int(sizes.sum())
        self._make_room()
        kept, goes = ranges(begin + length - stays, stays), ranges(chunks + some, stays)
        self._column[goes], self._places[goes] = sequence[kept], places[kept]
        if self._landmark:
            have = np.flatnonzero(some)
            self._column[chunks[have]] = self._tracer.over(sequence, begin[have], (begin + solid)[have])
            self._places[chunks[have]] = st.NEVER
        return sequence, begin

    @staticmethod
    def _gather(source: Codes, column: Codes, ann: Codes) -> Codes:
        out = np.empty((len(source), *ann.shape[1:]), np.int64)
        tk.gather(_flat(column), _flat(ann), source, _flat(out))
        return out

    def _make_room(self) -> None:
        if self._high > len(self._column):
            self._column, self._places = (with_room(a, 2 * self._high + _ROOM) for a in (self._column, self._places))

    def begin(self) -> None:
        self._before = self._high, self._live

    def commit(self) -> None:
        self._before = None
        if self._high > 4 * self.rows + _ROOM:
            self._compact()

    def undo(self) -> None:
        if self._before is not None:
            (self._high, self._live), self._before = self._before, None

    def _compact(self) -> None:
        """Remove the gaps between chunks."""
        source = np.empty(self._high + len(self._groups), np.int64)
        self._high = tk.compact(self._groups.address, int(self._landmark), source)
        self._column, self._places = self._column[source[: self._high]], self._places[source[: self._high]]

    def held(self) -> list[Codes]:
        self._compact()
        return [self._column]

    def image(self) -> Image:
        self._compact()
        return self._tracer.image(self._column)

    def restore(self, image: Image) -> None:
        self._before = None
        self._live = _live(self._groups, self._landmark)
        self._high = tk.compact(self._groups.address, int(self._landmark), np.empty(self._live, np.int64))
        self._column = _restored(self._tracer, image, self._high)
        self._places = _panes(self._groups, self._panes, self._landmark, self._high)

    @property
    def rows(self) -> int:
        return self._live

    @property
    def nbytes(self) -> int:
        return int(self._column.nbytes + self._places.nbytes)


def _live(groups: LineStore, landmark: bool) -> int:
    """Count the annotations of groups: one per row, or one for all rows in the past of a landmark window."""
    data = groups.k.data[: groups.used]
    data = data[data[:, st.G_STATE] != st.FREE]
    had = np.maximum(data[:, st.G_SOLID] - 1, 0) if landmark else 0
    return int((data[:, st.G_COUNT] - data[:, st.G_FIRST] - had).sum())


def _panes(groups: LineStore, panes: LineStore, landmark: bool, count: int) -> Codes:
    """Return the pane of each of `count` items."""
    found = np.empty(count, np.int64)
    tk.panes_in_order(groups.address, panes.address, int(landmark), found)
    return found


def _restored(tracer: Tracer, image: Image, count: int) -> Codes:
    """Restore `count` annotations from an image, or make blank ones if there is none."""
    column = tracer.restore(image) if image else tracer.blank(count)
    if len(column) != count:
        raise StaleImage(f"annotations of {len(column)} rows where {count} were expected")
    return column


def _flat(column: Codes) -> Codes:
    """View a column of annotations as a two-dimensional, contiguous array."""
    return np.ascontiguousarray(column).reshape(len(column), -1 if len(column) else 1)
