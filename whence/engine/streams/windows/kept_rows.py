"""KeptRows: which rows of two joined streams are kept, of at most so many; a bounded join without the rows themselves.

Laws: at most `capacity` rows are kept after each arrival. What is kept, and what was missed, depends on the order of
arrivals only, not on how they are cut into epochs. An epoch is undone exactly. State: per kept row some numbers, per
join key how often and when it came, and how many of its rows were evicted that could still be joined. Counts are halved
every `_AGEING` arrivals (or twice the capacity), so keys that no longer come are forgotten. Cost: constant per arrival
and pair, and per eviction the kept rows; so one row of sixteen is evicted at a time.

What was missed is counted exactly, by key, while the keys that have lost rows are no more than the capacity. Beyond
that only every second of them is counted, then every fourth, …, and the count is an estimate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.engine.core.image import Image, StaleImage, with_room
from whence.engine.streams.stream import Missed
from whence.engine.streams.windows.kernels import bounded as bk
from whence.model.codes import Codes
from whence.model.record import KernelRecord
from whence.plan.eviction.scoring import BITS, CENTERS, KINDS, Scoring

_AGEING = 1 << 16
SMALL = 64
_SPARE = 1024
_BLANK = np.array([-1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, -1], np.int64)
_ROWS = ("ids", "came", "after", "prior", "place", "queued")  # one word per position
_NAMES = ("left", "right")
_ROW_BYTES, _KEY_BYTES = 9 * 8, 20 * 8  # of a kept row beside its columns, and of a key
_COLUMN_BYTES = 8


def rows_within(nbytes: int, columns: int) -> int:
    """Return how many rows fit into so many bytes, with all that is kept of them and of their keys."""
    # Arrays have room for as many rows again and as many that have left, and four keys are known per kept row.
    return max(nbytes // (3 * (_COLUMN_BYTES * columns + _ROW_BYTES) + 4 * _KEY_BYTES), 1)


class KeptRows:
    """The rows that are kept of two sides. Positions are those of `append`, until `commit` renumbers them."""

    def __init__(self, capacity: int, windows: tuple[int | None, int | None], small: int = SMALL) -> None:
        """Rows of a `small` capacity are evicted one by one."""
        self.capacity, self.windows, self._small = capacity, windows, small
        self.clear()

    def clear(self) -> None:
        """Reset to the initial state."""
        none, words = np.empty(0, np.int64), {name: np.empty(0, np.int64) for name in _ROWS}
        self.shared = KernelRecord(
            bk.SHARED, attrs=np.empty((0, bk.FIELDS), np.int64), values=none, log=np.empty((0, bk.FIELDS), np.int64),
            meta=np.array([0, 0, self.capacity, self._batch, 0, 0, 0], np.int64),
            scores=np.empty(self.capacity + 1, np.int64), ranked=np.empty(self.capacity + 1, np.int64),
        )  # fmt: skip
        self.sides = [
            KernelRecord(
                bk.SIDE, **words, live=np.empty(self.capacity + 2, np.int64), queue=none, gone=none,
                meta=np.array([0, 0, -1 if size is None else size, 0, 0, 0, 0], np.int64),
                model=np.zeros(bk.MODEL, np.int64), means=np.zeros(1, np.int64), table=np.zeros((1, 1), np.int64),
                weights=np.full(1, 1 << BITS, np.int64),
            )
            for size in self.windows
        ]  # fmt: skip
        self.ends = [0, 0]
        self.keys = 0
        self.arrivals = 0
        self._missed = np.zeros(2)  # by keys so far: the estimate, and its variance
        self._begin()

    def _begin(self) -> None:
        """Remember what an undo goes back to."""
        self.shared.meta[bk.EPOCH] += 1
        self.shared.meta[bk.LOGGED] = 0
        for side in self.sides:
            side.meta[bk.GONE] = 0
        self._before = (
            [side.meta.copy() for side in self.sides], self.shared.meta.copy(), list(self.ends), self.keys,
            self.arrivals, self._missed.copy(),
        )  # fmt: skip
        # Before counts were first halved in this epoch: attributes, how many were logged, and the queues.
        self._aged: tuple[Codes, int, list[Codes]] | None = None

    # -- arrivals ----------------------------------------------------------------------------------------------------

    def know_keys(self, values: Codes) -> None:
        """Take in new keys, by a number for each that models understand; keys are numbered from 0 on."""
        self.keys += len(values)
        shared = self.shared
        if self.keys > len(shared.attrs):
            room = max(2 * self.keys, 64)
            shared.replace(
                attrs=with_room(shared.attrs, room), values=with_room(shared.values, room),
                log=with_room(shared.log, room),
            )  # fmt: skip
        first = self.keys - len(values)
        shared.attrs[first : self.keys] = _BLANK
        shared.values[first : self.keys] = values

    def append(self, side: int, ids: Codes) -> int:
        """Append rows of keys (-1: with a NULL), which arrive by `run`; return the position of the first."""
        record, start = self.sides[side], self.ends[side]
        end = self.ends[side] = start + len(ids)
        if end > len(record.ids):
            room = max(2 * len(record.ids), end + 16)
            record.replace(**{name: with_room(getattr(record, name), room) for name in _ROWS})
        left = int(record.meta[bk.GONE]) + int(record.meta[bk.LIVE]) + len(ids)
        if left > len(record.gone):
            record.replace(gone=with_room(record.gone, 2 * left))
        waiting = int(record.meta[bk.TAIL]) + len(ids)
        if record.meta[bk.SIZE] >= 0 and waiting > len(record.queue):
            record.replace(queue=with_room(record.queue, 2 * waiting))
        record.ids[start:end], record.place[start:end] = ids, -1
        return start

    def run(self, order: Codes, end: int, state: Codes, lpos: Codes, rpos: Codes) -> int:
        """Let rows arrive: see `kernels.bounded.join_bounded`."""
        before = int(state[0])
        left, right = self.sides
        found = bk.join_bounded(left.address, right.address, self.shared.address, order, end, state, lpos, rpos)
        self.arrivals += int(state[0]) - before
        return int(found)

    def resize(self, capacity: int) -> None:
        """Keep another number of rows at most, from the next arrival on; undone with the epoch."""
        if capacity == self.capacity:
            return
        self.capacity = capacity
        self.shared.meta[[bk.CAPACITY, bk.BATCH]] = capacity, self._batch
        if capacity >= len(self.shared.scores):
            room = np.empty(2 * capacity, np.int64)
            self.shared.replace(scores=room, ranked=room.copy())
            for side in self.sides:
                side.replace(live=with_room(side.live, 2 * capacity + 1))

    @property
    def _batch(self) -> int:
        return 1 if self.capacity <= self._small else self.capacity >> 4

    def refer(self, ids: Codes) -> NDArray[np.bool_]:
        """Let references to keys arrive: see `kernels.bounded.refer_bounded`."""
        left, right = self.sides
        found = np.empty(len(ids), np.bool_)
        first = self.append(0, ids), self.append(1, ids)
        bk.refer_bounded(left.address, right.address, self.shared.address, *first, found)
        self.arrivals += len(ids)
        return found

    @property
    def ageing(self) -> int:
        """Arrivals from one halving of the counts to the next."""
        return max(_AGEING, 2 * self.capacity)

    def until_ageing(self) -> int:
        """Return how many arrivals there are before counts are halved."""
        return self.ageing - self.arrivals % self.ageing

    def age(self) -> None:
        """Halve the counts of keys; count what is lost of fewer keys if those that have lost rows are too many."""
        attrs, meta = self.shared.attrs[: self.keys], self.shared.meta
        if self._aged is None:
            self._aged = attrs.copy(), int(meta[bk.LOGGED]), [side.queue.copy() for side in self.sides]
        attrs[:, bk.COUNT : bk.COUNT + 2] >>= 1
        while True:
            losing = attrs[:, bk.LOST : bk.LOST + 2].any(axis=1)
            if losing.sum() <= self.capacity:
                return
            self._settle_missed(np.ones(self.keys, bool))
            meta[bk.SAMPLED] += 1
            out = ~bk.sampled(self.shared.values[: self.keys], int(meta[bk.SAMPLED]), np.empty(self.keys, np.bool_))
            attrs[out, bk.LOST : bk.LOST + 2] = 0
            for side in self.sides:
                entries = side.queue[side.meta[bk.HEAD] : side.meta[bk.TAIL]]
                lost = np.flatnonzero((entries < 0) & (entries > bk.NOTHING))
                entries[lost[out[~entries[lost]]]] = bk.NOTHING

    def _settle_missed(self, keys: NDArray[np.bool_]) -> None:
        """Add what some keys have missed to the estimate, and begin at 0 with them."""
        missed = self.shared.attrs[: self.keys, bk.MISSED]
        factor = 1 << int(self.shared.meta[bk.SAMPLED])
        some = missed[keys].astype(np.float64)
        self._missed += factor * some.sum(), factor * (factor - 1) * (some @ some)
        missed[keys] = 0

    @property
    def missed(self) -> Missed:
        """What was missed so far."""
        factor = 1 << int(self.shared.meta[bk.SAMPLED])
        now = self.shared.attrs[: self.keys, bk.MISSED].astype(np.float64)
        rows, variance = self._missed + np.array([factor * now.sum(), factor * (factor - 1) * (now @ now)])
        return Missed(round(rows), float(np.sqrt(variance)), factor == 1)

    def score_by(self, side: int, scoring: Scoring) -> None:
        """Score the rows that wait for a side's stream."""
        record, unit = self.sides[side], 1 << BITS
        kind, center = KINDS.index(scoring.kind), CENTERS.index(scoring.center)
        line = round(scoring.start * unit), round(scoring.slope * unit)
        record.model[:] = kind, center, scoring.low, scoring.state_low, *line
        record.replace(means=scoring.means, table=scoring.table, weights=scoring.weights)

    # -- epochs ------------------------------------------------------------------------------------------------------

    def kept(self, side: int) -> Codes:
        """Return the positions of the kept rows, in order of arrival."""
        record = self.sides[side]
        return np.sort(record.live[: record.meta[bk.LIVE]])

    def commit(self) -> tuple[list[Codes | None], Codes | None]:
        """Commit. Return, for each side, the positions that are left if the others were dropped, which are then
        numbered from 0 on, and likewise the keys that are left."""
        left: list[Codes | None] = [None, None]
        for s, side in enumerate(self.sides):
            gone = self.ends[s] - int(side.meta[bk.LIVE])
            waiting = int(side.meta[bk.HEAD])
            if gone > side.meta[bk.LIVE] + _SPARE or waiting > side.meta[bk.TAIL] - waiting + _SPARE:
                left[s] = self._renumber_rows(s)
        known = self._forget_keys() if self.keys > 4 * (self.capacity + _SPARE) else None
        self._begin()
        return left, known

    def _renumber_rows(self, s: int) -> Codes:
        side, still = self.sides[s], self.kept(s)
        number = np.full(self.ends[s], -1, np.int64)
        number[still] = np.arange(len(still))
        side.queue[:], head, tail = self._moved_queue(s, number), *side.meta[[bk.HEAD, bk.TAIL]]
        side.meta[[bk.HEAD, bk.TAIL]] = 0, tail - head
        columns = {name: getattr(side, name)[still] for name in ("ids", "came")}
        columns["queued"] = side.queued[still] - head
        self._set_rows(s, columns)
        return still

    def _moved_queue(self, s: int, number: Codes) -> Codes:
        """Return the queue from its head on, with other positions; the rest is room."""
        side = self.sides[s]
        moved = np.empty_like(side.queue)
        entries = side.queue[side.meta[bk.HEAD] : side.meta[bk.TAIL]]
        moved[: len(entries)] = entries
        kept = np.flatnonzero(entries >= 0)
        moved[kept] = number[entries[kept]]
        return moved

    def _set_rows(self, s: int, columns: dict[str, Codes]) -> None:
        """Have these rows only, all of them kept, and rebuild the chains."""
        side, rows = self.sides[s], len(columns["ids"])
        room = 2 * rows + _SPARE
        arrays = {name: with_room(columns.get(name, np.zeros(rows, np.int64)), room) for name in _ROWS}
        side.replace(**arrays)
        self.ends[s] = rows
        bk.chain_live(side.address, self.shared.address, s, rows)

    def _forget_keys(self) -> Codes | None:
        """Forget keys that nothing depends on, if they are most; return those that are left."""
        attrs = self.shared.attrs[: self.keys]
        used = (attrs[:, bk.FIRST : bk.FIRST + 2] >= 0).any(axis=1) | attrs[:, bk.COUNT : bk.COUNT + 2].any(axis=1)
        used |= attrs[:, bk.LOST : bk.LOST + 2].any(axis=1)
        if 2 * used.sum() > self.keys:
            return None
        self._settle_missed(np.logical_not(used))
        still = np.flatnonzero(used)
        number = np.full(self.keys, -1, np.int64)
        number[still] = np.arange(len(still))
        values = self.shared.values[still]
        self.shared.attrs[: len(still)] = attrs[still]
        self.shared.values[: len(still)] = values
        self.keys = len(still)
        for s, side in enumerate(self.sides):
            ids = side.ids[: self.ends[s]]
            ids[ids >= 0] = number[ids[ids >= 0]]
            entries = side.queue[side.meta[bk.HEAD] : side.meta[bk.TAIL]]
            lost = (entries < 0) & (entries > bk.NOTHING)
            entries[lost] = ~number[~entries[lost]]
        return still

    def undo(self) -> None:
        """Go back to the last commit."""
        metas, shared, ends, keys, arrivals, missed = self._before
        came_back = [side.gone[: side.meta[bk.GONE]] for side in self.sides]
        if self._aged is not None:
            attrs, self.shared.meta[bk.LOGGED], queues = self._aged
            self.shared.attrs[: len(attrs)] = attrs
            for side, queue in zip(self.sides, queues, strict=True):
                side.queue[: len(queue)] = queue
        bk.restore_keys(self.shared.address)
        self.ends, self.keys, self.arrivals, self._missed = list(ends), keys, arrivals, missed.copy()
        for s, side in enumerate(self.sides):
            side.meta[:] = metas[s]
            back = came_back[s][came_back[s] < ends[s]]
            side.place[back] = 0
            if side.meta[bk.SIZE] >= 0:
                side.queue[side.queued[back]] = back
        epoch = int(self.shared.meta[bk.EPOCH])
        self.shared.meta[:] = shared
        self.capacity = int(shared[bk.CAPACITY])
        self.shared.meta[bk.EPOCH] = epoch
        self.shared.attrs[: self.keys, bk.STAMP] = -1
        for s, side in enumerate(self.sides):
            bk.chain_live(side.address, self.shared.address, s, self.ends[s])
        self._begin()

    # -- images ------------------------------------------------------------------------------------------------------

    def image(self) -> Image:
        """Return the state between two epochs, of the kept rows only."""
        meta = self.shared.meta.copy()
        meta[[bk.EPOCH, bk.LOGGED]] = 0
        parts: Image = {
            "keys_attrs": self._plain_attrs(),
            "keys_values": self.shared.values[: self.keys].copy(),
            "meta": meta,
            "missed": np.array([self._missed], np.float64).view(np.int64)[0],
            "arrivals": np.array([self.arrivals], np.int64),
        }
        for s, (name, side) in enumerate(zip(_NAMES, self.sides, strict=True)):
            still = self.kept(s)
            number = np.full(self.ends[s], -1, np.int64)
            number[still] = np.arange(len(still))
            head, tail = side.meta[[bk.HEAD, bk.TAIL]].tolist()
            parts[f"{name}_ids"], parts[f"{name}_came"] = side.ids[still], side.came[still]
            parts[f"{name}_queued"] = side.queued[still] - head
            parts[f"{name}_queue"] = self._moved_queue(s, number)[: tail - head]
            parts[f"{name}_meta"] = side.meta.copy()
            parts[f"{name}_meta"][[bk.HEAD, bk.TAIL, bk.GONE]] = 0, tail - head, 0
        return parts

    def _plain_attrs(self) -> Codes:
        """Return the attributes of keys, without the ends of chains, which follow from the rows."""
        attrs = self.shared.attrs[: self.keys, : bk.STAMP].copy()
        attrs[:, : bk.COUNT] = -1
        return attrs

    def restore(self, image: Image, is_resized: bool = False) -> None:
        """Take an image; raise StaleImage if it is not one of such a state. It may be of another capacity if that is
        changed while it runs."""
        expected = {"keys_attrs": 2, "keys_values": 1, "meta": 1, "missed": 1, "arrivals": 1}
        expected |= {f"{name}_{part}": 1 for name in _NAMES for part in ("ids", "came", "queued", "queue", "meta")}
        for name, dimensions in expected.items():
            array = image.get(name)
            if array is None or array.ndim != dimensions or array.dtype != np.int64:
                raise StaleImage(f"no {name} of a bounded join")
        if len(image["meta"]) != bk.SHARED_META or (image["meta"][bk.CAPACITY] != self.capacity and not is_resized):
            raise StaleImage("a bounded join of another capacity")
        self.capacity = int(image["meta"][bk.CAPACITY])
        self.clear()
        self.know_keys(image["keys_values"])
        self.shared.attrs[: self.keys, : bk.STAMP] = image["keys_attrs"]
        self.shared.meta[:] = image["meta"]
        self._missed = image["missed"].copy().view(np.float64)
        self.arrivals = int(image["arrivals"][0])
        for s, (name, side) in enumerate(zip(_NAMES, self.sides, strict=True)):
            side.meta[:] = image[f"{name}_meta"]
            queue = image[f"{name}_queue"]
            side.meta[[bk.HEAD, bk.TAIL]] = 0, len(queue)
            side.replace(queue=with_room(queue, 2 * len(queue) + _SPARE))
            self._set_rows(s, {part: image[f"{name}_{part}"] for part in ("ids", "came", "queued")})
        self._begin()

    @property
    def nbytes(self) -> int:
        return self.shared.nbytes + sum(side.nbytes for side in self.sides)
