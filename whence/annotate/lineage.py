"""Lineage: an annotation is the set of tids that a row came from, of every traced source.

Law: `times` and `over` are unions of sets. A column holds int64 handles (`kernels/tid_sets.py`): a set of one is its
own handle, so that generating annotations costs nothing; larger sets are in a pool, each encoded as the paper has it
(001, 5.1): every id, intervals, deltas against the last full set, a dictionary (LZ, by a library) of the steps from id
to id, or whichever of these suits it, and deltas on intervals where windows that overlap have long runs. Unions work on
encoded sets; only a dictionary is unpacked first, and laid out that way at most once a call.

Cost: windows over rows whose sets follow one another in order (`kernels/tid_runs.py`) cost what is new in each; others
(`kernels/tid_paint.py`) as many pieces as they have.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from whence.annotate.kernels import tid_paint as paint
from whence.annotate.kernels import tid_runs as runs
from whence.annotate.kernels import tid_sets as ts
from whence.annotate.sources import names_image, names_of, ready
from whence.annotate.tracing import Image
from whence.model.codes import Codes
from whence.model.errors import DataError, EvaluationError
from whence.model.record import KernelRecord

ENCODINGS = {
    "ids": runs.ENCODE_IDS,
    "intervals": runs.ENCODE_INTERVALS,
    "deltas": runs.ENCODE_DELTAS,
    "dictionary": runs.ENCODE_IDS,
    "adaptive": runs.ENCODE_ADAPTIVE,
}
KINDS = ("ids", "intervals", "delta", "dictionary", "parts")
_FLOOR = 4 << 20  # bytes that are not worth collecting
_ROOM = 1024  # intervals that a list has room for at least
_LZ = pa.Codec("lz4_raw")
_LISTS = ("low", "high", "before", "run")  # of intervals, `tid_runs.py`


class Lineage:
    """Sets of tids of the sources, and of any that is generated besides.

    >>> lineage = Lineage(("reading",))
    >>> a = lineage.generate("reading", np.array([1, 2, 3, 4, 6, 7]))
    >>> b = lineage.over(a, np.array([0, 1, 2]), np.array([4, 5, 6]))
    >>> [lineage.shown(handle) for handle in b]
    ['{[1, 4]}', '{[2, 4], [6, 6]}', '{[3, 4], [6, 7]}']
    >>> lineage.tids(b, "reading")[1].tolist()
    [1, 2, 3, 4, 2, 3, 4, 6, 3, 4, 6, 7]
    """

    name = "lineage"
    large = 512  # words from which on the adaptive encoding takes a dictionary
    gain = 2  # times as many words that ids must take, for it to write deltas on intervals

    def __init__(self, sources: tuple[str, ...], encoding: str = "adaptive") -> None:
        if encoding not in ENCODINGS:
            raise EvaluationError(f"there is no encoding {encoding!r} of lineage; there are {', '.join(ENCODINGS)}")
        self.sources = tuple(sources)
        self.encoding = encoding
        self._shape = ENCODINGS[encoding]
        self._q = np.zeros(runs.Q_FIELDS, np.int64)
        self._q[runs.S_NUMBER] = self._q[runs.S_RUN] = -1
        self._open = np.zeros((runs.C_ROWS, runs.C_FIELDS), np.int64)  # where later calls may go on
        self._pool = KernelRecord(runs.POOL, q=self._q, open_sets=self._open)
        self._set_pool(np.empty((64, 4), np.int64), np.empty(1024, np.int64))
        self._floor = _FLOOR

    # -- the algebra ----------------------------------------------------------------------------------------------

    def generate(self, source: str, tids: Codes) -> Codes:
        """Annotate each row with its own tid. Tids are from 1 to 2^44 - 1."""
        number = self._number(source)
        if len(tids) and (int(tids.min()) < 1 or int(tids.max()) > ts.TID_MASK):
            raise EvaluationError(f"tids of {source} are from 1 to 2^{ts.SOURCE_BIT} - 1")
        return tids | (number << ts.SOURCE_BIT) if number else tids.astype(np.int64)

    def blank(self, count: int) -> Codes:
        return np.zeros(count, np.int64)

    def times(self, a: Codes, b: Codes) -> Codes:
        starts = np.arange(0, 2 * len(a), 2, dtype=np.int64)
        return self.over(np.column_stack((a, b)).reshape(-1), starts, starts + 2)

    def over(self, a: Codes, starts: Codes, ends: Codes) -> Codes:
        a, starts, ends = ready(a), ready(starts), ready(ends)
        found, sources = self._survey(a)
        if len(sources) <= 1:
            return self._over(a, starts, ends, found)
        parts = np.zeros((len(sources), len(starts)), np.int64)
        for at, source in enumerate(sources):
            column = self._part(a, source)
            parts[at] = self._over(column, starts, ends, self._survey(column)[0])
        out = np.empty(len(starts), np.int64)
        self._reserve(len(starts), ts.count_parts(parts) + len(sources))
        count = self._count
        self._q[runs.Q_COUNT] = ts.join_parts(parts, self._sets, self._items, count, self._used, self._first, out)
        self._q[runs.Q_USED] += int(self._sets[count : self._count, ts.LENGTH].sum())
        return out

    # -- reading ---------------------------------------------------------------------------------------------------

    def tids(self, a: Codes, source: str) -> tuple[Codes, Codes]:
        a = self._column(a, source)
        offsets = np.empty(len(a) + 1, np.int64)
        ts.count_ids(a, self._sets, self._items, self._first, offsets)
        out = np.empty(int(offsets[-1]), np.int64)
        ts.fill_tids(a, self._sets, self._items, self._first, offsets, out)
        for row in self._dictionaries(a):
            out[offsets[row] : offsets[row + 1]] = self._ids(int(a[row])) & ts.TID_MASK
        return offsets, out

    def spans(self, a: Codes, source: str) -> Codes:
        out = np.empty((len(a), 2), np.int64)
        ts.fill_spans(self._column(a, source), self._sets, self._items, self._first, out)
        return out

    def contains(self, a: Codes, source: str, tid: int) -> np.ndarray:
        """Return whether each row came from this tid; only a dictionary that spans it is decoded."""
        wanted = self._number(source) << ts.SOURCE_BIT | tid
        a, out = self._column(a, source), np.empty(len(a), np.int64)
        ts.find_id(a, wanted, self._sets, self._items, self._first, out)
        for row in np.flatnonzero(out == 2):
            ids = self._ids(int(a[row]))
            out[row] = ids[np.searchsorted(ids, wanted)] == wanted
        return out.astype(bool)

    def kinds(self, a: Codes) -> list[str]:
        """Return how each row's set is stored."""
        names = []
        for handle in a.tolist():
            kind = "empty" if not handle else "single" if handle > 0 else KINDS[self._row(handle)[ts.KIND]]
            names.append(f"delta on {kind}" if kind == "intervals" and self._is_delta(handle) else kind)
        return names

    def sizes(self, a: Codes) -> Codes:
        """Bytes of each row's set as stored, each by itself: of a delta the overlap and what is appended."""
        return np.array([self._size(handle) for handle in a.tolist()], np.int64)

    def shown(self, handle: int) -> str:
        """Return a set as it is stored, for people: `{1, 2}`, `{[1, 4]}`, `3: {6}` or, with several sources, each
        named."""
        handle = int(handle)
        if handle == 0:
            return "{}"
        if handle < 0 and self._row(handle)[ts.KIND] == ts.PARTS:
            start, length = self._row(handle)[:2]
            return "; ".join(self.shown(part) for part in self._items[start : start + length])
        text = "{" + str(handle & ts.TID_MASK) + "}" if handle > 0 else self._shown(handle)
        if len(self.sources) == 1:
            return text
        some = handle if handle > 0 else int(self._items[self._row(handle)[ts.START]])
        return f"{self.sources[some >> ts.SOURCE_BIT]}: {text}"

    # -- images and memory -----------------------------------------------------------------------------------------

    def image(self, a: Codes) -> Image:
        """Return the handles, and the sets they mention: what is shared in the pool is shared there."""
        a = a.copy()
        sets, items, names = self._kept([a], 0)
        ts.rename(a, self._first, names)
        return {"handles": a, "sets": sets, "items": items, "sources": names_image(self.sources)}

    def restore(self, image: Image) -> Codes:
        """Return the column of an image; its sources may have other numbers there."""
        sources = np.array([self._number(name) for name in names_of(image)], np.int64)
        arrays = [image.get(name) for name in ("handles", "sets", "items")]
        dimensions = [array.ndim for array in arrays if array is not None and array.dtype == np.int64]
        if dimensions != [1, 2, 1]:
            raise DataError("the sets of tids in an image are not as they were written")
        a, sets, items = (np.array(array) for array in arrays)
        ends = np.empty(len(sets), np.int64)
        if sets.shape[1] != 4 or not ts.sound(a, sets, items, len(sources), ends):
            raise DataError("the sets of tids in an image are not as they were written")
        keep, size = np.zeros(len(sets), np.int64), np.zeros(2, np.int64)
        ts.keep_sets(a, sets, items, 0, keep)
        ts.count_kept(sets, 0, keep, size)
        self._reserve(int(size[0]), int(size[1]))
        end = np.array([self._first, self._count, self._used])
        ts.copy_kept(sets, items, 0, keep, sources, self._sets, self._items, end)
        self._q[runs.Q_COUNT] += size[0]
        self._q[runs.Q_USED] += size[1]
        single = a > 0
        a[single] = sources[a[single] >> ts.SOURCE_BIT] << ts.SOURCE_BIT | a[single] & ts.TID_MASK
        ts.rename(a, 0, keep)
        return a

    def collect(self, held: list[Codes]) -> None:
        """Forget the sets that no column mentions; give the others new names in all columns, in place."""
        columns = [ready(column) for column in held]
        end = self._first + self._count
        sets, items, names = self._kept(columns, end)
        for column, contiguous in zip(held, columns, strict=True):
            ts.rename(contiguous, self._first, names)
            if contiguous is not column:
                column[...] = contiguous
        self._set_pool(sets, items)
        self._q[:] = 0
        self._q[runs.Q_FIRST] = end
        self._q[runs.Q_COUNT], self._q[runs.Q_USED] = len(sets), len(items)
        self._q[runs.S_NUMBER] = self._q[runs.S_RUN] = -1
        self._open[:, runs.C_END] = 0
        self._floor = max(_FLOOR, _more(self._words))

    @property
    def grown(self) -> bool:
        return self._words > self._floor

    @property
    def nbytes(self) -> int:
        return int(self._sets.nbytes + self._items.nbytes + self._open.nbytes)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _set_pool(self, sets: Codes, items: Codes) -> None:
        """Replace the arrays of the pool."""
        self._sets, self._items = sets, items
        self._pool.replace(sets=sets, items=items)

    @property
    def _first(self) -> int:
        """The number of the pool's first set."""
        return int(self._q[runs.Q_FIRST])

    @property
    def _count(self) -> int:
        return int(self._q[runs.Q_COUNT])

    @property
    def _used(self) -> int:
        return int(self._q[runs.Q_USED])

    @property
    def _words(self) -> int:
        """Bytes in use."""
        return 8 * (self._used + 4 * self._count)

    def _row(self, handle: int) -> list[int]:
        row: list[int] = self._sets[-1 - handle - self._first].tolist()
        return row

    def _number(self, source: str) -> int:
        """Return the number of a source; one that was not known yet gets the next."""
        if source not in self.sources:
            self.sources = (*self.sources, source)
        return self.sources.index(source)

    def _survey(self, a: Codes) -> tuple[int, list[int]]:
        """Return what handles there are (`tid_sets.survey`), and of which sources."""
        marks = np.zeros(len(self.sources), np.int64)
        found = ts.survey(a, self._sets, self._first, marks)
        if found & 2:
            ts.mark_sources(a, self._sets, self._items, self._first, marks)
        return found, np.flatnonzero(marks).tolist()

    def _part(self, a: Codes, source: int) -> Codes:
        out = np.empty(len(a), np.int64)
        ts.parts_of(a, source, self._sets, self._items, self._first, out)
        return out

    def _column(self, a: Codes, source: str) -> Codes:
        """Return the sets' parts of one source."""
        return self._part(ready(a), self._number(source))

    def _reserve(self, sets: int, words: int) -> None:
        """Make room for so many more sets and words."""
        if self._count + sets > len(self._sets):
            more = np.empty((max(self._count + sets, _more(len(self._sets))), 4), np.int64)
            more[: self._count] = self._sets[: self._count]
            self._set_pool(more, self._items)
        if self._used + words > len(self._items):
            longer = np.empty(max(self._used + words, _more(len(self._items))), np.int64)
            longer[: self._used] = self._items[: self._used]
            self._set_pool(self._sets, longer)

    def _over(self, a: Codes, starts: Codes, ends: Codes, found: int) -> Codes:
        """Unions of sets of one source."""
        if found & 4:
            a = self._opened(a)
        if found & 1:
            keep = a != 0
            kept = np.concatenate((np.zeros(1, np.int64), np.cumsum(keep)))
            a, starts, ends = a[keep], kept[starts], kept[ends]
        out, begun = np.zeros(len(starts), np.int64), self._count
        if not len(a) or not len(starts):
            return out
        self._reserve(len(starts), 0)
        self._q[runs.Q_LARGEST], self._q[runs.Q_GAIN] = 0, self.gain
        unions = KernelRecord(
            runs.UNIONS, a=a, starts=np.ascontiguousarray(starts), ends=np.ascontiguousarray(ends), out=out
        )
        pool, x, at = self._pool.address, unions.address, 0
        if self._lay(unions, found):
            while (at := runs.write(pool, x, at, self._shape)) < len(starts):
                self._reserve(0, int(self._q[runs.Q_WANTED]))
            at = 0 if int(unions.run[unions.tail_at[-1]]) else len(starts)  # all windows are in the only run
        else:
            runs.set_aside(x)
        while at < len(starts) and (at := paint.write_elsewhere(pool, x, at, self._shape)) < len(starts):
            self._reserve(0, int(self._q[runs.Q_WANTED]))
        if self.encoding == "dictionary" or (self.encoding == "adaptive" and self._q[runs.Q_LARGEST] >= self.large):
            self._pack(begun)
        return out

    def _lay(self, unions: KernelRecord, found: int) -> bool:
        """Lay out the runs of a sequence (`kernels/tid_runs.py`); False if there are hardly any."""
        a = unions.a
        lists = np.empty((4, 2 * len(a) + _ROOM if found & 2 else len(a)), np.int64)
        unions.replace(**dict(zip(_LISTS, lists, strict=True)))
        if not found & 2:
            at = np.empty(len(a), np.int64)
            unions.replace(head=a, tail=a, head_at=at, tail_at=at)
            runs.lay_singles(unions.address)
            return True
        head, tail, head_at, tail_at = np.empty((4, len(a)), np.int64)
        unions.replace(head=head, tail=tail, head_at=head_at, tail_at=tail_at)
        state = np.zeros(4, np.int64)
        while not runs.lay(self._pool.address, unions.address, state):
            laid, wanted = int(state[runs.L_COUNT]), int(state[runs.L_WANTED])
            if wanted < 0:
                return False
            longer = np.empty((4, max(2 * lists.shape[1], wanted)), np.int64)
            longer[:, :laid] = lists[:, :laid]
            lists = longer
            unions.replace(**dict(zip(_LISTS, lists, strict=True)))
        return True

    def _pack(self, begun: int) -> None:
        """Make dictionaries of the sets from row `begun` on: under that encoding of all, else of large ones that are no
        delta and have none."""
        rows = self._sets[begun : self._count]
        if self.encoding == "dictionary":
            packed = np.flatnonzero(rows[:, ts.KIND] == ts.ALL_IDS)
        else:
            packed = np.flatnonzero((rows[:, ts.BASE] < 0) & (rows[:, ts.LENGTH] >= self.large))
        if not len(packed):
            return
        old, pieces = rows[packed, : ts.KIND].copy(), []
        at = region = int(old[0, ts.START])
        for row, (start, length) in zip(packed, old.tolist(), strict=True):
            words = _packed(self._items[start : start + length], int(rows[row, ts.KIND]))
            pieces += [self._items[at:start], words]
            rows[row, ts.LENGTH], rows[row, ts.KIND] = len(words), ts.DICTIONARY
            at = start + length
        new = np.concatenate([*pieces, self._items[at : self._used]])
        moved = np.concatenate((np.zeros(1, np.int64), np.cumsum(rows[packed, ts.LENGTH] - old[:, ts.LENGTH])))
        rows[:, ts.START] += moved[np.searchsorted(old[:, ts.START], rows[:, ts.START])]
        opened = np.flatnonzero(self._open[:, runs.C_START] >= region)
        self._open[opened, runs.C_START] += moved[np.searchsorted(old[:, ts.START], self._open[opened, runs.C_START])]
        self._reserve(0, region + len(new) - self._used)
        self._items[region : region + len(new)] = new
        self._q[runs.Q_USED] = region + len(new)

    def _opened(self, a: Codes) -> Codes:
        """Return the column with dictionaries laid out as what was packed."""
        a = a.copy()
        rows = self._dictionaries(a)
        for handle in np.unique(a[rows]).tolist():
            words, kind = self._unpacked(handle)
            self._reserve(1, len(words))
            self._items[self._used : self._used + len(words)] = words
            self._sets[self._count] = self._used, len(words), kind, -1
            a[a == handle] = -1 - (self._first + self._count)
            self._q[runs.Q_USED] += len(words)
            self._q[runs.Q_COUNT] += 1
        return a

    def _dictionaries(self, a: Codes) -> list[int]:
        """Return the rows whose sets are dictionaries."""
        pooled = np.flatnonzero(a < 0)
        rows: list[int] = pooled[self._sets[-1 - a[pooled] - self._first, ts.KIND] == ts.DICTIONARY].tolist()
        return rows

    def _unpacked(self, handle: int) -> tuple[Codes, int]:
        """Return the words that were packed, and of which kind they are; DataError if they are not what the header
        says."""
        start = self._row(handle)[ts.START]
        _, last, count, words, kind, size = self._items[start : start + ts.D_DATA].tolist()
        data = self._items[start + ts.D_DATA :].view(np.uint8)[:size]
        try:
            steps = np.frombuffer(_LZ.decompress(pa.py_buffer(data), 8 * (words - 1)), np.int64)
        except (OSError, ValueError, MemoryError) as error:
            raise DataError(f"a set of tids cannot be unpacked: {error}") from None
        ids = np.cumsum(np.concatenate((self._items[start : start + 1], steps)))
        whole = kind == ts.ALL_IDS or (kind == ts.INTERVALS and len(ids) % 2 == 0)
        if not whole or ids[-1] != last or (steps < (kind == ts.ALL_IDS)).any() or _count(ids, kind) != count:
            raise DataError("a set of tids is not what was packed")
        return ids, kind

    def _ids(self, handle: int) -> Codes:
        """Return the ids of a dictionary."""
        words, kind = self._unpacked(handle)
        if kind == ts.ALL_IDS:
            return words
        pairs = words.reshape(-1, 2).tolist()
        return np.concatenate([np.arange(first, last + 1, dtype=np.int64) for first, last in pairs])

    def _size(self, handle: int) -> int:
        if handle >= 0:
            return 8 if handle else 0
        start, length, kind, base = self._row(handle)
        if self._is_delta(handle):
            full = self._row(-1 - base)
            return 8 + 8 * max(0, start + length - full[ts.START] - full[ts.LENGTH])
        if kind == ts.PARTS:
            return 8 * length + sum(
                self._size(part) for part in self._items[start : start + length].tolist() if part < 0
            )
        return 8 * length

    def _is_delta(self, handle: int) -> bool:
        """Check whether a set of the pool has its words in another one."""
        base = self._row(handle)[ts.BASE]
        return base >= 0 and base != -1 - handle

    def _shown(self, handle: int) -> str:
        start, length, kind, base = self._row(handle)
        words = (self._items[start : start + length] & ts.TID_MASK).tolist()
        if kind == ts.INTERVALS:
            pairs = [f"[{x}, {y}]" for x, y in zip(words[::2], words[1::2], strict=True)]
            if not self._is_delta(handle):
                return "{" + ", ".join(pairs) + "}"
            full = self._row(-1 - base)
            overlap = (full[ts.START] + full[ts.LENGTH] - start) // 2
            return f"{overlap}: {{" + ", ".join(pairs[overlap:]) + "}"
        if kind == ts.DICTIONARY:
            return f"{words[ts.D_COUNT]} ids in {words[ts.D_BYTES]} bytes"
        if base < 0:
            return "{" + ", ".join(map(str, words)) + "}"
        full = self._row(-1 - base)
        overlap = full[ts.START] + full[ts.LENGTH] - start if kind == ts.DELTA else 0
        return f"{overlap}: {{" + ", ".join(map(str, words[overlap:])) + "}"

    def _kept(self, columns: list[Codes], number: int) -> tuple[Codes, Codes, Codes]:
        """Return what these columns mention, as the sets and items of another pool, whose first set has that number;
        and the new number of each set."""
        keep, size = np.zeros(self._count, np.int64), np.zeros(2, np.int64)
        for column in columns:
            ts.keep_sets(column, self._sets, self._items, self._first, keep)
        ts.count_kept(self._sets, self._first, keep, size)
        sets, items = np.empty((size[0], 4), np.int64), np.empty(size[1], np.int64)
        sources = np.arange(len(self.sources), dtype=np.int64)
        ts.copy_kept(self._sets, self._items, self._first, keep, sources, sets, items, np.array([number, 0, 0]))
        return sets, items, keep


def _more(size: int) -> int:
    """Return what a pool of that size grows to: what is in it until it is collected, and no room beyond that."""
    return size + size // 2


def _packed(words: Codes, kind: int) -> Codes:
    """Return the words of a dictionary: the steps from word to word are small and repeat themselves, whatever the tids
    are."""
    data = _LZ.compress(np.diff(words).tobytes(), asbytes=True)
    header = np.array([words[0], words[-1], _count(words, kind), len(words), kind, len(data)], np.int64)
    return np.concatenate((header, np.frombuffer(data + bytes(-len(data) % 8), np.int64)))


def _count(words: Codes, kind: int) -> int:
    """Return how many ids there are."""
    return len(words) if kind == ts.ALL_IDS else int((words[1::2] - words[::2]).sum()) + len(words) // 2
